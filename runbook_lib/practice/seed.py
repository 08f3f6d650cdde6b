"""The creation of the practice repositories: the bare remote, and the checkout that pushes to it."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.practice import content

_IDENTITY = {"name": "Release Engineer", "email": "release-engineer@practice.invalid"}
# A practice commit needs neither a key nor the user's hooks, and git must not leave a process behind.
_CONFIG = """\
[core]
\tautocrlf = false
\thooksPath = {hooks}
[commit]
\tgpgSign = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
# Other GIT_ variables may name another repository, as inside a hook.
_INHERITED = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}
_TIME_LIMIT = 60  # seconds


def create(remote: Path, checkout: Path) -> None:
    """Create both; neither may exist.  Raises RunbookError, and leaves incomplete ones to the caller."""
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    _git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(remote), env=isolated)
    _git("--git-dir", str(remote), "fast-import", "--quiet", "--done", env=isolated, stdin=content.fast_import())
    _git("clone", "--quiet", "--template=", str(remote), str(checkout), env=isolated)
    # The user's own name and e-mail, if they are configured; practice does not require them.
    configured = _git("-C", str(checkout), "config", "--get-regexp", r"^user\.(name|email)$", env={}, may_fail=True)
    lines = [f"\t{key} = {value}\n" for key, value in _IDENTITY.items() if f"user.{key} " not in configured]
    with (checkout / ".git/config").open("a") as file:
        file.write(_CONFIG.format(hooks=".git/hooks"))
        if lines:
            file.write("[user]\n" + "".join(lines))
    with (remote / "config").open("a") as file:
        file.write(_CONFIG.format(hooks="hooks"))


def mirror(remote: Path, gitlab: Path, checkout: Path) -> None:
    """Create the repository of the practice GitLab, with the branches of the remote, and add it to the checkout.

    It exists completely or not at all.  Raises RunbookError.
    """
    draft = gitlab.with_name(f"{gitlab.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    _git("clone", "--quiet", "--bare", "--shared", "--template=", str(remote), str(draft), env=isolated)
    with (draft / "config").open("a") as file:
        file.write(_CONFIG.format(hooks="hooks"))
    # A user may have added a remote of that name in an older world; it is kept.
    if not _git("-C", str(checkout), "config", "--get", "remote.gitlab.url", env={}, may_fail=True):
        _git("-C", str(checkout), "remote", "add", "gitlab", str(gitlab), env=isolated)
    draft.rename(gitlab)


def _git(*args: str, env: Mapping[str, str], stdin: bytes = b"", may_fail: bool = False) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _INHERITED}
    try:
        process = subprocess.run(
            ["git", *args], input=stdin, capture_output=True, env={**inherited, **env}, timeout=_TIME_LIMIT
        )
    except FileNotFoundError:
        raise RunbookError("git is not on PATH. Install git, then try again.") from None
    except subprocess.TimeoutExpired:
        raise RunbookError(f"`git {' '.join(args)}` did not end within {_TIME_LIMIT} s. Try again.") from None
    if process.returncode and not may_fail:
        error = process.stderr.decode(errors="replace").strip()
        raise RunbookError(f"The practice repositories could not be created: `git {' '.join(args)}` failed: {error}")
    return process.stdout.decode(errors="replace")
