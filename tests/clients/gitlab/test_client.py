"""Golden values of a GitLab pipeline: bridges, the pipelines that they start, their jobs and artifacts."""

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from loopback import serving
from stores import packed

from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.errors import CannotTell, Refused, RunbookError, Unreachable
from runbook_lib.golden import ci_runs
from runbook_lib.golden import collect as artifacts
from runbook_lib.golden.collect import GoldenCollection

HEAD = "a" * 40
TOKEN = "secret-of-gitlab"
H100 = "golden_values_dev_dgx_h100.json"
INSIDE = "results/iteration=0/restart_1/assets/basic/a-dev-dgx-h100/"


def bridge(name: str, pipeline: int | None) -> dict[str, Any]:
    started = {"id": pipeline} if pipeline else None
    return {"id": 1, "name": name, "status": "failed", "downstream_pipeline": started}


def job(number: int, name: str, status: str = "failed", **more: Any) -> dict[str, Any]:
    return {
        "id": number, "name": name, "stage": "gpt", "status": status, "web_url": "",
        "artifacts_file": {"size": 1}, "artifacts_expire_at": None, **more,
    }  # fmt: skip


class Project:
    """The answers of a small GitLab; those that are a list come in pages."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, Any] = {
            "pipelines/1": {"id": 1, "sha": HEAD, "ref": "main", "status": "failed", "web_url": ""},
            "pipelines/1/bridges": [],
        }
        self.blobs: dict[int, bytes] = {}
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.posts: list[bytes] = []
        self.tokens: list[str | None] = []

    def gitlab(self, **env: str) -> GitLab:
        given = {"GITLAB_URL": self.url, "GITLAB_TOKEN": TOKEN, "GITLAB_PROJECT": "adlr/megatron-lm"}
        return GitLab(given | env, sleep=lambda _: None)

    def collect(self, into: Path, **options: Any) -> GoldenCollection:
        source = ci_runs.of_gitlab(self.gitlab(), 1, image_type="dev", head=HEAD)
        return artifacts.collect(source, into, **options)


@pytest.fixture
def project() -> Iterator[Project]:
    made = Project()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            inner = path.removeprefix("/api/v4/projects/adlr%2Fmegatron-lm/")
            blob = re.fullmatch(r"jobs/(\d+)/artifacts", inner)
            body, headers = b"{}", {}
            status = made.statuses.pop(0) if made.statuses else 200
            headers = dict(made.headers)
            made.tokens.append(self.headers.get("PRIVATE-TOKEN"))
            if self.headers.get("PRIVATE-TOKEN") != TOKEN:
                status = 401
            elif blob and int(blob[1]) in made.blobs:
                body = made.blobs[int(blob[1])]
            elif inner not in made.answers:
                status = 404
            else:
                answer = made.answers[inner]
                if isinstance(answer, list):
                    page = int((re.search(r"\bpage=(\d+)", query) or [0, 1])[1])
                    if 2 * page < len(answer):
                        headers["Link"] = f'<{made.url}{path}?page={page + 1}>; rel="next"'
                    answer = answer[2 * page - 2 : 2 * page]
                body = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {
                **headers,
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            made.posts.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as made.url:
        yield made


def test_nothing_ran(project: Project, tmp_path: Path) -> None:
    project.answers["pipelines/1/bridges"] = [
        bridge("functional:run_nemo", 3),
        bridge("functional:run_lts_dgx_a100", 4),
    ]
    found = project.collect(tmp_path)
    assert found.files == ()
    assert "no bridge functional:run_dev" in found.problems[0].sentence


def test_jobs_of_all_bridges(project: Project, tmp_path: Path) -> None:
    project.answers |= {
        "pipelines/1/bridges": [
            bridge("functional:run_dev_dgx_h100", 2), bridge("functional:run_dev_dgx_gb200", None),
            bridge("functional:run_lts_dgx_a100", 9), bridge("build", 8),
        ],
        "pipelines/2/jobs": [
            job(21, "a"), job(22, "b", "success"), job(23, "c", "canceled"),
            job(24, "d", failure_reason="job_execution_timeout"), job(25, "e", artifacts_file=None),
            job(26, "../x"), job(27, "g", artifacts_file=None, artifacts_expire_at="2020-01-01T00:00:00.000Z"),
            job(28, "h"),
        ],
    }  # fmt: skip
    values = {f"{INSIDE}generations_dev_dgx_h100.json": b"{}", "results/iteration=0/restart_1/logs": b"x" * 99}
    project.blobs = {21: packed(values), 28: packed({f"{INSIDE}golden_values_dev_dgx_gb200.json": b"{}"})}
    found = project.collect(tmp_path)
    assert [(it.path, it.bytes) for it in found.files] == [(f"tests/functional_tests/test_cases/gpt/a/{H100}", b"{}")]
    said = {it.job: it.sentence for it in found.problems}
    assert set(said) == {"functional:run_dev_dgx_gb200", *(f"gpt/{name}" for name in "cdegh")}
    assert "started no pipeline" in said["functional:run_dev_dgx_gb200"]
    assert "was cancelled" in said["gpt/c"]
    assert "time limit" in said["gpt/d"]
    assert said["gpt/e"].endswith("no artifact.")
    assert "expired" in said["gpt/g"]
    assert "dgx_h100" in said["gpt/h"]


def test_pipelines_of_another_commit(project: Project) -> None:
    with pytest.raises(Refused, match="allow=older-run"):
        ci_runs.of_gitlab(project.gitlab(), 1, image_type="dev", head="b" * 40)
    assert ci_runs.of_gitlab(project.gitlab(), 1, image_type="dev", head="b" * 40, older=True).unusable


@pytest.mark.parametrize(
    ("statuses", "error", "words"),
    [
        ([401], RunbookError, "does not accept the token"),
        ([403], RunbookError, "read_api"),
        ([404], RunbookError, "Check the number"),
        ([422], RunbookError, "refuses it .HTTP 422."),
    ],
)
def test_refusals(project: Project, statuses: list[int], error: type[RunbookError], words: str) -> None:
    project.statuses = statuses
    with pytest.raises(error, match=words) as caught:
        project.gitlab().pipeline(1)
    assert TOKEN not in str(caught.value)


def test_answers_in_another_format(project: Project) -> None:
    project.answers["pipelines/1"] = {"id": 1}
    with pytest.raises(CannotTell, match="unexpected form"):
        project.gitlab().pipeline(1)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"GITLAB_URL": ""}, "GITLAB_URL"),
        ({"GITLAB_URL": "http://gitlab.example.com"}, "GITLAB_URL"),
        ({"GITLAB_TOKEN": ""}, "no token for GitLab"),
        ({"GITLAB_TOKEN": "a b"}, "no token for GitLab"),
        ({"GITLAB_PROJECT": "nameless"}, "GITLAB_PROJECT"),
    ],
)
def test_settings_that_are_none(project: Project, env: dict[str, str], words: str) -> None:
    with pytest.raises(RunbookError, match=words):
        project.gitlab(**env)


def test_nobody_listens(project: Project) -> None:
    gitlab = project.gitlab(GITLAB_URL="http://127.0.0.1:9")
    with pytest.raises(Unreachable, match="cannot be reached"):
        gitlab.pipeline(1)


# -- starting a pipeline, and keeping the token --------------------------------------------------------------------

STARTED = {"id": 5, "sha": HEAD, "ref": "pull-request/x", "status": "created", "web_url": "u", "source": "api"}


def test_a_pipeline_is_requested_once(project: Project) -> None:
    project.answers["pipeline"] = STARTED
    found = project.gitlab().start("pull-request/x", {"BUILD": "yes"})
    assert (found.id, found.source) == (5, "api")
    assert [json.loads(it) for it in project.posts] == [
        {"ref": "pull-request/x", "variables": [{"key": "BUILD", "value": "yes"}]}
    ]
    for status in (500, 502, 503, 504):
        project.statuses = [status]
        with pytest.raises(Unreachable, match=f"HTTP {status}"):
            project.gitlab().start("pull-request/x", {})
    assert len(project.posts) == 5


def test_an_unanswered_question_is_repeated(project: Project) -> None:
    project.answers["protected_branches"] = [{"name": "main"}, {"name": "core_*"}, {"name": "*-stable"}]
    project.statuses = [502, 429]
    project.headers = {"Retry-After": "Sat, 21 Nov 2026 12:00:00 GMT", "RateLimit-Reset": "99999999999"}
    assert project.gitlab().protected() == ("main", "core_*", "*-stable")


def test_a_missing_branch(project: Project) -> None:
    assert project.answers.get("repository/branches/x%2Fy") is None
    with pytest.raises(RunbookError, match="Check the number"):
        project.gitlab().branch("x/y")  # nobody says that it is the branch that is not found
    project.answers["repository/branches/x%2Fy"] = {
        "name": "x/y", "protected": False,
        "commit": {"id": HEAD, "title": "T\u202e\n\x1b[31m", "author_name": "A" * 999},
    }  # fmt: skip
    found = project.gitlab().branch("x/y")
    assert found is not None
    assert (found.commit, found.title, found.protected) == (HEAD, "T   [31m", False)
    assert len(found.author) == 300
    del project.answers["repository/branches/x%2Fy"]["protected"]
    again = project.gitlab().branch("x/y")
    assert again is not None
    assert again.protected  # what is not told is not taken for free


class Elsewhere(BaseHTTPRequestHandler):
    """Another host, which writes down what it is shown."""

    seen: list[str | None]

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("PRIVATE-TOKEN"))
        assert TOKEN not in str(self.headers)
        body = b"[]"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str | None]]]:
    seen: list[str | None] = []
    handler = type("Handler", (Elsewhere,), {"seen": seen})
    with serving(handler) as url:
        yield url, seen


def test_a_redirect_does_not_take_the_token_along(project: Project, elsewhere: tuple[str, list[str | None]]) -> None:
    url, seen = elsewhere
    project.answers["protected_branches"] = [{"name": "main"}]
    project.statuses, project.headers = [302], {"Location": f"{url}/api/v4/x"}
    assert project.gitlab().protected() == ()
    assert seen == [None]
    project.answers["pipeline"] = STARTED
    project.statuses = [302]
    with pytest.raises(RunbookError, match="GITLAB_URL"):
        project.gitlab().start("pull-request/x", {})
    assert seen == [None]  # what changes something follows no redirect


def test_a_next_page_elsewhere_is_not_shown_the_token(
    project: Project, elsewhere: tuple[str, list[str | None]]
) -> None:
    url, seen = elsewhere
    project.answers["protected_branches"] = [{"name": "main"}]
    project.headers = {"Link": f'<{url}/api/v4/x?page=2>; rel="next"'}
    project.answers["x"] = [{"name": "dev"}]
    with pytest.raises(CannotTell, match="more than 5000"):
        project.gitlab().protected()  # every page is requested at home, and each says that there is a further one
    assert seen == []
    assert project.tokens == [TOKEN] * 50


def test_a_redirect_at_home_keeps_the_token(project: Project) -> None:
    project.answers["protected_branches"] = [{"name": "main"}]
    path = "/api/v4/projects/adlr%2Fmegatron-lm/protected_branches"
    project.statuses, project.headers = [302], {"Location": f"{project.url}{path}"}
    assert project.gitlab().protected() == ("main",)
    assert set(project.tokens) == {TOKEN}


def test_answers_that_are_not_json(project: Project) -> None:
    project.answers["protected_branches"] = {"message": "odd"}
    with pytest.raises(RunbookError):
        project.gitlab().protected()
    project.headers = {"Retry-After": "86400"}
    project.statuses = [429]
    with pytest.raises(Unreachable, match="86400 s"):
        project.gitlab().protected()
