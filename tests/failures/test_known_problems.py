"""Known problems: what no log of a program that did well shows, then each example in a log as programs print it."""

from typing import Any

import pytest

from runbook_lib.failures import diagnose
from runbook_lib.failures.evidence import FailedJob
from runbook_lib.failures.log_scanner import Scanner
from runbook_lib.failures.patterns import find_problems, read_table

PROBLEMS = read_table("known_problems.toml")["problem"]
STALE = "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided.\n"


@pytest.mark.parametrize(
    "log",
    [
        "",
        "\n \n",
        "STEP 1/4: FROM busybox AS main\nSTEP 2/4: RUN uv sync --locked --extra training\nResolved 4 packages in 3ms\n",
        "#7 [main 3/9] RUN pip install --no-cache-dir uv\n#7 4.1 Successfully installed uv-0.7.2\n#7 DONE 4.6s\n",
        "+ uv sync --locked\nUsing CPython 3.12.3\nCreating virtual environment at: .venv\nInstalled 3 packages\n",
        "All checks passed!\n312 files already formatted\nSuccess: no issues found in 120 source files\n",
        "[switch_mcore] Switching to dev commit: 0123456789ab\n[switch_mcore] Done.\n",
        "CUDA_DEVICE_MAX_CONNECTIONS=1\nMASTER_PORT=29500\nDATA_PATH=/mnt/artifacts/text\nworld size: 8\n",
        "torchrun --nproc-per-node 8 pretrain_gpt.py\n iteration        1/      50 | lm loss: 1.0E+01 |\n",
        "Storing signatures\nCOMMIT megatron-lm:local\nSuccessfully tagged localhost/megatron-lm:local\n",
    ],
)
def test_a_log_of_a_successful_build_has_no_problem(log: str) -> None:
    assert find_problems(log) == ()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem["id"])
@pytest.mark.parametrize("colour", ["{}", "\x1b[31m{}\x1b[0m\r"])
def test_an_example_is_found_where_a_program_prints_it(problem: dict[str, Any], colour: str) -> None:
    for example in problem["examples"]:
        shown = "\n".join(colour.format(line) for line in example.splitlines())
        (found,) = find_problems(f"+ something else\nSTEP 3/9: RUN true\n{shown}\nmore\n")
        assert (found.sign, found.fix) == (problem["sign"], problem["advice"])


def test_several_are_found_together_and_each_once() -> None:
    found = find_problems(f"bash: uv: command not found\n{STALE}{STALE}Found 3 errors.\n")
    assert [it.fix.split()[1] for it in found] == ["`uv", "the", "tools/autoformat.sh,"]


def test_only_the_end_of_a_long_log_is_searched() -> None:
    assert find_problems(STALE + "x" * 2_000_000) == ()
    assert len(find_problems("x\n" * 1_000_000 + STALE)) == 1


def test_a_diagnosis_names_a_known_problem_and_its_fix() -> None:
    for log in (STALE, "ValueError: no\n"):
        scanner = Scanner("job")
        scanner.feed(log.encode())
        failure = diagnose.conclude(FailedJob("cicd-container-build"), [scanner.summary()])
        for known in find_problems(log):
            assert (failure.details["pitfall"], failure.next) == (f"{known.sign} {known.cause}", known.fix)
    assert "pitfall" not in failure.details
