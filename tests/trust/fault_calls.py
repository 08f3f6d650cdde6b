"""Every kind of request that the library sends, as the library sends it, to practice servers behind proxies."""

import contextlib
import io
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from bumping import CONTRIBUTOR, REPOSITORY, World, bump_to, git
from controlled_forge import ControlledForge
from fault_proxy import Proxy

from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.clients.registry.client import Registry
from runbook_lib.errors import RunbookError
from runbook_lib.golden import ci_runs
from runbook_lib.golden import collect as artifacts
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice import seed, state
from runbook_lib.practice.accounts import GITLAB_TOKEN, TOKEN
from runbook_lib.practice.registry import server as registry
from runbook_lib.recipes.targets import Target
from runbook_lib.records.step_record import StepRecord
from runbook_lib.steps import open_pr
from runbook_lib.steps.broken_tests import decide, issue, quarantine
from runbook_lib.steps.broken_tests.issue import marker
from runbook_lib.steps.internal_ci import run as internal_ci
from runbook_lib.steps.internal_ci.dry_run import find_pipeline
from runbook_lib.transport.ranges import Address, Web
from runbook_lib.triage import read_logs
from runbook_lib.triage.failure import FailedJob
from runbook_lib.triage.read_logs import JobLogs
from runbook_lib.workflow import bump_branch, ci_run, pull_request, push_round, run_choice
from runbook_lib.workflow.proposal import find_pull

TAG = "26.04-py3"
FOLDER = "tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp4_pp1_long"
ON = f"bump/main/dev-{TAG}"
TO = f"pull-request/{ON}"
API = rf"^/repos/{REPOSITORY}"
LAB = "^/gitlab/api/v4/projects/[^/]+"
_TEST = Target("gpt3_mcore_te_tp4_pp1_long", "dgx_h100", "dev", "gpt", "it hangs")


class Told(Exception):
    """An outcome that is a sentence rather than an error: what a step warns of, or a collection lacks."""


@dataclass
class Clients:
    """What one process talks with; made anew for each kind of fault."""

    github: GitHub
    gitlab: GitLab
    registry: Registry


@dataclass
class At:
    """Practice servers, each behind a proxy; ``slept`` are the seconds for which the library wanted to wait."""

    world: World
    forge: Proxy
    images: Proxy
    stages: dict[str, tuple[sqlite3.Connection, float]] = field(default_factory=dict)
    slept: list[float] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def clients(self) -> Iterator[Clients]:
        env = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": self.forge.url}
        lab = {"GITLAB_URL": f"{self.forge.url}/gitlab", "GITLAB_TOKEN": GITLAB_TOKEN, "GITLAB_PROJECT": REPOSITORY}
        images = {"RUNBOOK_REGISTRY": self.images.url}
        ref = ImageRef.parse("nvcr.io/nvidia/pytorch")
        with (
            GitHub(REPOSITORY, env, sleep=self.sleep) as github,
            Registry.connect(ref, images, sleep=self.sleep) as images_,
        ):
            yield Clients(github, GitLab(lab, sleep=self.sleep), images_)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def clock(self) -> float:
        return sum(self.slept)

    # -- the forge's memory ---------------------------------------------------------------------------------------

    def keep(self, stage: str) -> None:
        kept = sqlite3.connect(":memory:", check_same_thread=False)
        with contextlib.closing(sqlite3.connect(self.world.home / "forge.sqlite")) as now:
            now.backup(kept)
        self.stages[stage] = kept, self.world.now[0]

    def back_to(self, stage: str) -> None:
        kept, self.world.now[0] = self.stages[stage]
        with contextlib.closing(sqlite3.connect(self.world.home / "forge.sqlite")) as now:
            kept.backup(now)

    def made(self) -> dict[str, Any]:
        """What stands on the forge, without times and numbers."""
        store = self.world.forge.hub.store
        with store.transaction():
            tickets, comments = store.all(state.TicketRecord), store.all(state.CommentRecord)
            attempts, lab = store.all(state.AttemptRecord), store.all(state.InternalRunRecord)
        return {
            "tickets": sorted((it.head_ref, it.title, it.state, sorted(it.labels), it.body or "") for it in tickets),
            "comments": sorted(it.body for it in comments),
            "attempts": len(attempts),
            "pipelines": [(it.head_branch, it.head_sha, it.variables) for it in lab],
        }

    def step(self) -> StepRecord:
        return self.world.step(bump_to())

    def web(self) -> Web:
        return Web(2, sleep=self.sleep, clock=self.clock)


