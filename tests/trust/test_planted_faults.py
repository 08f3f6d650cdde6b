"""The tests that SECURITY.md names can fail: for each guarantee a fault is planted, which its test must notice.

``faults.toml`` lists them: a line of a file, what takes its place, and the test.  Each is tried in a copy of the
working tree: five that the commit chooses, or all with ``PLANT_ALL=1``.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS: list[dict[str, str]] = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())["fault"]
TRIED, MOST = 5, 40
#: pytest's exit status when tests have failed; others mean that it could not run them.
_TESTS_FAILED = 1


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def chosen() -> list[dict[str, str]]:
    """The faults to try."""
    if os.environ.get("PLANT_ALL"):
        return FAULTS
    return random.Random(git("rev-parse", "HEAD")).sample(FAULTS, TRIED)


def planted(text: str, fault: dict[str, str]) -> str:
    """The text of the file with the fault."""
    lines = text.splitlines()
    found = [number for number, line in enumerate(lines) if line.strip() == fault["before"]]
    assert len(found) == 1, (
        f"{fault['file']} has the line {fault['before']!r} {len(found)} times instead of once: the code has changed, "
        "so plant another fault for this guarantee in tests/trust/faults.toml, and try it with PLANT_ALL=1."
    )
    indent = re.match(" *", lines[found[0]])[0]  # type: ignore[index]
    lines[found[0]] = indent + fault["after"]
    return "\n".join([*lines, ""])


def test_each_guarantee_has_a_fault_that_can_be_planted() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    rows = re.findall(r"(?m)^\| ([^|`]+) \| [^|]+ \| `([^`]+\.py)` \|$", page)
    assert len(rows) > 20
    assert len(FAULTS) <= MOST
    for guarantee, file in rows:
        tests = {fault["test"].partition("::")[0] for fault in FAULTS if fault["guarantee"] == guarantee}
        assert tests == {f"tests/{file}"}, guarantee
    assert {fault["guarantee"] for fault in FAULTS} == {guarantee for guarantee, _ in rows}
    for fault in FAULTS:
        assert planted((ROOT / fault["file"]).read_text(), fault)


@pytest.mark.parametrize("fault", chosen(), ids=lambda it: it["guarantee"])
def test_a_planted_fault_is_noticed(fault: dict[str, str], tmp_path: Path) -> None:
    for name in git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    if (components := ROOT / "environment/.components").exists():
        (tmp_path / "environment/.components").symlink_to(components)
    file = tmp_path / fault["file"]
    file.write_text(planted(file.read_text(), fault))
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "-p", "no:cacheprovider", fault["test"]]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(words, cwd=tmp_path, env=env | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == _TESTS_FAILED, f"{fault['test']} did not notice it:\n{done.stdout[-3000:]}{done.stderr}"
