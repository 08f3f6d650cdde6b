"""``runbook watch``: propose newer tags."""

import json
import os
from dataclasses import asdict

import click

from runbook_lib.bump import watch as watching
from runbook_lib.cli.command import command, json_option
from runbook_lib.git.checkout import Checkout
from runbook_lib.system.clock import now
from runbook_lib.text.redact import Redactor
from runbook_lib.world.services import ONLINE


@command("watch", "runbook watch ~/Megatron-LM --cool-down 7")
@click.argument("repo", default=".")
@click.option("--base", default="main", help="The branch to bump (default: main).")
@click.option("--remote", default="origin", help="The remote to push branches to (default: origin).")
@click.option("--image-type", type=click.Choice(("dev", "lts")), default="dev", help="Default: dev.")
@click.option("--publish", is_flag=True, help="Push, and open the pull request (default: preview).")
@click.option("--cool-down", type=int, metavar="DAYS", help="Ignore an image for this many days after its build.")
@json_option
def watch(
    repo: str, base: str, remote: str, image_type: str, publish: bool, cool_down: int | None, as_json: bool
) -> int:
    """Compare the pins of a branch with the registry, and propose the newest tag that nothing holds back.

    REPO is a clone (default: the current one).  Exit status: 0 up to date, open or held back, 1 a person is needed,
    2 cannot tell.
    """
    request = watching.WatchOptions(
        now().date(), ONLINE, image_type=image_type, base=base, remote=remote, cool_down=cool_down, publish=publish,
    )  # fmt: skip
    results = watching.watch(Checkout.open(repo), request)
    redactor = Redactor(os.environ)
    if as_json:
        document = {"version": 1, "results": [asdict(result) for result in results]}
        print(json.dumps(redactor.data(document), indent=2))
    else:
        for result in results:
            where = f"{result.image} ({result.image_type}) on {result.base}"
            print(redactor.text(f"{where}: {result.state}. {result.sentence}"))
            if result.url:
                print(result.url)
    return max(result.exit_status for result in results)
