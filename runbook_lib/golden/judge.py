"""The verdict on a refresh of golden values: drift of the image, or a change that a person must review.

A file's form is judged first (``form``).  A change of time or memory is split into the shift of its platform, which is
one decision for all files, and the test's deviation, which is held back if it is improbable for that test (``groups``).
Losses have limits that past images kept (``measure``).  A value is *ambiguous* if another attempt of the run decides,
because the test moved as far before.  CI's own rules are reported beside the verdict; they determine what CI does.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from runbook_lib.decisions import DANGERS, DIVERGENCE, LOST, SLOWER, Decision
from runbook_lib.golden.form import STOPPED, Judgement, ReviewReason, Verdict
from runbook_lib.golden.groups import (
    LOSS,
    SHIFT_LIMIT,
    Deviation,
    Group,
    NoiseModel,
    baseline_groups,
    common_reasons,
    learn,
    split,
)  # fmt: skip
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.text.recipes.file_names import is_baseline

#: The number of standard deviations from which a deviation is held back.
_LEAST_DEVIATIONS = 2.75
NO_HISTORY = GoldenHistory(missing="no history was read")
#: The smallest relevant ratios, by metric.
_LEAST_RATIO = {"num-zeros": 2.0, "mem": 1.15, "": 1.25}
#: A test that is hardly worse than before is not reported, even if its platform improved.
_LEAST_RISE = math.log1p(SHIFT_LIMIT)
#: From this many standard deviations on, a smaller ratio of times is not noise either.
_CERTAIN, _CERTAIN_RATIO = 5.0, 1.15


@dataclass(frozen=True)
class Verdicts:
    """The judgements on a set of files, and the decisions on groups of files.

    ``deviations`` are by (file, metric).  ``missing``: why no history was used.  ``decided`` are a person's decisions
    that were used, and ``unconfirmed`` the dangers, by name, of files and groups whose decisions do not confirm them.
    """

    judgements: tuple[Judgement, ...] = ()
    groups: tuple[Group, ...] = ()
    deviations: Mapping[tuple[str, str], Deviation] = field(default_factory=dict)
    missing: str = ""
    decided: tuple[Decision, ...] = ()
    unconfirmed: Mapping[str, str] = field(default_factory=dict)

    @property
    def waiting(self) -> frozenset[str]:
        """The files of groups that nobody has accepted; they are not written."""
        return frozenset(chain.from_iterable(group.files for group in self.groups if not group.accepted))

    @property
    def stopped(self) -> tuple[Judgement, ...]:
        """The files that a person, or another run, must decide."""
        return tuple(file for file in self.judgements if file.verdict in STOPPED)

    @property
    def ambiguous(self) -> frozenset[str]:
        """The files that another attempt of the run decides."""
        return frozenset(file.file for file in self.judgements if file.verdict == "ambiguous")

    @property
    def blocked(self) -> frozenset[str]:
        """The files that wait for a person or another run, by themselves or with their group."""
        return frozenset(file.file for file in self.stopped) | self.waiting

    def danger(self, group: Group) -> str:
        """Return the danger of accepting a group, from its files; empty if there is none."""
        if group.ratio is None:
            return LOST
        if LOSS in group.metric:
            diverges = (file.danger == DIVERGENCE for file in self.judgements if file.file in group.files)
            return DIVERGENCE if any(diverges) else ""
        return SLOWER if group.ratio > 1 and not group.metric.startswith("mem-") else ""

    def exceptions(self, group: Group) -> tuple[str, ...]:
        """Return the files of a group that are decided by themselves, with the danger of each."""
        files = (file for file in self.stopped if file.file in group.files)
        return tuple(f"{file.file} ({DANGERS.get(file.danger) or file.verdict})" for file in files)

    @property
    def accepted_dangers(self) -> tuple[str, ...]:
        """A sentence for each danger that a person accepted, sorted by name."""
        accepted = [(file.file, file.danger, file.accepted) for file in self.judgements if file.accepted]
        accepted += [(group.id, self.danger(group), group.accepted) for group in self.groups if group.accepted]
        return tuple(f"{name}, a {DANGERS[danger]} ({reason})" for name, danger, reason in accepted if danger)


def judge_all(examined: Iterable[Judgement], history: GoldenHistory = NO_HISTORY, *, attempt: int = 1) -> Verdicts:
    """Judge the values of files whose form was examined; the history is that of the old revision.

    ``attempt`` is that of the run: the first leaves what is ambiguous to another, which decides.
    """
    judgements = tuple(examined)
    differing = [judgement for judgement in judgements if judgement.verdict != "unchanged"]
    model = learn(history)
    golden = [judgement for judgement in differing if not is_baseline(judgement.file)]
    groups, deviations = split(golden, model)
    reasons = {judgement.file: list(judgement.reasons) for judgement in differing}
    for judgement in golden:
        reasons[judgement.file] += _losses(judgement, model)
        reasons[judgement.file] += _deviations(judgement, deviations, model)
    groups += common_reasons(reasons, golden)
    groups += baseline_groups(judgement for judgement in differing if is_baseline(judgement.file))
    decided = []
    for judgement in judgements:
        if judgement.verdict != "unchanged":
            own_groups = [group for group in groups if judgement.file in group.files]
            judgement = _decide(judgement, reasons[judgement.file], own_groups, is_first=attempt == 1)
        decided.append(judgement)
    return Verdicts(tuple(decided), tuple(groups), deviations, history.missing)


def least_deviation(metric: str, scale: float) -> float:
    """Return the smallest deviation that is held back: an improbable one or, for times, a certain one."""
    limit = max(_LEAST_DEVIATIONS * scale, _least_change(metric))
    if metric == "iteration-time":
        limit = min(limit, max(_CERTAIN * scale, math.log(_CERTAIN_RATIO)))
    return limit


def _decide(
    judgement: Judgement, reasons: Sequence[ReviewReason], groups: Sequence[Group], *, is_first: bool
) -> Judgement:
    kinds = {group.family if group.ratio is None else LOSS for group in groups if group.metric in ("form", "lm loss")}
    own = sorted((reason for reason in reasons if reason.kind not in kinds), key=lambda reason: -reason.weight)
    verdict: Verdict = judgement.verdict
    if verdict == "refused":  # because of its first reason
        own.sort(key=lambda reason: reason not in judgement.reasons[:1])
    elif own:
        verdict = "ambiguous" if is_first and all(reason.ambiguous for reason in own) else "held back"
    else:
        verdict = "refresh"
    return replace(judgement, verdict=verdict, reasons=tuple(own), group=groups[0].id if groups else "")


def _losses(judgement: Judgement, model: NoiseModel) -> Iterable[ReviewReason]:
    for metric, loss in judgement.losses.items():
        if loss.excess <= 1:
            continue
        past = model.losses.get((judgement.file, metric), ())
        similar = sum(excess >= loss.excess for excess in past)
        sentence = f"{loss.size:+.2%} at step {loss.step}, {loss.excess:.1f} times the limit kept by past images"
        if loss.leaves:
            sentence += f"; it {'diverges from' if loss.diverges else 'leaves its band at'} step {loss.leaves}"
        if past:
            sentence += f"; it moved as far in {similar} of {len(past)} earlier changes"
        yield ReviewReason(metric, sentence, loss.excess, LOSS, bool(similar))


def _deviations(
    judgement: Judgement, deviations: Mapping[tuple[str, str], Deviation], model: NoiseModel
) -> Iterable[ReviewReason]:
    """Yield a reason for each time, memory or number of zeros that deviates too much."""
    for metric in judgement.costs:
        deviation = deviations[judgement.file, metric]
        if deviation.residual < max(least_deviation(metric, deviation.scale), _LEAST_RISE - deviation.shift):
            continue
        similar, count = model.similar(judgement.file, metric, deviation.residual)
        sentence = f"×{_ratio(deviation.residual + deviation.shift):.2f}"
        if deviation.shift:
            sentence += f", its platform ×{_ratio(deviation.shift):.2f}"
        sentence += f"; it moved as far in {similar} of {count} earlier changes" if count else "; without a history"
        weight, kind = deviation.residual / _least_change(metric), LOSS if metric == "num-zeros" else ""
        yield ReviewReason(metric, sentence, weight, kind, bool(similar))


def _least_change(metric: str) -> float:
    """Return the logarithm of the smallest ratio that a person must review, regardless of the test's noise."""
    kind = "mem" if metric.startswith("mem-") else metric
    return math.log(_LEAST_RATIO.get(kind, _LEAST_RATIO[""]))


def _ratio(change: float) -> float:
    return math.exp(max(-700.0, min(700.0, change)))
