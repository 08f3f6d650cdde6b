"""Earlier failures of an archive: the same class and cause, whatever the rank and the numbers."""

from pathlib import Path

import pytest

from runbook_lib.failures import history
from runbook_lib.failures.evidence import Failure


def record(
    archive: Path, name: str, cause: str, url: str, job: str = "job", platform: str = "dgx_h100",
    kind: str = "program error",
) -> None:  # fmt: skip
    folder = archive / "NVIDIA-Megatron-LM" / "main" / "dev-26.04-py3" / name
    folder.mkdir(parents=True)
    (folder / "failures.csv").write_text(f"job,class,cause,platform,url\n{job},{kind},{cause},{platform},{url}\n")


def sentence(cause: str, archive: Path) -> str:
    return history.describe(history.read(archive), Failure("job", "https://x/1", "program error", cause))


def test_equal_failures_are_counted_and_a_new_one_stands_out(tmp_path: Path) -> None:
    assert sentence("Rank 0 failed with KeyError: 7.", tmp_path) == ""
    record(tmp_path, "20260101-a", "Rank 3 failed with KeyError: 12.", "https://x/2")
    record(tmp_path, "20260102-b", "Rank 5 failed with KeyError: 99.", "https://x/3")
    for number in range(3):  # a run counts once
        record(tmp_path, f"20260102-c{number}", "Rank 5 failed with KeyError: 99.", "https://x/3", f"job{number}")
    record(tmp_path, "20260103-d", "Rank 5 failed with ValueError: 1.", "https://x/4")
    last = "2026-01-02 in dev-26.04-py3 (https://x/3)"
    assert sentence("Rank 0 failed with KeyError: 7.", tmp_path) == f"seen 2 times in this archive, last on {last}"
    assert sentence("Rank 0 failed with TypeError: 7.", tmp_path) == "not seen before in this archive"


@pytest.mark.parametrize(
    ("job", "url", "is_history"),
    [
        ("job", "https://x/runs/7/job/1", False),  # this very failure, read before
        ("job on dgx_gb200", "https://x/runs/7/job/5", False),  # the same name, on another platform
        ("other", "https://x/runs/7/job/2", False),  # at the same time, in the same run
        ("job", "https://x/runs/7/job/3", True),  # an earlier attempt
        ("other", "https://x/runs/6/job/4", True),
        ("job", "", True),  # a log without an address
    ],
)
def test_other_jobs_of_the_same_run_are_not_history(tmp_path: Path, job: str, url: str, is_history: bool) -> None:
    name, _, platform = job.partition(" on ")
    record(tmp_path, "20260101-a", "KeyError: 12.", url, name, platform or "dgx_h100")
    current = Failure("job", "https://x/runs/7/job/1", "program error", "KeyError: 12.")
    assert history.describe(history.read(tmp_path), current, "dgx_h100").startswith("seen 1 time") == is_history


def test_a_failure_of_the_infrastructure_counts_without_an_address(tmp_path: Path) -> None:
    for day in (1, 2):
        record(tmp_path, f"2026010{day}-a", "The runner was lost.", "", platform="", kind="rate limit")
    assert "infrastructure failed this job before: seen 2 times" in sentence("KeyError: 7.", tmp_path)
