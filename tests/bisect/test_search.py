"""The search: its steps on plain cases, its limits, and the same answer for the same ledger."""

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bench_bisect import TENSORRT_LLM
from hypothesis import given
from hypothesis import strategies as st
from simulate_bisect import Scenario, search

from runbook_lib.bisect.search import Conclusion, Point, Problem, Trial, advance, log_evidence

TAGS = ("26.01-py3", "26.02-py3", "26.04-py3")
COMPONENTS = ("nccl", "cublas", "cudnn")
PROBLEM = Problem(TAGS, dict.fromkeys(TAGS, COMPONENTS))
MANY = [f"package-{number}" for number in range(30)]
EXIT_STATUS = {"good": {"mean": 0, "cv": 0}, "bad": {"modes": [[1, 0, 1]]}}


def scenario(**changes: object) -> Scenario:
    """Return a clear case: from 26.04 on everything takes 30 % longer, because of cuDNN."""
    values: dict[str, object] = {
        "tags": TAGS,
        "components": COMPONENTS,
        "culprits": ["cudnn"],
        "changed_at": TAGS[-1],
        "higher_is_better": False,
        "good": {"mean": 100.0, "cv": 0.01},
        "bad": {"modes": [[130.0, 0.01, 1.0]]},
        "budget": 40,
    }
    return Scenario.read(values | changes)


def test_it_begins_with_the_ends() -> None:
    assert advance(PROBLEM, []) == Point(TAGS[-1])
    assert advance(PROBLEM, [Trial(Point(TAGS[-1]), "value", 1.0)]) == Point(TAGS[0])


@pytest.mark.parametrize(
    ("changes", "verdict", "culprits"),
    [
        ({}, "culprit", ("cudnn",)),
        ({"culprits": ["nccl", "cudnn"]}, "culprit", ("nccl", "cudnn")),
        ({"components": MANY, "culprits": [MANY[17]], "budget": 400, **EXIT_STATUS}, "culprit", (MANY[17],)),
        ({"culprits": []}, "not a single component", ()),
        ({"components": [], "culprits": []}, "tag only", ()),
        ({"higher_is_better": True}, "not reproduced", ()),
        ({"bad": {"modes": [[100.5, 0.05, 1.0]]}, "good": {"mean": 100.0, "cv": 0.05}}, "undecided", ()),
    ],
)
def test_conclusions(changes: dict[str, object], verdict: str, culprits: tuple[str, ...]) -> None:
    conclusion, ledger = search(scenario(**changes), 1)
    assert (conclusion.verdict, conclusion.culprits) == (verdict, culprits)
    assert len(ledger) <= scenario(**changes).problem.budget
    if verdict in ("culprit", "tag only", "not a single component"):
        assert conclusion.step == (TAGS[1], TAGS[2])


@pytest.mark.parametrize(
    ("broken", "outcome", "runs", "verdict"),
    [
        (COMPONENTS[2:], "invalid", 1, "not a single component"),
        (COMPONENTS[2:], "lost", 3, "not a single component"),
        (COMPONENTS, "invalid", 1, "tag only"),
    ],
)
def test_components_whose_overlays_fail_are_suspects_and_given_up(
    broken: tuple[str, ...], outcome: Any, runs: int, verdict: str
) -> None:
    case, ledger, generator = scenario(), list[Trial](), random.Random(1)
    while isinstance(answer := advance(case.problem, ledger), Point):
        is_broken = answer.tag == TAGS[-1] and answer.restored in broken
        run = Trial(answer, outcome) if is_broken else Trial(answer, "value", case.run(answer, generator))
        ledger.append(run)
    assert Counter(run.point.restored for run in ledger if run.outcome == outcome) == dict.fromkeys(broken, runs)
    assert answer.verdict == verdict


def test_lost_runs_are_paid_and_three_of_them_give_a_point_up() -> None:
    lost = [Trial(Point(TAGS[-1]), "lost", reason=f"node {number} failed") for number in range(3)]
    assert advance(PROBLEM, lost[:2]) == Point(TAGS[-1])
    assert advance(replace(PROBLEM, budget=2), lost[:2]) == Conclusion("undecided", "The budget of 2 runs is spent.")
    conclusion = advance(PROBLEM, lost)
    assert isinstance(conclusion, Conclusion)
    assert conclusion.reason == f"{TAGS[-1]} produced no value in 3 runs; in the last, node 2 failed."


