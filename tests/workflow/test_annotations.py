"""What `runbook check --github` prints for GitHub Actions, which reads lines such as ``::error file=…,line=…::…``."""

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from runbook_lib.cli.__main__ import main

PINS = """\
version: 1
image: nvcr.io/nvidia/pytorch
pins:
  - {path: Dockerfile, find: {arg: BASE}}
  - {path: "a,b:c%.txt", find: {file: whole}}
  - {path: docs.md, find: {regex: '(?P<image>nvcr\\.io/nvidia/pytorch:[\\w.-]+)'}, kind: informational}
"""
COMMAND = re.compile(r"::(?P<kind>\w+) file=(?P<file>[^,]+),line=(?P<line>\d+),title=[^,:]+::(?P<text>.+)")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    folder = tmp_path / "clone"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".base-image-pins.yaml").write_text(PINS)
    write(folder, "26.04", "26.04", "26.04")
    return folder


def write(folder: Path, first: str, second: str, third: str) -> None:
    (folder / "Dockerfile").write_text(f"# x\nARG BASE=nvcr.io/nvidia/pytorch:{first}-py3\nFROM $BASE\n")
    (folder / "a,b:c%.txt").write_text(f"nvcr.io/nvidia/pytorch:{second}-py3\n")
    (folder / "docs.md").write_text(f"\n\nnvcr.io/nvidia/pytorch:{third}-py3\n")


def annotated(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, int]]:
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    matches = [COMMAND.fullmatch(line) for line in lines]
    assert all(matches)
    return [(match["kind"], unquote(match["file"]), int(match["line"])) for match in matches if match]


@pytest.mark.parametrize(
    ("tags", "options", "status", "expected"),
    [
        (("26.04", "26.04", "26.04"), [], 0, []),
        (("26.02", "26.04", "26.04"), [], 1, [("error", "Dockerfile", 2)]),
        (("26.04", "26.02", "26.04"), [], 1, [("error", "a,b:c%.txt", 1)]),
        (("26.04", "26.04", "26.02"), [], 0, [("warning", "docs.md", 3)]),
        (("26.04", "26.04", "26.02"), ["--strict"], 1, [("error", "docs.md", 3)]),
    ],
)
def test_the_lines_out_of_sync_are_annotated(
    clone: Path,
    capsys: pytest.CaptureFixture[str],
    tags: tuple[str, str, str],
    options: list[str],
    status: int,
    expected: list[tuple[str, str, int]],
) -> None:
    write(clone, *tags)
    assert main(["check", str(clone), "--github", *options]) == status
    assert annotated(capsys) == expected
    summary = (clone.parent / "summary.md").read_text()
    assert summary.count("\n| `") == 3
    assert main(["check", str(clone)]) == main(["check", str(clone), *options]) or options
    assert not annotated(capsys)


def test_a_pin_that_is_missing_is_an_error_of_its_file(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clone / "Dockerfile").unlink()
    assert main(["check", str(clone), "--github"]) == 2
    assert annotated(capsys) == [("error", "Dockerfile", 1)]
