"""Step 5 in a practice repository with its forge: values refreshed, held back, accepted, pushed once, told once."""

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gitlab_project
import pytest
from bisect_world import read_offer
from bumping import BRANCH, REPOSITORY, World, after_ci, bump_to, git, world
from clones import commit
from stores import packed

from runbook_lib.bump import ready
from runbook_lib.bump.run_ci import RunCi, push_round
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.golden import ci_runs, groups, step
from runbook_lib.golden.ci_runs import ChosenRun
from runbook_lib.golden.comparison import GoldenComparison
from runbook_lib.golden.step import GoldenStep
from runbook_lib.model import Plan, Round
from runbook_lib.pins.bump import Bump
from runbook_lib.practice import values
from runbook_lib.practice.ci import Job
from runbook_lib.practice.forge import PracticeForge
from runbook_lib.practice.store import scripted
from runbook_lib.record import decisions
from runbook_lib.text.edits import Edit
from runbook_lib.text.recipes.file_names import FOLDER, baseline_of
from runbook_lib.world.bump_branch import BumpBranch

REGRESSION = "hybrid/hybrid_mr_tp2_cp2/golden_values_dev_dgx_h100.json"
DRIFTED = [
    f"{case}/golden_values_dev_dgx_{platform}.json"
    for case in ("gpt/gpt3_mcore_te_tp1_pp1", "moe/gpt3_moe_mcore_te_ep8")
    for platform in ("gb200", "h100")
]
TITLE = "test: refresh golden values for 26.04-py3"


@dataclass
class Ran:
    """A run of step 5: what it read and planned."""

    step: GoldenStep
    facts: GoldenComparison | ChosenRun | None = None
    planned: Plan[Any] | None = None

    def look(self, world: Any, bump: Bump) -> GoldenComparison | ChosenRun:
        self.facts = self.step.look(world, bump)
        return self.facts

    def plan(self, facts: GoldenComparison | ChosenRun, bump: Bump) -> Plan[Any]:
        self.planned = self.step.plan(facts, bump)
        return self.planned

    @property
    def values(self) -> GoldenComparison:
        assert isinstance(self.facts, GoldenComparison)
        return self.facts

    @property
    def edits(self) -> tuple[Edit, ...]:
        return self.values.edits

    @property
    def waiting(self) -> set[str]:
        """The groups that nobody has accepted."""
        return {group.id for group in self.values.verdicts.groups if not group.accepted}


def step05(
    at: World, *, mode: str = "publish", token: str = "practice-token", tag: str = "26.04-py3",
    run_id: str = "", source: str = "github", **told: Any,
) -> Ran:  # fmt: skip
    """Step 5, as its notebook runs it with these decisions."""
    ran = Ran(GoldenStep(run_id, source))
    run = at.context(bump_to(tag, mode=mode, **told), token)
    run.step(ran)
    run.step(push_round)
    return ran


def stretched(content: bytes, factor: float) -> bytes:
    """Return golden values whose iterations take longer by a factor."""
    values = json.loads(content)
    times = values["iteration-time"]["values"]
    values["iteration-time"]["values"] = {step: time * factor for step, time in times.items()}
    return json.dumps(values).encode()


def slower(monkeypatch: pytest.MonkeyPatch, case: str, factor: float) -> None:
    """Let the artifacts of a test tell longer iteration times than the test measured."""
    whole = PracticeForge.archive

    def rewritten(forge: PracticeForge, job: Job) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(whole(forge, job))) as old, zipfile.ZipFile(out, "w") as new:
            for name in old.namelist():
                data = old.read(name)
                if name.startswith("golden_values") and job.test.endswith(f"/{case}"):
                    data = stretched(data, factor)
                new.writestr(name, data)
        return out.getvalue()

    monkeypatch.setattr(PracticeForge, "archive", rewritten)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, after_ci) as made:
        yield made


def changed(at: World, since: str = "HEAD~1") -> list[str]:
    return git(at.checkout.path, "diff", "--name-only", since, "HEAD").splitlines()


# -- nothing to do -----------------------------------------------------------------------------------------------


