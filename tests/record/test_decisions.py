"""The file of decisions: what a person wrote stays, an entry is bound once, and errors name the line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from runbook_lib.decisions import Decision, Seen
from runbook_lib.errors import RunbookError
from runbook_lib.model import Question
from runbook_lib.record import decisions
from runbook_lib.text import user_file

WRITTEN = """\
# mine
accept:
  - {file: moe/a/golden_values_x.json, reason: "known, see #5"}  # why
  - {platform: dgx_h100, metric: iteration-time, confirm: slower, reason: "new cuBLAS"}

# the tests
broken: [{test: gpt3@dgx_h100, reason: hangs, issue: 123}]
rerun: [{test: mimo_vlm@dgx_h100}]
"""
FILE, GROUP, TEST = "moe/a/golden_values_x.json", "dgx_h100/iteration-time", "gpt3@dgx_h100"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.yaml"
    path.write_text(WRITTEN)
    return path


def test_the_entries_of_a_file_are_decisions(file: Path) -> None:
    found = decisions.read(file)
    assert [(each.kind, each.subject, each.line) for each in found.entries] == [
        ("accept", FILE, 3), ("accept", GROUP, 4), ("broken", TEST, 7), ("rerun", "mimo_vlm@dgx_h100", 8),
    ]  # fmt: skip
    assert (found.entries[1].confirm, found.entries[2].issue) == ("slower", 123)
    assert decisions.read(file.with_name("none.yaml")).entries == ()
    with pytest.raises(RunbookError, match=r"none\.yaml cannot be read"):
        decisions.read(file.with_name("none.yaml"), must_exist=True)


def test_an_entry_counts_for_the_evidence_that_it_is_bound_to(file: Path) -> None:
    seen, other = Seen("a", 12, 1), Seen("b", 13, 1)
    found = decisions.read(file)
    used = found.decided("accept", FILE, seen)
    assert used
    assert used.seen == seen
    decisions.bind(found, [used])
    bound = decisions.read(file)
    assert bound.decided("accept", FILE, Seen("a", 99))
    assert bound.decided("accept", FILE, other) is None
    again = Question("accept", FILE, "It is slower.", facts={"key": "b"}).after(bound)
    assert again.why.startswith("It is slower. Decided before by ")
    assert "run 12, attempt 1" in str(again.facts["before"])
    for asked in (Question("accept", FILE, "", facts={"key": "a"}), Question("accept", GROUP, "", facts={"key": "b"})):
        assert asked.after(bound) == asked
    assert "remove `seen` from line 3" in bound.advice("accept", FILE)
    decisions.bind(found, [Decision("accept", FILE, seen=other)])  # another process has bound it meanwhile
    assert decisions.read(file).entries == bound.entries


def test_what_a_person_wrote_stays(file: Path) -> None:
    found = decisions.read(file)
    decisions.bind(found, [replace(each, seen=Seen("a")) for each in found.entries[:1]])
    decisions.add(
        file, [Decision("hold", "loss", "no"), Decision("accept", GROUP, "again")], [("rerun", "mimo_vlm@dgx_h100")]
    )
    text = file.read_text()
    for kept in (
        "# mine\naccept:\n  - {file: ",
        "# why",
        "# the tests\nbroken: [{test: gpt3@dgx_h100, reason: hangs, issue: 123}]",
    ):
        assert kept in text
    found = decisions.read(file)
    assert [(each.kind, each.subject, each.reason) for each in found.entries] == [
        ("accept", FILE, "known, see #5"), ("accept", GROUP, "again"), ("broken", TEST, "hangs"),
        ("hold", "loss", "no"),
    ]  # fmt: skip
    assert all(each.by and each.at for each in found.entries if each.kind != "broken")


def test_comments_at_the_ends_of_lines_join_no_lines(file: Path) -> None:
    file.write_text(f"accept:  # mine\n- {{file: {FILE}, reason: known}} # tail\n")
    decisions.add(file, [Decision("accept", GROUP, "again")])
    assert [each.subject for each in decisions.read(file).entries] == [FILE, GROUP]


def test_reasons_are_written_and_read_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "a-secret-of-mine")
    file = tmp_path / "new" / "decisions.yaml"
    decisions.add(file, [Decision("hold", "loss", "see a-secret-of-mine")])
    assert "a-secret" not in file.read_text()
    assert decisions.parse("hold: [{what: a, reason: a-secret-of-mine}]", "f").entries[0].reason == "***"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("accept: [{file: a.json}]", "f:1: an entry of accept is missing reason"),
        ("accepted: []", "unknown key 'accepted'.*did you mean accept"),
        ("hold:\n- what: a\n  reason: b\n- what: a\n  reason: c", "f:4: a is decided twice .see line 2"),
        ("broken: [{test: a@b, reason: c}]\nrerun: [{test: a@b}]", "a@b is decided twice .see line 1, under broken"),
        ("allow: [{what: older-tags, reason: a}]", "older-tags.*did you mean older-tag"),
        ("allow: [{what: foreign-commit, reason: a}]", "needs the full ID"),
        ("allow: [{what: foreign-commit, commit: 0123abc, reason: a}]", "expected a full commit ID"),
        (f"allow: [{{what: older-tag, commit: '{'a' * 40}', reason: a}}]", "nothing else takes one"),
        ("accept: [{file: a, reason: no}]", "reason is False; expected a text, in quotes"),
        ("accept: [{file: a, platform: b, metric: c, reason: d}]", "either a file, or a platform"),
        ("accept: [{platform: b, reason: d}]", "either a file, or a platform"),
        ("broken: [{test: 'a b', reason: c}]", "expected a test as case@platform"),
        ("accept: {file: a}", "expected a list such as"),
        ("- a", "not a mapping"),
        ("a: [", "does not parse as YAML"),
    ],
)
def test_what_is_no_decision_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RunbookError, match=problem):
        decisions.parse(text, "f")


def test_the_guide_describes_every_exception() -> None:
    schema = user_file.load_schema("runbook_lib.record", "decisions.schema.json")
    guide = Path(__file__).resolve().parents[2].joinpath("docs/decisions.md").read_text().partition("| permits to |")[2]
    named = re.findall("(?m)^[|] `([a-z-]+)`", guide)
    assert schema["properties"]["allow"]["items"]["properties"]["what"]["enum"] == sorted(named)
