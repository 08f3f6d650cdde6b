import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from runbook_lib.golden import plots
from runbook_lib.golden.form import Judgement, ReviewReason
from runbook_lib.golden.history import GoldenHistory, PastChange
from runbook_lib.golden.judge import Verdicts, judge_all
from runbook_lib.golden.measure import Measure
from runbook_lib.golden.values import GoldenValues

FILES = [f"gpt/case<{i}>$x$/golden_values_dev_dgx_h100.json" for i in range(3)]


def judged(*values, metric="iteration-time", ratio=5.0, verdict="held back"):
    return [
        Judgement(
            file,
            verdict,
            (ReviewReason(metric, "worse", 2.0),),
            (Measure(file, metric, 3, value, abs(value), abs(value), 0.0, ratio),),
        )
        for file, value in zip(FILES, values, strict=False)
    ]


def goldens(metric, *values):
    steps = dict(enumerate(values, 1))
    return {file: GoldenValues(series={metric: steps}) for file in FILES}


def drawn(picture):
    root = ElementTree.fromstring(picture.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("aria-label") == picture.text
    assert not [it for it in root.iter() if it.tag.endswith("script")]
    return picture


@pytest.mark.parametrize("found", [[], [Judgement("a", "unchanged")]])
def test_without_data_there_is_a_sentence(found):
    views = (plots.drift(found), plots.times(found), plots.worst(found, {}, {}))
    assert all(view.text.startswith("No ") and "<svg" not in view.html for view in views)


@pytest.mark.parametrize("values", [(0.0,), (-4.1, 1e-12, 0.2), (1e300, math.inf)])
def test_drift(values):
    assert "iteration-time" in drawn(plots.drift(judged(*values))).text


@pytest.mark.parametrize("ratio", [0.1, 1000.0])
def test_times(ratio):
    assert f"{ratio:.2f} times" in drawn(plots.times(judged(0.1, 0.2, ratio=ratio))).text


@pytest.mark.parametrize(
    ("metric", "values"),
    [("iteration-time", (1.0, 2.0)), ("lm loss", (math.inf, 1.0)), ("lm loss", (math.inf,)), ("mem-x", (0.0, 0.0)),
     ("mem-x", (-1.0, 2.0))],
)  # fmt: skip
def test_trajectories_of_the_worst(metric, values):
    view = plots.worst(judged(1.0, 2.0, metric=metric), goldens(metric, *values), goldens(metric, 1.0), count=1)
    assert drawn(view).text == f"{metric} of {FILES[0]}, old and new"


def test_a_metric_that_turned_nan_is_the_one_that_is_shown():
    found = [
        Judgement(
            FILES[0],
            "refused",
            (ReviewReason("", "NaN or infinity: lm loss at step 3"),),
            tuple(Measure(FILES[0], metric, 3, 0.5, 0.5, 0.5, 0.0) for metric in ("num-zeros", "lm loss")),
        )
    ]
    assert plots.worst(found, goldens("lm loss", 1.0), goldens("lm loss", 1.0)).text.startswith("lm loss of")


def test_the_same_data_give_the_same_bytes():
    assert plots.drift(judged(0.1)).svg == plots.drift(judged(0.1)).svg


def test_groups_and_the_calibration_are_plotted():
    names = [f"gpt/case{number}/golden_values_dev_dgx_h100.json" for number in range(12)]
    verdicts = judge_all(Judgement(name, "refresh", costs={"iteration-time": 0.4}) for name in names)
    assert "12 of 12 tests slower" in plots.shifts(verdicts).text
    assert "No platform" in plots.shifts(Verdicts()).text
    (group,) = verdicts.groups
    one = plots.shift(group, verdicts)
    assert one is not None
    assert drawn(one).svg.count("<use ") >= 12  # a mark for each file
    assert plots.shift(replace(group, files=()), verdicts) is None
    assert plots.shift(replace(group, ratio=None), verdicts) is None
    changes = [PastChange(name, order, {"iteration-time": 0.01 * order}, {}, 0) for order, name in enumerate(names)]
    assert "12 past changes" in plots.calibration(GoldenHistory("c", tuple(changes))).text
    assert "shallow" in plots.calibration(GoldenHistory(missing="the clone is shallow")).text
