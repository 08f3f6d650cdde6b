"""Numbers that servers send: of thousands of digits, negative, endless or none, each ends in a sentence."""

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import serving

from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import Artifact, Comment, Pull, WorkflowJob, WorkflowRun
from runbook_lib.clients.gitlab import models
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.clients.registry.client import Registry
from runbook_lib.clients.replies import whole_number
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.transport.ranges import Address, NoRanges, Web

LONG = "9" * 5000
HEADERS = [
    {"Content-Range": f"bytes 0-0/{LONG}"}, {"Content-Range": f"bytes {LONG}-{LONG}/{LONG}"},
    {"Content-Range": f"bytes */{LONG}"}, {"Content-Range": "bytes 0-0/٣"}, {"Content-Range": "bytes -1-0/1"},
    {"Retry-After": LONG}, {"Retry-After": f"-{LONG}"}, {"Retry-After": "١"}, {"Retry-After": "1e999"},
    {"Retry-After": f"Mon, 01 Jan {LONG} 00:00:00 GMT"}, {"Retry-After": "Mon, 01 Jan 9999 00:00:00 GMT"},
    {"Retry-After": f"Mon, 01 Jan 2026 {LONG}:00:00 +{LONG}"},
    {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": LONG}, {"RateLimit-Reset": LONG},
    {"X-RateLimit-Remaining": LONG, "X-RateLimit-Limit": LONG}, {"X-Total": LONG, "X-Per-Page": LONG},
    {"Content-Length": LONG}, {"Content-Length": f"-{LONG}"}, {"Age": LONG, "Date": LONG},
]  # fmt: skip


class Answers:
    """What a server gives to everything."""

    def __init__(self) -> None:
        self.url, self.status, self.headers, self.body = "", 200, dict[str, str](), b"{}"


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    made = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(made.status)
            length = {"Content-Length": str(len(made.body))}
            for name, value in {"Content-Type": "application/json", **length, **made.headers}.items():
                self.send_header(name, value.encode("utf-8").decode("latin-1"))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(made.body)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as made.url:
        yield made


def ask_all(url: str) -> None:
    """Let each client read it; whatever is raised must be a message."""
    with contextlib.suppress(RunbookError, NoRanges), Web(1, sleep=lambda _: None) as web:
        web.file(Address(f"{url}/1")).part(0, 1)
    with contextlib.suppress(RunbookError):
        GitHub("o/r", {"GITHUB_TOKEN": "x", "GITHUB_API_URL": url}).comments(1)
    with contextlib.suppress(RunbookError):
        GitLab({"GITLAB_URL": url, "GITLAB_TOKEN": "x", "GITLAB_PROJECT": "a/b"}).pipeline_jobs(1)
    env = {"RUNBOOK_REGISTRY": url}
    ref = ImageRef.parse("nvcr.io/nvidia/pytorch:26.04-py3")
    with contextlib.suppress(RunbookError), Registry.connect(ref, env, sleep=lambda _: None) as registry:
        registry.tags()


@pytest.mark.parametrize("status", [200, 206, 403, 416, 429, 503])
@pytest.mark.parametrize("headers", HEADERS, ids=lambda it: " ".join(f"{k} {v[:20]}" for k, v in it.items()))
def test_a_header_ends_in_a_sentence(
    answers: Answers, headers: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    answers.status, answers.headers, answers.body = status, headers, b"[]"
    ask_all(answers.url)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.text("0123456789-/* bytes", max_size=60), st.sampled_from([206, 416]))
def test_any_content_range_ends_in_a_sentence(text: str, status: int) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=b"x", headers={"Content-Range": text})

    transport = httpx.MockTransport(answer)
    with Web(1, transport=transport, sleep=lambda _: None) as web, contextlib.suppress(RunbookError):
        assert web.file(Address("https://forge.example/1")).part(0, 1) == b"x"


ODD = [LONG, "-1", "1.5", "1e999", "true", '"1"', "null", "[]", "{}", str(2**63), str(10**400)]
USER, TIME = {"login": "ada"}, "2026-01-01T00:00:00Z"
RUN = {
    "id": 1, "html_url": "", "head_sha": "", "head_branch": "", "event": "", "status": "", "conclusion": "",
    "run_attempt": 1, "created_at": TIME, "updated_at": TIME,
}  # fmt: skip
READ: dict[str, tuple[Any, dict[str, Any], str]] = {
    "comment": (Comment.of, {"id": 1, "user": USER, "body": "", "created_at": TIME, "html_url": ""}, "id"),
    "run": (WorkflowRun.of, RUN, "id"),
    "attempt": (WorkflowRun.of, RUN, "run_attempt"),
    "behind": (lambda data: whole_number(data["behind_by"]), {"ahead_by": 1, "behind_by": 1}, "behind_by"),
    "size": (Artifact.of, {"id": 1, "name": "", "size_in_bytes": 1, "expired": False, "created_at": None},
             "size_in_bytes"),
    "pipeline": (models.pipeline_of, {"id": 1, "sha": "", "ref": "", "status": "", "web_url": ""}, "id"),
    "duration": (models.job_of, {"id": 1, "name": "", "stage": "", "status": "", "duration": 1}, "duration"),
}  # fmt: skip


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("odd", ODD, ids=lambda it: it[:10])
def test_a_number_in_an_answer_is_one_or_an_error(kind: str, odd: str) -> None:
    read, sound, name = READ[kind]
    read(sound)
    try:
        document = json.loads(json.dumps({**sound, name: 4711}).replace("4711", odd))
    except ValueError:
        return  # json itself refuses thousands of digits
    try:
        it = read(document)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return  # what both clients turn into a message
    for value in vars(it).values():
        assert not isinstance(value, int | float) or 0 <= value < 2**63


def test_a_pull_request_and_a_job_have_numbers() -> None:
    for read, name in ((Pull.of, "number"), (WorkflowJob.of, "id")):
        with pytest.raises((KeyError, TypeError)):
            read({name: 10**400})


def test_a_layer_of_impossible_size_is_refused() -> None:
    manifest = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": f"sha256:{'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'}", "size": 2},
        "layers": [{"size": 10**400}],
    }  # fmt: skip

    def answer(request: httpx.Request) -> httpx.Response:
        if "/manifests/" in request.url.path:
            return httpx.Response(200, json=manifest)
        if "/blobs/" in request.url.path:
            return httpx.Response(200, content=b"{}")
        return httpx.Response(404)

    env = {"RUNBOOK_REGISTRY": "https://forge.example"}
    ref = ImageRef.parse("nvcr.io/nvidia/pytorch:26.04-py3")
    transport = httpx.MockTransport(answer)
    with Registry.connect(ref, env, transport=transport, sleep=lambda _: None) as made, pytest.raises(RunbookError):
        made.image("26.04-py3")
