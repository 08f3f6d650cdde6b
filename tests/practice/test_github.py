"""The practice forge, spoken to over HTTP; every answer is held against GitHub's own description where that is here."""

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from forging import BRANCH, REPO, World, copied, problems, route_of
from token_rights import Token

from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import RunbookError
from runbook_lib.practice.accounts import ENGINEER
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.github import server

#: The only kind of search that the product makes.
SEARCH = '/search/issues?q=repo:practice/Megatron-LM is:issue is:open "{}"'


@pytest.fixture
def world(seeded: Path, tmp_path: Path) -> Iterator[World]:
    with copied(seeded, tmp_path) as made:
        yield made


# -- the form of all answers ----------------------------------------------------------------------------------------


@pytest.mark.component("github-api")
def test_every_route_answers_in_the_form_that_github_describes(world: World) -> None:
    number, run = world.authorized("Run functional tests")
    world.clock.now += 60
    issue = world.post(f"{REPO}/issues", {"title": "Broken", "labels": ["bug"], "assignees": ["release-engineer"]})
    comment = world.comments(number)[0]["id"]
    job = next(each["id"] for each in world.jobs(run) if each["conclusion"] == "failure")
    artifacts = world.get(f"{REPO}/actions/runs/{run}/artifacts")["artifacts"]
    sha = world.git("rev-parse", "HEAD")
    for path in (
        "/user", REPO, f"{REPO}/pulls", f"{REPO}/pulls/{number}",
        f"{REPO}/pulls/{number}/files", f"{REPO}/issues", f"{REPO}/issues/{number}",
        f"{REPO}/issues/{issue['number']}", f"{REPO}/issues/{number}/labels", f"{REPO}/issues/{number}/events",
        SEARCH.format("broken"), f"{REPO}/compare/main...{BRANCH}",
        f"{REPO}/commits?path=docker", f"{REPO}/actions/runs", f"{REPO}/actions/runs/{run}",
        f"{REPO}/actions/jobs/{job}", f"{REPO}/deployments?sha={sha}", f"{REPO}/deployments/{run}/statuses",
    ):  # fmt: skip
        world.get(path)
    world.get(f"{REPO}/assignees/mlindqvist", 204)
    world.get(f"{REPO}/collaborators/mlindqvist/permission")
    world.get(f"{REPO}/actions/jobs/{job}/logs", 302)
    world.get(artifacts[0]["archive_download_url"], 302)
    world.post(f"{REPO}/actions/runs/{run}/rerun-failed-jobs", None)
    world.done(world.call("PATCH", f"{REPO}/pulls/{number}", json={"body": "Because"}), 200)
    world.done(world.call("PATCH", f"{REPO}/issues/{issue['number']}", json={"state": "closed"}), 200)
    world.done(world.call("DELETE", f"{REPO}/issues/{number}/labels/Run functional tests"), 200)
    world.done(world.call("DELETE", f"{REPO}/issues/comments/{comment}"), 204)

    wrong = {
        f"{response.request.method} {response.request.url.raw_path.decode()}": found
        for response in world.answered
        if (found := problems(response))
    }
    assert not wrong
    asked = {route for response in world.answered if (route := route_of(response.request))}
    assert not [f"{route.method} {route.path}" for route in server.ROUTES if route not in asked]


@pytest.mark.component("github-api")
def test_the_judge_finds_what_is_wrong() -> None:
    request = httpx.Request("GET", f"http://x{REPO}/labels")
    good = {"id": 1, "node_id": "x", "url": "http://x", "name": "n", "description": None, "color": "f", "default": True}
    assert not problems(httpx.Response(200, json=[good], request=request))
    assert problems(httpx.Response(200, json=[good | {"id": "1"}], request=request))
    assert problems(httpx.Response(200, json=[{"id": 1}], request=request))


# -- who may do what ------------------------------------------------------------------------------------------------


