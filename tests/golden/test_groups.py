import json

import pytest

from runbook_lib.golden.form import examine
from runbook_lib.golden.judge import judge_all


def losses(number, factor=1.0, start=0):
    """Return a golden file: tests of one number train alike; ``factor`` moves the loss from a step on."""
    values = {}
    for step in range(1, 51):
        values[str(step)] = (10.0 + number - step / 20) * (factor if step >= start else 1.0)
    return json.dumps({"lm loss": {"values": values}})


def verdicts(changes):
    """Judge a commit that changes the loss of each test (number, factor, extra, step of the extra change)."""
    examined = []
    for position, (number, factor, extra, start) in enumerate(changes):
        new = json.loads(losses(number, factor))
        for step, value in new["lm loss"]["values"].items():
            if int(step) >= start:
                new["lm loss"]["values"][step] = value * extra
        file = f"gpt/case{position}/golden_values_dev_dgx_h100.json"
        examined.append(examine(file, losses(number), json.dumps(new)))
    return judge_all(examined)


COMMON = [(number, 1.05, 1.0, 1) for number in (0, 0, 0, 1, 1, 1, 1, 1)]


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        ((0, 1.05, 1.0, 1), "refresh"),
        ((0, 1.05, 1.0004, 20), "refresh"),
        ((0, 1.05, 1.003, 20), "held back"),
        ((9, 1.05, 1.003, 20), "held back"),  # it never agreed with another test, but all others changed alike
    ],
)
def test_a_test_that_no_longer_agrees_with_its_twins_is_held_back_beside_the_group(last, verdict):
    judged = verdicts([*COMMON, last])
    assert [group.metric for group in judged.groups] == ["lm loss"]
    assert [judgement.verdict for judgement in judged.judgements] == ["refresh"] * len(COMMON) + [verdict]
    assert judged.judgements[-1].file in judged.waiting
    assert bool(judged.judgements[-1].reasons) == (verdict == "held back")


@pytest.mark.parametrize(
    ("factors", "groups"),
    [
        ((1.05, 1.05, 1.05, 1.05), ["lm loss"]),
        ((1.05, 1.05, 1.02, 0.97), ["lm loss"]),
        ((1.05, 1.02, 0.97, 0.9), []),
    ],
)
def test_losses_that_changed_in_different_ways_need_separate_decisions(factors, groups):
    judged = verdicts([(number, factor, 1.0, 1) for number, factor in enumerate(factors)])
    assert [group.metric for group in judged.groups] == groups
    assert {judgement.verdict for judgement in judged.judgements} == ({"refresh"} if groups else {"held back"})


def test_a_second_run_of_the_same_test_makes_no_change_common():
    examined = []
    for number, factor in enumerate((1.05, 1.02)):
        for run in ("", "_2nd"):
            file = f"gpt/case{number}/golden_values_dev_dgx_h100{run}.json"
            examined.append(examine(file, losses(number), losses(number, factor)))
    assert judge_all(examined).groups == ()
