"""The drivers of a cluster, read from what its tools print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import RunbookError
from runbook_lib.images import driver_inventory
from runbook_lib.images.driver_inventory import NodeDriver as Node
from runbook_lib.images.driver_inventory import named, nvidia_smi, slurm


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
    ("text", "found"),
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
        ("power.draw, driver_version\n123.45, 535.104.05\n", [Node("535.104.05")]),
        ("driver_version\n[N/A]\n", [Node("")]),
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
def test_nvidia_smi(text: str, found: list[Node]) -> None:
    assert list(nvidia_smi(text)) == found


@pytest.mark.parametrize("text", ["", "\n", "hello\n", "n1: hello\n", "123.45, 535.104.05\n", "<html></html>"])
def test_what_tells_of_no_driver_is_refused(text: str) -> None:
    with pytest.raises(RunbookError, match=r"no output of nvidia-smi that names a driver\. Give"):
        nvidia_smi(text)


def node(name: str, features: str = "(null)", gres: str = "gpu:h100:8", **more: str) -> str:
    said = " ".join(f"{key}={value}" for key, value in more.items())
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=56 \n   CPUAlloc=0 CPUTot=224\n   AvailableFeatures={features}\n"
        f"   ActiveFeatures={features}\n   Gres={gres}\n   NodeAddr={name} NodeHostName={name}\n   {said}\n\n"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (node("n1"), [Node("", "n1")]),
        (node("n1", "h100,driver=535.104.05"), [Node("535.104.05", "n1")]),
        (node("n1", "nvidia-driver-550.54.14,ib"), [Node("550.54.14", "n1")]),
        (node("n1", "nvidia_driver_version:550.54.14"), [Node("550.54.14", "n1")]),
        (node("n1", "driver550.54.14"), [Node("550.54.14", "n1")]),
        (node("n1", Extra="driver=570.1"), [Node("570.1", "n1")]),
        (node("n1", Comment="driver=570.1"), [Node("570.1", "n1")]),
        # What only resembles a driver is none.
        (node("n1", "driver=535"), [Node("", "n1")]),
        (node("n1", "535.104.05"), [Node("", "n1")]),
        (node("n1", "mlnxdriver=535.104.05"), [Node("", "n1")]),
        (node("n1", OS="Linux-535.104.05"), [Node("", "n1")]),
        # Nodes without GPUs have none to tell of.
        (node("cpu1", gres="(null)"), []),
        (node("n1", "driver=535.104.05") + node("n2", "driver=550.1") + node("cpu1", gres="(null)"),
         [Node("535.104.05", "n1"), Node("550.1", "n2")]),
        # -o: one node a line
        ("NodeName=n1 ActiveFeatures=driver=535.1 Gres=gpu:8\nNodeName=n2 ActiveFeatures=a Gres=gpu:8\n",
         [Node("535.1", "n1"), Node("", "n2")]),
    ],
)  # fmt: skip
def test_slurm(text: str, found: list[Node]) -> None:
    assert list(slurm(text)) == found


def test_what_names_no_node_is_refused() -> None:
    with pytest.raises(RunbookError, match=r"names no node of Slurm\. Give what scontrol show node prints"):
        slurm("slurm_load_nodes error: Unable to contact slurm controller\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" , ", []),
        ("535.104.05", [Node("535.104.05")]),
        ("535.104.05, 550.54\n535.104.05", [Node("535.104.05"), Node("550.54")]),
    ],
)
def test_a_list_of_drivers(text: str, found: list[Node]) -> None:
    assert list(named(text)) == found


def test_a_list_that_cannot_be_read_is_named_by_where_it_stands() -> None:
    with pytest.raises(RunbookError, match=r"RUNBOOK_DRIVERS .* 'latest' is not the version of a driver"):
        named("535.104.05, latest")


LINES = st.sampled_from(
    ["n1: ", "---", "n[1-9]", "driver_version", ", ", '"', "535.104.05", "| Driver Version: ", "NodeName=a", "Gres=gpu"]
)


@given(st.lists(LINES | st.text(max_size=20), max_size=30).map("".join) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (nvidia_smi, slurm, named):
        try:
            found = read(text)
        except RunbookError:
            continue
        for seen in found:
            assert seen.driver == "" or driver_inventory.numbers(seen.driver)


@given(st.lists(st.sampled_from(["---\n", "n1\n", "n1: 535.1\n", "\n", "driver_version\n", "550.2\n"]), max_size=40))
def test_whatever_stands_around_it_a_version_is_found(lines: list[str]) -> None:
    text = "".join(lines)
    if "n1: 535.1" in text:
        assert Node("535.1", "n1") in nvidia_smi(text)