def test_a_tokens_owner_and_missing_permissions(world: World) -> None:
    response = world.call("GET", "/user")
    assert response.json()["login"] == "release-engineer"
    assert "repo" in response.headers["X-OAuth-Scopes"]
    assert world.get("/user", 401, token="")["message"] == "Requires authentication"
    for token in ("expired-token", "nonsense"):
        assert world.get(REPO, 401, token=token)["message"] == "Bad credentials"
    assert "X-OAuth-Scopes" not in world.call("GET", "/user", token="readonly-token").headers
    refused = world.call("GET", REPO, token="sso-token")
    assert refused.status_code == 403
    assert re.fullmatch(r"required; url=https://\S+authorization_request=\w+", refused.headers["X-GitHub-SSO"])
    basic = httpx.get(f"{world.forge.url}/user", auth=("anything", "practice-token"), trust_env=False)
    assert basic.status_code == 200


def test_rights_to_write(world: World) -> None:
    world.push()
    number = world.open_pull()["number"]
    labels = f"{REPO}/issues/{number}/labels"
    denied = world.call("POST", labels, token="contributor-token", json={"labels": ["bug"]})
    assert (denied.status_code, denied.json()["message"]) == (403, "Must have admin rights to Repository.")
    denied = world.call("POST", labels, token="readonly-token", json={"labels": ["bug"]})
    assert denied.json()["message"] == "Resource not accessible by personal access token"
    assert "pull_requests=write" in denied.headers["X-Accepted-GitHub-Permissions"]
    world.post(labels, {"labels": ["bug"]}, 401, token="")
    world.post(f"{REPO}/issues/{number}/comments", {"body": "Nice"}, token="contributor-token")
    world.done(world.call("PATCH", f"{REPO}/pulls/{number}", token="contributor-token", json={"title": "Mine"}), 403)
    assert world.get(f"{REPO}/pulls/{number}", token="")["title"] == "chore: bump"
    issue = world.post(f"{REPO}/issues", {"title": "Help", "labels": ["bug"]}, token="contributor-token")
    assert issue["labels"] == []  # GitHub drops them without a word


def test_a_token_may_do_what_it_was_given(world: World) -> None:
    world.forge.issue_token("narrow", Token.fine_grained("issues=write"))
    world.forge.issue_token("scoped", Token(ENGINEER, scopes="public_repo"))
    world.forge.issue_token("unscoped", Token(ENGINEER, scopes=""))
    number, run = world.authorized()
    comment, runs = f"{REPO}/issues/{number}/comments", f"{REPO}/actions/runs"
    world.clock.now += 1000
    world.post(comment, {"body": "Hi"}, token="narrow")  # a pull request's conversation is that of an issue
    denied = world.call("PATCH", f"{REPO}/pulls/{number}", token="narrow", json={"body": "x"})
    assert (denied.status_code, denied.headers["X-Accepted-GitHub-Permissions"]) == (403, "pull_requests=write")
    world.get(runs, token="narrow")  # what is public anybody may read
    world.post(comment, {"body": "Hi"}, token="scoped")
    denied = world.call("POST", f"{runs}/{run}/rerun-failed-jobs", token="scoped")
    assert (denied.status_code, denied.headers["X-Accepted-OAuth-Scopes"]) == (404, "repo")
    denied = world.call("POST", comment, token="unscoped", json={"body": "Hi"})
    assert (denied.status_code, denied.headers["X-Accepted-OAuth-Scopes"]) == (404, "public_repo, repo")


def test_a_private_repository_is_seen_by_who_may(world: World) -> None:
    world.forge.issue_token("narrow", Token.fine_grained("issues=write"))
    world.forge.issue_token("scoped", Token(ENGINEER, scopes="public_repo"))
    world.forge.make_private()
    assert world.get(REPO, token="narrow")["private"]
    world.get(f"{REPO}/issues", token="narrow")
    denied = world.call("GET", f"{REPO}/actions/runs", token="narrow")
    assert (denied.status_code, denied.headers["X-Accepted-GitHub-Permissions"]) == (403, "actions=read")
    for token in ("scoped", ""):
        world.get(REPO, 404, token=token)
    world.restart()
    world.get(f"{REPO}/pulls", 404, token="")


# -- pull requests --------------------------------------------------------------------------------------------------