@dataclass(frozen=True)
class Call:
    """One request of the library's: where it goes, and what the library does around it.

    ``stage`` is where the forge stands before; a call that changes something is judged by what the forge holds
    afterwards.  ``absent``: what it returns where the server says that there is no such thing.  ``trusts``: it takes
    whatever bytes come for the text that they are.
    """

    target: str
    method: str
    route: str
    run: Callable[[At, Clients], Any]
    stage: str = ""
    absent: object = Told
    trusts: bool = False


# -- reads ----------------------------------------------------------------------------------------------------------


def _collected(at: At, source: artifacts.GoldenSource) -> object:
    into = at.world.home / "collected"
    found = artifacts.collect(source, into, web=at.web())
    if found.problems:
        assert {it.path: it.bytes for it in found.files}.items() <= at.known.get("files", {}).items()
        raise Told("; ".join(it.sentence for it in found.problems))
    files = {it.path: it.bytes for it in found.files}
    at.known.setdefault("files", {}).update(files)
    return files


def _one_pair(source: artifacts.GoldenSource) -> artifacts.GoldenSource:
    pair = next(it for it in source.matches if it.jobs[0].state == "failed" and "te_tp1_pp1" in it.jobs[0].name)
    return replace(source, jobs=pair.jobs, matches=(pair,))


def _of_github(at: At, on: Clients) -> object:
    source = replace(at.known["source"], address=lambda it: Address(*on.github.download(it.id)))
    return _collected(at, source)


def _of_gitlab(at: At, on: Clients) -> object:
    source = replace(at.known["lab source"], address=lambda it: Address(*on.gitlab.download(it.id)))
    return _collected(at, source)


def _triaged(at: At, address: Address) -> object:
    (found,) = read_logs.diagnose_all([JobLogs(FailedJob("a job"), log=address)], web=at.web())
    said = f"{found.cause} {found.details.get('problem', '')}"
    if "The job's log" in said:  # what could not be read
        raise Told(said)
    return found


def _looked(at: At, on: Clients) -> object:
    return on.registry.image(TAG)


def _signed_in(at: At, on: Clients) -> object:
    env = {"RUNBOOK_REGISTRY": at.images.url}
    with Registry.connect(ImageRef.parse("nvcr.io/nvidia/pytorch"), env, sleep=at.sleep) as images:
        return images.tags()


_N, _RUN, _JOB = "pull", "run", "job"


def _gh(route: str, run: Callable[[GitHub, dict[str, Any]], Any], absent: object = Told) -> Call:
    return Call("github", "GET", f"{API}{route}", lambda at, on: run(on.github, at.known), absent=absent)


def _gl(route: str, run: Callable[[GitLab, dict[str, Any]], Any], absent: object = Told) -> Call:
    return Call("gitlab", "GET", f"{LAB}{route}", lambda at, on: run(on.gitlab, at.known), absent=absent)


