"""The log and the artifact of a job of the practice CI.  This module is pure and repeatable.

The logs are short, and have the features that make real ones hard to read: the rank that failed reports the cause, and
the others report that they lost it.
"""

import hashlib
import io
import itertools
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from runbook_lib.practice.ci import Job, scenario

RANKS = 8
_STEPS = 50


def artifact_name(job: Job, run_id: int, job_id: int) -> str:
    """Return ``logs-<test_case>-<run_id>-<uuid>``, which contains neither model nor platform."""
    unique = uuid.uuid5(uuid.NAMESPACE_OID, str(job_id))
    return f"logs-{job.test_case}-{run_id}-{unique}".replace("/", "-").replace("*", "-")


def archive(job: Job, golden: Mapping[str, str], started: float) -> bytes:
    """Return the artifact, a zip archive: golden values and the output of each rank of every try.

    The logs are ``<repeat>/<try>/attempt_<k>/<rank>/std{out,err}.log``.
    """
    members = dict(golden)
    logs = "" if job.kind == "unit" else "logs/"
    for number, repeat in enumerate(_repeats(job), 1):
        tries = 3 if job.kind == "functional" and "restart" in repeat.script.get("end", ()) else 1
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


def log(job: Job) -> str:
    """Return the log of a job that has ended, in GitHub's format, with a time before each line.

    It contains only the first and the last rank, as torchrun is configured.
    """
    lines = [f"##[group]Run {job.name}", f"launching test: {job.test_case or job.name}", "##[endgroup]"]
    if job.kind in ("unit", "functional"):
        for repeat, rank in itertools.product(_repeats(job), (0, RANKS - 1)):
            lines += [f"[default{rank}]:{line}" for line in (*output(repeat, rank), *errors(repeat, rank))]
    # The output of the ranks comes early, and the result at the end, which is late for a job that hangs.
    timed = [*_timed(lines, job.starts), *_timed(harness(job), job.ends)]
    return "".join(f"{moment:%Y-%m-%dT%H:%M:%S.%f}0Z {line}\n" for moment, line in timed)


def _timed(lines: list[str], begin: float) -> list[tuple[datetime, str]]:
    moment = datetime.fromtimestamp(begin, UTC)
    return [(moment + timedelta(milliseconds=number), line) for number, line in enumerate(lines)]


def output(job: Job, rank: int) -> list[str]:
    """Return the standard output of a rank; the last one prints a line for each step."""
    if job.kind == "unit":
        return _lines(job.script.get("output", ["unit-passed"]), folder=job.test_case.rstrip("/"), rank=rank)
    steps = range(job.script.get("steps", _STEPS)) if rank == RANKS - 1 else ()
    return [line for step in steps for line in _progress(job, step)] if rank else _lines(["begin"])


def _progress(job: Job, step: int) -> list[str]:
    loss = 10.9 - 0.02 * step
    if job.cause == "regression" and step >= 26:
        loss = 10.4 + 0.4 * (step - 26)
    return _lines(
        ["progress"], step=step, number=step + 1, steps=_STEPS, samples=32 * step + 32, loss=loss,
        time=140.1 if step else 3101.2, norm=2.1 - step / 100,
    )  # fmt: skip


def errors(job: Job, rank: int) -> list[str]:
    """Return the standard error of a rank: irrelevant warnings, then its failure or the loss of another rank."""
    if job.kind != "functional":
        return []
    own = "failure" if rank == job.script.get("rank") else "errors"
    return _lines(job.script.get(own, ["rank-start", "rank-end"]), rank=rank)


def harness(job: Job) -> list[str]:
    """Return the end of the log of a job, after the output of the ranks."""
    failed = ", ".join(job.script.get("failed", ()))
    return _lines(job.script.get("end", ["passed"]), rank=job.script.get("rank", 0), failed=failed)


def _lines(names: Iterable[str], **given: object) -> list[str]:
    """Return the lines of texts of the scenario, with these values in place of ``{name}``."""
    texts = scenario()["logs"]
    return [line for name in names for line in texts[name].format(**given).splitlines()]