def test_a_pull_request_is_found_by_head_base_and_state(world: World) -> None:
    sha = world.push()
    opened = world.open_pull()
    assert (opened["number"], opened["head"]["sha"], opened["draft"]) == (10, sha, True)
    pulls = f"{REPO}/pulls"
    for query, found in (
        ({"head": f"practice:{BRANCH}"}, [10]),
        ({"head": f"outside-contributor:{BRANCH}"}, []),
        ({"base": "main"}, [10]),
        ({"base": "dev"}, []),
        ({"state": "closed"}, []),
    ):
        assert [each["number"] for each in world.get(pulls, params=query)] == found, query
    world.done(world.call("PATCH", f"{pulls}/10", json={"state": "closed"}), 200)
    assert [each["number"] for each in world.get(pulls, params={"state": "all"})] == [10]
    assert world.get(pulls) == []


def test_every_new_pull_request_becomes_a_draft(world: World) -> None:
    world.push()
    opened = world.open_pull(draft=False)
    assert opened["draft"] is False
    assert world.get(f"{REPO}/pulls/10")["draft"] is True
    said = world.comments(10)
    assert [each["user"]["login"] for each in said] == ["github-actions[bot]", "copy-pr-bot[bot]"]
    assert said[1]["user"]["type"] == "Bot"


def test_the_merge_commit_is_known_at_the_second_look(world: World) -> None:
    sha = world.push()
    number = world.open_pull()["number"]
    first, second = (world.get(f"{REPO}/pulls/{number}") for _ in range(2))
    assert (first["mergeable"], first["merge_commit_sha"]) == (None, None)
    assert second["mergeable"] is True
    merge = second["merge_commit_sha"]
    assert world.remote_commit(f"refs/pull/{number}/merge") == merge
    assert world.remote_commit(f"refs/pull/{number}/head") == sha
    assert [world.remote_commit(f"{merge}^{parent}") for parent in (1, 2)] == [world.remote_commit("main"), sha]


def test_the_base_moves(world: World) -> None:
    world.push()
    number = world.open_pull()["number"]
    world.get(f"{REPO}/pulls/{number}")
    before = world.get(f"{REPO}/pulls/{number}")
    world.push("other", pin="26.03-py3")
    world.git("push", "-q", "origin", "other:main")  # the same line changed: a conflict
    looking, after = (world.get(f"{REPO}/pulls/{number}") for _ in range(2))
    assert (looking["mergeable"], looking["merge_commit_sha"]) == (None, before["merge_commit_sha"])
    assert (after["mergeable"], after["mergeable_state"]) == (False, "dirty")
    assert after["base"]["sha"] == before["base"]["sha"]  # GitHub does not follow the base
    assert world.remote_commit("main") != before["base"]["sha"]
    compared = world.get(f"{REPO}/compare/main...{BRANCH}")
    assert (compared["status"], compared["ahead_by"], compared["behind_by"]) == ("diverged", 1, 1)
    world.comment(number, f"/ok to test {after['head']['sha']}")
    world.clock.now += 60
    assert world.runs()[0]["conclusion"] == "failure"
    failed = [each["name"] for each in world.jobs(world.runs()[0]["id"]) if each["conclusion"] == "failure"]
    assert failed == ["configure", "Nemo_CICD_Test"]


def test_a_pull_request_follows_its_branch(world: World) -> None:
    world.push()
    number = world.open_pull()["number"]
    second = world.push()
    assert world.get(f"{REPO}/pulls/{number}")["head"]["sha"] == second
    world.git("push", "-q", "origin", f":{BRANCH}")
    assert world.get(f"{REPO}/pulls/{number}")["state"] == "closed"


def test_a_merged_pull_request(world: World) -> None:
    number, _ = world.authorized()
    tip = world.forge.merge(number)
    pull = world.get(f"{REPO}/pulls/{number}")
    assert (pull["state"], pull["merged"], pull["merge_commit_sha"]) == ("closed", True, tip)
    assert world.remote_commit("main") == tip
    assert world.remote_commit(f"pull-request/{number}") is None
    world.done(world.call("PATCH", f"{REPO}/pulls/{number}", json={"state": "open"}), 422)


