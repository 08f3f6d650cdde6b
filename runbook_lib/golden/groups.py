"""Decisions on many files together: a shift of times or memory, a common change of losses, or a loss of data.

The location of a platform's changes is their median; a family has a separate location if it differs significantly.  A
sign test around the limit decides: the share of tests beyond it, compared with the share expected from noise.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runbook_lib.decisions import digest
from runbook_lib.golden.baselines import is_of_platform
from runbook_lib.golden.form import Judgement, ReviewReason
from runbook_lib.golden.measure import PRIORS
from runbook_lib.golden.noise import COMMON, SIGMA, NoiseModel, platform_of

#: The common shift that needs a person's decision, and the probability of its sign test.
SHIFT_LIMIT, SIGNIFICANT = 0.05, 0.001
#: Families are separate if they differ by this much, and by this many standard errors.
_FAMILIES_APART, _FAMILY_ERRORS, _LEAST = 0.04, 4.5, 3
_MEDIAN_ERROR = 1.2533
#: The weight, in numbers of files, of the tests' own noise beside the spread within a commit.
_OWN_NOISE = 20.0
_NO_SHIFT = ("num-zeros",)
LOSS, BASELINES = "loss", "baselines"
#: The minimum share of files with changed losses for one common decision.
_LOSS_SHARE = 0.5


@dataclass(frozen=True)
class Group:
    """One decision on ``files``; ``ratio`` is the median of new to old, None if only the form changed.

    ``moved`` of ``compared`` files changed in this direction.  ``accepted``: the reason why a person accepted it.
    """

    platform: str
    family: str
    metric: str
    ratio: float | None
    p_value: float
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
        place = " ".join(filter(None, (self.platform or "all platforms", self.family)))
        files = f"{place}: {self.moved} of {self.compared} tests"
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
            "ratio": self.ratio, "p_value": self.p_value, "files": list(self.files),
            "verdict": "refresh" if self.accepted else "held back", "sentence": self.sentence,
            "accepted": self.accepted,
        }  # fmt: skip


@dataclass(frozen=True)
class Deviation:
    """The change of one metric of a file minus its platform's shift, with the noise's standard deviation."""

    residual: float
    scale: float
    shift: float


Changes = Mapping[str, float]


def split(judgements: Iterable[Judgement], model: NoiseModel) -> tuple[list[Group], dict[tuple[str, str], Deviation]]:
    """Split each change of time, memory or zeros into the shift of its platform and the test's deviation from it."""
    platforms: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for judgement in judgements:
        for metric, change in judgement.costs.items():
            platforms[platform_of(judgement.file), metric][judgement.file] = change
    groups: list[Group] = []
    deviations: dict[tuple[str, str], Deviation] = {}
    for (platform, metric), changes in sorted(platforms.items()):
        scales = {file: model.scale(file, metric) for file in changes}
        if len(changes) < COMMON:
            # The platform's shift cannot be separated from the test's change, so it adds to the noise.
            common = PRIORS.shift.get(metric, PRIORS.shift[""])
            for file, change in changes.items():
                deviations[file, metric] = Deviation(change, math.hypot(scales[file], common), 0.0)
            continue
        parts = _parts(changes, scales)
        for files in parts:
            for file in files:
                deviations[file, metric] = _deviation(file, files, changes, scales)
        if metric not in _NO_SHIFT:
            groups += _shifts(platform, metric, parts, changes)
    return groups, deviations


def _deviation(file: str, files: Sequence[str], changes: Changes, scales: Changes) -> Deviation:
    """Return the deviation of a file from the others in its part, so that it is not masked by its own contribution.

    With few others, their spread is shrunk towards the tests' own noise.
    """
    others = list(files)
    if len(files) > _LEAST:  # the median of two is not robust
        others.remove(file)
    centre = median(changes[name] for name in others)
    spread = SIGMA * median(abs(changes[name] - centre) / scales[name] for name in others)
    weight = len(others) / (len(others) + _OWN_NOISE)
    inflation = math.sqrt(weight * max(1.0, spread) ** 2 + 1 - weight)
    return Deviation(changes[file] - centre, scales[file] * inflation, centre)