_READS = {
    "who am I": Call("github", "GET", "^/user$", lambda at, on: on.github.me()),
    "repository": _gh("$", lambda it, _: it.repo()),
    "pulls": _gh(r"/pulls\?", lambda it, _: it.pulls(state="all")),
    "pull": _gh("/pulls/[0-9]+$", lambda it, at: it.pull(at[_N])),
    "labels": _gh("/issues/[0-9]+/labels", lambda it, at: it.labels(at[_N])),
    "events": _gh("/issues/[0-9]+/events", lambda it, at: it.labellings(at[_N])),
    "comments": _gh("/issues/[0-9]+/comments", lambda it, at: it.comments(at[_N])),
    "files": _gh("/pulls/[0-9]+/files", lambda it, at: it.files(at[_N])),
    "commits": _gh("/commits", lambda it, _: it.last_author(FOLDER, "main")),
    "compare": _gh("/compare/", lambda it, at: it.behind("main", at["head"])),
    "runs": _gh(r"/actions/runs\?", lambda it, at: it.runs(head_sha=at["head"])),
    "run": _gh("/actions/runs/[0-9]+$", lambda it, at: it.run(at[_RUN])),
    "jobs": _gh("/actions/runs/[0-9]+/jobs", lambda it, at: it.jobs(at[_RUN])),
    "job": _gh("/actions/jobs/[0-9]+$", lambda it, at: it.job(at[_JOB])),
    "artifacts": _gh("/actions/runs/[0-9]+/artifacts", lambda it, at: it.artifacts(at[_RUN])),
    "deployments": _gh(r"/deployments\?", lambda it, at: it.deployment_failed(at["head"])),
    "statuses": _gh("/deployments/[0-9]+/statuses", lambda it, at: it.deployment_failed(at["head"])),
    "search": Call("github", "GET", "^/search/issues", lambda at, on: on.github.search_issues("loss jumps")),
    "issues": _gh(r"/issues\?", lambda it, _: it.list_issues()),
    "issue": _gh("/issues/[0-9]+$", lambda it, at: it.issue(at[_N])),
    "assignable": _gh("/assignees/", lambda it, _: it.is_assignable("mlindqvist"), absent=False),
    "GitLab's project": _gl("$", lambda it, _: it.project()),
    "GitLab's branch": _gl("/repository/branches/", lambda it, _: it.branch("main")),
    "GitLab's protected branches": _gl("/protected_branches", lambda it, _: it.protected()),
    "GitLab's pipelines": _gl(r"/pipelines\?", lambda it, at: it.pipelines(at["head"])),
    "GitLab's pipeline": _gl("/pipelines/[0-9]+$", lambda it, at: it.pipeline(at["pipeline"])),
    "GitLab's bridges": _gl("/pipelines/[0-9]+/bridges", lambda it, at: it.bridges(at["pipeline"])),
    "GitLab's jobs": _gl("/pipelines/[0-9]+/jobs", lambda it, at: it.pipeline_jobs(at["pipeline"])),
    "GitLab's tests": _gl("/pipelines/[0-9]+/jobs", lambda it, at: it.jobs(at["bridge"])),
    "an artifact's address": Call("storage", "GET", f"{API}/actions/artifacts/[0-9]+/zip", _of_github),
    "an artifact": Call("storage", "GET", "^/_storage/", _of_github),
    "a log's address": Call("storage", "GET", f"{API}/actions/jobs/[0-9]+/logs",
                            lambda at, on: _triaged(at, Address(*on.github.log(at.known[_JOB]))), trusts=True),
    "a log": Call("storage", "GET", "^/_storage/",
                  lambda at, on: _triaged(at, Address(*on.github.log(at.known[_JOB]))), trusts=True),
    "GitLab's artifact": Call("storage", "GET", f"{LAB}/jobs/[0-9]+/artifacts", _of_gitlab),
    "GitLab's log": Call("storage", "GET", f"{LAB}/jobs/[0-9]+/trace",
                         lambda at, on: _triaged(at, Address(*on.gitlab.trace(at.known["lab job"]))), trusts=True),
    "a registry's token": Call("registry", "GET", "^/token", _signed_in),
    "tags": Call("registry", "GET", "^/v2/.*/tags/list", lambda at, on: on.registry.tags(), absent=[]),
    "manifest of a tag": Call("registry", "GET", f"^/v2/.*/manifests/{TAG}", _looked, absent=None),
    "manifest by digest": Call("registry", "GET", "^/v2/.*/manifests/sha256:", _looked),
    "blob": Call("registry", "GET", "^/v2/.*/blobs/", _looked),
}  # fmt: skip


