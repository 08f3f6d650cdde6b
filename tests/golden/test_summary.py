import math

import pytest

from runbook_lib.golden import summary
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.measure import Judgement, Measure, ReviewReason


def moved(file, metric, value, *, verdict="refresh", **more):
    one = Measure(file, metric, 50, value, abs(value))
    return Judgement(file, verdict, measures=(one,), **more)


def markdown(judged, groups=()):
    return summary.markdown(Verdicts(tuple(judged), tuple(groups)))


@pytest.mark.parametrize("judged", [(), (Judgement("a", "unchanged"),)])
def test_an_empty_summary(judged):
    assert summary.by_metric(judged) == summary.rows(judged) == summary.verdict_rows(judged) == []
    assert f"{len(judged)} unchanged" in markdown(judged)
    assert "|" not in markdown(judged)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (0.0, "== 0"),
        (1e-12, "(0, 1e-6)"),
        (1e-6, "[1e-6, 1e-4)"),
        (1e-4, "[1e-4, 1e-3)"),
        (-1e-3, "[1e-3, 1e-2)"),
        (0.01, "[1e-2, 1e-1)"),
        (0.1, ">= 1e-1"),
        (math.inf, ">= 1e-1"),
    ],
)
def test_buckets(value, name):
    (row,) = summary.by_metric([moved("a", "m", value)])
    assert [bucket for bucket in summary.BUCKETS if row[bucket]] == [name]


def test_metrics_are_counted_by_platform():
    files = ["gpt/a/golden_values_dev_dgx_h100.json", "gpt/a/golden_values_dev_dgx_gb200.json"]
    judged = [moved(file, "lm loss", 0.1) for file in files]
    judged.append(moved("gpt/b/baseline_values.json", "dgx_h100/8/throughput", 0.2))
    judged.append(moved("gpt/c/golden_values_dev_dgx_h100.json", "lm loss", -0.3))
    rows = summary.by_metric(judged)
    assert [(row["metric"], row["platform"], row["n"], row["median"], row["max"]) for row in rows] == [
        ("lm loss", "dgx_gb200", 1, 0.1, 0.1), ("lm loss", "dgx_h100", 2, 0.2, 0.3),
        ("throughput", "dgx_h100", 1, 0.2, 0.2),
    ]  # fmt: skip


def test_the_most_urgent_file_comes_first():
    judged = [
        moved("d", "m", 0.1),
        Judgement("c", "held back", (ReviewReason("m", "a little", 1.0),)),
        Judgement(
            "b", "held back", (ReviewReason("x", "small"), ReviewReason("iteration-time", "4.45 times as long", 2.2))
        ),
        Judgement("a", "unchanged"),
        Judgement("e", "refused", (ReviewReason("", "NaN"),)),
        Judgement("f", "refresh", (ReviewReason("m", "big", 9.0),), accepted="known @team"),
    ]
    assert [one.file for one in summary.in_order(judged)] == list("ebcfda")
    told = markdown(judged)
    places = [told.index(f"`{name}`") for name in "ebcf"]
    assert places == sorted(places)
    assert "2 refreshed, 2 held back, 1 refused, 1 unchanged" in told
    assert "accepted: `known @team`" in told.replace("\u200b", "")
    head, marks, *rows = [line for line in told.splitlines() if line.startswith("|")]
    assert {len(line) for line in (marks, *rows)} == {len(head)}  # readable in a terminal
    assert (marks.split(), len(rows)) == (["|", "---", *["|", "---"], *["|", "---:"] * 10, "|"], 1)


def test_rows_and_their_columns():
    (row,) = summary.rows([moved("a", "m", 0.5, ci=frozenset({"m"}), costs={"m": math.log(2)})])
    assert row == {
        "file": "a", "metric": "m", "n_steps": 50, "avg_rel_diff": 0.5, "max_abs": 0.5, "ratio": 2.0,
        "verdict": "refresh", "ci": "fails",
    }  # fmt: skip


def test_a_signed_mean_that_hides_a_change_is_named():
    for mean, largest, named in ((0.2, 0.2, False), (0.0, 0.1, True)):
        judgement = Judgement("a", "refresh", measures=(Measure("a", "x", 50, mean, largest),))
        assert ("The signed mean hides that steps changed by more than 5 %: `x`" in markdown([judgement])) is named
