"""Tests that trained alike: losses that agreed before a common change must agree after it.

A change of the model or its data moves the losses of most tests, which is one decision.  Many tests train the same
model in another way, so their losses are equal before and after; a test that is no longer equal to any of them has a
reason of its own.  (In the history of Megatron-LM no common change separated such tests.)
"""

import math
from collections.abc import Iterable, Mapping

from runbook_lib.golden.form import Judgement, ReviewReason
from runbook_lib.golden.losses import LossChange, loss_change
from runbook_lib.golden.values import Steps

#: The share of the limits within which two losses agreed before, and the least steps that are compared.
_AGREED, _LEAST_STEPS = 0.5, 5


def separated(judgements: Iterable[Judgement]) -> Mapping[str, ReviewReason]:
    """Return by file the reason of each test that no longer agrees with any test with which it agreed."""
    curves: dict[tuple[str, str], tuple[Steps, Steps]] = {}
    for judgement in judgements:
        for metric, pair in judgement.curves.items():
            curves[judgement.file, metric] = pair
    reasons = {}
    for (file, metric), (old, new) in curves.items():
        nearest: tuple[LossChange, str] | None = None
        for (twin, name), (twin_old, twin_new) in curves.items():
            if twin == file or name != metric or not _agreed(twin_old, old):
                continue
            change = loss_change(twin_new, new)
            if change and (nearest is None or change.excess < nearest[0].excess):
                nearest = change, twin
                if change.excess <= 1:
                    break
        if nearest and nearest[0].excess > 1:
            change, twin = nearest
            sentence = f"it agreed with {twin} before, and differs by {change.size:+.2%} at step {change.step}"
            reasons[file] = ReviewReason(metric, sentence, change.excess)
    return reasons


def _agreed(old: Steps, twin_old: Steps) -> bool:
    shared = old.keys() & twin_old.keys()
    if len(shared) < _LEAST_STEPS:
        return False
    last = max(shared)  # where losses that differ are most likely to
    if not math.isclose(old[last], twin_old[last], rel_tol=0.01):
        return False
    change = loss_change(old, twin_old)
    return change is not None and change.excess <= _AGREED
