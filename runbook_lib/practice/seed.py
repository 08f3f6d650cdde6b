"""Writes the practice repositories: the bare remote, and the checkout that pushes to it."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.practice import content

_IDENTITY = {"name": "Release Engineer", "email": "release-engineer@practice.invalid"}
# A practice commit needs neither a key nor the user's hooks, and git leaves no process of its own behind.
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
# The other GIT_ variables may name another repository, as inside a hook.
_KEPT = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}
_TIME_LIMIT = 60  # seconds


def create(remote: Path, checkout: Path) -> None:
    """Write both; neither may exist.  Raises RunbookError, and leaves what it had begun to the caller."""
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    _git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(remote), env=alone)
    _git("--git-dir", str(remote), "fast-import", "--quiet", "--done", env=alone, stdin=content.fast_import())
    _git("clone", "--quiet", "--template=", str(remote), str(checkout), env=alone)
    # The person's own name and e-mail where they have told git; they need not have, to practise.
    known = _git("-C", str(checkout), "config", "--get-regexp", r"^user\.(name|email)$", env={}, none_is_fine=True)
    lacking = [f"\t{key} = {value}\n" for key, value in _IDENTITY.items() if f"user.{key} " not in known]
    with (checkout / ".git/config").open("a") as file:
        file.write(_CONFIG.format(hooks=".git/hooks") + "".join(["[user]\n", *lacking] if lacking else []))
    with (remote / "config").open("a") as file:
        file.write(_CONFIG.format(hooks="hooks"))


def mirror(remote: Path, gitlab: Path, checkout: Path) -> None:
    """Write the repository of the practice GitLab, whose branches are the remote's, and name it in the checkout.

    It is there whole or not at all.  Raises RunbookError.
    """
    draft = gitlab.with_name(f"{gitlab.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    _git("clone", "--quiet", "--bare", "--shared", "--template=", str(remote), str(draft), env=alone)
    with (draft / "config").open("a") as file:
        file.write(_CONFIG.format(hooks="hooks"))
    # A person may have a remote of that name in an older world, and then it is kept.
    if not _git("-C", str(checkout), "config", "--get", "remote.gitlab.url", env={}, none_is_fine=True):
        _git("-C", str(checkout), "remote", "add", "gitlab", str(gitlab), env=alone)
    draft.rename(gitlab)


def _git(*args: str, env: Mapping[str, str], stdin: bytes = b"", none_is_fine: bool = False) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    try:
        done = subprocess.run(
            ["git", *args], input=stdin, capture_output=True, env={**inherited, **env}, timeout=_TIME_LIMIT
        )
    except FileNotFoundError:
        raise RunbookError("git is not on PATH: install git, then try again.") from None
    except subprocess.TimeoutExpired:
        raise RunbookError(f"`git {' '.join(args)}` did not end within {_TIME_LIMIT} s: try again.") from None
    if done.returncode and not none_is_fine:
        error = done.stderr.decode(errors="replace").strip()
        raise RunbookError(f"The practice repositories could not be made: `git {' '.join(args)}` said: {error}")
    return done.stdout.decode(errors="replace")
