"""``runbook pins validate``: valid, invalid and unreadable files."""

from pathlib import Path

import pytest

from runbook_lib.cli.__main__ import main

VALID = "version: 1\nimage: nvcr.io/nvidia/pytorch\npins:\n  - {path: a, find: {arg: X}}\n"


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        (VALID, 0, "nvcr.io/nvidia/pytorch: 1 declared"),
        (VALID.replace("arg: X", "arg: a-b"), 1, "arg is 'a-b'"),
        ("", 1, "the file is missing version and image and pins"),
    ],
)
def test_a_pins_file_is_valid_or_its_first_mistake_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, status: int, says: str
) -> None:
    file = tmp_path / "pins.yaml"
    file.write_text(text)
    assert main(["pins", "validate", str(file)]) == status
    printed = capsys.readouterr()
    assert says in printed.out + printed.err


def test_a_file_that_is_missing_cannot_be_judged(tmp_path: Path) -> None:
    assert main(["pins", "validate", str(tmp_path / "none.yaml")]) == 2
