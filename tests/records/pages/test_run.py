"""The page of one record."""

import re
from typing import Any

from archives import BUMP, elements

from runbook_lib import display
from runbook_lib.records.pages import run

RUN: dict[str, Any] = {
    "id": "1-bump", "state": "done", "notebook": {"name": "01-pin"}, "bump": BUMP.as_json(), "parent": None,
    "started": "2026-04-01T10:00:00.000Z", "ended": "2026-04-01T10:01:00.000Z",
    "outcome": {"sentence": "Done.", "next": "Press *Ready for review* on https://x/1."},
}  # fmt: skip


def page(*outputs: dict[str, Any], **fields: Any) -> str:
    cells = [{"cell_type": "code", "source": ["x"], "outputs": [{"output_type": "display_data", "data": data}]}
             for data in outputs]  # fmt: skip
    return run.render({**RUN, **fields}, {"cells": cells})


def test_words_between_stars_are_emphasized() -> None:
    assert 'Press <em>Ready for review</em> on <a class="url" href="https://x/1">https://x/1</a>.' in page()


def test_only_tables_are_in_boxes_that_scroll() -> None:
    text = page({"text/html": display.table([{"a": 1}]).html}, {"text/html": "<p>A sentence.</p>"}, checks=[
        {"name": "pins", "status": "waiting", "detail": "CI runs"}])  # fmt: skip
    boxes = [attributes for _, attributes in elements(text) if "tabindex" in attributes]
    assert [(box["class"], box["role"], box["aria-label"]) for box in boxes] == [
        ("wide", "group", "Checks"), ("output", "group", "table"),
    ]  # fmt: skip
    assert text.count("<table") == 2


def test_the_outcome_comes_first_and_parameters_and_code_are_folded() -> None:
    parameters = {"given": {"tag": "26.04-py3"}, "resolved": {"base": "main"}}
    push = {"at": RUN["started"], "effect": "push"}
    text = page(
        {"text/plain": "the plot"}, parameters=parameters, library={"version": "1.2"}, state="waiting", effects=[push]
    )
    assert '<div class="status waiting">' in text
    shown = text.partition("<main>")[2]
    for part in re.findall(r"<details><summary.*?</details>", shown, re.DOTALL):
        shown = shown.replace(part, "")
    assert "Done." in shown
    assert "the plot" in shown
    for folded in ("<dt>tag</dt>", "1.2", "<dt>base</dt>", '<pre class="input">', "push"):
        assert folded in text
        assert folded not in shown
