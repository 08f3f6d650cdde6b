import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from runbook_lib.golden import plots
from runbook_lib.golden.form import Judgement
from runbook_lib.golden.judge import judge_all

FILE = "gpt/case<1>$x$/golden_values_dev_dgx_h100.json"


def drawn(picture):
    root = ElementTree.fromstring(picture.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("aria-label") == picture.text
    assert not [it for it in root.iter() if it.tag.endswith("script")]
    return picture


@pytest.mark.parametrize("metric", ["iteration-time", "mem-x", "lm loss"])
def test_a_decision_shows_the_band_and_where_it_is_left(metric):
    arguments = (FILE, metric, {1: math.inf, 2: 1.0}, {1: 1.0, 2: 2.0}, {2: (0.9, 1.1)}, 2)
    view = drawn(plots.decision(*arguments))
    assert view.text == f"{metric} of {FILE}, old and new, with the expected band"
    assert view.svg == plots.decision(*arguments).svg
    assert drawn(plots.decision(FILE, metric, {}, {1: -1.0}, {})).svg
    huge = {1: 1.0, 2: -1.7e308, 3: 1.7e308}
    assert drawn(plots.decision(FILE, metric, huge, huge, {2: (-math.inf, math.inf), 3: (-1.7e308, 1.7e308)})).svg


def test_the_shift_of_a_group_is_plotted():
    names = [f"gpt/case{number}/golden_values_dev_dgx_h100.json" for number in range(12)]
    verdicts = judge_all(Judgement(name, "refresh", costs={"iteration-time": 0.4}) for name in names)
    (group,) = verdicts.groups
    assert drawn(plots.shift(group, verdicts)).svg.count("<use ") >= 12  # a mark for each file
    assert plots.ratios(replace(group, ratio=None), verdicts) == []
