"""What runs, jobs, labels and copy-pr-bot's comments mean."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from runbook_lib.world.github.ci_status import WORKFLOW, choose, judge, labels_at, wrong_tests
from runbook_lib.world.github.copy_pr_bot import commands, complaint, is_refused
from runbook_lib.world.github.models import Comment, LabelEvent, WorkflowJob, WorkflowRun

NOON = datetime(2026, 4, 1, 12, tzinfo=UTC)
HEAD, OTHER = "a1" * 20, "b2" * 20
RUN = WorkflowRun(123, "https://x/123", WORKFLOW, HEAD, "pull-request/7", "in_progress", "", 1, NOON)
JOB = WorkflowJob(1, "https://x/job", "gpt/a - latest", "completed", "success", NOON, NOON)
BAD = replace(JOB, name="gpt/b - latest", conclusion="failure")
BUSY = replace(JOB, name="gpt/c - latest", status="in_progress", conclusion="")
HELD = replace(JOB, name="cicd-wait-in-queue", status="waiting", conclusion="")


@pytest.mark.parametrize(
    ("run", "jobs", "state", "words"),
    [
        (None, (), "none", "waiting for a CI run of a1a1a1a1a1 to start"),
        (replace(RUN, status="queued"), (), "queued", "waiting for CI run 123 of a1a1a1a1a1 (queued since "),
        (replace(RUN, status="requested"), (), "queued", "(queued since "),
        (RUN, (), "running", "(no job yet)"),
        (RUN, (JOB, HELD), "waiting", "(in the test queue since "),
        (replace(RUN, status="waiting"), (JOB,), "waiting", "test queue"),
        (RUN, (JOB, BUSY, HELD), "running", "(1 of 3 jobs done)"),
        (RUN, (JOB, BAD, BUSY), "running", "(2 of 3 jobs done, 1 failed)"),
        (replace(RUN, status="completed", conclusion="success"), (JOB, JOB), "passed", "passed (2 success)."),
        (replace(RUN, status="completed", conclusion="failure"), (JOB, BAD), "failed", "failed (gpt/b - latest)"),
        (replace(RUN, status="completed", conclusion="timed_out"), (), "failed", "no failed job"),
        (
            replace(RUN, status="completed", conclusion="failure"),
            (replace(BAD, conclusion="cancelled"),), "failed", "(gpt/b - latest)",
        ),
        (
            replace(RUN, status="completed", conclusion="failure"),
            tuple(replace(BAD, name=f"job {n}") for n in range(12)), "failed", "and 9 more",
        ),
        (replace(RUN, status="completed", conclusion="cancelled"), (BAD,), "cancelled", "was cancelled"),
        (replace(RUN, status="completed", conclusion="neutral"), (), "unknown", "neutral"),
    ],
)  # fmt: skip
def test_the_state_of_a_run(run: WorkflowRun | None, jobs: tuple[WorkflowJob, ...], state: str, words: str) -> None:
    found = judge(run, jobs, HEAD)
    assert (found.state, words in found.text) == (state, True), found.text
    assert found.is_over == (state not in ("none", "queued", "waiting", "running"))
    assert bool(found.next) == (state != "passed")


@pytest.mark.parametrize(
    ("bad", "notebook"),
    [(BAD, "05-golden-values"), (replace(BAD, name="tests/unit_tests/models - latest"), "06-broken-tests")],
)
def test_a_red_unit_test_comes_before_golden_values(bad: WorkflowJob, notebook: str) -> None:
    assert judge(replace(RUN, status="completed", conclusion="failure"), (JOB, bad), HEAD).next.notebook == notebook


def test_a_run_with_other_tests_is_useless_however_it_ends() -> None:
    found = judge(replace(RUN, status="completed", conclusion="success"), (JOB,), HEAD, "without the label 'x'")
    assert found.state == "useless"
    assert "without the label 'x'" in found.sentence


def test_only_the_newest_run_of_the_workflow_on_that_commit_counts() -> None:
    later = replace(RUN, id=200, created=NOON + timedelta(hours=1))
    others = [replace(RUN, id=300, name="Copyright"), replace(RUN, id=400, head_sha=OTHER)]
    assert choose([RUN, later, *others], HEAD) == later
    assert choose(others, HEAD) is None


def test_which_labels_choose_the_wrong_tests() -> None:
    functional, lts = "Run functional tests", "container::lts"
    for labels, of_dev, of_lts in (
        ({functional}, "", f"without the label {lts!r}"),
        ({functional, "complexity: low", "Run MBridge tests"}, "", f"without the label {lts!r}"),
        ({"Run tests", lts}, f"without the label {functional!r} and with the label 'Run tests'", None),
        ({functional, "Run tests"}, "with the label 'Run tests'", None),
        ({functional, lts}, f"with the label {lts!r}", ""),
    ):
        found = wrong_tests(labels, "dev"), wrong_tests(labels, "lts")
        assert (found[0].startswith(of_dev), of_lts in (None, found[1])) == (True, True), found
        assert bool(found[0]) == bool(of_dev)


def test_the_labels_of_a_moment() -> None:
    def change(minutes: int, label: str, on: bool) -> LabelEvent:
        return LabelEvent(label, on, NOON + timedelta(minutes=minutes))

    story = [change(-9, "early", True), change(0, "now", True), change(5, "late", True), change(6, "gone", False)]
    assert labels_at({"early", "now", "late", "kept"}, story, NOON) == {"early", "now", "kept", "gone"}
    back = [*story, change(7, "early", False), change(8, "early", True)]
    assert "early" in labels_at({"early"}, back, NOON)


def said(number: int, author: str, body: str, association: str = "NONE", *, bot: bool = False) -> Comment:
    user = {"login": author, "type": "Bot" if bot else "User"}
    times = {"created_at": NOON.isoformat(), "html_url": f"https://x/{number}"}
    return Comment.of({"id": number, "user": user, "body": body, "author_association": association, **times})


def say(*bodies: str, association: str = "MEMBER") -> list[Comment]:
    """Comments of anna's; those that begin with ``bot:`` are copy-pr-bot's."""
    return [
        said(number, "copy-pr-bot[bot]", body, bot=True)
        if body.startswith("bot:")
        else said(number, "anna", body, association)
        for number, body in enumerate(bodies)
    ]


def test_authorization_of_ci_for_a_commit() -> None:
    for body in (f"/ok to test {HEAD}", f" /okay to test {HEAD}\r\n"):
        assert commands(say(body), HEAD), body
    for body in (
        f"/ok to test {HEAD[:10]}",  # another commit may begin so too
        f"Thanks!\n/ok to test {HEAD}\n", f"> /ok to test {HEAD}", f"```\n/ok to test {HEAD}\n```",
        f"/ok to test {OTHER}", "/ok to test", f"> write /ok to test {HEAD} please",
    ):  # fmt: skip
        assert not commands(say(body), HEAD), body


REFUSED = "bot: had a problem deploying to test"


@pytest.mark.parametrize(
    ("bodies", "refused"),
    [
        ((f"/ok to test {HEAD}",), 0),
        ((f"/ok to test {HEAD}", REFUSED), 1),
        ((f"/ok to test {HEAD}", f"{REFUSED} (commit {HEAD})"), 1),
        ((f"/ok to test {HEAD}", f"{REFUSED} (commit {OTHER})"), 0),
        ((f"/ok to test {HEAD}", f"{REFUSED}: https://github.com/o/r/actions/runs/12345678901"), 1),
        ((f"/ok to test {OTHER}", REFUSED, f"/ok to test {HEAD}"), 0),
        ((REFUSED, f"/ok to test {HEAD}"), 0),
        ((f"/ok to test {HEAD}", REFUSED.removeprefix("bot: ")), 0),
    ],
)
def test_whose_deployment_was_refused(bodies: tuple[str, ...], refused: int) -> None:
    assert is_refused(say(*bodies), HEAD) == refused


def test_complaints_of_the_bot() -> None:
    answer = "bot: @anna, there was an error processing your request: `E3`"
    assert complaint(say(f"/ok to test {HEAD}", answer), HEAD) == "E3"
    assert complaint(say(f"/ok to test {HEAD}", answer, f"/ok to test {HEAD}"), HEAD) == ""
    assert complaint(say(answer), HEAD) == ""
    assert complaint(say(f"/ok to test {HEAD}", answer.replace("anna", "eve")), HEAD) == ""


@pytest.mark.parametrize("association", ["NONE", "CONTRIBUTOR", "FIRST_TIMER", "MANNEQUIN", "", "owner"])
def test_a_strangers_command_is_none(association: str) -> None:
    theirs = say(f"/ok to test {HEAD}", REFUSED, association=association)
    assert commands(theirs, HEAD) == ()
    assert not is_refused(theirs, HEAD)
    assert commands(theirs, HEAD, "somebody") == ()
    assert commands(theirs, HEAD, "anna") == (theirs[0],)  # the account of our own token


def test_a_command_that_the_bot_did_not_take_counts_for_its_writer_alone() -> None:
    theirs = say(f"/ok to test {HEAD}", "bot: @anna, there was an error processing your request: `E3`")
    assert commands(theirs, HEAD) == ()
    assert commands(theirs, HEAD, "anna") == (theirs[0],)
    again = [*theirs, said(7, "anna", f"/ok to test {HEAD}", "MEMBER")]
    assert commands(again, HEAD) == (again[-1],)


@pytest.mark.parametrize(("login", "bot"), [("copy-pr-bot", False), ("copy-pr-bot", True), ("copy-pr-bot[bot]", False)])
def test_only_the_bots_own_account_answers(login: str, bot: bool) -> None:
    command = said(1, "anna", f"/ok to test {HEAD}", "MEMBER")
    for body in (REFUSED, "@anna, there was an error processing your request: `E3`"):
        answer = said(2, login, body, "MEMBER", bot=bot)
        assert not is_refused([command, answer], HEAD)
        assert complaint([command, answer], HEAD) == ""
        assert commands([command, answer], HEAD) == (command,)


def test_a_run_of_a_fork_is_none_of_ours() -> None:
    assert choose([replace(RUN, fork=True)], RUN.head_sha, RUN.name) is None
    assert choose([RUN, replace(RUN, fork=True, id=RUN.id + 1)], RUN.head_sha, RUN.name) == RUN
