"""The verdict on a refresh of golden values: drift of the image, or a change that a person must review.

A file's form is judged first (``form``).  A change of time or memory is split into the shift of its platform, which is
one decision for all files (``shifts``), and the test's deviation, which is held back if it is improbable for that test
(``noise``): the number of such questions is bounded by a false-discovery rate.  Losses have limits that past images
kept (``losses``).  A value is *ambiguous* if another run would decide, because the test moved as far before.  CI's own
rules are reported beside the verdict; they determine what CI does.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from runbook_lib.decisions import DANGERS, DIVERGENCE, LOST, SLOWER
from runbook_lib.golden.common_losses import split_common
from runbook_lib.golden.form import STOPPED, Judgement, ReviewReason, Verdict, examine
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.noise import NoiseModel, learn, observed_tail, probability
from runbook_lib.golden.shifts import SHIFT_LIMIT, Deviation, Group, baseline_groups, common_reasons, split
from runbook_lib.recipes.file_names import is_baseline

#: The accepted number of false questions: the largest of a share of all questions, one, or one per a fixed number of
#: files.
FALSE_DISCOVERIES, FILES_PER_FALSE_QUESTION = 0.1, 40
_LEAST_DEVIATIONS = 2.75
NO_HISTORY = GoldenHistory(missing="no history was read")
#: By file and metric: the costs, or the excess of a loss, in earlier attempts of a run.
Attempts = Mapping[tuple[str, str], Sequence[float]]
_NO_ATTEMPTS: Attempts = {}
#: Attempts that differ by more standard deviations than this have two modes.
_TWO_MODES = 4.0
#: The smallest relevant ratios, by metric.
_LEAST_RATIO = {"num-zeros": 2.0, "mem": 1.15, "": 1.25}
#: A test that is hardly worse than before is not reported, even if its platform improved.
_LEAST_RISE = math.log1p(SHIFT_LIMIT)
#: From this many standard deviations on, a smaller ratio of times is not noise either.
_CERTAIN, _CERTAIN_RATIO = 5.0, 1.15


@dataclass(frozen=True)
class Verdicts:
    """The judgements on a set of files, and the decisions on groups of files.

    ``deviations`` are by (file, metric).  ``threshold`` is the number of standard deviations from which one is held
    back.
    """

    judgements: tuple[Judgement, ...] = ()
    groups: tuple[Group, ...] = ()
    deviations: Mapping[tuple[str, str], Deviation] = field(default_factory=dict)
    threshold: float = _LEAST_DEVIATIONS
    missing: str = ""

    @property
    def waiting(self) -> dict[str, tuple[Group, ...]]:
        """The groups that nobody has accepted, by file; their files are not written."""
        groups: dict[str, tuple[Group, ...]] = {}
        for group in self.groups:
            if not group.accepted:
                for file in group.files:
                    groups[file] = (*groups.get(file, ()), group)
        return groups

    def danger(self, group: Group) -> str:
        """Return the danger of accepting a group, from its files; empty if there is none."""
        if group.ratio is None:
            return LOST
        dangers = {judgement.danger for judgement in self.judgements if judgement.file in group.files}
        if "loss" in group.metric:
            return DIVERGENCE if DIVERGENCE in dangers else ""
        return SLOWER if group.ratio > 1 and not group.metric.startswith("mem-") else ""

    def exceptions(self, group: Group) -> tuple[str, ...]:
        """Return the files of a group that are decided by themselves, with the danger of each."""
        files = (judgement for judgement in self.judgements if judgement.file in group.files)
        stopped = (judgement for judgement in files if judgement.verdict in STOPPED)
        return tuple(f"{file.file} ({DANGERS.get(file.danger) or file.verdict})" for file in stopped)

    @property
    def accepted_dangers(self) -> tuple[str, ...]:
        """A sentence for each danger that a person accepted, sorted by name."""
        accepted = [(file.file, file.danger, file.accepted) for file in self.judgements if file.accepted]
        accepted += [(group.id, self.danger(group), group.accepted) for group in self.groups if group.accepted]
        return tuple(f"{name}, a {DANGERS[danger]} ({reason})" for name, danger, reason in accepted if danger)

    @property
    def open(self) -> bool:
        """Return True if a person, or another run, must decide something."""
        return bool(self.waiting) or any(judgement.verdict in STOPPED for judgement in self.judgements)

    @property
    def error_rates(self) -> dict[str, float | None]:
        """The expected number of questions from noise alone, and the share of tests ×1.5 slower that are noticed.

        Both are computed from the share of past changes that were as large, whose tails are heavier than those of the
        distribution that decides.
        """
        false, noticed = 0.0, []
        for (_, metric), item in self.deviations.items():
            limit = least_deviation(metric, item.scale, self.threshold)
            false += observed_tail(limit / item.scale, metric)
            if metric == "iteration-time":
                noticed.append(observed_tail((limit - math.log(1.5)) / item.scale, metric))
        share = min(fmean(noticed), 0.99) if noticed else None
        return {"false questions": false, "threshold": self.threshold, "noticed of ×1.5 slower": share}


def judge(
    file: str, old: str | bytes | None, new: str | bytes | None, config: str | None = None, *, lint: bool = False
) -> Judgement:
    """Judge one file alone and without a history; the parameters are those of ``examine``."""
    return judge_all([examine(file, old, new, config, lint=lint)]).judgements[0]


def judge_all(
    examined: Iterable[Judgement], history: GoldenHistory = NO_HISTORY, attempts: Attempts = _NO_ATTEMPTS
) -> Verdicts:
    """Judge the values of files whose form was examined; the history is that of the old revision.

    ``attempts`` are the values of earlier attempts of the same run: the median of all attempts is judged, or the worst
    if they have two modes.
    """
    judgements = tuple(_pooled(judgement, attempts) for judgement in examined)
    differing = [judgement for judgement in judgements if judgement.verdict != "unchanged"]
    renamed = {judgement.renamed: judgement.file for judgement in differing if judgement.renamed}
    model = learn(history, renamed)
    of_baselines = [judgement for judgement in differing if is_baseline(judgement.file)]
    differing = [judgement for judgement in differing if not is_baseline(judgement.file)]
    groups, deviations = split(differing, model)
    threshold = bound_questions(deviations)
    reasons = {judgement.file: list(judgement.reasons) for judgement in of_baselines}
    for judgement in differing:
        reasons[judgement.file] = [*judgement.reasons, *_losses(judgement, model, attempts)]
        for metric in judgement.costs:
            deviation = deviations[judgement.file, metric]
            earlier = attempts.get((judgement.file, metric), ())
            if _have_two_modes(values := [judgement.measured[metric], *earlier], deviation):
                deviation = replace(deviation, residual=max(values) - deviation.shift)
            limit = least_deviation(metric, deviation.scale, threshold)
            if deviation.residual >= limit and deviation.residual + deviation.shift > _LEAST_RISE:
                reason = _deviation(judgement.file, metric, deviation, model)
                reasons[judgement.file].append(_repeated(reason, values, deviation))
    for group in common_reasons(reasons, differing):
        if group.metric == "lm loss":
            is_common, own = split_common([judgement for judgement in differing if judgement.file in group.files])
            if not is_common:
                continue
            for file, reason in own.items():
                reasons[file].append(reason)
        groups.append(group)
    groups += baseline_groups(of_baselines)
    decided = []
    for judgement in judgements:
        if judgement.verdict != "unchanged":
            own_groups = [group for group in groups if judgement.file in group.files]
            judgement = _decide(judgement, reasons[judgement.file], own_groups)
        decided.append(judgement)
    return Verdicts(tuple(decided), tuple(groups), deviations, threshold, history.missing)


def bound_questions(deviations: Mapping[tuple[str, str], Deviation]) -> float:
    """Return the lowest threshold, in standard deviations, with bounded false discoveries."""
    allowed = max(1.0, len({file for file, _ in deviations}) / FILES_PER_FALSE_QUESTION)
    threshold = _LEAST_DEVIATIONS
    while True:  # terminates: noise beyond _CERTAIN is rarer than one in FILES_PER_FALSE_QUESTION
        noise, questions = 0.0, 0
        for (_, metric), deviation in deviations.items():
            limit = least_deviation(metric, deviation.scale, threshold)
            noise += probability(limit / deviation.scale)
            questions += deviation.residual >= limit
        if noise <= max(allowed, FALSE_DISCOVERIES * questions):
            return threshold
        threshold += 0.25


def least_deviation(metric: str, scale: float, threshold: float) -> float:
    """Return the smallest deviation that is held back: an improbable one or, for times, a certain one."""
    limit = max(threshold * scale, least_change(metric))
    if metric == "iteration-time":
        limit = min(limit, max(_CERTAIN * scale, math.log(_CERTAIN_RATIO)))
    return limit


def _decide(judgement: Judgement, reasons: Sequence[ReviewReason], groups: Sequence[Group]) -> Judgement:
    kinds = {group.family if group.ratio is None else "loss" for group in groups if group.metric in ("form", "lm loss")}
    own = sorted((reason for reason in reasons if reason.kind not in kinds), key=lambda reason: -reason.weight)
    verdict: Verdict = judgement.verdict
    if verdict == "refused":  # because of its first reason
        own.sort(key=lambda reason: reason not in judgement.reasons[:1])
    else:
        verdict = "refresh"
        if own:
            verdict = "ambiguous" if all(reason.ambiguous for reason in own) else "held back"
    return replace(judgement, verdict=verdict, reasons=tuple(own), group=groups[0].id if groups else "")


def _losses(judgement: Judgement, model: NoiseModel, attempts: Attempts) -> Iterable[ReviewReason]:
    marks = model.marks.get(judgement.file, ())
    for metric, loss in judgement.losses.items():
        earlier = attempts.get((judgement.file, metric), ())
        beyond = sum(excess > 1 for excess in (*earlier, loss.excess))
        if not beyond:
            continue
        past = model.losses.get((judgement.file, metric), ())
        similar = sum(excess >= loss.excess for excess in past)
        sentence = f"{loss.size:+.2%} at step {loss.step}, {loss.excess:.1f} times the limit kept by past images"
        if judgement.mark in marks[:-1]:
            sentence += "; it equals an earlier version: flaky, not drift"
        elif past:
            sentence += f"; it moved as far in {similar} of {len(past)} earlier changes"
        ambiguous = bool(similar) or judgement.mark in marks[:-1]
        if earlier:
            sentence += f"; beyond it in {beyond} of {len(earlier) + 1} attempts"
            ambiguous = False
            if beyond <= len(earlier):
                sentence += ": flaky, not drift"
        yield ReviewReason(metric, sentence, loss.excess, "loss", ambiguous)


def without_times(judgement: Judgement) -> Judgement:
    """Return a judgement without times, whose values come from different clusters and are not comparable."""
    costs = {}
    for metric, cost in judgement.costs.items():
        if "tim" not in metric and metric != "throughput":
            costs[metric] = cost
    note = "measured on a different cluster than the old values, so times are not compared"
    return replace(judgement, costs=costs, notes=(*judgement.notes, note))


def _pooled(judgement: Judgement, attempts: Attempts) -> Judgement:
    """Return a judgement whose costs are the medians of all attempts."""
    costs = {}
    for metric, cost in judgement.costs.items():
        costs[metric] = median([cost, *attempts.get((judgement.file, metric), ())])
    return replace(judgement, costs=costs, measured=judgement.costs)


def _have_two_modes(values: Sequence[float], deviation: Deviation) -> bool:
    return max(values) - min(values) > _TWO_MODES * deviation.scale


def _repeated(reason: ReviewReason, values: Sequence[float], deviation: Deviation) -> ReviewReason:
    """Return a reason updated with all attempts: they agree, or have two modes, whichever the last one shows."""
    if len(values) == 1:
        return reason
    sentence = f"{reason.sentence}; the same in {len(values)} attempts"
    if _have_two_modes(values, deviation):
        sentence = f"{reason.sentence}; {len(values)} attempts have two modes: flaky, not drift"
    return replace(reason, sentence=sentence, ambiguous=False)


def least_change(metric: str) -> float:
    """Return the logarithm of the smallest ratio that a person must review, regardless of the test's noise."""
    kind = "mem" if metric.startswith("mem-") else metric
    return math.log(_LEAST_RATIO.get(kind, _LEAST_RATIO[""]))


def _deviation(file: str, metric: str, deviation: Deviation, model: NoiseModel) -> ReviewReason:
    similar, count = model.similar(file, metric, deviation.residual)
    low, high = (_ratio(deviation.residual + sign * 2 * deviation.scale) for sign in (-1, 1))
    sentence = f"×{_ratio(deviation.residual + deviation.shift):.2f}"
    interval = f"×{low:.2f} to ×{high:.2f}, 95 % interval"
    if deviation.shift:
        interval = f"its platform ×{_ratio(deviation.shift):.2f}; apart from that {interval}"
    sentence += f" ({interval}); "
    sentence += f"it moved as far in {similar} of {count} earlier changes" if count else "no earlier change is known"
    returns = model.returns(file, metric, deviation.residual)
    if returns:
        sentence += ", and this is an earlier level: flaky, not drift"
    weight, kind = deviation.residual / least_change(metric), "loss" if metric == "num-zeros" else ""
    return ReviewReason(metric, sentence, weight, kind, bool(similar) or returns)


def _ratio(change: float) -> float:
    return math.exp(max(-700.0, min(700.0, change)))
