"""A comparison of the golden values of two revisions, or of two folders."""

import csv
import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.blobs import read_blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.settings import refuse_fetching
from runbook_lib.golden import summary
from runbook_lib.golden.file_names import FOLDER, GoldenFileName, config_path
from runbook_lib.golden.judge import Judgement, judge
from runbook_lib.golden.values import MAX_BYTES

LINT = "tools/check_golden_values.py"


@dataclass(frozen=True)
class GoldenFiles:
    """The golden files of one revision or folder, as they are named below the folder of test cases.

    ``contents`` and ``configs`` are texts or bytes by name: of the golden files, and of each ``model_config.yaml``.
    ``lint``: the repository refuses NaN in changed golden files at that revision.
    """

    contents: Mapping[str, str | bytes]
    configs: Mapping[str, str | bytes]
    lint: bool


def compare(old: GoldenFiles, new: GoldenFiles) -> tuple[Judgement, ...]:
    """Judge every file that either side has, in order of name; the newer configuration of a test decides."""
    judgements = []
    for name in sorted(old.contents.keys() | new.contents.keys()):
        config = new.configs.get(config_path(name), old.configs.get(config_path(name)))
        if isinstance(config, bytes):
            config = config.decode("utf-8", "replace")
        judgements.append(judge(name, old.contents.get(name), new.contents.get(name), config, lint=new.lint))
    return tuple(judgements)


def of_revision(repository: Path, ref: str) -> GoldenFiles:
    """Read the golden files of a commit.  Raise CannotTell when the clone cannot be read."""
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
        raise CannotTell(f"{root} is behind a symbolic link, which is not followed. Name the folder itself.")
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
    """Return one line per (file, metric); floats in full."""
    out = io.StringIO()
    writer = csv.DictWriter(out, summary.CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(summary.rows(judgements))
    return out.getvalue()


def as_json(judgements: tuple[Judgement, ...]) -> dict[str, object]:
    """Return the outcome, each file that is not unchanged, and all measures."""
    verdicts = {judgement.verdict for judgement in judgements}
    outcome = "unchanged"
    if verdicts & {"held back", "refused"}:
        outcome = "held back"
    elif "refresh" in verdicts:
        outcome = "refresh"
    measures = summary.rows(judgements)
    for row in measures:
        for key, value in row.items():
            # JSON has no infinity, which a step from 1e-12 to 1e300 gives.
            if isinstance(value, float) and not math.isfinite(value):
                row[key] = None
    return {
        "outcome": outcome,
        "compared": len(judgements),
        "files": summary.verdict_rows(judgements),
        "measures": measures,
    }
