"""``runbook review``: decisions in the terminal become the parameters of the next run."""

import io
import sys
from pathlib import Path

import pytest
from archives import record

from runbook_lib.cli.__main__ import main
from runbook_lib.runner import papermill

FILE = "gpt/a/golden_values_dev_dgx_h100.json"
ASKED = [
    {"parameter": "accept", "name": FILE, "why": "w", "suggestion": "", "facts": {"danger": "divergence", "key": "k"}},
    {"parameter": "broken", "name": "gpt/b@dgx_h100", "why": "w", "suggestion": "it hangs"},
]
GIVEN = {"given": {"tag": "26.04-py3", "mode": "publish"}, "resolved": {"tag": "26.04-py3", "mode": "publish"}}


@pytest.mark.parametrize(
    ("typed", "expected", "status"),
    [
        ("", None, 1),
        ("q\n", None, 1),
        ("j\nb\n\n", {"broken": "gpt/b@dgx_h100: it hangs"}, 1),
        ("h\nask\nb\nit crashes\n", {"hold": f"{FILE}: ask", "broken": "gpt/b@dgx_h100: it crashes"}, 0),
        ("a\nfine\nno\nj\n", None, 1),  # a divergence needs its word
        (
            "a\nfine\ndiverges\nk\nx\nj\nb\n\n",
            {"accept": f"{FILE}: diverges: fine", "broken": "gpt/b@dgx_h100: it hangs"},
            0,
        ),
    ],
)
def test_answers_become_the_parameters_of_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, expected: dict[str, str] | None, status: int
) -> None:
    record(tmp_path, "bump", "waiting", parameters=GIVEN, inputs={"a": "b"})
    record(tmp_path, "05-golden-values", "waiting", at=1, decisions=ASKED, inputs={"a": "b"})
    runs: list[list[str]] = []
    monkeypatch.setattr(papermill, "main", lambda arguments: runs.append(arguments) or 0)
    confirmation = "26.04-py3\n" if expected else ""
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed + confirmation))
    assert main(["review", "--audit", str(tmp_path)]) == status
    if expected is None:
        assert runs == []
        return
    ((_, *arguments),) = runs
    values = dict(zip(arguments[1::3], arguments[2::3], strict=True))
    assert values == {"tag": "26.04-py3"} | expected


@pytest.mark.parametrize(
    ("typed", "holds"),
    [
        ("j\nb\n\n26.04-py3\n", "the image: too large; " + FILE + ": ask"),
        ("a\nfine\ndiverges\nb\n\n26.04-py3\n", "the image: too large"),
    ],
    ids=["left alone", "decided otherwise"],
)
def test_a_hold_stays_until_its_card_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, holds: str
) -> None:
    hold = f"{FILE}: ask; the image: too large"
    given = {"given": {"tag": "26.04-py3", "hold": hold}, "resolved": {"tag": "26.04-py3", "hold": hold}}
    record(tmp_path, "05-golden-values", "waiting", decisions=ASKED, inputs={"a": "b"})
    record(tmp_path, "bump", "waiting", at=1, parameters=given, inputs={"a": "b"})
    record(tmp_path, "06-broken-tests", "waiting", at=2, inputs={"a": "b"})
    runs: list[list[str]] = []
    monkeypatch.setattr(papermill, "main", lambda arguments: runs.append(arguments) or 0)
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["review", "--audit", str(tmp_path)]) == 0
    ((_, *arguments),) = runs
    assert dict(zip(arguments[1::3], arguments[2::3], strict=True))["hold"] == holds


def test_an_archive_without_a_bump_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review", "--audit", str(tmp_path / "none")]) == 1
    assert "There is no bump in" in capsys.readouterr().err
