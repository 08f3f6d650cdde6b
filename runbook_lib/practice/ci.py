"""The practice CI: the jobs of a run, how each ends, and its status at a given moment, as ``scenario.toml`` scripts it.

This module is pure: everything follows from the files and labels when the run was authorized, and from the clock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from runbook_lib.pins.repositories import LTS
from runbook_lib.practice import values
from runbook_lib.practice.store import scripted
from runbook_lib.text.recipes import file_names, rows
from runbook_lib.text.recipes.rows import RecipeRow

WORKFLOW = "CICD Megatron-LM"
#: The files that decide what becomes of a run's jobs.
FILES = ("docker", rows.FOLDER, file_names.FOLDER, "tests/unit_tests")
_H100, _GB200 = "dgx_h100", "dgx_gb200"
_PASSED = ("success", "skipped")


class Job(NamedTuple):
    """A job of one attempt of a run, and when it starts and ends, in seconds since 1970.

    ``cause`` is what becomes of it, a name in the scenario.
    """

    name: str
    kind: str
    starts: float
    ends: float
    conclusion: str = "success"
    cause: str = ""
    platform: str = ""
    run: int = 0
    attempt: int = 1
    id: int = 0

    @property
    def test(self) -> str:
        """The test as the scenario names it, or the job."""
        return self.name.partition(" - ")[0]

    @property
    def script(self) -> Mapping[str, Any]:
        """The scenario's entry for its cause."""
        told: Mapping[str, Any] = scripted("scenario")["causes"].get(self.cause, {})
        return told


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a run: the files of the commit that it tests and of its base, and its labels at the start."""

    files: Mapping[str, str]
    base_files: Mapping[str, str]
    labels: Sequence[str]

    @property
    def tier(self) -> Mapping[str, Any]:
        """The entry of the scenario that decides which tests run: the first that fits; the last fits every run."""
        tiers: Iterable[Mapping[str, Any]] = scripted("scenario")["tiers"]
        return next(tier for tier in tiers if tier.get("label", "") in ("", *self.labels))

    def image(self, files: Mapping[str, str]) -> str:
        """Return the image that these files pin for the run."""
        return files.get(f"docker/.ngc_version.{'lts' if LTS in self.labels else 'dev'}", "").strip()

    @property
    def fates(self) -> Mapping[str, str]:
        """Test, or name of a job → its cause, which the image of the run decides."""
        script, image = scripted("scenario"), self.image(self.files)
        if image == self.image(self.base_files):
            return dict(script["always"])
        return {**script["always"], **script["new"], **script["images"].get(image.rpartition(":")[2], {})}

    @cached_property
    def rows(self) -> list[RecipeRow]:
        """The rows of the recipes; an unparsable file has none."""
        return rows.read_all({path: text for path, text in self.files.items() if path.startswith(rows.FOLDER)})[0]

    def measured(self, job: Job) -> dict[str, str]:
        """Return path → text of the golden values that a job leaves behind.

        They follow from those of the base commit, the test, the platform and the image, so that each run of the same
        commit measures the same.  An LTS run measures on an entirely different image, and calls its files *dev* anyway.
        """
        to_its_end = "rank" not in job.script or "values" in job.script
        if job.kind != "functional" or not to_its_end or not self.tier.get("compares", True):
            return {}
        prefix = f"{file_names.FOLDER}/{job.test}/golden_values_dev_{job.platform}"
        cause = "drift" if LTS in self.labels else self.fates.get(job.test, "")
        how = job._replace(cause=cause).script.get("values", {})
        return {
            path: values.remeasure(text, how, f"{path} {self.image(self.files)}")
            for path, text in {**self.files, **self.base_files}.items() if path.startswith(prefix)
        }  # fmt: skip


def jobs(inputs: Inputs, started: float = 0.0, seconds: float = 1.0) -> list[Job]:
    """Return the jobs of the first attempt of a run that takes so long; a matrix that is skipped is one job."""
    planned: list[Job] = []
    failed: Job | None = None
    for frame in scripted("scenario")["jobs"]:
        framed = Job(frame["name"], frame["kind"], *(started + moment * seconds for moment in frame["time"]))
        if failed and framed.kind != "result":
            skipped = framed._replace(starts=failed.ends, ends=failed.ends, conclusion="skipped")
            planned.append(skipped._replace(name=frame.get("unnamed", framed.name)))
            continue
        made = _of_platforms(inputs, framed) if "unnamed" in frame else [framed]
        ended = [_ended(inputs, job, framed.ends) for job in made]
        planned += ended
        if frame.get("gates"):
            failed = next((job for job in ended if job.conclusion != "success" and job.platform != _GB200), None)
    return _with_result(planned)


def _of_platforms(inputs: Inputs, framed: Job) -> Iterator[Job]:
    """Yield the jobs of a matrix, one for each test that the recipes run on a platform; each ends after the other.

    GB200's end first, so that the jobs of one test on both platforms can be told apart by their times, as on GitHub.
    """
    for platform, half in ((_H100, 1), (_GB200, 0)):
        short = platform.removeprefix("dgx_")
        if framed.kind == "unit":
            recipe = f"{rows.FOLDER}/{short}/unit-tests.yaml"
            tests = sorted({row.case for row in inputs.rows if row.recipe == recipe})
        else:
            tests = select(inputs.rows, inputs.tier["scope"], platform)
        for number, test in enumerate(tests, 1):
            name = framed.name.format(test=test, platform="" if platform == _H100 else f"{short} ")
            ends = framed.starts + (half + number / len(tests)) / 2 * (framed.ends - framed.starts)
            yield framed._replace(name=name, ends=ends, platform=platform)


def select(recipe_rows: Iterable[RecipeRow], scope: str, platform: str) -> list[str]:
    """Return the functional tests in a scope as ``model/test_case``, each once."""
    found = (row for row in recipe_rows if "dev" in row.environments and platform in row.platforms)
    return sorted({row.test for row in found if any(cell.value == scope for cell in row.scopes)})


def _ended(inputs: Inputs, job: Job, time_limit: float) -> Job:
    """Return a job with its conclusion."""
    ended = job._replace(cause=inputs.fates.get(job.test, ""))
    script = ended.script
    fails = "conclusion" in script
    if "unless" in script:
        path, word = script["unless"]
        fails = word not in inputs.files.get(path, "")
    elif job.kind == "functional" and not fails:
        # CI compares what it measured with the golden files of the commit.
        fails = any(
            values.differ(inputs.files[path], text, script.get("failed", ("lm loss", "num-zeros")))
            for path, text in inputs.measured(job).items() if path in inputs.files
        )  # fmt: skip
    if not fails:
        return job
    ended = ended._replace(cause=ended.cause or "drift", conclusion=script.get("conclusion", "failure"))
    return ended._replace(ends=time_limit) if ended.conclusion == "cancelled" else ended


def retry(planned: Iterable[Job], started: float) -> list[Job]:
    """Return the jobs of the next attempt: those that failed run again, the others are listed unchanged."""
    retried = []
    for job in planned:
        if job.kind == "result" or job.conclusion not in _PASSED:
            cause = job.script.get("again", job.cause)
            conclusion = job.conclusion if cause else "success"
            ends = started + job.ends - job.starts
            job = job._replace(starts=started, ends=ends, cause=cause, conclusion=conclusion)
        retried.append(job)
    return _with_result(retried)


def _with_result(planned: Sequence[Job]) -> list[Job]:
    """Return the jobs with the last one as the others decide: it fails if any did not pass."""
    *others, result = planned
    last = max(job.ends for job in others)
    conclusion = "success" if all(job.conclusion in _PASSED for job in others) else "failure"
    return [*others, result._replace(starts=last, ends=last + result.ends - result.starts, conclusion=conclusion)]
