"""The search as a pure function of the ledger: the next point to run, or the result.

The same ledger always gives the same answer, so a killed search continues where it stopped, and pays for no run
twice.

The good state has one mode.  The bad state has one or two: some runs of a bad image look fine.  A mode is a normal
distribution of unknown mean and noise, which the values of all points of that state determine together, so that a
hypothesis is judged with the uncertainty that few runs leave.  ``docs/bisect.md`` describes both models and limits.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: The probability at which a conclusion is drawn.
CERTAIN = 0.998
#: Prior probabilities: none of the components, a single culprit, two or three that act only together.
_PRIOR = (0.1, 0.76, 0.12, 0.02)
_FIRST_RUNS = 2  # of each end, before anything else
_MAX_SETS = 2_000  # sets of components of one size; with more sets, interactions of that size are not considered
_CONFIRMING_RUNS = 4  # of each culprit restored, at least
_MAX_LOST = 3  # runs without a value after which a point is given up
#: Prior probability that the bad state has two modes.  In half of these cases, one mode is the good state's.
TWO_MODES = 0.5
#: Prior probability that a state does not always pass or fail; its rate of the usual outcome is then Beta(3, 1).
FLAKY = 0.2
#: Noise expected before any run, as a share of the good values; runs correct it by orders of magnitude.
NOISE = 0.02
_SHAPE = 1.0  # of the inverse gamma prior of a mode's variance: the smaller, the weaker the prior
_MEAN_RUNS = 0.005  # the weight of the prior of a mode's mean, in runs: a mode may be anywhere within about 14 sigma
#: Maximum number of runs in a ledger.
MAX_RUNS = 2_000

_LOG_GAMMA = np.array([math.lgamma(count) for count in range(1, MAX_RUNS + 5)])  # [n] = log n!
_LOG_GAMMA_HALF = np.array([math.lgamma(_SHAPE + count / 2) for count in range(MAX_RUNS + 1)])


@dataclass(frozen=True, order=True)
class Point:
    """An image to run: a tag, with the old version of a component put into it, if one is named."""

    tag: str
    restored: str = ""

    def __str__(self) -> str:
        return " with the old ".join(filter(None, [self.tag, self.restored]))


@dataclass(frozen=True)
class Trial:
    """A run of a point with its number from 1.

    ``outcome``: empty before it has ended, ``value``, ``invalid`` (its overlay did not take effect) or ``lost`` (it
    produced no value: a node failed, or no container started).  ``value`` is the metric.
    """

    point: Point
    outcome: Literal["", "value", "invalid", "lost"] = ""
    value: float | None = None
    number: int = 0
    image: str = ""
    node: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Problem:
    """The tags and components to search, and the budget.

    ``tags``: oldest first; the first is good, the last is bad.  ``components``: by tag, those of the tag before that
    can be put into it.  ``budget``: runs at most.  ``by_exit``: the values are 1 (passed) and 0 (failed).
    """

    tags: tuple[str, ...]
    components: Mapping[str, Sequence[str]] = field(default_factory=dict)
    higher_is_better: bool = True
    budget: int = 40
    by_exit: bool = False


@dataclass(frozen=True)
class Conclusion:
    """The result.  ``step``: the last good and first bad tag, if found.  Restoring any one of the culprits helps."""

    verdict: Literal["culprit", "tag only", "not reproduced", "not a single component", "undecided"]
    reason: str
    probability: float = 0.0
    step: tuple[str, ...] = ()
    culprits: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The result in one or two sentences, with its probability, which never rounds up to certainty."""
        if not self.step:
            return f"No result: {self.reason}"
        percent, (good, bad) = min(int(self.probability * 1000) / 10, 99.9), self.step
        return f"{bad} is the first bad tag, {good} the last good one. {self.reason} Probability: {percent:.1f} %."


@dataclass(frozen=True)
class _Hypothesis:
    """A hypothesis: the ``names`` of the neighbouring tags or of the culprits, and the points that it makes good."""

    names: tuple[str, ...]
    good: frozenset[Point]
    prior: float


@dataclass(frozen=True)
class _Belief:
    """The most probable hypothesis with its probability, and the probability that each point is good."""

    best: _Hypothesis
    probability: float
    chances: dict[Point, float]


