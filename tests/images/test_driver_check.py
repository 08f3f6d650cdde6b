"""``runbook image driver``, and preflight's check of the drivers that RUNBOOK_DRIVERS names."""

import json

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.errors import RunbookError
from runbook_lib.images.compare import compare
from runbook_lib.images.drivers import check_drivers, driver_rows, judge, listed_drivers
from runbook_lib.images.reference import Image, PlatformImage


def image(**platforms: dict[str, str]) -> Image:
    images = {name: PlatformImage("sha256:" + "1" * 64, 1, env) for name, env in platforms.items()}
    return Image("sha256:" + "0" * 64, images)


CUDA_12_9 = {"CUDA_VERSION": "12.9.0.043", "CUDA_DRIVER_VERSION": "575.51.03"}
SAME = image(amd64=CUDA_12_9, arm64=CUDA_12_9)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ([], 0, "CUDA 13.2 comes with driver 595; on data-center GPUs R535, R570, R580 or R590 will do"),
        (["--driver", "595.45.04"], 0, "- 595.45.04: runs. Driver 595.45.04 runs CUDA 13.2"),
        (["--driver", "535.104.05"], 0, "- 535.104.05: runs by the compatibility package."),
        (["--driver", "585.1"], 2, "- 585.1: unknown."),
        (["--driver", "580.65.06, 550.54.14\n"], 1, "- 550.54.14: does not run."),
    ],
)
def test_the_command_answers_by_its_status(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, says: str
) -> None:
    assert main(["image", "driver", "26.04-py3", *arguments]) == status
    out = capsys.readouterr().out
    assert out.startswith("nvcr.io/nvidia/pytorch:26.04-py3 for amd64, arm64: CUDA 13.2")
    assert says in out
    assert "\n- https://docs.nvidia.com/" in out


@pytest.mark.usefixtures("registry")
def test_invalid_input_is_an_error_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    for tag, drivers, says in (
        ("27.12-py3", "", "has no image"), ("b@d name", "", "is not a full image reference"),
        ("26.04-py3", "535", "--driver must be a list of driver versions"),
    ):  # fmt: skip
        assert main(["image", "driver", tag, "--driver", drivers]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.usefixtures("registry")
def test_the_answer_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "driver", "26.04-py3", "--driver", "570.86.15 535.104.05", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["needs"][0]["needs"]) == ("runs by the compatibility package", "595")
    assert list(document["needs"][0]["drivers"]) == ["535.104.05", "570.86.15"]


@pytest.mark.parametrize(
    ("drivers", "status", "says"),
    [
        ("", "skipped", "CUDA 12.9 needs driver 575 or later; on data-center GPUs"),
        ("535.104.05, 575.57.08", "passed", "535.86 or later"),
        ("575.57.08, 560.35.03, 550.54.14", "failed", "R560"),
        ("575.57.08, 550.54.14", "skipped", "550.54.14"),
    ],
)
def test_preflights_check(drivers: str, status: str, says: str) -> None:
    check = check_drivers(judge(SAME, listed_drivers(drivers)))
    assert (check.name, check.status) == ("the driver of the runners", status)
    assert says in check.detail


def test_preflights_table() -> None:
    assert driver_rows(judge(None, ["575.57.08"])) == []
    (row,) = driver_rows(judge(SAME, []))
    assert (row["platform"], row["CUDA"], row["needs"], row["driver"]) == ("amd64, arm64", "12.9", "575", "")
    rows = driver_rows(judge(SAME, ["560.35.03", "575.57.08"]))
    assert [(row["driver"], row["verdict"]) for row in rows] == [("560.35.03", "does not run"), ("575.57.08", "runs")]
    assert {*row} == {*rows[0]}


def test_an_image_without_version_variables_is_unknown() -> None:
    check = check_drivers(judge(image(amd64={}), ["575.57.08"]))
    assert check.status == "skipped"
    assert check_drivers(()).status == "skipped"
    with pytest.raises(RunbookError, match="RUNBOOK_DRIVERS"):
        listed_drivers("new")


def test_the_text_of_a_pull_request_names_the_needed_driver() -> None:
    assert "CUDA 12.9 needs driver 575 or later" in compare(image(amd64={}), SAME, ("a", "b")).markdown()
