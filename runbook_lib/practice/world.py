"""The practice environment: created once in a folder of the user, and served by the first process that needs it.

The folder contains the checkout, the bare remotes to which it pushes, the forge's state, a marker and a lock.  The
launcher, which is the process that serves the world, keeps the lock and writes the addresses of forge and registry into
it, where a second launcher finds them; when the first ends, the lock is free.  Nothing runs between two commands.  A
process that joined a world loses it when the launcher ends: ``practice.enter`` then finds or starts it again, and a
process that called `PracticeWorld.stand_by` continues to serve it under the same addresses.
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git import command
from runbook_lib.practice import content, seed
from runbook_lib.practice.accounts import GITLAB_TOKEN, TOKEN

REPOSITORY = "practice/Megatron-LM"
REMOTE, COPY = "remote.git", "gitlab.git"
_CHECKOUT, _STATE = "Megatron-LM", "forge.sqlite"
_REPOSITORIES = (_CHECKOUT, REMOTE, COPY)
_NOWHERE = "http://127.0.0.1:9"  # GitLab's address: the scripted pipelines answer instead
_MARKER, _LOCK = "practice-world.json", "practice-world.lock"
_OTHER_FOLDER = "Set RUNBOOK_PRACTICE_HOME to another folder, new or empty."
_RESET = "Run `runbook practice reset`: the next run creates a new world."
CREATION_LIMIT = 15.0  # seconds for another launcher to create the world, which takes less than one


@dataclass(frozen=True)
class Launcher:
    """The process that serves the world, and its URLs, as stored in the lock."""

    pid: int
    forge: str
    registry: str

    def __str__(self) -> str:
        return f"process {self.pid}"


class PracticeWorld:
    """A practice environment that is served."""

    def __init__(self, home: Path, launcher: Launcher, owned: contextlib.ExitStack | None) -> None:
        self.home = home
        self.checkout = home / _CHECKOUT
        self.launcher = launcher
        self._owned = owned
        self._closing, self._closed = threading.Lock(), False

    @property
    def running_elsewhere(self) -> bool:
        """True if another process serves it, or another object of this process."""
        return self._owned is None

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that lead to it; an empty one hides a credential that does not belong here."""
        variables = {
            "RUNBOOK_PRACTICE": str(self.checkout),
            "GITHUB_API_URL": self.launcher.forge,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_TOKEN": TOKEN,
            "RUNBOOK_REGISTRY": self.launcher.registry,
            "NGC_API_KEY": "",
            "GITLAB_URL": _NOWHERE,
            "GITLAB_TOKEN": GITLAB_TOKEN,
            "GITLAB_PROJECT": REPOSITORY,
        }
        # Practice must not use a company proxy.
        if {"http_proxy", "https_proxy", "all_proxy"}.intersection(map(str.lower, os.environ)):
            direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
            if "127.0.0.1" not in direct.split(","):
                direct = f"{direct},127.0.0.1".lstrip(",")
            variables |= {"NO_PROXY": direct, "no_proxy": direct}
        return variables

    @property
    def advice(self) -> str:
        """A message for a world that an older or newer version created; else empty."""
        if _marker(self.home).get("template") == content.VERSION:
            return ""
        return (
            "This practice environment was created by a different version of the runbook. It still works; "
            "after `runbook practice reset` the next run creates a current one."
        )

    def stand_by(self) -> None:
        """Serve the world from this process as soon as its launcher ends, such as the kernel of a notebook."""
        if self.running_elsewhere and self.launcher.pid != os.getpid():
            threading.Thread(target=self._take_over, daemon=True, name="practice").start()

    def _take_over(self) -> None:
        with contextlib.ExitStack() as undo, contextlib.suppress(OSError, RunbookError):
            lock = os.open(self.home / _LOCK, os.O_RDWR)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the launcher has ended
            with self._closing:
                if not self._closed and os.path.samestat(os.fstat(lock), (self.home / _LOCK).stat()):
                    self.launcher = _launch(self.home, lock, undo, time.time)
                    self._owned = undo.pop_all()

    def close(self) -> None:
        """Stop serving, if this object serves the world.  May be called twice."""
        with self._closing:
            self._closed = True
            if self._owned is not None:
                self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def default_home() -> Path:
    """Return the folder of the practice environment: $RUNBOOK_PRACTICE_HOME, or one below $XDG_STATE_HOME."""
    if own := os.environ.get("RUNBOOK_PRACTICE_HOME"):
        return Path(own).expanduser().absolute()
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # the specification requires ignoring it
        state = Path.home() / ".local/state"
    return state / "base-image-runbook/practice"