def test_a_preview_shows_everything_and_changes_nothing(at: World) -> None:
    before = at.state()
    ran = step05(at, mode="preview", token="contributor-token")  # reading needs no rights
    assert (at.state(), at.effects()) == (before, [])
    assert "failed" not in at.checks().values()
    assert at.outcome().startswith(f"Preview: would commit 4 files on branch {BRANCH}: '{TITLE}'; update our part")
    assert "; waiting for a person: 1 golden file is held back (" in at.outcome()
    assert ran.planned
    shown = "\n".join(view._repr_mimebundle_()["text/plain"] for view in ran.planned.shown)
    assert all(name in shown for name in [*DRIFTED, REGRESSION, TITLE, "runs nightly, in GitLab only"])
    assert "a curve" in shown  # of what is held back
    assert list(ran.planned.evidence.tables["golden values"][0])[:4] == ["file", "metric", "n_steps", "avg_rel_diff"]


# -- refresh, held back, accepted --------------------------------------------------------------------------------


def test_drift_is_refreshed_and_a_regression_held_back(at: World) -> None:
    base = git(at.checkout.path, "rev-parse", "HEAD")
    ran = step05(at, mode="local")
    assert changed(at) == [f"{FOLDER}/{name}" for name in DRIFTED]
    measured = ran.values.table.measured
    for name in DRIFTED:
        assert git(at.checkout.path, "show", f"HEAD:{FOLDER}/{name}") == measured[name].rstrip("\n")
    message = git(at.checkout.path, "log", "-1", "--format=%B")
    assert message.startswith(f"{TITLE}\n")
    assert "Signed-off-by: " in message
    assert re.search(r"^Commit [0-9a-f]{40}, attempt 1, image \S*26\.04-py3.*, runners .+\.$", message, re.MULTILINE)
    rows = step.provenance(ran.values)
    assert len(rows) == 4
    assert all(row["runner"] and row["job"] and row["commit"] == base for row in rows)
    assert "waiting for a person: 1 golden file is held back (" in at.outcome()
    assert git(at.remote, "rev-parse", "bump/main/dev-26.04-py3") == base
    assert at.checks()["the branch has the run's values byte for byte"] == "passed"


@pytest.mark.slow
def test_undecided_tests_block_the_push_and_a_second_run_does_nothing(at: World) -> None:
    there = at.head()
    ran = step05(at)
    decided = at.conditions()["decide each failed test of this run"]
    assert decided["state"] == "waits"
    assert decided["found"].startswith("waiting for 06-broken-tests: 4 failed tests of this run are undecided")
    assert sorted(name.split("/")[0] for name in ran.values.undecided()) == ["gpt", "hybrid", "mimo", "moe"]
    assert "push" not in at.effects()
    before = at.state()
    ran = step05(at)
    assert (at.state(), at.effects(), ran.edits) == (before, [], ())
    assert ran.values.undecided() == step05(at, mode="preview").values.undecided()
    assert len(ran.values.undecided()) == 4  # the refreshed ones stay explained
    at.open_pr()  # nor does step 3 push them
    assert "push" not in at.effects()
    assert at.head() == there
    assert at.checks()["the pull request is open"] == "passed"


def test_a_divergence_is_accepted_with_its_danger_confirmed_and_the_reason_kept(at: World) -> None:
    ran = step05(at, accept=f"{REGRESSION}: right")
    assert [judgement.file for judgement in ran.values.verdicts.stopped] == [REGRESSION]
    assert changed(at) == [f"{FOLDER}/{name}" for name in DRIFTED]  # these are not lost
    assert "needs `confirm: divergence`" in at.outcome()
    before = at.github().pulls()[0].body
    step05(at, accept=f"{REGRESSION}: the new cuDNN sums in another order", confirm="divergence")
    assert changed(at) == [f"{FOLDER}/{REGRESSION}"]
    assert "another order" in git(at.checkout.path, "log", "-1", "--format=%B")
    (said,) = at.said("exceptions")
    assert (said["kind"], said["subject"]) == ("accept", REGRESSION)
    assert said["reason"] == "the new cuDNN sums in another order"
    body = at.github().pulls()[0].body
    assert "5 refreshed, 0 held back" in body
    assert "another order" in body
    assert body.partition("### Golden")[0] == before.partition("### Golden")[0]


# -- one push a round --------------------------------------------------------------------------------------------


