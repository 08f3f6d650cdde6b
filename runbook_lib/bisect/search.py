"""The search as a pure function of the ledger: the next point to run, or the result.

The same ledger always gives the same answer, so a killed search continues where it stopped, and pays for no run
twice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from runbook_lib.bisect.model import Bools, Floats, log_evidence, posterior

#: The probability at which a conclusion is drawn.
CERTAIN = 0.998
#: Prior probabilities: a single culprit, two or three that act only together, and none of the components.
_PRIOR = (0.76, 0.12, 0.02)
_NONE = 0.1
_FIRST_RUNS = 2  # of each end, before anything else
_MAX_SETS = 2_000  # sets of components of one size; with more sets, interactions of that size are not considered
_CONFIRMING_RUNS = 4  # of each culprit restored, at least

Verdict = Literal["culprit", "tag only", "not reproduced", "not a single component", "undecided"]


@dataclass(frozen=True, order=True)
class Point:
    """An image to run: a tag, with the old version of these components put into it."""

    tag: str
    restored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One run of a point.  ``value``: the metric, or None if the point is invalid: its overlay did not take effect."""

    point: Point
    value: float | None


@dataclass(frozen=True)
class Problem:
    """The tags and components to search, and the budget.

    ``tags``: oldest first; the first is good, the last is bad.  ``components``: the components that can be swapped
    between the two neighbouring images of the change.  ``budget``: runs at most.
    """

    tags: tuple[str, ...]
    components: tuple[str, ...] = ()
    higher_is_better: bool = True
    budget: int = 40


@dataclass(frozen=True)
class Conclusion:
    """The result.  ``step``: the last good and first bad tag.  ``together``: only restoring all culprits helps."""

    verdict: Verdict
    reason: str
    probability: float = 0.0
    step: tuple[str, str] | None = None
    culprits: tuple[str, ...] = ()
    together: bool = False
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Belief:
    """Hypotheses with their probabilities.  ``good`` (hypotheses x points): whether the point is good."""

    names: tuple[tuple[str, ...], ...]
    points: tuple[Point, ...]
    good: Bools
    probabilities: Floats

    @property
    def best(self) -> int:
        """The index of the most probable hypothesis."""
        return int(self.probabilities.argmax())

    @property
    def point_good(self) -> Floats:
        """The probability that each point is good."""
        return np.asarray(self.probabilities @ self.good)


@dataclass
class _Data:
    """The runs of a ledger, with values of which higher is better."""

    problem: Problem
    ledger: Sequence[Trial]
    values: list[float] = field(init=False)
    points: list[Point] = field(init=False)
    invalid: set[Point] = field(init=False)

    def __post_init__(self) -> None:
        sign = 1 if self.problem.higher_is_better else -1
        valid = [run for run in self.ledger if run.value is not None]
        self.values = [sign * run.value for run in valid if run.value is not None]
        self.points = [run.point for run in valid]
        self.invalid = {run.point for run in self.ledger if run.value is None}

    def count(self, point: Point) -> int:
        """Return the number of valid runs of a point."""
        return self.points.count(point)

    def mean(self, point: Point) -> float:
        """Return the mean value of a point that was run."""
        return float(np.mean([value for at, value in zip(self.points, self.values, strict=True) if at == point]))

    def believe(
        self, names: Sequence[tuple[str, ...]], points: Sequence[Point], good: Bools, prior: Sequence[float]
    ) -> Belief:
        """Weigh hypotheses, each a set of good points, by the runs of these points."""
        index = {point: column for column, point in enumerate(points)}
        used = [(index[at], value) for at, value in zip(self.points, self.values, strict=True) if at in index]
        columns = [column for column, _ in used]
        scale = self.mean(Point(self.problem.tags[0])) or max(map(abs, self.values)) or 1.0
        evidence = log_evidence([value for _, value in used], good[:, columns], scale)
        return Belief(tuple(names), tuple(points), good, posterior(np.log(np.asarray(prior)), evidence))


def advance(problem: Problem, ledger: Sequence[Trial]) -> Point | Conclusion:
    """Return the next point to run, or the conclusion; never a point beyond the budget."""
    answer = _advance(problem, _Data(problem, ledger))
    if isinstance(answer, Point) and len(ledger) >= problem.budget:
        return Conclusion("undecided", f"The budget of {problem.budget} runs is spent.")
    return answer


def _advance(problem: Problem, data: _Data) -> Point | Conclusion:
    answer = _reproduce(problem, data)
    if answer:
        return answer
    tags = find_step(problem, data)
    if tags.probabilities[tags.best] < CERTAIN:
        return _next_point(data, tags, Point(problem.tags[0]), Point(problem.tags[-1]))
    step = problem.tags[tags.best], problem.tags[tags.best + 1]
    certainty = float(tags.probabilities[tags.best])
    if not problem.components:
        return Conclusion("tag only", "No component can be swapped between the two images.", certainty, step)
    return _search_components(problem, data, step, tags)


def _reproduce(problem: Problem, data: _Data) -> Point | Conclusion | None:
    """Return the next run of an end until both ends certainly differ; None once they do."""
    good, bad = Point(problem.tags[0]), Point(problem.tags[-1])
    if broken := data.invalid & {good, bad}:
        return Conclusion("undecided", f"The image {min(broken).tag} could not be run.")
    fewest = min((bad, good), key=data.count)
    if data.count(fewest) < _FIRST_RUNS:
        return fewest
    belief = data.believe([("differ",), ("same",)], [good, bad], np.array([[True, False], [True, True]]), [0.9, 0.1])
    differ = float(belief.probabilities[0])
    if differ >= CERTAIN and data.mean(bad) < data.mean(good):
        return None
    if 1 - differ >= CERTAIN or (differ >= CERTAIN and data.count(fewest) > _FIRST_RUNS):
        return Conclusion("not reproduced", f"{bad.tag} is not worse than {good.tag} here.", max(differ, 1 - differ))
    return fewest