def test_a_pull_request_from_a_fork(world: World) -> None:
    sha = world.push(to=world.fork)
    answer = world.open_pull(expected=422, token="contributor-token")
    assert "head" in answer["errors"][0].values()  # no such branch in the repository itself
    pull = world.open_pull(f"outside-contributor:{BRANCH}", token="contributor-token")
    assert pull["head"]["repo"]["full_name"] == "outside-contributor/Megatron-LM"
    number = pull["number"]
    assert "requires additional validation" in world.comments(number)[0]["body"]
    assert "E3" in world.comment(number, f"/ok to test {sha}", token="contributor-token")[0]
    assert world.runs() == []
    world.label(number, "Run functional tests")
    world.comment(number, f"/ok to test {sha}")
    world.clock.now += 60
    names = [each["name"] for each in world.jobs(world.runs()[0]["id"])]
    assert names.count("gpt/gpt3_mcore_te_tp1_pp1 - latest") == 1  # no GB200 for who is no maintainer
    assert "${{ matrix.model }}/${{ matrix.test_case }} - latest" in names
    again = world.push(to=world.fork)
    assert world.get(f"{REPO}/pulls/{number}")["head"]["sha"] == again
    world.push("mine")
    assert world.open_pull("mine", 422, token="contributor-token")["errors"][0]["message"] == "must be a collaborator"


# -- labels, comments, issues, search -------------------------------------------------------------------------------


def test_labels(world: World) -> None:
    labels = f"{REPO}/issues/8/labels"
    assert [each["name"] for each in world.get(labels)] == ["bug"]
    added = world.post(labels, {"labels": ["RUN TESTS", "new one", "bug"]}, 200)
    assert [each["name"] for each in added] == ["bug", "Run tests", "new one"]
    left = world.done(world.call("DELETE", f"{labels}/new%20one"), 200)
    assert [each["name"] for each in left] == ["bug", "Run tests"]
    assert world.done(world.call("DELETE", f"{labels}/new one"), 404)["message"] == "Label does not exist"
    events = [(each["event"], each["label"]["name"]) for each in world.get(f"{REPO}/issues/8/events")]
    assert events == [("labeled", "Run tests"), ("labeled", "new one"), ("unlabeled", "new one")]


def test_issues_and_search(world: World) -> None:
    first = world.post(f"{REPO}/issues", {"title": "[ci] mimo_vlm_tp1 hangs", "body": "As hybrid_mr_tp2_cp2 does"})
    world.post(f"{REPO}/issues", {"title": "[ci] Hybrid_mr_tp2_cp2 hangs"})
    world.push()
    world.open_pull(title="About hybrid_mr_tp2_cp2")
    for words, numbers in (("hybrid_mr_tp2_cp2", [11, 10]), ("VLM_TP1 hangs", [10]), ("nothing", [])):
        answer = world.get(SEARCH.format(words))
        assert [issue["number"] for issue in answer["items"]] == numbers, words
        assert answer["total_count"] == len(numbers)
    world.get("/search/issues", 422)
    world.get(SEARCH.format("x").replace("practice/", "other/"), 422)
    closed = world.done(world.call("PATCH", f"{REPO}/issues/{first['number']}", json={"state": "closed"}), 200)
    assert (closed["state"], closed["state_reason"]) == ("closed", "completed")
    assert [issue["number"] for issue in world.get(f"{REPO}/issues")] == [12, 11, 8]
    assert world.get(SEARCH.format("VLM_TP1 hangs"))["items"] == []
    world.done(world.call("PATCH", f"{REPO}/issues/10", json={"title": "New", "state": "asleep"}), 422)
    assert world.get(f"{REPO}/issues/10")["title"] == first["title"]  # a refused request changes nothing
    for assignees in (["nobody"], ["outside-contributor"], ["copy-pr-bot[bot]"], "release-engineer", [7]):
        world.post(f"{REPO}/issues", {"title": "x", "assignees": assignees}, 422)


def test_assignable_people(world: World) -> None:
    for login, status in (
        ("mlindqvist", 204), ("release-engineer", 204), ("outside-contributor", 404), ("copy-pr-bot[bot]", 404),
        ("nobody", 404),
    ):  # fmt: skip
        world.get(f"{REPO}/assignees/{login}", status)
    issue = world.post(f"{REPO}/issues", {"title": "x", "assignees": ["mlindqvist"], "labels": ["bug"]})
    assert [each["login"] for each in issue["assignees"]] == ["mlindqvist"]


# -- commits --------------------------------------------------------------------------------------------------------

CASES = "tests/functional_tests/test_cases"


