"""The changes that many files have in common, and the noise of each test.

A change that most tests of a platform share is one decision: at least COMMON tests, and more than half.  It is a shift
of times or memory, a common change of losses, or a loss of data.  The shift of a platform's times or memory is the
median of its changes.  Each test is judged by its deviation from it, so a shift beyond SHIFT_LIMIT is a decision.

The noise of a test's times, memory and zeros is learned from its past changes, without the shift that each shared with
the other files of its commit and platform.  A test has few versions, so its variance is shrunk towards the usual one.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from statistics import median

from runbook_lib.decisions import digest
from runbook_lib.golden.baselines import is_of_platform
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.measure import Judgement, ReviewReason, loss_change
from runbook_lib.text.recipes.file_names import GoldenFileName


@dataclass(frozen=True)
class UsualNoise:
    """The usual standard deviations of a metric: a test's change (never less than ``least``), a platform's shift."""

    test: float
    shift: float = 0.05
    least: float = 0.015


_USUAL = {
    "iteration-time": UsualNoise(0.0288, 0.0233),
    "mem-allocated-bytes": UsualNoise(0.00265, 0.01, 0.004),
    "mem-max-allocated-bytes": UsualNoise(0.002, 0.01, 0.004),
    "num-zeros": UsualNoise(0.0168, 0.01, 0.03),
    "throughput": UsualNoise(0.15),
}
_OTHER = UsualNoise(0.06)
#: The weight of the usual noise, in numbers of changes.
_OF_PRIOR = 3.0
#: The minimum number of files for a platform's common shift, and the factor from median deviation to sigma.
COMMON, _SIGMA = 4, 1.4826
#: The common shift that needs a person's decision.
SHIFT_LIMIT = 0.05
#: The weight of the tests' own noise against the spread within a platform, in numbers of tests.
_OF_TESTS = 10
#: The share of a platform's tests that makes a loss of data one decision.
_FORM_SHARE = 0.1
#: The share of tests whose losses changed alike for one decision, and for another test to be an exception; the shared
#: steps needed to compare two tests, and the excess up to which they agreed; the weight of an exception.
_ALIKE, _NEARLY_ALL, _LEAST_STEPS, _AGREED, _UNLIKE = 0.25, 0.8, 5, 0.5, 2.0
LOSS, BASELINES = "loss", "baselines"


@dataclass(frozen=True)
class NoiseModel:
    """Past changes by (file, metric), without the shift of their platform.

    ``losses``: by file and loss the past changes as multiples of their limits.
    """

    residuals: Mapping[tuple[str, str], Sequence[float]]
    losses: Mapping[tuple[str, str], Sequence[float]]

    def scale(self, file: str, metric: str) -> float:
        """Return the standard deviation of a test's change, robust and shrunk towards the usual one."""
        past, usual = self.residuals.get((file, metric), ()), _USUAL.get(metric, _OTHER)
        limit = 3 * max(usual.test, _SIGMA * median(map(abs, past)) if len(past) >= COMMON else 0.0)
        total = sum(min(abs(change), limit) ** 2 for change in past)
        variance = (_OF_PRIOR * usual.test**2 + total) / (_OF_PRIOR + len(past))
        return max(math.sqrt(variance), usual.least)

    def similar(self, file: str, metric: str, change: float) -> tuple[int, int]:
        """Return the number of past changes of a test that were at least as large, in either direction, and of all."""
        past = self.residuals.get((file, metric), ())
        return sum(abs(residual) >= abs(change) for residual in past), len(past)


def platform_of(file: str) -> str:
    """Return the platform of a golden file, with the environment if it is not dev."""
    name = GoldenFileName.parse(file.rpartition("/")[2])
    if name is None:
        return ""
    return name.platform if name.environment == "dev" else f"{name.environment}_{name.platform}".rstrip("_")


def learn(history: GoldenHistory) -> NoiseModel:
    """Learn the noise of each test from the history."""
    by_commit: dict[tuple[int, str, str], list[tuple[str, float]]] = defaultdict(list)
    losses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for file, changes_of_file in history.changes.items():
        platform = platform_of(file)
        for past in changes_of_file:
            for metric, excess in past.losses.items():
                losses[file, metric].append(excess)
            for metric, change in past.costs.items():
                by_commit[past.order, platform, metric].append((file, change))
    residuals: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (_, _, metric), changes in by_commit.items():
        shift = median(change for _, change in changes) if len(changes) >= COMMON else 0.0
        for file, change in changes:
            residuals[file, metric].append(change - shift)
    return NoiseModel(residuals, losses)


