"""The practice repositories: their content, the structure of Megatron-LM in our own words, and their creation.

``template/`` is the tip of ``main``, except golden values of training, which are invented here, and so are the older
states and the other branches.  Nothing depends on the clock, the machine or a locale: the commit ids are the same
everywhere.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from runbook_lib.practice import values
from runbook_lib.practice.store import ENGINEER
from runbook_lib.text.recipes import file_names
from runbook_lib.world.git.command import git

#: Incremented whenever a commit of the template or the form of the state changes; a world records its version.
VERSION = 10

_AUTHOR = "Practice Maintainers <maintainers@practice.invalid>"
_FIRST_DAY = 1772445600  # 2026-03-02 10:00 UTC, a Monday

#: A practice commit needs neither a key nor the user's hooks, and git must not leave a process behind.
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


def _fast_import() -> str:
    """Return the history as a stream for ``git fast-import``: one process writes all commits."""
    trees, commits, stream = _states(), document()["commits"], list[str]()
    for number, commit in enumerate(commits, 1):
        moment, author, message = _FIRST_DAY + commit["day"] * 86400, commit.get("author", _AUTHOR), commit["message"]
        stream.append(f"commit refs/heads/{commit['branch']}\nmark :{number}\nauthor {author} {moment} +0000\n")
        stream.append(f"committer {_AUTHOR} {moment} +0000\ndata {len(message)}\n{message}\n")
        if "parent" in commit:
            stream.append(f"from :{commit['parent'] + 1}\n")
        stream.append("deleteall\n")
        for path, text in trees[commit["tree"]].items():
            stream.append(f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n")
    return "".join([*stream, "done\n"])


def create(remote: Path, checkout: Path, gitlab: Path) -> None:
    """Create the repositories; none may exist.  Raises RunbookError, leaving incomplete ones to the caller."""
    home = remote.parent
    git(home, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(remote))
    git(remote, "fast-import", "--quiet", "--done", stdin=_fast_import())
    own = {"core.autocrlf": "false", "clone.defaultRemoteName": "origin"}
    git(home, "clone", "--quiet", "--template=", str(remote), str(checkout), settings=own)
    git(home, "clone", "--quiet", "--bare", "--shared", "--template=", str(remote), str(gitlab), settings=own)
    git(checkout, "remote", "add", "gitlab", str(gitlab))
    for folder, hooks in ((remote, "hooks"), (gitlab, "hooks"), (checkout / ".git", ".git/hooks")):
        with (folder / "config").open("a") as file:
            file.write(_CONFIG.format(hooks=hooks))
    # The user's own name and e-mail, if they are configured; practice does not require them.
    known = git(checkout, "config", "--list")
    for key, value in (("user.name", ENGINEER.name), ("user.email", ENGINEER.email)):
        if f"{key}=" not in known:
            git(checkout, "config", key, value)