def test_the_last_author_of_a_test(world: World) -> None:
    def last(path: str, **query: str) -> list[tuple[str, str | None]]:
        found = world.get(f"{REPO}/commits", params={"path": path, **query})
        return [(it["commit"]["author"]["name"], it["author"] and it["author"]["login"]) for it in found]

    memory, long = f"{CASES}/moe/gpt3_moe_mcore_tp2_ep4_memory", f"{CASES}/gpt/gpt3_mcore_te_tp4_pp1_long"
    first = ("Practice Maintainers", None)
    assert last("nowhere") == []
    assert last(memory) == [("Mara Lindqvist", "mlindqvist"), first]
    assert last(f"{memory}/model_config.yaml", per_page="1") == [("Mara Lindqvist", "mlindqvist")]
    assert last(long) == [("Jon Ferrer", None), first]  # who has left
    assert last(long, sha="core_r0.1.0") == [first]
    assert len(world.get(f"{REPO}/commits")) == 6
    world.get(f"{REPO}/commits?sha=nowhere", 404)
    owners = (world.checkout / ".github/CODEOWNERS").read_text()
    assert f"/{CASES}/moe/ @practice/moe\n" in owners
    world.push()
    found = world.get(f"{REPO}/commits", params={"sha": BRANCH, "path": "docker/.ngc_version.dev", "per_page": "1"})
    assert found[0]["sha"] == world.git("rev-parse", "HEAD")


# -- the rest of the protocol ---------------------------------------------------------------------------------------


def test_the_library_speaks_with_it(world: World) -> None:
    """Through githubkit, as everything else does."""
    sha = world.push()
    env = {"GITHUB_TOKEN": "practice-token", "GITHUB_API_URL": world.forge.url}
    with GitHub("practice/Megatron-LM", env) as github:
        assert github.me() == "release-engineer"
        assert "push" in github.repo().permissions
        pull = github.open_pull("chore: bump", f"practice:{BRANCH}", "main", "Body")
        assert github.pulls(head=f"practice:{BRANCH}", base="main") == (github.pull(pull.number),)
        github.add_label(pull.number, "Run functional tests")
        assert github.labels(pull.number) == {"Run functional tests"}
        assert [(each.label, each.on) for each in github.labellings(pull.number)] == [("Run functional tests", True)]
        github.comment(pull.number, f"/ok to test {sha}")
        assert github.comments(pull.number)[-1].author == "release-engineer"
        assert github.behind("main", BRANCH) == 0
        run = github.runs(branch=f"pull-request/{pull.number}", head_sha=sha)[0]
        world.clock.now += 60
        assert github.run(run.id).conclusion == "failure"
        assert len(github.jobs(run.id)) == len(world.jobs(run.id))
    barred = GitHub("practice/Megatron-LM", env | {"GITHUB_TOKEN": "sso-token"})
    with barred, pytest.raises(RunbookError, match="single sign-on"):
        barred.pulls()


# -- copy-pr-bot and the runs ---------------------------------------------------------------------------------------


def test_only_the_full_id_of_the_head_is_tested(world: World) -> None:
    old = world.push()
    number = world.open_pull()["number"]
    sha = world.push()
    for said, code in (("/ok to test", "E1"), (f"/ok to test {sha[:10]}", "E2"), (f"/ok to test {old}", "E2")):
        assert code in world.comment(number, said)[0]
    assert world.comment(number, f"Please do not /ok to test {sha}") == []
    assert world.runs() == []
    assert world.remote_commit(f"pull-request/{number}") is None
    assert world.comment(number, f"  /okay to test {sha}\n") == []
    assert world.remote_commit(f"pull-request/{number}") == sha
    assert len(world.runs()) == 1
    world.comment(number, f"/ok to test {sha}")
    assert len(world.runs()) == 1  # the mirror has that commit already


def test_a_run_from_its_queue_to_its_end(world: World) -> None:
    number, run_id = world.authorized("Run functional tests")
    run = world.run(run_id)
    assert (run["name"], run["event"], run["head_branch"]) == ("CICD Megatron-LM", "push", f"pull-request/{number}")
    assert run["head_sha"] == world.git("rev-parse", "HEAD")
    seen = []
    for _ in range(41):
        run = world.run(run_id)
        if (state := run["conclusion"] or run["status"]) not in seen[-1:]:
            seen.append(state)
        world.clock.now += 0.5
    assert seen == ["in_progress", "waiting", "in_progress", "failure"]
    assert run["updated_at"] == "2027-01-15T08:00:20Z"
    for nothing in ({"branch": "dev"}, {"head_sha": "0" * 40}):
        assert world.runs(**nothing) == []


