"""``runbook image diff``, and what preflight shows of a new image, against the practice registry."""

import pytest

from runbook_lib.bump import pins_step
from runbook_lib.cli.__main__ import main
from runbook_lib.errors import RunbookError
from runbook_lib.notebook.place import RunTarget
from runbook_lib.pins.bump import Bump
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.image_lookup import reference


def test_a_tag_alone_is_one_of_the_image_that_a_bump_moves() -> None:
    assert str(reference("26.04-py3")) == "nvcr.io/nvidia/pytorch:26.04-py3"
    assert str(reference("ghcr.io/o/i:v1")) == "ghcr.io/o/i:v1"
    alibaba = "egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/egslingjun/training-nv-pytorch"
    assert str(reference("25.05-serverless")) == f"{alibaba}:25.05-serverless"


@pytest.mark.parametrize(
    ("tag", "says"),
    [
        ("26.06", r"'26\.06' may be a tag of nvcr\.io/nvidia/nemo, nvcr\.io/nvidian/nemo, egslingjun.*"),
        ("26.08.rc5", r"may be a tag of nvcr\.io/nvidia/nemo, .* such as nvcr\.io/nvidia/nemo:26\.08\.rc5"),
        ("26.4", r"a month has two digits\. Did you mean '26\.04-py3'\? Give the complete tag"),
        ("latest-and-greatest", "no known image"),
        ("v" * 129, "has 129 characters, but a tag may have at most 128"),
        ("17ad6db-nccl-cuda12.9.1-nccl2.29.2-1-torch2.10.0", "may be a tag of ghcr.io/coreweave/ml-containers/torch, "),
    ],
)
def test_an_ambiguous_tag_requires_the_complete_reference(tag: str, says: str) -> None:
    with pytest.raises(RunbookError, match=says):
        reference(tag)


@pytest.mark.usefixtures("registry")
def test_two_months_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "diff", "26.02-py3", "nvcr.io/nvidia/pytorch:26.04-py3"]) == 0
    out = capsys.readouterr().out
    assert "| CUDA | `13.1.1.006` | `13.2.0.046` |" in out
    assert "| download" in out


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("name", "says"),
    [("26.12-py3", "has no image nvcr.io/nvidia/pytorch:26.12-py3. Its newest tags are 26."), ("b@d name", "b@d name")],
)
def test_a_missing_image_is_reported(capsys: pytest.CaptureFixture[str], name: str, says: str) -> None:
    assert main(["image", "diff", "26.02-py3", name]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.usefixtures("practised")
def test_preflight_shows_what_the_image_changes() -> None:
    world = RunTarget({})
    branch = BumpBranch.find(world.checkout, Bump.parse(tag="26.04-py3"), world.services)
    ahead = pins_step.plan_bump(branch)
    assert ahead.changes is not None
    assert "Transformer Engine" in str(ahead.changes.rows())
    back = pins_step.plan_bump(BumpBranch.find(branch.checkout, Bump.parse(tag="26.02-py3"), world.services))
    assert back.changes is None
