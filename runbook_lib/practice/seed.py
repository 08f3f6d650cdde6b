"""The practice repositories: their content, the structure of Megatron-LM in our own words, and their creation.

``template/`` is the tip of ``main``, except golden values of training, which are invented here, and so are the older
states and the other branches.  Nothing depends on the clock, the machine or a locale: the commit ids are the same
everywhere.
"""

from pathlib import Path

from runbook_lib.practice import values
from runbook_lib.practice.store import ENGINEER, scripted
from runbook_lib.text.recipes import file_names
from runbook_lib.world.git.command import git

#: Incremented whenever a commit of the template or the form of the state changes; a world records its version.
VERSION = 10

_AUTHOR = "Practice Maintainers <maintainers@practice.invalid>"
_FIRST_DAY = 1772445600  # 2026-03-02 10:00 UTC, a Monday


def main() -> dict[str, str]:
    """Return the tip of ``main``: path → text, sorted."""
    template = Path(__file__).with_name("template")
    tree: dict[str, str] = dict(scripted("history")["files"])
    for file in filter(Path.is_file, template.rglob("*")):
        tree[file.relative_to(template).as_posix()] = file.read_text(encoding="utf-8")
    for test, golden_files in scripted("history")["golden-files"].items():
        for golden in golden_files:
            path = f"{file_names.FOLDER}/{test}/golden_values_{golden}.json"
            tree[path] = values.invent(path)
    return dict(sorted(tree.items()))


def _states() -> dict[str, dict[str, str]]:
    """Return the tip and each older state of the tree, as ``history.toml`` derives it from another."""
    trees = {"tip": main()}
    for name, state in scripted("history")["states"].items():
        tree = trees[name] = dict(trees[state["of"]])
        for path, old, new in state.get("replace", ()):
            if old not in tree[path]:
                raise ValueError(f"template/{path} no longer contains {old!r}, which an older commit replaces")
            tree[path] = tree[path].replace(old, new)
        for path in state.get("remove", ()):
            del tree[path]
    return trees


def _fast_import() -> str:
    """Return the history as a stream for ``git fast-import``: one process writes all commits."""
    trees, stream = _states(), list[str]()
    for commit in scripted("history")["commits"]:
        moment, author, message = _FIRST_DAY + commit["day"] * 86400, commit.get("author", _AUTHOR), commit["message"]
        stream.append(f"commit refs/heads/{commit['branch']}\nauthor {author} {moment} +0000\n")
        stream.append(f"committer {_AUTHOR} {moment} +0000\ndata {len(message)}\n{message}\n")
        stream.append("deleteall\n" if commit["branch"] == "main" else "from refs/heads/main\ndeleteall\n")
        for path, text in trees[commit["tree"]].items():
            stream.append(f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n")
    return "".join([*stream, "done\n"])


def create(remote: Path, checkout: Path, gitlab: Path) -> None:
    """Create the repositories; none may exist.  Raises RunbookError, leaving incomplete ones to the caller."""
    home, options = remote.parent, ("--quiet", f"--template={Path(__file__).with_name('git-template')}")
    git(home, "init", *options, "--bare", "--initial-branch=main", str(remote))
    git(remote, "fast-import", "--quiet", "--done", stdin=_fast_import())
    git(home, "clone", *options, "--origin=origin", str(remote), str(checkout))
    git(home, "clone", *options, "--origin=origin", "--bare", "--shared", str(remote), str(gitlab))
    git(checkout, "remote", "add", "gitlab", str(gitlab))
    # The user's own name and e-mail, if they are configured; practice does not require them.
    known = git(checkout, "config", "--list")
    for key, value in (("user.name", ENGINEER.name), ("user.email", ENGINEER.email)):
        if f"{key}=" not in known:
            git(checkout, "config", key, value)
