"""The page that tells a bump: in order, from the records alone, and small however much there is."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, READY, elements, record, words

from runbook_lib.records import timeline
from runbook_lib.records.archive import read_records
from runbook_lib.records.pages import story
from runbook_lib.records.pages.html import to_bytes
from runbook_lib.records.status import bump_status

FOLDER = Path(*BUMP.parts)
PINS = """path,line,selector,old,new,ci
docker/.ngc_version.dev,1,whole file,nvcr.io/nvidia/pytorch:26.02-py3,nvcr.io/nvidia/pytorch:26.04-py3,github
"""
DIFF = "--- a/docker/.ngc_version.dev\n+++ b/docker/.ngc_version.dev\n@@ -1 +1 @@\n-old:26.02-py3\n+new:26.04-py3\n"


def page(archive: Path) -> str:
    folder = archive / FOLDER
    found = read_records(folder)
    status = bump_status(folder, found.readable, found.unreadable)
    assert status is not None
    return story.render(folder, status, found.readable)


def executed(*images: str, kind: str = "image/svg+xml") -> str:
    outputs = [{"output_type": "display_data", "data": {kind: image, "text/plain": "A plot"}} for image in images]
    return json.dumps({"cells": [{"cell_type": "code", "outputs": outputs}]})


def effect(kind: str, target: str, before: object = None, after: object = None, url: str = "") -> dict[str, Any]:
    return {"at": "2026-04-01T00:00:01.000Z", "effect": kind, "target": target, "before": before, "after": after,
            "url": url}  # fmt: skip


# -- in order ------------------------------------------------------------------------------------------------------


def test_complete_bump_is_shown_in_order(tmp_path: Path) -> None:
    parent = record(
        tmp_path, "bump", "done", "Ready to merge.", who={"git": "Ada <ada@x>"},
        checks=[{"name": "01-github-pin", "status": "passed", "detail": "Moved."}], **READY,
    )  # fmt: skip
    record(
        tmp_path, "01-github-pin", "done", "Moved 1 value.", at=1, parent=parent, who={"git": "Ada <ada@x>"},
        inputs={"digest": "sha256:abc", "base_commit": "c0ffee"}, warnings=["docker/x lags."],
        effects=[effect("edit", "docker/.ngc_version.dev", "sha256:1", "sha256:2")],
        files={"changes.csv": PINS, "change.diff": DIFF},
    )  # fmt: skip
    record(
        tmp_path, "04-run-ci", "waiting", "waiting for a person: CI run 5 failed", at=2, parent=parent,
        links={"CI run": "https://ci/5"}, warnings=["docker/x lags."],
        checks=[{"name": "CI passed", "status": "waiting", "detail": "waiting for a person: CI run 5 failed"}],
    )  # fmt: skip
    record(
        tmp_path, "06-broken-tests", "done", "Marked 1 test broken.", at=3, parent=parent,
        parameters={"resolved": {"broken": "gpt_long@dgx_h100: it hangs; other: never seen"}},
        inputs={"quarantined": [{"test": "gpt/gpt_long@dgx_h100", "reason": "it hangs", "issue": 11,
                                 "url": "https://x/11"}],
                "reenabled": [{"test": "gpt/gpt_short@dgx_h100", "reason": "fixed in #12"}]},
        effects=[effect("issue", "#11", None, "gpt/gpt_long hangs", "https://x/11")],
        files={"failures.csv": "job,class,cause,url\ngpt/gpt_long,hang,No output for an hour,https://ci/job/3\n"},
    )  # fmt: skip
    record(
        tmp_path, "05-golden-values", "done", "Refreshed 2 files.", at=4, parent=parent,
        exceptions=[{"at": "2026-04-01T00:04:10.000Z", "exception": "accept a/b.json", "reason": "diverges: known",
                     "danger": "divergence"}],
        files={"executed.ipynb": executed("<svg/>"),
               "verdicts.csv": "file,verdict,reasons,accepted\na/b.json,refresh,up to 0.9,known\nc/d.json,refresh,,\n"},
    )  # fmt: skip
    text = page(tmp_path)
    told = words(text)
    expected = [
        "Base image 26.02-py3 → 26.04-py3 (dev) on main",
        "✓ ready since 2026-04-01 00:00:30 UTC: Ready to merge.",
        "CI run https://ci/5", "Ada <ada@x>", "Decisions by people",
        "quarantined gpt/gpt_long@dgx_h100 as broken, with the issue #11 it hangs 2026-04-01 00:03:00",
        "re-enabled gpt/gpt_short@dgx_h100 fixed in #12 2026-04-01 00:03:00",
        "accepted the new values of a/b.json, a divergence diverges: known 2026-04-01 00:04:10",
        "Moved pins", "docker/.ngc_version.dev:1 whole file nvcr.io/nvidia/pytorch:26.02-py3",
        "Before the merge", "a green CI run of the head commit ✓ met Run 5.",
        "All facts", "o/r, branch main", "26.04-py3 (dev) sha256:abc", "issue #11 https://x/11", "c0ffee",
        "What happened", "1. bump", "01-github-pin: ✓ done", "Moved 1 value.",
        "Edited docker/.ngc_version.dev: sha256:1 → sha256:2.", "docker/x lags.", "+new:26.04-py3",
        "04-run-ci: … waiting", "waiting for a person: CI run 5 failed",
        "06-broken-tests: ✓ done", "Opened issue #11: gpt/gpt_long hangs. https://x/11",
        "gpt/gpt_long hang No output for an hour",
        "05-golden-values: ✓ done", "a/b.json refresh up to 0.9 known", "A plot",
        "✓ done: Ready to merge.",
    ]  # fmt: skip
    # What folds is closed, but for the summary; no link leads to a file that is not attached with the page.
    folds = [attributes for tag, attributes in elements(text) if tag == "details"]
    assert [attributes.get("id") for attributes in folds if "open" in attributes] == [
        "section-1",
        "section-2",
        "section-3",
    ]
    assert len(folds) == 5
    links = [attributes["href"] for tag, attributes in elements(text) if tag == "a"]
    assert all(link.startswith(("#", "https://")) for link in links)
    position = 0
    for part in expected:
        found = told.find(part, position)
        assert found >= 0, (part, told[position:])
        position = found + len(part)
    # Each is told once, and only what is more than refreshed.
    assert told.count("docker/x lags.") == 1
    assert told.count("waiting for a person: CI run 5 failed") == 1
    assert "c/d.json" not in told
    assert "never seen" not in told
    images = [attributes for tag, attributes in elements(text) if tag == "img"]
    assert [(it["alt"], it["src"]) for it in images] == [
        ("A plot", f"data:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode()}")
    ]


# -- folded --------------------------------------------------------------------------------------------------------


def test_repeated_runs_are_folded(tmp_path: Path) -> None:
    for at in range(13):
        sentence = f"waiting for CI run 5 ({at} of 20 jobs done)"
        outcome = {"sentence": sentence, "next": "", "reason": "waiting for CI run 5"}
        record(tmp_path, "04-run-ci", "waiting", at=at, outcome=outcome)
    record(tmp_path, "04-run-ci", "done", "CI run 5 passed.", at=20)
    told = words(page(tmp_path))
    assert (
        "12 more runs with the same result, the last on 2026-04-01 00:12:00 UTC: waiting for CI run 5 (12 of 20" in told
    )
    assert "2. 04-run-ci" in told
    assert "3. " not in told


NOT_FOLDED: dict[str, dict[str, Any]] = {
    "another outcome": {"sentence": "Waits for CI 2."},
    "another state": {"state": "failed"},
    "another notebook": {"notebook": "05-golden-values"},
    "an effect": {"effects": [effect("push", "origin b", None, "c0ffee")]},
    "one that runs": {"state": "running"},
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_run_that_differs_is_not_folded(tmp_path: Path, name: str) -> None:
    same: dict[str, Any] = {"notebook": "04-run-ci", "state": "waiting", "sentence": "Waits for CI 1."}
    record(tmp_path, **same)
    record(tmp_path, **(same | NOT_FOLDED[name]), at=1)
    entries = timeline.entries(read_records(tmp_path / FOLDER).readable)
    assert [len(entry.repetitions) for entry in entries] == [0, 0]


def test_unchanged_steps_are_only_named(tmp_path: Path) -> None:
    for at in (0, 10):
        parent = record(tmp_path, "bump", "waiting", f"Waits {at}.", at=at)
        record(tmp_path, "00-preflight", "done", "All is well.", at=at + 1, parent=parent)
        record(tmp_path, "04-run-ci", "waiting", f"CI {at}.", at=at + 2, parent=parent)
    told = words(page(tmp_path))
    assert told.count("All is well.") == 1
    assert "04-run-ci-00000012/report.html CI 10. Unchanged: 00-preflight." in told


def test_previews_show_only_their_outcome(tmp_path: Path) -> None:
    for at in (0, 10):
        parent = record(tmp_path, "bump", "previewed", "4 values would move.", at=at)
        record(tmp_path, "01-pin", "previewed", "Two of them.", at=at + 1, parent=parent)
    told = words(page(tmp_path))
    assert "1. bump, as a preview" in told
    assert "1 more run with the same result" in told
    assert "Two of them." not in told
    assert "Decisions by people" not in told


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (effect("edit", "a.yml", None, "sha256:2"), "Edited a.yml: a new file → sha256:2."),
        (effect("branch", "bump/x", None, "c0ffee"), "Created branch bump/x at c0ffee."),
        (effect("commit", "bump/x", "b" * 40, "a" * 40), f"Committed {'a' * 10} on bump/x, after {'b' * 10}."),
        (effect("merge", "bump/x", "one", "two"), "Merged the base into bump/x: one → two."),
        (effect("push", "origin bump/x", None, "two"), "Pushed to origin bump/x: new branch → two."),
        (effect("pull request", "#7", None, "chore: move"), "Opened pull request #7: chore: move."),
        (
            effect("pull request", "#7 text", "a\nb", "a\nc\nd"),
            "Changed the description of #7: 2 lines added, 1 removed.",
        ),
        (effect("label", "#7 Run tests", False, True), "Set the label Run tests on #7."),
        (effect("label", "#7 Run tests", True, False), "Removed the label Run tests from #7."),
        (effect("comment", "#7", None, f"/ok to test {'a' * 40}"), f"Commented on #7: /ok to test {'a' * 10}"),
        (effect("issue", "#8", None, "It hangs"), "Opened issue #8: It hangs."),
        (effect("rerun", "CI run 5", 1, 2), "Reran CI run 5: attempt 2, after 1."),
        (effect("reset", "a.json", "git blob x", "y"), "Reverted a.json: git blob x → y."),
        (effect("something new", "there", None, "now"), "something new there: nothing → now."),
        ({}, "  : nothing → nothing.".strip()),
        (effect("edit", "a", "b" * 500, ["c", 1]), f"Edited a: {'b' * 160} … → c, 1."),
    ],
)
def test_effects_are_described(given: dict[str, Any], sentence: str) -> None:
    assert timeline.describe_effect(given).strip() == sentence


# -- small, and harmless -------------------------------------------------------------------------------------------


def test_story_stays_below_a_megabyte_and_names_what_it_omits(tmp_path: Path) -> None:
    for at in range(40):
        plots = [f"<svg>{at} {number} {'x' * 40_000}</svg>" for number in range(2)]
        lines = "".join(f"+{at} {number}\n" for number in range(300))
        record(
            tmp_path, "05-golden-values", "done", f"Round {at}.", at=at, warnings=["ü" * 20_000 + str(at)],
            files={"executed.ipynb": executed(*plots), "change.diff": f"--- a/x\n+++ b/x\n@@ -0,0 +1,300 @@\n{lines}"},
        )  # fmt: skip
    text = page(tmp_path)
    assert len(text.encode()) < 1_000_000
    told = words(text)
    assert "2 plots omitted: see 20260401" in told
    assert "The change (1 file, 303 lines: 20260401" in told
    assert "… and 263 more lines." in told
    assert "Details omitted: see the record." in told
    assert [told.count(f"Round {at}.") > 0 for at in (0, 39)] == [True, True]


LONG = ("x" * 2_000_000, '"' * 100_000, "\U0001f600" * 100_000)
HEAD = PINS.partition("\n")[0] + "\n"
PIN = "d/{},1,whole file,nvcr.io/nvidia/pytorch:26.02-py3,nvcr.io/nvidia/pytorch:26.04-py3,github\n"
#: What is there too much of, and what the page says of the rest.
TOO_MUCH: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    **{
        f"sentences of {text[:9]}": (
            {"outcome": {"sentence": f"It failed. {text}", "next": text}},
            ("It failed.", "… (all of it in the record)"),
        )
        for text in LONG
    },
    "checks": (
        {"inputs": {"requirements": [{"kind": f"{it}", "evidence": "x" * 5_000} for it in range(400)]}},
        ("… and 200 more: see run.json of that run's record.",),
    ),
    "facts": (
        {"links": {f"CI run {it}": f"https://ci/{it}/{'x' * 300}" for it in range(1_000)}},
        ("CI run 3", "more facts omitted: see run.json of the records."),
    ),
    "decisions": (
        {"exceptions": [{"exception": f"accept {it}", "reason": '"' * 9_000} for it in range(60)]},
        ("more: see the records.", "… and 10 older: see the records."),
    ),
    "pins": (
        {"files": {"changes.csv": HEAD + "".join(PIN.format(it) for it in range(3_000))}},
        ("d/3:1", "… and 2800 more: see changes.csv of the records."),
    ),
    "effects": ({"effects": [effect("push", "y" * 9_000)] * 300}, ("Details omitted: see the record.",)),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_excess_is_omitted_and_named(tmp_path: Path, name: str) -> None:
    fields, expected = TOO_MUCH[name]
    record(tmp_path, "bump", "failed", **({"effects": [effect("push", "origin b")]} | fields))
    text = page(tmp_path)
    assert len(to_bytes(text)) < 1_000_000
    for sentence in expected:
        assert sentence in words(text)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    made = record(tmp_path, "05-golden-values", "done", "Refreshed.")
    (tmp_path / "outside").write_text(DIFF)
    (tmp_path / FOLDER / made / "change.diff").symlink_to(tmp_path / "outside")
    assert "new:26.04-py3" not in page(tmp_path)
