"""``runbook watch``: propose newer tags."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from runbook_lib.bump import watch as watching
from runbook_lib.bump.watch import WatchResult
from runbook_lib.cli.command import Answer, command
from runbook_lib.git.checkout import Checkout
from runbook_lib.system.clock import now
from runbook_lib.world.services import ONLINE


@command("watch ~/Megatron-LM --cool-down 7")
@click.argument("repo", default=".")
@click.option("--base", default="main", help="The branch to bump (default: main).")
@click.option("--remote", default="origin", help="The remote to push branches to (default: origin).")
@click.option("--image-type", type=click.Choice(("dev", "lts")), default="dev", help="Default: dev.")
@click.option("--publish", is_flag=True, help="Push, and open the pull request (default: preview).")
@click.option("--cool-down", type=int, metavar="DAYS", help="Ignore an image for this many days after its build.")
def watch(repo: str, base: str, remote: str, image_type: str, publish: bool, cool_down: int | None) -> Answer:
    """Compare the pins of a branch with the registry, and propose the newest tag that nothing holds back.

    REPO is a clone (default: the current one).  Exit status: 0 up to date, open or held back, 1 a person is needed,
    2 cannot tell.
    """
    request = watching.WatchOptions(
        now().date(), ONLINE, image_type=image_type, base=base, remote=remote, cool_down=cool_down, publish=publish,
    )  # fmt: skip
    results = watching.watch(Checkout.open(repo), request)
    document = {"results": [asdict(result) for result in results]}
    return Answer(max(result.exit_status for result in results), document, _lines(results))


def _lines(results: Sequence[WatchResult]) -> Iterator[str]:
    for result in results:
        yield f"{result.image} ({result.image_type}) on {result.base}: {result.state}. {result.sentence}"
        if result.url:
            yield result.url
