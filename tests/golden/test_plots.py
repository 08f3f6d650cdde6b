import math
import xml.etree.ElementTree as ElementTree

import pytest

from runbook_lib.golden import plots

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


def test_the_values_of_a_group_are_plotted():
    assert drawn(plots.values_by_group({"dgx_h100": [1.4] * 12}, "new / old")).svg.count("<use ") >= 12  # a mark each