@pytest.mark.parametrize(("probability", "text"), [(0.998, "99.8 %"), (0.99999, "99.9 %"), (1.0, "99.9 %")])
def test_a_probability_is_never_shown_as_certainty(probability: float, text: str) -> None:
    assert str(Conclusion("culprit", "", probability, ("a", "b"))).endswith(f"Probability: {text}.")


@given(st.integers(0, 10_000), st.integers(1, 30), st.data())
def test_a_search_that_was_killed_continues_as_if_it_was_not(seed: int, budget: int, data: st.DataObject) -> None:
    """Each prefix of a ledger asks for the run that came next; the whole ledger is never longer than the budget."""
    case = scenario(
        budget=budget, good={"mean": 100.0, "cv": 0.05}, bad={"modes": [[130.0, 0.05, 0.7], [100, 0.05, 0.3]]}
    )
    conclusion, ledger = search(case, seed)
    assert len(ledger) <= budget
    kept = data.draw(st.integers(0, len(ledger)))
    following = advance(case.problem, ledger[:kept])
    assert following == (ledger[kept].point if kept < len(ledger) else conclusion)


def test_the_bimodal_case_names_nccl() -> None:
    case = Scenario.read(TENSORRT_LLM)
    found = [search(case, seed) for seed in range(500, 520)]
    assert Counter(case.judge(conclusion) for conclusion, _ in found)["right"] >= 19
    assert sorted(len(ledger) for _, ledger in found)[10] <= 30


@pytest.mark.parametrize(
    ("good", "bad", "verdicts"),
    [
        (0.9, 0.0, {"culprit"}),
        (0.8, 0.8, {"undecided"}),
        (1.0, 1.0, {"not reproduced"}),
        (0.9, 0.1, {"culprit", "undecided"}),
    ],
)
def test_a_flaky_exit_status_names_no_innocent(good: float, bad: float, verdicts: set[str]) -> None:
    problem, found = replace(PROBLEM, by_exit=True, budget=60), set[str]()
    for seed in range(20):
        ledger, generator = list[Trial](), random.Random(seed)
        while isinstance(answer := advance(problem, ledger), Point):
            rate = good if answer.tag != TAGS[-1] or answer.restored == "nccl" else bad
            ledger.append(Trial(answer, "value", float(generator.random() < rate)))
        found.add(answer.verdict)
        assert answer.culprits in ((), ("nccl",))
    assert found <= verdicts


def test_a_break_without_noise_between_twelve_tags_takes_few_runs() -> None:
    tags = [f"25.{month:02}-py3" for month in range(1, 13)]
    for changed in tags[1:]:
        case = scenario(
            tags=tags, components=(), culprits=(), changed_at=changed, higher_is_better=True,
            good={"mean": 1, "cv": 0}, bad={"modes": [[0, 0, 1]]},
        )  # fmt: skip
        conclusion, ledger = search(case, 1)
        assert (case.judge(conclusion), len(ledger) <= 14) == ("right", True)


def probabilities(values: list[float], good: list[list[int]], scale: float = 4.0) -> list[float]:
    """Return the posterior of hypotheses that are equally likely before."""
    hypotheses = np.array(good, bool)
    weights = np.exp(log_evidence(values, hypotheses, scale))
    return [float(share) for share in weights / weights.sum()]


def test_a_bad_state_with_an_acceptable_mode_is_not_mistaken_for_the_good_one() -> None:
    """The last run looks fine, but so did two of the five bad ones before it: one run does not decide."""
    values = [4.1, 4.0, 4.1, 2.5, 2.6, 4.1, 2.5, 4.1, 4.1]
    good, _ = probabilities(values, [[1, 1, 1, 0, 0, 0, 0, 0, 1], [1, 1, 1, 0, 0, 0, 0, 0, 0]])
    assert 0.5 < good < 0.9


@given(
    st.lists(st.floats(0.1, 10), min_size=2, max_size=12),
    st.floats(0.01, 100),
    st.randoms(use_true_random=False),
)
def test_units_and_order_change_nothing(values: list[float], unit: float, shuffler: object) -> None:
    size = len(values)
    good = [[1] + [0] * (size - 1), [1] * size, [1] * (size - 1) + [0]]
    before = probabilities(values, good)
    order = list(range(size))
    shuffler.shuffle(order)  # type: ignore[attr-defined]
    moved = [[row[index] for index in order] for row in good]
    after = probabilities([values[index] * unit for index in order], moved, scale=4.0 * unit)
    assert all(math.isclose(old, new, rel_tol=1e-3, abs_tol=1e-6) for old, new in zip(before, after, strict=True))
