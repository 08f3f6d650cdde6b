"""Losses that changed alike: detection of a common change, and of the tests that it does not explain.

A change to the model or its data moves the losses of most tests.  That is one decision only if it moves them alike: by
the same factors at the same steps.  If nearly all changed alike, a test that did not is held back separately; so is a
test that no longer agrees with tests that used to train exactly alike.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from runbook_lib.golden.form import Judgement, ReviewReason
from runbook_lib.golden.measure import LossChange, loss_change

#: The fraction of the limits within which two losses agreed before, and the minimum number of compared steps.
_AGREED, _LEAST_STEPS = 0.5, 5
#: The share of tests that must change alike for a change to be common, and for it to explain all others.
_COMMON, _EXPLAINS_ALL = 0.25, 0.8
#: Factors that differ by more than this at the last step are not alike, regardless of earlier steps.
_FAR_APART = 0.02
_NONE = LossChange(0.0, 0, 0.0, 0.0)


def split_common(judgements: Sequence[Judgement]) -> tuple[bool, dict[str, ReviewReason]]:
    """Return True if the losses of these tests changed alike, and the reasons, by file, for tests that did not."""
    unlike = []
    for judgement in judgements:
        folder = PurePath(judgement.file).parent  # the second run of a test says nothing about other tests
        elsewhere = (other for other in judgements if PurePath(other.file).parent != folder)
        if not any(_is_alike(judgement, other) for other in elsewhere):
            unlike.append(judgement)
    alike = len(judgements) - len(unlike)
    reasons = {}
    for judgement in unlike:
        others = [other for other in judgements if other is not judgement]
        twins = [other for other in others if _agreed(judgement, other)]
        if twins or alike >= _EXPLAINS_ALL * len(others):
            reason = _reason(judgement, twins or others, trained_alike=bool(twins))
            if reason:
                reasons[judgement.file] = reason
    return alike >= _COMMON * len(judgements), reasons


def _reason(judgement: Judgement, others: Sequence[Judgement], *, trained_alike: bool) -> ReviewReason | None:
    """Return how a test differs from the nearest other test; None if it does not, or nothing can be compared."""
    nearest: tuple[float, str, str, LossChange] | None = None
    for other in others:
        for metric, change in _differences(judgement, other):
            if nearest is None or change.excess < nearest[0]:
                nearest = change.excess, other.file, metric, change
    if nearest is None or nearest[0] <= 1:
        return None
    excess, file, metric, change = nearest
    before = f"it agreed with {file} before" if trained_alike else f"the others changed alike, as {file} did"
    sentence = f"{before}; it differs by {change.size:+.2%} at step {change.step}"
    return ReviewReason(metric, sentence, excess)


def _is_alike(judgement: Judgement, other: Judgement) -> bool:
    for metric, loss in judgement.losses.items():
        theirs = other.losses.get(metric, _NONE)
        last = max(loss.old.keys() & loss.new.keys() & theirs.old.keys() & theirs.new.keys(), default=None)
        if last is not None:  # where a difference is most likely
            ours = loss.new[last] * theirs.old[last]
            if not math.isclose(ours, loss.old[last] * theirs.new[last], rel_tol=_FAR_APART):
                return False
    excesses = [change.excess for _, change in _differences(judgement, other)]
    return bool(excesses) and max(excesses) <= 1


def _differences(judgement: Judgement, other: Judgement) -> Iterator[tuple[str, LossChange]]:
    """Yield for each metric the difference of the new loss from the old one scaled by the other test's factors."""
    for metric, loss in judgement.losses.items():
        theirs = other.losses.get(metric, _NONE)
        expected = {}
        for step in loss.old.keys() & theirs.old.keys() & theirs.new.keys():
            if theirs.old[step]:
                expected[step] = loss.old[step] * theirs.new[step] / theirs.old[step]
        if len(expected.keys() & loss.new.keys()) >= _LEAST_STEPS and (change := loss_change(expected, loss.new)):
            yield metric, change


def _agreed(judgement: Judgement, other: Judgement) -> bool:
    for metric, loss in judgement.losses.items():
        theirs = other.losses.get(metric, _NONE).old
        shared = loss.old.keys() & theirs.keys()
        if len(shared) < _LEAST_STEPS or not math.isclose(loss.old[max(shared)], theirs[max(shared)], rel_tol=0.01):
            return False
        change = loss_change(loss.old, theirs)
        if change is None or change.excess > _AGREED:
            return False
    return bool(judgement.losses)
