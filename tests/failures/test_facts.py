"""Facts for a failure's report: the verdict on a driver."""

import pytest

from runbook_lib.failures.facts import driver_verdict

TOO_OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)."
SMI = "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ""),
        (SMI, ""),
        (TOO_OLD, "supports CUDA 12.2 at most"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9", "CUDA 12.9 needs driver 575"),
        (f"NVIDIA Release 25.04 (build 1)\n{SMI}\n{TOO_OLD}", "Driver 535.104.05 CUDA 12.9"),
        ("NVIDIA Release 26.04 (build 1)", "CUDA 13.2 driver 595"),
        (f"docker run nvcr.io/nvidia/pytorch:25.04-py3\n{TOO_OLD}", "CUDA 12.9 needs"),
    ],
)
def test_the_driver_is_judged_for_the_image_that_the_log_names(text: str, parts: str) -> None:
    verdict = driver_verdict(text)
    assert [part for part in parts.split() if part not in verdict] == []
    assert bool(verdict) == bool(parts)
