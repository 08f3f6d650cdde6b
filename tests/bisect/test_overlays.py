"""Overlays: which there are for two images, the script that puts them in, and when a run counts."""

import shutil
import subprocess
from pathlib import Path

import pytest

from runbook_lib.bisect.overlays import INVALID, Overlay, invalidity, plan_overlays, script
from runbook_lib.images.compare import Component

CUDA = Component("CUDA", "13.2.0.046", "13.2.1.010")
NCCL = Component("NCCL", "2.29.7", "2.30.4")
SOME = Overlay("nccl", "2.29.7", "2.30.4", "nvidia-nccl-cu13==2.29.7", 3, "print('2.29.7')")


@pytest.mark.parametrize(
    ("changes", "requirements", "suspects"),
    [
        ([], [], []),
        ([Component("NCCL", "2.29.7", "2.29.7")], [], []),
        ([CUDA, NCCL], ["nvidia-nccl-cu13==2.29.7"], ["CUDA"]),
        ([Component("CUDA", "13.1.1", "13.2.0"), NCCL], ["nvidia-cuda-runtime==13.1.*"], []),
        ([CUDA, Component("NCCL", "2.29.7+cuda13.2", "2.30.4")], ["nvidia-nccl-cu13==2.29.7"], ["CUDA"]),
        # As the CUDA images on which CoreWeave's are built name them.
        (
            [
                Component("CUDA", "12.9.1", "12.9.2"),
                Component("NCCL", "2.29.2-1+cuda12.9", "2.30.4-1+cuda12.9"),
                Component("cuBLAS", "12.9.1.4-1", "12.9.2.10-1"),
                Component("cuDNN", "9.20.0.48-1", "9.21.0.82-1"),
            ],
            ["nvidia-nccl-cu12==2.29.2", "nvidia-cublas-cu12==12.9.1.4", "nvidia-cudnn-cu12==9.20.0.48"],
            ["CUDA"],
        ),
        ([CUDA, Component("NCCL", "", "2.30.4")], [], ["CUDA", "NCCL"]),
        ([Component("CUDA", "12.9.1", "13.0.0"), Component("cuBLAS", "12.9.1.4", "13.0.0.19")], [], ["cuBLAS", "CUDA"]),
        ([Component("CUDA", "14.0", "14.1"), NCCL], [], ["NCCL", "CUDA"]),
        ([NCCL], [], ["NCCL"]),
        (
            [CUDA, Component("PyTorch", "2.11", "2.12"), Component("driver", "1", "2")],
            [],
            ["CUDA", "PyTorch", "driver"],
        ),
    ],
)
def test_a_changed_component_has_an_overlay_or_is_a_suspect(
    changes: list[Component], requirements: list[str], suspects: list[str]
) -> None:
    overlays, remaining = plan_overlays(changes, {})
    installed = [overlay.requirement for overlay in overlays]
    assert [requirement for requirement in requirements if requirement not in installed] == []
    assert sorted(sentence.split(" ", 1)[0] for sentence in remaining) == sorted(suspects)


def test_named_components_have_overlays_too() -> None:
    named = {"flash-attn": "2.7.4", "apex": "25.04", "nccl": "2.28.9", "my-kernels": "1.2"}
    overlays, suspects = plan_overlays([CUDA, NCCL], named)
    by_name = {overlay.name: overlay.requirement for overlay in overlays}
    assert by_name == {
        "flash-attn": "flash-attn==2.7.4", "apex": "git+https://github.com/NVIDIA/apex.git@25.04",
        "nccl": "nvidia-nccl-cu13==2.28.9", "my-kernels": "my-kernels==1.2",
    }  # fmt: skip
    assert {overlay.module for overlay in overlays} >= {"my_kernels", "flash_attn"}
    for text in (script(overlays, "/x"), "\n".join(line for each in overlays for line in each.dockerfile_lines())):
        assert "APEX_CUDA_EXT=1" in text
    assert [sentence.split(" ", 1)[0] for sentence in suspects] == ["CUDA"]


@pytest.mark.parametrize(
    ("lines", "valid"),
    [
        (["runbook-overlay: nccl 2.29.7"], True),
        (["runbook-overlay: nccl 2.29.7.1"], True),
        (["runbook-overlay: nccl 2.30.4"], False),
        (["runbook-overlay: nccl 2.29"], False),
        (["runbook-overlay: cublas 2.29.7"], False),
        ([], False),
        (["runbook-invalid: nccl: pip could not install it", "runbook-overlay: nccl 2.29.7"], False),
    ],
)
def test_a_run_counts_only_with_the_old_version(lines: list[str], valid: bool) -> None:
    assert (invalidity([SOME], lines) == "") is valid


@pytest.mark.parametrize(("reported", "status"), [("2.29.7", 0), ("", INVALID)])
@pytest.mark.skipif(shutil.which("flock") is None, reason="needs util-linux")
def test_the_script_installs_once_and_reports(tmp_path: Path, reported: str, status: int) -> None:
    pip = tmp_path / "bin/python3"
    pip.parent.mkdir()
    pip.write_text(
        f"#!/bin/bash\nif [ \"$1\" = -c ]; then echo '{reported}'; [ -n '{reported}' ]; exit; fi\n"
        f"echo \"$@\" >>'{tmp_path}/calls'\n"
        'while [ "$1" != --target ]; do shift; done\n'
        'mkdir -p "$2/nvidia/nccl/lib"; touch "$2/nvidia/nccl/lib/libnccl.so.2"\n'
    )
    pip.chmod(0o755)
    text = script([SOME], str(tmp_path / "overlays")) + 'echo "path=$LD_LIBRARY_PATH"\n'
    env = {"PATH": f"{pip.parent}:/usr/bin:/bin"}
    for _ in range(2):
        process = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True)
        assert process.returncode == status, process.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    if not status:
        assert f"{SOME.folder}/nvidia/nccl/lib" in process.stdout
        assert invalidity([SOME], process.stdout.splitlines()) == ""
