"""The log and the artifact of a job of the practice CI.  This module is pure and repeatable.

The logs are short, and have the features that make real ones hard to read: the rank that failed reports the cause, and
the others report that they lost it.
"""

import hashlib
import io
import itertools
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from runbook_lib.practice.ci import Job, Status, scenario

RANKS = 8
_STEPS = 50
_RESTART = "WARNING:__main__:Detected flaky failure, attempt restart."
#: The test whose first upload failed, so that the name of its artifact ends with ``-retry``.
_UPLOADED_AGAIN = ("moe/gpt3_moe_mcore_te_ep8", "dgx_gb200")


def artifact_name(job: Job, run_id: int, job_id: int) -> str:
    """Return ``logs-<test_case>-<run_id>-<uuid>``, which contains neither model nor platform."""
    unique = uuid.uuid5(uuid.NAMESPACE_OID, str(job_id))
    name = f"logs-{job.test_case}-{run_id}-{unique}".replace("/", "-").replace("*", "-")
    return f"{name}-retry" if (job.test, job.platform) == _UPLOADED_AGAIN else name


def archive(job: Job, golden: Mapping[str, str], started: float) -> bytes:
    """Return the artifact, a zip archive: golden values and the output of each rank of every try.

    The logs are ``<repeat>/<try>/attempt_<k>/<rank>/std{out,err}.log``.
    """
    members = dict(golden)
    logs = "" if job.kind == "unit" else "logs/"
    for number, repeat in enumerate(_repeats(job), 1):
        tries = 3 if job.kind == "functional" and _RESTART in harness(repeat) else 1
        for attempt, rank in itertools.product(range(tries), range(RANKS)):
            seed = f"{job.name} {job.platform} {10 * number + attempt}"
            run_id = f"none_{hashlib.sha256(seed.encode()).hexdigest()[:8]}"  # torchrun's folder of one try
            folder = f"{logs}{number}/{run_id}/attempt_0/{rank}"
            members[f"{folder}/stdout.log"] = "".join(f"{line}\n" for line in output(repeat, rank))
            members[f"{folder}/stderr.log"] = "".join(f"{line}\n" for line in errors(repeat, rank))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in members.items():
            entry = zipfile.ZipInfo(name, datetime.fromtimestamp(started, UTC).timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, text)
    return buffer.getvalue()


def _repeats(job: Job) -> list[Job]:
    """Return the repeats of a job: a test hangs in its second one, after the first left golden values behind."""
    return [replace(job, cause=""), job] if job.cause == "hang" else [job]


def as_ended(job: Job, started: float, status: Status) -> Job:
    """Return a job of an attempt as it ended; a job stopped by a push or a person had not failed yet."""
    if status.completed is None or status.completed >= started + job.ends:
        return job
    ends = max(status.completed - started, job.starts)
    return replace(job, cause="stopped", conclusion="cancelled", ends=ends)


def log(job: Job, started: float) -> str:
    """Return the log of a job in GitHub's format, with a time before each line; ``started`` is the job's start.

    It contains only the first and the last rank, as torchrun is configured.
    """
    lines = [f"##[group]Run {job.name}", f"launching test: {job.test_case or job.name}", "##[endgroup]"]
    if job.kind in ("unit", "functional"):
        for repeat, rank in itertools.product(_repeats(job), (0, RANKS - 1)):
            lines += [f"[default{rank}]:{line}" for line in (*output(repeat, rank), *errors(repeat, rank))]
    # The output of the ranks comes early, and the result at the end, which is late for a job that hangs.
    end = started + job.ends - job.starts
    timed = [*_timed(lines, started), *_timed(harness(job) or ["Cleaning up orphan processes"], end)]
    return "".join(f"{moment:%Y-%m-%dT%H:%M:%S.%f}0Z {line}\n" for moment, line in timed)


def _timed(lines: list[str], begin: float) -> list[tuple[datetime, str]]:
    moment = datetime.fromtimestamp(begin, UTC)
    return [(moment + timedelta(milliseconds=number), line) for number, line in enumerate(lines)]


def output(job: Job, rank: int) -> list[str]:
    """Return the standard output of a rank."""
    if job.kind == "unit":
        ended = "unit-failed" if job.conclusion == "failure" else "unit-passed"
        return _lines(ended, folder=job.test_case.rstrip("/"), rank=rank)
    if job.cause == "broken" or rank not in (0, RANKS - 1):
        return []
    if rank == 0:
        return ["using world size: 8, data-parallel size: 8, context-parallel size: 1", "> building GPT model ..."]
    return [line for step in range(job.script.get("steps", _STEPS)) for line in _progress(job, step)]


def _progress(job: Job, step: int) -> list[str]:
    """Return the line that the last rank prints for each step."""
    loss = 10.9 - 0.02 * step
    if job.cause == "regression" and step >= 26:
        loss = 10.4 + 0.4 * (step - 26)
    return _lines(
        "progress", step=step, number=step + 1, steps=_STEPS, samples=32 * step + 32, loss=loss,
        time=140.1 if step else 3101.2, norm=2.1 - step / 100,
    )  # fmt: skip


def errors(job: Job, rank: int) -> list[str]:
    """Return the standard error of a rank: irrelevant warnings, then its failure or the loss of another rank."""
    if job.kind != "functional":
        return []
    if job.cause == "broken":
        return [] if rank else _lines("failure-broken")
    lines, culprit = _lines("rank-start", rank=rank), job.script.get("rank")
    if culprit is None:
        return lines + _lines("rank-end", rank=rank)
    if rank == culprit:
        return lines + _lines(f"failure-{job.cause}")
    return lines + (_lines(job.script["lost"], rank=rank) if "lost" in job.script else [])


def harness(job: Job) -> list[str]:
    """Return the end of the log of a job, after the output of the ranks."""
    script = job.script
    if not job.cause:
        return []
    if job.kind != "functional" and job.cause == "broken":
        lines = _lines(f"job-{job.kind}") if f"job-{job.kind}" in scenario()["logs"] else []
        return [*lines, _exit(100 if job.kind == "build" else 1)]
    if script.get("conclusion") == "cancelled" or job.cause == "refused":
        return _lines(script["end"])
    if job.kind == "unit":
        return [_exit(1)]
    lines = _golden(script["failed"]) if "end" not in script else _lines(script["end"], rank=script.get("rank", 0))
    # The harness also mistakes the messages of the other ranks for a flaky failure.
    return [*lines, *([_RESTART] if "failed" in script or "lost" in script else []), _exit(1)]


def _golden(failed: list[str]) -> list[str]:
    """Return what the comparison of golden values reports."""
    metrics = ""
    for metric in failed:
        how = "approximate" if metric == "iteration-time" else "exact"
        metrics += "\n".join([*_lines("golden-metric", how=how, metric=metric), ""])
    return _lines("golden", metrics=metrics, failed=", ".join(failed))


def _exit(status: int) -> str:
    return f"##[error]Process completed with exit code {status}."


def _lines(name: str, **given: object) -> list[str]:
    """Return the lines of a text of the scenario, with these values in place of ``{name}``."""
    text: str = scenario()["logs"][name]
    return text.format(**given).splitlines()
