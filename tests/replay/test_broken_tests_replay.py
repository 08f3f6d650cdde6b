"""Broken tests on a real clone of Megatron-LM, with the practice forge: judged by the base branch, and re-enabled."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import executing as execute
import pytest
from bumping import git, written
from controlled_forge import ControlledForge
from executing import Ran

from runbook_lib.clients.github.client import GitHub
from runbook_lib.practice.ci import plan
from runbook_lib.practice.registry.server import RegistryServer
from runbook_lib.record.verify import verify

pytestmark = pytest.mark.replay
RUNBOOKS = Path(__file__).resolve().parents[2] / "runbooks"
MAIN, TAG = "64bee49c96^", "26.06-py3"
ON_MAIN_TOO = "moe/gpt3_mcore_te_tp2_pp1_te_8experts2parallel_overlap_grad_reduce_param_gather_groupedGEMM"
NEW = "gpt/gpt3_mcore_te_tp1_pp4_vp1"


@pytest.fixture
def clock() -> list[float]:
    return [1_800_000_000.0]


@pytest.fixture
def clone(megatron_lm: Path, tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    remote, clone = tmp_path / "practice/Megatron-LM.git", tmp_path / "clone"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(remote)], check=True)
    objects = git(megatron_lm, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    (remote / "objects/info/alternates").write_text(f"{objects}\n")
    git(remote, "update-ref", "refs/heads/main", git(megatron_lm, "rev-parse", MAIN))
    subprocess.run(["git", "clone", "-q", "--shared", str(remote), str(clone)], check=True)
    monkeypatch.setattr(plan, "FATES", {ON_MAIN_TOO: "memory", NEW: "memory"})
    monkeypatch.setattr(plan, "FAIL_ON_MAIN_TOO", frozenset({ON_MAIN_TOO}))
    monkeypatch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")
    monkeypatch.setenv("GITHUB_TOKEN", "practice-token")
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    forge = ControlledForge(tmp_path / "forge.sqlite", remote, clock=lambda: clock[0], ci_seconds=100)
    with forge, closing(RegistryServer()) as images:
        monkeypatch.setenv("GITHUB_API_URL", forge.url)
        monkeypatch.setenv("RUNBOOK_REGISTRY", images.url)
        yield clone


def predicate(result: Ran) -> dict[str, Any]:
    assert result.record is not None
    return json.loads((result.record / "run.json").read_text())  # type: ignore[no-any-return]


def test_a_test_that_fails_on_main_too_is_not_blamed_on_the_image(clone: Path, clock: list[float]) -> None:
    parameters = {"tag": TAG, "repo": str(clone), "mode": "publish"}
    assert execute.execute(RUNBOOKS / "bump.ipynb", parameters).ok
    clock[0] += 1000
    result = execute.execute(RUNBOOKS / "bump.ipynb", parameters)
    assert result.ok, result.summary
    proposed = {entry["subject"]: entry["why"] for entry in result.decisions if entry["question"] == "broken"}
    (new,) = [why for name, why in proposed.items() if name.startswith(NEW)]
    assert "new with this image" in new
    (known,) = [why for name, why in proposed.items() if name.startswith(ON_MAIN_TOO)]
    assert "did not break it" in known
    assert "already failing on main" in known


def test_a_quarantined_test_is_re_enabled_in_a_pull_request_of_its_own(clone: Path, tmp_path: Path) -> None:
    survey = execute.execute(RUNBOOKS / "06-broken-tests.ipynb", {"repo": str(clone)})
    assert survey.ok, survey.summary
    asked = predicate(survey)["decisions"]
    assert len(asked) >= 20
    (untracked, *_) = [entry["subject"] for entry in asked if entry["question"] == "broken"]
    told = written(tmp_path / "decisions.yaml", broken=f"{untracked}: nobody tracks it")
    parameters = {"repo": str(clone), "decisions": told, "mode": "publish"}
    result = execute.execute(RUNBOOKS / "06-broken-tests.ipynb", parameters)
    assert result.ok, result.summary
    again = execute.execute(RUNBOOKS / "06-broken-tests.ipynb", parameters)
    assert again.ok, again.summary
    with GitHub("practice/Megatron-LM") as github:
        (pull,) = github.pulls()
    kinds = [effect["effect"] for effect in predicate(result)["effects"]]
    assert {"issue", "commit", "push", "pull request"} <= set(kinds)
    assert predicate(again)["effects"] == []
    (path,) = git(clone, "diff", "--name-only", MAIN, pull.head_sha).splitlines()
    assert path.startswith("tests/test_utils/recipes/")
    assert verify(tmp_path / "audit")[0] == []
