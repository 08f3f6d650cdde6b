"""The failures of ``corpus/``: class, decisive message and rank.  Half of them are held out while rules are written."""

import pytest
from labelled_failures import CASES, diagnosed

GOAL = 0.9


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) >= 300
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("group", sorted({case.group for case in CASES}))
def test_most_failures_have_the_right_class_root_and_rank(group: str) -> None:
    results = [(case, diagnosed(case.log)) for case in CASES if case.group == group]
    ranked = [(case, failure) for case, failure in results if case.rank is not None]
    right = sum(failure.kind == case.kind for case, failure in results)
    roots = sum(case.quotes_root(failure) for case, failure in results)
    ranks = sum(failure.rank == case.rank for case, failure in ranked)
    assert right >= GOAL * len(results), right
    assert roots >= GOAL * len(results), roots
    assert ranks >= GOAL * len(ranked), ranks


def test_a_confidence_is_the_share_of_right_classes() -> None:
    shares: dict[float, list[bool]] = {}
    for case in CASES:
        failure = diagnosed(case.log)
        shares.setdefault(failure.confidence, []).append(failure.kind == case.kind)
        assert failure.retry <= (failure.kind in ("flaky infrastructure", "rate limit"))
    for confidence, right in shares.items():
        assert len(right) < 10 or sum(right) / len(right) > confidence - 0.1, confidence


def test_an_end_after_the_cause_changes_no_verdict() -> None:
    for case in CASES:
        alone = diagnosed(case.log)
        if alone.clues:
            lines = case.log.splitlines(keepends=True)
            assert diagnosed("".join(lines[: alone.clues[0].line])).kind == alone.kind, case.id
