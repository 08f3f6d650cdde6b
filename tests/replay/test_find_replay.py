"""``pins find`` on the real repositories: every reference is found, and what moves is what bumps moved.

The lists in ``references/`` say at which commit each was made, and name one reference a line.
"""

from pathlib import Path

import pytest
from clones import git

from runbook_lib.pins import pins_file
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.pin_search import find

pytestmark = pytest.mark.replay

_GITLAB = ".gitlab/stages/01.build.yml"
#: A row of a matrix whose tag stands nowhere else.
_NOT_FOUND = {(".github/workflows/cuda-ssh.yml", 15)}
LOCKSTEP = {
    "megatron_lm": [
        (_GITLAB, 56), (_GITLAB, 65), (_GITLAB, 70), ("docker/.ngc_version.dev", 1), ("docker/Dockerfile.ci.dev", 4),
    ],
    "megatron_bridge": [
        ("docker/Dockerfile.ci", 15), ("scripts/performance/README.md", 63), ("scripts/performance/README.md", 100),
    ],
    "ml_containers": [
        (".github/configurations/sglang.yml", 5), (".github/configurations/vllm-tensorizer.yml", 6),
        (".github/configurations/vllm-tensorizer.yml", 7), (".github/workflows/megatron.yml", 24),
        ("sglang/Dockerfile", 2), ("torch/Dockerfile", 2), ("torch/Dockerfile", 3), ("vllm-tensorizer/Dockerfile", 2),
        ("vllm-tensorizer/Dockerfile", 3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("repository", LOCKSTEP)
def test_references_are_found_and_what_bumps_moved_is_lockstep(
    repository: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    clone: Path = request.getfixturevalue(repository)
    name = repository.replace("_", "-")
    lines = (Path(__file__).parent / "references" / f"{name}.tsv").read_text().splitlines()
    commit = next(line.split()[-1] for line in lines if line.startswith("# commit "))
    git(tmp_path, "clone", "-q", "--bare", "--shared", str(clone), "clone.git")
    git(tmp_path / "clone.git", "update-ref", "--no-deref", "HEAD", commit)
    findings = find(Checkout.open(tmp_path / "clone.git"))
    found = {
        (place.path, place.line, place.image, place.tag)
        for place in (*(p.place for p in findings.pins), *findings.skipped)
    }
    for line in lines:
        if not line.startswith("#"):
            path, number, image, tag, *_ = line.split("\t")
            is_known = (path, int(number), image, tag) in found
            assert is_known or not tag or (path, int(number)) in _NOT_FOUND, line
    lockstep = sorted((pin.place.path, pin.place.line) for pin in findings.pins if pin.lockstep)
    assert lockstep == sorted(LOCKSTEP[repository])
    assert len(pins_file.parse(findings.text, "x/y").sites.pins) > len(lockstep) // 2