def ends(world: World, run_id: int) -> dict[tuple[str, str], str]:
    """Test and platform → conclusion of the functional jobs."""
    return {
        (each["name"].removesuffix(" - latest"), "gb200" if "use2" in each["labels"][0] else "h100"): each["conclusion"]
        for each in world.jobs(run_id)
        if re.fullmatch(r"(gpt|moe|hybrid|mimo)/.* - latest", each["name"])
    }


FATES = {
    ("gpt/gpt3_mcore_te_tp1_pp1", "h100"): "failure",
    ("gpt/gpt3_mcore_te_tp1_pp1", "gb200"): "failure",
    ("gpt/gpt3_mcore_te_tp2_pp2_resume", "h100"): "success",
    ("gpt/gpt3_mcore_te_tp4_pp1_long", "h100"): "cancelled",
    ("moe/gpt3_moe_mcore_te_ep8", "h100"): "failure",
    ("moe/gpt3_moe_mcore_te_ep8", "gb200"): "failure",
    ("moe/gpt3_moe_mcore_tp2_ep4_memory", "h100"): "failure",
    ("hybrid/hybrid_mr_tp2_cp2", "h100"): "failure",
    ("mimo/mimo_vlm_tp1", "h100"): "failure",
    ("gpt/gpt_dynamic_inference_tp1_583m", "h100"): "success",
}


def test_a_new_base_images_effects_on_the_tests(world: World) -> None:
    _, run_id = world.authorized("Run functional tests")
    world.clock.now += 60
    assert ends(world, run_id) == FATES
    units = [each["conclusion"] for each in world.jobs(run_id) if each["name"].startswith("tests/unit_tests/")]
    assert units == ["success", "success"]


def test_a_change_that_keeps_the_base_image(world: World) -> None:
    sha = world.push("docs", pin="26.02-py3")
    number = world.open_pull("docs")["number"]
    world.label(number, "Run functional tests")
    world.comment(number, f"/ok to test {sha}")
    world.clock.now += 60
    failed = [each["name"] for each in world.jobs(world.runs()[0]["id"]) if each["conclusion"] != "success"]
    assert failed == ["moe/gpt3_moe_mcore_tp2_ep4_memory - latest", "Nemo_CICD_Test"]


def test_labels_of_the_moment_of_authorization_decide(world: World) -> None:
    number, run_id = world.authorized()
    world.label(number, "Run functional tests")
    world.clock.now += 60
    slim = ends(world, run_id)
    assert ("gpt/gpt3_mcore_te_tp1_pp1", "h100") in slim
    assert len(slim) < len(FATES)
    world.label(number, "Run tests")
    sha = world.push()
    world.comment(number, f"/ok to test {sha}")
    world.clock.now += 60
    lightweight = ends(world, world.runs()[0]["id"])
    assert lightweight.keys() == FATES.keys()
    assert lightweight["gpt/gpt3_mcore_te_tp1_pp1", "h100"] == "success"  # nothing was compared


def test_a_push_stops_the_run(world: World) -> None:
    number, run_id = world.authorized("Run functional tests")
    world.clock.now += 15
    sha = world.push()
    assert world.run(run_id)["conclusion"] == "cancelled"
    assert {each["conclusion"] for each in world.jobs(run_id)} >= {"success", "cancelled"}
    world.comment(number, f"/ok to test {sha}")
    assert world.runs()[0]["head_sha"] == sha
    world.clock.now += 60
    assert [each["conclusion"] for each in world.runs()] == ["failure", "cancelled"]
    world.push()  # ended runs stay as they were
    assert [each["conclusion"] for each in world.runs()] == ["failure", "cancelled"]


def test_a_refused_deployment_belongs_to_its_commit(world: World) -> None:
    world.forge.refuse_deployment()
    sha = world.push()
    number = world.open_pull()["number"]
    assert "had a problem deploying to test" in world.comment(number, f"/ok to test {sha}")[0]
    world.clock.now += 60
    assert world.comment(number, f"/ok to test {sha}") == []
    assert [each["conclusion"] for each in world.runs()] == ["failure"]
    deployment = world.get(f"{REPO}/deployments", params={"sha": sha, "environment": "test"})[0]
    statuses = world.get(f"{REPO}/deployments/{deployment['id']}/statuses")
    assert [each["state"] for each in statuses] == ["failure"]
    second = world.push()
    assert world.comment(number, f"/ok to test {second}") == []
    world.clock.now += 60
    assert len(world.jobs(world.runs()[0]["id"])) > len(world.jobs(world.runs()[1]["id"]))


