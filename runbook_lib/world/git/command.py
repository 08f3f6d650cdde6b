"""The git command line: run without ever asking a person, with a time limit, its errors without credentials."""

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.text.sanitize import visible
from runbook_lib.world.machine.subprocess_lines import GIT_BINDING, complete

#: Time limits in seconds for calls of this machine, and for those that contact a remote or read many commits' files.
_LOCAL_LIMIT = 120.0
_LONG_LIMIT = 600.0

#: Older versions of git know only the second, which prevents them from fetching too.
_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
#: Seconds to let a command of this machine come to its own end: cut short, `read-tree -u` leaves half a tree.
_LAST_MOMENTS = 3.0
#: With these, neither git nor programs that it starts prompt or wait for a person.
NON_INTERACTIVE = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never", "GIT_EDITOR": "true", "GIT_MERGE_AUTOEDIT": "no", "GPG_TTY": "",
}  # fmt: skip
_USERINFO = re.compile(r"(?<=://)[^/\s]+@")
_HOST = re.compile(r"https?://(?:[^/\s]{0,500}@)?(\[[^\]\s]{1,100}\]|[^/:\s\]]{1,255})")


#: The exit status of `git remote get-url` if there is no remote of that name.
_NO_REMOTE = 2
#: The oldest git with all required features: --path-format, and settings through the environment.
OLDEST = (2, 31)


class GitFailed(CannotTell):
    """A git command that failed: its error output without credentials, and its exit status if it had one.

    ``found``: what a search printed that could not read some files.
    """

    def __init__(self, place: Path, command: str, stderr: str, status: int | None = None, found: str = ""):
        self.stderr, self.status, self.found = stderr or "nothing.", status, found
        super().__init__(f"`git {command}` failed in {place}: {self.stderr}")


class NoSuchRemote(RunbookError):
    """The repository has no remote with this name."""


@functools.cache
def require(oldest: tuple[int, int] = OLDEST, purpose: str = "The runbook") -> None:
    """Make sure of git's version, once a process.  Raises RunbookError for an older one."""
    try:
        output = subprocess.run(["git", "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    except OSError:
        return  # the first call reports the problem
    match = re.search(r"(\d{1,4})\.(\d{1,4})", output)
    if match and (int(match[1]), int(match[2])) < oldest:
        raise RunbookError(
            f"{purpose} needs git {oldest[0]}.{oldest[1]} or newer; the git on PATH is {output.strip()!r}. Nothing was "
            "done.",
            "Install a newer one, and run the same command again.",
        )


def git(place: Path, *arguments: str, stdin: str | None = None, **options: Any) -> str:
    """Run git in a folder with the options of ``output``, and return its output without the final newline."""
    content = None if stdin is None else stdin.encode("utf-8", "surrogateescape")
    return output(place, *arguments, stdin=content, **options).decode("utf-8", "surrogateescape").removesuffix("\n")


def output(
    place: Path, *arguments: str, stdin: bytes | None = None, settings: Mapping[str, str] | None = None,
    remote: str | None = None, offline: bool = False, index: Path | None = None,
) -> bytes:  # fmt: skip
    """Run git in a folder and return its output; that of a search without a match is empty.  Raises GitFailed.

    ``settings`` are further configuration settings.
    ``remote`` must be a remote of the repository, or NoSuchRemote is raised: git interprets any other word as a path.
    ``offline``: missing objects are not fetched, by any protocol.  ``index`` is used in place of the repository's.
    """
    limit = _LOCAL_LIMIT if remote is None and arguments[0] != "cat-file" else _LONG_LIMIT
    command = shlex.join(arguments[:3])
    env = _environment() | (_OFFLINE if offline else {})
    if index is not None:
        env["GIT_INDEX_FILE"] = str(index)
    configured = dict(settings or {})
    if remote is not None:
        used = addresses(place, remote, push=arguments[0] == "push")
        env |= _without_proxy(used)
        if not any(address.startswith("http://") for address in used):
            configured["protocol.http.allow"] = "never"  # no redirect leads from https to plain http
    options = [word for name, value in configured.items() for word in ("-c", f"{name}={value}")]
    try:
        # A time-out or Ctrl-C ends git's own children (ssh, hooks) too.
        patience = _LAST_MOMENTS if remote is None else 0.0
        done = complete(["git", "-C", str(place), *options, *arguments], env, limit, stdin, patience)
    except ValueError:  # a zero byte, or a surrogate
        reason = "a name contains a character that git does not allow in names."
        raise GitFailed(place, visible(command), reason) from None
    except (FileNotFoundError, PermissionError):
        advice = "Install it, or add it to PATH, then run again."
        raise GitFailed(place, command, f"git was not found, or may not be run. {advice}") from None
    except subprocess.TimeoutExpired:
        raise GitFailed(place, command, f"it took longer than {limit:.0f} seconds and was stopped.") from None
    has_failed = done.returncode != 0
    if arguments[0] == "grep":  # status 1: no match; it continues after a file that it cannot read, without a status
        has_failed = done.returncode > 1 or done.stderr.startswith(b"error: ")
    if has_failed:
        said = (done.stderr or done.stdout).decode("utf-8", "replace")
        found = done.stdout.decode("utf-8", "surrogateescape")
        raise GitFailed(place, command, _sentence(said), done.returncode, found)
    return done.stdout


def clean(text: str) -> str:
    """Return the text without the user and password of addresses."""
    return _USERINFO.sub("", text)


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in GIT_BINDING}
    # Without replacements, the objects read are those that a push sends.
    own = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
    return inherited | NON_INTERACTIVE | own


def addresses(place: Path, remote: str, *, push: bool) -> list[str]:
    """Return the addresses of a remote after git's rules (``insteadOf``) have been applied.  Raises NoSuchRemote."""
    try:
        return git(place, "remote", "get-url", "--all", *(["--push"] if push else []), "--", remote).splitlines()
    except GitFailed as error:
        if error.status != _NO_REMOTE:
            raise
        names = ", ".join(git(place, "remote").split()) or "none"
        raise NoSuchRemote(
            f"{place} has no remote named {remote!r}; it has {names}.",
            "Add it with `git remote add`, or give another as remote.",
        ) from error


def _without_proxy(used: Iterable[str]) -> dict[str, str]:
    """Return the variables that keep git from using a proxy, from the environment or its settings, for this machine."""
    from runbook_lib.world.transport.urls import is_loopback  # only calls of a remote need it

    hosts = [match[1] for address in used if (match := _HOST.match(address))]
    return {"no_proxy": "*", "NO_PROXY": "*"} if any(map(is_loopback, hosts)) else {}


def _sentence(stderr: str) -> str:
    lines = [line.strip() for line in clean(stderr).splitlines() if line.strip() and not line.startswith("hint:")]
    joined = "; ".join(lines[:8])
    if joined and not joined.endswith("."):
        joined += "."
    return joined
