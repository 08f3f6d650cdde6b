"""The scripted pipelines of the second CI, read by the client: green where the pins agree, red where one lags."""

from pathlib import Path

import pytest
from bumping import REPOSITORY, git
from gitlab_project import TOKEN, Faulty

from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.errors import RunbookError
from runbook_lib.practice import seed
from runbook_lib.practice.second_ci import SecondCi

DEV, BUILD = "docker/.ngc_version.dev", ".gitlab/stages/01.build.yml"


class Place:
    """A practice repository, and its second CI, which this reads."""

    def __init__(self, home: Path) -> None:
        seed.create(home / "remote.git", home / "checkout", home / "gitlab.git")
        self.checkout = home / "checkout"
        scripted = SecondCi(REPOSITORY, home / "remote.git", home / "gitlab.git", "http://127.0.0.1:1/commit")
        env = {"GITLAB_URL": "http://127.0.0.1:9", "GITLAB_TOKEN": TOKEN, "GITLAB_PROJECT": REPOSITORY}
        self.gitlab = GitLab(env, transport=Faulty(scripted))

    def pushed(self, remote: str, branch: str, *moved: str) -> str:
        """Push a commit that moves these files from 26.02 to 26.04."""
        for path in moved:
            file = self.checkout / path
            file.write_text(file.read_text().replace("26.02-py3", "26.04-py3"))
        git(self.checkout, "commit", "-qam", "Move", "--allow-empty")
        git(self.checkout, "push", "-q", remote, f"HEAD:refs/heads/{branch}")
        return git(self.checkout, "rev-parse", "HEAD")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("moved", "status"),
    [((), "success"), ((DEV, BUILD), "success"), ((DEV,), "failed"), ((BUILD,), "failed")],
)
@pytest.mark.parametrize("branch", ["pull-request/10", "main"])
def test_a_tested_commit_is_green_if_its_pins_agree(
    place: Place, branch: str, moved: tuple[str, ...], status: str
) -> None:
    head = place.pushed("origin", branch, *moved)
    (found,) = place.gitlab.pipelines(head)
    assert (found.sha, found.ref, found.status) == (head, branch, status)
    assert found.url == f"http://127.0.0.1:1/commit/{head}.html"
    assert place.gitlab.pipeline(found.id) == found
    jobs = place.gitlab.pipeline_jobs(found.id)
    assert {job.status for job in jobs if "DEV_IMAGE" in job.name} == {status}
    assert {job.status for job in jobs if "DEV_IMAGE" not in job.name} == {"success"}
    bridges = place.gitlab.bridges(found.id)
    assert [(bridge.environment, bool(bridge.pipeline)) for bridge in bridges] == [
        ("dev", status == "success"),
        ("lts", status == "success"),
    ]
    assert {job.status for bridge in bridges for job in place.gitlab.jobs(bridge)} <= {"success"}


def test_a_commit_that_the_forge_does_not_test_has_no_pipeline(place: Place) -> None:
    head = place.pushed("origin", "bump/main/dev-26.04-py3", DEV)
    assert place.gitlab.pipelines(head) == ()
    assert place.gitlab.pipelines("0" * 40) == ()
    with pytest.raises(RunbookError, match="does not find it"):
        place.gitlab.pipeline(1)


def test_a_branch_of_the_copy_has_one_once_it_is_started(place: Place) -> None:
    with pytest.raises(RunbookError):
        place.gitlab.start("pull-request/x", {})
    head = place.pushed("gitlab", "pull-request/x", DEV, BUILD)
    assert place.gitlab.pipelines(head) == ()
    started = place.gitlab.start("pull-request/x", {"BUILD": "yes"})
    assert place.gitlab.pipelines(head) == (started,)
    assert (started.ref, place.gitlab.variables(started.id)) == ("pull-request/x", {"BUILD": "yes"})
    branch = place.gitlab.branch("pull-request/x")
    assert branch is not None
    assert (branch.commit, branch.title, branch.protected) == (head, "Move", False)
    assert place.gitlab.branch("gone") is None
    assert place.gitlab.protected() == ("main", "dev", "core_*")
    assert str(place.checkout.parent / "gitlab.git") in place.gitlab.project().addresses
