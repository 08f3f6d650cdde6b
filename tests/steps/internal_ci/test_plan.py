"""Where a bump's branch goes on GitLab, what its pipeline runs, and whether the pin builds: tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import GITLAB, image, matrix, rows

from runbook_lib.clients.gitlab.models import Job, Pipeline
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.known_sites import MEGATRON_LM
from runbook_lib.steps.internal_ci import plan

HEAD, OTHER = "a" * 40, "b" * 40
BRANCH = "bump/main/dev-26.04-py3"
TO = f"pull-request/{BRANCH}"
DEV = image("26.04-py3")


def pipeline(number: int = 1, *, sha: str = HEAD, ref: str = TO, status: str = "running") -> Pipeline:
    return Pipeline(number, sha, ref, status, f"https://gitlab.example.com/p/{number}", "api")


def job(platform: str, status: str, reason: str = "", *, tag: str = "26.04-py3", comma: str = ", ") -> Job:
    values = ["CI_MCORE_DEV_IMAGE", "Dockerfile.ci.dev", "dev", image(tag), *([platform] if platform else [])]
    name = f"test:pre_build_image: [{comma.join(values)}]"
    return Job(7, name, "build", status, reason, 60.0, "https://gitlab.example.com/j/7")


def expected(layout: int = 4, image_type: str = "dev") -> tuple[plan.Build, ...]:
    name = "test:build_image" if layout < 3 else "test:pre_build_image"
    text = matrix(rows(layout, "26.04-py3", "25.09-py3"), job=name)
    return plan.builds({GITLAB: text}, MEGATRON_LM, image_type)  # type: ignore[arg-type]


# -- where it goes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("branch", [BRANCH, "feature", "a/b.c", "dev-26.04", "release_notes", "mainly", "x" * 200])
def test_a_branch_goes_below_pull_request(branch: str) -> None:
    if branch.startswith("release"):
        with pytest.raises(Refused, match="many work on"):
            plan.destination(branch)
        return
    assert plan.destination(branch) == f"pull-request/{branch}"
    plan.guard(f"pull-request/{branch}", ["main", "core_*"], "main")


@pytest.mark.parametrize(
    "branch",
    [
        "main", "master", "dev", "release/1.0", "release-1", "core_r0.16.0", "ci-nightly", "HEAD", "1234",
        "pull-request/1234", "refs/heads/x", "", " ", "-f", "--mirror", "a b", "a\nb", "a..b", "a//b", "a/.b", "a.lock",
        "a.lock/b", "a/", "a.", "a@{0}", "a:b", "+a", "a~1", "a^", "a?", "a*", "a[b", "a\\b", ".a", "/a", "\u202ea",
        "x;id", "$(id)", "`id`", "x" * 300, "a\x00b", "é",
    ],
)  # fmt: skip
def test_a_branch_that_must_not_go_there(branch: str) -> None:
    with pytest.raises(Refused, match=r"pushed|taken for"):
        plan.destination(branch)


@pytest.mark.parametrize("protected", [["pull-request/*"], ["*"], [TO], ["main", "*/dev-*"], ["pull-request/bump/**"]])
def test_what_gitlab_protects_is_left_alone(protected: list[str]) -> None:
    with pytest.raises(Refused, match="GitLab protects"):
        plan.guard(TO, protected, "main")


@pytest.mark.parametrize("name", ["main", BRANCH, "pull-request/", "pull-request/12", "pull-request/main"])
def test_no_other_branch_is_ever_replaced(name: str) -> None:
    with pytest.raises(Refused):
        plan.guard(name, [], "main")
    with pytest.raises(Refused):
        plan.guard(TO, [], TO)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("", "", True), ("main", "main", True), ("main", "mainly", False), ("*", "", True), ("a*", "a", True),
        ("a*a", "a", False), ("a*b*a", "aba", True), ("*b*b*", "ab", False), ("a?", "ab", False), ("[a]", "a", False),
        ("core_*", "core_r0.1", True), ("*-stable", "x-stable", True), ("a**b", "ab", True), ("Main", "main", False),
    ],
)  # fmt: skip
def test_wildcards(pattern: str, name: str, found: bool) -> None:
    assert plan.matches(pattern, name) is found


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_wildcards_by_another_way(pattern: str, name: str) -> None:
    def by_trying(p: str, n: str) -> bool:
        if not p:
            return not n
        if p[0] == "*":
            return by_trying(p[1:], n) or (bool(n) and by_trying(p, n[1:]))
        return bool(n) and p[0] == n[0] and by_trying(p[1:], n[1:])

    assert plan.matches(pattern, name) == by_trying(pattern, name)


def test_a_hostile_wildcard_takes_no_time() -> None:
    assert not plan.matches("a*" * 3000 + "b", "a" * 6000)  # by trying, for ever


# -- remotes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "scheme", "host", "path"),
    [
        ("https://gitlab.example.com/adlr/megatron-lm.git", "https", "gitlab.example.com", "adlr/megatron-lm"),
        ("https://gitlab.example.com:8443/a/b/c/", "https", "gitlab.example.com", "a/b/c"),
        ("http://127.0.0.1:80/a/b", "http", "127.0.0.1", "a/b"),
        ("ssh://git@gitlab.example.com:12051/adlr/megatron-lm.git", "ssh", "gitlab.example.com", "adlr/megatron-lm"),
        ("git@gitlab.example.com:adlr/megatron-lm.git", "ssh", "gitlab.example.com", "adlr/megatron-lm"),
        ("gitlab.example.com:/adlr/megatron-lm", "ssh", "gitlab.example.com", "adlr/megatron-lm"),
        ("/srv/git/x.git", "file", "", "/srv/git/x.git"),
        ("/srv/my git/x.git", "file", "", "/srv/my git/x.git"),
        ("file:///srv/git/x.git", "file", "", "/srv/git/x.git"),
    ],
)
def test_a_remote_leads_to_a_place(url: str, scheme: str, host: str, path: str) -> None:
    assert plan.place(url) == plan.Place(scheme, host, path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "", "-oProxyCommand=id", "ext::sh -c id", "ssh://-oProxyCommand=id/x", "git@-x:y", "ftp://a/b", "relative/path",
        "https://a:99999/b",
        "https:///a", "https://a", "file://host/x", "https://a/b\nc", "git@host:", "fd::7", "https://a b/c",
    ],
)  # fmt: skip
def test_a_remote_that_leads_nowhere(url: str) -> None:
    with pytest.raises(RunbookError, match="remote's address"):
        plan.place(url)


def test_one_project_by_two_addresses() -> None:
    one, other = plan.place("git@GitLab.Example.com:ADLR/x.git"), plan.place("https://gitlab.example.com:8443/adlr/X")
    assert one.key == other.key
    assert plan.place("/A").key != plan.place("/a").key


# -- what it runs ------------------------------------------------------------------------------------------------


def test_variables() -> None:
    assert plan.variables("")["FUNCTIONAL_TEST"] == "no"
    assert {plan.variables(it)["BUILD"] for it in ("", *plan.SCOPES)} == {"yes"}
    assert plan.variables("mr") == {
        "BUILD": "yes", "UNIT_TEST": "no", "INTEGRATION_TEST": "no", "FUNCTIONAL_TEST": "yes",
        "FUNCTIONAL_TEST_SCOPE": "mr", "FUNCTIONAL_TEST_REPEAT": "5", "FUNCTIONAL_TEST_CASES": "all",
    }  # fmt: skip
    assert plan.variables("release")["FUNCTIONAL_TEST_TIME_LIMIT"] == "14400"
    for scope in ("mr-broken", "all", "mr; x", " mr"):
        with pytest.raises(RunbookError, match="choose one of"):
            plan.variables(scope)


# -- the jobs that build the pin ---------------------------------------------------------------------------------


def test_files_without_a_matrix_have_no_job() -> None:
    assert plan.builds({}, MEGATRON_LM, "dev") == ()
    assert plan.builds({GITLAB: None}, MEGATRON_LM, "dev") == ()
    assert plan.builds({GITLAB: "a: 1\n"}, MEGATRON_LM, "dev") == ()


@pytest.mark.parametrize("layout", [1, 2, 3, 4])
@pytest.mark.parametrize(("image_type", "tag"), [("dev", "26.04-py3"), ("lts", "25.09-py3")])
def test_each_layout_names_its_jobs(layout: int, image_type: str, tag: str) -> None:
    found = expected(layout, image_type)
    assert [it.platform for it in found] == (["amd64", "arm64"] if layout >= 3 else [""])
    assert {it.image for it in found} == {image(tag)}
    assert all(it.name.startswith("test:pre_build_image: [CI_MCORE_" if layout >= 3 else "test:build_image: [CI_")
               for it in found)  # fmt: skip
    assert all(image(tag) in it.name for it in found)


def test_a_row_that_lists_several_values() -> None:
    row = f"""\
      - IMAGE: CI_MCORE_DEV_IMAGE
        FILE: Dockerfile.ci.dev
        IMAGE_TYPE: dev
        BASE_IMAGE: {DEV}
        PLATFORM: [amd64, arm64]
