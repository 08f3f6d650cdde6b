"""The internal pipeline of a bump: real git, and the scripted pipelines of practice with faults."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gitlab_project
import pytest
from bumping import REPOSITORY, Timed, World, bump_to, forge_of, git, world
from controls import Controls
from gitlab_project import TOKEN, Faulty, GitLabServer

from runbook_lib.bump.run import carry_out
from runbook_lib.compute.internal_ci import InternalCi, PipelineFacts
from runbook_lib.compute.internal_gitlab import PipelineProgress
from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.golden.step import GoldenStep
from runbook_lib.practice.runs import StoredFile
from runbook_lib.practice.second_ci import PracticeSecondCi
from runbook_lib.practice.store import Store
from runbook_lib.world.conditions import forge as forge_conditions
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.remote_url import RemoteUrl
from runbook_lib.world.gitlab.client import GitLab
from runbook_lib.world.ports import OnlineServices
from runbook_lib.world.ports import World as Outside

BRANCH = "bump/main/dev-26.04-py3"
TO = f"pull-request/{BRANCH}"
ALLOWED = "internal-ci"
START = 1_800_000_000.0
PIPELINE = "/pipeline$"


@dataclass
class At:
    """A bump whose branch is committed, and a GitLab that knows nothing of it yet."""

    world: World
    copy: Path
    gitlab: Faulty
    practised: PracticeSecondCi

    @property
    def head(self) -> str:
        return git(self.world.home / "checkout", "rev-parse", BRANCH)

    def git(self, *arguments: str) -> str:
        return git(self.world.home / "checkout", *arguments)

    def tips(self) -> dict[str, str]:
        listed = git(self.copy, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads")
        return dict(line.split() for line in listed.splitlines())

    def second_ci(self, _remote: RemoteUrl | None = None, *, token: str = TOKEN) -> GitLab:
        env = {"GITLAB_URL": "http://127.0.0.1:9", "GITLAB_TOKEN": token, "GITLAB_PROJECT": REPOSITORY}
        return GitLab(env, transport=self.gitlab)

    def look(self, mode: str = "publish", tests: str = "", token: str = TOKEN, **options: Any) -> PipelineFacts:
        services = SimpleNamespace(second_ci=partial(self.second_ci, token=token))
        bump = bump_to(mode=mode, **{"allow": ALLOWED, **options})
        return InternalCi(tests).look(Outside(self.world.checkout, None, None, services), bump)  # type: ignore[arg-type]

    def progress(self, tests: str = "", **options: Any) -> PipelineProgress | None:
        to = self.look(tests=tests, **options).to
        return to and to.find(tests)

    def carry_out(self, facts: PipelineFacts, *, wait: bool = False) -> None:
        """Carry out the plan of what was seen before."""
        bump, record = facts.branch.bump, self.world.step(facts.branch.bump)
        plan, services = InternalCi(wait=wait).plan(facts, bump), Timed(self.world.services, self.world.now)
        carry_out(record, plan, Outside(self.world.checkout, None, record, services), lambda view: view)

    def run(
        self, mode: str = "publish", *, tests: str = "", wait: bool = False, **options: Any
    ) -> PipelineProgress | None:
        """As the notebook runs it; return the pipeline's progress then."""
        options = {"allow": ALLOWED, **options}
        self.world.services = SimpleNamespace(second_ci=self.second_ci)  # type: ignore[assignment]
        self.world.run(InternalCi(tests, wait), mode=mode, **options)
        return self.progress(tests, mode=mode, **options) if " " not in tests else None


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world in which step 3 is done, and the copy of a GitLab beside it, to be copied for each test."""
    home = tmp_path_factory.mktemp("prepared")
    with world(home) as made:
        git(home, "clone", "-q", "--bare", "--shared", str(made.remote), str(home / "gitlab.git"))
        git(home / "checkout", "remote", "add", "gitlab", str(home / "gitlab.git"))
        made.open_pr()
    return home


@pytest.fixture
def at(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[At]:
    monkeypatch.setattr("runbook_lib.world.transport.http.PAUSES", (0, 0))
    monkeypatch.setattr(forge_conditions, "DELAYS", (0, 0))
    monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
    home = tmp_path / "home"
    shutil.copytree(prepared, home, ignore=shutil.ignore_patterns("audit", "outside-contributor"))
    for name in ("checkout/.git/config", "gitlab.git/config", "gitlab.git/objects/info/alternates"):
        (home / name).write_text((home / name).read_text().replace(str(prepared), str(home)))
    now, copy = [START], home / "gitlab.git"
    with ExitStack() as undo:
        store = Store(home / "forge.sqlite")
        undo.callback(store.close)
        practised = PracticeSecondCi(store, copy, "http://127.0.0.1/commit")
        scripted = Faulty(GitLabServer(practised))
        yield At(World(home, Controls(forge_of(store, home, lambda: now[0])), now, undo), copy, scripted, practised)


# -- nothing happens ---------------------------------------------------------------------------------------------


def test_a_preview_changes_nothing_and_records_the_plan(at: At) -> None:
    before = at.tips()
    assert at.run("preview") is None
    assert at.world.effects() == []
    (planned,) = at.world.said("planned")
    assert planned["publish"]
    assert f"push {at.head[:10]} to {at.copy} as {TO}, and start a pipeline there with BUILD=yes" in planned["sentence"]
    assert (at.tips(), at.gitlab.started) == (before, [])


@pytest.mark.parametrize(
    ("mode", "allow", "words"), [("local", ALLOWED, "waiting for publish"), ("publish", "", "waiting for a person")]
)
def test_nothing_is_pushed_without_publish_and_confirmation(at: At, mode: str, allow: str, words: str) -> None:
    before = at.tips()
    at.run(mode, allow=allow)
    assert words in at.world.outcome()
    assert (at.world.effects(), at.tips(), at.gitlab.started) == ([], before, [])


def test_what_must_happen_first(at: At) -> None:
    assert at.look(tag="").to is None
    assert "waiting for branch bump/dev/" in str(at.look(base="dev").missing)
    at.git("switch", "-q", BRANCH)
    build = at.world.home / "checkout/.gitlab/stages/01.build.yml"
    text = build.read_text()
    for old, new, words in (
        ("26.04-py3", "26.01-py3", "26.01-py3"), ("IMAGE: CI_MCORE_DEV_IMAGE", "IMAGE: CI_OTHER_IMAGE", "no GitLab")
    ):  # fmt: skip
        build.write_text(text.replace(old, new))
        at.git("commit", "-qam", "Change")
        assert words in str(at.look().missing)
    at.run()
    assert at.world.effects() == []


def test_without_gitlab_the_reason_is_named(at: At) -> None:
    for token, words in (("", "no token"), ("wrong", "not for this token")):
        with pytest.raises(RunbookError, match=words):
            at.look(token=token)
    at.git("remote", "rename", "gitlab", "other")
    with pytest.raises(RunbookError, match="no remote named 'gitlab'"):
        at.look()


# -- once --------------------------------------------------------------------------------------------------------


def test_pushed_once_started_once_then_followed(at: At) -> None:
    before, at.gitlab.running = at.tips(), 99
    result = at.run()
    assert result is not None
    assert result.state == "waiting"
    assert at.world.effects() == ["push", "pipeline"]
    assert at.tips() == before | {TO: at.head}
    assert at.gitlab.started == [{"BUILD": "yes", "UNIT_TEST": "no", "INTEGRATION_TEST": "no", "FUNCTIONAL_TEST": "no"}]
    assert at.world.outcome().startswith("waiting for pipeline")
    at.gitlab.running = 0
    result = at.run(allow="")
    assert result is not None
    assert "nvcr.io/nvidia/pytorch:26.04-py3 for amd64" in result.sentence
    assert at.world.effects() == []
    assert set(at.world.checks().values()) == {"passed"}
    assert len(at.gitlab.started) == 1


def test_a_pipeline_of_the_commit_elsewhere_is_followed(at: At) -> None:
    at.world.github().comment(10, f"/ok to test {at.head}")
    result = at.run()
    assert result is not None
    assert (result.state, result.pipeline.ref) == ("passed", "pull-request/10")
    assert at.world.effects() == []
    assert TO not in at.tips()


def test_a_pipeline_counts_only_if_it_runs_the_requested_tests(at: At) -> None:
    for tests, starts in (("", 1), ("mr", 2), ("mr", 2), ("nightly", 3)):
        at.run(tests=tests)
        assert len(at.gitlab.started) == starts
    assert [it.get("FUNCTIONAL_TEST_SCOPE") for it in at.gitlab.started] == [None, "mr", "nightly"]
    assert at.world.outcome().startswith("The GitLab pin builds")
    at.run(tests="weekly", mode="local")  # without publish nothing starts
    assert len(at.gitlab.started) == 3


def test_nightly_and_weekly_tests_have_a_pipeline_each(at: At) -> None:
    at.run(tests="nightly weekly")
    assert at.world.effects() == ["push", "pipeline", "pipeline"]
    assert [it["FUNCTIONAL_TEST_SCOPE"] for it in at.gitlab.started] == ["nightly", "weekly"]
    # The second half of a bump: step 05 judges the tests of all pipelines, and refreshes what drifted.
    before = at.head
    at.world.services = SimpleNamespace(second_ci=lambda *_: at.practised)  # type: ignore[assignment]
    at.world.run(GoldenStep(source="gitlab"), mode="local")
    assert at.world.effects() == ["commit"]
    changed = at.git("diff", "--name-only", before, BRANCH).splitlines()
    assert changed == ["tests/functional_tests/test_cases/gpt/gpt3_mcore_tp1_pp4/golden_values_dev_dgx_h100.json"]


def test_the_nightly_tests_are_followed_to_their_end(at: At, capsys: pytest.CaptureFixture[str]) -> None:
    facts = at.look(tests="nightly")
    at.gitlab.jobs_end_first, at.gitlab.running = True, 5
    at.carry_out(facts, wait=True)
    assert at.gitlab.running == 0
    (report,) = capsys.readouterr().out.splitlines()  # once; the step shows the end
    assert "waiting for the tests of pipeline" in report
    assert at.world.checks()["the GitLab pin builds, and the nightly tests have ended"] == "passed"
    assert "-r source gitlab" in at.world.said("done")[0]["next"]


def test_another_pipeline_starts_if_the_first_has_no_builds(at: At) -> None:
    at.git("push", "-q", "gitlab", f"{BRANCH}:refs/heads/{TO}")
    assert "nothing is pushed" in at.look().to.replaces  # type: ignore[union-attr]
    at.second_ci().start(TO, {"BUILD": "no", "FUNCTIONAL_TEST": "no"})
    at.gitlab.fail("GET", "/pipelines/[0-9]+/jobs$", 200, [], times=4)
    assert at.look().pipelines == {"": None}
    at.run()
    assert at.world.effects() == ["pipeline"]
    assert len(at.gitlab.started) == 2


@pytest.mark.parametrize("lost", ["push", "pipeline"])
def test_a_lost_answer_leads_to_nothing_twice(at: At, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    push = Checkout.push

    def push_and_disconnect(*arguments: Any, **options: Any) -> None:
        push(*arguments, **options)
        raise Refused("the connection broke off")

    if lost == "push":
        monkeypatch.setattr(Checkout, "push", push_and_disconnect)
    else:
        at.gitlab.fail("POST", PIPELINE, 502, late=True)
    with pytest.raises(RunbookError, match="the connection broke off" if lost == "push" else "HTTP 502"):
        at.run()
    assert at.run() is not None
    assert len(at.gitlab.started) == 1
    assert at.tips()[TO] == at.head


def test_a_pipeline_that_did_not_start_is_started_by_the_next_run(at: At) -> None:
    at.gitlab.fail("POST", PIPELINE, 503, times=3)
    with pytest.raises(Unreachable, match="HTTP 503"):
        at.run()
    assert at.world.effects() == ["push"]
    assert at.gitlab.started == []
    at.gitlab.faults.clear()
    at.run()
    assert at.world.effects() == ["pipeline"]


# -- the branch at the destination ------------------------------------------------------------------------------


def somebody(at: At, text: str) -> str:
    """A commit of somebody else's on the destination, from main."""
    other = at.world.home / "other-gitlab"
    if not other.exists():
        git(at.world.home, "clone", "-q", str(at.copy), str(other))
    git(other, "switch", "-q", "-C", "theirs", "origin/main")
    (other / "theirs.txt").write_text(text)
    git(other, "add", ".")
    git(other, "commit", "-qm", text)
    git(other, "push", "-qf", "origin", f"theirs:{TO}")
    return git(other, "rev-parse", "HEAD")


