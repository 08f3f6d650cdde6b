"""``runbook watch``: propose newer tags."""

from dataclasses import asdict

import click

from runbook_lib.bump import watch as watching
from runbook_lib.cli.command import Answer, command
from runbook_lib.pins.bump import Bump
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import ONLINE
from runbook_lib.world.repository import choose


@command("watch ~/Megatron-LM --base dev")
@click.argument("repo", default=".")
@click.option("--base", default="main", help="The branch to bump (default: main).")
@click.option("--remote", default="origin", help="The remote to push branches to (default: origin).")
@click.option("--image-type", type=click.Choice(("dev", "lts")), default="dev", help="Default: dev.")
@click.option("--publish", is_flag=True, help="Push, and open the pull request (default: preview).")
def watch(repo: str, base: str, remote: str, image_type: str, publish: bool) -> Answer:
    """Compare the pins of a branch with the registry, and propose the newest tag that nothing holds back.

    REPO is a clone (default: the current one).  Exit status: 0 up to date, open or held back, 1 a person is needed,
    2 cannot tell.
    """
    checkout, mode = Checkout.open(repo), "publish" if publish else "preview"
    bump = Bump.parse(image_type=image_type, base=base, remote=remote, mode=mode, repository=choose(checkout))
    results = watching.watch(checkout, bump, ONLINE)
    document = {"base": base, "image_type": image_type, "results": [asdict(result) for result in results]}
    lines: list[str] = []
    for result in results:
        lines += [f"{result.image} ({image_type}) on {base}: {result.state}. {result.sentence}", result.url]
    return Answer(max(result.exit_status for result in results), document, filter(None, lines))
