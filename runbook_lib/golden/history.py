"""The history of the golden values, read from git up to a base revision and never beyond.

One ``git log`` lists the versions, one ``git cat-file`` reads their contents, and a file in the user's cache folder
stores the result by commit.  An incomplete history is not used, and ``missing`` has the reason.
"""

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import platformdirs

from runbook_lib.errors import RunbookError
from runbook_lib.golden.measure import LOSS, WINDOW_LOSS, cost_changes, is_loss, loss_change
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, parse
from runbook_lib.text.recipes.file_names import FOLDER, GoldenFileName
from runbook_lib.world.git.blobs import read_objects
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.commit_changes import file_versions
from runbook_lib.world.machine.files import make_folder, write

_FORMAT = 3
#: The most commits that are read, newest first, and the size in bytes from which a file is left out.
_MAX_COMMITS, _MAX_BYTES = 2000, 8 * 2**20


@dataclass(frozen=True)
class PastChange:
    """A change to one golden file in one commit; ``order`` numbers the commits from the first.

    ``costs`` are as in Judgement, ``losses`` the excess of each loss over its limit.  A new file has neither.
    """

    file: str
    order: int
    costs: Mapping[str, float]
    losses: Mapping[str, float]


@dataclass(frozen=True)
class GoldenHistory:
    """All changes up to a commit, the oldest first; ``missing`` is the reason why there are none."""

    commit: str = ""
    changes: tuple[PastChange, ...] = ()
    missing: str = ""


@dataclass
class HistoryBuilder:
    """The versions of golden files, commit by commit."""

    order: int = 0
    values: dict[str, GoldenValues] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)
    changes: dict[str, list[PastChange]] = field(default_factory=lambda: defaultdict(list))

    def add(self, versions: Iterable[tuple[str, str]], contents: Mapping[str, bytes]) -> None:
        """Add a commit: the path of each changed file, and its blob, empty if it was removed.

        A file that cannot be read is left out.
        """
        self.order += 1
        changed = list(versions)
        removed = {self.blobs.pop(path, ""): path for path, blob in changed if not blob}
        for path, blob in changed:
            values = None
            with contextlib.suppress(BadGoldenFile, KeyError):
                values = parse(contents[blob])
            if not blob:
                self.values.pop(path, None)
            elif values is not None:
                if path not in self.blobs and blob in removed and removed[blob] in self.changes:
                    self.changes[path] = self.changes.pop(removed[blob])  # renamed
                self.changes[path].append(self._change(path, values))
                self.values[path], self.blobs[path] = values, blob

    def _change(self, path: str, values: GoldenValues) -> PastChange:
        before = self.values.get(path)
        if before is None:
            return PastChange(path, self.order, {}, {})
        losses = {}
        for metric in filter(is_loss, before.series.keys() & values.series.keys()):
            change = loss_change(before.series[metric], values.series[metric])
            if change:
                losses[metric] = change.excess
        costs = cost_changes(before, values)
        if not costs.get("iteration-time", 1.0):  # identical to the last digit: the times were not measured again
            costs = {}
        return PastChange(path, self.order, costs, losses)

    def history(self, commit: str) -> GoldenHistory:
        """Return the history added so far."""
        changes = []
        for path, of_file in self.changes.items():
            changes += [replace(past, file=path) for past in of_file]
        return GoldenHistory(commit, tuple(sorted(changes, key=lambda change: (change.order, change.file))))


def default_cache() -> Path:
    """Return the user's folder for histories that were read."""
    return platformdirs.user_cache_path("base-image-runbook") / "golden"


def read(checkout: Checkout, ref: str, cache: Path | None) -> GoldenHistory:
    """Read the history of the golden files up to ``ref``; ``cache`` is a folder, or None."""
    try:
        commit = checkout.resolve(ref)
        if checkout.git("rev-parse", "--is-shallow-repository") != "false":
            return GoldenHistory(missing="the clone is shallow; git fetch --unshallow fetches its history")
    except RunbookError as error:
        return GoldenHistory(missing=str(error))
    # The losses are multiples of limits, which may change with a new release.
    limits = f"{LOSS:g}-{WINDOW_LOSS:g}"
    stored = cache / f"{commit}-{_FORMAT}-{limits}.json" if cache else None
    if stored:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return GoldenHistory(commit, tuple(PastChange(*row) for row in json.loads(stored.read_bytes())))
    commits = list_versions(checkout, commit)
    ids = {blob for _, versions in commits for _, blob in versions if blob}
    contents = read_objects(checkout.path, sorted(ids), _MAX_BYTES)
    builder = HistoryBuilder()
    for _, versions in commits:
        builder.add(versions, contents)
    history = builder.history(commit)
    if stored:
        rows = [[*vars(change).values()] for change in history.changes]
        with contextlib.suppress(OSError, RunbookError):
            make_folder(stored.parent)
            write(stored, json.dumps(rows, separators=(",", ":")).encode())
    return history


def list_versions(checkout: Checkout, commit: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the commits that change golden files, oldest first, with the blob of each file ("" if removed)."""
    commits = []
    for name, changed in file_versions(checkout, commit, [FOLDER], _MAX_COMMITS):
        versions = []
        for path, blob in changed:
            if path.startswith(f"{FOLDER}/") and GoldenFileName.of_path(path):
                versions.append((path.removeprefix(f"{FOLDER}/"), blob))
        if versions:
            commits.append((name, versions))
    return commits
