"""What a person accepts: these values of a file or a group, with its danger confirmed."""

from dataclasses import replace

import pytest

from runbook_lib.decisions import Decision, Decisions, Seen
from runbook_lib.errors import Refused
from runbook_lib.golden import judge
from runbook_lib.golden.groups import Group
from runbook_lib.golden.judge import GoldenTable, Verdicts
from runbook_lib.golden.measure import Judgement, LossChange, ReviewReason
from runbook_lib.text.recipes.file_names import baseline_of

HELD, REFUSED, FINE = (f"moe/{name}/golden_values_dev_dgx_h100.json" for name in "abc")
VERDICTS = Verdicts(
    (
        Judgement(HELD, "held back", (ReviewReason("iteration-time", "worse"),)),
        Judgement(REFUSED, "refused", (ReviewReason("", "NaN"),)),
        Judgement(FINE, "refresh"),
    ),
    (Group("dgx_h100", "", "iteration-time", 1.48, (HELD,), 36, 36),),
)
GROUP = VERDICTS.groups[0]
TABLE = GoldenTable({}, {}, {}, lint=False)


def by_hand(*subjects: str, seen: Seen | None = None) -> Decisions:
    entries = (Decision("accept", subject, "right", "slower", seen=seen, line=3) for subject in subjects)
    return Decisions(tuple(entries), "d.yaml")


def test_only_what_is_held_back_is_accepted() -> None:
    assert [name for name, _, _ in judge.held_back(VERDICTS, TABLE)] == [GROUP.id, HELD]
    accepted = judge.decide(VERDICTS, TABLE, by_hand(HELD, REFUSED, FINE, GROUP.id))
    assert [(file.verdict, file.accepted) for file in accepted.judgements] == [
        ("refresh", "right"), ("refused", ""), ("refresh", ""),
    ]  # fmt: skip
    assert [group.accepted for group in accepted.groups] == ["right"]
    assert ([each.subject for each in accepted.decided], accepted.unconfirmed) == ([GROUP.id, HELD], {})
    assert list(judge.held_back(accepted, TABLE)) == []


def test_the_dangers_of_groups() -> None:
    diverging = replace(
        VERDICTS.judgements[0],
        losses={"lm loss": LossChange(3.0, 5, 0.1, limits={5: 0.01}, leaves=5, diverges=True)},
    )
    verdicts = replace(VERDICTS, judgements=(diverging,))
    for metric, ratio, danger in (
        ("iteration-time", 1.48, "slower"), ("iteration-time", 0.7, ""), ("mem-max-allocated-bytes", 1.3, ""),
        ("form", None, "lost"), ("lm loss", 1.1, "divergence"),
    ):  # fmt: skip
        assert verdicts.danger(replace(GROUP, metric=metric, ratio=ratio)) == danger


def test_a_decision_on_a_group_holds_up_to_its_shift() -> None:
    for metric, now, same in (("iteration-time", 1.49, True), ("iteration-time", 1.7, False), ("lm loss", 1.5, False)):
        seen, group = replace(GROUP, metric=metric), replace(GROUP, metric=metric, ratio=now)
        assert (seen.digest == replace(group, files=(*GROUP.files, FINE)).digest) is same


def test_an_entry_by_hand_that_can_accept_nothing_is_refused() -> None:
    for subject, says in ((REFUSED, "cannot be accepted: NaN"), ("dgx_a100/iteration-time", f"Held back: {GROUP.id}")):
        with pytest.raises(Refused, match=says):
            judge.require_met(by_hand(subject), VERDICTS)
        judge.require_met(by_hand(subject, seen=Seen("other values")), VERDICTS)
    for subject in (HELD, FINE, GROUP.id):
        judge.require_met(by_hand(subject), VERDICTS)


def test_an_entry_by_hand_names_a_golden_file_of_a_test() -> None:
    baseline = baseline_of("gpt", "gpt_16b_perf")
    known = [HELD, FINE, baseline]
    for name in (HELD, baseline):
        judge.require_known(by_hand(name), known)
    judge.require_known(by_hand("moe/a/golden_values_dev_dgx_new.json"), known)  # of a new platform
    judge.require_known(by_hand(GROUP.id), known)
    with pytest.raises(Refused, match=f"Line 3 of d.yaml .* [(]did you mean {HELD}"):
        judge.require_known(by_hand(HELD.replace("moe", "mo")), known)
    with pytest.raises(Refused, match="not a golden file"):
        judge.require_known(by_hand("moe/a/values.json"), known)