def test_failed_jobs_once_more(world: World) -> None:
    _, run_id = world.authorized("Run functional tests")
    rerun = f"{REPO}/actions/runs/{run_id}/rerun-failed-jobs"
    world.post(rerun, None, 403)
    world.clock.now += 60
    world.post(rerun, None, 403, token="contributor-token")
    first = {each["id"] for each in world.jobs(run_id)}
    world.post(rerun, None)
    assert (world.run(run_id)["run_attempt"], world.run(run_id)["status"]) == (2, "in_progress")
    world.clock.now += 60
    assert ends(world, run_id) == FATES | {("mimo/mimo_vlm_tp1", "h100"): "success"}
    assert world.run(run_id)["conclusion"] == "failure"
    second = {each["id"] for each in world.jobs(run_id)}
    assert not first & second
    left = world.get(f"{REPO}/actions/runs/{run_id}/artifacts?per_page=100")["artifacts"]
    assert len({each["name"] for each in left}) == len(left) == 12 + 8  # only what ran again leaves another one


def test_a_cancelled_run_continues(world: World) -> None:
    _, run_id = world.authorized("Run functional tests")
    world.clock.now += 4
    world.push()
    assert world.run(run_id)["conclusion"] == "cancelled"
    world.post(f"{REPO}/actions/runs/{run_id}/rerun-failed-jobs", None)
    world.clock.now += 60
    assert ends(world, run_id) == FATES | {("mimo/mimo_vlm_tp1", "h100"): "success"}


def test_a_red_unit_test_skips_the_functional_ones(world: World) -> None:
    world.forge.break_jobs("tests/unit_tests/data/")
    _, run_id = world.authorized("Run functional tests")
    world.clock.now += 60
    assert ends(world, run_id) == {}
    by_name = {each["name"]: each["conclusion"] for each in world.jobs(run_id)}
    assert by_name["tests/unit_tests/data/ - latest"] == "failure"
    assert by_name["${{ matrix.model }}/${{ matrix.test_case }} - latest"] == "skipped"


# -- downloads and pages --------------------------------------------------------------------------------------------


def artifacts(world: World, run_id: int) -> dict[str, Any]:
    """Test case and platform → artifact."""
    named = {}
    for each in world.get(f"{REPO}/actions/runs/{run_id}/artifacts?per_page=100")["artifacts"]:
        golden = [name for name in members(world, each) if name.endswith(".json")]
        case = re.sub(rf"-{run_id}-[0-9a-f-]{{36}}(-retry)?$", "", each["name"].removeprefix("logs-"))
        named[f"{case} {'gb200' if 'gb200' in ''.join(golden) else 'h100'}"] = each
    return named


def members(world: World, artifact: Any) -> dict[str, bytes]:
    data = world.call("GET", artifact["archive_download_url"], follow_redirects=True).content
    assert len(data) == artifact["size_in_bytes"]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_artifacts_hold_what_was_measured(world: World) -> None:
    number, run_id = world.authorized("Run functional tests")
    world.clock.now += 14
    assert len(world.get(f"{REPO}/actions/runs/{run_id}/artifacts")["artifacts"]) < 12  # some jobs still run
    world.clock.now += 60
    found = artifacts(world, run_id)
    assert len(found) == 12
    drifted = members(world, found["gpt3_mcore_te_tp1_pp1 gb200"])
    folder = world.checkout / "tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp1_pp1"
    golden = folder / "golden_values_dev_dgx_gb200.json"
    assert drifted["golden_values_dev_dgx_gb200.json"].decode() != golden.read_text()
    assert any(name.startswith("logs/1/") and name.endswith("attempt_0/7/stdout.log") for name in drifted)
    resumed = members(world, found["gpt3_mcore_te_tp2_pp2_resume h100"])
    assert {"golden_values_dev_dgx_h100.json", "golden_values_dev_dgx_h100_2nd.json"} <= resumed.keys()
    assert found["gpt3_moe_mcore_te_ep8 gb200"]["name"].endswith("-retry")
    for none in ("gpt3_moe_mcore_tp2_ep4_memory h100", "mimo_vlm_tp1 h100", "tests-unit_tests-data- h100"):
        assert not [name for name in members(world, found[none]) if name.endswith(".json")]

    # The refresh: what was measured is committed, and then passes.
    golden.write_bytes(drifted["golden_values_dev_dgx_gb200.json"])
    sha = world.push()
    world.comment(number, f"/ok to test {sha}")
    world.clock.now += 60
    assert ends(world, world.runs()[0]["id"]) == FATES | {("gpt/gpt3_mcore_te_tp1_pp1", "gb200"): "success"}


