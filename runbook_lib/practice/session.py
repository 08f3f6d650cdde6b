"""The environment variables of this process, which lead notebooks without a ``repo`` to the practice environment.

The rest of the library does not know the difference: only addresses differ, and what answers in place of GitLab.
"""

import os
import threading
from pathlib import Path

from runbook_lib.practice.world import COPY, REMOTE, REPOSITORY, is_world, responds, start

#: The previous values of the variables that `enter` has set; None for a variable that did not exist.
_previous: dict[str, str | None] = {}
#: A form works in several threads, and all share one environment.
_entering = threading.RLock()


def enter(repo: str) -> str:
    """Return the absolute path of the checkout for the notebook parameter ``repo``.

    An empty ``repo`` means the practice environment: it is started in this process, unless the variables already lead
    to one that responds, and the variables are set to it.  Otherwise the previous variables are restored.
    """
    with _entering:
        if not repo:
            return _enter_practice()
        for name, value in _previous.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _previous.clear()
        _answer_for_gitlab(None)
        return str(Path(repo).expanduser().absolute())


def environment(repo: str) -> dict[str, str]:
    """Return the environment of a run with this parameter ``repo``."""
    with _entering:
        enter(repo)
        return dict(os.environ)


def _enter_practice() -> str:
    checkout = os.environ.get("RUNBOOK_PRACTICE", "")
    services = [os.environ.get(name, "") for name in ("GITHUB_API_URL", "RUNBOOK_REGISTRY")]
    if not checkout or not all(responds(url) for url in services):
        # The process that served this world has ended, but its folder may still exist.
        folder = Path(checkout).parent
        world = start(folder if checkout and is_world(folder) else None)
        for name, value in world.env.items():
            _previous.setdefault(name, os.environ.get(name))
            os.environ[name] = value
        checkout = str(world.checkout)
    _answer_for_gitlab(Path(checkout).parent)
    return checkout


def _answer_for_gitlab(home: Path | None) -> None:
    """Let the scripted pipelines of this world answer in place of GitLab; None: GitLab itself."""
    # A process that only starts a world needs no HTTP.
    from runbook_lib.clients.gitlab.client import GitLab
    from runbook_lib.practice.second_ci import SecondCi

    GitLab.scripted = None
    if home:
        pages = f"{os.environ['GITHUB_API_URL']}/{REPOSITORY}/commit"
        GitLab.scripted = SecondCi(REPOSITORY, home / REMOTE, home / COPY, pages)
