"""Commands are found in new comments of people alone, as their first line; runs lead to their pull requests."""

from typing import Any

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.workflow import events

REPOSITORY = "practice/Megatron-LM"


def comment(body: str | None, **changes: Any) -> dict[str, Any]:
    user = {"login": "release-engineer", "type": "User"}
    written = {"body": body, "user": user, "html_url": "https://x/1"} | changes.pop("comment", {})
    return {
        "action": "created", "comment": written, "issue": {"number": 7, "pull_request": {}}, "sender": user,
        "repository": {"full_name": REPOSITORY},
    } | changes  # fmt: skip


@pytest.mark.parametrize(
    "document",
    [
        comment(None),
        comment(""),
        comment("bump status"),
        comment("> /bump status"),
        comment(" /bump status"),
        comment("    /bump status"),
        comment("\n/bump status"),
        comment("```\n/bump status\n```"),
        comment("`/bump status`"),
        comment("Please /bump status"),
        comment("/bump status please"),
        comment("/bump hold"),
        comment("/bump hold "),
        comment("/bump  status"),
        comment("/Bump status"),
        comment("/bump statuses"),
        comment("\ufeff/bump status"),
        comment("\u200b/bump status"),
        comment("/bump\u00a0status"),
        comment("/bump status\u2028/bump revert"),
        comment("/bump status\x0bmore"),
        comment("/bump revert\rmore"),
        comment("<!-- x -->/bump status"),
        comment("/bump status", action="edited"),
        comment("/bump status", action="deleted"),
        comment("/bump status", issue={"number": 7}),
        comment("/bump status", repository={"full_name": "other/Megatron-LM"}),
        comment("/bump status", comment={"user": {"login": "x[bot]", "type": "Bot"}}),
        comment("/bump status", comment={"user": None}),
        comment("/bump status", sender={"login": "somebody-else", "type": "User"}),
        {"repository": {"full_name": REPOSITORY}, "action": "opened"},
    ],
)
def test_everything_else_is_data(document: dict[str, Any]) -> None:
    assert events.parse(document, REPOSITORY) is None


@pytest.mark.parametrize(
    ("body", "name", "text"),
    [
        ("/bump status", "status", ""),
        ("/bump status  \r\nThanks!", "status", ""),
        ("/bump refresh\n\n> /bump revert", "refresh", ""),
        ("/bump hold no driver\tyet ", "hold", "no driver yet"),
        ("/bump revert", "revert", ""),
        ("/bump revert NCCL hangs", "revert", "NCCL hangs"),
    ],
)
def test_a_command_is_the_first_line(body: str, name: str, text: str) -> None:
    event = events.parse(comment(body), "Practice/megatron-lm")
    assert event
    assert event.command
    assert (event.number, event.command.name, event.command.text) == (7, name, text)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({"head_branch": "pull-request/12"}, (12, "")),
        ({"head_branch": "x", "pull_requests": [{"number": 3}]}, (3, "")),
        ({"head_branch": "bump/main/dev-1", "head_repository": {"owner": {"login": "me"}}}, (0, "me:bump/main/dev-1")),
        ({"head_branch": "main", "pull_requests": []}, None),
        ({"head_branch": None}, None),
    ],
)
def test_a_run_leads_to_its_pull_request(run: dict[str, Any], expected: tuple[int, str] | None) -> None:
    event = events.parse({"workflow_run": run, "repository": {"full_name": REPOSITORY}}, REPOSITORY)
    assert (event and (event.number, event.head)) == expected


@pytest.mark.parametrize(
    "document", [None, [], "x", {}, {"repository": {}}, comment("/bump status", comment={"user": 3})]
)
def test_other_documents_are_refused(document: object) -> None:
    with pytest.raises(RunbookError, match="not from GitHub"):
        events.parse(document, REPOSITORY)
