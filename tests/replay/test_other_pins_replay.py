"""The pins of Megatron-Bridge and ml-containers, checked and planned in real clones."""

import json
from pathlib import Path

import pytest

from runbook_lib.bump.sync_survey import survey
from runbook_lib.cli.__main__ import main
from runbook_lib.pins import plan as pins
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, ML_CONTAINERS
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay
CICD, DOCKERFILE = ".github/workflows/cicd-main.yml", "docker/Dockerfile.ci"


def test_check_names_the_dead_argument_and_the_lagging_pins(
    megatron_bridge: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--json", "--ref", "067f987d", str(megatron_bridge)]) == 0
    (told,) = json.loads(capsys.readouterr().out)["refs"]
    assert {(it["path"], it["line"], it["verdict"]) for it in told["pins"]} == {
        (DOCKERFILE, 15, "in sync"), (CICD, 524, "lagging"), (".github/workflows/install-test.yml", 130, "lagging"),
        (".github/workflows/release.yaml", 102, "lagging"), ("docker/README.md", 72, "lagging"),
        ("docker/README.md", 87, "lagging"),
    }  # fmt: skip
    (dead,) = [it["detail"] for it in told["pins"] if it["path"] == CICD]
    assert f"{DOCKERFILE} declares no ARG FROM_IMAGE_NAME" in dead


@pytest.mark.parametrize(("bump", "tag"), [("9d46472f0", "26.04-py3"), ("21627edcd", "26.06-py3")])
def test_the_plan_of_a_bump_that_people_made_holds_their_pin(megatron_bridge: Path, bump: str, tag: str) -> None:
    """People moved the Dockerfile's default; ours moves the argument that does nothing as well, and says so."""
    sites, checkout = MEGATRON_BRIDGE.sites, Checkout.open(megatron_bridge)
    before, after = (checkout.read(sites.paths, ref) for ref in (f"{bump}~", bump))
    edits = {it.path: it for it in pins.plan(before, sites, sites.family.read(tag), "dev", digest_of_target=str).edits}
    assert edits.keys() == {DOCKERFILE, CICD}
    line = next(line for line in edits[DOCKERFILE].after.splitlines() if line.startswith("ARG BASE_IMAGE="))
    assert line in (after[DOCKERFILE] or "").splitlines()


def test_every_commit_of_the_default_is_checked(ml_containers: Path) -> None:
    log = ["log", "--format=%H", "71a115d", "--", ".github/workflows/megatron.yml"]
    checkout = Checkout.open(ml_containers)
    found = survey(checkout, checkout.git(*log).split(), repository=ML_CONTAINERS)
    assert len(found.snapshots) >= 5
    assert all(snapshot.verdicts for snapshot in found.snapshots)
