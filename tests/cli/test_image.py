"""``runbook image list``: the tags of an image, newest first, by constraint where tags tell what is in the image."""

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.cli.image import listed
from runbook_lib.clients.registry.client import Tags
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice.registry.server import RegistryServer

TORCH = "ghcr.io/coreweave/ml-containers/torch"
OLD = "1234567-base-cuda12.9.1-ubuntu22.04-torch2.9.1"
NEW = "1234567-nccl-cuda13.2.1-ubuntu24.04-nccl2.30.4-1-torch2.10.0-abi1"


@pytest.mark.parametrize(
    ("image", "names", "constraints", "found", "others"),
    [
        (TORCH, [], [], [], 0),
        (TORCH, ["latest"], [], [], 1),
        (TORCH, [OLD, "latest", NEW], [], [NEW, OLD], 1),
        (TORCH, [OLD, NEW], ["cuda>=12", "edition=base"], [OLD], 0),
        (TORCH, [OLD, NEW], ["torch>=3"], [], 0),
        ("nvcr.io/nvidia/nemo", ["26.04", "26.06", "26.08.rc5"], [], ["26.08.rc5", "26.06", "26.04"], 0),
        ("example.org/ours", ["1.9", "1.10"], [], ["1.10", "1.9"], 0),
    ],
)
def test_tags_are_listed_newest_first(
    image: str, names: list[str], constraints: list[str], found: list[str], others: int
) -> None:
    tags, count = listed(ImageRef.parse(image), Tags(tuple(names)), constraints)
    assert ([str(tag) for tag in tags], count) == (found, others)


@pytest.mark.parametrize(
    ("image", "constraint", "says"),
    [
        ("nvcr.io/nvidia/pytorch", "cuda>=12", "do not name what is in the image"),
        (TORCH, "cudnn>9", "'cudnn>9'"),
    ],
)
def test_an_invalid_constraint_is_reported(image: str, constraint: str, says: str) -> None:
    with pytest.raises(RunbookError, match=says):
        listed(ImageRef.parse(image), Tags((OLD,)), [constraint])


def test_the_command_prints_a_tag_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    server = RegistryServer()
    monkeypatch.setenv("RUNBOOK_REGISTRY", server.url)
    monkeypatch.setenv("RUNBOOK_CACHE", "off")
    assert main(["image", "list", "nvcr.io/nvidia/pytorch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == sorted(lines, reverse=True)
    assert "26.04-py3" in lines
    assert main(["image", "list", "nvcr.io/nvidia/other"]) == 1
    assert "nvcr.io/nvidia/other has no such tag." in capsys.readouterr().err
    assert main(["image", "list", "26.04-py3"]) == 2
    assert "is not a full image reference" in capsys.readouterr().err
    server.close()
