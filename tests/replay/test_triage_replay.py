"""The labelled logs of pytorch/test-infra, and the fault injections of NVIDIA/nvidia-resiliency-ext.

``PYTORCH_TEST_INFRA`` and ``NVRX`` name clones of them; nothing of them is stored here.
"""

import os
import re
from pathlib import Path

import pytest

from runbook_lib.triage import read_logs
from runbook_lib.triage.failure import Failure
from runbook_lib.triage.log_lines import clean

FIXTURES = "aws/lambda/log-classifier/fixtures/classify"
TRACES = "tests/attribution/unit/fr_traces"
LABELLED, KNOWN = 0.92, 0.85


def folder(variable: str, path: str) -> Path:
    root = os.environ.get(variable)
    if not root:
        pytest.skip(f"{variable} names no clone")
    return Path(root) / path


def diagnosed(lines: list[str], tmp_path: Path) -> Failure:
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines))
    return read_logs.diagnose_folder(path)


def words(text: str) -> str:
    return " ".join(text.split()).strip("_ ")[:80]


@pytest.mark.replay
def test_the_labelled_line_is_in_the_cause(tmp_path: Path) -> None:
    labelled = known = stable = 0
    paths = sorted(folder("PYTORCH_TEST_INFRA", FIXTURES).glob("*.txt"))
    for path in paths:
        lines = [line for line in path.read_text("utf-8", "replace").split("\n") if not line.startswith("#=SOURCE=#")]
        number = next(number for number, line in enumerate(lines) if "#=MATCH=#" in line)
        spans = re.findall("‹(.*?)›", lines[number])
        lines = [re.sub("#=MATCH=# |‹|›", "", line) for line in lines]
        label = re.sub(r"^\S+Z ", "", clean(lines[number].encode())).replace("##[error]", "")
        failure = diagnosed(lines, tmp_path)
        cause = " ".join(failure.cause.split())
        hit = words(label) in cause or all(words(clean(span.encode())) in cause for span in spans)
        labelled += hit
        known += failure.kind != "unknown"
        after = diagnosed([*lines, *["all is well"] * 2000], tmp_path)
        before = diagnosed([*["all is well"] * 2000, *lines], tmp_path)
        stable += after.cause == failure.cause == before.cause
    assert labelled >= LABELLED * len(paths), labelled
    assert known >= KNOWN * len(paths), known
    assert stable == len(paths)


@pytest.mark.replay
def test_the_flight_recorder_names_a_rank_of_the_injected_fault() -> None:
    for case in sorted(folder("NVRX", TRACES).iterdir()):
        faults = re.findall(r"^Rank (\d+)", (case / "fault_injection.log").read_text(), re.MULTILINE)
        failure = read_logs.diagnose_folder(case)
        assert (failure.kind, str(failure.rank) in faults) == ("hang", True), case.name
