"""The drivers of a cluster's nodes, from a list or from the output of nvidia-smi."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import RunbookError
from runbook_lib.images.driver_inventory import NodeDriver as Node
from runbook_lib.images.driver_inventory import listed_drivers, nvidia_smi
from runbook_lib.images.drivers import numbers


def table(driver: str, label: str = "Driver Version", cuda: str = "CUDA Version: 12.2") -> str:
    """The head of the table and one GPU, as nvidia-smi draws them."""
    return f"""\
Sat Nov 21 10:00:00 2026
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.104.05             {label}: {driver}   {cuda}     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|=========================================+======================+======================|
|   0  NVIDIA H100 80GB HBM3          On  | 00000000:1B:00.0 Off |                    0 |
| N/A   30C    P0              70W / 700W |      0MiB / 81559MiB |      0%      Default |
+-----------------------------------------+----------------------+----------------------+
"""


@pytest.mark.parametrize(
    ("text", "drivers"),
    [
        (table("535.104.05"), [Node("535.104.05")]),
        (table("610.43.02", "KMD Version", "CUDA UMD Version: 13.3"), [Node("610.43.02")]),
        (table("N/A"), [Node("")]),
        (table("535.104.05") + table("550.54.14"), [Node("535.104.05"), Node("550.54.14")]),
        # nvidia-smi -q
        (
            "Timestamp       : Sat Nov 21\nDriver Version                            : 570.86.15\n",
            [Node("570.86.15")],
        ),
        (
            "NVIDIA-SMI version  : 570.86\nDRIVER version      : 570.86.15\nCUDA Version : 12.8\n",
            [Node("570.86.15")],
        ),
        # --query-gpu=driver_version --format=csv, with and without its header
        ("driver_version\n535.104.05\n535.104.05\n", [Node("535.104.05")]),
        ("535.104.05\n535.104.05\n550.54.14\n", [Node("535.104.05"), Node("550.54.14")]),
        ("535.104.05\r\n", [Node("535.104.05")]),
        ("index, driver_version, power.draw [W]\n0, 535.104.05, 123.45 W\n", [Node("535.104.05")]),
        ("0, NVIDIA H100, 535.104.05\n", [Node("535.104.05")]),
        # many nodes, each line labelled
        (
            "n1: 535.104.05\nn1: 535.104.05\nn2: 550.54.14\n",
            [Node("535.104.05", "n1"), Node("550.54.14", "n2")],
        ),
        (
            "n1: driver_version\nn2: driver_version\nn1: 535.1\nn2: 550.2\n",
            [Node("535.1", "n1"), Node("550.2", "n2")],
        ),
        (
            "".join(f"gpu-a.example.com: {line}\n" for line in table("535.104.05").splitlines()),
            [Node("535.104.05", "gpu-a.example.com")],
        ),
        # nodes that cannot tell
        (
            "n1: 535.104.05\nn2: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
            [Node("535.104.05", "n1"), Node("", "n2")],
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n",
            [Node("")],
        ),
        ("n3: bash: line 1: nvidia-smi: command not found\n", [Node("", "n3")]),
        ("n3: bash: nvidia-smi: command not found\n", [Node("", "n3")]),
        ("bash: nvidia-smi: command not found\n", [Node("")]),
        ("No devices were found\n", [Node("")]),
        ("n5: NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", [Node("", "n5")]),
        (
            "gpu1: 575.57.08\ngpu2: No devices were found\n"
            "gpu3: ssh exited with exit code 255\ngpu4: slurmstepd: error\n",
            [Node("575.57.08", "gpu1"), Node("", "gpu2"), Node("", "gpu3"), Node("", "gpu4")],
        ),
        # A node that says its driver beside something else has that driver.
        ("n1: Last login: today\nn1: 535.104.05\n", [Node("535.104.05", "n1")]),
        # In the text of one machine nothing is a node's name.
        ("Warning: slow\nmotd: hello\n535.104.05\n", [Node("535.104.05")]),
    ],
)
def test_nvidia_smi(text: str, drivers: list[Node]) -> None:
    assert list(nvidia_smi(text)) == drivers


@pytest.mark.parametrize("text", ["", "\n", "hello\n", "n1: hello\n", "123.45, 535.104.05\n", "<html></html>"])
def test_output_without_a_driver_is_refused(text: str) -> None:
    with pytest.raises(RunbookError, match="--query-gpu=driver_version"):
        nvidia_smi(text)


@pytest.mark.parametrize(
    ("text", "drivers"),
    [
        ("", []),
        (" , ", []),
        ("535.104.05", [Node("535.104.05")]),
        ("535.104.05, 550.54\n535.104.05", [Node("535.104.05"), Node("550.54")]),
    ],
)
def test_a_list_of_drivers(text: str, drivers: list[Node]) -> None:
    assert list(listed_drivers(text)) == drivers


def test_an_invalid_list_is_refused_with_its_origin() -> None:
    with pytest.raises(RunbookError, match=r"RUNBOOK_DRIVERS .*'latest'"):
        listed_drivers("535.104.05, latest")


LINES = st.sampled_from(["n1: ", "---", "n[1-9]", "driver_version", ", ", '"', "535.104.05", "| Driver Version: "])


@given(st.lists(LINES | st.text(max_size=20), max_size=30).map("".join) | st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (nvidia_smi, listed_drivers):
        try:
            drivers = parse(text)
        except RunbookError:
            continue
        assert len(set(drivers)) == len(drivers)
        for node in drivers:
            assert node.driver == "" or numbers(node.driver)


@given(st.lists(st.sampled_from(["---\n", "n1\n", "n1: 535.1\n", "\n", "driver_version\n", "550.2\n"]), max_size=40))
def test_a_labelled_version_is_found_among_any_other_lines(lines: list[str]) -> None:
    text = "".join(lines)
    if "n1: 535.1" in text:
        assert Node("535.1", "n1") in nvidia_smi(text)
