"""The tracking issue: an open one is found by its marker or the test's whole name, a new one harms nobody."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.failures.tracking_issue import choose, marker, of_failure, review_date
from runbook_lib.pins.bump import Bump
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world.conditions.forge import IssueFiled
from runbook_lib.world.github.models import Issue

BUMP = Bump.parse(tag="26.04-py3")
BROKEN = Target("gpt3_tp1", "dgx_h100", "dev", "gpt", "it hangs")


def issue(number: int, title: str = "", body: str = "", state: str = "open", association: str = "MEMBER") -> Issue:
    return Issue.of({
        "number": number, "html_url": f"https://github.com/o/r/issues/{number}", "title": title, "body": body,
        "state": state, "labels": [], "user": {"login": "someone"}, "author_association": association,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("issues", "expected"),
    [
        ([], None),
        ([issue(1, "gpt3_tp1 hangs", state="closed")], None),
        ([issue(1, "gpt3_tp1_pp2 hangs")], None),
        ([issue(1, "old-gpt3_tp1")], None),
        ([issue(1, body="<!-- base-image-runbook:broken gpt/gpt3_tp1@dgx_gb200 --> gpt3_tp1")], None),
        ([issue(2, "gpt/gpt3_tp1: hangs"), issue(1, body="see gpt3_tp1.")], 2),
        ([issue(2, "gpt3_tp1"), issue(1, "gpt3_tp1")], 1),
        ([issue(1, "gpt3_tp1"), issue(2, body=f"{marker(BROKEN)}\n")], 2),
    ],
)
def test_the_marked_issue_is_used_else_the_oldest_that_names_the_test(
    issues: list[Issue], expected: int | None
) -> None:
    found = choose(issues, BROKEN)
    assert (found and found.number) == expected


@pytest.mark.parametrize("association", ["NONE", "CONTRIBUTOR", "FIRST_TIME_CONTRIBUTOR", "MANNEQUIN", "", "member"])
def test_a_strangers_issue_is_not_used(association: str) -> None:
    theirs = [issue(1, body=marker(BROKEN), association=association), issue(2, "gpt3_tp1", "", "open", "NONE")]
    assert choose(theirs, BROKEN) is None
    assert choose(theirs, BROKEN, "somebody") is None
    ours = issue(3, body=marker(BROKEN))
    assert choose([*theirs, ours], BROKEN) == ours
    assert choose(theirs, BROKEN, "someone") == theirs[0]  # the account of our own token


def filed(failure: Failure, broken: Target = BROKEN, *, gitlab: bool = False) -> IssueFiled:
    pull = SimpleNamespace(pull=SimpleNamespace(url="https://x/pull"))
    source = SimpleNamespace(gitlab=gitlab)
    run: Any = SimpleNamespace(bump=BUMP, pull_request=pull, url="https://x/run", tested="a" * 40, source=source)
    forge: Any = SimpleNamespace(last_author=lambda path, base: "engineer", is_assignable=lambda login: True)
    row: Any = SimpleNamespace(recipe="tests/r.yaml", scopes=[SimpleNamespace(value=it) for it in ("mr", "mr-github")])
    job, image = DiagnosedJob(failure), {"Image": "26.02-py3 → 26.04-py3"}
    return of_failure(forge, broken, job, run, None if broken.is_unit_test else row, 0, **image)


def test_a_new_issue_has_every_required_fact() -> None:
    failure = Failure(
        "gpt/gpt3_tp1 - latest", "https://x/job", "hang", "It hangs.", tuple(f"line {i}" for i in range(40))
    )
    new = filed(failure)
    for part in ("gpt/gpt3_tp1", "| Hardware | `dgx_h100` |", "26.02-py3 → 26.04-py3", "https://x/run", "https://x/job",
                 "line 29", "--scope mr-broken", "To re-enable", "`mr`, `mr-github`", "it hangs", "a" * 40,
                 "| Signature | `hang: It hangs.` |", "| Owner | `engineer` |", f"| Review by | `{review_date()}` |",
                 "Tag @NVIDIA/mcore-oncall"):  # fmt: skip
        assert part in new.body, part
    headings = re.findall(r"^\*\*(.*)\*\*$", new.body, re.MULTILINE)
    assert headings == [
        "Describe the bug", "Failing run", "Error", "Steps/Code to reproduce bug", "Additional context",
    ]  # fmt: skip
    assert "line 30" not in new.body
    internal = filed(failure, gitlab=True).body  # whose server readers of the issue may not see
    assert ("It hangs." in internal, "line 0" in internal) == (True, False)
    assert choose([issue(1, body=new.body)], BROKEN)
    assert new.title == "🐛 CI failure: gpt/gpt3_tp1@dgx_h100 (dev)"
    assert (new.assignee, new.mentions) == ("engineer", "@NVIDIA/mcore-oncall")


def test_the_issue_of_a_unit_test_names_its_node_id() -> None:
    node = "tests/unit_tests/a/test_b.py::TestC::test_d[x-1]"
    new = filed(Failure("b", "", "unit tests", "It failed."), Target(node, "", "dev", "", "wrong"))
    assert new.title == f"🐛 CI failure: {node} (dev)"
    assert f"pytest '{node}'" in new.body
    assert choose([issue(1, body=new.body)], Target(node, "", "dev"))
