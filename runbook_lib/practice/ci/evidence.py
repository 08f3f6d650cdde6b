"""What a job of the practice CI leaves behind: its log, and its artifact.  Pure, and the same each time."""

import io
import itertools
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from runbook_lib.practice.ci import transcripts
from runbook_lib.practice.ci.plan import Planned, Seen
from runbook_lib.practice.ci.transcripts import RANKS

#: The tests whose first upload failed, so that their artifact's name ends in ``-retry``.
UPLOADED_AGAIN = frozenset({("moe/gpt3_moe_mcore_te_ep8", "dgx_gb200")})


def artifact_name(job: Planned, run_id: int, job_id: int) -> str:
    """``logs-<test_case>-<run_id>-<uuid>``: neither model nor platform is in it."""
    unique = uuid.uuid5(uuid.NAMESPACE_OID, str(job_id))
    again = "-retry" if (f"{job.model}/{job.test_case}", job.platform) in UPLOADED_AGAIN else ""
    return f"logs-{job.test_case}-{run_id}-{unique}{again}".replace("/", "-").replace("*", "-")


def outputs(job: Planned) -> dict[str, str]:
    """``<repeat>/<try>/attempt_<k>/<rank>/std{out,err}.log`` → text, of every rank of every try."""
    found: dict[str, str] = {}
    for repeat, ran in enumerate(_repeats(job), 1):
        for number, rank in itertools.product(range(transcripts.tries(ran)), range(RANKS)):
            folder = f"{repeat}/{transcripts.run_id(job, 10 * repeat + number)}/attempt_0/{rank}"
            for name, lines in (("out", transcripts.output(ran, rank)), ("err", transcripts.errors(ran, rank))):
                found[f"{folder}/std{name}.log"] = "".join(f"{line}\n" for line in lines)
    return found


def _repeats(job: Planned) -> list[Planned]:
    """A test hangs in its second repeat: the first is whole, and left golden values behind."""
    return [replace(job, cause=""), job] if job.cause == "hang" and job.compares else [job]


def archive(job: Planned, golden: Mapping[str, str], started: float, folder: str = "") -> bytes:
    """The artifact's zip, below ``folder``: golden values at the top, and each rank's output."""
    logs = "" if job.kind == "unit" else "logs/"
    members = {**golden, **{f"{logs}{name}": text for name, text in outputs(job).items()}}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in members.items():
            entry = zipfile.ZipInfo(f"{folder}{name}", datetime.fromtimestamp(started, UTC).timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, text)
    return buffer.getvalue()


def as_seen(job: Planned, started: float, seen: Seen) -> Planned:
    """A job of an attempt that started at a moment; one that a push or a person stopped had not failed yet."""
    if seen.completed is None or seen.completed >= started + job.ends:
        return job
    ends = max(seen.completed - started, job.starts)
    return replace(job, cause="", conclusion="cancelled", detail=transcripts.STOPPED, ends=ends)


def log(job: Planned, started: float) -> str:
    """The log of a job as GitHub gives it: a time before each line; ``started`` is when the job did.

    Of the ranks only the first and the last are in it, as torchrun is told.
    """
    lines = [f"##[group]Run {job.name}", f"launching test: {job.test_case or job.name}", "##[endgroup]"]
    if job.kind in ("unit", "functional"):
        for ran, rank in itertools.product(_repeats(job), (0, RANKS - 1)):
            shown = (*transcripts.output(ran, rank), *transcripts.errors(ran, rank))
            lines += [f"[default{rank}]:{line}" for line in shown]
    # What a rank says comes early; how it ended is known at the end, which is late where it hung.
    ended = started + job.ends - job.starts
    said = [*_timed(lines, started), *_timed(transcripts.harness(job) or ["Cleaning up orphan processes"], ended)]
    return "".join(f"{moment:%Y-%m-%dT%H:%M:%S.%f}0Z {line}\n" for moment, line in said)


def _timed(lines: list[str], begin: float) -> list[tuple[datetime, str]]:
    moment = datetime.fromtimestamp(begin, UTC)
    return [(moment + timedelta(milliseconds=number), line) for number, line in enumerate(lines)]
