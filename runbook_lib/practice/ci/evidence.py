"""The log and the artifact of a job of the practice CI.  This module is pure and repeatable."""

import hashlib
import io
import itertools
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from runbook_lib.practice.ci import transcripts
from runbook_lib.practice.ci.plan import GitHubStatus, Planned
from runbook_lib.practice.ci.transcripts import RANKS

#: The tests whose first upload failed, so that the name of their artifact ends with ``-retry``.
UPLOADED_AGAIN = frozenset({("moe/gpt3_moe_mcore_te_ep8", "dgx_gb200")})


def artifact_name(job: Planned, run_id: int, job_id: int) -> str:
    """Return ``logs-<test_case>-<run_id>-<uuid>``, which contains neither model nor platform."""
    unique = uuid.uuid5(uuid.NAMESPACE_OID, str(job_id))
    name = f"logs-{job.test_case}-{run_id}-{unique}".replace("/", "-").replace("*", "-")
    if (f"{job.model}/{job.test_case}", job.platform) in UPLOADED_AGAIN:
        name += "-retry"
    return name


def outputs(job: Planned) -> dict[str, str]:
    """Return ``<repeat>/<try>/attempt_<k>/<rank>/std{out,err}.log`` → text, of every rank of every try."""
    texts: dict[str, str] = {}
    for number, repeat in enumerate(_repeats(job), 1):
        for attempt, rank in itertools.product(range(transcripts.tries(repeat)), range(RANKS)):
            seed = f"{job.name} {job.platform} {10 * number + attempt}"
            run_id = f"none_{hashlib.sha256(seed.encode()).hexdigest()[:8]}"  # torchrun's folder of one try
            folder = f"{number}/{run_id}/attempt_0/{rank}"
            texts[f"{folder}/stdout.log"] = "".join(f"{line}\n" for line in transcripts.output(repeat, rank))
            texts[f"{folder}/stderr.log"] = "".join(f"{line}\n" for line in transcripts.errors(repeat, rank))
    return texts


def _repeats(job: Planned) -> list[Planned]:
    """Return the repeats of a job: a test hangs in its second one, after the first left golden values behind."""
    if job.cause == "hang" and job.compares:
        return [replace(job, cause=""), job]
    return [job]


def archive(job: Planned, golden: Mapping[str, str], started: float) -> bytes:
    """Return the artifact, a zip archive: golden values and the output of each rank."""
    members = dict(golden)
    logs = "" if job.kind == "unit" else "logs/"
    for name, text in outputs(job).items():
        members[f"{logs}{name}"] = text
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in members.items():
            entry = zipfile.ZipInfo(name, datetime.fromtimestamp(started, UTC).timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, text)
    return buffer.getvalue()


def as_ended(job: Planned, started: float, status: GitHubStatus) -> Planned:
    """Return a job of an attempt as it ended; a job stopped by a push or a person had not failed yet."""
    if status.completed is None or status.completed >= started + job.ends:
        return job
    ends = max(status.completed - started, job.starts)
    return replace(job, cause="", conclusion="cancelled", detail=transcripts.STOPPED, ends=ends)


def log(job: Planned, started: float) -> str:
    """Return the log of a job in GitHub's format, with a time before each line; ``started`` is the job's start.

    It contains only the first and the last rank, as torchrun is configured.
    """
    lines = [f"##[group]Run {job.name}", f"launching test: {job.test_case or job.name}", "##[endgroup]"]
    if job.kind in ("unit", "functional"):
        for repeat, rank in itertools.product(_repeats(job), (0, RANKS - 1)):
            output = (*transcripts.output(repeat, rank), *transcripts.errors(repeat, rank))
            lines += [f"[default{rank}]:{line}" for line in output]
    # The output of the ranks comes early, and the result at the end, which is late for a job that hangs.
    end = started + job.ends - job.starts
    timed = [*_timed(lines, started), *_timed(transcripts.harness(job) or ["Cleaning up orphan processes"], end)]
    return "".join(f"{moment:%Y-%m-%dT%H:%M:%S.%f}0Z {line}\n" for moment, line in timed)


def _timed(lines: list[str], begin: float) -> list[tuple[datetime, str]]:
    moment = datetime.fromtimestamp(begin, UTC)
    return [(moment + timedelta(milliseconds=number), line) for number, line in enumerate(lines)]