class _Data:
    """The values of a ledger's runs by point, of which higher is better, and the points that cannot be judged."""

    def __init__(self, problem: Problem, ledger: Sequence[Trial]) -> None:
        self.problem = problem
        self.values = defaultdict[Point, list[float]](list)
        for run in ledger:
            if run.value is not None:
                self.values[run.point].append(run.value if problem.higher_is_better else -run.value)
        self.lost = Counter(run.point for run in ledger if run.outcome == "lost")
        self.invalid = {run.point for run in ledger if run.outcome == "invalid"}
        self.invalid |= {point for point in self.lost if point.restored and self.lost[point] >= _MAX_LOST}

    def count(self, point: Point) -> int:
        """Return the number of valid runs of a point."""
        return len(self.values[point])

    def believe(self, hypotheses: Sequence[_Hypothesis], points: Sequence[Point]) -> _Belief:
        """Weigh hypotheses by the runs of these points."""
        values = np.concatenate([self.values[point] for point in points])
        good = np.array([[point in hypothesis.good for point in points] for hypothesis in hypotheses])
        by_run = np.repeat(good, list(map(self.count, points)), axis=1)
        scale = float(np.mean(self.values[Point(self.problem.tags[0])])) or float(abs(values).max()) or 1.0
        evidence = _log_rates(values, by_run) if self.problem.by_exit else log_evidence(values, by_run, scale)
        logs = np.log([hypothesis.prior for hypothesis in hypotheses]) + evidence
        weights = np.exp(logs - logs.max())
        probabilities = weights / weights.sum()
        best, chances = int(probabilities.argmax()), map(float, probabilities @ good)
        return _Belief(hypotheses[best], float(probabilities[best]), dict(zip(points, chances, strict=True)))


def advance(problem: Problem, ledger: Sequence[Trial]) -> Point | Conclusion:
    """Return the next point to run, or the conclusion; never a point beyond the budget.

    Runs without a value count towards the budget only.
    """
    data = _Data(problem, ledger)
    answer = _reproduce(data) or _find_step(data)
    if isinstance(answer, Point) and len(ledger) >= problem.budget:
        return Conclusion("undecided", f"The budget of {problem.budget} runs is spent.")
    if isinstance(answer, Point) and data.lost[answer] >= _MAX_LOST:
        last = [run.reason for run in ledger if run.point == answer][-1]
        reason = f"{answer.tag} produced no value in {data.lost[answer]} runs; in the last, {last}."
        return Conclusion("undecided", reason)
    return answer


def _reproduce(data: _Data) -> Point | Conclusion | None:
    """Return the next run of an end until both ends certainly differ; None once they do."""
    good, bad = Point(data.problem.tags[0]), Point(data.problem.tags[-1])
    fewest = min((bad, good), key=data.count)
    if data.count(fewest) < _FIRST_RUNS:
        return fewest
    differ, same = _Hypothesis((), frozenset({good}), 0.9), _Hypothesis((), frozenset({good, bad}), 0.1)
    chance = 1 - data.believe([differ, same], [good, bad]).chances[bad]
    if chance >= CERTAIN and np.mean(data.values[bad]) < np.mean(data.values[good]):
        return None
    if 1 - chance >= CERTAIN or (chance >= CERTAIN and data.count(fewest) > _FIRST_RUNS):
        return Conclusion("not reproduced", f"{bad.tag} is not worse than {good.tag} here.", max(chance, 1 - chance))
    return fewest


def _find_step(data: _Data) -> Point | Conclusion:
    """Weigh each pair of neighbouring tags as the place of the change, from the runs of plain tags."""
    tags = data.problem.tags
    points = [Point(tag) for tag in tags]
    steps = [_Hypothesis(pair, frozenset(points[:number]), 1) for number, pair in enumerate(pairwise(tags), 1)]
    belief = data.believe(steps, points)
    if belief.probability < CERTAIN:
        return _next_point(data, belief, points, points[0], points[-1])
    return _search_components(data, belief, points)


def _search_components(data: _Data, tags: _Belief, points: list[Point]) -> Point | Conclusion:
    """Weigh which components make the bad image good when restored alone: none, one, or several."""
    good_tag, bad_tag = tags.best.names
    restored = {name: Point(bad_tag, name) for name in data.problem.components.get(bad_tag, ())}
    testable = {name: point for name, point in restored.items() if point not in data.invalid}
    if not testable:
        reason = "No old component took effect in the new image." if restored else "No component can be swapped."
        return Conclusion("tag only", reason, tags.probability, tags.best.names)
    hypotheses: list[_Hypothesis] = []
    for size, share in enumerate(_PRIOR):
        count = math.comb(len(testable), size)
        if count > _MAX_SETS:
            break
        for names in combinations(testable, size):
            good = tags.best.good | {testable[name] for name in names}
            hypotheses.append(_Hypothesis(names, good, share / count))
    belief = data.believe(hypotheses, [*points, *testable.values()])
    if belief.probability < CERTAIN:
        return _next_point(data, belief, list(testable.values()), Point(good_tag), Point(bad_tag))
    culprits = belief.best.names
    if not culprits:
        reason = "No swappable component makes it good alone."
        return Conclusion("not a single component", reason, belief.probability, tags.best.names)
    fewest = min((testable[name] for name in culprits), key=data.count)
    if data.count(fewest) < _CONFIRMING_RUNS:
        return fewest
    reason = f"Restoring {' or '.join(culprits)} makes {bad_tag} good."
    return Conclusion("culprit", reason, belief.probability, tags.best.names, culprits)


