"""The tables that tell what was attacked."""

import pytest
from figures import Figures, table


def test_nothing_is_reported_without_attempts() -> None:
    assert table({}).splitlines() == ["| what was tried | times |", "|---|---:|"]


def test_figures_stand_in_their_order_and_faults_by_kind() -> None:
    figures = Figures(hostile=1200, kills=2)
    figures.fault("reset", "done")
    figures.fault("reset", "told")
    figures.fault("429", "told")
    assert table(figures).splitlines()[2:] == [
        "| times that a bump was killed and run again | 2 |",
        "| calls that a fault of the network met | 3 |",
        "| hostile inputs tried | 1,200 |",
        "",
        "| a fault of the network | done | told |",
        "|---|---:|---:|",
        "| 429 | 0 | 1 |",
        "| reset | 1 | 1 |",
    ]


def test_a_forbidden_outcome_is_not_counted() -> None:
    with pytest.raises(ValueError, match="ended as 'hung'"):
        Figures().fault("stall", "hung")
