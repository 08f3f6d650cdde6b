"""A comparison of the golden values of two revisions, or of two folders."""

import csv
import difflib
import io
import math
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.blobs import read_blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.settings import refuse_fetching
from runbook_lib.golden import summary
from runbook_lib.golden.file_names import FOLDER, GoldenFileName, config_path
from runbook_lib.golden.form import Judgement, examine
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.judge import NO_HISTORY, Verdicts, judge_all
from runbook_lib.golden.values import MAX_BYTES

LINT = "tools/check_golden_values.py"


@dataclass(frozen=True)
class GoldenFiles:
    """The golden files of one revision or folder, named relative to the folder of test cases.

    ``contents`` (golden files) and ``configs`` (each ``model_config.yaml``) are texts or bytes by name.  ``lint``: the
    repository refuses NaN in changed golden files at that revision.
    """

    contents: Mapping[str, str | bytes]
    configs: Mapping[str, str | bytes]
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
        if isinstance(config, bytes):
            config = config.decode("utf-8", "replace")
        judgement = examine(name, old.contents.get(before), new.contents.get(name), config, lint=new.lint)
        if before != name:
            judgement = replace(judgement, renamed=before, notes=(f"renamed from {before}", *judgement.notes))
        judgements.append(judgement)
    return judge_all(judgements, history)


def _renamed(old: Mapping[str, str | bytes], new: Mapping[str, str | bytes]) -> dict[str, str]:
    """Return the old names of renamed files: like git, require at least half of the entries to be equal.

    Among equal contents the most similar name is chosen, and each old name at most once.
    """
    removed, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    by_content: dict[str | bytes, list[str]] = defaultdict(list)
    for name in removed:
        by_content[old[name]].append(name)
    candidates = []
    for name in added:
        candidates += [(-1.0, -_resemblance(before, name), name, before) for before in by_content.get(new[name], ())]
    renamed = _choose(candidates)
    entries = {name: _entries(old[name]) for name in removed if name not in renamed.values()}
    changed = []
    for name in added:
        size = _size(new[name])
        similar = [before for before in entries if size <= 2 * _size(old[before]) <= 4 * size]
        if similar and name not in renamed:
            new_entries = _entries(new[name])
            for before in similar:
                old_entries = entries[before]
                share = len(old_entries & new_entries) / max(len(old_entries), len(new_entries), 1)
                if share >= 0.5:
                    changed.append((-share, -_resemblance(before, name), name, before))
    return renamed | _choose(changed)


def _resemblance(old_name: str, new_name: str) -> float:
    return difflib.SequenceMatcher(None, old_name, new_name).ratio()


def _choose(candidates: list[tuple[float, float, str, str]]) -> dict[str, str]:
    """Return old names by new name, from the best candidates (lowest numbers first), each name once."""
    renamed: dict[str, str] = {}
    for _, _, name, before in sorted(candidates):
        if name not in renamed and before not in renamed.values():
            renamed[name] = before
    return renamed


def _size(content: str | bytes) -> int:
    return 1 + (content.count(b",") if isinstance(content, bytes) else content.count(","))


def _entries(content: str | bytes) -> frozenset[str]:
    """Return the entries of a JSON text, regardless of its layout."""
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    return frozenset("".join(text.split()).split(",")) - {""}


def of_revision(repository: Path, ref: str) -> GoldenFiles:
    """Read the golden files of a commit.  Raises CannotTell if the clone cannot be read."""
    checkout = Checkout.open(repository)
    refuse_fetching(checkout.path)
    try:
        commit = checkout.resolve(ref)
    except RunbookError as error:
        raise CannotTell(f"{ref!r} is neither a folder nor a commit of {checkout.path}: {error}") from error
    paths = checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", FOLDER, LINT).split("\0")
    golden_files = [path for path in paths if path.startswith(f"{FOLDER}/") and GoldenFileName.of_path(path)]
    configs = set(map(config_path, golden_files)).intersection(paths)
    blobs = read_blobs(checkout.path, [(commit, path) for path in (*golden_files, *sorted(configs))])
    contents: dict[str, str | bytes] = {}
    for (_, path), blob in blobs.items():
        if blob:
            contents[path.removeprefix(f"{FOLDER}/")] = blob[1]
    return _separate(contents, lint=LINT in paths)


def of_folder(folder: Path) -> GoldenFiles:
    """Read the golden files below a folder; in a work tree, below its test cases.  Links are not followed."""
    root = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    if root.resolve() != folder.resolve() / root.relative_to(folder):
        raise CannotTell(f"{root} is below a symbolic link, which is not followed. Name the actual folder.")
    contents: dict[str, str | bytes] = {}
    try:
        for parent, _, names in os.walk(root, onerror=_raise):
            for path in (Path(parent, name) for name in names):
                relative = path.relative_to(root).as_posix()
                if not _is_config(relative) and GoldenFileName.of_path(relative) is None:
                    continue
                if path.is_file() and not path.is_symlink():
                    with path.open("rb") as stream:
                        contents[relative] = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise CannotTell(f"The golden files below {folder} could not be read: {error}.") from error
    return _separate(contents, lint=(folder / LINT).is_file())


def _raise(error: OSError) -> None:
    raise error


def _is_config(path: str) -> bool:
    return path == config_path(path)


def _separate(contents: Mapping[str, str | bytes], *, lint: bool) -> GoldenFiles:
    configs = {path: content for path, content in contents.items() if _is_config(path)}
    golden_files = {path: content for path, content in contents.items() if path not in configs}
    return GoldenFiles(golden_files, configs, lint)


def as_csv(judgements: tuple[Judgement, ...]) -> str:
    """Return one line per (file, metric), with floats in full precision."""
    out = io.StringIO()
    writer = csv.DictWriter(out, summary.CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(summary.rows(judgements))
    return out.getvalue()


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
        "error rates": verdicts.error_rates,
        "groups": [group.row for group in verdicts.groups],
        "files": summary.verdict_rows(verdicts.judgements),
        "measures": measures,
    }
