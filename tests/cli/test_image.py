"""``runbook image``: the tags of an image, what a month changes."""

import pytest

from runbook_lib.cli.__main__ import main


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
    assert "gave no usable answer" in text
    assert all(part in text for part in shown)


@pytest.mark.usefixtures("no_registry")
def test_no_verdict_is_guessed_from_a_tag_without_documents(capsys: pytest.CaptureFixture[str]) -> None:
    for image in ("30.06-py3", "25.04-py3-igpu", "alibaba:30.06", "nvcr.io/nvidia/nemo:25.04"):
        assert main(["image", "driver", image, "--driver", "575.51.03"]) == 2
        assert capsys.readouterr().out == ""
