"""The internal GitLab: how a bump's pipeline is started, and what it shows.  Pure.

Sources: Megatron-LM's ``tools/trigger_internal_ci.py`` (destination and variables) and ``.gitlab-ci.yml`` (the scopes;
a push alone starts nothing); GitLab's documentation of ``parallel: matrix`` (the names of its jobs) and of protected
branches (``*`` in their names).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageType
from runbook_lib.model import Next
from runbook_lib.pins.finders import KEY, PIN, PLATFORM, MatrixRows, matrix_rows
from runbook_lib.pins.sites import Sites
from runbook_lib.world.gitlab.models import UNDER_WAY, Pipeline, PipelineJob

#: The git remote on whose host the internal images are.
GITLAB_REMOTE = "gitlab"
#: The scopes of tests that the pipeline offers.
SCOPES = ("mr", "nightly", "weekly", "pre-release", "release")


def variables(tests: str) -> dict[str, str]:
    """Return the variables of a pipeline that builds the images, and runs the functional tests of a scope if given.

    Raises RunbookError for a scope that the pipeline does not offer.
    """
    chosen = {"BUILD": "yes", "UNIT_TEST": "no", "INTEGRATION_TEST": "no", "FUNCTIONAL_TEST": "no"}
    if not tests:
        return chosen
    if tests not in SCOPES:
        raise RunbookError(f"tests={tests!r} is not a scope of the internal pipeline.", f"Choose {', '.join(SCOPES)}.")
    chosen |= {"FUNCTIONAL_TEST": "yes", "FUNCTIONAL_TEST_SCOPE": tests}
    chosen |= {"FUNCTIONAL_TEST_REPEAT": "5", "FUNCTIONAL_TEST_CASES": "all"}
    if tests in ("release", "weekly"):  # with long training runs
        chosen["FUNCTIONAL_TEST_TIME_LIMIT"] = str(4 * 3600)  # seconds
    return chosen


@dataclass(frozen=True)
class BuildJob:
    """A job that builds a pin's image: one matrix row, with its values in order."""

    job: str
    values: tuple[str, ...]
    image: str
    platform: str

    @property
    def name(self) -> str:
        """The job's name on GitLab."""
        return f"{self.job}: [{', '.join(self.values)}]"

    def matches(self, job: PipelineJob) -> bool:
        """Return True if a GitLab job name has exactly these values, in any order."""
        name, _, rest = job.name.partition(": [")
        values = re.split(", ?", rest.removesuffix("]"))
        return name == self.job and rest.endswith("]") and sorted(values) == sorted(self.values)


def builds(texts: Mapping[str, str | None], sites: Sites, image_type: ImageType) -> tuple[BuildJob, ...]:
    """Return the jobs that build the images of an image type's GitLab pins, according to a commit's files.

    There are none if the pins are not in matrix rows, each with one value per key.  Raises CannotTell for a file that
    is not valid YAML.
    """
    result: list[BuildJob] = []
    for site in sites.pins:
        finder, text = site.finder, texts.get(site.path)
        if site.ci != "gitlab" or site.image_type != image_type or not isinstance(finder, MatrixRows) or not text:
            continue
        for row in matrix_rows(text):
            cells = {key: row.texts(key)[0] for key in row.cells if len(row.texts(key)) == 1}
            if len(cells) == len(row.cells) and cells.get(KEY) == finder.value and PIN in cells:
                platform = cells.get(PLATFORM, "")
                result.append(BuildJob(row.job, tuple(cells.values()), cells[PIN], platform))
    return tuple(result)


@dataclass(frozen=True)
class PipelineProgress:
    """The evidence of a pipeline about the pin, passed only if all ``jobs`` that build its images have succeeded."""

    pipeline: Pipeline
    jobs: tuple[PipelineJob, ...]
    state: Literal["waiting", "passed", "failed"]
    sentence: str
    next_action: Next


def judge(
    pipeline: Pipeline, jobs: Sequence[PipelineJob], expected: Sequence[BuildJob], *, tested: bool = False
) -> PipelineProgress | None:
    """Judge from a pipeline's jobs whether the pin in its commit builds; if ``tested``, its tests must have ended.

    None if it has ended without building the pin.
    """
    name = f"pipeline {pipeline.id} of {pipeline.sha[:10]}"
    by_build = {build: next((job for job in jobs if build.matches(job)), None) for build in expected}
    found = tuple(filter(None, by_build.values()))
    failed = [job for job in found if job.status == "failed"]
    manual = [job for job in found if job.status == "manual"]
    is_under_way = pipeline.status in (*UNDER_WAY, "manual")  # the latter waits for a person
    progress = partial(PipelineProgress, pipeline, found)
    follow = Next.again(f"To follow {pipeline.url}:", wait=True)
    if failed:
        reasons = [f"{job.name} ({job.reason.replace('_', ' ')})".removesuffix(" ()") for job in failed]
        sentence = f"the GitLab pin does not build: {'; '.join(reasons)} failed in {name}"
        fix = f"Read the log and fix the cause, or retry the job there: {failed[0].url}"
        return progress("failed", sentence, Next(fix))
    if expected and all(job and job.status == "success" for job in by_build.values()):
        if tested and is_under_way:
            return progress("waiting", f"waiting for the tests of {name}; the GitLab pin builds", follow)
        images = " and ".join(dict.fromkeys(build.image for build in expected))
        platforms = " and ".join(build.platform for build in expected if build.platform) or "its platform"
        return progress("passed", f"The GitLab pin builds: {images} for {platforms}, in {name}.", Next())
    if manual:
        sentence = f"waiting for a person: {manual[0].name} in {name} must be started by hand"
        return progress("waiting", sentence, Next(f"Press play there: {manual[0].url}"))
    if is_under_way or any(job.status in UNDER_WAY for job in found):
        states = [f"{it.platform or it.job} {job.status if job else 'missing'}" for it, job in by_build.items()]
        return progress("waiting", f"waiting for {name}: {', '.join(states)}", follow)
    return None
