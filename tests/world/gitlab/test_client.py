"""The GitLab client with recorded replies: pipelines, bridges, jobs and artifacts, refusals, and the token."""

from collections.abc import Iterator
from typing import Any

import gitlab_project
import httpx
import pytest
from gitlab_project import TOKEN, Project, bridge, job, pipeline
from local_server import answering
from stores import packed

from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.golden import ci_runs
from runbook_lib.golden import collect as artifacts
from runbook_lib.golden.collect import GoldenCollection
from runbook_lib.world.gitlab.client import GitLab

HEAD = "a" * 40
H100 = "golden_values_dev_dgx_h100.json"
INSIDE = "results/iteration=0/restart_1/assets/basic/a-dev-dgx-h100/"
BRIDGES = [
    bridge("functional:run_dev_dgx_h100", 2), bridge("functional:run_dev_dgx_gb200", None),
    bridge("functional:run_lts_dgx_a100", 9), bridge("build", 8),
]  # fmt: skip
JOBS = [
    job(21, "a"), job(22, "b", "success"), job(23, "c", "canceled"),
    job(24, "d", failure_reason="job_execution_timeout"), job(25, "e", artifacts_file=None),
    job(26, "../x"), job(27, "g", artifacts_file=None, artifacts_expire_at="2020-01-01T00:00:00.000Z"), job(28, "h"),
]  # fmt: skip
STARTED = pipeline(5, HEAD, "created", ref="pull-request/x", source="api")


@pytest.fixture
def project() -> Iterator[Project]:
    with gitlab_project.served({"pipelines/1": pipeline(1, HEAD), "pipelines/1/bridges": []}) as served:
        yield served


def client(project: Project, **env: str) -> GitLab:
    return GitLab(project.env | env)


def collect(project: Project) -> GoldenCollection:
    gitlab = client(project)
    found = ci_runs.of_gitlab(gitlab, gitlab.pipeline(1), "dev")
    cases = "tests/functional_tests/test_cases"
    return artifacts.collect(found, {f"{cases}/{job.model}/{job.test_case}/{H100}" for job in found.jobs})


# -- pipelines and their jobs ----------------------------------------------------------------------------------------


def test_nothing_ran(project: Project) -> None:
    project.replies["pipelines/1/bridges"] = [bridge("functional:run_nemo", 3), BRIDGES[2]]
    found = collect(project)
    assert found.files == ()
    assert "no bridge functional:run_dev" in found.problems[0].sentence


def test_jobs_of_all_bridges(project: Project) -> None:
    values = {f"{INSIDE}generations_dev_dgx_h100.json": b"{}", "results/iteration=0/restart_1/logs": b"x" * 99}
    project.replies |= {
        "pipelines/1/bridges": BRIDGES, "pipelines/2/jobs": JOBS, "jobs/21/artifacts": packed(values),
        "jobs/28/artifacts": packed({f"{INSIDE}golden_values_dev_dgx_gb200.json": b"{}"}),
    }  # fmt: skip
    found = collect(project)
    assert [(it.path, it.bytes) for it in found.files] == [(f"tests/functional_tests/test_cases/gpt/a/{H100}", b"{}")]
    said = {it.job: it.sentence for it in found.problems}
    assert set(said) == {"functional:run_dev_dgx_gb200", *(f"gpt/{name}" for name in "cdegh")}
    assert "started no pipeline" in said["functional:run_dev_dgx_gb200"]
    assert "was cancelled" in said["gpt/c"]
    assert "time limit" in said["gpt/d"]
    assert said["gpt/e"].endswith("no artifact.")
    assert "expired" in said["gpt/g"]
    assert any("ran on dgx_h100" in it.sentence for it in found.problems if it.job == "gpt/h")


def test_the_pipelines_of_a_commit_are_those_without_a_parent(project: Project) -> None:
    child = pipeline(3, HEAD, source="parent_pipeline")
    project.replies["pipelines"] = [pipeline(4, HEAD), child, pipeline(2, HEAD), pipeline(1, "b" * 40)]
    assert [found.id for found in client(project).pipelines(HEAD)] == [4, 2]


# -- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "retry", "message", "error", "words"),
    [
        (400, "", {"base": ["Insufficient permissions to set variables"]}, RunbookError, "Insufficient permissions"),
        (400, "", {"base": ["Reference not found"]}, RunbookError, "Reference not found"),
        (401, "", "", RunbookError, "not for this token .HTTP 401.*GITLAB_TOKEN is valid"),
        (403, "", "", RunbookError, "read_api.* Developer or higher"),
        (404, "", "", RunbookError, "does not find it.* Check the number"),
        (418, "", "", RunbookError, "HTTP 418"),
        (422, "", f"odd {TOKEN}\nsecond line", RunbookError, r"refuses it .HTTP 422. .odd \*\*\* second line"),
        (429, "86400", "", Unreachable, "86400 s"),
        (429, "0", "", Unreachable, "HTTP 429"),
        (503, "0", "", Unreachable, "HTTP 503"),
    ],
)
def test_refusals(
    project: Project, status: int, retry: str, message: Any, error: type[RunbookError], words: str
) -> None:
    project.headers = {"Retry-After": retry} if retry else {}
    project.replies |= {"pipeline": {"message": message}, "pipelines/1": {"message": message}}
    for ask in (lambda: client(project).start("pull-request/x", {}), lambda: client(project).pipeline(1)):
        project.statuses = [status] * 9
        with pytest.raises(error, match=words) as caught:
            ask()
        assert TOKEN not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"GITLAB_TOKEN": ""}, "no token for GitLab"),
        ({"GITLAB_TOKEN": "a b"}, "no token for GitLab"),
        ({"GITLAB_PROJECT": "nameless"}, "GITLAB_PROJECT"),
    ],
)
def test_settings_that_are_none(project: Project, env: dict[str, str], words: str) -> None:
    with pytest.raises(RunbookError, match=words):
        client(project, **env)


# -- the token stays at home -----------------------------------------------------------------------------------------


def test_a_redirect_does_not_take_the_token_along(project: Project) -> None:
    seen: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200, stream=httpx.ByteStream(b"[]"))

    project.replies |= {
        "repository/branches": [{"name": "main", "protected": True}],
        "pipeline": STARTED,
        "jobs/1/artifacts": b"",
    }
    with answering(answer) as url:
        project.headers = {"Location": f"{url}/api/v4/x"}
        for ask in (lambda: client(project).is_protected("main"), lambda: client(project).start("pull-request/x", {})):
            project.statuses = [302]
            with pytest.raises(RunbookError, match="Set GITLAB_URL"):
                ask()
        project.statuses = [302]
        assert client(project).artifact(1).part(0, 1) == b"["  # a storage may be elsewhere
    assert len(seen) == 1
    assert TOKEN not in str(seen[0])
