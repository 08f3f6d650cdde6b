"""Earlier failures of an archive: the same class and cause, whatever the rank and the numbers."""

from pathlib import Path

from runbook_lib.triage import history
from runbook_lib.triage.failure import Failure


def failure(cause: str) -> Failure:
    return Failure("job", "https://x/1", "program error", cause)


def record(archive: Path, name: str, cause: str, url: str) -> None:
    folder = archive / "NVIDIA-Megatron-LM" / "main" / "dev-26.04-py3" / name
    folder.mkdir(parents=True)
    (folder / "failures.csv").write_text(f"job,class,cause,url\njob,program error,{cause},{url}\n")


def sentence(cause: str, archive: Path) -> str | None:
    return history.read(archive).add_to(failure(cause)).details.get("history")


def test_equal_failures_are_counted_and_a_new_one_stands_out(tmp_path: Path) -> None:
    assert sentence("Rank 0 failed with KeyError: 7.", tmp_path) is None
    record(tmp_path, "20260101-a", "Rank 3 failed with KeyError: 12.", "https://x/2")
    record(tmp_path, "20260102-b", "Rank 5 failed with KeyError: 99.", "https://x/3")
    record(tmp_path, "20260102-c", "Rank 5 failed with KeyError: 99.", "https://x/3")
    record(tmp_path, "20260103-d", "Rank 5 failed with ValueError: 1.", "https://x/4")
    last = "2026-01-02 in dev-26.04-py3 (https://x/3)"
    assert sentence("Rank 0 failed with KeyError: 7.", tmp_path) == f"seen 2 times in this archive, last on {last}"
    assert sentence("Rank 0 failed with TypeError: 7.", tmp_path) == "not seen before in this archive"
