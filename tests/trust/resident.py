"""What the library does with something large, in a process of its own.

Prints how many bytes of resident memory it took at most beyond what was there after the imports, with what a parser
took, and what was reported.
"""

import re
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from stores import remote

from runbook_lib.errors import RunbookError
from runbook_lib.failures import read_logs
from runbook_lib.failures.evidence import FailedJob, Failure
from runbook_lib.failures.read_logs import JobLogs
from runbook_lib.golden import collect
from runbook_lib.golden.collect import FunctionalTestJob, GoldenSource
from runbook_lib.images.reference import ImageRef
from runbook_lib.text.recipes.file_names import FOLDER
from runbook_lib.world.github.client import GitHub
from runbook_lib.world.github.models import Artifact
from runbook_lib.world.gitlab.client import GitLab
from runbook_lib.world.registry import OciRegistry

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
BUDGET = 4.0  # seconds of the processor


def collected(
    url: str, size: int, jobs: int = 1, transport: httpx.BaseTransport | None = None
) -> collect.GoldenCollection:
    ran = tuple(
        FunctionalTestJob(number, f"gpt/a{number} - latest", "gpt", f"a{number}", "failed", NOON, NOON)
        for number in range(1, jobs + 1)
    )
    uploads = [
        Artifact(it.id, f"logs-{it.test_case}-4711-{it.id:08}-0000-4000-8000-000000000000", size, False, NOON)
        for it in ran
    ]
    source = GoldenSource(
        "CI run 4711", ran, collect.match_uploads(ran, uploads, 4711), lambda _: remote(f"{url}/1", transport)
    )
    golden_files = {f"{FOLDER}/{it.model}/{it.test_case}/golden_values_dev_dgx_h100.json" for it in ran}
    return collect.collect(source, golden_files)


def golden(url: str, size: int, jobs: int) -> str:
    found = collected(url, size, jobs)
    return f"{len(found.files)} golden files; {' '.join(it.sentence for it in found.problems)}"


def cause(url: str, size: int, jobs: int = 1, transport: httpx.BaseTransport | None = None) -> str:
    asked = [JobLogs(FailedJob(f"gpt/a{it} - latest"), remote(f"{url}/1", transport), size) for it in range(jobs)]
    return read_logs.diagnose_all(asked)[0].cause


_whole = read_logs._diagnose_folder


def _soon(asked: Any) -> Failure:
    """In the parser: read the logs in less time than a person would wait."""
    read_logs.SECONDS = BUDGET
    return _whole(asked)


def why(path: str, *_: int) -> str:
    read_logs._diagnose_folder = _soon
    return repr(read_logs.diagnose_folder(Path(path)))


def folder(path: str, *_: int) -> str:
    return read_logs.diagnose_folder(Path(path)).cause


def github(url: str, *_: int) -> str:
    return str(len(GitHub("o/r", {"GITHUB_TOKEN": "x", "GITHUB_API_URL": url}).comments(1)))


def gitlab(url: str, *_: int) -> str:
    return str(GitLab({"GITLAB_URL": url, "GITLAB_TOKEN": "x", "GITLAB_PROJECT": "a/b"}).jobs(1))


def gitlab_project(url: str, *_: int) -> str:
    return str(GitLab({"GITLAB_URL": url, "GITLAB_TOKEN": "x", "GITLAB_PROJECT": "a/b"}).pipeline(1))


def registry(url: str, *_: int) -> str:
    ref = ImageRef.parse("nvcr.io/nvidia/pytorch:26.04-py3")
    return str(len(OciRegistry(ref, {"RUNBOOK_REGISTRY": url}).tags()))


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+([0-9]+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def main(what: str, address: str, size: int, jobs: int) -> None:
    """Do it, and print that."""
    before = _memory("VmRSS")
    try:
        reported = globals()[what](address, size, jobs)
    except RunbookError as error:
        reported = f"{type(error).__name__}: {error}"
    print(_memory("VmHWM") - before + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
    print(reported)
