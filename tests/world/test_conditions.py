"""Conditions that hold only in part."""

import pytest
from bumping import BRANCH, World, bump_to

from runbook_lib.world.conditions.forge import Labelled, PullKey
from runbook_lib.world.github.models import NotAllowed


def test_a_label_is_recorded_although_the_next_one_is_refused(opened: World) -> None:
    labels = Labelled(PullKey(f"practice:{BRANCH}", "main"), frozenset({"one", "two"}))
    made = labels.make_true(opened.context(bump_to()).world)
    assert next(made).target.endswith(" one")
    opened.forge.fail("add_label", NotAllowed("no"))
    with pytest.raises(NotAllowed):
        next(made)
    assert "one" in opened.github().pulls()[0].labels
