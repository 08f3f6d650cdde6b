"""Pipelines of the internal GitLab, in tables."""

import pytest
from layouts import GITLAB, image, matrix, rows

from runbook_lib.compute import internal_gitlab
from runbook_lib.errors import RunbookError
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.world.gitlab.models import Pipeline, PipelineJob

HEAD, OTHER = "a" * 40, "b" * 40
BRANCH = "bump/main/dev-26.04-py3"
TO = f"pull-request/{BRANCH}"
DEV = image("26.04-py3")
SITES = MEGATRON_LM.sites


def pipeline(number: int = 1, *, sha: str = HEAD, ref: str = TO, status: str = "running") -> Pipeline:
    return Pipeline(number, sha, ref, status, f"https://gitlab.example.com/p/{number}")


def job(platform: str, status: str, reason: str = "", *, tag: str = "26.04-py3", comma: str = ", ") -> PipelineJob:
    values = ["CI_MCORE_DEV_IMAGE", "Dockerfile.ci.dev", "dev", image(tag), *([platform] if platform else [])]
    name = f"test:pre_build_image: [{comma.join(values)}]"
    return PipelineJob(7, name, "build", status, reason, "https://gitlab.example.com/j/7")


def expected(layout: int = 4, image_type: str = "dev") -> tuple[internal_gitlab.BuildJob, ...]:
    name = "test:build_image" if layout < 3 else "test:pre_build_image"
    text = matrix(rows(layout, "26.04-py3", "25.09-py3"), job=name)
    return internal_gitlab.builds({GITLAB: text}, SITES, image_type)  # type: ignore[arg-type]


# -- variables ------------------------------------------------------------------------------------------------


def test_variables() -> None:
    assert internal_gitlab.variables("")["FUNCTIONAL_TEST"] == "no"
    assert {internal_gitlab.variables(scope)["BUILD"] for scope in ("", *internal_gitlab.SCOPES)} == {"yes"}
    assert internal_gitlab.variables("mr") == {
        "BUILD": "yes", "UNIT_TEST": "no", "INTEGRATION_TEST": "no", "FUNCTIONAL_TEST": "yes",
        "FUNCTIONAL_TEST_SCOPE": "mr", "FUNCTIONAL_TEST_REPEAT": "5", "FUNCTIONAL_TEST_CASES": "all",
    }  # fmt: skip
    assert internal_gitlab.variables("release")["FUNCTIONAL_TEST_TIME_LIMIT"] == "14400"
    for scope in ("mr-broken", "all", "mr; x", " mr"):
        with pytest.raises(RunbookError, match=repr(scope)):
            internal_gitlab.variables(scope)


# -- the jobs that build the pin ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [1, 2, 3, 4])
@pytest.mark.parametrize(("image_type", "tag"), [("dev", "26.04-py3"), ("lts", "25.09-py3")])
def test_each_layout_names_its_jobs(layout: int, image_type: str, tag: str) -> None:
    builds = expected(layout, image_type)
    assert [build.platform for build in builds] == (["amd64", "arm64"] if layout >= 3 else [""])
    assert {build.image for build in builds} == {image(tag)}
    start = "test:pre_build_image: [CI_MCORE_" if layout >= 3 else "test:build_image: [CI_"
    assert all(build.name.startswith(start) and image(tag) in build.name for build in builds)


def test_without_a_row_for_one_image_there_is_no_job() -> None:
    lists = "".join(f"        K{number}: [{'a, ' * 99}a]\n" for number in range(9))
    row = f"      - IMAGE: CI_MCORE_DEV_IMAGE\n        BASE_IMAGE: {DEV}\n{lists}"
    for texts in ({}, {GITLAB: None}, {GITLAB: "a: 1\n"}, {GITLAB: matrix(row)}):
        assert internal_gitlab.builds(texts, SITES, "dev") == ()


# -- whether the pin builds --------------------------------------------------------------------------------------

BOTH_PLATFORMS = ("amd64", "arm64")
BOTH = [job("amd64", "success"), job("arm64", "success")]


@pytest.mark.parametrize(
    ("jobs", "status", "state", "words"),
    [
        ([], "created", "waiting", "amd64 missing"),
        ([job("amd64", "running"), job("arm64", "pending")], "running", "waiting", "amd64 running, arm64 pending"),
        ([job("amd64", "success"), job("arm64", "manual")], "manual", "waiting", "started by hand"),
        (BOTH, "running", "passed", f"The GitLab pin builds: {DEV} for amd64 and arm64, in pipeline 1 of"),
        (BOTH, "failed", "passed", "The GitLab pin builds"),
        ([job("amd64", "success", comma=","), job("arm64", "success", comma=",")], "running", "passed", "builds"),
        ([job("amd64", "failed", "script_failure"), job("arm64", "success")], "failed", "failed", "(script failure)"),
        ([job("amd64", "failed"), job("arm64", "running")], "running", "failed", "does not build"),
        ([job("amd64", "success")], "success", None, ""),
        ([], "failed", None, ""),
        ([job("amd64", "success"), job("arm64", "canceled")], "canceled", None, ""),
        # The jobs of another image, and of another name: they prove nothing about this pin.
        ([job(platform, "success", tag="26.02-py3") for platform in BOTH_PLATFORMS], "success", None, ""),
        ([PipelineJob(1, "test:build_image", "build", "success", "", "")], "success", None, ""),
        ([PipelineJob(1, f"other: [{DEV}, amd64]", "build", "success", "", "")], "success", None, ""),
    ],
)  # fmt: skip
def test_verdicts(jobs: list[PipelineJob], status: str, state: str | None, words: str) -> None:
    progress = internal_gitlab.judge(pipeline(status=status), jobs, expected())
    if state is None or progress is None:
        assert (progress, state) == (None, None)
        return
    assert progress.state == state, progress.sentence
    assert words in progress.sentence
    assert bool(progress.next_action) == (state != "passed")


def test_without_expected_builds_a_pipeline_shows_nothing() -> None:
    assert internal_gitlab.judge(pipeline(status="success"), BOTH, ()) is None


@pytest.mark.parametrize(
    ("status", "state"),
    [("running", "waiting"), ("manual", "waiting"), ("success", "passed"), ("failed", "passed")],
)
def test_requested_tests_must_have_ended(status: str, state: str) -> None:
    progress = internal_gitlab.judge(pipeline(status=status), BOTH, expected(), tested=True)
    assert progress is not None
    assert progress.state == state
