"""What the steps rely on of a forge: practice in process, and the real client at a server that speaks GitHub's REST."""

import io
import zipfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from bumping import BRANCH, CONTRIBUTOR
from forging import World, world

from runbook_lib.errors import RunbookError
from runbook_lib.practice.store import scripted
from runbook_lib.world.github.ci_status import on_base
from runbook_lib.world.github.copy_pr_bot import complaint, is_refused
from runbook_lib.world.github.models import NotAllowed
from runbook_lib.world.ports import Forge
from runbook_lib.world.transport.archives import MissingFile

SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


@pytest.fixture(params=["practice", "real"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, over_http=request.param == "real") as made:
        yield made


@pytest.fixture
def forge(at: World) -> Forge:
    return at.forge


# -- the account ----------------------------------------------------------------------------------------------------


def test_what_an_account_may_do(at: World, forge: Forge) -> None:
    stranger = at.seen_by(CONTRIBUTOR)
    assert (forge.me(), stranger.me(), forge.repository) == ("release-engineer", CONTRIBUTOR, "practice/Megatron-LM")
    assert "push" in forge.repo().permissions
    assert stranger.repo().permissions == {"pull"}
    assert "repo" in (forge.scopes or "")
    assert forge.may_read("actions")
    assert [forge.may_write(login) for login in ("release-engineer", CONTRIBUTOR, "nobody")] == [True, False, False]
    assert not stranger.may_write("release-engineer")  # it is unknown to them


def test_nothing_secret_is_published(at: World, forge: Forge) -> None:
    assert SECRET not in forge.public(f"It is {SECRET}.")
    assert forge.public({"lone": "a\udcffb"}) == {"lone": "a?b"}
    at.opened()
    assert SECRET not in forge.comment(10, f"It is {SECRET}.").body
    assert SECRET not in forge.update_pull(10, f"It is {SECRET}.").body
    assert SECRET not in forge.file_issue("x", SECRET).body


@pytest.mark.parametrize(
    "ask",
    [
        lambda forge: forge.pull(99), lambda forge: forge.issue(99), lambda forge: forge.run(99),
        lambda forge: forge.job(99), lambda forge: forge.jobs(99), lambda forge: forge.comments(99),
        lambda forge: forge.behind("main", "no-such-branch"), lambda forge: forge.rerun_failed(99),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_not_allowed(forge: Forge, ask: Callable[[Forge], object]) -> None:
    with pytest.raises(NotAllowed):
        ask(forge)


# -- pull requests --------------------------------------------------------------------------------------------------


def test_a_pull_request_is_found_by_head_base_and_state(at: World, forge: Forge) -> None:
    sha = at.opened()
    for asked, found in (
        ({"head": f"practice:{BRANCH}"}, [10]), ({"head": f"{CONTRIBUTOR}:{BRANCH}"}, []), ({"base": "main"}, [10]),
        ({"base": "dev"}, []), ({"state": "closed"}, []),
    ):  # fmt: skip
        assert [each.number for each in forge.pulls(**asked)] == found, asked
    (pull,) = forge.pulls()
    assert (pull.head_sha, pull.head_owner, pull.head_ref, pull.base_ref) == (sha, "practice", BRANCH, "main")
    assert (pull.title, pull.body, pull.author, pull.merged) == ("chore: bump", "Why", "release-engineer", False)
    assert pull.mergeable is None  # in lists
    at.controls.close(10)
    assert (forge.pulls(), [each.state for each in forge.pulls(state="all")]) == ((), ["closed"])


def test_the_merge_commit_is_known_at_the_second_look(at: World, forge: Forge) -> None:
    sha = at.opened()
    first, second = forge.pull(10), forge.pull(10)
    assert first.mergeable is None
    assert second.mergeable is True
    merge = second.merge_commit
    assert at.commit("refs/pull/10/merge") == merge
    assert [at.commit(f"{merge}^{parent}") for parent in (1, 2)] == [at.commit("main"), sha]
    at.push("other", pin="26.03-py3")
    at.git("push", "-q", "origin", "other:main")  # the same line changed: a conflict
    looking, after = forge.pull(10), forge.pull(10)
    assert looking.mergeable is None
    assert after.mergeable is False
    assert forge.behind("main", BRANCH) == 1


def test_there_is_one_pull_request_for_a_branch(at: World, forge: Forge) -> None:
    at.opened()
    at.git("push", "-q", "origin", "origin/main:refs/heads/empty")
    for head in (BRANCH, "no-such-branch", "empty"):
        with pytest.raises(RunbookError):
            forge.open_pull("again", f"practice:{head}", "main", "")
    at.push("theirs")
    with pytest.raises(RunbookError):
        at.seen_by(CONTRIBUTOR).open_pull("theirs", "practice:theirs", "main", "")
    assert len(forge.pulls(state="all")) == 1


def test_a_pull_request_from_a_fork(at: World, forge: Forge) -> None:
    sha = at.push("theirs", to=str(at.made.fork))
    pull = at.seen_by(CONTRIBUTOR).open_pull("theirs", f"{CONTRIBUTOR}:theirs", "main", "")
    assert (pull.head_owner, pull.author, pull.head_sha) == (CONTRIBUTOR, CONTRIBUTOR, sha)
    assert forge.behind("main", sha) == 0
    ((path, patch),) = forge.files(pull.number).items()
    assert (path, patch[:2], patch.split("\n")[1][:1]) == ("docker/.ngc_version.dev", "@@", "-")
    assert forge.pull(pull.number).head_sha == sha
    with pytest.raises(NotAllowed):
        at.seen_by(CONTRIBUTOR).add_label(pull.number, "bug")


def test_only_authors_and_writers_change_a_description(at: World, forge: Forge) -> None:
    at.opened()
    assert forge.update_pull(10, "Because").body == forge.pull(10).body == "Because"
    with pytest.raises(NotAllowed):
        at.seen_by(CONTRIBUTOR).update_pull(10, "Mine")
    with pytest.raises(RunbookError):
        forge.update_pull(10, "x" * 65537)
    assert forge.pull(10).body == "Because"


def test_who_last_changed_a_file(at: World, forge: Forge) -> None:
    case = "tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp4_pp1_long/model_config.yaml"
    assert {forge.last_author(path, "main") for path in (case, "README.md", "no/such/file")} <= {"", "mlindqvist"}
    assert forge.last_author("no/such/file", "main") == ""


# -- labels and comments --------------------------------------------------------------------------------------------


def test_labels_and_when_they_were_set(at: World, forge: Forge) -> None:
    at.opened("Run tests")
    at.later(60)
    forge.add_label(10, "Run tests")
    forge.add_label(10, "New, and any")
    assert forge.pulls()[0].labels == forge.pull(10).labels == {"Run tests", "New, and any"}
    forge.remove_label(10, "Run tests")
    with pytest.raises(NotAllowed):
        forge.remove_label(10, "Run tests")
    told = forge.labellings(10)
    assert [(each.label, each.on) for each in told] == [
        ("Run tests", True), ("New, and any", True), ("Run tests", False),
    ]  # fmt: skip
    assert told[1].at - told[0].at == timedelta(seconds=60)


def test_comments_tell_who_may_be_believed(at: World, forge: Forge) -> None:
    at.opened()
    before = len(forge.comments(10))
    mine, theirs = forge.comment(10, "Mine"), at.seen_by(CONTRIBUTOR).comment(10, "Theirs")
    assert forge.comments(10)[before:] == (mine, theirs)
    assert [(each.insider, each.bot) for each in (mine, theirs)] == [(True, False), (False, False)]
    with pytest.raises(NotAllowed):
        at.seen_by(CONTRIBUTOR).remove_comment(mine)
    forge.remove_comment(mine)
    with pytest.raises(RunbookError):
        forge.comment(10, " \n")
    assert forge.comments(10)[before:] == (theirs,)


# -- issues ---------------------------------------------------------------------------------------------------------


def test_issues_are_found_by_their_words(at: World, forge: Forge) -> None:
    first = forge.file_issue("[ci] mimo_vlm_tp1 hangs", "As hybrid_mr_tp2_cp2 does", ["bug"], "mlindqvist")
    second = at.seen_by(CONTRIBUTOR).file_issue("[ci] Hybrid_mr_tp2_cp2 hangs", "", ["bug"])
    assert (first.labels, second.labels) == ({"bug"}, frozenset())  # dropped without a word
    assert (first.insider, second.insider) == (True, False)
    at.push()
    forge.open_pull("About hybrid_mr_tp2_cp2", f"practice:{BRANCH}", "main", "")
    for words, found in (("hybrid_mr_tp2_cp2", (first, second)), ("VLM_TP1 hangs", (first,)), ("nothing", ())):
        assert forge.search_issues(words) == found, words
    assert [issue.number for issue in forge.list_issues()] == [8, 10, 11]
    assert forge.list_issues(CONTRIBUTOR) == (second,)
    forge.withdraw_issue(first)
    assert (forge.issue(10).state, forge.search_issues("VLM_TP1 hangs")) == ("closed", ())
    with pytest.raises(NotAllowed):
        at.seen_by(CONTRIBUTOR).withdraw_issue(forge.issue(8))


def test_only_members_can_be_assigned(forge: Forge) -> None:
    names = ("mlindqvist", "release-engineer", CONTRIBUTOR, "copy-pr-bot[bot]", "nobody")
    assert [forge.is_assignable(name) for name in names] == [True, True, False, False, False]
    with pytest.raises(RunbookError):
        forge.file_issue("x", "", assignee="nobody")
    assert [issue.number for issue in forge.list_issues()] == [8]  # a refused request changes nothing


# -- CI -------------------------------------------------------------------------------------------------------------


def test_only_the_full_id_of_the_head_is_tested(at: World, forge: Forge) -> None:
    old = at.opened()
    sha = at.push()
    forge.comment(10, f"/ok to test {old}")
    assert complaint(forge.comments(10), old) == "E2"
    at.seen_by(CONTRIBUTOR).comment(10, f"/ok to test {sha}")
    forge.comment(10, f"Please do not /ok to test {sha}")
    assert (forge.runs(branch="pull-request/10"), at.commit("pull-request/10")) == ((), None)
    forge.comment(10, f"  /okay to test {sha}\n")
    forge.comment(10, f"/ok to test {sha}")  # the mirror has that commit already
    assert at.commit("pull-request/10") == sha
    (run,) = forge.runs(branch="pull-request/10")
    assert forge.runs(head_sha=sha) == (run,) == (forge.run(run.id),)
    assert (run.head_sha, run.attempt, run.fork, run.conclusion) == (sha, 1, False, "")


def test_a_refused_deployment_belongs_to_its_commit(at: World, forge: Forge) -> None:
    at.controls.refuse_deployment()
    sha = at.opened()
    assert not forge.deployment_failed(sha)
    forge.comment(10, f"/ok to test {sha}")
    at.later()
    assert forge.deployment_failed(sha)
    assert is_refused(forge.comments(10), sha)
    assert [run.conclusion for run in forge.runs(head_sha=sha)] == ["failure"]
    second = at.push()
    forge.comment(10, f"/ok to test {second}")
    at.later()
    assert not forge.deployment_failed(second)


def test_the_jobs_of_a_run_with_their_logs_and_artifacts(
    at: World, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = at.tested("Run functional tests")
    assert "completed" not in {job.status for job in forge.jobs(run)}
    with pytest.raises(NotAllowed):
        forge.rerun_failed(run)  # it has not ended
    at.later()
    jobs = {(job.name, job.runners[0]): job for job in forge.jobs(run)}
    drifted = jobs["gpt/gpt3_mcore_te_tp1_pp1 - latest", "nvidia-ci-aws-gpu-x8"]
    assert (drifted.conclusion, drifted.failed_steps) == ("failure", ("functional",))
    assert drifted.started
    assert drifted.completed
    assert drifted.started < drifted.completed
    assert forge.job(drifted.id) == drifted
    uploads = forge.artifacts(run)
    assert len({each.name for each in uploads}) == len(uploads) == 12
    upload = next(
        each for each in uploads if "gpt3_mcore_te_tp1_pp1-" in each.name and each.created <= drifted.completed
    )
    file = forge.artifact(upload.id)
    with zipfile.ZipFile(io.BytesIO(file.part(0, upload.size))) as archive:
        assert any(name.endswith(".json") for name in archive.namelist())
    assert file.size == upload.size
    assert b"Run gpt/gpt3_mcore_te_tp1_pp1" in forge.log(drifted.id).part(0, 10_000)
    monkeypatch.setitem(scripted("scenario")["causes"]["drift"], "expired", True)
    assert {each.expired for each in forge.artifacts(run)} == {True, False}
    for gone in (forge.artifact(upload.id), forge.log(1), forge.artifact(1)):
        with pytest.raises(MissingFile):
            gone.part(0, 1)


def test_failed_jobs_once_more(at: World, forge: Forge) -> None:
    run = at.tested("Run functional tests")
    at.later()
    with pytest.raises(NotAllowed):
        at.seen_by(CONTRIBUTOR).rerun_failed(run)
    first = {job.id for job in forge.jobs(run)}
    forge.rerun_failed(run)
    assert (forge.run(run).attempt, forge.run(run).status) == (2, "in_progress")
    at.later()
    second = forge.jobs(run)
    assert not first & {job.id for job in second}
    assert next(job.conclusion for job in second if job.name.startswith("mimo/")) == "success"  # it was flaky
    assert forge.run(run).conclusion == "failure"
    assert len(forge.artifacts(run)) == 12 + 8  # only what ran again leaves another one


def test_the_merge_queue_tests_the_merged_commit(at: World, forge: Forge) -> None:
    run = at.tested()
    at.later()
    base, tip = at.commit("main"), at.controls.merge(10)
    pull = forge.pull(10)
    assert (pull.state, pull.merged, pull.merge_commit) == ("closed", True, tip)
    assert forge.runs(branch="main") == ()
    newest, earlier, _ = forge.runs(event="merge_group")
    assert (newest.head_sha, newest.head_branch) == (tip, f"gh-readonly-queue/main/pr-10-{base}")
    assert (newest.status, earlier.head_sha, on_base(newest, "main")) == ("in_progress", base, True)
    assert (newest,) == forge.runs(head_sha=tip)
    assert (newest,) == forge.runs(event="merge_group", since=earlier.created + timedelta(seconds=1))
    assert [each.id for each in forge.runs(event="push", status="failure")] == [run]
    assert at.commit("pull-request/10") is None
