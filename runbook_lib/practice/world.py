"""The practice environment: a folder of the user, created once, which every command opens for itself.

It contains the checkout, the bare repositories to which it pushes, the forge's state, and pages of what happened.
"""

import os
import shutil
import sqlite3
import time
from pathlib import Path

import platformdirs

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice import pages, seed
from runbook_lib.practice.forge import REPOSITORY, PracticeForge
from runbook_lib.practice.registry import PracticeRegistry
from runbook_lib.practice.store import Store
from runbook_lib.world.git import command
from runbook_lib.world.machine.files import cannot_write, locked, write
from runbook_lib.world.ports import SecondCi

_REMOTE, _COPY, _CHECKOUT = "remote.git", "gitlab.git", "Megatron-LM"
_MARKER, _LOCK = "practice-world.txt", "practice-world.lock"
#: The text of the marker, which a complete world has.
_ABOUT = f"""\
A practice environment of the base-image runbook, version {seed.VERSION}.
It may be deleted: the next run creates a new one.
"""
_OTHER_FOLDER = "Set RUNBOOK_PRACTICE_HOME to another folder, new or empty."
_START_AGAIN = "Delete that folder: the next run creates a new one."
#: By how much each command moves the clock on, and what a pause of the clock takes in reality; seconds.
COMMAND, _PAUSE = 1200.0, 0.02


class PracticeWorld:
    """The practice environment in a folder, which exists: the services of a run without a ``repo``."""

    def __init__(self, home: Path) -> None:
        """Open it.  Raises OSError or sqlite3.DatabaseError for a folder that is incomplete or unreadable."""
        self.home, self.checkout = home, home / _CHECKOUT
        for name in (_REMOTE, _COPY, _CHECKOUT):
            (home / name).stat()
        #: The folder of the pages, to which the URLs of the forge lead.
        self.pages = home / "pages" / REPOSITORY
        self.store = Store(home / "forge.sqlite")
        self._forge = PracticeForge(self.store, home / _REMOTE, self.pages)

    def begin_command(self) -> None:
        """Let the time pass that people take between two commands."""
        self.store.advance(COMMAND, at_least=time.time())

    def forge(self, repository: str = REPOSITORY, *, required: bool = True) -> PracticeForge:
        return self._forge

    def registry(self, ref: ImageRef) -> PracticeRegistry:
        return PracticeRegistry(ref)

    def second_ci(self, _remote: object = None) -> SecondCi:
        from runbook_lib.practice.second_ci import PracticeSecondCi  # its models take long to import

        return PracticeSecondCi(self.store, self.home / _COPY, (self.pages / "commit").as_uri())

    def sleep(self, seconds: float) -> None:
        self.store.advance(seconds)
        time.sleep(min(seconds, _PAUSE))

    def monotonic(self) -> float:
        with self.store.transaction() as state:
            return float(state.clock)

    def write_pages(self, record: Path | None) -> None:
        """Write the pages of the forge, and copy them to a record.  Raises RunbookError."""
        try:
            with self.store.transaction():
                pages.write(self._forge, self.pages)
            if record is not None:
                shutil.copytree(self.pages, record / "practice", dirs_exist_ok=True)
        except shutil.Error as error:  # it lists every file
            raise RunbookError(f"The practice pages were not copied: {error.args[0][0][2]}") from error
        except OSError as error:
            raise cannot_write(self.pages, error) from error


def default_home() -> Path:
    """Return the folder of the practice environment: $RUNBOOK_PRACTICE_HOME, or one of the user's state."""
    own = os.environ.get("RUNBOOK_PRACTICE_HOME")
    if own:
        return Path(os.path.expanduser(own)).absolute()
    return platformdirs.user_state_path("base-image-runbook") / "practice"


def open_world(home: Path | None = None) -> PracticeWorld:
    """Open the practice environment, which is created if necessary.

    Raises Refused for a folder that is not ours, RunbookError for a world that cannot be created or read.
    """
    home = (home or default_home()).absolute()
    named = f"The practice environment in {home}"
    try:
        if not (home / _MARKER).is_file():
            _create(home)
        if (home / _MARKER).read_text() != _ABOUT:
            raise RunbookError(f"{named} was created by a different version of the runbook. {_START_AGAIN}")
        return PracticeWorld(home)
    except (FileNotFoundError, sqlite3.DatabaseError) as error:
        raise RunbookError(f"{named} is incomplete or cannot be read: {error}. {_START_AGAIN}") from error
    except OSError as error:
        raise RunbookError(f"{named} could not be opened: {error}. {_OTHER_FOLDER}") from error


def _create(home: Path) -> None:
    """Create the world, unless another process has just done so; a creation that was killed begins again."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(home.iterdir()) and not (home / _LOCK).exists():
        raise Refused(
            f"{home} is not empty and contains no practice environment, so nothing was changed. {_OTHER_FOLDER}"
        )
    with locked(home / _LOCK, print):
        if (home / _MARKER).is_file():
            return
        # The practice forge merges without a work tree (git merge-tree --write-tree).
        command.require((2, 38), "The practice environment")
        for name in (_REMOTE, _COPY, _CHECKOUT):
            shutil.rmtree(home / name, ignore_errors=True)
        seed.create(home / _REMOTE, home / _CHECKOUT, home / _COPY)
        write(home / _MARKER, _ABOUT)
