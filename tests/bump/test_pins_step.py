"""Steps 0, 1, 2 and 7 as the notebooks compose them, on the practice environment's checkout and registry."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import clones
import pytest
from bumping import allowed
from layouts import layout
from whole_bump import playing

from runbook_lib.bump import pins_step, preflight, sync_check
from runbook_lib.bump.run import Run
from runbook_lib.bump.sync_check import SyncFacts
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.notebook.place import RunTarget
from runbook_lib.pins import pins_file
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.record import recorder
from runbook_lib.text.edits import Edit
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.conditions.commits import BranchTip, Committed
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import ONLINE, World

TAG = "26.04-py3"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    return RunTarget({}).checkout


@pytest.fixture
def step(tmp_path: Path) -> recorder.Recorder:
    folder = tmp_path / "record"
    folder.mkdir()
    return recorder.Recorder("01-github-pin", Bump.parse(), folder)


def branch(checkout: Checkout, **asked: object) -> BumpBranch:
    bump = Bump.parse(**({"tag": TAG} | asked))  # type: ignore[arg-type]
    return BumpBranch.find(checkout, bump, RunTarget({}).services)


def run(checkout: Checkout, step: recorder.Recorder, **asked: object) -> Run:
    step.bump = branch(checkout, **asked).bump
    return Run(step.bump, checkout, step, RunTarget({}).services)


def state(checkout: Checkout) -> tuple[str, ...]:
    files = [f"{path}={path.read_bytes()!r}" for path in sorted(checkout.path.rglob("*")) if path.is_file()]
    return (*(name for name in files if "/.git/" not in name), checkout.git("for-each-ref"), checkout.git("status"))


def commit(checkout: Checkout, branch: BumpBranch, edits: tuple[Edit, ...]) -> None:
    """Commit on the bump's branch, as its steps do."""
    tip = BranchTip(branch.bump.branch, branch.start)
    record = recorder.Recorder("01-github-pin", branch.bump)
    Committed(tip, edits, branch.bump.title).make_true(World(checkout, None, record))


def test_the_first_step_moves_all_pins_and_the_second_finds_them(checkout: Checkout, step: recorder.Recorder) -> None:
    before = state(checkout)
    for part in (pins_step.github, pins_step.gitlab):
        run(checkout, step, mode="local").step(part)
    here = branch(checkout)
    added = [line for line in checkout.git("diff", "-U0", "main", here.start).splitlines() if line[:1] == "+"]
    assert [TAG in line for line in added if line[:3] != "+++"] == [True] * 4
    assert [it["kind"] for it in step.run["effects"]] == ["branch", "commit"]
    assert {it["status"] for it in step.run["checks"]} == {"passed"}
    # The work tree, with whatever a person does there, is as it was.
    assert [line for line in state(checkout) if "refs/heads" not in line] == [
        line for line in before if "refs/heads" not in line
    ]


