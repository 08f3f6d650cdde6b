"""The statement of a record: names of folders, and contributions of any shape."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.records.pages import run as report
from runbook_lib.records.statement import Identity, collect, folder_name

PREDICATE = {"id": "", "state": "running", "bump": {}, "notebook": {"name": "a"}, "started": "2026-04-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("main", "main"),
        ("core_r0.14.0", "core_r0.14.0"),
        ("dev-26.04-py3", "dev-26.04-py3"),
        ("feature/x", "feature%2Fx"),
        ("..", "%2E."),
        (".git", "%2Egit"),
        ("", "none"),
        ("a\nb", "a%0Ab"),
        ("ü", "%C3%BC"),
        ("x" * 300, "x" * 100),
    ],
)
def test_makes_one_safe_folder_of_any_name(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_practice_records_have_a_folder_of_their_own() -> None:
    bump = ("o/r", "main", "dev", "")
    assert Identity(*bump, practice=False).parts == ("o-r", "main", "dev-none")
    assert Identity(*bump, practice=True).parts == ("practice", "o-r", "main", "dev-none")
    assert Identity("o/r", "main", "dev", "cuda:13.0.2", practice=False).parts[-1] == "dev-cuda-13.0.2"


KINDS = st.sampled_from(
    ["begin", "given", "link", "warning", "waiting", "done", "check", "effect", "exception", "other"]
)
NAMES = st.sampled_from(["at", "name", "status", "detail", "sentence", "next", "values", "url", "mode"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.builds(lambda kind, rest: {**rest, "kind": kind}, KINDS, st.dictionaries(NAMES, JSON)) | JSON))
def test_shows_a_record_with_contributions_of_any_shape(entries: list[Any]) -> None:
    found = collect(json.dumps(entry) for entry in entries)
    base = {"state": found.state, "bump": Identity("o/r", "main", "dev", "", practice=False).as_json()}
    predicate = {**PREDICATE, **base, "ended": PREDICATE["started"], **found.fields}
    page = report.render(predicate, {"cells": []})
    assert page.count("<main>") == page.count("</main>") == 1
    assert found.state in page
