"""What the steps rely on of a second CI: practice in process, and GitLab's client, which reads it over HTTP."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from bumping import REPOSITORY, git
from gitlab_project import TOKEN, GitLabServer

from runbook_lib.errors import RunbookError
from runbook_lib.practice import seed
from runbook_lib.practice.second_ci import PracticeSecondCi
from runbook_lib.practice.store import Record, Store
from runbook_lib.world.gitlab.client import GitLab
from runbook_lib.world.ports import SecondCi
from runbook_lib.world.transport.archives import FileInParts, MissingFile

DEV, BUILD = "docker/.ngc_version.dev", ".gitlab/stages/01.build.yml"


@dataclass
class Place:
    """A practice repository and its second CI; files are read over ``web``."""

    home: Path
    store: Store
    ci: SecondCi

    def pushed(self, remote: str, branch: str, *moved: str) -> str:
        """Push a commit that moves these files from 26.02 to 26.04."""
        checkout = self.home / "checkout"
        for path in moved:
            file = checkout / path
            file.write_text(file.read_text().replace("26.02-py3", "26.04-py3"))
        git(checkout, "commit", "-qam", "Move", "--allow-empty")
        git(checkout, "push", "-q", remote, f"HEAD:refs/heads/{branch}")
        return git(checkout, "rev-parse", "HEAD")

    def tested(self, branch: str, *moved: str) -> str:
        """Push a commit that the forge tests in a run of this branch."""
        head = self.pushed("origin", "bump/main/dev-26.04-py3", *moved)
        with self.store.transaction() as state:
            state.runs.append(Record(head_sha=head, head_branch=branch))
        return head

    def read(self, file: FileInParts) -> str:
        file.part(0, 1)
        assert file.part(2, 3) == file.part(0, file.size)[2:5]
        return file.part(0, file.size).decode()


@pytest.fixture(params=["practice", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    seed.create(tmp_path / "remote.git", tmp_path / "checkout", tmp_path / "gitlab.git")
    store, pages = Store(tmp_path / "forge.sqlite"), "http://127.0.0.1:1/c"
    practised = PracticeSecondCi(store, tmp_path / "gitlab.git", pages)
    if request.param == "practice":
        return Place(tmp_path, store, practised)
    server, env = GitLabServer(practised), {"GITLAB_TOKEN": TOKEN, "GITLAB_PROJECT": REPOSITORY}
    gitlab = GitLab({**env, "GITLAB_URL": "http://127.0.0.1:9"}, transport=server)
    return Place(tmp_path, store, gitlab)


@pytest.mark.parametrize(
    ("moved", "status"),
    [((), "success"), ((DEV, BUILD), "success"), ((DEV,), "failed"), ((BUILD,), "failed")],
)
def test_a_tested_commit_is_green_if_its_pins_agree(place: Place, moved: tuple[str, ...], status: str) -> None:
    head = place.tested("pull-request/10", *moved)
    (found,) = place.ci.pipelines(head)
    assert (found.sha, found.ref, found.status) == (head, "pull-request/10", status)
    assert head in found.url
    assert place.ci.pipeline(found.id) == found
    assert place.ci.variables(found.id) == {}
    jobs = place.ci.jobs(found.id)
    assert {job.status for job in jobs if "DEV_IMAGE" in job.name} == {status}
    assert {job.status for job in jobs if "DEV_IMAGE" not in job.name} == {"success"}
    bridges = place.ci.bridges(found.id)
    started = [(bridge.environment, bridge.platform, bridge.pipeline is not None) for bridge in bridges]
    assert started == [(name, "dgx_h100", status == "success") for name in ("dev", "lts")]
    tests = [job for bridge in bridges if bridge.pipeline for job in place.ci.jobs(bridge.pipeline)]
    assert [job.status for job in tests] == ["success"] * 2 * (status == "success")


def test_main_has_pipelines_and_an_untested_commit_has_none(place: Place) -> None:
    (found,) = place.ci.pipelines(place.tested("gh-readonly-queue/main/pr-10-0123"))
    assert found.ref == "main"
    assert place.ci.pipelines(place.pushed("origin", "another", DEV)) == ()
    assert place.ci.pipelines("0" * 40) == ()
    for read in (place.ci.pipeline, place.ci.variables, place.ci.bridges):
        with pytest.raises(RunbookError, match="does not find it"):
            read(1)


def test_a_pipeline_starts_only_for_a_branch_that_is_known(place: Place) -> None:
    with pytest.raises(RunbookError, match="Reference not found"):
        place.ci.start("pull-request/x", {})
    head = place.pushed("gitlab", "pull-request/x", DEV, BUILD)
    assert place.ci.pipelines(head) == ()
    started = place.ci.start("pull-request/x", {"BUILD": "yes"})
    assert place.ci.pipelines(head) == (started,)
    assert (started.sha, started.ref) == (head, "pull-request/x")
    assert place.ci.variables(started.id) == {"BUILD": "yes"}


def test_a_commit_has_a_pipeline_for_each_start_and_its_nightly_test_drifts(place: Place) -> None:
    head = place.pushed("gitlab", "pull-request/x", DEV, BUILD)
    weekly, nightly = (place.ci.start("pull-request/x", {"FUNCTIONAL_TEST_SCOPE": it}) for it in ("weekly", "nightly"))
    assert place.ci.pipelines(head) == (nightly, weekly)
    assert [place.ci.pipeline(it.id) for it in (weekly, nightly)] == [weekly, nightly]
    children = [place.ci.bridges(it.id)[0].pipeline or 0 for it in (weekly, nightly)]
    assert place.ci.jobs(children[0]) == ()
    (test,) = place.ci.jobs(children[1])
    assert (test.name, test.status) == ("gpt3_mcore_tp1_pp4", "failed")
    file = place.ci.artifact(test.id)
    assert file.part(0, 4) == b"PK\x03\x04"
    assert file.size == test.size


def test_the_project_names_its_protected_branches(place: Place) -> None:
    assert place.ci.is_protected("main")
    assert not place.ci.is_protected("pull-request/x")


def test_logs_and_artifacts_are_read_in_parts_or_missing(place: Place) -> None:
    (found,) = place.ci.pipelines(place.tested("pull-request/10", DEV))
    (red, *_) = [job for job in place.ci.jobs(found.id) if job.status == "failed"]
    assert "ERROR: nvcr.io/nvidia/pytorch:26.02-py3 is not the pinned image" in place.read(place.ci.log(red.id))
    with pytest.raises(MissingFile):
        place.read(place.ci.artifact(red.id))
    with pytest.raises((MissingFile, RunbookError)):
        place.read(place.ci.log(1))
