"""Check and whole bump on real clones of Megatron-Bridge and ml-containers, with a bare remote and the practice forge.

Skipped unless MEGATRON_BRIDGE or ML_CONTAINERS names a clone with its history; a clone may be bare.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import executing as execute
import pytest
from controlled_forge import ControlledForge

from runbook_lib.bump.sync_survey import survey
from runbook_lib.cli.__main__ import main
from runbook_lib.pins import plan as pins
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, ML_CONTAINERS
from runbook_lib.practice.ci import plan as ci
from runbook_lib.practice.registry import images
from runbook_lib.practice.registry import server as registry
from runbook_lib.practice.registry.images import RegistryContent
from runbook_lib.record.verify import verify

pytestmark = pytest.mark.replay
ROOT = Path(__file__).resolve().parents[2]
BRIDGE_MAIN = "067f987d"
CICD, DOCKERFILE, MEGATRON_YML = (
    ".github/workflows/cicd-main.yml",
    "docker/Dockerfile.ci",
    ".github/workflows/megatron.yml",
)
NEWER = "bc8c66e-nccl-cuda13.2.1-ubuntu24.04-nccl2.30.4-1-torch2.11.0-vision0.26.0-audio2.11.0-abi1"


def git(place: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(place), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def real(variable: str, name: str) -> Path:
    place = os.environ.get(variable)
    if not place:
        pytest.skip(f"{variable} names no clone of {name}")
    return Path(place).resolve(strict=True)


@pytest.fixture
def megatron_bridge() -> Path:
    return real("MEGATRON_BRIDGE", "Megatron-Bridge")


@pytest.fixture
def ml_containers() -> Path:
    return real("ML_CONTAINERS", "ml-containers")


@contextlib.contextmanager
def world(source: Path, start: str, name: str, home: Path, patch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """A bare remote that borrows the real one's objects, with ``main`` at ``start``, and a clone of its pin files."""
    bare, clone = home / "practice" / f"{name}.git", home / "clone"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True)
    objects = git(source, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    (bare / "objects/info/alternates").write_text(f"{objects}\n")
    git(bare, "update-ref", "refs/heads/main", git(source, "rev-parse", start))
    subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(bare), str(clone)], check=True)
    # A mirror may lack large pictures: the clone is a partial one, without them.
    git(clone, "config", "remote.origin.promisor", "true")
    git(clone, "sparse-checkout", "set", "--no-cone", "/.github/", "/docker/", "/megatron/", "/sglang/")
    git(clone, "checkout", "-q", "main")
    held = images.content()
    tags = {**held.tags, **dict.fromkeys((NEWER, "26.07-py3"), held.tags["26.06-py3"])}
    with (
        ControlledForge(home / "forge.sqlite", bare, repository=f"practice/{name}") as hub,
        contextlib.closing(registry.RegistryServer(stored=RegistryContent(held.manifests, held.blobs, tags))) as served,
    ):
        hub.set_ci_seconds(3600)  # it still runs when the bump ends, on a slow machine too
        patch.setenv("GITHUB_API_URL", hub.url)
        patch.setenv("GITHUB_REPOSITORY", f"practice/{name}")
        patch.setenv("GITHUB_TOKEN", "practice-token")
        patch.setenv("RUNBOOK_REGISTRY", served.url)
        patch.setenv("RUNBOOK_AUDIT", str(home / "audit"))
        yield bare, clone


def steps(result: execute.Ran) -> dict[str, str]:
    """The sentence of each step of a bump."""
    assert result.record is not None
    told = json.loads((result.record / "run.json").read_text())["checks"]
    return {it["name"]: it["detail"] for it in told}


def changed(bare: Path, branch: str) -> dict[str, list[str]]:
    """The new lines by file."""
    found: dict[str, list[str]] = {}
    for line in git(bare, "diff", "-U0", "main", branch).splitlines():
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
        elif line.startswith("+"):
            found.setdefault(path, []).append(line[1:].strip())
    return found


