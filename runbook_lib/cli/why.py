"""``runbook why``: the root cause of a failure, from a log, a folder or zip of logs, or a run of GitHub Actions."""

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from runbook_lib.cli.command import Answer, command
from runbook_lib.errors import RunbookError
from runbook_lib.failures import failed_jobs, history, read_logs
from runbook_lib.failures.evidence import Failure
from runbook_lib.golden import ci_runs
from runbook_lib.practice.world import open_world
from runbook_lib.record.archive import default
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.github.client import GitHub


@command("why job.log")
@click.argument("place", metavar="PATH|URL")
@click.option("--workflow", default="", help="For a pull request: use the newest run of this workflow (default: any).")
def why(place: str, workflow: str) -> Answer:
    """Name the root cause of a failure.

    Give a log, a folder of rank logs, a zip, or the URL of a run, a job or a pull request on GitHub.
    Exit status: 0 found, 2 unknown, or the logs cannot be read.
    """
    failures = _failures(place, workflow)
    if not failures:
        raise RunbookError(f"{place} has no failed job.")
    earlier = history.read(default())
    documents = [_document(failure, history.describe(earlier, failure)) for failure in failures]
    documents.sort(key=lambda document: (document["class"] == "unknown", -document["confidence"]))
    more = {"jobs": documents} if len(documents) > 1 else {}
    lines = ["\n\n".join("\n".join(_lines(document)) for document in documents)]
    return Answer(0 if documents[0]["class"] != "unknown" else 2, documents[0] | more, lines)


def _failures(place: str, workflow: str) -> Sequence[Failure]:
    path = Path(os.path.expanduser(place))
    if path.exists():
        return [read_logs.diagnose_folder(path)]
    address = ci_runs.ADDRESS.fullmatch(place)
    if not address and not place.lstrip("#").isdigit():
        raise RunbookError(f"{place} is neither a file or folder here, nor a run, job or pull request on GitHub.")
    if place.startswith("file:"):  # the page of a run in the practice environment
        practice = open_world().forge()
        return failed_jobs.causes(practice, ci_runs.find_run(practice, place, workflow))
    repository = address["repository"] if address else Checkout.open(".").repository()
    github = GitHub(repository)
    return failed_jobs.causes(github, ci_runs.find_run(github, place, workflow))


def _document(failure: Failure, seen: str) -> dict[str, Any]:
    advice = [failure.next] if failure.next else []
    advice += [failure.details[name] for name in ("driver", "would decide it") if name in failure.details]
    return {
        "job": failure.job, "class": failure.kind, "cause": failure.cause, "rank": failure.rank,
        "evidence": [asdict(clue) for clue in failure.clues],
        "consequences": [asdict(clue) for clue in failure.consequences],
        "advice": advice, "confidence": round(failure.confidence, 2), "rerun": failure.retry,
        "history": seen,
    }  # fmt: skip


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"{document['job']}: {document['class']} (confidence {document['confidence']})"
    yield textwrap.fill(document["cause"], 116, initial_indent="  ", subsequent_indent="  ")
    for title in ("evidence", "consequences"):
        if document[title]:
            yield f"  {title}:"
        for clue in document[title][:4]:
            rule = f"  [{clue['rule']}]" if clue["rule"] else ""
            place = f"{clue['file']}:{clue['line']}" if clue["line"] else clue["file"]
            yield f"    {place}: {clue['text'].strip()[:160]}{rule}"
    for advice in document["advice"]:
        yield textwrap.fill(advice, 116, initial_indent="  next: ", subsequent_indent="        ")
    if document["history"]:
        yield f"  {document['history']}"
