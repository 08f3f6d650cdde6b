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
from runbook_lib.golden.judge import Judgement, Limits, judge
from runbook_lib.golden.values import FOLDER, MAX_BYTES, GoldenName

LINT = "tools/check_golden_values.py"
_CONFIG = "model_config.yaml"


@dataclass(frozen=True)
class GoldenFiles:
    """The golden files of one revision or folder: contents by ``<model>/<test case>/golden_values_….json``.

    ``configs``: the ``model_config.yaml`` of each ``<model>/<test case>``.  ``lint``: whether the repository refuses
    NaN in changed golden files at that revision.
    """

    contents: Mapping[str, str | bytes]
    configs: Mapping[str, str]
    lint: bool


def compare(old: GoldenFiles, new: GoldenFiles, limits: Limits | None = None) -> tuple[Judgement, ...]:
    """Judge every file that either side has, in order of name; the newer configuration of a test decides."""
    judged = []
    for name in sorted(old.contents.keys() | new.contents.keys()):
        case = name.rpartition("/")[0]
        config = new.configs.get(case, old.configs.get(case))
        found = judge(name, old.contents.get(name), new.contents.get(name), config, lint=new.lint, limits=limits)
        judged.append(found)
    return tuple(judged)


def of_revision(place: Path, ref: str) -> GoldenFiles:
    """The golden files of a commit.  Raises CannotTell when the clone cannot be read."""
    checkout = Checkout.open(place)
    refuse_fetching(checkout.path)
    try:
        commit = checkout.resolve(ref)
    except RunbookError as error:
        raise CannotTell(f"{ref!r} is neither a folder nor a commit of {checkout.path}: {error}") from error
    listed = checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", FOLDER, LINT).split("\0")
    names = [path for path in listed if path.startswith(f"{FOLDER}/") and GoldenName.parse(path)]
    configs = sorted({f"{path.rpartition('/')[0]}/{_CONFIG}" for path in names} & set(listed))
    found = read_blobs(checkout.path, [(commit, path) for path in (*names, *configs)])
    texts = {path.removeprefix(f"{FOLDER}/"): blob[1] for (_, path), blob in found.items() if blob}
    return _split(texts, LINT in listed)


def of_folder(folder: Path) -> GoldenFiles:
    """The golden files below a folder; that of a work tree is read below its test cases.  Links are not followed."""
    root = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    if root.resolve() != folder.resolve() / root.relative_to(folder):
        raise CannotTell(f"{root} lies behind a symbolic link, which is not followed. Give the folder itself.")
    texts: dict[str, str | bytes] = {}
    try:
        for place, _, files in os.walk(root, onerror=_stop):
            for name in files:
                path = Path(place, name)
                relative = path.relative_to(root).as_posix()
                if (name != _CONFIG and GoldenName.parse(relative) is None) or not path.is_file() or path.is_symlink():
                    continue
                with path.open("rb") as stream:
                    texts[relative] = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise CannotTell(f"The golden files below {folder} could not be read: {error}.") from error
    return _split(texts, (folder / LINT).is_file())


def _stop(error: OSError) -> None:
    raise error


def _split(texts: Mapping[str, str | bytes], lint: bool) -> GoldenFiles:
    configs = {
        path.rpartition("/")[0]: text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        for path, text in texts.items()
        if path.endswith(f"/{_CONFIG}")
    }
    return GoldenFiles({path: text for path, text in texts.items() if GoldenName.parse(path)}, configs, lint)


def as_csv(judged: tuple[Judgement, ...]) -> str:
    """A line a (file, metric); floats in full."""
    out = io.StringIO()
    writer = csv.DictWriter(out, summary.CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(summary.rows(judged))
    return out.getvalue()


def as_json(judged: tuple[Judgement, ...]) -> dict[str, object]:
    """For machines: the outcome, each file that is not unchanged, and all measures."""
    stopped = any(one.verdict in ("held back", "refused") for one in judged)
    return {
        "outcome": "held back"
        if stopped
        else "refresh"
        if any(j.verdict == "refresh" for j in judged)
        else "unchanged",
        "compared": len(judged),
        "files": summary.verdict_rows(judged),
        # JSON knows no infinity, which a step from 1e-12 to 1e300 gives.
        "measures": [
            {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in row.items()}
            for row in summary.rows(judged)
        ],
    }