def find_step(problem: Problem, data: _Data) -> Belief:
    """Weigh each pair of neighbouring tags as the place of the change, from the runs of plain tags."""
    steps = len(problem.tags) - 1
    good = np.array([[column <= row for column in range(steps + 1)] for row in range(steps)])
    names = [(tag,) for tag in problem.tags[1:]]
    return data.believe(names, [Point(tag) for tag in problem.tags], good, [1 / steps] * steps)


def _search_components(problem: Problem, data: _Data, step: tuple[str, str], tags: Belief) -> Point | Conclusion:
    bad_tag = step[1]
    testable = [name for name in problem.components if Point(bad_tag, (name,)) not in data.invalid]
    suspects = tuple(name for name in problem.components if name not in testable)
    if not testable:
        reason = "No old component took effect in the new image."
        return Conclusion("tag only", reason, float(tags.probabilities[tags.best]), step, suspects=suspects)
    belief = _component_belief(data, tags, bad_tag, testable)
    best = belief.best
    certainty, culprits = float(belief.probabilities[best]), belief.names[best]
    if certainty >= CERTAIN and not culprits:
        return _search_pairs(data, step, tags, testable, suspects)
    confirmed = all(data.count(Point(bad_tag, (name,))) >= _CONFIRMING_RUNS for name in culprits)
    if certainty >= CERTAIN and confirmed:
        reason = f"Restoring {' or '.join(culprits)} makes {bad_tag} good."
        return Conclusion("culprit", reason, certainty, step, culprits, suspects=suspects)
    singles = {Point(bad_tag, (name,)) for name in testable}
    if certainty >= CERTAIN:
        return min((Point(bad_tag, (name,)) for name in culprits), key=data.count)
    return _next_point(data, belief, Point(step[0]), Point(bad_tag), singles)


def _component_belief(data: _Data, tags: Belief, bad_tag: str, testable: Sequence[str]) -> Belief:
    """Weigh which components make the bad image good when restored alone: none, one, or several."""
    names: list[tuple[str, ...]] = [()]
    prior = [_NONE]
    for size, share in enumerate(_PRIOR, 1):
        if math.comb(len(testable), size) > _MAX_SETS:
            break
        sets = list(combinations(testable, size))
        names += sets
        prior += [share / max(len(sets), 1)] * len(sets)
    singles = [Point(bad_tag, (name,)) for name in testable]
    fixed = np.tile(tags.good[tags.best], (len(names), 1))
    varied = np.array([[name in culprits for name in testable] for culprits in names]).reshape(len(names), -1)
    return data.believe(names, [*tags.points, *singles], np.concatenate([fixed, varied], axis=1), prior)


def _search_pairs(
    data: _Data, step: tuple[str, str], tags: Belief, testable: Sequence[str], suspects: tuple[str, ...]
) -> Point | Conclusion:
    """Restore all components, then, if that helps, each pair: where two changes are each enough, only both help."""
    bad_tag = step[1]
    everything = tuple(testable)
    names: list[tuple[str, ...]] = [()]
    if math.comb(len(testable), 2) <= _MAX_SETS:
        names += combinations(testable, 2)
    prior = [0.5] + [0.4 / max(len(names) - 1, 1)] * (len(names) - 1)
    if everything not in names:
        names, prior = [*names, everything], [*prior, 0.1]
    tried = [Point(bad_tag, (name,)) for name in testable]
    points = [Point(bad_tag, group) for group in names[1:]]
    usable = [point for point in points if point not in data.invalid]
    fixed = np.tile([*tags.good[tags.best], *[False] * len(tried)], (len(names), 1))
    varied = [[bool(pair) and set(pair) <= set(point.restored) for point in usable] for pair in names]
    good = np.concatenate([fixed, np.array(varied, bool).reshape(len(names), -1)], axis=1)
    belief = data.believe(names, [*tags.points, *tried, *usable], good, prior)
    certainty, culprits = float(belief.probabilities[belief.best]), belief.names[belief.best]
    if certainty < CERTAIN and usable:
        return _next_point(data, belief, Point(step[0]), Point(bad_tag), set(usable))
    if culprits and len(culprits) == 2:
        reason = f"Only restoring {' and '.join(culprits)} together makes {bad_tag} good."
        return Conclusion("culprit", reason, certainty, step, culprits, together=True, suspects=suspects)
    reason = "No swappable component makes it good alone, nor do two together."
    return Conclusion("not a single component", reason, certainty, step, suspects=suspects)


def _next_point(data: _Data, belief: Belief, good: Point, bad: Point, candidates: set[Point] | None = None) -> Point:
    """Return the point whose state is least certain, or an end if that state itself is not known well enough.

    A point that looks good is run at most as often as the bad state was: only that shows how often a bad image looks
    fine.  Likewise for a point that looks bad.
    """
    chances = dict(zip(belief.points, map(float, belief.point_good), strict=True))
    usable = [point for point in belief.points if point not in data.invalid]
    if candidates is not None:
        usable = [point for point in usable if point in candidates]
    point = min(usable, key=lambda point: (abs(chances[point] - 0.5), data.count(point)))
    looks_good = chances[point] > 0.5
    opposite = 0
    for known, is_good in zip(belief.points, belief.good[belief.best], strict=True):
        if known != point and bool(is_good) != looks_good:
            opposite += data.count(known)
    if looks_good and data.count(point) >= opposite:
        return bad
    if not looks_good and data.count(point) > _FIRST_RUNS + opposite:
        return good
    return point
