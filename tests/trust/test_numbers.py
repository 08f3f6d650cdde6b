"""Numbers that servers send: of thousands of digits, negative, endless or none, each ends in a sentence."""

import contextlib
from typing import Any

import httpx
import pytest

from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.clients.registry.client import OciRegistry
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.transport.downloads import Address
from runbook_lib.transport.web import Web

LONG = "9" * 5000
HEADERS = [
    {"Content-Range": f"bytes 0-0/{LONG}"}, {"Content-Range": f"bytes {LONG}-{LONG}/{LONG}"},
    {"Content-Range": f"bytes */{LONG}"}, {"Content-Range": "bytes -1-0/1"},
    {"Retry-After": LONG}, {"Retry-After": f"-{LONG}"}, {"Retry-After": "1e999"},
    {"Retry-After": f"Mon, 01 Jan {LONG} 00:00:00 GMT"}, {"Retry-After": "Mon, 01 Jan 9999 00:00:00 GMT"},
    {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": LONG}, {"RateLimit-Reset": LONG},
    {"X-RateLimit-Remaining": LONG, "X-RateLimit-Limit": LONG}, {"X-Total": LONG, "X-Per-Page": LONG},
    {"Content-Length": LONG}, {"Content-Length": f"-{LONG}"}, {"Age": LONG, "Date": LONG},
]  # fmt: skip
FORGE = "https://forge.example"
IMAGE = ImageRef.parse("nvcr.io/nvidia/pytorch:26.04-py3")


def part(transport: httpx.BaseTransport) -> None:
    with Web(transport=transport, sleep=lambda _: None) as web:
        Address(f"{FORGE}/1").open(web).part(0, 1)


def github(transport: httpx.BaseTransport) -> None:
    GitHub("o/r", {"GITHUB_TOKEN": "x", "GITHUB_API_URL": FORGE}, transport, sleep=lambda _: None).comments(1)


def gitlab(transport: httpx.BaseTransport) -> None:
    env = {"GITLAB_URL": FORGE, "GITLAB_TOKEN": "x", "GITLAB_PROJECT": "a/b"}
    GitLab(env, transport=transport, sleep=lambda _: None).jobs(1)


def registry(transport: httpx.BaseTransport) -> None:
    with OciRegistry.connect(IMAGE, {"RUNBOOK_REGISTRY": FORGE}, transport=transport, sleep=lambda _: None) as made:
        made.tags()


@pytest.mark.parametrize("status", [200, 206, 403, 416, 429, 503])
@pytest.mark.parametrize("ask", [part, github, gitlab, registry])
def test_a_header_ends_in_a_sentence(ask: Any, status: int) -> None:
    for headers in HEADERS:
        answer = httpx.MockTransport(
            lambda _, it=headers: httpx.Response(status, stream=httpx.ByteStream(b"[]"), headers=it)
        )
        with contextlib.suppress(RunbookError):
            ask(answer)