# -- changes --------------------------------------------------------------------------------------------------------


def _quiet(step: StepRecord) -> None:
    """What a step warned of is told."""
    if warned := [line for line in (step.folder / "contributions.jsonl").read_text().splitlines()
                  if '"kind": "warning"' in line] if step.folder else []:  # fmt: skip
        raise Told("; ".join(warned))


def _step_3(at: At, on: Clients) -> None:
    before = at.known["proposal"]
    pull = find_pull(on.github, before.bump, before.head)
    step = at.step()
    made = open_pr.carry_out(step, replace(before, github=on.github, pull=pull))
    if made.label_request:
        raise Told(made.label_request)
    _quiet(step)


def _step_4(at: At, on: Clients) -> None:
    after = ci_run.authorize(at.step(), pull_request.read_state(at.known["branch"], on.github))
    if after.waiting:
        raise Told(after.waiting)


def _told_there(at: At, on: Clients) -> None:
    step = at.step()
    push_round.update_body(step, pull_request.read_state(at.known["branch"], on.github), "Some words.", "golden-values")
    _quiet(step)


def _filed(at: At, on: Clients) -> None:
    decision = decide.Decision(_TEST, None, "It hangs", f"{marker(_TEST)} It hangs.")
    issue.file(at.step(), on.github, decision.target, decision.title, decision.body, at.known["branch"].bump.base)


def _rerun(at: At, on: Clients) -> None:
    state = pull_request.read_state(at.known["branch"], on.github)
    quarantine.rerun_flaky(at.step(), replace(at.known["asked"], pull_request=state), ("a job",))


def _started(at: At, on: Clients) -> None:
    dry_run = replace(at.known["dry run"], gitlab=on.gitlab)
    dry_run = replace(dry_run, pipeline=find_pipeline(on.gitlab, dry_run))
    after = internal_ci.carry_out(at.step(), dry_run, TO)
    if after.waiting:
        raise Told(after.waiting)


def _comment_removed(at: At, on: Clients) -> None:
    for it in on.github.comments(at.known[_N]):
        if it.body == "Twice.":
            on.github.remove_comment(it)


def _issue_withdrawn(at: At, on: Clients) -> None:
    for it in on.github.list_issues():
        if it.title == "Twice":
            on.github.withdraw_issue(it)


_CHANGES = {
    "open a pull request": Call("github", "POST", f"{API}/pulls$", _step_3, "pushed"),
    "set a label": Call("github", "POST", f"{API}/issues/[0-9]+/labels", _step_3, "unlabelled"),
    "take a label off": Call("github", "DELETE", f"{API}/issues/[0-9]+/labels/", _step_3, "unlabelled"),
    "comment": Call("github", "POST", f"{API}/issues/[0-9]+/comments", _step_4, "opened"),
    "edit a pull request": Call("github", "PATCH", f"{API}/pulls/[0-9]+$", _told_there, "ended"),
    "file an issue": Call("github", "POST", f"{API}/issues$", _filed, "ended"),
    "run failed jobs again": Call("github", "POST", f"{API}/actions/runs/[0-9]+/rerun-failed-jobs", _rerun, "ended"),
    "remove a comment": Call("github", "DELETE", f"{API}/issues/comments/[0-9]+", _comment_removed, "twice"),
    "withdraw an issue": Call("github", "PATCH", f"{API}/issues/[0-9]+$", _issue_withdrawn, "twice"),
    "start a pipeline": Call("gitlab", "POST", f"{LAB}/pipeline$", _started, "opened"),
}

CALLS = _READS | _CHANGES


# -- the servers ----------------------------------------------------------------------------------------------------


