"""A comparison of the golden values of two revisions, or of two folders."""

import difflib
import itertools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.blobs import read_blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.golden import summary
from runbook_lib.golden.form import examine
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.judge import NO_HISTORY, Verdicts, judge_all
from runbook_lib.golden.values import MAX_BYTES
from runbook_lib.recipes.file_names import (
    FOLDER,
    PERFORMANCE,
    GoldenFileName,
    config_path,
    has_values,
    is_baseline,
    short_name,
)  # fmt: skip

LINT = "tools/check_golden_values.py"
_PLACES = (FOLDER, PERFORMANCE, LINT)


@dataclass(frozen=True)
class GoldenFiles:
    """The golden files of one revision or folder, named relative to the folder of test cases.

    ``contents`` (golden files) and ``configs`` (each ``model_config.yaml``) are texts by name.  ``lint``: the
    repository refuses NaN in changed golden files at that revision.
    """

    contents: Mapping[str, str]
    configs: Mapping[str, str]
    lint: bool


def compare(old: GoldenFiles, new: GoldenFiles, history: GoldenHistory = NO_HISTORY) -> Verdicts:
    """Judge every file on either side, sorted by name, with the newer configuration of each test.

    A file with a new name is compared with the missing file that has the same content, or most of it.
    """
    judgements = []
    renamed = _renamed(old.contents, new.contents)
    for name in sorted(old.contents.keys() | new.contents.keys()):
        if name in renamed.values() and name not in new.contents:
            continue
        before = renamed.get(name, name)
        config = new.configs.get(config_path(name), old.configs.get(config_path(before)))
        judgement = examine(name, old.contents.get(before), new.contents.get(name), config, lint=new.lint)
        if before != name:
            judgement = replace(judgement, renamed=before, notes=(f"renamed from {before}", *judgement.notes))
        judgements.append(judgement)
    return judge_all(judgements, history)


def _renamed(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the old names of renamed files: like git, require at least half of the entries to be equal.

    Among equal contents the most similar name is chosen, and each old name at most once.
    """
    removed = {name: _entries(old[name]) for name in old.keys() - new.keys()}
    added = {name: _entries(new[name]) for name in new.keys() - old.keys()}
    candidates = []
    for (name, entries), (before, old_entries) in itertools.product(added.items(), removed.items()):
        smaller, larger = sorted((len(entries), len(old_entries)))
        if new[name] == old[before]:
            share = 1.0
        elif 2 * smaller < larger:
            continue
        else:
            share = len(entries & old_entries) / max(larger, 1)
        if share >= 0.5:
            resemblance = difflib.SequenceMatcher(None, before, name).ratio()
            candidates.append((share, resemblance, name, before))
    renamed: dict[str, str] = {}
    for _, _, name, before in sorted(candidates, reverse=True):
        if name not in renamed and before not in renamed.values():
            renamed[name] = before
    return renamed


def _entries(content: str) -> frozenset[str]:
    """Return the entries of a JSON text, regardless of its layout."""
    return frozenset("".join(content.split()).split(",")) - {""}


def of_revision(repository: Path, ref: str) -> GoldenFiles:
    """Read the golden files of a commit.  Raises CannotTell if the clone cannot be read."""
    checkout = Checkout.open(repository)
    try:
        commit = checkout.resolve(ref)
    except RunbookError as error:
        raise CannotTell(f"{ref!r} is neither a folder nor a commit of {checkout.path}: {error}") from error
    paths = checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", *_PLACES).split("\0")
    golden_files = [path for path in paths if has_values(path)]
    configs = set(map(config_path, golden_files)).intersection(paths)
    blobs = read_blobs(checkout.path, [(commit, path) for path in (*golden_files, *sorted(configs))])
    contents: dict[str, str] = {}
    for (_, path), blob in blobs.items():
        if blob:
            contents[short_name(path)] = blob[1]
    return _separate(contents, lint=LINT in paths)


def of_folder(folder: Path) -> GoldenFiles:
    """Read the golden files below a folder; in a work tree, below its test cases.  Links are not followed."""
    roots = [folder / name for name in (FOLDER, PERFORMANCE) if (folder / name).is_dir()] or [folder]
    for root in roots:
        if root.resolve() != folder.resolve() / root.relative_to(folder):
            raise CannotTell(f"{root} is below a symbolic link, which is not followed. Name the actual folder.")
    contents: dict[str, str] = {}
    try:
        for parent, _, names in itertools.chain.from_iterable(os.walk(root, onerror=_raise) for root in roots):
            for path in (Path(parent, name) for name in names):
                relative = short_name(path.relative_to(folder).as_posix())
                if not (_is_config(relative) or GoldenFileName.of_path(relative) or is_baseline(relative)):
                    continue
                if path.is_file() and not path.is_symlink():
                    with path.open("rb") as stream:
                        contents[relative] = stream.read(MAX_BYTES + 1).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise CannotTell(f"The golden files below {folder} could not be read: {error}.") from error
    return _separate(contents, lint=(folder / LINT).is_file())


def _raise(error: OSError) -> None:
    raise error


def _is_config(path: str) -> bool:
    return path == config_path(path)


def _separate(contents: Mapping[str, str], *, lint: bool) -> GoldenFiles:
    configs = {path: content for path, content in contents.items() if _is_config(path)}
    golden_files = {path: content for path, content in contents.items() if path not in configs}
    return GoldenFiles(golden_files, configs, lint)


def as_json(verdicts: Verdicts) -> dict[str, object]:
    """Return the outcome, the decisions on groups, each changed file, and all measures."""
    outcome = "unchanged"
    if verdicts.open:
        outcome = "held back"
    elif any(judgement.verdict == "refresh" for judgement in verdicts.judgements):
        outcome = "refresh"
    measures = summary.rows(verdicts.judgements)
    for row in measures:
        for key, value in row.items():
            # JSON has no infinity, which is the result of a step from 1e-12 to 1e300.
            if isinstance(value, float) and not math.isfinite(value):
                row[key] = None
    return {
        "version": 2,
        "outcome": outcome,
        "compared": len(verdicts.judgements),
        "history": verdicts.missing or "read",
        "groups": [group.row for group in verdicts.groups],
        "files": summary.verdict_rows(verdicts.judgements),
        "measures": measures,
    }
