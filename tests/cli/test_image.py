"""``runbook image``: the tags of an image by constraint, what a month changes."""

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.cli.image import listed
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef

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
    tags, count = listed(ImageRef.parse(image), names, constraints)
    assert ([str(tag) for tag in tags], count) == (found, others)


@pytest.mark.parametrize(
    ("image", "constraint", "says"),
    [
        ("nvcr.io/nvidia/pytorch", "cuda>=12", "cuda>=12"),
        (TORCH, "cudnn>9", "'cudnn>9'"),
    ],
)
def test_an_invalid_constraint_is_reported(image: str, constraint: str, says: str) -> None:
    with pytest.raises(RunbookError, match=says):
        listed(ImageRef.parse(image), [OLD], [constraint])


@pytest.mark.usefixtures("registry")
def test_the_command_prints_a_tag_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "list", "nvcr.io/nvidia/pytorch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == sorted(lines, reverse=True)
    assert "26.04-py3" in lines
    assert main(["image", "list", "nvcr.io/nvidia/other"]) == 1
    assert "nvcr.io/nvidia/other" in capsys.readouterr().err
    assert main(["image", "list", "26.04-py3"]) == 2
    assert "is not a full image reference" in capsys.readouterr().err


ALIBABA = "egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/egslingjun/training-nv-pytorch:25.05"


@pytest.mark.parametrize(
    ("image", "driver", "status", "shown"),
    [
        (ALIBABA, "535.104.05", 0, ["NGC's 25.04-py3", "CUDA 12.9", "runs by the compatibility package"]),
        ("alibaba:25.05-serverless", "560.35.03", 1, ["25.04-py3", "CUDA 12.9", "does not run"]),
        ("alibaba:26.01", "590.44", 0, ["25.12-py3", "CUDA 13.1", "runs"]),
        ("24.06-py3", "545.23.08", 0, ["CUDA 12.5", "rel-24-06.html"]),
        ("26.06-py3", "580.126.09", 0, ["CUDA 13.3", "Triton's compatibility matrix", "runs by the compatibility"]),
        ("26.08-py3", "550.54", 1, ["CUDA 13.4", "does not run"]),
    ],
)
def test_a_driver_is_judged_by_the_tag_where_the_registry_cannot_be_read(
    image: str, driver: str, status: int, shown: list[str], no_registry: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["image", "driver", image, "--driver", driver]) == status
    text = capsys.readouterr().out
    assert "could not be read" in text
    assert all(part in text for part in shown)


@pytest.mark.parametrize("image", ["30.06-py3", "25.04-py3-igpu", "alibaba:30.06", "nvcr.io/nvidia/nemo:25.04"])
def test_no_verdict_is_guessed_from_a_tag_without_documents(
    image: str, no_registry: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["image", "driver", image, "--driver", "575.51.03"]) == 2
    assert capsys.readouterr().out == ""
