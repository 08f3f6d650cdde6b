"""The creation of the practice repositories: the bare remote, its copy for the second CI, and the checkout."""

from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.practice import content
from runbook_lib.practice.accounts import ENGINEER
from runbook_lib.practice.git import run_git

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


def create(remote: Path, checkout: Path, gitlab: Path | None = None) -> None:
    """Create the repositories; none may exist.  Raises RunbookError, leaving incomplete ones to the caller."""
    _git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(remote))
    _git("--git-dir", str(remote), "fast-import", "--quiet", "--done", stdin=content.fast_import())
    _git("clone", "--quiet", "--template=", str(remote), str(checkout))
    _configure(remote, "hooks")
    _configure(checkout / ".git", ".git/hooks")
    if gitlab:
        _git("clone", "--quiet", "--bare", "--shared", "--template=", str(remote), str(gitlab))
        _git("-C", str(checkout), "remote", "add", "gitlab", str(gitlab))
        _configure(gitlab, "hooks")
    # The user's own name and e-mail, if they are configured; practice does not require them.
    for key, value in (("user.name", ENGINEER.name), ("user.email", ENGINEER.email)):
        if run_git(("-C", str(checkout), "config", "--get", key), env={}).returncode:
            _git("-C", str(checkout), "config", key, value)


def _configure(folder: Path, hooks: str) -> None:
    with (folder / "config").open("a") as file:
        file.write(_CONFIG.format(hooks=hooks))


def _git(*arguments: str, stdin: bytes = b"") -> None:
    try:
        process = run_git(arguments, stdin)
    except FileNotFoundError:
        raise RunbookError("git is not on PATH. Install git, then try again.") from None
    if process.returncode:
        error = process.stderr.decode(errors="replace").strip()
        command = " ".join(arguments)
        raise RunbookError(f"The practice repositories could not be created: `git {command}` failed: {error}")