def start(home: Path | None = None, *, clock: Callable[[], float] = time.time) -> PracticeWorld:
    """Serve the practice environment, or join it if it is already served.  ``clock`` is its forge's clock.

    Raises Refused for a folder that is not ours, RunbookError for a world that cannot be created or does not respond.
    """
    home = (home or default_home()).absolute()
    give_up = time.monotonic() + CREATION_LIMIT
    try:
        while True:
            lock = _take_lock(home)
            if lock is not None:
                with contextlib.ExitStack() as undo:
                    undo.callback(os.close, lock)
                    return PracticeWorld(home, _launch(home, lock, undo, clock), undo.pop_all())
            launcher = _launcher(home)
            if launcher and responds(launcher.forge) and responds(launcher.registry):
                return PracticeWorld(home, launcher, None)
            if time.monotonic() > give_up:
                raise RunbookError(
                    f"The practice environment in {home} is in use by {launcher or 'another process'}, and does not "
                    "respond. End that process and try again."
                )
            time.sleep(0.02)
    except OSError as error:
        problem = f"The practice environment in {home} could not be started: {error}."
        raise RunbookError(f"{problem} {_OTHER_FOLDER}") from error


def reset() -> bool:
    """Remove the practice environment, but only files that it created.  Return False if there was none.

    Raises Refused while a process serves it, and for a folder that is not ours.
    """
    home = default_home()
    if not home.exists():
        return False
    lock = _take_lock(home)
    if lock is None:
        raise Refused(
            f"The practice environment in {home} is in use by {_launcher(home) or 'another process'}. "
            "End that process (a notebook's kernel, or `runbook practice`), then reset."
        )
    try:
        existed = is_world(home)
        if existed:
            _write_marker(home, "creating")  # if we are killed here, the rest must not look like a complete world
            _remove_content(home)
            (home / _MARKER).unlink()
        (home / _LOCK).unlink()
        with contextlib.suppress(OSError):  # files of the user beside the world stay, and so does the folder
            home.rmdir()
        return existed
    finally:
        os.close(lock)


def is_world(home: Path) -> bool:
    """Return True if the folder is a practice environment, complete or not."""
    return (home / _MARKER).is_file()


def responds(url: str) -> bool:
    """Return True if something listens at the host and port of ``url``, which are on this machine."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=0.25):
            return True
    except (OSError, ValueError):
        return False


def _take_lock(home: Path) -> int | None:
    """Lock the folder, which is created if necessary, and return the descriptor; None if another launcher has it.

    Raises Refused for a folder with content that is not ours.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Either error is raised while another process has the lock or a reset removes the folder.
    with contextlib.ExitStack() as undo, contextlib.suppress(BlockingIOError, FileNotFoundError):
        _refuse_foreign(home)
        lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        undo.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A reset may have removed the file between opening and locking: then the lock has no effect.
        if os.path.samestat(os.fstat(lock), (home / _LOCK).stat()):
            _refuse_foreign(home)
            undo.pop_all()
            return lock
    return None


def _refuse_foreign(home: Path) -> None:
    ours = (_LOCK, f"{_MARKER}.new")
    if not is_world(home) and any(path.name not in ours for path in home.iterdir()):
        raise Refused(
            f"{home} is not empty and contains no practice environment, so nothing was changed. {_OTHER_FOLDER}"
        )


def _launch(home: Path, lock: int, undo: contextlib.ExitStack, clock: Callable[[], float]) -> Launcher:
    """Create the world if necessary, serve it, and write the addresses into the lock."""
    # A process that only joins a world need not import the servers.
    from runbook_lib.practice.github.server import Forge
    from runbook_lib.practice.registry.server import RegistryServer

    last = _launcher(home)
    os.ftruncate(lock, 0)
    if _marker(home).get("state") != "complete":
        # The practice forge merges without a work tree (git merge-tree --write-tree).
        command.require((2, 38), "The practice environment")
        _write_marker(home, "creating")  # until remote and checkout are complete, so that a killed run restarts
        _remove_content(home)
        seed.create(home / REMOTE, home / _CHECKOUT, home / COPY)
        _write_marker(home, "complete")
    if missing := [name for name in _REPOSITORIES if not (home / name).is_dir()]:
        raise RunbookError(f"{' and '.join(missing)} missing from the practice environment in {home}. {_RESET}")
    try:
        forge = Forge(home / _STATE, home / REMOTE, clock=clock)
    except sqlite3.DatabaseError as error:
        raise RunbookError(f"The forge's state in {home / _STATE} cannot be read: {error}. {_RESET}") from None
    undo.callback(forge.close)
    registry = RegistryServer(urlsplit(last.registry).port or 0 if last else 0)
    undo.callback(registry.close)
    launcher = Launcher(os.getpid(), forge.url, registry.url)
    os.pwrite(lock, json.dumps(asdict(launcher)).encode(), 0)
    return launcher


def _launcher(home: Path) -> Launcher | None:
    """Return the process that has the lock, or None before it has written its addresses."""
    try:
        return Launcher(**json.loads((home / _LOCK).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _marker(home: Path) -> dict[str, object]:
    try:
        marker = json.loads((home / _MARKER).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def _write_marker(home: Path, state: str) -> None:
    about = "A practice environment of the base-image runbook. `runbook practice reset` removes this folder."
    temporary = home / f"{_MARKER}.new"
    temporary.write_text(json.dumps({"about": about, "state": state, "template": content.VERSION}) + "\n")
    temporary.replace(home / _MARKER)


def _remove_content(home: Path) -> None:
    ours = [home / name for name in (*_REPOSITORIES, f"{_MARKER}.new")]
    for path in [*ours, *home.glob(f"{_STATE}*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