"""
    names = [it.name for it in plan.builds({GITLAB: matrix(row)}, MEGATRON_LM, "dev")]
    assert names == [job("amd64", "").name, job("arm64", "").name]


# -- which pipeline ----------------------------------------------------------------------------------------------


def test_candidates() -> None:
    listed = [
        pipeline(1, ref="pull-request/10"), pipeline(2), pipeline(3, status="canceled"), pipeline(4, sha=OTHER),
        pipeline(5, status="skipped"), pipeline(6, ref="main", status="success"), pipeline(7, status="failed"),
    ]  # fmt: skip
    assert [it.id for it in plan.candidates(listed, HEAD, TO)] == [7, 2, 6, 1]
    assert plan.candidates([], HEAD, TO) == []


# -- whether the pin builds --------------------------------------------------------------------------------------

BOTH = [job("amd64", "success"), job("arm64", "success")]


@pytest.mark.parametrize(
    ("jobs", "status", "state", "words"),
    [
        ([], "created", "waiting", "amd64 not listed yet"),
        ([job("amd64", "running"), job("arm64", "pending")], "running", "waiting", "amd64 running, arm64 pending"),
        ([job("amd64", "success"), job("arm64", "running")], "running", "waiting", "arm64 running"),
        ([job("amd64", "success"), job("arm64", "manual")], "manual", "waiting", "started by hand"),
        (BOTH, "running", "passed", f"The GitLab pin builds: {DEV} for amd64 and arm64, in pipeline 1 of"),
        (BOTH, "failed", "passed", "The GitLab pin builds"),
        ([job("amd64", "success", comma=","), job("arm64", "success", comma=",")], "running", "passed", "builds"),
        ([job("amd64", "failed", "script_failure"), job("arm64", "success")], "failed", "failed", "(script failure)"),
        ([job("amd64", "failed"), job("arm64", "running")], "running", "failed", "does not build"),
        ([job("amd64", "success")], "success", "useless", "it has no job"),
        ([], "success", "useless", "without building"),
        ([], "failed", "useless", "without building"),
        ([job("amd64", "success"), job("arm64", "canceled")], "canceled", "useless", "canceled"),
        ([job("amd64", "success"), job("arm64", "skipped")], "success", "useless", "skipped"),
        # The jobs of another image, and of another name: they prove nothing of this pin.
        ([job(it, "success", tag="26.02-py3") for it in ("amd64", "arm64")], "success", "useless", "it has no job"),
        ([Job(1, "test:build_image", "build", "success", "", 1.0, "")], "success", "useless", "it has no job"),
        ([Job(1, f"other: [{DEV}, amd64]", "build", "success", "", 1.0, "")], "success", "useless", "it has no job"),
    ],
)  # fmt: skip
def test_verdicts(jobs: list[Job], status: str, state: str, words: str) -> None:
    found = plan.judge(pipeline(status=status), jobs, expected(), HEAD)
    assert found.state == state, found.sentence
    assert words in found.sentence
    assert bool(found.next) == (state != "passed")
    assert found.ended == (state != "waiting")


def test_a_job_of_another_name_with_the_same_values_proves_nothing() -> None:
    others = [Job(1, it.name.replace("pre_build", "push"), "build", "success", "", 1.0, "") for it in BOTH]
    assert plan.judge(pipeline(status="success"), others, expected(), HEAD).state == "useless"


def test_a_pipeline_of_another_commit_or_without_known_jobs_tells_nothing() -> None:
    assert plan.judge(pipeline(sha=OTHER, status="success"), BOTH, expected(), HEAD).state == "useless"
    assert plan.judge(pipeline(status="success"), BOTH, (), HEAD).state == "useless"


@given(st.lists(st.sampled_from(["success", "failed", "running", "skipped", "canceled", "manual", "odd"]), max_size=2),
       st.sampled_from(["running", "success", "failed", "canceled", "skipped", "manual", "odd"]))  # fmt: skip
def test_it_builds_only_where_each_job_succeeded(statuses: list[str], whole: str) -> None:
    jobs = [job(platform, status) for platform, status in zip(("amd64", "arm64"), statuses, strict=False)]
    found = plan.judge(pipeline(status=whole), jobs, expected(), HEAD)
    assert (found.state == "passed") == (statuses == ["success", "success"])
    assert found.sentence


def test_a_job_name_from_outside() -> None:
    build = expected()[0]
    for name in ("a: [" * 20_000, "[" * 50_000, "x: [" + "a, " * 50_000 + "]", ": [" + " " * 50_000):
        assert not build.is_(Job(1, name, "", "", "", 0.0, ""))