def test_check_names_the_dead_argument_and_the_lagging_pins(
    megatron_bridge: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["check", "--verbose", "--ref", BRIDGE_MAIN, str(megatron_bridge)])
    out = capsys.readouterr().out
    assert status == 0
    assert f"{CICD}:524 (build-arg FROM_IMAGE_NAME) names 25.09-py3, the dev pins 26.06-py3." in out
    assert f"{DOCKERFILE} declares no ARG FROM_IMAGE_NAME, so it does nothing (its image comes from ARG BASE" in out
    assert f"{DOCKERFILE}:15 (ARG BASE_IMAGE) names 26.06-py3. Nothing passes ARG BASE_IMAGE (CI passes" in out
    for place in ("install-test.yml:130", "release.yaml:102", "README.md:72", "README.md:87"):
        assert place in out
    status = main(["check", "--json", "--ref", BRIDGE_MAIN, str(megatron_bridge)])
    (told,) = json.loads(capsys.readouterr().out)["refs"]
    answers = {(it["path"].rpartition("/")[2], it["verdict"]) for it in told["pins"]}
    assert answers == {
        ("Dockerfile.ci", "in sync"), ("cicd-main.yml", "lagging"), ("install-test.yml", "lagging"),
        ("release.yaml", "lagging"), ("README.md", "lagging"),
    }  # fmt: skip


@pytest.mark.parametrize(("bump", "tag"), [("9d46472f0", "26.04-py3"), ("21627edcd", "26.06-py3")])
def test_the_plan_of_a_bump_that_people_made_holds_their_pin(megatron_bridge: Path, bump: str, tag: str) -> None:
    """People moved the Dockerfile's default; ours moves the argument that does nothing as well, and says so."""
    sites = MEGATRON_BRIDGE.sites
    before, after = (
        {path: shown(megatron_bridge, f"{ref}:{path}") for path in sites.paths} for ref in (f"{bump}~", bump)
    )
    plan = pins.plan(before, sites, sites.family.read(tag), "dev")
    (edit,) = [it for it in plan.edits if it.path == DOCKERFILE]
    line = next(line for line in edit.after.splitlines() if line.startswith("ARG BASE_IMAGE="))
    assert line in (after[DOCKERFILE] or "").splitlines()
    assert {it.path for it in plan.edits} == {DOCKERFILE, CICD}


def shown(clone: Path, name: str) -> str | None:
    done = subprocess.run(["git", "-C", str(clone), "show", name], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def test_a_bump_of_megatron_bridge(megatron_bridge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ci, "WORKFLOW", "CICD NeMo")
    parameters: dict[str, Any] = {"tag": "26.07-py3", "mode": "publish"}
    with world(megatron_bridge, BRIDGE_MAIN, "Megatron-Bridge", tmp_path, monkeypatch) as (bare, clone):
        parameters["repo"] = str(clone)
        result = execute.execute(ROOT / "runbooks/bump.ipynb", parameters)
        assert result.state == "waiting", result.summary
        told = steps(result)
        assert told["02-gitlab-pin"] == "Not applicable: NVIDIA-NeMo/Megatron-Bridge has no pin that GitLab reads."
        assert told["04-run-ci"].startswith("waiting for CI run")
        branch = "bump/main/dev-26.07-py3"
        assert changed(bare, branch) == {
            DOCKERFILE: ["ARG BASE_IMAGE=nvcr.io/nvidia/pytorch:26.07-py3"],
            CICD: ["FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.07-py3"],
        }
        tip = git(bare, "rev-parse", branch)
        again = execute.execute(ROOT / "runbooks/bump.ipynb", parameters)
        assert (again.ok, git(bare, "rev-parse", branch)) == (True, tip), again.summary
        assert verify(tmp_path / "audit")[0] == []


def test_a_bump_of_the_default_of_ml_containers(
    ml_containers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "REPOSITORY", "coreweave/ml-containers/torch-extras")
    with world(ml_containers, "71a115d", "ml-containers", tmp_path, monkeypatch) as (bare, clone):
        result = execute.execute(ROOT / "runbooks/bump.ipynb", {"tag": NEWER, "mode": "publish", "repo": str(clone)})
        assert result.ok, result.summary
        assert steps(result)["04-run-ci"].startswith("Not applicable: coreweave/ml-containers has no copy-pr-bot")
        (line,) = changed(bare, f"bump/main/dev-{NEWER}").pop(MEGATRON_YML)
        assert line.endswith(f"'ghcr.io/coreweave/ml-containers/torch-extras:{NEWER}'}}}}")


def test_every_commit_of_the_default_is_checked(ml_containers: Path) -> None:
    commits = git(ml_containers, "log", "--format=%H", "71a115d", "--", MEGATRON_YML).split()
    found = survey(ml_containers, commits, repository=ML_CONTAINERS)
    assert len(found.snapshots) >= 5
    assert all(snapshot.verdicts for snapshot in found.snapshots)