def _parts(changes: Changes, scales: Changes) -> list[list[str]]:
    """Split the files into parts with one location each: the families that differ significantly, and the rest."""
    families: dict[str, list[str]] = defaultdict(list)
    for file in changes:
        families[_family(file)].append(file)
    rest = list(changes)
    parts: list[list[str]] = []
    for files in sorted(families.values(), key=len):
        others = [file for file in rest if file not in files]
        if min(len(files), len(others)) >= _LEAST and _are_apart(files, others, changes, scales):
            parts.append(files)
            rest = others
    return [*parts, rest]


def _family(file: str) -> str:
    """Return the part that a file may belong to: the second runs of resuming tests, or its model."""
    return "2nd" if file.endswith("_2nd.json") else file.partition("/")[0]


def _are_apart(members: Sequence[str], others: Sequence[str], changes: Changes, scales: Changes) -> bool:
    """Return True if the locations of two parts differ by much, and by many standard errors."""
    sizes, centres = [], []
    for files in (members, others):
        centres.append(median(changes[file] for file in files))
        sizes += [abs(changes[file] - centres[-1]) for file in files]
    scale = max(SIGMA * median(sizes), median(scales[file] for file in (*members, *others)))
    error = scale * _MEDIAN_ERROR * math.sqrt(1 / len(members) + 1 / len(others))
    return abs(centres[0] - centres[1]) >= max(_FAMILIES_APART, _FAMILY_ERRORS * error)


def _shifts(platform: str, metric: str, parts: Sequence[Sequence[str]], changes: Changes) -> list[Group]:
    """Return the decisions on a platform's shift: at most one for each direction."""
    groups = []
    limit = math.log1p(SHIFT_LIMIT)
    for sign in (1, -1):
        shifted = [files for files in parts if sign * median(changes[file] for file in files) > limit]
        files = sorted(itertools.chain.from_iterable(shifted))
        moved = sum(sign * changes[file] > limit for file in files)
        p_value = _binomial_tail(moved, len(files), PRIORS.moved.get(metric, PRIORS.moved[""]))
        if files and p_value < SIGNIFICANT:
            families = set(map(_family, files))
            family = families.pop() if len(files) < len(changes) and len(families) == 1 else ""
            ratio = math.exp(median(changes[file] for file in files))
            gone_along = sum(sign * changes[file] > 0 for file in files)
            groups.append(Group(platform, family, metric, ratio, p_value, tuple(files), len(files), gone_along))
    return groups


def common_reasons(reasons: Mapping[str, Sequence[ReviewReason]], judgements: Sequence[Judgement]) -> list[Group]:
    """Return the decisions on reasons of the same kind shared by most files of a platform; ``reasons`` are by file."""
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
        total, least, ratio, metric, family = compared[platform], COMMON, None, "form", kind
        if kind == LOSS:
            total = max(trained[platform], len(found))
            least = max(COMMON, math.ceil(_LOSS_SHARE * total))
            sizes = [max((loss.size for loss in it.losses.values()), key=abs, default=0.0) for it in found]
            ratio, metric, family = 1 + median(sizes), "lm loss", ""
        p_value = _binomial_tail(len(found), total, PRIORS.stopped.get(kind, PRIORS.stopped[""]))
        if len(found) >= least and p_value < SIGNIFICANT:
            files = tuple(judgement.file for judgement in found)
            groups.append(Group(platform, family, metric, ratio, p_value, files, total, len(files)))
    return groups


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
        ratio = math.exp(median(itertools.chain.from_iterable(costs.values())))
        files = tuple(sorted(costs))
        groups.append(Group(platform, BASELINES, direction, ratio, 0.0, files, compared[platform], len(files)))
    return groups


def _binomial_tail(successes: int, trials: int, share: float) -> float:
    """Return the probability of at least this many successes."""
    total = 0.0
    for count in range(successes, trials + 1):
        total += math.comb(trials, count) * share**count * (1 - share) ** (trials - count)
    return min(total, 1.0)