@dataclass(frozen=True)
class Group:
    """One decision on ``files``; ``ratio`` is the median of new to old, None if only the form changed.

    ``family`` is the kind of the reason, empty for a shift.  ``moved`` of ``compared`` files changed in this direction.
    ``accepted``: the reason why a person accepted it.
    """

    platform: str
    family: str
    metric: str
    ratio: float | None
    files: tuple[str, ...]
    compared: int
    moved: int = 0
    accepted: str = ""

    @property
    def id(self) -> str:
        """The name of the group in a decision."""
        return "/".join(filter(None, (self.platform, self.family, self.metric.replace(" ", "-"))))

    @property
    def digest(self) -> str:
        """The digest of the shift, to which a decision is bound: more files may share a shift of times or memory."""
        if self.ratio is None or LOSS in self.metric:
            return digest(self.id, f"{self.ratio or 0:.2f}", self.files)
        return digest(self.id, round(math.log(self.ratio) / math.log1p(SHIFT_LIMIT)))

    @property
    def sentence(self) -> str:
        """The shift as a clause."""
        files = f"{self.platform or 'all platforms'}: {self.moved} of {self.compared} tests"
        if self.ratio is None:
            return f"{files} lost or gained steps or metrics"
        if self.family == BASELINES:
            change = f"median ×{self.ratio:.2f} of time or memory, ×{1 / self.ratio:.2f} of throughput"
            return f"{files} {self.metric} than CI allows, {change}"
        if LOSS in self.metric:
            return f"{files} train differently, median change of the loss {self.ratio - 1:+.2%}"
        words = ("took more memory", "took less memory") if self.metric.startswith("mem-") else ("slower", "faster")
        return f"{files} {words[self.ratio < 1]}, median ×{self.ratio:.2f} of {self.metric}"

    @property
    def row(self) -> dict[str, object]:
        """The group as a row for JSON and tables."""
        return {
            "id": self.id, "platform": self.platform, "family": self.family or None, "metric": self.metric,
            "ratio": self.ratio, "files": list(self.files), "verdict": "refresh" if self.accepted else "held back",
            "sentence": self.sentence, "accepted": self.accepted,
        }  # fmt: skip


@dataclass(frozen=True)
class Deviation:
    """The change of one metric of a file minus its platform's shift, with the noise's standard deviation."""

    residual: float
    scale: float
    shift: float


def split(judgements: Iterable[Judgement], model: NoiseModel) -> tuple[list[Group], dict[tuple[str, str], Deviation]]:
    """Split each change of time, memory or zeros into the shift of its platform and the test's deviation from it."""
    platforms: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for judgement in judgements:
        for metric, change in judgement.costs.items():
            platforms[platform_of(judgement.file), metric][judgement.file] = change
    groups: list[Group] = []
    deviations: dict[tuple[str, str], Deviation] = {}
    for (platform, metric), changes in sorted(platforms.items()):
        # Of few tests, the shift cannot be separated from a test's own change, so it adds to the noise.
        shift, spread = 0.0, _USUAL.get(metric, _OTHER).shift
        if len(changes) >= COMMON:
            shift = median(changes.values())
            spread = _SIGMA * median(abs(change - shift) for change in changes.values())
            spread *= len(changes) / (len(changes) + _OF_TESTS)
        for file, change in changes.items():
            deviations[file, metric] = Deviation(change - shift, math.hypot(model.scale(file, metric), spread), shift)
        if metric != "num-zeros" and abs(shift) > math.log1p(SHIFT_LIMIT):  # no test is judged by it again
            files, moved = tuple(sorted(changes)), sum(change * shift > 0 for change in changes.values())
            groups.append(Group(platform, "", metric, math.exp(shift), files, len(files), moved))
    return groups, deviations


def _is_common(found: int, compared: int, share: float = 0.5) -> bool:
    """Return True if enough tests of a platform share a change for one decision."""
    return found >= COMMON and found > share * compared


