import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from runbook_lib.golden import plots
from runbook_lib.golden.form import Judgement, ReviewReason
from runbook_lib.golden.judge import judge_all
from runbook_lib.golden.measure import Measure

FILES = [f"gpt/case<{i}>$x$/golden_values_dev_dgx_h100.json" for i in range(3)]


def judged(*values, metric="iteration-time", ratio=5.0, verdict="held back"):
    return [
        Judgement(
            file,
            verdict,
            (ReviewReason(metric, "worse", 2.0),),
            (Measure(file, metric, 3, value, abs(value), ratio),),
        )
        for file, value in zip(FILES, values, strict=False)
    ]


def drawn(picture):
    root = ElementTree.fromstring(picture.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("aria-label") == picture.text
    assert not [it for it in root.iter() if it.tag.endswith("script")]
    return picture


@pytest.mark.parametrize("found", [[], [Judgement("a", "unchanged")]])
def test_without_data_there_is_a_sentence(found):
    view = plots.drift(found)
    assert view.text.startswith("No ")
    assert "<svg" not in view.html


@pytest.mark.parametrize("values", [(0.0,), (-4.1, 1e-12, 0.2), (1e300, math.inf)])
def test_drift(values):
    assert "iteration-time" in drawn(plots.drift(judged(*values))).text


def test_a_decision_shows_the_band_and_where_it_is_left():
    old, new = {1: math.inf, 2: 1.0}, {1: 1.0, 2: 2.0}
    for metric in ("iteration-time", "mem-x", "lm loss"):
        view = plots.decision(FILES[0], metric, old, new, {2: (0.9, 1.1)}, leaves=2)
        assert drawn(view).text == f"{metric} of {FILES[0]}, old and new, with the expected band"
    assert drawn(plots.decision(FILES[0], "mem-x", {}, {1: -1.0}, {})).svg


def test_the_same_data_give_the_same_bytes():
    assert plots.drift(judged(0.1)).svg == plots.drift(judged(0.1)).svg


def test_the_shift_of_a_group_is_plotted():
    names = [f"gpt/case{number}/golden_values_dev_dgx_h100.json" for number in range(12)]
    verdicts = judge_all(Judgement(name, "refresh", costs={"iteration-time": 0.4}) for name in names)
    (group,) = verdicts.groups
    ratios = plots.ratios(group, verdicts)
    assert ratios == [math.exp(0.4)] * 12
    assert drawn(plots.shift(group, ratios)).svg.count("<use ") >= 12  # a mark for each file
    assert plots.ratios(replace(group, ratio=None), verdicts) == []
