"""The command ``runbook practice``."""

import contextlib
import shlex
import time

import click

from runbook_lib.cli.command import command
from runbook_lib.practice import PracticeWorld, default_home, reset, start


@command("practice", "runbook practice start")
@click.argument("action", type=click.Choice(("start", "reset")), default="start")
def practice(action: str) -> int:
    """Serve the practice environment until Ctrl-C, or remove it."""
    if action == "reset":
        home = default_home()
        print(
            f"The practice environment in {home} was removed."
            if reset()
            else f"There is no practice environment in {home}."
        )
        return 0
    with start() as world, contextlib.suppress(KeyboardInterrupt):
        print(_describe(world), flush=True)
        # In short steps: a Ctrl-C just before an endless wait would have no effect.
        while not world.running_elsewhere:
            time.sleep(0.2)
    return 0


def _describe(world: PracticeWorld) -> str:
    exports = "\n".join(f"    export {name}={shlex.quote(value)}" for name, value in world.env.items())
    end = f"It ends with {world.launcher}" if world.running_elsewhere else "Ctrl-C ends it"
    advice = f"\n{world.advice}\n" if world.advice else ""
    return f"""\
*** PRACTICE *** Nothing here is real, and nothing leaves this machine.
{advice}
    checkout   {world.checkout}
    forge      {world.launcher.forge}   (GitHub's REST API, repository {world.env["GITHUB_REPOSITORY"]})
    registry   {world.launcher.registry}   (nvidia/pytorch)

Notebooks without a repo find it automatically. To use it in another shell:

{exports}

{end}; the folder remains. `runbook practice reset` removes it."""
