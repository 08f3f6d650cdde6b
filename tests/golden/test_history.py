import json
from itertools import chain
from pathlib import Path

import pytest
from clones import commit, git

from runbook_lib.golden import history
from runbook_lib.text.recipes.file_names import FOLDER
from runbook_lib.world.git.checkout import Checkout

NAME = "gpt/case/golden_values_dev_dgx_h100.json"


def content(time, loss=10.0):
    entries = {}
    for metric, value in (("iteration-time", time), ("lm loss", loss)):
        entries[metric] = {"values": {str(step): value for step in range(1, 51)}}
    return json.dumps(entries)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A clone with versions of one file: 1.0, 1.1 s, renamed, 1.2 s, and one that cannot be read."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    clone, old, new = tmp_path / "clone", f"{FOLDER}/gpt/old_case/{Path(NAME).name}", f"{FOLDER}/{NAME}"
    states = [{old: content(1.0)}, {old: content(1.1)}, {old: None, new: content(1.1)}, {new: content(1.2)}]
    for number, files in enumerate([*states, {new: "{broken"}]):
        commit(clone, files)
        git(clone, "tag", f"v{number}")
    return clone


@pytest.mark.parametrize(
    ("ref", "costs"), [("v0", []), ("v1", [1.1]), ("v2", [1.1]), ("v3", [1.1, 1.2 / 1.1]), ("v4", [1.1, 1.2 / 1.1])]
)
def test_the_history_ends_at_its_revision_and_follows_renames(root, ref, costs):
    past = history.read(Checkout.open(root), ref)
    changes = list(chain.from_iterable(past.changes.values()))
    times = [2.718281828459045 ** change.costs["iteration-time"] for change in changes if change.costs]
    assert past.missing == ""
    assert times == pytest.approx(costs)
    if ref == "v4":
        assert list(past.changes) == [NAME]


def test_a_cache_only_saves_time(root, tmp_path, monkeypatch):
    checkout = Checkout.open(root)
    past = history.read(checkout, "v3")
    assert history.read(checkout, "v3") == past
    (stored,) = (tmp_path / "cache").rglob("*.json")
    for damaged in ("", "{}x", '{"a": [1]}', stored.read_text()[:-9], "[[1]]", "null"):
        stored.write_text(damaged)
        assert history.read(checkout, "v3") == past
    monkeypatch.setenv("XDG_CACHE_HOME", str(stored))
    assert history.read(checkout, "v3") == past


def test_a_revision_that_does_not_exist(root):
    assert history.read(Checkout.open(root), "nope").missing