def test_the_steps_of_a_preview_look_up_the_remote_and_the_image_once(
    checkout: Checkout, step: recorder.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    for owner, name in ((Checkout, "fetch"), (pins_step, "verify_tag")):
        monkeypatch.setattr(owner, name, counted(looked_up, name, getattr(owner, name)))
    monkeypatch.setattr(recorder.Recorder, "is_bump", True)
    preview = run(checkout, step)
    looked_up.clear()
    for part in (preflight, pins_step.github, pins_step.gitlab, sync_check):
        preview.step(part)
    assert sorted(looked_up) == ["fetch", "verify_tag"]


def push(checkout: Checkout, texts: Mapping[str, str]) -> None:
    """Commit these files on the base branch."""
    clones.commit(checkout.path, texts)
    checkout.git("push", "-q", "origin", "HEAD:main")


def counted(names: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: (names.append(name), function(*arguments))[1]


def test_a_moved_pin_of_the_other_image_type_fails_the_check(checkout: Checkout) -> None:
    here = branch(checkout)
    commit(checkout, here, pins_step.plan_bump(here).plan.edits)
    here = branch(checkout)
    assert pins_step.check_other_type(here, here.fork, here.start).status == "passed"
    path = "docker/.ngc_version.lts"
    text = str(here.texts([path])[path])
    commit(checkout, here, (Edit(path, text, text.replace("25.09", TAG[:5])),))
    here = branch(checkout)
    check = pins_step.check_other_type(here, here.fork, here.start)
    assert check.status == "failed"
    assert path in check.detail
    permitted = branch(checkout, decisions=allowed("both-types"))
    assert pins_step.check_other_type(permitted, permitted.fork, here.start).status == "skipped"


def test_nothing_is_built_on_a_branch_of_that_name_with_other_content(
    checkout: Checkout, step: recorder.Recorder
) -> None:
    checkout.git("switch", "-q", "-c", Bump.parse(tag=TAG).branch, "main")
    checkout.git("commit", "-q", "--allow-empty-message", "--allow-empty", "-m", "")
    clones.commit(checkout.path, {"notes": "mine"})
    checkout.git("switch", "-q", "main")
    before = state(checkout)
    run(checkout, step, mode="local").step(pins_step.github)
    assert state(checkout) == before
    (question,) = step.run["decisions"]
    assert str(question["subject"]).startswith("foreign-commit:")


def test_a_roll_back_does_not_take_up_the_branch_of_the_bump_it_goes_back_to(checkout: Checkout) -> None:
    here = branch(checkout)
    commit(checkout, here, pins_step.plan_bump(here).plan.edits)
    newer = branch(checkout, tag="26.05-py3")
    commit(checkout, newer, pins_step.plan_bump(newer).plan.edits)
    checkout.git("push", "-q", "origin", f"{newer.bump.branch}:main")
    with pytest.raises(Refused, match="what: older-tag"):
        pins_step.plan_bump(branch(checkout, mode="local"))
    with pytest.raises(Refused, match="from an earlier bump"):
        pins_step.plan_bump(branch(checkout, mode="local", decisions=allowed("older-tag")))


@pytest.mark.parametrize(
    ("tag", "says"),
    [
        ("26.12-py3", "has no tag 26.12-py3"),
        ("26.03-py3", "exists for amd64, and not for arm64"),
    ],
)
def test_a_tag_missing_for_a_platform_is_refused(
    checkout: Checkout, step: recorder.Recorder, tag: str, says: str
) -> None:
    before = state(checkout)
    with pytest.raises(Refused, match=says):
        run(checkout, step, tag=tag, mode="local").step(pins_step.github)
    assert state(checkout) == before


def test_pins_without_platforms_need_those_of_the_image_that_is_pinned_now(checkout: Checkout) -> None:
    text = "version: 1\nimage: nvcr.io/nvidia/pytorch\npins: [{path: docker/.ngc_version.dev, find: {file: whole}}]\n"
    for platforms, status in (("", "failed"), ("platforms: [amd64]\n", "passed")):
        own = pins_file.parse(text + platforms, "practice/Megatron-LM")
        check = pins_step.plan_bump(branch(checkout, tag="26.03-py3", repository=own)).check
        assert (check.status, "26.02-py3 has all of amd64 and arm64" in check.detail) == (status, status == "failed")


def test_the_record_keeps_the_exception_for_an_older_tag(checkout: Checkout, step: recorder.Recorder) -> None:
    run(checkout, step, tag="26.01-py3", decisions=allowed("older-tag"), mode="local").step(pins_step.github)
    assert [it["subject"] for it in step.run["exceptions"]] == ["older-tag"]


def test_without_the_registry_apply_works_and_publish_requires_an_exception(
    checkout: Checkout, no_registry: None
) -> None:
    pins_step.plan_bump(replace(branch(checkout, mode="local"), services=ONLINE)).require()
    with pytest.raises(Refused, match="what: unverified-tag"):
        pins_step.plan_bump(replace(branch(checkout, mode="publish"), services=ONLINE)).require()
    here = branch(checkout, mode="publish", decisions=allowed("unverified-tag"))
    ahead = pins_step.plan_bump(replace(here, services=ONLINE))
    ahead.require()
    assert [each.subject for each in ahead.decided] == ["unverified-tag"]


@pytest.mark.parametrize(("tag", "cuda"), [("26.06-py3", "13.3"), ("26.08-py3", "13.4"), ("26.12-py3", None)])
def test_without_the_registry_the_known_months_name_the_cuda_release(
    tag: str, cuda: str | None, checkout: Checkout, no_registry: None
) -> None:
    assert pins_step.plan_bump(replace(branch(checkout, tag=tag), services=ONLINE)).cuda == cuda


def test_preflight_reports_checkout_image_and_rights(checkout: Checkout, step: recorder.Recorder) -> None:
    at = run(checkout, step)
    at.step(preflight)
    checks = {str(it["name"]): it for it in step.run["checks"]}
    runners = checks.pop("the driver of the runners")
    assert "CUDA 13.2 comes with driver 595" in str(runners["detail"])
    assert {it["status"] for it in checks.values()} == {"passed"}


def test_preflight_names_the_rows_that_ci_does_not_run_as_they_are_written(
    checkout: Checkout, step: recorder.Recorder
) -> None:
    recipe = "tests/test_utils/recipes/h100/gpt.yaml"
    misspelled = (checkout.path / recipe).read_text().replace("platforms: [dgx_h100]", "platforms: [dg  x_h100]", 1)
    push(checkout, {recipe: misspelled, "tests/test_utils/recipes/h100/README.md": "[no recipe\n"})
    (problem,) = preflight.look(World(checkout, None, step, RunTarget({}).services), branch(checkout).bump).recipes
    assert problem.startswith(f"{recipe}:")
    assert "'dg  x_h100'" in problem


def test_only_a_preview_works_without_an_identity(checkout: Checkout, step: recorder.Recorder) -> None:
    for name in ("name", "email"):
        checkout.git("config", f"user.{name}", "")
    before = state(checkout)
    for apply, status in ((False, "skipped"), (True, "failed")):
        world = World(checkout, None, step, RunTarget({}).services)
        facts = preflight.look(world, branch(checkout, mode="local" if apply else "preview").bump)
        (identity,) = [check for check in facts.checks if "committer identity" in check.name]
        assert identity.status == status
        assert "git config user.name" in identity.detail
    with pytest.raises(RunbookError, match=r"git config user\.email"):
        run(checkout, step, mode="local").step(pins_step.github)
    assert state(checkout) == before


def test_without_a_token_only_publishing_is_refused(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    assert ONLINE.forge("o/n", required=False) is None
    assert {check.status for check in preflight.rights(None, Bump.parse(tag=TAG))} == {"skipped"}
    with pytest.raises(Exception, match="There is no token for GitHub"):
        ONLINE.forge("o/n", required=True)


def pins(run: Run) -> SyncFacts:
    return sync_check.look(run.world, run.bump)


def test_the_sync_check_expects_the_tag_on_the_bumps_branch(checkout: Checkout, step: recorder.Recorder) -> None:
    here = branch(checkout)
    commit(checkout, here, pins_step.plan_bump(here).plan.part("github").edits)
    half = run(checkout, step, mode="local")
    assert pins(half).survey.outcome == "out of sync"
    half.step(sync_check)
    assert ".gitlab/stages/01.build.yml" in str(step.run)
    with pytest.raises(Exception, match="all pins agree"):
        half.close()
    here = branch(checkout)
    commit(checkout, here, pins_step.plan_bump(here).plan.edits)
    whole = pins(run(checkout, step, mode="local"))
    assert whole.survey.outcome == "in sync"
    assert whole.old_lines == {}  # the tag of LTS, which a dev bump leaves, is not an old one


@pytest.mark.parametrize("tag", ["26.04-py3", "26.06-py3"])
def test_a_preview_judges_the_planned_state_of_a_base_that_is_out_of_sync(
    checkout: Checkout, step: recorder.Recorder, tag: str
) -> None:
    push(checkout, {"docker/.ngc_version.dev": "nvcr.io/nvidia/pytorch:26.04-py3\n"})
    before = state(checkout)
    preview = run(checkout, step, tag=tag)
    preview.step(sync_check)
    preview.close()
    assert {check["status"] for check in step.run["checks"]} == {"passed"}
    assert state(checkout) == before


def test_files_that_git_cannot_search_are_a_warning(checkout: Checkout, step: recorder.Recorder) -> None:
    push(checkout, {"notes.md": "It was built for 26.02.\n"})
    notes = checkout.git("rev-parse", "HEAD:notes.md")
    (checkout.path / ".git/objects" / notes[:2] / notes[2:]).unlink()
    preview = run(checkout, step)
    preview.step(sync_check)
    assert "could not be searched" in str(step.run)
    preview.close()


@pytest.mark.parametrize("apply", [False, True])
def test_lines_outside_of_the_pins_that_name_the_old_tag_are_listed(
    checkout: Checkout, step: recorder.Recorder, apply: bool
) -> None:
    push(checkout, {"notes.md": "CI runs 26.04-py3.\nIt was built for 26.02-py3.\n"})
    if apply:
        here = branch(checkout)
        commit(checkout, here, pins_step.plan_bump(here).plan.edits)
    bumped = run(checkout, step, mode="local" if apply else "preview")
    bumped.step(sync_check)
    (warning,) = [line for line in step.run["warnings"] if "notes.md" in line]
    assert ("notes.md:1" in warning, "notes.md:2" in warning) == (False, True)
    bumped.close()


def test_a_digest_is_that_of_the_registry(checkout: Checkout, no_registry: None) -> None:
    push(checkout, {"docker/.ngc_version.dev": f"nvcr.io/nvidia/pytorch:26.02-py3@sha256:{'0' * 64}\n"})
    planned = pins_step.plan_bump(branch(checkout))
    written = {change.path: change.new for change in planned.plan.changes}
    assert written["docker/.ngc_version.dev"].endswith(f":{TAG}@{planned.image.digest}")
    with pytest.raises(RunbookError, match=r"127\.0\.0\.1:9"):
        pins_step.plan_bump(replace(branch(checkout), services=ONLINE))


def test_a_branch_without_a_pin_of_the_step_is_not_called_done(checkout: Checkout, step: recorder.Recorder) -> None:
    """Older release branches have no version files: nothing outside of GitLab names the image."""
    checkout.git("switch", "-q", "-c", "core_r0.14.0")
    clones.commit(checkout.path, {path: layout(1).get(path) for path in MEGATRON_LM.sites.pin_paths})
    checkout.git("push", "-q", "origin", "core_r0.14.0")
    run(checkout, step, base="core_r0.14.0").step(pins_step.github)
    outcome = step.run["outcome"]
    assert "core_r0.14.0 has no dev pin" in str(outcome)


@pytest.mark.parametrize(("is_bump", "outcome"), [(False, "out of sync"), (True, "in sync")])
def test_only_the_preview_of_a_bump_judges_a_branch_as_it_will_be(
    checkout: Checkout,
    step: recorder.Recorder,
    monkeypatch: pytest.MonkeyPatch,
    is_bump: bool,
    outcome: str,
) -> None:
    monkeypatch.setattr(recorder.Recorder, "is_bump", is_bump)
    here = branch(checkout)
    commit(checkout, here, pins_step.plan_bump(here).plan.part("github").edits)
    assert pins(run(checkout, step)).survey.outcome == outcome


def test_a_bump_judges_only_the_pins_of_its_image_type(checkout: Checkout, step: recorder.Recorder) -> None:
    push(checkout, {"docker/.ngc_version.lts": "nvcr.io/nvidia/pytorch:25.11-py3\n"})
    assert pins(run(checkout, step, tag="")).survey.outcome == "out of sync"
    assert pins(run(checkout, step)).survey.outcome == "in sync"


def test_no_notebook_of_a_bump_plans_a_commit_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: Counter[str] = Counter()
    every_commit: set[str] = set()
    read = Checkout.read

    def counting(checkout: Checkout, paths: Iterable[str], ref: str | None = None) -> dict[str, str | None]:
        listed = tuple(paths)
        if listed == MEGATRON_LM.sites.paths and ref is not None:
            planned[ref] += 1
        return read(checkout, listed, ref)

    monkeypatch.setattr(Checkout, "read", counting)
    with playing(tmp_path) as played:
        for notebook in ("00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr", "04-run-ci"):
            planned.clear()
            played.play(notebook)
            assert set(planned.values()) <= {1}, notebook
            every_commit |= planned.keys()
    assert len(every_commit) == 2  # the base, and the commit of the bump