def common_reasons(reasons: Mapping[str, list[ReviewReason]], judgements: Iterable[Judgement]) -> list[Group]:
    """Return the decisions on reasons of the same kind shared by many files of a platform; ``reasons`` are by file.

    A test whose loss changed unlike that of nearly all others gets a reason of its own.
    """
    compared, trained = Counter[str](), Counter[str]()
    by_kind: dict[tuple[str, str], list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        platform = platform_of(judgement.file)
        compared[platform] += 1
        trained[platform] += any(loss.excess for loss in judgement.losses.values())
        for kind in {reason.kind for reason in reasons[judgement.file]} - {""}:
            by_kind[platform, kind].append(judgement)
    groups = []
    for (platform, kind), found in sorted(by_kind.items()):
        files, total = tuple(judgement.file for judgement in found), compared[platform]
        if kind != LOSS:
            if _is_common(len(found), total, _FORM_SHARE):
                groups.append(Group(platform, kind, "form", None, files, total, len(files)))
            continue
        total = max(trained[platform], len(found))
        unlike = [judgement for judgement in found if not any(_is_alike(judgement, other) for other in found)]
        alike = len(found) - len(unlike)
        if _is_common(len(found), total) and alike >= _ALIKE * len(found):
            sizes = [max((loss.size for loss in it.losses.values()), key=abs, default=0.0) for it in found]
            groups.append(Group(platform, "", "lm loss", 1 + median(sizes), files, total, len(files)))
            for judgement in unlike:
                reasons[judgement.file] += _exception(judgement, found, alike)
    return groups


def _exception(judgement: Judgement, group: Iterable[Judgement], alike: int) -> list[ReviewReason]:
    """Return why a test is decided by itself: it no longer agrees with another, or all but it changed alike."""
    others = [other for other in group if other is not judgement]
    twins = [other for other in others if _excess(judgement, other, before=True) <= _AGREED]
    is_known = bool(twins) or alike >= _NEARLY_ALL * len(others)
    if not is_known or min(_excess(judgement, other) for other in twins or others) <= 1:
        return []
    sentence = f"it agreed with {twins[0].file} before" if twins else "it did not change like the others"
    return [ReviewReason("losses", sentence, _UNLIKE)]


def _is_alike(judgement: Judgement, other: Judgement) -> bool:
    """Return True if the losses of two tests changed by the same factors; a test's second run says nothing about it."""
    if PurePath(judgement.file).parent == PurePath(other.file).parent:
        return False
    return _excess(judgement, other) <= 1


def _excess(judgement: Judgement, other: Judgement, *, before: bool = False) -> float:
    """Return how many limits the changes of two tests' losses differ by, or their old values; infinite if unknown."""
    excesses = []
    for metric in judgement.losses.keys() & other.losses.keys():
        loss, theirs = judgement.losses[metric], other.losses[metric]
        steps = [step for step in loss.limits.keys() & theirs.limits.keys() if theirs.old[step]]
        if len(steps) >= _LEAST_STEPS:
            expected = {step: loss.old[step] * theirs.new[step] / theirs.old[step] for step in steps}
            change = loss_change(loss.old, theirs.old) if before else loss_change(expected, loss.new)
            excesses.append(change.excess if change else math.inf)
    return max(excesses, default=math.inf)


def baseline_groups(judgements: Iterable[Judgement]) -> list[Group]:
    """Return the decisions on performance baselines beyond CI's limits: one for each platform and direction."""
    compared: Counter[str] = Counter()
    beyond: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for judgement in judgements:
        platforms = {name: name.partition("/")[0] if is_of_platform(name) else "" for name in judgement.costs}
        compared.update(set(platforms.values()))
        for name in judgement.ci:
            direction = "worse" if judgement.costs[name] > 0 else "better"
            beyond[platforms[name], direction][judgement.file].append(judgement.costs[name])
    groups = []
    for (platform, direction), costs in sorted(beyond.items()):
        ratio = math.exp(median(chain.from_iterable(costs.values())))
        groups.append(
            Group(platform, BASELINES, direction, ratio, tuple(sorted(costs)), compared[platform], len(costs))
        )
    return groups
