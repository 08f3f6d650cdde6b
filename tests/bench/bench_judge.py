"""The error rates of the judge of golden values over the history of a full clone, and its time; the judge of each
commit sees only the commits before it.

    environment/run python tests/bench/bench_judge.py CLONE [SEED]
Injections are drawn by SEED: one test of an ordinary refresh becomes slower, or takes more memory, or its loss is wrong
from some step on.  Commits since 2026 are apart: the usual noise was fitted on earlier ones.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from runbook_lib.golden import history
from runbook_lib.golden.diff import GoldenFiles, compare, of_revision
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.measure import STOPPED
from runbook_lib.world.git.blobs import read_objects
from runbook_lib.world.git.checkout import Checkout

MAIN, SINCE = "d98e8a64", 1767225600
#: The commits of the seven bumps, with those that brought their golden values.
BUMPS = ("cc0bdfbd", "71328b89", "44ab057f", "23a1dcaf", "82049aa8", "69ba8096", "ad2ab2ca", "f5b2ec01", "5fe3f066",
         "64bee49c")  # fmt: skip
Contents = dict[str, str]


@dataclass(frozen=True)
class Refresh:
    """A commit that changes golden files, with the history before it."""

    commit: str
    later: bool
    past: GoldenHistory
    old: Contents
    new: Contents

    def judged(self, new: Contents | None = None) -> Verdicts:
        """Judge the commit, or other contents in the place of the new ones."""
        return compare(GoldenFiles(self.old), GoldenFiles(new or self.new), self.past)


def refreshes(clone: Path) -> Iterator[Refresh]:
    """Yield each commit of the history, the oldest first."""
    checkout = Checkout.open(clone)
    times = dict(line.split() for line in checkout.git("log", "--first-parent", "--format=%H %ct", MAIN).splitlines())
    commits = history.list_versions(checkout, checkout.resolve(MAIN))
    contents = read_objects(clone, sorted({blob for _, files in commits for _, blob in files if blob}), 2**23)
    blobs: dict[str, str] = {}
    before = history.follow([files for _, files in commits], contents)
    for (commit, files), past in zip(commits, before, strict=False):
        old = {path: contents[blobs[path]].decode() for path, _ in files if path in blobs}
        new = {path: contents[blob].decode() for path, blob in files if blob in contents}
        yield Refresh(commit, int(times[commit]) >= SINCE, GoldenHistory(past), old, new)
        blobs |= dict(files)
        blobs = {path: blob for path, blob in blobs.items() if blob}


def values_of(data: dict, metric: str) -> object:
    """Return the values by step of a metric, None where it has none."""
    entry = data.get(metric)
    return entry.get("values") if isinstance(entry, dict) else None


def scale_metric(metric: str, factor: float) -> Callable[[dict, random.Random], bool]:
    """Return an injection that multiplies all values of a metric."""

    def inject(data: dict, _: random.Random) -> bool:
        values = values_of(data, metric)
        if not isinstance(values, dict):
            return False
        for step, value in values.items():
            if isinstance(value, int | float):
                values[step] = value * factor
        return bool(values)

    return inject


def wrong_loss(data: dict, chance: random.Random) -> bool:
    """Make the loss wrong by 0.3 % from a step on, one way or the other."""
    values = values_of(data, "lm loss")
    if not isinstance(values, dict) or len(values) < 5:
        return False
    start, factor = chance.randrange(len(values) - 1), 1 + 0.003 * chance.choice((-1, 1))
    for position, (step, value) in enumerate(values.items()):
        if position >= start and isinstance(value, int | float):
            values[step] = value * factor
    return True


INJECTIONS = {
    "time ×1.5": (scale_metric("iteration-time", 1.5), 0.9),
    "time ×1.3": (scale_metric("iteration-time", 1.3), 0.5),
    "memory ×1.2": (scale_metric("mem-max-allocated-bytes", 1.2), 0.9),
    "loss 0.3 %": (wrong_loss, 0.95),
}


def is_noticed(verdicts: Verdicts, file: str) -> bool:
    """Report if a person must see the file, alone or with its group."""
    judgement = next(judgement for judgement in verdicts.judgements if judgement.file == file)
    return judgement.verdict in STOPPED or file in verdicts.waiting


def noticed(refresh: Refresh, inject: Callable[[dict, random.Random], bool], chance: random.Random) -> Counter[str]:
    """Inject into some files, one at a time, and count those that are noticed: alone, with a group, and all."""
    counts: Counter[str] = Counter()
    both = [path for path in sorted(refresh.new) if path in refresh.old]
    for path in chance.sample(both, min(len(both), 2)):
        try:
            data = json.loads(refresh.new[path])
        except ValueError:
            continue
        if isinstance(data, dict) and inject(data, chance) and _changes(refresh, path, data):
            verdicts = refresh.judged({**refresh.new, path: json.dumps(data)})
            judgement = next(judgement for judgement in verdicts.judgements if judgement.file == path)
            counts["all"] += 1
            counts["alone"] += judgement.verdict in STOPPED
            counts["noticed"] += is_noticed(verdicts, path)
    return counts


def _changes(refresh: Refresh, path: str, data: dict) -> bool:
    """Report if the injection changed a metric that the old file has too."""
    before, after = json.loads(refresh.new[path]), json.loads(refresh.old[path] or "{}")
    return any(data[metric] != before[metric] and metric in after for metric in data)


def measure(clone: Path, seed: int = 1) -> bool:
    """Print the table of issue "A judge that learns from history", and report if every figure is met."""
    chance, met = random.Random(seed), True
    found: dict[tuple[str, bool], Counter[str]] = {}
    ordinary: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    series: Counter[str] = Counter()
    for refresh in refreshes(clone):
        verdicts = refresh.judged()
        if refresh.commit[:8] in BUMPS:
            _count_losses(verdicts, series)
            continue
        for judgement in verdicts.judgements:
            kind = "renamed" if judgement.file not in refresh.new else judgement.verdict
            ordinary[refresh.later][kind] += 1
        for name, (inject, _) in INJECTIONS.items():
            found.setdefault((name, refresh.later), Counter()).update(noticed(refresh, inject, chance))
    for (name, later), counts in sorted(found.items()):
        share, least = counts["alone"] / counts["all"], INJECTIONS[name][1]
        met &= share >= least
        waiting = counts["noticed"] / counts["all"]
        print(
            f"{name}, {_when(later)}: held back by its own verdict {share:.1%} of {counts['all']} "
            f"(at least {least:.0%}), with its group {waiting:.1%}"
        )
    total = ordinary[False] + ordinary[True]
    for label, counts in (("before 2026", ordinary[False]), ("since 2026", ordinary[True]), ("all", total)):
        changed = sum(counts[verdict] for verdict in (*STOPPED, "refresh"))
        stopped = sum(counts[verdict] for verdict in STOPPED)
        print(f"held back in ordinary refreshes, {label}: {stopped / changed:.2%} of {changed} files {dict(counts)}")
    met &= stopped / changed <= 0.05  # of all: the later ones are apart because nothing was fitted on them
    beyond = f"{series['noticed']} of {series['beyond']}"
    print(f"loss series beyond 1e-3 in the bumps: {beyond} noticed, {series['all']} changed")
    met &= series["noticed"] == series["beyond"]
    return met & _bump(clone)


def _when(later: bool) -> str:
    return "since 2026" if later else "before 2026"


def _count_losses(verdicts: Verdicts, series: Counter[str]) -> None:
    for judgement in verdicts.judgements:
        for measured in judgement.measures:
            if "loss" in measured.metric and measured.max_abs:
                series["all"] += 1
                if measured.max_abs > 1e-3:
                    series["beyond"] += 1
                    series["noticed"] += is_noticed(verdicts, judgement.file)


def _bump(clone: Path) -> bool:
    """Print the decisions on the real bump 26.02 to 26.04, and the time of its comparison."""
    checkout, seconds = Checkout.open(clone), []
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, XDG_CACHE_HOME=folder):
        for _ in ("cold", "warm"):
            start = time.perf_counter()
            past = history.read(checkout, "5fe3f06658^")
            verdicts = compare(of_revision(clone, "5fe3f06658^"), of_revision(clone, "5fe3f06658"), past)
            seconds.append(time.perf_counter() - start)
    slower = [group for group in verdicts.groups if group.platform == "dgx_h100" and group.metric == "iteration-time"]
    own = 0
    for judgement in verdicts.judgements:
        if "_h100" in judgement.file:
            own += any(reason.metric == "iteration-time" for reason in judgement.reasons)
    for group in verdicts.groups:
        print(f"26.04: {group.id}: {group.sentence}")
    print(f"26.04: {len(slower)} decision on H100's times (1), {own} of its files alone (0)")
    print(f"26.04: {seconds[1]:.1f} s warm (at most 1.5), {seconds[0]:.1f} s cold (at most 10)")
    return len(slower) == 1 and own == 0 and seconds[1] <= 1.5 and seconds[0] <= 10


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path, help="a full clone of Megatron-LM")
    parser.add_argument("seed", nargs="?", type=int, default=1)
    options = parser.parse_args()
    sys.exit(0 if measure(options.clone, options.seed) else 1)
