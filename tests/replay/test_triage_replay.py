"""The labelled logs of pytorch/test-infra: ``PYTORCH_TEST_INFRA`` names a clone; nothing of it is stored here."""

import os
import re
from pathlib import Path

import pytest

from runbook_lib.failures import read_logs
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.log_lines import clean
from runbook_lib.failures.patterns import LINES
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay
FIXTURES = "aws/lambda/log-classifier/fixtures/classify"
LABELLED, KNOWN = 0.92, 0.85


def diagnosed(lines: list[str], tmp_path: Path) -> Failure:
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines))
    return read_logs.diagnose_folder(path)


def words(text: str) -> str:
    return " ".join(text.split()).strip("_ ")[:80]


def test_what_the_launcher_of_megatron_lm_runs_again_has_a_class(megatron_lm: Path) -> None:
    launcher = "tests/test_utils/python_scripts/launch_nemo_run_workload.py"
    text = Checkout.open(megatron_lm).read([launcher], "HEAD")[launcher] or ""
    listed = re.findall(r'"([^"\n]+)"\s+in concat_allranks_logs', text)
    assert len(listed) > 20
    for words in listed:
        assert {it.kind for it in LINES if it.regex.search(words)} - {"program error", "unknown"}, words


def test_the_labelled_line_is_in_the_cause(tmp_path: Path) -> None:
    labelled = known = stable = 0
    root = os.environ.get("PYTORCH_TEST_INFRA")
    if not root:
        pytest.skip("PYTORCH_TEST_INFRA names no clone")
    paths = sorted((Path(root) / FIXTURES).glob("*.txt"))
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
