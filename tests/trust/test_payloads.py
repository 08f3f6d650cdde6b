"""What GitHub really answered and sent, as others recorded it, and the examples of its own description, are read."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import described
import httpx
import pytest
from figures import Figures

from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.models import (
    Comment,
    GitHubRepository,
    Issue,
    Pull,
    WorkflowJob,
    WorkflowRun,
    login,
)
from runbook_lib.errors import RunbookError, Unreachable

RECORDED = described.ROOT / "environment/.components/github-payloads/node_modules/@octokit"


def ends(node: dict[str, Any], pattern: str) -> bool:
    """Whether the object calls itself so; what only names another one has no page of its own."""
    return "html_url" in node and str(node.get("url", "")).rpartition("/")[0].endswith(pattern)


#: Type → how it is read, how one is known, and how many there are at least.
TYPES: dict[str, tuple[Callable[[Any], Any], Callable[[dict[str, Any]], bool], int]] = {
    "account": (login, lambda it: "login" in it and "node_id" in it and "type" in it, 2500),
    "repository": (GitHubRepository.of, lambda it: "full_name" in it and "default_branch" in it, 750),
    "pull request": (Pull.of, lambda it: ends(it, "/pulls") and "title" in it, 70),
    "issue": (Issue.of, lambda it: ends(it, "/issues") and "title" in it and "state" in it, 100),
    "comment": (Comment.of, lambda it: ends(it, "/issues/comments"), 20),
    "run": (WorkflowRun.of, lambda it: ends(it, "/actions/runs") and "run_number" in it, 5),
    "job": (WorkflowJob.of, lambda it: ends(it, "/actions/jobs"), 5),
    "label": (lambda it: str(it["name"]), lambda it: ends(it | {"html_url": ""}, "/labels"), 50),
}


@cache
def documents() -> tuple[Any, ...]:
    """All that was recorded, of github.com and of GitHub Enterprise Servers."""
    scenarios = sorted((RECORDED / "fixtures/scenarios").glob("*/*/*-fixture.json"))
    webhooks = sorted((RECORDED / "webhooks-examples").glob("*/index.json"))
    return tuple(json.loads(path.read_text()) for path in (*scenarios, *webhooks))


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from objects(each)


@pytest.mark.component("github-payloads")
@pytest.mark.parametrize("kind", TYPES)
def test_recorded_payloads_are_read(kind: str, figures: Figures) -> None:
    read, is_one, at_least = TYPES[kind]
    wrong = []
    for node in objects(list(documents())):
        if is_one(node):
            figures["payloads"] += 1
            try:
                read(node)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                wrong.append(f"{node.get('url')}: {error!r}")
    assert wrong == []
    assert figures["payloads"] >= at_least


@cache
def exchanges() -> tuple[dict[str, Any], ...]:
    found = sorted((RECORDED / "fixtures/scenarios").glob("*/*/*-fixture.json"))
    return tuple(it for path in found for it in json.loads(path.read_text()))


def headers_of(it: dict[str, Any]) -> dict[str, str]:
    """The headers as they were recorded, but those that are of the bytes on the line."""
    raw = iter(it.get("rawHeaders", ()))
    named = {
        str(name).lower(): str(value) for name, value in (*it.get("headers", {}).items(), *zip(raw, raw, strict=True))
    }
    return {name: value for name, value in named.items() if name not in ("content-encoding", "content-length")}


def answered(it: dict[str, Any], status: int | None = None, **headers: str) -> httpx.MockTransport:
    given = headers_of(it) | headers
    return httpx.MockTransport(lambda _: httpx.Response(status or it["status"], json=it["response"], headers=given))


def client(transport: httpx.MockTransport) -> GitHub:
    return GitHub("o/r", {"GITHUB_TOKEN": "ghp_x"}, transport)


@pytest.mark.component("github-payloads")
def test_recorded_errors_and_moves_are_sentences(figures: Figures) -> None:
    for it in exchanges():
        if it["status"] < 300 or "archive" in it["path"] or "tarball" in it["path"]:
            continue
        said = "has moved" if it["status"] < 400 else str(it["response"]["message"]).split("\n")[0][:30]
        with client(answered(it)) as github, pytest.raises(RunbookError) as caught:
            github.send("do it", it["method"].upper(), "", None, lambda _: None)
        assert said in str(caught.value)
        figures["payloads"] += 1
    assert figures["payloads"] >= 8


@pytest.mark.component("github-payloads")
def test_recorded_limits_of_the_rate_are_read(figures: Figures) -> None:
    for it in exchanges():
        if "rawHeaders" not in it or "x-ratelimit-reset" not in headers_of(it):  # the others' times were made even
            continue
        with (
            client(answered(it, 403, **{"x-ratelimit-remaining": "0"})) as github,
            pytest.raises(Unreachable, match=r"limits the rate of this token. Try again after 202[0-9-]+ [0-9:]+ UTC"),
        ):
            github.send("do it", "POST", "", None, lambda _: None)
        figures["payloads"] += 1
    assert figures["payloads"] >= 50


#: How each answer is asked for, whose example GitHub's description holds.
READERS: dict[str, Callable[[GitHub], object]] = {
    "/user": lambda it: it.me(),
    "/search/issues": lambda it: it.search_issues("x"),
    "/repos/{owner}/{repo}": lambda it: it.repo(),
    "/repos/{owner}/{repo}/actions/jobs/{job_id}": lambda it: it.job(1),
    "/repos/{owner}/{repo}/actions/runs": lambda it: it.runs(),
    "/repos/{owner}/{repo}/actions/runs/{run_id}": lambda it: it.run(1),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/artifacts": lambda it: it.artifacts(1),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/jobs": lambda it: it.jobs(1),
    "/repos/{owner}/{repo}/commits": lambda it: it.last_author("x", "main"),
    "/repos/{owner}/{repo}/compare/{basehead}": lambda it: it.behind("a", "b"),
    "/repos/{owner}/{repo}/deployments/{deployment_id}/statuses": lambda it: it.deployment_failed("a" * 40),
    "/repos/{owner}/{repo}/issues": lambda it: it.list_issues(),
    "/repos/{owner}/{repo}/issues/{issue_number}": lambda it: it.issue(1),
    "/repos/{owner}/{repo}/issues/{issue_number}/comments": lambda it: it.comments(1),
    "/repos/{owner}/{repo}/issues/{issue_number}/events": lambda it: it.labellings(1),
    "/repos/{owner}/{repo}/issues/{issue_number}/labels": lambda it: it.labels(1),
    "/repos/{owner}/{repo}/pulls": lambda it: it.pulls(),
    "/repos/{owner}/{repo}/pulls/{pull_number}": lambda it: it.pull(1),
    "/repos/{owner}/{repo}/pulls/{pull_number}/files": lambda it: it.files(1),
}


@pytest.mark.component("github-api")
@pytest.mark.parametrize("version", described.VERSIONS)
@pytest.mark.parametrize("path", READERS)
def test_githubs_own_examples_are_read(path: str, version: str, figures: Figures) -> None:
    for example in described.description(version).examples("GET", path):
        if '["..."]' in json.dumps(example):  # not written out
            continue

        def answer(request: httpx.Request, it: object = example) -> httpx.Response:
            found = request.url.path.endswith("/deployments")
            return httpx.Response(200, json=[{"id": 1}] if found else it)

        with client(httpx.MockTransport(answer)) as github:
            READERS[path](github)
        figures["payloads"] += 1
    assert figures["payloads"]
