"""The verdict on a refresh of golden values: drift of the image, or a change that a person must review.

A file's form is judged first (``form``).  A change of time or memory is split into the shift of its platform, which is
one decision for all files, and the test's deviation, which is held back if it is improbable for that test (``groups``).
Losses have limits that past images kept (``measure``).  A value is *ambiguous* if another attempt of the run decides,
because the test moved as far before.  CI's own rules are reported beside the verdict; they determine what CI does.

The files of a bump are judged once: what the branch would have with the measured values, against what it diverged from.
So a file that moves within tolerance several times is held back once all of its drift is not.  A person may accept what
is held back, by a decision on exactly these values.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from runbook_lib.decisions import DANGERS, DIVERGENCE, LOST, SLOWER, Decision, Decisions, Seen, digest
from runbook_lib.errors import Refused
from runbook_lib.golden.form import examine
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
from runbook_lib.golden.measure import STOPPED, Judgement, ReviewReason, Verdict
from runbook_lib.text.edits import Edit
from runbook_lib.text.lists import did_you_mean
from runbook_lib.text.recipes.file_names import config_path, has_values, is_baseline, path_of

#: The number of standard deviations from which a deviation is held back.
_LEAST_DEVIATIONS = 2.75
NO_HISTORY = GoldenHistory(missing="no history was read")
#: The verdicts that a person may overrule.
_ACCEPTABLE = ("held back", "ambiguous")
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


@dataclass(frozen=True)
class GoldenTable:
    """Golden files by name: at the commit where the branch diverged (None: not there), on the branch, and measured.

    ``base`` has every file that the run measured or the branch has changed, and ``branch`` the configuration of each
    test too.  ``lint``: the repository's lint refuses every NaN.
    """

    base: Mapping[str, str | None]
    branch: Mapping[str, str | None]
    measured: Mapping[str, str]
    lint: bool

    @property
    def current(self) -> Mapping[str, str | None]:
        """The files of the branch with the measured values."""
        return {**self.branch, **self.measured}

    def digest(self, file: str) -> str:
        """Return the digest of a file's old and new values, to which a decision is bound."""
        return digest(self.base.get(file), self.current.get(file))

    def judge(self, history: GoldenHistory = NO_HISTORY, attempt: int = 1) -> Verdicts:
        """Judge every file of the table."""
        texts = self.current
        examined = (
            examine(name, before, texts.get(name), texts.get(config_path(name)), lint=self.lint)
            for name, before in self.base.items()
        )
        return judge_all(examined, history, attempt=attempt)

    def edits(self, verdicts: Verdicts) -> tuple[Edit, ...]:
        """Return the measured values that are written: neither held back nor waiting for a decision on a group.

        Files whose values nobody has changed are not written either.
        """
        unwritten = set(verdicts.blocked)
        for file in verdicts.judgements:
            if file.verdict == "unchanged" and self.branch[file.file] == self.base[file.file]:
                unwritten.add(file.file)
        return tuple(
            Edit(path_of(name), self.branch[name], text)
            for name, text in self.measured.items()
            if text != self.branch[name] and name not in unwritten
        )


def held_back(verdicts: Verdicts, table: GoldenTable) -> Iterator[tuple[str, str, str]]:
    """Yield each group and file that a person may accept: its name, its danger, and the digest of its values."""
    for group in verdicts.groups:
        if not group.accepted:
            yield group.id, verdicts.danger(group), group.digest
    for file in verdicts.judgements:
        if file.verdict in _ACCEPTABLE:
            yield file.file, file.danger, table.digest(file.file)


def decide(verdicts: Verdicts, table: GoldenTable, decisions: Decisions, run: int = 0, attempt: int = 0) -> Verdicts:
    """Apply a person's decisions to what is held back."""
    used: dict[str, Decision] = {}
    unconfirmed = {}
    for name, danger, values in held_back(verdicts, table):
        decision = decisions.decided("accept", name, Seen(values, run, attempt))
        if decision and danger not in ("", decision.confirm):
            unconfirmed[name] = danger
        elif decision:
            used[name] = decision
    judgements, groups = list[Judgement](), list[Group]()
    for file in verdicts.judgements:
        decision = used.get(file.file)
        judgements.append(replace(file, verdict="refresh", accepted=decision.reason) if decision else file)
    for group in verdicts.groups:
        decision = used.get(group.id)
        groups.append(replace(group, accepted=decision.reason) if decision else group)
    return Verdicts(
        tuple(judgements), tuple(groups), verdicts.deviations, verdicts.missing, tuple(used.values()), unconfirmed
    )


def require_met(decisions: Decisions, verdicts: Verdicts) -> None:
    """Raise Refused for an entry written by hand that names a refused file, or a group that is not held back."""
    groups = [group.id for group in verdicts.groups]
    refused = {file.file: file.sentence for file in verdicts.judgements if file.verdict == "refused"}
    for entry in decisions.of("accept"):
        if entry.seen is None and entry.subject in refused:
            raise Refused(f"{entry.subject} cannot be accepted: {refused[entry.subject]}.")
        if entry.seen is None and not entry.subject.endswith(".json") and entry.subject not in groups:
            hint = f"Held back: {', '.join(groups)}." if groups else "No group is held back."
            raise Refused(f"Line {entry.line} of {decisions.file} accepts {entry.subject}, which is no group. {hint}")


def require_known(decisions: Decisions, known: Collection[str]) -> None:
    """Raise Refused for an entry written by hand that names no file in the folder of a test with golden files."""
    tests = {name.rpartition("/")[0] for name in known}
    for entry in decisions.of("accept"):
        if entry.seen is not None or not entry.subject.endswith(".json"):
            continue  # groups are known only from the values of a run
        if entry.subject.rpartition("/")[0] not in tests or not has_values(path_of(entry.subject)):
            place = f"Line {entry.line} of {decisions.file} accepts {entry.subject!r}"
            hint = did_you_mean(entry.subject, known)
            raise Refused(f"{place}, which is not a golden file of a test{hint}. Nothing was changed.")
