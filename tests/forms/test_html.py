"""What a form shows of a run."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.checks import Next
from runbook_lib.forms import html
from runbook_lib.records.cards import Card
from runbook_lib.records.run_view import RunView

PLANNED = ({"sentence": "change 2 lines", "publish": False}, {"sentence": "push the branch", "publish": True})


def run(state: str = "previewed", **more: Any) -> RunView:
    given = {"sentence": "Preview.", "next": Next(), "planned": (), "decisions": (), "links": {}} | more
    return RunView(Path("/audit/x"), "bump", state, "2026-01-01T00:00:00.000Z", parameters={}, process={}, **given)


def words(markup: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", markup).split())


def test_plan_separates_local_changes_from_public_ones() -> None:
    here = "Apply will, in the checkout on this machine: change 2 lines"
    shown = words(html.plan(run(planned=PLANNED), publish=True, practice=False))
    assert f"{here} Apply will also, outside this machine: push the branch" in shown
    shown = words(html.plan(run(planned=PLANNED), publish=False, practice=False))
    assert f"{here} Not done, because Publish is not selected: push the branch" in shown
    shown = words(html.plan(run(planned=PLANNED), publish=True, practice=True))
    assert "in the practice forge (nothing leaves this machine): push the branch" in shown


@pytest.mark.parametrize("count", [0, 1, 3])
def test_plan_begins_with_the_number_of_open_decisions(count: int) -> None:
    shown = words(html.plan(run(planned=PLANNED), publish=True, practice=False, open_cards=count))
    assert shown.startswith(f"{count} decision" if count else "Apply will")


def test_plan_without_changes_shows_the_reason() -> None:
    shown = words(html.plan(run(sentence="waiting for CI"), publish=True, practice=False))
    assert shown.startswith("Apply will change nothing now: waiting for CI")


def test_progress_is_described() -> None:
    preflight = replace(run("done", sentence="ok"), notebook="00-preflight")
    warned = replace(preflight, warnings=("Look.",))
    steps = (warned, run("waiting", sentence="an earlier round"), run("running", sentence=""))
    shown = words(html.progress(run("running", steps=steps), "one\n⚠ done  00-preflight: ok\ntwo\n", 3.2, 3))
    assert shown == "1 of 3 steps, 3 s ⚠ done 00-preflight: ok ▸ running bump two"
    # What was printed before a step ended says nothing about the next one.
    for end in ("✓ done  00-preflight: ok", "    ⚠ Look."):
        assert "early" not in html.progress(run("running", steps=(preflight,)), f"early\n{end}\n", 3.2, 3)
    following = (*steps, replace(run("running"), notebook="04-run-ci", progress={"done": 3, "total": 7}))
    shown = html.progress(run("running", steps=following), "one\n", 83, 3)
    assert shown.count("<progress") == 1
    assert words(shown).startswith("3 of 7 jobs, 1 min 23 s")
    assert html.progress_label(None, 3) == "0 of 3 steps done"
    assert html.progress_label(run("running", steps=steps), 3) == "1 of 3 steps done"
    assert html.progress_label(run("running", steps=steps), 0) == "running"


@pytest.mark.parametrize("view", [lambda told: html.plan(told, publish=False, practice=True), html.result])
def test_warnings_of_steps_are_shown_once(view: Callable[[RunView], str]) -> None:
    steps = (run("done", warnings=("Look.", "<b>")), replace(run("done", warnings=("Look.",)), notebook="07"))
    shown = view(run("done", warnings=("Read the warnings.",), steps=steps))
    assert words(shown).count("Warnings: Look. &lt;b&gt;") == shown.count("Look.") == 1
    assert words(view(run("failed", warnings=("Look.",)))).count("Look.") == 1


def test_long_diff_is_truncated(tmp_path: Path) -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,3000 +1,3000 @@\n" + "+line\n" * 3000
    (tmp_path / "change.diff").write_text(diff)
    shown = html.plan(replace(run(), folder=tmp_path), publish=True, practice=True)
    assert shown.count("line") < 2100
    assert "1003 more lines" in shown


def test_golden_files_are_summarized_and_code_is_shown(tmp_path: Path) -> None:
    golden = "--- a/x/golden_values_dev.json\n+++ b/x/golden_values_dev.json\n@@ -1,2 +1,1 @@\n-10.5\n-10.6\n+20.5\n"
    (tmp_path / "change.diff").write_text(golden + "--- a/y\n+++ b/y\n@@ -1 +1 @@\n-old\n+new\n")
    shown = words(html.plan(replace(run(), folder=tmp_path), publish=True, practice=True))
    assert "20.5" not in shown
    assert "x/golden_values_dev.json: 1 line added, 2 removed" in shown
    assert "-old" in shown


def test_next_action_fits_the_form() -> None:
    assert "decisions listed above" in words(html.result(run("waiting", next=Next("Merge it.")), open_cards=1))
    assert "Next: Merge it." in words(html.result(run("waiting", decisions=({"name": "x"},), next=Next("Merge it."))))
    assert "Next: Merge it." in words(html.result(run("done", next=Next("Merge it.")), open_cards=1))
    assert "Next: Fix it." in words(html.result(run("failed", next=Next("Fix it."))))


def test_result_names_the_record_and_the_next_action() -> None:
    shown = words(html.result(run("waiting", sentence="waiting for CI", next=Next("Run again."))))
    assert shown.startswith("… waiting: waiting for CI Next: Run again.")
    assert shown.endswith("Record: /audit/x")
    assert "decisions listed above" in html.result(run("waiting", next=Next("-r accept …")), open_cards=1)


@pytest.mark.parametrize(
    ("root", "base_url", "link"),
    [
        ("/home/ada", "/", "/files/audit/x%20y/report.html"),
        ("/home/ada", "/user/ada/", "/user/ada/files/audit/x%20y/report.html"),
        ("/elsewhere", "/", ""),
    ],
)
def test_result_links_the_report_as_the_server_stores_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: str, base_url: str, link: str
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JPY_PARENT_PID", "123")
    (tmp_path / "jpserver-123.json").write_text(json.dumps({"root_dir": root, "base_url": base_url}))
    shown = html.result(replace(run(), folder=Path("/home/ada/audit/x y")))
    assert re.findall(r'href="(.*?)"', shown) == [link] * bool(link)


@given(st.text())
def test_untrusted_text_is_escaped(text: str) -> None:
    steps = (run("failed", sentence=text),)
    told = run("failed", sentence=text, next=Next(text), planned=({"sentence": text, "publish": True},), steps=steps)
    for shown in (
        html.error(text), html.problem(text), html.hint(text), html.progress(told, text, 0),
        html.plan(told, publish=True, practice=False), html.result(told), html.card_state(None, text, text),
        html.card(Card("x", text, text, ((text, text),), (), lines=(text,), log=text, files=(text,), command=text)),
    ):  # fmt: skip
        rest = re.sub(r"</?[a-z]+4?( [a-z-]+(=(\"[^\"<>]*\"|'[^'<>]*'))?)*>", "", shown)
        assert "<" not in rest
