"""Step 6 in a practice repository with its forge: causes, issues, rows out of the way, one push, ready to merge."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gitlab_project
import pytest
from bisect_world import read_offer
from bumping import REPOSITORY, World, after_ci, bump_to, decided, git, world
from test_golden_step import REGRESSION, step05

from runbook_lib.bump import ready
from runbook_lib.bump.ready import ReadyFacts
from runbook_lib.bump.run_ci import push_round
from runbook_lib.decisions import Decision, Decisions
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.failures import decide, quarantines
from runbook_lib.failures import tracking_issue as issue
from runbook_lib.failures.decide import Triage, open_jobs
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.failures.patterns import FailureKind
from runbook_lib.failures.step import BrokenTestFacts, BrokenTests
from runbook_lib.golden import ci_runs
from runbook_lib.golden.bisect_offer import ImageSearches
from runbook_lib.pins.bump import Bump
from runbook_lib.practice.forge import PracticeForge
from runbook_lib.practice.runs import StoredFile
from runbook_lib.practice.store import scripted
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world.bump_branch import BumpBranch, read_state
from runbook_lib.world.github.models import Issue, NotAllowed
from runbook_lib.world.ports import World as Outside

HANG = "gpt3_mcore_te_tp4_pp1_long"
MEMORY = "gpt3_moe_mcore_tp2_ep4_memory"
BOTH = f"{HANG}@dgx_h100: it hangs; moe/{MEMORY}: out of memory"
REVIEW = issue.review_date()
#: The decision on the golden values of the run.
ACCEPTED = {"accept": f"{REGRESSION}: right", "confirm": "divergence"}


def step06(at: World, *, mode: str = "publish", run_id: str = "", **told: Any) -> BrokenTestFacts:
    """Step 6, as its notebook runs it with these decisions and ACCEPTED; returns what it saw first."""
    step = Observed(run_id)
    at.run(step, push_round, mode=mode, **({} if "decisions" in told else ACCEPTED), **told)
    return step.facts[0]


@dataclass(frozen=True)
class Observed(BrokenTests):
    """The step, with what it saw."""

    facts: list[BrokenTestFacts] = field(default_factory=list)

    def look(self, world: Outside, bump: Bump) -> BrokenTestFacts:
        self.facts.append(super().look(world, bump))
        return self.facts[-1]


def shown(at: World, facts: BrokenTestFacts) -> str:
    """What the plan of these facts shows, as text."""
    views = BrokenTests().plan(facts, at.steps[-1].bump).shown
    return "\n".join(view.text for view in views if isinstance(view, View))


@pytest.fixture
def at(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, after_ci) as made:
        yield made


def issues(at: World) -> tuple[Issue, ...]:
    return at.github().list_issues()


def look(at: World, **parameters: str) -> ReadyFacts:
    return ready.check(BumpBranch.find(at.checkout, bump_to(**ACCEPTED, **parameters)), at.github(), at.records)


def missing(found: ReadyFacts) -> list[str]:
    return [each.name for each in found.requirements if each.blocks]


# -- nothing to do -----------------------------------------------------------------------------------------------


def test_nothing_is_done_before_there_is_a_run(tmp_path: Path) -> None:
    with world(tmp_path) as at:
        step06(at, mode="preview", broken=BOTH)
        with pytest.raises(Refused, match="No recipe runs nosuch@"):
            step06(at, mode="preview", broken="nosuch: x")
        step06(at)
        assert at.outcome().startswith("waiting for the pull request")
        at.open_pr()
        before = at.state()
        step06(at)
        assert at.outcome().startswith("waiting for a comment")
        assert at.said("waiting")[-1]["next"].endswith("04-run-ci.ipynb -r tag 26.04-py3 -r mode publish")
        assert (at.state(), at.effects()) == (before, [])


def test_a_preview_shows_everything_and_changes_nothing(at: World) -> None:
    before = at.state()
    facts = step06(at, mode="preview", broken=BOTH)
    assert (at.state(), at.effects(), len(issues(at))) == (before, [], len(issues(at)))
    text = shown(at, facts)
    assert text.count("see issue #(new), review by 20") == 2
    assert "issue #0" not in text
    assert all(part in text for part in ("OutOfMemoryError", "🐛 CI failure: ", "mr-github-broken", HANG))
    assert "mark 2 tests broken, in one commit on branch " in at.outcome()
    assert "waiting for a person: 5 failed jobs to decide" in at.outcome()  # drift is not refreshed
    states = [(each["publishes"], each["state"]) for each in at.conditions().values()]
    assert states[:3] == [(True, "would be made")] * 3
    # An issue names the image only where the base branch passes; whom it notifies is shown first.
    assert "mentions @NVIDIA/mcore-oncall)" in at.outcome()
    planned = {target.case: issue for target, issue in facts.found.change.issues.items()}
    assert planned[HANG].title == f"🐛 CI failure: gpt/{HANG}@dgx_h100 (dev)"
    assert "The test fails in CI with a new base image: it hangs" in planned[HANG].body
    assert "| new with this image: the job passes in" in planned[HANG].body
    assert "even without the new base image" in planned[MEMORY].body
    assert "| already failing on main:" in planned[MEMORY].body


@pytest.mark.slow
def test_drift_that_is_not_refreshed_yet_is_open(at: World) -> None:
    named = f"{BOTH}; hybrid_mr_tp2_cp2@dgx_h100: diverges"
    step06(at, mode="preview", broken=named)
    assert "open until 05-golden-values refreshes their values" in at.outcome()
    step06(at, broken=named)
    assert "push" not in at.effects()
    assert "moe/gpt3_moe_mcore_te_ep8 - latest" in at.outcome()


def test_open_failures_are_listed_with_a_proposal(at: World) -> None:
    step05(at)
    before = at.state()[:-1]
    step06(at)
    assert at.effects() == ["pull request"]  # its text tells why the jobs failed
    assert at.state()[:4] == before[:4]
    assert at.outcome().startswith("waiting for a person: 3 failed jobs to decide")
    following = at.said("waiting")[-1]["next"]
    assert f"gpt/{HANG}@dgx_h100" in following
    assert "hybrid" not in following  # a regression is never proposed


def test_a_test_that_fails_on_the_base_branch_too_is_not_blamed_on_the_image(at: World) -> None:
    tracked = at.github().file_issue(f"{MEMORY} runs out of memory", "Since Monday.")
    facts = step06(at)
    tests = decide.open_tests(facts.found)
    states = {test: job.on_base.state for test, job in tests.items()}
    assert states == {f"gpt/{HANG}@dgx_h100": "new", f"moe/{MEMORY}@dgx_h100": "failing"}
    assert f"tracked by #{tracked.number} {tracked.url}" in shown(at, facts)
    decisions = {entry["subject"]: entry for entry in at.said("decisions")}
    assert at.said("decisions")[-1]["kind"] == "reenable"  # a test that is quarantined on the base branch
    memory = decisions[f"moe/{MEMORY}@dgx_h100"]
    assert memory["why"].startswith("The new image did not break it: already failing on main:")
    assert memory["suggestion"] == "already failing on main"
    hang = decisions[f"gpt/{HANG}@dgx_h100"]["why"]
    assert "(new with this image: the job passes in" in hang
    # The image is searched for what it broke, and for nothing else.
    search = read_offer(hang)
    assert (search.subject, search.metric, search.here) == (f"gpt/{HANG}@dgx_h100", "exit", False)
    assert (str(search.good), str(search.bad)) == ("26.02-py3", "26.04-py3")
    assert "bisect-image" not in memory["why"]
    body = at.github().pulls()[0].body
    assert ["already failing on main:" in body, "new with this image" in body] == [True, True]


@pytest.mark.slow
def test_unavailable_values_leave_their_job_open_and_are_reported(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    step05(at, **ACCEPTED)
    with monkeypatch.context() as patch:
        patch.setattr(PracticeForge, "artifact", lambda *_: StoredFile(b""))
        found = step06(at, broken=BOTH).found.triage
    open_job = "hybrid/hybrid_mr_tp2_cp2 - latest"
    assert open_job in {it.job for it in found.unread}
    assert any(open_job in it for it in at.said("warnings"))
    assert "run 06-broken-tests again" in at.said("waiting")[-1]["next"]
    with monkeypatch.context() as patch:
        for script in scripted("scenario")["causes"].values():
            patch.setitem(script, "expired", True)
        assert any("The artifact has expired" in warning for warning in step06(at, broken=BOTH).found.triage.warnings)
        assert "06-broken-tests again" not in at.said("waiting")[-1]["next"]
    assert not step06(at).found.triage.unread
    assert at.effects()[-2:] == ["push", "comment"]


# -- decided -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_decisions_of_a_round_go_in_one_push_with_an_issue_each(at: World) -> None:
    step05(at, **ACCEPTED)
    step06(at, mode="preview")  # announces the push of step 5's commit
    assert [it["sentence"].partition(" ")[0] for it in at.said("planned")] == ["update", "push", "authorize"]
    assert "2 failed jobs to decide" in at.outcome()
    count = len(issues(at))
    step06(at, broken=BOTH)
    effects = [effect for effect in at.effects() if effect != "edit"]
    assert effects == ["issue", "issue", "commit", "pull request", "push", "comment"]
    filed = issues(at)[count:]
    assert [HANG in filed[0].title, MEMORY in filed[1].title] == [True, True]
    message = git(at.checkout.path, "log", "-1", "--format=%B")
    assert message.startswith("test: mark broken tests for 26.04-py3\n")
    assert f"(#{filed[0].number})" in message
    diff = git(at.checkout.path, "show", "--format=", "--unified=0", "HEAD").splitlines()
    scope = "scope: [mr-broken, mr-github-broken]  # was: [mr, mr-github]"
    assert [line[1:].strip() for line in diff if line.startswith("+ ")] == [
        f"# Broken: it hangs — see issue #{filed[0].number}, review by {REVIEW}.", scope,
        f"# Broken: out of memory — see issue #{filed[1].number}, review by {REVIEW}.", scope,
    ]  # fmt: skip
    kept = at.kept("change.diff").splitlines()
    assert [line for line in kept if line.startswith("+ ")] == [line for line in diff if line.startswith("+ ")]
    assert set(at.checks().values()) == {"passed"}
    assert git(at.checkout.path, "rev-parse", "HEAD") == git(at.remote, "rev-parse", "bump/main/dev-26.04-py3")
    body = at.github().pulls()[0].body
    assert f"(tracked by #{filed[0].number})" in body
    # The same command again, before and after the next run has ended.
    for _ in range(2):
        before = at.state()
        step06(at, broken=BOTH)
        at.now[0] += 1000
        assert (len(issues(at)), "commit" in at.effects()) == (count + 2, False)
    assert at.effects() == ["rerun", "pull request"]  # one test is flaky
    assert at.state()[:4] == before[:4]


@pytest.mark.slow
def test_a_flaky_test_is_reported_with_its_history_before_it_runs_again(at: World) -> None:
    name = "mimo/mimo_vlm_tp1 - latest"
    folder = at.records.parent / "dev-26.02-py3" / "20260103T000000Z-06-broken-tests"
    folder.mkdir(parents=True)
    (folder / "failures.csv").write_text(f"job,class,url\n{name},flaky infrastructure,https://x/1\n")
    step05(at, **ACCEPTED)
    triage = step06(at, broken=BOTH).found.triage
    flaky = "infrastructure failed this job before: seen 1 time in this archive, last on 2026-01-03 in dev-26.02-py3"
    assert [flaky in sentence for sentence in triage.history([name])] == [True]
    assert flaky in triage.show().text
    at.now[0] += 1000
    step06(at, broken=BOTH)
    assert "rerun" in at.effects()
    # The run before its repetition counts too.
    assert "failed this job before: seen 2 times" in " ".join(at.said("warnings"))


@pytest.mark.slow
def test_an_open_issue_that_names_the_test_or_that_the_decision_names_is_used(at: World) -> None:
    pull = at.github().pulls()[0].number  # it tracks nothing, and stops nothing
    facts = step06(at, mode="preview", decisions=naming(f"{MEMORY}@dgx_h100", pull))
    assert f"#{pull} is a pull request, so it does not track moe/{MEMORY}" in shown(at, facts)
    theirs = at.github().file_issue(f"{HANG} hangs", "Since Monday.")
    step06(at, broken=f"{HANG}@dgx_h100: it hangs")
    assert "issue" not in at.effects()
    assert f"# Broken: it hangs — see issue #{theirs.number}," in git(at.checkout.path, "show", "HEAD")
    other = at.github().file_issue("Something else", "")
    step06(at, decisions=naming(f"{MEMORY}@dgx_h100", other.number))
    assert f"see issue #{other.number}," in git(at.checkout.path, "show", "HEAD")
    at.forge.close(other.number)
    with pytest.raises(Refused, match="is closed"):
        step06(at, decisions=naming("hybrid_mr_tp2_cp2@dgx_h100", other.number))


def naming(test: str, issue: int) -> Decisions:
    """A decision that a test is broken, which names its issue."""
    return Decisions((*decided(**ACCEPTED).entries, Decision("broken", test, "it fails", issue=issue)))


@pytest.mark.slow
def test_no_row_changes_if_its_issue_cannot_be_filed(at: World) -> None:
    before = at.state()
    step06(at, mode="local", broken=BOTH)
    assert at.outcome().startswith("waiting for publish, which would file an issue for ")
    for error in (NotAllowed("Issues are disabled"), RunbookError("HTTP 422")):
        assert (at.state(), at.effects()) == (before, [])
        at.forge.fail("file_issue", error, times=9)
        with suppress(RunbookError):
            step06(at, broken=BOTH)
        at.forge.faults.clear()
    # A text that GitHub rejects stops nothing.
    at.forge.fail("update_pull", RunbookError("HTTP 422"), times=9)
    step06(at, broken=BOTH)
    assert at.effects() == ["issue", "issue", "commit"]
    assert any("HTTP 422" in it for it in at.said("warnings"))


def test_an_invalid_broken_test_and_an_uncommitted_recipe_are_refused(at: World) -> None:
    before = at.state()
    recipe = at.checkout.path / "tests/test_utils/recipes/h100/gpt.yaml"
    with pytest.raises(Refused, match="did not fail in CI run"):
        step06(at, broken="gpt3_mcore_te_tp2_pp2_resume@dgx_h100: why")
    assert at.state() == before
    recipe.write_text(recipe.read_text() + "# mine\n")
    with pytest.raises(Refused, match="cannot follow"):
        step06(at, broken=f"{HANG}@dgx_h100: it hangs")
    assert at.state()[3:] == before[3:]
    assert recipe.read_text().endswith("# mine\n")


@pytest.mark.slow
def test_a_re_enabled_test_has_its_former_row(at: World) -> None:
    path = at.checkout.path / "tests/test_utils/recipes/h100/gpt.yaml"
    before = path.read_bytes()
    step06(at, broken=f"{HANG}@dgx_h100: it hangs")
    assert path.read_bytes() != before
    step06(at, reenable=f"{HANG}@dgx_h100: mended")
    assert path.read_bytes() == before
    message = git(at.checkout.path, "log", "-1", "--format=%B")
    assert message.startswith("test: re-enable tests for 26.04-py3\n")
    assert "re-enabled: mended" in message
    assert at.said("inputs")["planned_commits"][0]["kind"] == "reenable"


# -- ready to merge ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ready_to_merge_after_all_rounds(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITLAB_URL", raising=False)
    step05(at, **ACCEPTED)
    assert "a push of the local commits" in missing(look(at))
    step06(at, broken=BOTH)
    at.now[0] += 1000
    step06(at)  # the flaky test again
    at.now[0] += 1000
    assert missing(look(at)) == ["a green pipeline on GitLab"]
    found = look(at, allow="second-ci-unseen")
    assert missing(found) == []
    assert any("Ready for review" in sentence for sentence in found.people)
    at.forge.close(issues(at)[-1].number)
    assert missing(look(at)) == ["an open issue for every broken test", "a green pipeline on GitLab"]


def test_gitlabs_pipeline_counts_where_there_is_one(tmp_path: Path) -> None:
    with world(tmp_path) as at:
        at.open_pr()
        for statuses, ok, says in (
            ([], False, "has no pipeline"), (["skipped"], False, "skipped"), (["failed"], False, "failed"),
            (["running"], False, "running"), (["success"], True, "success"),
        ):  # fmt: skip
            replies = {"pipelines": [gitlab_project.pipeline(1, at.head(), status) for status in statuses]}
            with gitlab_project.served(replies, REPOSITORY) as project, pytest.MonkeyPatch.context() as patch:
                project.configure(patch)
                (item,) = [it for it in look(at).requirements if "GitLab" in it.name]
            assert (item.state == "met", says in item.evidence) == (ok, True)
        assert look(at, mode="preview").problem  # it makes no query


# -- jobs of one name --------------------------------------------------------------------------------------------


def test_jobs_of_one_name_are_counted() -> None:
    run: Any = SimpleNamespace(bump=bump_to())
    table: list[tuple[tuple[FailureKind, ...], tuple[str, ...], tuple[tuple[str, ...], ...]]] = [
        ((), (), ((), ())),
        (("golden drift",), (), ((), ())),
        (("rate limit",), ("j",), ((), ("j",))),
        (("out of memory",), ("j",), (("j",), ())),
        (("golden drift", "flaky infrastructure"), ("j",), ((), ("j",))),  # the drift is explained
        (("golden drift", "flaky infrastructure"), ("j", "j"), (("j",), ("j",))),  # it is held back
        (("out of memory", "flaky infrastructure"), ("j", "j"), (("j",), ("j",))),
    ]
    for kinds, undecided, expected in table:
        seen = tuple(DiagnosedJob(Failure("j", "", kind, "")) for kind in kinds)
        assert open_jobs(Triage(run, seen, undecided)) == expected, kinds
    # Values that need another attempt to decide are not a person's question.
    ambiguous = Triage(run, (DiagnosedJob(Failure("j", "", "golden drift", "")),), ("j",), ambiguous=("j",))
    assert open_jobs(ambiguous) == ((), ("j",))
    # What a person wants to run again needs no other decision, whatever kind of test it is.
    node = "tests/unit_tests/test_a.py::test_b"
    unit = Triage(run, (DiagnosedJob(Failure("j", "", "unit tests", "", tests=(f"{node}[1]",))),), ("j",))
    for named, expected in ((node, ((), ("j",))), (f"{node}_2", (("j",), ()))):
        assert open_jobs(unit, rerun=[Target(named, "", "dev")]) == expected


def test_a_row_without_an_issue_does_not_borrow_the_next_ones() -> None:
    row = "      - environment: [dev]\n        platforms: [dgx_h100]\n"
    head = "spec: {model: gpt}\nproducts:\n"
    cases = {"a": "        scope: [mr]\n", "b": "        scope: [mr]\n"}
    before = head + "".join(f"  - test_case: [{case}]\n    products:\n{row}{scope}" for case, scope in cases.items())
    first, ours, second = before.rpartition("        scope: [mr]\n")
    ours = f"        # Broken: it hangs — see issue #7.\n{ours.replace('mr', 'mr-broken')}"
    after = first.replace("[mr]", "[mr-broken]") + ours + second  # the first by hand and without a word
    path = "tests/test_utils/recipes/r.yaml"
    texts = {"fork": {path: before}, "head": {path: after}}
    checkout = SimpleNamespace(git=lambda *_: f"{path}\0", read=lambda _, commit: texts[commit])
    branch: Any = SimpleNamespace(checkout=checkout, fork="fork", start="head", bump=bump_to())
    found = quarantines.quarantined_since_fork(branch, "head")
    assert [(each.test, each.issue, each.reason) for each in found] == [
        ("gpt/a", None, ""), ("gpt/b", 7, "it hangs"),
    ]  # fmt: skip


def test_the_jobs_of_a_pipeline_are_compared_with_that_of_the_base_commit(
    at: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = BumpBranch.find(at.checkout, bump_to(mode="preview"))
    replies: dict[str, Any] = {}
    for number, hang in ((2, "failed"), (4, "success")):
        jobs = (10 * number, HANG, hang, "gpt"), (10 * number + 1, MEMORY, "failed", "moe")
        replies[f"pipelines/{number}/jobs"] = [
            gitlab_project.job(id, name, status, stage=stage, artifacts_file=None) for id, name, status, stage in jobs
        ]
        replies[f"jobs/{10 * number}/trace"] = b"Watchdog caught collective operation timeout\n"
        replies[f"jobs/{10 * number + 1}/trace"] = b"torch.OutOfMemoryError: CUDA out of memory.\n"
    for number, commit in ((1, at.head()), (3, branch.base_commit)):
        replies[f"pipelines/{number}"] = gitlab_project.pipeline(number, commit)
        replies[f"pipelines/{number}/bridges"] = [gitlab_project.bridge("functional:run_dev_dgx_h100", number + 1)]
    replies["pipelines"] = [replies["pipelines/1"], replies["pipelines/3"]]
    with gitlab_project.served(replies, REPOSITORY) as project:
        project.configure(monkeypatch)
        state = read_state(branch, at.github())
        diagnosed = decide.triage(ci_runs.choose_run(state, source="gitlab"), None).jobs
        tokenless = decide.triage(ci_runs.choose_run(read_state(branch, None), source="gitlab"), None)
        decided = decide.decide(tokenless, ImageSearches())
    assert tokenless.jobs == diagnosed
    assert open_jobs(tokenless) == ((f"gpt/{HANG}", f"moe/{MEMORY}"), ())
    assert sorted(decide.open_tests(decided)) == [f"gpt/{HANG}@dgx_h100", f"moe/{MEMORY}@dgx_h100"]
    results = {(job.test, job.platform): job.on_base for job in diagnosed}
    assert {test for (test, _), result in results.items() if result.state == "failing"} == {f"moe/{MEMORY}"}
    new = results[f"gpt/{HANG}", "dgx_h100"]
    assert (new.state, new.sentence[:53]) == ("new", "new with this image: it passes on main (pipeline 3 of")