@contextmanager
def practice(home: Path) -> Iterator[At]:
    """A bump whose first CI run has ended, and the moments before."""
    seed.create(home / "remote.git", home / "checkout")
    fork = home / CONTRIBUTOR / "Megatron-LM.git"
    for copy in (fork, home / "gitlab.git"):
        git(home, "clone", "-q", "--bare", str(home / "remote.git"), str(copy))
    git(home / "checkout", "remote", "add", "gitlab", str(home / "gitlab.git"))
    now = [1_800_000_000.0]
    with ExitStack() as undo:
        served = ControlledForge(
            home / "forge.sqlite", home / "remote.git", repository=REPOSITORY, clock=lambda: now[0],
            forks={CONTRIBUTOR: fork}, gitlab=home / "gitlab.git", ci_seconds=100,
        )  # fmt: skip
        undo.callback(served.close)
        images = registry.RegistryServer()
        undo.callback(images.close)
        before, aside = Proxy(served.url), Proxy(images.url)
        undo.callback(before.close)
        undo.callback(aside.close)
        served.hub.url = served.url = before.url
        patch = undo.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("GITHUB_REPOSITORY", REPOSITORY)
        patch.setattr("runbook_lib.workflow.pull_request.DELAYS", (0, 0))
        patch.setattr("runbook_lib.steps.internal_ci.run.DELAYS", (0, 0))
        for module in (
            "clients.replies.LARGEST",
            "transport.remote_zip.LARGEST_ARCHIVE",
        ):
            patch.setattr(f"runbook_lib.{module}", 2**21)  # answers without end need not be taken by the gigabyte
        at = At(World(home, served, now, undo), before, aside)
        with at.clients() as on, contextlib.redirect_stdout(io.StringIO()):
            _prepare(at, on)
        yield at


def _prepare(at: At, on: Clients) -> None:
    """All steps up to the end of CI, with the forge's memory kept at each."""
    at.keep("pushed")
    at.world.open_pr()
    bump, branch = bump_to(), bump_branch.find(at.world.checkout, bump_to())
    at.keep("opened")
    at.back_to("pushed")
    proposal = at.world.propose(bump)
    number = on.github.open_pull(bump.title, proposal.head, bump.base, proposal.body).number
    on.github.add_label(number, sorted(bump.labels[1])[0])
    at.keep("unlabelled")
    at.back_to("opened")
    state = ci_run.authorize(at.step(), pull_request.read_state(branch, on.github))
    assert state.pull is not None
    head = state.pull.head_sha
    git(at.world.home / "checkout", "push", "-q", "gitlab", f"{head}:refs/heads/{TO}")
    at.world.now[0] += 1000
    at.keep("ended")
    on.github.comment(state.pull.number, "Twice.")
    on.github.file_issue("Twice", "")
    at.keep("twice")
    at.back_to("ended")
    asked = run_choice.choose_run(pull_request.read_state(branch, on.github))
    assert asked.source is not None
    run = on.github.run(asked.number)
    pipeline = on.gitlab.pipelines(head)[0].id
    bridges = on.gitlab.bridges(pipeline)
    lab = ci_runs.of_gitlab(on.gitlab, pipeline, image_type="dev", head=head)
    dry_run = internal_ci.look(branch, env={"GITLAB_URL": f"{at.forge.url}/gitlab", "GITLAB_TOKEN": GITLAB_TOKEN,
                                         "GITLAB_PROJECT": REPOSITORY})  # fmt: skip
    at.known |= {
        _N: state.pull.number, "head": head, _RUN: run.id, "branch": branch, "proposal": proposal, "asked": asked,
        _JOB: next(it.id for it in on.github.jobs(run.id) if it.conclusion == "failure"),
        "pipeline": pipeline, "bridge": bridges[0], "source": _one_pair(asked.source), "lab source": _one_pair(lab),
        "dry run": replace(dry_run, pipeline=None, current=dry_run.commit, waiting=""),
    }  # fmt: skip
    at.known["lab job"] = at.known["lab source"].matches[0].jobs[0].id


def outcome(at: At, on: Clients, call: Call) -> tuple[str, Any]:
    """``done`` and what came of it, or ``told`` and the sentence.  Any other exception goes on: it is a fault."""
    try:
        return "done", call.run(at, on)
    except (RunbookError, Told) as error:
        return "told", str(error)
