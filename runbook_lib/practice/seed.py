"""The practice repositories: their content, the structure of Megatron-LM in our own words, and their creation.

``template/`` is the tip of ``main`` without its golden values, which are invented here, and so are the older states and
the other branches.  Nothing depends on the clock, the machine or a locale: the commit ids are the same everywhere.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from runbook_lib.errors import RunbookError
from runbook_lib.practice import values
from runbook_lib.practice.git import run_git
from runbook_lib.practice.store import ENGINEER
from runbook_lib.recipes import file_names

#: Incremented whenever a commit of the template changes; a world records the version that it was created from.
VERSION = 7

_AUTHOR = "Practice Maintainers <maintainers@practice.invalid>"
_FIRST_DAY = 1772445600  # 2026-03-02 10:00 UTC, a Monday

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


@cache
def document() -> dict[str, Any]:
    """Return ``history.toml``: states of the tree, commits, files, and the forge's first issue."""
    return tomllib.loads(Path(__file__).with_name("history.toml").read_text(encoding="utf-8"))


def main() -> dict[str, str]:
    """Return the tip of ``main``: path → text, sorted."""
    template = Path(__file__).with_name("template")
    tree: dict[str, str] = dict(document()["files"])
    for file in filter(Path.is_file, template.rglob("*")):
        tree[file.relative_to(template).as_posix()] = file.read_text(encoding="utf-8")
    for test, golden_files in document()["golden-files"].items():
        for golden in golden_files:
            path = f"{file_names.FOLDER}/{test}/golden_values_{golden}.json"
            tree[path] = values.invent(path)
    return dict(sorted(tree.items()))


def _states() -> dict[str, dict[str, str]]:
    """Return the tip and each older state of the tree, as ``history.toml`` derives it from another."""
    trees = {"tip": main()}
    for name, state in document()["states"].items():
        tree = trees[name] = dict(trees[state["of"]])
        for path, old, new in state.get("replace", ()):
            if old not in tree[path]:
                raise ValueError(f"template/{path} no longer contains {old!r}, which an older commit replaces")
            tree[path] = tree[path].replace(old, new)
        for path in state.get("remove", ()):
            del tree[path]
        tree |= state.get("add", {})
    return trees


def _fast_import() -> bytes:
    """Return the history as a stream for ``git fast-import``: one process writes all commits."""
    trees, commits, stream = _states(), document()["commits"], bytearray()
    for number, commit in enumerate(commits, 1):
        moment, author, message = _FIRST_DAY + commit["day"] * 86400, commit.get("author", _AUTHOR), commit["message"]
        stream += f"commit refs/heads/{commit['branch']}\nmark :{number}\nauthor {author} {moment} +0000\n".encode()
        stream += f"committer {_AUTHOR} {moment} +0000\ndata {len(message)}\n{message}\n".encode()
        if "parent" in commit:
            stream += f"from :{commit['parent'] + 1}\n".encode()
        stream += b"deleteall\n"
        for path, text in trees[commit["tree"]].items():
            data = text.encode()
            stream += b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data)
    return bytes(stream + b"done\n")


def create(remote: Path, checkout: Path, gitlab: Path | None = None) -> None:
    """Create the repositories; none may exist.  Raises RunbookError, leaving incomplete ones to the caller."""
    _git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(remote))
    _git("--git-dir", str(remote), "fast-import", "--quiet", "--done", stdin=_fast_import())
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
