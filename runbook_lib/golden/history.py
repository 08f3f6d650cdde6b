"""The history of the golden values, read from git up to a base revision and never beyond.

One ``git log`` lists the versions, one ``git cat-file`` reads their contents, and a file in the user's cache folder
stores the result by commit.  An incomplete history is not used, and ``missing`` has the reason.
"""

import contextlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import platformdirs

from runbook_lib.errors import RunbookError
from runbook_lib.golden.measure import LOSS, WINDOW_LOSS, cost_changes, loss_changes
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, parse
from runbook_lib.text.recipes.file_names import FOLDER, GoldenFileName
from runbook_lib.world.git.blobs import read_objects
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.commits import file_versions
from runbook_lib.world.machine.files import make_folder, write

_FORMAT = 4
#: The most commits that are read, newest first, and the size in bytes from which a file is left out.
_MAX_COMMITS, _MAX_BYTES = 2000, 8 * 2**20


@dataclass(frozen=True)
class PastChange:
    """A change to a golden file in one commit; ``order`` numbers the commits from the first.

    ``costs`` are as in Judgement, ``losses`` the excess of each loss over its limit.  A new file has neither.
    """

    order: int
    costs: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class GoldenHistory:
    """The changes of each file, by its current name, the oldest first; ``missing`` is the reason why there are none."""

    changes: Mapping[str, Sequence[PastChange]] = field(default_factory=dict)
    missing: str = ""


def follow(
    commits: Iterable[Sequence[tuple[str, str]]], contents: Mapping[str, bytes]
) -> Iterator[Mapping[str, Sequence[PastChange]]]:
    """Yield the changes of each file before each commit, and after the last, in one mapping that grows.

    A commit has the path of each changed file, and its blob, empty if it was removed.  A file that cannot be read is
    left out.
    """
    values: dict[str, GoldenValues] = {}
    blobs: dict[str, str] = {}
    changes: dict[str, list[PastChange]] = defaultdict(list)
    for order, versions in enumerate(commits):
        yield changes
        removed = {blobs.pop(path, ""): path for path, blob in versions if not blob}
        for path, blob in versions:
            if not blob:
                values.pop(path, None)
                continue
            try:
                after = parse(contents[blob])
            except (BadGoldenFile, KeyError):
                continue
            if path not in blobs and removed.get(blob) in changes:
                changes[path] = changes.pop(removed[blob])  # renamed
            changes[path].append(_change(order, values.get(path), after))
            values[path], blobs[path] = after, blob
    yield changes


def _change(order: int, before: GoldenValues | None, after: GoldenValues) -> PastChange:
    if before is None:
        return PastChange(order)
    losses = {metric: change.excess for metric, change in loss_changes(before, after).items()}
    costs = cost_changes(before, after)
    if not costs.get("iteration-time", 1.0):  # identical to the last digit: the times were not measured again
        costs = {}
    return PastChange(order, costs, losses)


def read(checkout: Checkout, ref: str) -> GoldenHistory:
    """Read the history of the golden files up to ``ref``."""
    try:
        commit = checkout.resolve(ref)
        if checkout.git("rev-parse", "--is-shallow-repository") != "false":
            return GoldenHistory(missing="the clone is shallow; git fetch --unshallow fetches its history")
    except RunbookError as error:
        return GoldenHistory(missing=str(error))
    # The losses are multiples of limits, which may change with a new release.
    cache = platformdirs.user_cache_path("base-image-runbook") / "golden"
    stored = cache / f"{commit}-{_FORMAT}-{LOSS:g}-{WINDOW_LOSS:g}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        known = {}
        for path, rows in json.loads(stored.read_bytes()).items():
            known[path] = [PastChange(**row) for row in rows]
        return GoldenHistory(known)
    commits = [versions for _, versions in list_versions(checkout, commit)]
    ids = {blob for _, blob in itertools.chain.from_iterable(commits) if blob}
    *_, changes = follow(commits, read_objects(checkout.path, sorted(ids), _MAX_BYTES))
    with contextlib.suppress(OSError, RunbookError):
        make_folder(cache)
        write(stored, json.dumps(changes, default=vars).encode())
    return GoldenHistory(changes)


def list_versions(checkout: Checkout, commit: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the commits that change golden files, oldest first, with the blob of each file ("" if removed)."""
    commits = []
    for name, changed in file_versions(checkout, commit, FOLDER, _MAX_COMMITS):
        golden = [(path.removeprefix(f"{FOLDER}/"), blob) for path, blob in changed if GoldenFileName.of_path(path)]
        if golden:
            commits.append((name, golden))
    return commits
