"""The judge on sets of files: groups, single tests against their history, losses, and repeated attempts."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.golden.history import GoldenHistory, PastChange
from runbook_lib.golden.judge import judge_all
from runbook_lib.golden.measure import Judgement, Measure, loss_change

TIME, MEMORY = "iteration-time", "mem-max-allocated-bytes"


def name(number, model="gpt", platform="dgx_h100", environment="dev"):
    return f"{model}/case{number}/golden_values_{environment}_{platform}.json"


def files(ratios, metric=TIME, **more):
    """Return a file for each ratio of new to old."""
    return [changed(name(number, **more), {metric: ratio}) for number, ratio in enumerate(ratios)]


def changed(file, ratios):
    measures = (Measure(file, "lm loss", 50, 0.0, 0.0),)
    costs = {metric: math.log(ratio) for metric, ratio in ratios.items()}
    return Judgement(file, "refresh", measures=measures, costs=costs)


def past(changes):
    """Return a history of one test in which its time changed by these ratios."""
    costs = [{TIME: math.log(ratio)} for ratio in changes]
    return GoldenHistory({name(0): [PastChange(at, cost, {"lm loss": 0.1}) for at, cost in enumerate(costs)]})


def near(ratio, count, seed=1, spread=0.02):
    chance = random.Random(seed)
    return [ratio * math.exp(chance.gauss(0, spread)) for _ in range(count)]


@pytest.mark.parametrize(
    ("ratios", "groups"),
    [
        ([], 0),
        ([1.5, 1.5], 0),  # two files show no shift of a platform
        (near(1.03, 40), 0),
        (near(1.48, 36), 1),
        (near(0.86, 36), 1),
        (near(1.3, 5), 1),
        ([*near(1.0, 30), *near(1.5, 6)], 0),  # six tests, not the platform
    ],
)
def test_a_shift_of_a_platform_is_one_decision(ratios, groups):
    verdicts = judge_all(files(ratios))
    assert len(verdicts.groups) == groups
    if groups:
        (group,) = verdicts.groups
        assert (group.id, group.platform, group.family) == ("dgx_h100/iteration-time", "dgx_h100", "")
        assert group.ratio == pytest.approx(ratios[0], rel=0.1)
        assert {judgement.verdict for judgement in verdicts.judgements} == {"refresh"}
        assert {judgement.group for judgement in verdicts.judgements} == {group.id}
        assert set(verdicts.waiting) == set(group.files)
        assert verdicts.blocked


@pytest.mark.parametrize("slower", range(1, 8))
@pytest.mark.parametrize("as_before", range(8))
def test_however_many_tests_are_slower_none_is_refreshed_unseen(slower, as_before):
    verdicts = judge_all(files([1.25] * slower + [1.0] * as_before))
    assert {name(number) for number in range(slower)} <= verdicts.blocked


def test_platforms_and_environments_are_separate():
    judged = files(near(1.5, 12)) + files(near(1.0, 12), platform="dgx_gb200")
    judged += files(near(1.5, 12), platform="dgx_a100", environment="lts")
    assert [group.id for group in judge_all(judged).groups] == [
        "dgx_h100/iteration-time",
        "lts_dgx_a100/iteration-time",
    ]


@pytest.mark.parametrize("shift", [1.0, 1.48, 0.86])
@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "refresh"), (1.5, "held back"), (0.5, "refresh")])
def test_one_test_is_judged_without_the_shift_of_its_platform(shift, ratio, verdict):
    judged = files(near(shift, 30))
    judged[7] = changed(judged[7].file, {TIME: shift * ratio})
    verdicts = judge_all(judged)
    assert verdicts.judgements[7].verdict == verdict
    assert sum(judgement.verdict != "refresh" for judgement in verdicts.judgements) == (verdict == "held back")


@pytest.mark.parametrize(
    ("ratios", "attempt", "verdict", "why"),
    [
        ([], 1, "held back", ""),  # its family decides
        ([1.01, 0.99] * 4, 1, "held back", ""),
        ([1.9, 0.5, 2.1, 0.5, 1.8, 0.6], 1, "refresh", ""),  # so noisy that it shows nothing
        ([1.01, 0.99, 1.5, 1.01, 0.98, 0.64, 1.01], 1, "ambiguous", "as far in 2 of 7"),
        ([1.01, 0.99, 1.5, 1.01, 0.98, 0.64, 1.01], 2, "held back", "as far in 2 of 7"),  # another run decides
    ],
)
def test_a_test_is_judged_by_its_own_history(ratios, attempt, verdict, why):
    judgement = judge_all([changed(name(0), {TIME: 1.5})], past(ratios), attempt=attempt).judgements[0]
    assert judgement.verdict == verdict, judgement.reasons
    assert why in judgement.sentence


def loss(factor, start=1, steps=100, noise=1e-5):
    chance = random.Random(2)
    old = {step: 10.0 - step / 20 for step in range(1, steps + 1)} if steps <= 100 else dict.fromkeys(range(steps), 3.0)
    new = {}
    for step, value in old.items():
        new[step] = value * (1 + chance.gauss(0, noise) * step / steps) * (factor if step >= start else 1.0)
    return old, new


@pytest.mark.parametrize(
    ("arguments", "beyond"),
    [
        ((1.0,), False),
        ((1.0, 1, 100, 1e-4), False),
        ((1.003,), True),
        ((0.997,), True),
        ((1.003, 100), True),
        ((1.0, 1, 5000, 1e-3), False),  # single steps of a long run are noisy
        ((1.003, 3000, 5000, 1e-3), True),
    ],
)
def test_a_wrong_loss_leaves_the_envelope(arguments, beyond):
    change = loss_change(*loss(*arguments))
    assert change is not None
    assert (change.excess > 1) == beyond


@given(
    st.lists(st.floats(1e-300, 1e300), max_size=30),
    st.lists(st.floats(1e-300, 1e300), max_size=20),
    st.sampled_from([TIME, MEMORY, "num-zeros", "throughput"]),
)
def test_no_values_are_too_extreme(ratios, history, metric):
    verdicts = judge_all(files(ratios, metric), past(history))
    assert len(verdicts.judgements) == len(ratios)
