"""What a notebook adds to its record."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from archives import BUMP

from runbook_lib.decisions import Decision
from runbook_lib.errors import RunbookError
from runbook_lib.model import Check, Effect, Evidence, Next, Outcome, Question
from runbook_lib.notebook import begin
from runbook_lib.pins.bump import Bump
from runbook_lib.record import recorder

PREVIEW = Bump.parse(tag="26.04-py3")
APPLY = Bump.parse(tag="26.04-py3", mode="local")


@pytest.mark.parametrize(
    ("bump", "account", "state"),
    [
        (PREVIEW, lambda _: None, "previewed"),
        (PREVIEW, lambda step: step.conclude("done", Outcome("Would change 4 lines.")), "previewed"),
        (APPLY, lambda _: None, "done"),
        (APPLY, lambda step: step.check(Check("pins", "skipped", "not looked at")), "done"),
        (APPLY, lambda step: step.check(Check("pins", "failed", "differ")), "failed"),
        (PREVIEW, lambda step: step.conclude("waiting", Outcome("Waiting for CI.")), "waiting"),
        (
            APPLY,
            lambda step: (
                step.conclude("waiting", Outcome("Waiting for CI.")),
                step.conclude("done", Outcome("It came.")),
            ),
            "done",
        ),
        (
            APPLY,
            lambda step: (step.conclude("waiting", Outcome("Waiting.")), step.check(Check("pins", "failed", "differ"))),
            "failed",
        ),
    ],
)
def test_contributions_determine_the_state(
    tmp_path: Path, bump: Bump, account: Callable[[recorder.Recorder], object], state: str
) -> None:
    step = recorder.Recorder("01-github-pin", bump, tmp_path)
    account(step)
    step.end()
    assert json.loads((tmp_path / "run.json").read_bytes())["state"] == state


def test_what_a_run_tells_is_on_the_disk(tmp_path: Path) -> None:
    step = recorder.Recorder("01-github-pin", APPLY, tmp_path)
    step.keep(Evidence({"digest": "sha256:1", "platforms": {"b", "a"}}))
    step.keep(Evidence({"base_commit": "c0ffee"}, decided=(Decision("allow", "older-tag", "a roll-back"),)))
    step.effect(Effect("push", "fork/bump", None, "c0ffee", "https://x"))
    step.check(Check("pins", "passed", "all agree"), Check("tag", "skipped", "not reachable"))
    step.warn("One file lags.", "Another too.")
    step.keep(Evidence(links={"PR": "https://github.com/o/r/pull/1", "run": "https://x"}))
    step.keep(Evidence(links={"run": None}))
    step.would("change 4 lines")
    step.would("push them", publish=True)
    step.decide(Question("broken", "a/b@h100", "it hangs", "a hang"))
    step.conclude("done", Outcome("4 lines changed.", Next.again()))
    found = json.loads((tmp_path / "run.json").read_bytes())
    assert found.pop("ended").endswith("Z")
    assert found["effects"][0].pop("at").endswith("Z")
    (told,) = found.pop("steps")
    assert {name: told[name] for name in ("name", "round", "state")} == {
        "name": "01-github-pin", "round": 1, "state": "done",
    }  # fmt: skip
    assert [told[name] for name in ("checks", "outcome")] == [found[name] for name in ("checks", "outcome")]
    assert found == {
        "version": 1,
        "state": "running",
        "inputs": {"digest": "sha256:1", "platforms": ["a", "b"], "base_commit": "c0ffee"},
        "effects": [
            {"kind": "push", "target": "fork/bump", "before": None, "after": "c0ffee", "url": "https://x"},
        ],
        "checks": [
            {"name": "pins", "status": "passed", "detail": "all agree"},
            {"name": "tag", "status": "skipped", "detail": "not reachable"},
        ],
        "exceptions": [asdict(Decision("allow", "older-tag", "a roll-back"))],
        "warnings": ["One file lags.", "Another too."],
        "links": {"PR": "https://github.com/o/r/pull/1"},
        "planned": [{"sentence": "change 4 lines", "publish": False}, {"sentence": "push them", "publish": True}],
        "decisions": [
            {"kind": "broken", "subject": "a/b@h100", "why": "it hangs", "suggestion": "a hang", "facts": {}}
        ],
        "diffs": [],
        "conditions": [],
        "mode": "local",
        "error": None,
        "parameters": {},
        "who": {},
        "outcome": {
            "sentence": "4 lines changed.",
            "next": {"because": "", "notebook": "01-github-pin", "parameters": {"tag": "26.04-py3"}},
        },
    }


def test_stores_tables_and_the_diff_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "0123456789abc")
    step = recorder.Recorder("01-github-pin", APPLY, tmp_path)
    tables = {"golden values": [{"a": 1, "b": "x,y"}, {"a": "0123456789abc"}], "../rows": [{"n": 1}, {"n": 2}]}
    step.keep(Evidence(tables=tables, diff="-old 0123456789abc\n+new\n"))
    step.conclude("done", Outcome("Used 0123456789abc."))
    assert (tmp_path / "golden-values.csv").read_text() == 'a,b\n1,"x,y"\n***,\n'
    assert (tmp_path / "rows.csv").read_text() == "n\n1\n2\n"
    assert (tmp_path / "change.diff").read_text() == "-old ***\n+new\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "change.diff", "golden-values.csv", "rows.csv", "run.json",
    ]  # fmt: skip
    assert not any(b"0123456789abc" in path.read_bytes() for path in tmp_path.iterdir())


def test_in_jupyterlab_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/x/01-pin.ipynb")
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    step = begin.open_record("01-github-pin", PREVIEW, BUMP, {})
    step.keep(Evidence(tables={"t": [{"a": 1}]}, diff="-a\n+b\n"))
    step.check(Check("pins", "failed", "differ"))
    assert step.folder is None
    assert "no record" in step.show().text
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunbookError, match=r"This check failed: pins \(differ\)\."):
        step.raise_if_failed()


def test_the_view_shows_checks_warnings_and_outcome(tmp_path: Path) -> None:
    step = recorder.Recorder("03-open-pr", APPLY, tmp_path)
    step.check(Check("label", "passed", "is set"))
    step.warn("The base has moved.")
    step.conclude("waiting", Outcome("Waiting for a maintainer.", Next("ask @ada")))
    view = step.show()
    for words in ("label", "✓ passed", "is set", "The base has moved.", "Waiting for a maintainer.", "Next: ask @ada"):
        assert words in view.text
        assert words in view.html
    assert str(tmp_path) in view.text
    step.raise_if_failed()


def test_a_run_without_an_outcome_names_what_it_has_changed() -> None:
    step = recorder.Recorder("internal-ci", APPLY)
    assert "Nothing was done." in step.show().text
    step.effect(Effect("push", "gitlab bump", None, "c0ffee"))
    step.check(Check("a pipeline", "failed", "none"))
    assert "Nothing was done" not in step.show().text
    assert "Done so far: push." in step.show().text


def test_failed_checks_are_all_named() -> None:
    step = recorder.Recorder("01-github-pin", APPLY)
    step.check(Check("a", "failed", "1"), Check("b", "passed", "2"), Check("c", "failed", "3"))
    with pytest.raises(RunbookError, match=r"These 2 checks failed: a \(1\); c \(3\)\."):
        step.raise_if_failed()


def test_reports_a_missing_record_folder(tmp_path: Path) -> None:
    step = recorder.Recorder("01-github-pin", APPLY, tmp_path)
    with pytest.raises(RunbookError, match="could not be written"):
        recorder.Recorder("01-github-pin", APPLY, tmp_path / "gone")
    step.conclude("done", Outcome("The first goes on."))