def test_a_quarantined_test_is_not_run(world: World) -> None:
    world.push()
    recipe = world.checkout / "tests/test_utils/recipes/h100/hybrid.yaml"
    text = recipe.read_text()
    assert "mr-github]" in text
    recipe.write_text(text.replace("mr-github]", "mr-github-broken]"))
    _, run_id = world.authorized("Run functional tests")
    world.clock.now += 60
    assert ends(world, run_id) == {key: end for key, end in FATES.items() if key[0] != "hybrid/hybrid_mr_tp2_cp2"}


def test_an_lts_run_names_its_values_dev_too(world: World) -> None:
    _, run_id = world.authorized("Run functional tests", "container::lts")
    world.clock.now += 60
    found = artifacts(world, run_id)
    values = members(world, found["mimo_vlm_tp1 h100"])["golden_values_dev_dgx_h100.json"]
    folder = world.checkout / "tests/functional_tests/test_cases/mimo/mimo_vlm_tp1"
    assert values.decode() != (folder / "golden_values_dev_dgx_h100.json").read_text()


def test_downloads(world: World) -> None:
    _, run_id = world.authorized("Run functional tests")
    world.clock.now += 60
    artifact = world.get(f"{REPO}/actions/runs/{run_id}/artifacts")["artifacts"][0]
    url = artifact["archive_download_url"]
    world.get(url, 401, token="")
    place = world.call("GET", url).headers["Location"]
    whole = world.call("GET", place, token="").content
    for asked, status, part in (
        ("bytes=0-9", 206, whole[:10]),
        ("bytes=-22", 206, whole[-22:]),
        ("bytes=5-", 206, whole[5:]),
        (f"bytes={len(whole)}-", 416, b""),
    ):
        response = world.call("GET", place, token="", headers={"Range": asked})
        assert response.status_code == status, asked
        assert status == 416 or response.content == part, asked
    beyond = world.call("GET", place, token="", headers={"Range": f"bytes=0-{len(whole) + 9}"})
    assert beyond.headers["Content-Range"] == f"bytes 0-{len(whole) - 1}/{len(whole)}"
    world.clock.now += 61
    assert world.call("GET", place, token="").status_code == 403  # the address is no longer good
    job = next(each for each in world.jobs(run_id) if each["name"].startswith("moe/gpt3_moe_mcore_tp2"))
    log = world.call("GET", f"{REPO}/actions/jobs/{job['id']}/logs", follow_redirects=True).text
    assert "rank      : 3" in log
    assert "torch.OutOfMemoryError" not in log  # only the log of that rank, in the artifact, tells why
    world.clock.now += 91 * 86400
    assert world.get(url, 410)["message"] == "Artifact has expired"
    assert world.get(f"{REPO}/actions/runs/{run_id}/artifacts")["artifacts"][0]["expired"] is True


def test_it_listens_on_loopback_and_logs_nothing(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    assert world.forge.url.startswith("http://127.0.0.1:")
    world.call("GET", "/user")
    world.call("GET", "/user", token="nonsense")
    world.forge.fail("GET", "/user", 0)
    with pytest.raises(httpx.TransportError):
        world.call("GET", "/user")
    assert capfd.readouterr() == ("", "")


def test_the_same_two_commits_give_the_same_merge(world: World) -> None:
    sha = world.push()
    base = world.git("rev-parse", "origin/main")
    merges = {BareRepository(world.remote).merge(base, sha) for _ in range(2)}
    assert len(merges) == 1
    assert None not in merges
