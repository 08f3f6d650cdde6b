"""The practice world: a checkout, a forge, an image registry and a CI that misbehaves, all on this machine.

A notebook without a ``repo`` works on it.  Nothing in the library knows that: only addresses differ.
"""

import contextlib
import os
import shlex
import threading
import time
from argparse import Namespace
from pathlib import Path

from runbook_lib.practice.world import World, answers, is_world, reset, start
from runbook_lib.practice.world import default_home as home

__all__ = ["World", "command", "enter", "environment", "home", "is_world", "reset", "start"]

#: What `enter` found in the environment before it set a variable; None for one that was not set.
_before: dict[str, str | None] = {}
#: A form works in several threads, and the environment is one for all.
_entering = threading.RLock()


def enter(repo: str) -> str:
    """What every notebook calls with its parameter ``repo``: the path to work on, absolute.

    Empty: the checkout of the practice world, which is started in this process unless the environment leads to one
    that answers; afterwards the environment leads there.  Otherwise ``repo`` itself, and the environment as it was
    before an earlier call changed it.
    """
    with _entering:
        if repo:
            _leave()
            return str(Path(repo).expanduser().absolute())
        return _enter()


def environment(repo: str) -> dict[str, str]:
    """The environment that a run with this parameter ``repo`` has, whichever was entered last."""
    with _entering:
        enter(repo)
        return dict(os.environ)


def _enter() -> str:
    checkout = os.environ.get("RUNBOOK_PRACTICE", "")
    if checkout and all(answers(os.environ.get(name, "")) for name in ("GITHUB_API_URL", "RUNBOOK_REGISTRY")):
        return checkout
    # The launcher has ended whose world this was: the folder is still there.
    folder = Path(checkout).parent
    world = start(folder if checkout and is_world(folder) else None)
    for name, value in world.env.items():
        _before.setdefault(name, os.environ.get(name))
        os.environ[name] = value
    return str(world.checkout)


def _leave() -> None:
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()


def command(options: Namespace) -> int:
    """``runbook practice [start|reset]``: serve the practice world until Ctrl-C, or remove it.  The exit status."""
    if options.action == "reset":
        existed = reset()
        print(f"The practice world in {home()} is removed." if existed else f"There is none in {home()}.")
        return 0
    with start() as world, contextlib.suppress(KeyboardInterrupt):
        print(_how_to_reach(world), flush=True)
        # In steps: a Ctrl-C that comes just before an endless wait would go unseen.
        while not world.running_elsewhere:
            time.sleep(0.2)
    return 0


def _how_to_reach(world: World) -> str:
    exports = "\n".join(f"    export {name}={shlex.quote(value)}" for name, value in world.env.items())
    end = f"The end of {world.launcher}" if world.running_elsewhere else "Ctrl-C"
    advice = f"\n{world.advice}\n" if world.advice else ""
    return f"""\
*** PRACTICE *** Nothing here is real, and nothing leaves this machine.
{advice}
    checkout   {world.checkout}
    forge      {world.launcher.forge}   (GitHub's REST API, repository {world.env["GITHUB_REPOSITORY"]})
    registry   {world.launcher.registry}   (nvidia/pytorch)

Notebooks without a repo find it by themselves. For a shell of your own:

{exports}

{end} ends it; its folder stays. `runbook practice reset` throws the folder away."""
