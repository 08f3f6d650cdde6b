"""Moves of launch scripts against the real history of Megatron-Bridge: what people moved is the ground truth.

Skipped unless MEGATRON_BRIDGE names a clone of it with its history; the clone may be bare.
"""

import os
import subprocess
from pathlib import Path

import pytest

from runbook_lib.pins.launch_scripts import MEGATRON_BRIDGE, Move, mark, unmark

pytestmark = pytest.mark.replay


@pytest.fixture
def megatron_bridge() -> Path:
    clone = os.environ.get("MEGATRON_BRIDGE")
    if not clone:
        pytest.skip("MEGATRON_BRIDGE names no clone of Megatron-Bridge")
    return Path(clone).resolve(strict=True)


def git(clone: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *arguments], check=True, capture_output=True, text=True).stdout


def moved(clone: Path) -> list[tuple[str, Move]]:
    """What people moved from one of the two folders to the other, on the same platform and under the same name."""
    found, commit = [], ""
    options = ("--format=%H", "--raw", "--abbrev=40", "--no-merges", "-M90%", "--diff-filter=R")
    for line in git(clone, "log", *options, "HEAD", "--", MEGATRON_BRIDGE.folder).splitlines():
        if not line.startswith(":"):
            commit = line or commit
            continue
        fields, old, new = line.split("\t")
        old_mode, new_mode = fields[1:].split()[:2]
        if old.replace("/active/", "/*/").replace("/flaky/", "/*/") == new.replace("/active/", "/*/").replace(
            "/flaky/", "/*/"
        ):
            assert old_mode == new_mode
            found.append((commit, Move(old, new)))
    return found


def test_every_move_of_people_is_planned_and_planned_back(megatron_bridge: Path) -> None:
    pairs = moved(megatron_bridge)
    assert len(pairs) >= 15
    for commit, theirs in pairs:
        folder = ("-r", "--name-only")
        before, after = (
            git(megatron_bridge, "ls-tree", *folder, ref, "--", MEGATRON_BRIDGE.folder).splitlines()
            for ref in (f"{commit}~1", commit)
        )
        (script,) = MEGATRON_BRIDGE.find([theirs.old])
        there, back = (mark, unmark) if script.gating else (unmark, mark)
        assert there(before, MEGATRON_BRIDGE, script.case, script.platform) == theirs
        assert there(after, MEGATRON_BRIDGE, script.case, script.platform) is None
        assert back(after, MEGATRON_BRIDGE, script.case, script.platform) == Move(theirs.new, theirs.old)


def test_every_script_of_main_can_be_put_away_or_comes_back(megatron_bridge: Path) -> None:
    known = git(megatron_bridge, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    scripts = MEGATRON_BRIDGE.find(known)
    assert len(scripts) > 100
    for script in scripts:
        move = (mark if script.gating else unmark)(known, MEGATRON_BRIDGE, script.case, script.platform)
        assert move is not None
        assert move.new not in known
