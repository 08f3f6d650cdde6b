"""``runbook review``: decisions in the terminal become entries of the file."""

import io
import json
import sys
from pathlib import Path

import pytest
from archives import BUMP, record

from runbook_lib.cli.__main__ import main
from runbook_lib.decisions import Decision, Seen
from runbook_lib.record import decisions

FILE = "gpt/a/golden_values_dev_dgx_h100.json"
DANGER = {"danger": "divergence", "key": "k"}
ASKED = [
    {"kind": "accept", "subject": FILE, "why": "w", "suggestion": "", "facts": DANGER},
    {"kind": "broken", "subject": "gpt/b@dgx_h100", "why": "w", "suggestion": "it hangs"},
]


GIVEN = {"tag": "26.04-py3", "mode": "publish"}


@pytest.mark.parametrize(
    ("typed", "expected", "status"),
    [
        ("", [], 1),
        ("q\n", [], 1),
        ("\nb\n\n", [("broken", "it hangs", "")], 1),
        ("h\nask\nb\nit crashes\n", [("broken", "it crashes", ""), ("hold", "ask", "")], 0),
        ("a\nfine\nno\n\n\n", [], 1),  # a divergence needs its word
        ("x\na\nfine\ndivergence\nb\n\n", [("accept", "fine", "divergence"), ("broken", "it hangs", "")], 0),
    ],
)
def test_answers_are_written_and_the_next_command_is_named(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str,
    expected: list[tuple[str, str, str]], status: int,
) -> None:  # fmt: skip
    record(archive, "bump", "waiting", parameters=GIVEN, inputs={"a": "b"})
    record(archive, "05-golden-values", "waiting", at=1, decisions=ASKED, inputs={"a": "b"})
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["review", "--json"]) == 1
    assert [each["subject"] for each in json.loads(capsys.readouterr().out)["decisions"]] == [FILE, "gpt/b@dgx_h100"]
    assert main(["review"]) == status
    found = decisions.read(archive.joinpath(*BUMP.parts) / "decisions.yaml")
    assert [(each.kind, each.reason, each.confirm) for each in found.entries] == expected
    assert ("runbooks/bump.ipynb -r tag 26.04-py3\n" in capsys.readouterr().out) is bool(expected)


def test_what_was_decided_in_an_earlier_sitting_counts_on_the_same_values(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(archive, "bump", "waiting", parameters=GIVEN, inputs={"a": "b"})
    record(archive, "05-golden-values", "waiting", at=1, decisions=ASKED[:1], inputs={"a": "b"})
    for typed, status, told in (
        ("a\nfine\nno\nq\n", 1, "0 of 1"), ("a\nfine\ndivergence\n", 0, "1 of 1"), ("\n", 0, "Accept: “fine”"),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert main(["review"]) == status
        assert told in capsys.readouterr().out
    assert main(["review", "--json"]) == 0
    other = [ASKED[0] | {"facts": DANGER | {"key": "other"}}]
    record(archive, "05-golden-values", "waiting", at=2, decisions=other, inputs={"a": "b"})
    assert main(["review", "--json"]) == 1


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("typed", "holds"),
    [("\nb\n\n", ["image", FILE]), ("a\nfine\ndivergence\nb\n\n", ["image"])],
    ids=["left alone", "decided otherwise"],
)
def test_a_hold_stays_until_its_card_is_decided(
    archive: Path, monkeypatch: pytest.MonkeyPatch, typed: str, holds: list[str], named: bool
) -> None:
    file = archive / "mine.yaml" if named else archive.joinpath(*BUMP.parts) / "decisions.yaml"
    given = GIVEN | ({"decisions": str(file)} if named else {})
    record(archive, "05-golden-values", "waiting", decisions=ASKED, inputs={"a": "b"})
    record(archive, "bump", "waiting", at=1, parameters=given, inputs={"a": "b"})
    record(archive, "06-broken-tests", "waiting", at=2, inputs={"a": "b"})
    decisions.add(file, [Decision("hold", "image", "too large"), Decision("hold", FILE, "ask", seen=Seen("k"))])
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["review"]) == 0
    assert [each.subject for each in decisions.read(file).of("hold")] == holds


@pytest.mark.usefixtures("archive")
def test_an_archive_without_a_bump_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review"]) == 2
    assert "There is no bump in" in capsys.readouterr().err
