"""The log and the artifact of a job of the practice CI.  This module is pure and repeatable.

The logs are short, and have the features that make real ones hard to read: the rank that failed reports the cause, and
the others report that they lost it.
"""

import io
import itertools
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from runbook_lib.practice.ci import Job
from runbook_lib.practice.store import scripted

RANKS = 8
_STEPS = 50


def artifact_name(job: Job) -> str:
    """Return ``logs-<test_case>-<run>-<uuid>``, which contains neither model nor platform."""
    test = job.test.partition("/")[2] if job.kind == "functional" else job.test.replace("/", "-")
    return f"logs-{test}-{job.run}-{uuid.uuid5(uuid.NAMESPACE_OID, str(job.id))}"


def archive(job: Job, golden: Mapping[str, str]) -> bytes:
    """Return the artifact, a zip archive: golden values and the output of each rank of every try.

    The logs are ``<repeat>/<try>/attempt_<k>/<rank>/std{out,err}.log``.
    """
    members = {path.rpartition("/")[2]: text for path, text in golden.items()}
    for number, repeat in enumerate(_repeats(job), 1):
        tries = 3 if job.kind == "functional" and "restart" in repeat.script.get("end", ()) else 1
        for attempt, rank in itertools.product(range(tries), range(RANKS)):
            seed = f"{job.name} {job.platform} {10 * number + attempt}"
            run_id = f"none_{uuid.uuid5(uuid.NAMESPACE_OID, seed).hex[:8]}"  # torchrun's folder of one try
            folder = f"{'' if job.kind == 'unit' else 'logs/'}{number}/{run_id}/attempt_0/{rank}"
            members[f"{folder}/stdout.log"] = "".join(f"{line}\n" for line in _output(repeat, rank))
            members[f"{folder}/stderr.log"] = "".join(f"{line}\n" for line in _errors(repeat, rank))
    return packed(members)


def packed(members: Mapping[str, str]) -> bytes:
    """Return a zip of texts by their names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        for name, text in members.items():
            written.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _repeats(job: Job) -> list[Job]:
    """Return the repeats of a job: a test hangs in its second one, after the first left golden values behind."""
    return [job._replace(cause=""), job] if job.cause == "hang" else [job]


def log(job: Job) -> str:
    """Return the log of a job that has ended, in GitHub's format, with a time before each line.

    It contains only the first and the last rank, as torchrun is configured.
    """
    lines = [f"##[group]Run {job.name}", f"launching test: {job.test}", "##[endgroup]"]
    for repeat, rank in itertools.product(_repeats(job), (0, RANKS - 1)):
        lines += [f"[default{rank}]:{line}" for line in (*_output(repeat, rank), *_errors(repeat, rank))]
    failed = ", ".join(job.script.get("failed", ()))
    end = _lines(job.script.get("end", ["passed"]), rank=job.script.get("rank", 0), failed=failed)
    # The output of the ranks comes early, and the result at the end, which is late for a job that hangs.
    return "".join(itertools.chain(_timed(lines, job.starts), _timed(end, job.ends)))


def _timed(lines: Iterable[str], begin: float) -> Iterator[str]:
    for number, line in enumerate(lines):
        moment = datetime.fromtimestamp(begin, UTC) + timedelta(milliseconds=number)
        yield f"{moment:%Y-%m-%dT%H:%M:%S.%f}0Z {line}\n"


def _output(job: Job, rank: int) -> Iterable[str]:
    """Return the standard output of a rank; the last one prints a line for each step."""
    if job.kind == "unit":
        return _lines(job.script.get("output", ["unit-passed"]), folder=job.test.rstrip("/"), rank=rank)
    if job.kind != "functional" or 0 < rank < RANKS - 1:
        return ()
    if not rank:
        return _lines(["begin"])
    lines = list[str]()
    for step in range(job.script.get("steps", _STEPS)):
        loss = 10.4 + 0.4 * (step - 26) if job.cause == "regression" and step >= 26 else 10.9 - 0.02 * step
        lines += _lines(["progress"], step=step, number=step + 1, steps=_STEPS, samples=32 * step + 32, loss=loss)
    return lines


def _errors(job: Job, rank: int) -> Iterable[str]:
    """Return the standard error of a rank: irrelevant warnings, then its failure or the loss of another rank."""
    own = "failure" if rank == job.script.get("rank") else "errors"
    return _lines(job.script.get(own, ["rank-start", "rank-end"]), rank=rank) if job.kind == "functional" else ()


def _lines(names: Iterable[str], **given: object) -> list[str]:
    """Return the lines of texts of the scenario, with these values in place of ``{name}``."""
    texts = scripted("scenario")["logs"]
    return [line for name in names for line in texts[name].format(**given).splitlines()]
