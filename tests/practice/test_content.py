"""What the practice checkout holds: branches, pins, recipes, test cases and golden values."""

import subprocess
from pathlib import Path

import pytest

from runbook_lib.pins.check import check_pins, outcome
from runbook_lib.pins.known_sites import MEGATRON_LM
from runbook_lib.practice import content, seed

TIPS = {commit.branch: commit.tree for commit in content.history()}


def test_commit_ids_are_the_same_everywhere(tmp_path: Path) -> None:
    """Whoever changes the template counts its VERSION up, and puts the new commits here."""
    seed.create(tmp_path / "remote.git", tmp_path / "checkout")
    command = ["git", "for-each-ref", "--format=%(refname:short) %(objectname)"]
    branches = subprocess.run(command, cwd=tmp_path / "remote.git", check=True, capture_output=True, text=True).stdout
    assert content.VERSION == 6
    assert dict(line.split() for line in branches.splitlines()) == {
        "core_r0.1.0": "545593f13c9140229e13880d74f9ef297a32a13e",
        "dev": "5a1e913cd2739d86e0c9e963642dc62cd4081fa9",
        "main": "0d8a3c490936f4c069f672885af564fdbc989faf",
    }


@pytest.mark.parametrize(
    ("branch", "answer"), [("main", "in sync"), ("dev", "out of sync"), ("core_r0.1.0", "in sync")]
)
def test_the_pins_of_each_branch(branch: str, answer: str) -> None:
    tree = TIPS[branch]
    verdicts = check_pins({path: tree.get(path) for path in MEGATRON_LM.pin_paths}, MEGATRON_LM)
    assert outcome(verdicts) == answer
    assert {verdict.path for verdict in verdicts if verdict.state == "out of sync"} == (
        {"docker/.ngc_version.dev"} if branch == "dev" else set()
    )
