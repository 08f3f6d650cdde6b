"""A comparison of the golden values of two revisions, or of two folders."""

import difflib
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.golden import summary
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.judge import NO_HISTORY, GoldenTable, Verdicts
from runbook_lib.golden.measure import Judgement, ReviewReason
from runbook_lib.golden.values import MAX_BYTES
from runbook_lib.text.recipes.file_names import (
    FOLDER,
    PERFORMANCE,
    GoldenFileName,
    config_path,
    has_values,
    is_baseline,
    short_name,
)  # fmt: skip
from runbook_lib.world.git.checkout import Checkout

LINT = "tools/check_golden_values.py"
_PLACES = (FOLDER, PERFORMANCE, LINT)


@dataclass(frozen=True)
class GoldenFiles:
    """The golden files of one revision or folder, named relative to the folder of test cases.

    ``texts`` are those of golden files and of each ``model_config.yaml``, by name.  ``lint``: the repository refuses
    NaN in changed golden files at that revision.
    """

    texts: Mapping[str, str]
    lint: bool = False

    @property
    def contents(self) -> Mapping[str, str]:
        """The golden files."""
        return {name: text for name, text in self.texts.items() if not _is_config(name)}


def compare(old: GoldenFiles, new: GoldenFiles, history: GoldenHistory = NO_HISTORY) -> Verdicts:
    """Judge every file on either side, sorted by name, with the newer configuration of each test."""
    renamed = _renamed(old.contents, new.contents)
    names = sorted((old.contents.keys() | new.contents.keys()) - renamed.keys() - set(renamed.values()))
    before = {name: old.texts.get(name) for name in names}
    configs = {name: text for name, text in old.texts.items() if _is_config(name)}
    verdicts = GoldenTable(before, {**configs, **new.texts}, {}, new.lint).judge(history)
    moved = []
    for name, source in renamed.items():
        moved.append(Judgement(name, "renamed", (ReviewReason("", f"renamed from {source}"),)))
    return replace(verdicts, judgements=(*verdicts.judgements, *moved))


def _renamed(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the old names of renamed files, by the new ones: the content is equal, the name as similar as possible."""
    renamed: dict[str, str] = {}
    removed = sorted(old.keys() - new.keys())
    for name in sorted(new.keys() - old.keys()):
        equal = [before for before in removed if old[before] == new[name]]
        if equal:
            renamed[name] = difflib.get_close_matches(name, equal, n=1, cutoff=0.0)[0]
            removed.remove(renamed[name])
    return renamed


def of_revision(repository: Path, ref: str) -> GoldenFiles:
    """Read the golden files of a commit.  Raises CannotTell if the clone cannot be read."""
    try:
        checkout = Checkout.open(repository)
        commit = checkout.resolve(ref)
    except RunbookError as error:
        raise CannotTell(f"{ref!r} is neither a folder nor a commit of {repository.absolute()}: {error}") from error
    paths = checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", *_PLACES).split("\0")
    golden_files = [path for path in paths if has_values(path)]
    configs = set(map(config_path, golden_files)).intersection(paths)
    found = checkout.read((*golden_files, *sorted(configs)), commit)
    texts = {short_name(path): text for path, text in found.items() if text is not None}
    return GoldenFiles(texts, LINT in paths)


def of_folder(folder: Path) -> GoldenFiles:
    """Read the golden files below a folder; in a work tree, below its test cases.  Links are not followed."""
    roots = [folder / name for name in (FOLDER, PERFORMANCE) if (folder / name).is_dir()] or [folder]
    for root in roots:
        if root.resolve() != folder.resolve() / root.relative_to(folder):
            raise CannotTell(f"{root} is below a symbolic link, which is not followed.", "Name the actual folder.")
    texts: dict[str, str] = {}
    try:
        for parent, _, names in itertools.chain.from_iterable(os.walk(root, onerror=_raise) for root in roots):
            for path in (Path(parent, name) for name in names):
                relative = short_name(path.relative_to(folder).as_posix())
                if not (_is_config(relative) or GoldenFileName.of_path(relative) or is_baseline(relative)):
                    continue
                if path.is_file() and not path.is_symlink():
                    with path.open("rb") as stream:
                        texts[relative] = stream.read(MAX_BYTES + 1).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise CannotTell(f"The golden files below {folder} could not be read: {error}.") from error
    return GoldenFiles(texts, (folder / LINT).is_file())


def _raise(error: OSError) -> None:
    raise error


def _is_config(path: str) -> bool:
    return path == config_path(path)


def as_json(verdicts: Verdicts) -> dict[str, object]:
    """Return the outcome, the decisions on groups, each changed file, and all measures."""
    outcome = "unchanged"
    if verdicts.blocked:
        outcome = "held back"
    elif any(judgement.verdict == "refresh" for judgement in verdicts.judgements):
        outcome = "refresh"
    return {
        "version": 2,
        "outcome": outcome,
        "compared": len(verdicts.judgements),
        "history": verdicts.missing or "read",
        "groups": [group.row for group in verdicts.groups],
        "files": summary.verdict_rows(verdicts.judgements),
        "measures": summary.rows(verdicts.judgements),
    }
