"""What a form shows of a run."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.notebook import card_widgets, form_views, form_widgets
from runbook_lib.notebook.cards import Card

PLANNED = [{"sentence": "change 2 lines", "publish": False}, {"sentence": "push the branch", "publish": True}]
HERE = Path("/audit/x")


def run(state: str = "previewed", sentence: str = "Preview.", **more: Any) -> dict[str, Any]:
    outcome = {"sentence": sentence, "next": {"because": more.pop("because", "")}}
    empty = {"planned": [], "warnings": [], "steps": [], "links": {}}
    return {"notebook": {"name": "bump"}, "name": "bump", "state": state, "outcome": outcome, **empty, **more}


def words(markup: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", markup).split())


@pytest.mark.parametrize(
    ("publish", "practice", "outside"),
    [
        (True, False, "Apply will also, outside this machine:"),
        (False, False, "Not done, because publish is not chosen:"),
        (True, True, "Apply will also, in the practice forge (nothing leaves this machine):"),
    ],
)
def test_a_plan_separates_local_changes_from_public_ones(publish: bool, practice: bool, outside: str) -> None:
    shown = words(form_views.plan(run(planned=PLANNED), publish=publish, practice=practice, open_cards=0))
    assert shown == f"Apply will, in the checkout on this machine: change 2 lines {outside} push the branch Preview."


def test_a_plan_names_open_decisions_and_warnings_or_why_nothing_changes() -> None:
    told = run(sentence="It waits.", warnings=["Look."])
    shown = words(form_views.plan(told, publish=True, practice=False, open_cards=2))
    assert shown.startswith("2 decisions open.")
    assert shown.endswith("Apply will change nothing now. It waits. Warnings: Look.")


def test_progress_is_described() -> None:
    steps = [run("waiting", "an earlier round"), run("done", "Fine.", warnings=["Look."])]
    assert words(form_views.steps(run(steps=steps)).html) == "⚠ done bump: Fine."
    assert words(form_views.progress(None, "one\ntwo\n\n", 3.2)) == "3 s two"
    shown = form_views.progress(run("running", progress={"done": 3, "total": 7}), "", 83)
    assert words(shown) == "1 min 23 s 3 of 7 jobs"
    assert shown.count("<progress") == 1


@pytest.mark.parametrize(
    ("state", "count", "following"), [("waiting", 0, "Merge it."), ("waiting", 1, "Decide"), ("done", 1, "Merge it.")]
)
def test_a_result_names_what_comes_next_and_the_record(state: str, count: int, following: str) -> None:
    shown = words(form_views.result(run(state, "Why.", because="Merge it."), HERE, {}, open_cards=count))
    assert f"{state}: Why. Next: {following}" in shown
    assert shown.endswith("Record: /audit/x")


@pytest.mark.parametrize(
    ("root", "base_url", "link"),
    [
        ("/home/ada", "/", "/files/audit/x%20y/report.html"),
        ("/home/ada", "/user/ada/", "/user/ada/files/audit/x%20y/report.html"),
        ("/elsewhere", "/", ""),
    ],
)
def test_a_result_links_the_report_as_the_server_stores_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: str, base_url: str, link: str
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JPY_PARENT_PID", "123")
    (tmp_path / "jpserver-123.json").write_text(json.dumps({"root_dir": root, "base_url": base_url}))
    shown = form_views.result(run(), Path("/home/ada/audit/x y"), {}, open_cards=0)
    assert re.findall(r'href="(.*?)"', shown) == [link] * bool(link)


@given(st.text())
def test_untrusted_text_is_escaped(text: str) -> None:
    facts = {"numbers": text, "files": [text], "search": text, "before": text}
    card = Card({"question": "accept", "subject": text, "facts": facts}, (), (("Why", text),), "", text, (text,), text)
    planned = [{"sentence": text, "publish": True}]
    more = {"planned": planned, "warnings": [text], "links": {text: text}, "steps": [run("done", text)]}
    told = run("failed", text, because=text, **more)
    for shown in (
        form_widgets.as_problem(text), form_views.steps(told).html, form_views.progress(told, text, 0),
        form_views.plan(told, publish=True, practice=False, open_cards=0),
        form_views.result(told, HERE, {}, open_cards=0), card_widgets.evidence_of(card),
    ):  # fmt: skip
        rest = re.sub(r"</?[a-z]+4?( [a-z-]+(=(\"[^\"<>]*\"|'[^'<>]*'))?)*>", "", shown)
        assert "<" not in rest
