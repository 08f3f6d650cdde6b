"""Tests of the action and the documented workflows: their format, scripts and permissions.

The steps run against the practice forge, which records their requests.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import token_rights
import yaml
from bumping import git
from github_server.server import match_route
from watched import Watched, watched

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
BLOCKS = re.findall(
    r"```yaml\n(# \.github/workflows/base-image-(\w+)\.yml\n.*?)```", (ROOT / "docs/ci.md").read_text(), re.S
)
WORKFLOWS: Mapping[str, Any] = {mode: yaml.safe_load(text) for text, mode in BLOCKS}
MODES = ("check", "watch")


def valid(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """Validate files with a schema that is part of check-jsonschema, without network."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_the_action_and_the_workflows_satisfy_githubs_schemas(tmp_path: Path) -> None:
    files = []
    for text, mode in BLOCKS:
        files.append(tmp_path / f"{mode}.yml")
        files[-1].write_text(text)
    assert [path.stem for path in files] == list(MODES)
    judged = valid("vendor.github-workflows", *files)
    assert judged.returncode == 0, judged.stdout
    judged = valid("vendor.github-actions", ROOT / "action.yml")
    assert judged.returncode == 0, judged.stdout
    (tmp_path / "wrong.yml").write_text((ROOT / "action.yml").read_text().replace("shell:", "shel:"))
    assert valid("vendor.github-actions", tmp_path / "wrong.yml").returncode == 1


@pytest.mark.parametrize("mode", MODES)
def test_workflows_reference_actions_by_commit_and_pass_existing_inputs(mode: str) -> None:
    for job in WORKFLOWS[mode]["jobs"].values():
        used = [step for step in job["steps"] if "uses" in step]
        assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in used)
        (own,) = [step["with"] for step in used if "base-image-runbook" in step["uses"]]
        assert own["mode"] == mode
        assert own.keys() <= ACTION["inputs"].keys()
    assert not [step for step in ACTION["runs"]["steps"] if "uses" in step]


def test_scripts_contain_no_expressions() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
    for text, _ in BLOCKS:
        assert not re.search(r"^\W*run:", text, re.M)


@pytest.mark.component("shellcheck")
def test_shellcheck_reports_nothing(tmp_path: Path) -> None:
    scripts = {f"action{number}": ("bash", step["run"]) for number, step in enumerate(ACTION["runs"]["steps"])}
    notify = re.search(r"```sh\n(#!/bin/sh\n.*?)```", (ROOT / "docs/ci.md").read_text(), re.S)
    assert notify
    scripts["notify"] = ("sh", notify[1])
    files = [ROOT / "environment/action"]
    for name, (shell, text) in scripts.items():
        files.append(tmp_path / f"{name}.sh")
        files[-1].write_text(text if text.startswith("#!") else f"#!/bin/{shell}\n{text}\n")
    program = shutil.which("shellcheck") or "shellcheck"
    done = subprocess.run([program, *map(str, files)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_check_installs_its_packages_by_hash() -> None:
    script = (ROOT / "environment/action").read_text()
    program = re.search(r"awk '([^']+)'", script)
    assert program
    command = ["awk", program[1], str(ROOT / "environment/requirements.txt")]
    locked = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    entries = re.split(r"\n(?=[a-z])", locked.strip())
    assert [entry.partition("==")[0] for entry in entries] == [
        "click",
        "google-re2",
        "packaging",
        "pyyaml",
    ]
    assert all("--hash=sha256:" in entry for entry in entries)


# -- running the modes ----------------------------------------------------------------------------------------------


class Recorded:
    """A practice repository on which modes run as in the action, and the permissions that they use."""

    def __init__(self, place: Watched, patch: pytest.MonkeyPatch) -> None:
        self.place, self.requested = place, set[tuple[str, ...]]()
        self._answer = place.world.served.answer
        patch.setattr(place.world.served, "answer", self._record)
        self._recording = False

    def _record(self, request: Any) -> Any:
        route, _ = match_route(request.method, request.path) or (None, {})
        if self._recording and route and (needs := token_rights.needs(route)):
            self.requested.add(needs)
        return self._answer(request)

    def run(self, mode: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run the steps of the action with these inputs, and defaults for the others."""
        values = {name: str(given.get("default", "")) for name, given in ACTION["inputs"].items()}
        values |= {"mode": mode, "path": str(self.place.world.home / "checkout"), **inputs}
        (step,) = ACTION["runs"]["steps"]
        env = {**os.environ, "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_ACTIONS": "true"}
        env["GITHUB_STEP_SUMMARY"] = str(self.place.world.home / "summary.md")
        for name, text in step["env"].items():
            if match := re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text):
                env[name] = values[match[1]]
        env["GITHUB_TOKEN"] = "" if mode == "check" else "practice-token"
        before = git(self.place.world.remote, "for-each-ref", "refs/heads")
        self._recording = True
        done = subprocess.run(["bash", "-c", step["run"]], env=env, cwd="/", capture_output=True, text=True)
        self._recording = False
        pushed = git(self.place.world.remote, "for-each-ref", "refs/heads") != before
        self.requested.add(("contents=write" if pushed else "contents=read",))
        return done

    @property
    def permissions(self) -> dict[str, str]:
        """The minimal permissions for the recorded requests, as in a workflow."""
        least = token_rights.least(self.requested)
        return {name.replace("_", "-"): access for name, _, access in (each.partition("=") for each in least)}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    with watched(tmp_path, listen=True) as place:
        yield Recorded(place, monkeypatch)


@pytest.mark.slow
def test_check_uses_exactly_its_documented_permissions(recorded: Recorded) -> None:
    assert recorded.run("check").returncode == 0
    home = recorded.place.world.home
    (home / "checkout/docker/.ngc_version.dev").write_text("nvcr.io/nvidia/pytorch:26.04-py3\n")
    done = recorded.run("check")
    assert done.returncode == 1
    assert "26.04-py3" in done.stdout
    assert recorded.permissions == WORKFLOWS["check"]["permissions"]


@pytest.mark.slow
def test_watch_uses_exactly_its_documented_permissions(recorded: Recorded) -> None:
    preview = recorded.run("watch", publish="false")
    assert (preview.returncode, "state" in preview.stderr) == (1, False), preview.stderr
    assert not recorded.place.pulls()
    done = [recorded.run("watch", drivers="610.10") for _ in range(2)]
    assert [each.returncode for each in done] == [0, 0], done[0].stderr
    (pull,) = recorded.place.pulls()
    assert "Drivers: " in done[0].stdout
    assert f"/pull/{pull.number}\n" in (recorded.place.world.home / "summary.md").read_text()
    assert recorded.permissions == WORKFLOWS["watch"]["permissions"]


@pytest.mark.parametrize("mode", ["", "Check", "watch; true"])
def test_another_mode_is_refused(recorded: Recorded, mode: str) -> None:
    done = recorded.run(mode)
    assert (done.returncode, "check or watch" in done.stderr) == (2, True)