def test_a_round_is_pushed_once_and_tested(at: World) -> None:
    told = {"accept": f"{REGRESSION}: right", "confirm": "divergence"}
    ran = step05(at, allow="partial-round", **told)
    head = git(at.checkout.path, "rev-parse", "HEAD")
    assert git(at.remote, "rev-parse", "bump/main/dev-26.04-py3") == head
    assert at.effects() == ["commit", "pull request", "push", "comment"]
    assert at.github().comments(at.github().pulls()[0].number)[-1].body == f"/ok to test {head}"
    at.now[0] += 1000
    again = step05(at, **told)
    assert again.values.table.measured == {}  # what was refreshed passes now
    assert at.effects() == ["pull request"]  # the text names the newest run
    assert at.github().pulls()[0].body.count("golden-values:begin") == 1
    # The run before is of an older commit.
    old = ran.values.ci_run.url.rpartition("/")[2].removesuffix(".html")
    with pytest.raises(Refused, match="what: older-run"):
        step05(at, run_id=old)
    step05(at, run_id=old, allow="older-run", mode="local")
    assert [entry["subject"] for entry in at.said("exceptions")] == ["older-run"]


def test_nothing_is_pushed_while_a_run_is_in_progress(opened: World) -> None:
    path = opened.checkout.path
    git(path, "switch", "-q", BRANCH)
    opened.run(RunCi())
    opened.now[0] += 30
    opened.step(bump_to()).planned_commit(opened.head(), git(path, "rev-parse", "HEAD^{tree}"), "refresh")
    git(path, "commit", "-qs", "--allow-empty", "-m", TITLE)
    head = git(path, "rev-parse", "HEAD")[:10]
    for allow, starts in (("", "waiting for CI run"), ("push-while-running", f"{head} is pushed")):
        run = opened.context(bump_to(allow=allow))
        run.world.round = Round()
        run.step(push_round)
        assert opened.outcome().startswith(starts)
        assert opened.effects() == ["push", "comment"] * bool(allow)
    assert [entry["subject"] for entry in opened.said("exceptions")] == ["push-while-running"]


