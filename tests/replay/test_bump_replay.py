"""The whole bump on a real clone of Megatron-LM, with a bare remote here and the practice forge and registry."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import executing as execute
import pytest
from clones import git

from runbook_lib.record.store import verify

pytestmark = pytest.mark.replay
ROOT = Path(__file__).resolve().parents[2]
GITLAB = ".gitlab/stages/01.build.yml"


@pytest.fixture
def remote(megatron_lm: Path, tmp_path: Path) -> Iterator[Path]:
    """A bare repository that borrows the real one's objects, and has no branch yet."""
    bare = tmp_path / "practice" / "Megatron-LM.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True)
    objects = git(megatron_lm, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    (bare / "objects/info/alternates").write_text(f"{objects}\n")
    with execute.served(bare, tmp_path):
        yield bare


@pytest.mark.parametrize(
    ("start", "tag", "files"),
    [
        # #4611 forgot GitLab's pin, so its base is out of sync.
        ("5fe3f06658", "26.04-py3", [GITLAB]),
        ("64bee49c96^", "26.06-py3", [GITLAB, "docker/.ngc_version.dev", "docker/Dockerfile.ci.dev"]),
    ],
)
def test_a_bump_of_a_real_clone_touches_exactly_the_pin_files(
    remote: Path, megatron_lm: Path, tmp_path: Path, start: str, tag: str, files: list[str]
) -> None:
    base = git(megatron_lm, "rev-parse", start)
    git(remote, "update-ref", "refs/heads/main", base)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(remote), str(clone)], check=True)
    parameters = {"tag": tag, "repo": str(clone), "mode": "publish"}

    preview = execute.execute(ROOT / "runbooks/bump.ipynb", parameters | {"mode": "preview"})
    assert preview.state == "previewed", preview.summary
    assert git(clone, "rev-parse", "HEAD") == base

    result = execute.execute(ROOT / "runbooks/bump.ipynb", parameters)

    assert result.state == "waiting", result.summary
    branch = f"bump/main/dev-{tag}"
    assert git(remote, "log", "--format=%P", "-1", branch) == base
    assert sorted(git(remote, "diff", "--name-only", base, branch).splitlines()) == files
    changed = [
        line for line in git(remote, "diff", "-U0", base, branch).splitlines() if line.startswith(("+n", "+ ", "+A"))
    ]
    assert changed
    assert all(tag in line for line in changed)
    assert git(clone, "status", "--porcelain") == ""
    tip = git(remote, "rev-parse", branch)

    again = execute.execute(ROOT / "runbooks/bump.ipynb", parameters)
    assert again.ok, again.summary
    assert git(remote, "rev-parse", branch) == tip
    assert verify(Path(os.environ["RUNBOOK_AUDIT"]))[0] == []
