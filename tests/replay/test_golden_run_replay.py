"""Golden values of any CI run on a real clone of Megatron-LM, without a bump, with the practice forge."""

import json
import subprocess
from pathlib import Path

import executing as execute
import pytest
from bumping import git
from controlled_forge import ControlledForge

from runbook_lib.clients.github.client import GitHub
from runbook_lib.practice.ci import plan
from runbook_lib.record.verify import verify

pytestmark = pytest.mark.replay
NOTEBOOK = Path(__file__).resolve().parents[2] / "runbooks/05-golden-values.ipynb"
TEST = "moe/gpt3_mcore_te_tp2_pp1_te_8experts2parallel_overlap_grad_reduce_param_gather_groupedGEMM"


def test_values_that_a_branch_moved_are_committed_on_it(
    megatron_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, clone, now = tmp_path / "practice/Megatron-LM.git", tmp_path / "clone", [1_800_000_000.0]
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(remote)], check=True)
    objects = git(megatron_lm, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    (remote / "objects/info/alternates").write_text(f"{objects}\n")
    git(remote, "update-ref", "refs/heads/main", git(megatron_lm, "rev-parse", "d98e8a64dd"))
    subprocess.run(["git", "clone", "-q", "--shared", str(remote), str(clone)], check=True)
    git(clone, "switch", "-qc", "feature/faster")
    (clone / "docker/.ngc_version.dev").write_text("nvcr.io/nvidia/pytorch:26.07-py3\n")  # what moves values here
    git(clone, "commit", "-qam", "Change the code")
    git(clone, "push", "-q", "origin", "feature/faster")
    monkeypatch.setattr(plan, "FATES", {TEST: "drift"})
    monkeypatch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")
    monkeypatch.setenv("GITHUB_TOKEN", "practice-token")
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    with ControlledForge(tmp_path / "forge.sqlite", remote, clock=lambda: now[0], ci_seconds=100) as forge:
        monkeypatch.setenv("GITHUB_API_URL", forge.url)
        with GitHub("practice/Megatron-LM") as github:
            pull = github.open_pull("Faster", "practice:feature/faster", "main", "Faster.")
            github.add_label(pull.number, "Run functional tests")
            github.comment(pull.number, f"/ok to test {pull.head_sha}")
        now[0] += 1000
        parameters = {"repo": str(clone), "run_id": f"#{pull.number}"}
        preview = execute.execute(NOTEBOOK, parameters)
        assert preview.ok, preview.summary
        assert "would commit" in preview.summary
        assert git(clone, "rev-parse", "HEAD") == pull.head_sha
        applied = execute.execute(NOTEBOOK, parameters | {"mode": "local"})
        assert applied.ok, applied.summary
        again = execute.execute(NOTEBOOK, parameters | {"mode": "local"})
        assert again.ok, again.summary
        assert "Already done" in again.summary
    changed = git(clone, "diff", "--name-only", pull.head_sha, "HEAD").splitlines()
    assert changed
    assert all(f"/{TEST}/golden_values_dev_" in path for path in changed)
    assert git(clone, "log", "-1", "--format=%s %P") == f"test: refresh golden values {pull.head_sha}"
    assert git(remote, "rev-parse", "feature/faster") == pull.head_sha
    assert verify(tmp_path / "audit")[0] == []
    assert applied.record is not None
    effects = json.loads((applied.record / "run.json").read_text())["effects"]
    assert [effect["effect"] for effect in effects] == ["commit"]