def test_a_decision_about_one_round_is_open_again_on_other_values(
    at: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = "moe/gpt3_moe_mcore_te_ep8"
    file, path = f"{case}/golden_values_dev_dgx_h100.json", tmp_path / "decisions.yaml"
    path.write_text(f"accept:\n- {{file: {file}, reason: the new kernel}}\n")

    def accepted(mode: str) -> bool:
        ran = step05(at, mode=mode, decisions=decisions.read(path))
        return file not in [judgement.file for judgement in ran.values.verdicts.stopped]

    with monkeypatch.context() as patch:
        slower(patch, case.partition("/")[2], 2.5)
        assert accepted("preview")
        assert "seen" not in path.read_text()  # a preview binds nothing
        assert accepted("local")
        (entry,) = decisions.read(path).entries
        assert entry.seen
        assert entry.seen.run
    slower(monkeypatch, case.partition("/")[2], 4.0)
    assert not accepted("local")
    (question,) = [entry for entry in at.said("decisions") if entry["subject"] == file]
    assert "Decided before by" in question["why"]
    assert "“the new kernel”" in question["why"]
    step05(at, mode="local", accept=f"{file}: again")  # as the form writes it anew
    assert [each["subject"] for each in at.said("decisions") if each["subject"] == file] == []


# -- what is in the way ------------------------------------------------------------------------------------------


def test_a_run_of_another_branch_is_refused(at: World) -> None:
    before = at.state()
    for asked, says in (
        ({"run_id": "twelve"}, "on 'twelve'"),
        ({"source": "jenkins"}, "choose github or gitlab"),
        ({"source": "gitlab", "run_id": "x"}, "'x' is not"),
    ):
        with pytest.raises(RunbookError, match=says):
            step05(at, **asked)
    assert at.state() == before


def test_the_values_of_a_forks_run_are_refused(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run, before = PracticeForge.run, at.state()
    monkeypatch.setattr(PracticeForge, "run", lambda *asked: replace(run(*asked), fork=True))
    named = str(at.github().runs("pull-request/10")[0].id)
    for allow in ("", "older-run"):
        with pytest.raises(Refused, match="of a fork"):
            step05(at, run_id=named, allow=allow)
    assert at.state() == before


def test_a_missing_file_fails_the_step_and_the_rest_is_refreshed(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PracticeForge.archive

    def torn(forge: PracticeForge, job: Job) -> bytes:
        data = whole(forge, job)
        return data[: len(data) // 2] if job.test == "moe/gpt3_moe_mcore_te_ep8" else data

    monkeypatch.setattr(PracticeForge, "archive", torn)
    ran = step05(at, mode="local")
    assert changed(at) == [f"{FOLDER}/{name}" for name in DRIFTED if name.startswith("gpt")]
    assert len(ran.values.unavailable) == 2
    assert at.checks()["every requested golden file is there"] == "failed"
    with pytest.raises(RunbookError, match="gpt3_moe_mcore_te_ep8"):
        at.steps[-1].raise_if_failed()


# -- GitLab ------------------------------------------------------------------------------------------------------


NIGHTLY = f"{FOLDER}/gpt/gpt3_mcore_tp1_pp4/golden_values_dev_dgx_h100.json"


@pytest.fixture
def gitlab(at: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The same, with a GitLab that mirrors it: a test drifted there that GitHub does not run."""
    drift = scripted("scenario")["causes"]["drift"]["values"]
    measured = values.remeasure((at.checkout.path / NIGHTLY).read_text(), drift, "26.04")
    inside = "results/iteration=0/restart=0/assets/basic/gpt3-mcore-tp1-pp4-dev-dgx-h100"
    results = json.dumps({"batch_8": {"throughput_tok_per_sec": 80.0}})
    archive = packed({
        f"{inside}/golden_values_dev_dgx_h100.json": measured.encode(),
        f"{inside}/perf_results/results.json": results.encode(),
    })  # fmt: skip
    replies = gitlab_project.with_test(at.head(), "gpt3_mcore_tp1_pp4", archive)
    with gitlab_project.served(replies, REPOSITORY) as project:
        project.configure(monkeypatch)
        yield at


def test_values_of_the_scopes_that_github_never_runs_come_from_gitlab(gitlab: World) -> None:
    step05(gitlab, mode="local")  # GitHub's
    ran = step05(gitlab, mode="local", source="gitlab")
    assert ran.values.source.name == "pipeline 1"
    assert NIGHTLY in changed(gitlab)
    assert baseline_of("gpt", "gpt3_mcore_tp1_pp4") in changed(gitlab)  # the platform's results, as a new baseline
    assert NIGHTLY not in [it.file for it in ran.values.coverage if it.kind != "covered"]
    again = step05(gitlab, mode="local", source="gitlab", run_id="1")
    assert again.edits == ()
    assert gitlab.effects() == []


def test_a_gitlab_that_cannot_be_read_leaves_the_green_run(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read_progress = ci_runs.read_progress
    monkeypatch.setattr(ci_runs, "read_progress", lambda *of: replace(read_progress(*of), state="passed"))
    monkeypatch.setattr("runbook_lib.world.transport.http.PAUSES", ())
    for name, value in {"URL": "http://127.0.0.1:9", "TOKEN": "x", "PROJECT": REPOSITORY}.items():
        monkeypatch.setenv(f"GITLAB_{name}", value)
    assert step05(at, mode="preview").values.source.name.startswith("CI run ")


def test_a_pipeline_of_another_commit_is_refused(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = gitlab_project.with_test("b" * 40, "gpt3_mcore_tp1_pp4", packed({}))
    with gitlab_project.served(replies, REPOSITORY) as project:
        project.configure(monkeypatch)
        with pytest.raises(Refused, match="what: older-run"):
            step05(at, mode="preview", source="gitlab", run_id="1")


# -- without a bump ----------------------------------------------------------------------------------------------


@pytest.fixture
def feature(at: World) -> World:
    """A branch of somebody's own, at the commit that CI has tested."""
    git(at.checkout.path, "switch", "-qc", "feature/faster", "bump/main/dev-26.04-py3")
    return at


@pytest.mark.slow
def test_values_of_any_run_without_a_bump(feature: World) -> None:
    run = feature.github().runs("pull-request/10")[0]
    before = feature.state()
    options: dict[str, Any] = {"tag": "", "run_id": str(run.id)}
    step05(feature, mode="preview", **options)
    assert feature.outcome().startswith("Preview: would commit 4 files on branch feature/faster: 'test: refresh")
    assert (feature.state(), feature.effects()) == (before, [])
    step05(feature, **options, accept=f"{REGRESSION}: a new kernel", confirm="divergence")
    assert feature.effects() == ["commit"]
    assert sorted(changed(feature)) == sorted(f"{FOLDER}/{name}" for name in [*DRIFTED, REGRESSION])
    assert git(feature.checkout.path, "log", "-1", "--format=%s %D").endswith("HEAD -> feature/faster")
    assert f"- {REGRESSION}: a new kernel" in git(feature.checkout.path, "log", "-1", "--format=%b")
    assert feature.outcome() == "Refreshed 5 golden files on feature/faster."
    assert feature.said("done")[-1]["next"].endswith("push origin feature/faster")
    # Nothing is pushed or commented, and a second run with the same text does nothing.
    assert before[3:] == feature.state()[3:]
    step05(feature, **options, accept=f"{REGRESSION}: a new kernel", confirm="divergence")
    assert feature.effects() == []
    assert feature.outcome() == "Already done: the branch has all golden values of this run."


def test_first_golden_values_of_a_new_test(feature: World) -> None:
    new = f"{FOLDER}/{DRIFTED[0]}"
    commit(feature.checkout.path, {new: None})  # as if the test had no values yet
    ran = step05(feature, mode="local", tag="", run_id="#10")
    assert {edit.path: edit.before for edit in ran.edits}[new] is None
    assert new in changed(feature)


def test_a_run_of_other_code_needs_the_exception(feature: World) -> None:
    commit(feature.checkout.path, {"code.py": "faster = True\n"})
    before = feature.state()
    with pytest.raises(Refused, match="what: older-run"):
        step05(feature, tag="", run_id="#10")
    assert feature.state() == before
    step05(feature, tag="", run_id="#10", allow="older-run", mode="local")
    assert len(changed(feature)) == 4
    assert [entry["subject"] for entry in feature.said("exceptions")] == ["older-run"]


def test_what_nobody_can_accept_is_to_be_quarantined(feature: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slower(monkeypatch, "gpt3_moe_mcore_te_ep8", math.nan)
    told = {"tag": "", "run_id": "#10", "accept": f"{REGRESSION}: right", "confirm": "divergence"}
    step05(feature, mode="local", **told)
    assert feature.steps[-1].run["outcome"]["next"]["because"].startswith("Nobody can accept what is refused")


def test_a_detached_head_is_refused(feature: World) -> None:
    git(feature.checkout.path, "switch", "-q", "--detach")
    with pytest.raises(Refused, match="No branch is checked out"):
        step05(feature, tag="", run_id="#10")


def test_a_pipeline_of_gitlab_without_a_bump(gitlab: World) -> None:
    git(gitlab.checkout.path, "switch", "-qc", "feature", "bump/main/dev-26.04-py3")
    step05(gitlab, tag="", run_id="https://gitlab.example.com/p/-/pipelines/1", mode="local")
    assert changed(gitlab) == [NIGHTLY, baseline_of("gpt", "gpt3_mcore_tp1_pp4")]


def test_a_slower_test_offers_a_search_and_a_divergence_offers_none(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slower(monkeypatch, "gpt3_moe_mcore_te_ep8", 1.5)
    step05(at, mode="preview")
    reasons = {entry["subject"].removeprefix(f"{FOLDER}/"): entry["why"] for entry in at.said("decisions")}
    search = read_offer(reasons["moe/gpt3_moe_mcore_te_ep8/golden_values_dev_dgx_h100.json"])
    assert (search.metric, search.subject) == ("iteration-time", "moe/gpt3_moe_mcore_te_ep8@dgx_h100")
    assert "bisect-image" not in reasons[REGRESSION.removeprefix(f"{FOLDER}/")]


@pytest.mark.slow
def test_a_value_that_creeps_over_two_rounds_is_held_back_and_can_be_accepted(
    at: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = "moe/gpt3_moe_mcore_te_ep8"
    file = f"{case}/golden_values_dev_dgx_h100.json"
    with monkeypatch.context() as patch:
        slower(patch, case.partition("/")[2], 1.2)
        assert file not in [one.file for one in step05(at, mode="local").values.verdicts.stopped]
    slower(monkeypatch, case.partition("/")[2], 1.4)  # against the branch only a sixth more
    ran = step05(at, mode="local")
    assert file in [one.file for one in ran.values.verdicts.stopped]
    assert ran.edits == ()
    accepted = f"{file}: the new kernel is slower; {case}/golden_values_dev_dgx_gb200.json: so is this"
    assert f"{FOLDER}/{file}" in [edit.path for edit in step05(at, mode="local", accept=accepted).edits]


@pytest.fixture
def two_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two tests show a shift of their platform: so many drift in practice."""
    monkeypatch.setattr(groups, "COMMON", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("two_suffice")
def test_a_shift_of_a_platform_waits_for_one_decision(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in ("gpt3_mcore_te_tp1_pp1", "gpt3_moe_mcore_te_ep8"):
        slower(monkeypatch, case, 1.5)
    before = at.state()
    ran = step05(at)
    both = {"dgx_h100/iteration-time", "dgx_gb200/iteration-time"}
    assert ran.waiting == both
    assert (ran.edits, at.state()[0]) == ((), before[0])
    assert "tests slower" in at.outcome()
    assert len(ran.values.undecided()) == 8  # what waits explains no failure
    with pytest.raises(Refused, match="no group"):
        step05(at, accept="dgx_x100/iteration-time: all")
    told = {"accept": "dgx_h100/iteration-time: the image is slower"}
    assert step05(at, mode="preview", **told).waiting == both
    assert "needs `confirm: slower`" in at.outcome()
    step05(at, mode="local", confirm="slower", **told)
    assert {name.rpartition("_")[2] for name in changed(at)} == {"h100.json"}
    message = git(at.checkout.path, "log", "-1", "--format=%B")
    assert re.search(r"^- dgx_h100/iteration-time ×1\.\d\d: the image is slower$", message, re.MULTILINE)
    (exception,) = at.said("exceptions")
    assert exception["subject"] == "dgx_h100/iteration-time"
    again = step05(at, mode="preview", confirm="slower", **told)
    assert again.waiting == {"dgx_gb200/iteration-time"}
    (decision,) = [entry for entry in at.said("decisions") if entry["subject"] == "dgx_gb200/iteration-time"][-1:]
    search = read_offer(decision["why"])
    assert (search.metric, search.higher_is_better, search.here) == ("iteration-time", False, False)
    assert search.subject.endswith("@dgx_gb200")
    text = step.text(again.values)
    assert "accepted: `the image is slower`" in text
    assert text.index("One decision for many files") < text.index("Held back: a person must decide")


@pytest.mark.usefixtures("two_suffice")
def test_a_group_that_was_committed_by_hand_is_not_ready_before_it_is_accepted(at: World) -> None:
    def requirement() -> ready.Requirement:
        state = ready.check(BumpBranch.find(at.checkout, bump_to()), at.github(), at.step(bump_to()).records)
        return next(each for each in state.requirements if each.name == "golden values without open decisions")

    assert requirement().state == "met"
    for name in (name for name in DRIFTED if "h100" in name):
        path = at.checkout.path / FOLDER / name
        path.write_bytes(stretched(path.read_bytes(), 1.5))
    git(at.checkout.path, "checkout", "-q", "bump/main/dev-26.04-py3")
    git(at.checkout.path, "commit", "-q", "-a", "-m", "Refresh golden values")
    missing = requirement()
    assert (missing.state, "dgx_h100/iteration-time" in missing.evidence) == ("missing", True)


def test_the_jobs_of_ambiguous_values_are_named_to_run_again(at: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slower(monkeypatch, "gpt3_moe_mcore_te_ep8", 1.6)
    monkeypatch.setattr(groups.NoiseModel, "similar", lambda *_: (1, 8))
    ran = step05(at, mode="local")
    ambiguous = {file.file for file in ran.values.verdicts.judgements if file.verdict == "ambiguous"}
    assert ambiguous == {name for name in DRIFTED if name.startswith("moe")}
    assert not [edit for edit in ran.edits if "moe" in edit.path]
    assert len(ran.values.ambiguous_jobs) == 2
