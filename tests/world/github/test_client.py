"""GitHub as `GitHub` sees it, on canned answers: which paths are asked, what is read, and what each refusal says."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from stand_ins import stand_in

from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.world.github.client import GitHub
from runbook_lib.world.github.models import NotAllowed
from runbook_lib.world.transport import http

TOKEN = "ghp_secretsecretsecret"
ENV = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": "https://forge.test/api/v3"}
Handler = Callable[[httpx.Request], httpx.Response]
Connect = Callable[[Handler], GitHub]

USER = {"login": "anna", "type": "User"}
PULL = {
    "number": 7, "html_url": "https://github.com/o/r/pull/7", "title": "chore: x", "body": None, "draft": True,
    "state": "open", "merged_at": None, "head": {"ref": "b", "sha": "a" * 40, "user": USER, "repo": None},
    "base": {"ref": "main", "sha": "b" * 40}, "merge_commit_sha": "c" * 40, "labels": [{"name": "Run tests"}],
    "user": USER,
}  # fmt: skip
COMMENT = {"id": 1, "user": USER, "body": "hi", "created_at": "2026-01-02T03:04:05Z", "html_url": "https://x/1"}
RUN = {
    "id": 9, "html_url": "https://x/9", "name": "CI", "head_sha": "a" * 40, "head_branch": "pull-request/7",
    "event": "push", "status": "queued", "conclusion": None, "run_attempt": 1, "created_at": "2026-01-02T03:04:05Z",
    "run_started_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-02T03:04:05Z",
}  # fmt: skip


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setattr(http, "PAUSES", (0, 0))
    monkeypatch.setattr(http.time, "sleep", lambda _: None)
    return lambda handler: GitHub("o/r", ENV, httpx.MockTransport(handler))


def answer(status: int = 200, body: object = None, **headers: str) -> Handler:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx.Response(status, json=body if body is not None else {}, headers=named)


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        (lambda gh: gh.remove_label(7, "Run tests / all"), "DELETE", "/issues/7/labels/Run%20tests%20%2F%20all"),
        (lambda gh: gh.behind("core_r0.16.0", "a#b"), "GET", "/compare/core_r0.16.0...a%23b?per_page=1"),
    ],
)
def test_paths(connect: Connect, call: Callable[[GitHub], object], method: str, path: str) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"ahead_by": 1, "behind_by": 2})

    call(connect(handler))
    assert (seen[0].method, seen[0].url.raw_path.decode()) == (method, f"/api/v3/repos/o/r{path}")


def test_ghosts_and_missing_parts_are_read(connect: Connect) -> None:
    ghost = {**PULL, "user": None, "head": {**PULL["head"], "user": None}, "merge_commit_sha": None}
    pull = connect(answer(body=ghost)).pull(7)
    assert (pull.author, pull.head_owner, pull.merge_commit, pull.body) == ("", "", None, "")
    assert connect(answer(body=[{**COMMENT, "user": None, "body": None}])).comments(7)[0].author == ""
    labels = [{"event": "closed"}, {"event": "labeled", "label": {"name": "x"}, "created_at": "2026-01-02T03:04:05Z"}]
    assert [it.label for it in connect(answer(body=labels)).labellings(7)] == ["x"]


def test_all_pages_are_read_from_the_same_host(connect: Connect) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        page = int(request.url.params["page"])
        link = {"Link": '<http://elsewhere.test/next>; rel="next"'} if page < 3 else {}
        assert request.url.host == "forge.test"
        return httpx.Response(200, json={"workflow_runs": [{**RUN, "id": page}]}, headers=link)

    assert [run.id for run in connect(handler).runs(branch="pull-request/7")] == [1, 2, 3]


SSO = {"X_GitHub_SSO": "required; url=https://github.com/orgs/o/sso?authorization_request=AB"}


@pytest.mark.parametrize(
    ("handler", "kind", "words"),
    [
        (answer(401, {"message": "Bad credentials"}), RunbookError, "(Bad credentials). It is wrong, expired"),
        (answer(403, {"message": "SAML"}, **SSO), RunbookError, "https://github.com/orgs/o/sso?authorization_request=AB"),
        (answer(403, {"message": "no"}, X_Accepted_GitHub_Permissions="issues=write"), NotAllowed, "issues=write"),
        (answer(403, X_Accepted_OAuth_Scopes="repo", X_OAuth_Scopes="gist"), NotAllowed, "repo; the token has gist"),
        (answer(403, {"message": "Resource not accessible"}), NotAllowed, "write access to actions"),
        (answer(403, X_RateLimit_Remaining="0", X_RateLimit_Reset="1767323045"), Unreachable, "a pause of 1 s"),
        (answer(408), Unreachable, "internal problem (HTTP 408)"),
        (answer(429, Retry_After="17"), Unreachable, "a pause of 17 s"),
        (answer(429, Retry_After="Fri, 31 Dec 2027 23:59:59 GMT"), Unreachable, "the rate of requests (HTTP 429)."),
        (answer(403, {"message": "You have exceeded a secondary rate limit"}), Unreachable, "in a few minutes"),
        (answer(404, {"message": "Not Found"}), NotAllowed, "Check the name o/r"),
        (answer(404, X_Accepted_OAuth_Scopes="repo", X_OAuth_Scopes="gist, repo"), NotAllowed, "Check the name o/r"),
        (answer(404, X_Accepted_OAuth_Scopes="", X_OAuth_Scopes=""), NotAllowed, "Check the name o/r"),
        (answer(400, {"message": "Problems parsing JSON"}), RunbookError, "HTTP 400) (Problems parsing JSON)"),
        (answer(422, {"message": "Invalid", "errors": [{"message": "It exists"}]}), RunbookError, "Invalid; It exists"),
        (answer(422, {"errors": [{"resource": "Label", "field": "name", "code": "x"}]}), RunbookError, "Label name x"),
        (answer(422, {"message": f"\x1b[31m{TOKEN}\n"}), RunbookError, "([31m***)"),
        (answer(503), Unreachable, "HTTP 503"),
        (lambda _: httpx.Response(502, html="<h1>Bad gateway</h1>"), Unreachable, "HTTP 502"),
        (lambda _: httpx.Response(200, html="<h1>Log in</h1>"), Unreachable, "GITHUB_API_URL"),
        (lambda _: httpx.Response(200, content=b"\xff\xfe"), Unreachable, "GITHUB_API_URL"),
        (answer(301, Location="http://forge.test/repositories/1"), RunbookError, "GITHUB_REPOSITORY to its new name"),
        (answer(200, {}), CannotTell, "KeyError: 'head'"),
        (answer(200, [1]), CannotTell, "TypeError"),
    ],
)  # fmt: skip
def test_a_refusal_is_a_sentence(connect: Connect, handler: Handler, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        connect(handler).pull(7)
    assert words in str(caught.value)
    assert str(caught.value).startswith("Could not read pull request #7")
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("first", [httpx.ReadError("gone"), httpx.Response(502)])
def test_reads_are_tried_again_and_writes_never(connect: Connect, first: Exception | httpx.Response) -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        if len(asked) > 1:
            return httpx.Response(200, json=PULL)
        if isinstance(first, Exception):
            raise first
        return first

    assert connect(handler).pull(7).number == 7
    assert asked == ["GET", "GET"]
    asked.clear()
    with pytest.raises(Unreachable, match="may have been made"):
        connect(handler).comment(7, "hi")
    assert asked == ["POST"]


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "There is no token for GitHub. Set GITHUB_TOKEN"),
        ({"GITHUB_TOKEN": " \n"}, "There is no token for GitHub"),
        ({"GITHUB_TOKEN": "two words"}, "GITHUB_TOKEN contains spaces"),
    ],
)
def test_tokens_that_are_none(env: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no gh
    with pytest.raises(RunbookError, match=words):
        GitHub("o/r", env)


def test_libraries_of_http_are_imported_with_the_first_request_alone() -> None:
    code = (
        "import sys\n"
        "import runbook_lib.notebook.begin\n"
        "print('httpx' in sys.modules)\n"
        "from runbook_lib.world.github.client import GitHub\n"
        "GitHub('o/n', {'GITHUB_TOKEN': 't'}).artifact(1)\n"
        "print('githubkit' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\nFalse\n"


def test_a_wrong_slug_and_a_wrong_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunbookError, match="expected owner/name"):
        GitHub("just-a-name", ENV)
    github = GitHub("o/r", ENV, httpx.MockTransport(answer(200, [1])))
    assert TOKEN not in repr(github)
    monkeypatch.setenv("HTTPS_PROXY", "gopher://me:hush@proxy.test")
    with pytest.raises(RunbookError, match="Check HTTPS_PROXY") as caught:
        GitHub("o/r", ENV)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("host", ["github.com", "ghe.test", "api.github.com.evil.test"])
def test_gh_is_asked_only_for_that_hosts_token(host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = "" if host == "github.com" else f"https://{host}/api/v3"
    stand_in(tmp_path, "gh", 'echo "$*" >>"$0.log"\necho from-gh')
    monkeypatch.setenv("PATH", str(tmp_path))
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(200, json=USER)

    assert GitHub("o/r", {"GITHUB_API_URL": url}, httpx.MockTransport(handler)).me() == "anna"
    assert seen[0].endswith(" from-gh")
    assert (tmp_path / "gh.log").read_text() == f"auth token --hostname {host}\n"


@pytest.mark.parametrize("body", ["{}", '""', '{"workflow_runs": {}}', "null", "[" * 100_000, '[{"name": Infinity}]'])
def test_another_format_is_not_an_empty_list(connect: Connect, body: str) -> None:
    github = connect(lambda _: httpx.Response(200, content=body))
    for read in (lambda: github.comments(7), lambda: github.runs(), lambda: github.last_author("README.md", "main")):
        with pytest.raises((CannotTell, Unreachable)):
            read()


@pytest.mark.parametrize("answered", [httpx.Response(304), httpx.Response(200), httpx.Response(302)])
def test_an_unanswered_request_is_not_a_success(connect: Connect, answered: httpx.Response) -> None:
    github = connect(lambda _: answered)
    for ask in (lambda: github.add_label(7, "x"), lambda: github.rerun_failed(9)):
        with pytest.raises(Unreachable, match=r"answered HTTP [0-9]+"):
            ask()
    with pytest.raises(Unreachable, match=r"answered|sent a reply"):
        github.pull(7)
