"""The practice environment: a folder of the user, created once, which every command opens for itself.

It contains the checkout, the bare repositories to which it pushes, the forge's state, and pages of what happened.
"""

import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git import command
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice import pages, seed
from runbook_lib.practice.forge import PracticeForge
from runbook_lib.practice.hub import REPOSITORY, Hub
from runbook_lib.practice.registry import PracticeRegistry
from runbook_lib.practice.store import Store
from runbook_lib.system.files import locked
from runbook_lib.world.ports import SecondCi

REMOTE, COPY = "remote.git", "gitlab.git"
_CHECKOUT, _STATE, _PAGES = "Megatron-LM", "forge.sqlite", "pages"
_REPOSITORIES = (_CHECKOUT, REMOTE, COPY)
_MARKER, _LOCK = "practice-world.json", "practice-world.lock"
_OTHER_FOLDER = "Set RUNBOOK_PRACTICE_HOME to another folder, new or empty."
_START_AGAIN = "Delete that folder: the next run creates a new one."
#: By how much each command moves the clock on, and what a pause of the clock takes in reality; seconds.
COMMAND, _PAUSE = 1200.0, 0.02


class PracticeWorld:
    """The practice environment in a folder, which exists: the services of a run without a ``repo``."""

    def __init__(self, home: Path) -> None:
        """Open it.  Raises RunbookError for a folder that is incomplete or unreadable."""
        self.home, self.checkout = home, home / _CHECKOUT
        if missing := [name for name in _REPOSITORIES if not (home / name).is_dir()]:
            names = " and ".join(missing)
            raise RunbookError(f"{names} missing from the practice environment in {home}. {_START_AGAIN}")
        try:
            self.store = Store(home / _STATE)
            self.store.advance(0, at_least=0 if self.store.now() else time.time())
            self.hub = Hub(self.store, home / REMOTE)
        except sqlite3.DatabaseError as error:
            problem = f"The practice forge's state in {home / _STATE} cannot be read: {error}."
            raise RunbookError(f"{problem} {_START_AGAIN}") from error

    @property
    def pages(self) -> Path:
        """The folder of the pages, to which the URLs of the forge lead."""
        return self.home / _PAGES / REPOSITORY

    def begin_command(self) -> None:
        """Let the time pass that people take between two commands."""
        self.store.advance(COMMAND, at_least=time.time())

    def forge(self, repository: str = REPOSITORY, *, required: bool = True) -> PracticeForge:
        """Return the forge, as the engineer sees it."""
        return PracticeForge(self.hub, self.pages)

    def registry(self, ref: ImageRef) -> PracticeRegistry:
        """Return a repository of the registry."""
        return PracticeRegistry(ref)

    def second_ci(self, _server: str = "", _project: str = "") -> SecondCi:
        """Return the second CI."""
        from runbook_lib.practice.second_ci import PracticeSecondCi  # its models take long to import

        return PracticeSecondCi(REPOSITORY, self.home / REMOTE, self.home / COPY, (self.pages / "commit").as_uri())

    def sleep(self, seconds: float) -> None:
        """Move the clock on."""
        self.store.advance(seconds)
        time.sleep(min(seconds, _PAUSE))

    def monotonic(self) -> float:
        """Return the time of the clock, in seconds."""
        return self.store.now()

    def write_pages(self, record: Path | None) -> None:
        """Write the pages of the forge, and copy them to a record."""
        with self.store.transaction():
            pages.write(self.hub, self.pages)
        if record is not None:
            shutil.copytree(self.pages, record / "practice", dirs_exist_ok=True)


def default_home() -> Path:
    """Return the folder of the practice environment: $RUNBOOK_PRACTICE_HOME, or one below $XDG_STATE_HOME."""
    if own := os.environ.get("RUNBOOK_PRACTICE_HOME"):
        return Path(own).expanduser().absolute()
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # the specification requires ignoring it
        state = Path.home() / ".local/state"
    return state / "base-image-runbook/practice"


#: The open worlds of this process, and the file that each has open: a form works in several threads.
_open: dict[Path, tuple[int, PracticeWorld]] = {}


def open_world(home: Path | None = None) -> PracticeWorld:
    """Open the practice environment, which is created if necessary.

    Raises Refused for a folder that is not ours, RunbookError for a world that cannot be created or read.
    """
    home = (home or default_home()).absolute()
    try:
        if _marker(home).get("state") != "complete":
            _create(home)
        if _marker(home).get("template") != seed.VERSION:
            raise RunbookError(
                f"The practice environment in {home} was created by a different version of the runbook. {_START_AGAIN}"
            )
        known = _open.get(home)
        if known is None or known[0] != _inode(home):
            world = PracticeWorld(home)
            known = _open[home] = _inode(home), world
        return known[1]
    except OSError as error:
        problem = f"The practice environment in {home} could not be opened: {error}."
        raise RunbookError(f"{problem} {_OTHER_FOLDER}") from error


def _inode(home: Path) -> int:
    try:
        return (home / _STATE).stat().st_ino
    except FileNotFoundError:
        return 0


def _create(home: Path) -> None:
    """Create the world, unless another process has just done so; a creation that was killed begins again."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_foreign(home)
    with locked(home / _LOCK, print):
        if _marker(home).get("state") == "complete":
            return
        # The practice forge merges without a work tree (git merge-tree --write-tree).
        command.require((2, 38), "The practice environment")
        _write_marker(home, "creating")
        for path in [*(home / name for name in (*_REPOSITORIES, _PAGES)), *home.glob(f"{_STATE}*")]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        seed.create(home / REMOTE, home / _CHECKOUT, home / COPY)
        _write_marker(home, "complete")


def _refuse_foreign(home: Path) -> None:
    ours = (_LOCK, _MARKER, f"{_MARKER}.new")
    if not (home / _MARKER).is_file() and any(path.name not in ours for path in home.iterdir()):
        raise Refused(
            f"{home} is not empty and contains no practice environment, so nothing was changed. {_OTHER_FOLDER}"
        )


def _marker(home: Path) -> dict[str, object]:
    try:
        marker = json.loads((home / _MARKER).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def _write_marker(home: Path, state: str) -> None:
    about = "A practice environment of the base-image runbook. It may be deleted: the next run creates a new one."
    temporary = home / f"{_MARKER}.new"
    temporary.write_text(json.dumps({"about": about, "state": state, "template": seed.VERSION}) + "\n")
    temporary.replace(home / _MARKER)
