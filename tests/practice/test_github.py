"""The practice forge, spoken to over HTTP; every answer is held against GitHub's own description where that is here."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from forging import BRANCH, REPO, World, copied, problems

#: The only kind of search that the product makes.
SEARCH = '/search/issues?q=repo:practice/Megatron-LM is:issue is:open "{}"'


@pytest.fixture
def world(seeded: Path, tmp_path: Path) -> Iterator[World]:
    with copied(seeded, tmp_path) as made:
        yield made


# -- the form of all answers ----------------------------------------------------------------------------------------


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


# -- labels, comments, issues, search -------------------------------------------------------------------------------


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