def test_a_replaced_branch_is_shown_first(at: At) -> None:
    theirs = somebody(at, "An older try")
    shown = f"{theirs}: it is replaced (force)"
    at.run("preview")
    assert shown in at.world.said("planned")[0]["sentence"]  # so a plan that was shown holds for this commit alone
    at.git("fetch", "-q", "gitlab", TO)
    assert at.look().to.replaces == shown  # type: ignore[union-attr]
    assert at.run() is not None
    assert at.tips()[TO] == at.head
    (push, _) = at.world.said("effects")
    assert (push["before"], push["after"]) == (theirs, at.head)


def test_a_concurrent_push_is_not_overwritten(at: At) -> None:
    for first in (None, "Theirs"):
        if first:
            somebody(at, first)
        facts = at.look()
        theirs = somebody(at, f"While it was read {first}")
        with pytest.raises(Refused, match="stale info"):
            at.carry_out(facts)
        assert at.tips()[TO] == theirs
        assert at.world.effects() == []
    assert at.gitlab.started == []


def test_a_push_before_the_pipeline_starts_is_noticed(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    push = Checkout.push

    def push_twice(*arguments: Any, **options: Any) -> None:
        push(*arguments, **options)
        somebody(at, "Quicker")

    monkeypatch.setattr(Checkout, "push", push_twice)
    with pytest.raises(RunbookError, match="somebody else has pushed to"):
        at.run()


def test_a_protected_destination_is_refused(at: At) -> None:
    before = at.tips()
    at.gitlab.fail(
        "GET", "/repository/branches", 200, [{"name": "main", "protected": True}, {"name": TO, "protected": True}]
    )
    with pytest.raises(Refused, match="GitLab protects"):
        at.run()
    at.gitlab.fail("GET", "/repository/branches", 403, times=9)
    with pytest.raises(RunbookError, match="look for pull-request/"):
        at.run()
    assert (at.tips(), at.gitlab.started) == (before, [])


def test_the_pipeline_starts_in_the_project_of_the_remote(at: At) -> None:
    asked: list[RemoteUrl] = []
    services = SimpleNamespace(second_ci=asked.append)  # returns None: there are no settings
    outside = Outside(at.world.checkout, None, None, services)  # type: ignore[arg-type]
    for url in ("git@gitlab.example.com:adlr/x.git", str(at.copy)):
        at.git("remote", "set-url", "gitlab", url)
        with pytest.raises(RunbookError, match="names no server"):
            InternalCi().look(replace(outside, branches={}), bump_to(mode="publish", allow=ALLOWED))
    assert asked == [
        RemoteUrl("gitlab.example.com", "adlr/x", "https://gitlab.example.com"),
        RemoteUrl("", str(at.copy)),
    ]


@pytest.mark.parametrize(
    ("env", "remote", "expected"),
    [
        ({}, None, None),
        ({"GITLAB_PROJECT": "a/b"}, RemoteUrl("", "/srv/x.git"), None),
        (
            {"GITLAB_URL": "https://a.example.com", "GITLAB_PROJECT": "a/b"},
            None,
            "https://a.example.com/api/v4/projects/a%2Fb",
        ),
        (
            {"GITLAB_URL": "https://a.example.com", "GITLAB_PROJECT": "7"},
            RemoteUrl("", "/x"),
            "https://a.example.com/api/v4/projects/7",
        ),
        (
            {"GITLAB_URL": "", "GITLAB_PROJECT": "7"},
            RemoteUrl.parse("git@h.example.com:o/n"),
            "https://h.example.com/api/v4/projects/o%2Fn",
        ),
        (
            {"GITLAB_URL": "https://a.example.com:5"},
            RemoteUrl.parse("git@h:o/n"),
            "https://a.example.com:5/api/v4/projects/o%2Fn",
        ),
    ],
)
def test_settings_name_the_server_and_the_remote_its_project(
    env: dict[str, str], remote: RemoteUrl | None, expected: str | None
) -> None:
    gitlab = OnlineServices({**env, "GITLAB_TOKEN": TOKEN}).second_ci(remote)
    assert (gitlab and str(gitlab._url)) == expected  # type: ignore[attr-defined]


# -- following ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [b"#31 write /var/lib/docker/tmp: no space left on device\n", None])
def test_a_build_that_fails_is_explained(at: At, monkeypatch: pytest.MonkeyPatch, log: bytes | None) -> None:
    at.run()
    facts = at.look()
    assert facts.to is not None
    jobs = [
        gitlab_project.job(number, build.name, "failed" if build.platform == "arm64" else "success", stage="build")
        for number, build in enumerate(facts.to.builds, 1)
    ]
    at.gitlab.fail("GET", f"/pipelines/{facts.pipelines[''].pipeline.id}/jobs$", 200, jobs, times=30)
    if log:
        monkeypatch.setattr(at.practised, "log", lambda _: StoredFile(log))
    result = at.run()
    assert result is not None
    assert result.state == "failed"
    assert "does not build" in at.world.outcome()
    assert at.world.checks()["the GitLab pin builds"] == "waiting"
    (waiting,) = at.world.said("waiting")
    assert ("Free some space" in waiting["next"]) == (log is not None)