def _next_point(data: _Data, belief: _Belief, candidates: Sequence[Point], good: Point, bad: Point) -> Point:
    """Return the point whose state is least certain, or an end if that state itself is not known well enough.

    A point that looks good is run at most as often as the bad state was: only that shows how often a bad image looks
    fine.  Likewise for a point that looks bad.
    """
    chances = belief.chances
    point = min(candidates, key=lambda point: (abs(chances[point] - 0.5), data.count(point)))
    looks_good = chances[point] > 0.5
    others = [known for known in chances if known != point and (known in belief.best.good) != looks_good]
    opposite = sum(map(data.count, others))
    if looks_good and data.count(point) >= opposite:
        return bad
    if not looks_good and data.count(point) > _FIRST_RUNS + opposite:
        return good
    return point


def log_evidence(values: npt.ArrayLike, good: npt.NDArray[np.bool_], scale: float) -> Floats:
    """Return the logarithm of each hypothesis' marginal likelihood, up to a constant.

    ``values`` (N): one per run, higher is better.  ``good`` (hypotheses x N): whether the run is of the good state.
    ``scale``: a typical good value, not 0, which is the unit of NOISE.
    """
    order = np.argsort(values)
    data = np.asarray(values, float)[order]
    data = (data - np.median(data)) / (NOISE * abs(scale))
    good = good[:, order]
    powers = np.stack([np.ones_like(data), data, data**2])  # count, sum and sum of squares determine a mode
    good_mode = powers @ good.T
    # Of the first 0, 1, … N sorted values, those that are bad.
    worse = np.pad(np.cumsum(powers[:, None] * ~good, axis=2), ((0, 0), (0, 0), (1, 0)))
    bad = worse[:, :, -1]
    better = bad[:, :, None] - worse
    single = math.log(1 - TWO_MODES) + _log_mode(*good_mode) + _log_mode(*bad)
    # Two modes of unknown, uniformly distributed weight: every division of the sorted bad values, once.
    left, right = worse[0].astype(int), better[0].astype(int)
    weight = math.log(TWO_MODES / 2) + _LOG_GAMMA[left] + _LOG_GAMMA[right] - _LOG_GAMMA[left + right + 1]
    weight[:, 1:][good] = -np.inf  # the same division as one position to the left
    own = _log_mode(*good_mode)[:, None] + _log_mode(*worse) + _log_mode(*better)
    shared = _log_mode(*worse) + _log_mode(*(good_mode[:, :, None] + better))
    shared = np.where(worse[0] > 0, shared, -np.inf)
    terms = np.column_stack([single, weight + own, weight + shared])
    return np.asarray(np.logaddexp.reduce(terms, axis=1))


def _log_rates(values: Floats, good: npt.NDArray[np.bool_]) -> Floats:
    """Return the same for values of 1 and 0: the good state passes, the bad one fails, always or at a rate."""
    logs: Floats = np.zeros(len(good))
    for state, usual in ((good, 1.0), (~good, 0.0)):
        count, other = state.sum(axis=1), (state & (values != usual)).sum(axis=1)
        flaky = math.log(FLAKY * 3) + _LOG_GAMMA[count - other + 2] + _LOG_GAMMA[other] - _LOG_GAMMA[count + 3]
        logs += np.logaddexp(flaky, np.where(other > 0, -np.inf, math.log(1 - FLAKY)))
    return logs


def _log_mode(count: Floats, total: Floats, squares: Floats) -> Floats:
    """Return the log marginal likelihood of values from one mode: normal, with a normal-inverse-gamma prior."""
    runs = _MEAN_RUNS + count
    spread = 1 + (squares - total**2 / runs) / 2
    counted = _LOG_GAMMA_HALF[count.astype(int)] - _LOG_GAMMA_HALF[0] - count / 2 * math.log(2 * math.pi)
    measured = np.log(_MEAN_RUNS / runs) / 2 - (_SHAPE + count / 2) * np.log(np.maximum(spread, 1.0))
    return np.asarray(counted + measured)
