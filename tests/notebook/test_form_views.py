"""What a form shows of a run."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from archives import words
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.model import Next
from runbook_lib.notebook import form_views
from runbook_lib.notebook.cards import Card, evidence

PLANNED = [{"sentence": "change 2 lines", "publish": False}, {"sentence": "push the branch", "publish": True}]
HERE = Path("/audit/x")


def run(state: str = "previewed", sentence: str = "Preview.", **more: Any) -> dict[str, Any]:
    outcome = {"sentence": sentence, "next": {"because": more.pop("because", "")}}
    empty = {"planned": [], "effects": [], "warnings": [], "steps": [], "links": {}}
    return {"notebook": {"name": "bump"}, "name": "bump", "state": state, "outcome": outcome, **empty, **more}


@pytest.mark.parametrize(
    ("planned", "publish", "cards", "word", "shown"),
    [
        (PLANNED, True, 0, "main", ["Published", "Type main to confirm."]),
        (PLANNED, False, 0, "", ["publish is not chosen."]),
        ([], True, 2, "", ["Apply will change nothing now.", "2 decisions open."]),
    ],
)
def test_what_apply_does_and_needs(planned: list[Any], publish: bool, cards: int, word: str, shown: list[str]) -> None:
    plan = run(planned=planned)
    told = form_views.about_apply(plan, publish=publish, practice=False, open_cards=cards, word=word)
    assert all(each in words(told) for each in shown)
    assert told.count("<li>") == len(shown) - bool(word)


def test_progress_is_described() -> None:
    steps = [run("waiting", "an earlier round"), run("done", "Fine.", warnings=["Look."]), run("running", "", name="x")]
    assert words(form_views.steps(run(steps=steps))) == "⚠ done bump: Fine. ▸ running x"
    assert words(form_views.progress("two", 83)) == "1 min 23 s two"


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
    (tmp_path / "practice/pull").mkdir(parents=True)
    (tmp_path / "practice/pull/9.html").touch()
    links = {"pull request": f"file://{tmp_path}/home/pages/practice/Megatron-LM/pull/9.html"}
    (tmp_path / "jpserver-123.json").write_text(json.dumps({"root_dir": str(tmp_path), "base_url": base_url}))
    shown = form_views.result(run(links=links), tmp_path, {}, open_cards=0)
    assert f'href="{base_url}files/practice/pull/9.html"' in shown


@given(st.text())
def test_untrusted_text_is_escaped(text: str) -> None:
    facts = {"numbers": text, "files": [text], "search": text, "before": text, "lines": [text], "log": text}
    card = Card({"kind": "accept", "subject": text, "facts": facts}, answer={"choice": "hold", "reason": text})
    planned = [{"sentence": text, "publish": True}]
    more = {"planned": planned, "warnings": [text], "links": {text: text}, "steps": [run("done", text)]}
    told = run("failed", text, because=text, **more)
    for shown in (
        form_views.steps(told), form_views.progress(text, 0),
        form_views.result(told, HERE, {}, open_cards=0), evidence(card).html,
    ):  # fmt: skip
        rest = re.sub(r"</?[a-z]+4?( [a-z-]+(=(\"[^\"<>]*\"|'[^'<>]*'))?)*>", "", shown)
        assert "<" not in rest


@pytest.mark.parametrize(
    ("following", "shown"),
    [
        (Next("Ask them."), "Ask them."),
        (
            Next.run("bump", "To follow it:", tag="26.04-py3", wait=True),
            "To follow it: Choose Wait for CI: True. Press",
        ),
        (Next.run("bump", "Run it:", tag="26.04-py3", mode="publish"), "Run it: Press Preview"),
        (Next.run("bump", tag="26.04-py3", repo="/x", mode="publish"), "Choose Checkout: /x, Apply: publish. Press"),
        (Next.run("review", "Make 2 decisions:"), "Make 2 decisions: Decide on the cards"),
        (Next.run("investigate-ci", place="#12"), "Open investigate-ci with Where: #12."),
    ],
)
def test_what_comes_next_is_told_in_the_words_of_the_form(following: Next, shown: str) -> None:
    assert form_views.in_form(following, "bump", {"tag": "26.04-py3"}).startswith(shown)
