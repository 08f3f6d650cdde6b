"""Overlays: which there are for two images, the script that puts them in, and when a run counts."""

import base64
import hashlib
import shlex
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from runbook_lib.bisect.overlays import INVALID, Overlay, invalidity, plan_overlays, script
from runbook_lib.images.compare import Component

CUDA = Component("CUDA", "13.2.0.046", "13.2.1.010")
NCCL = Component("NCCL", "2.29.7", "2.30.4")
SOME = Overlay("nccl", "2.29.7", "2.30.4", "nvidia-nccl-cu13==2.29.7", "print('2.29.7')", "2.29.7")


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
    installed = [overlay.requirement for overlay in overlays.values()]
    assert [requirement for requirement in requirements if requirement not in installed] == []
    assert sorted(sentence.split(" ", 1)[0] for sentence in remaining) == sorted(suspects)


def test_named_components_have_overlays_too() -> None:
    named = {"flash-attn": "2.7.4", "apex": "25.04", "nccl": "2.28.9", "my-kernels": "1.2"}
    overlays, suspects = plan_overlays([CUDA, NCCL], named)
    by_name = {name: overlay.requirement for name, overlay in overlays.items()}
    assert by_name == {
        "flash-attn": "flash-attn==2.7.4", "apex": "git+https://github.com/NVIDIA/apex.git@25.04",
        "nccl": "nvidia-nccl-cu13==2.28.9", "my-kernels": "my-kernels==1.2",
    }  # fmt: skip
    assert {overlay.module for overlay in overlays.values()} >= {"my_kernels", "flash_attn"}
    for text in (script(overlays["apex"], Path("/x")), overlays["apex"].dockerfile_lines()[0]):
        assert "APEX_CUDA_EXT=1" in text
    assert [sentence.split(" ", 1)[0] for sentence in suspects] == ["CUDA"]


@pytest.mark.parametrize(
    ("lines", "valid"),
    [
        (["runbook-overlay: nccl 2.29.7"], True),
        (["runbook-overlay: nccl 2.29.7.1"], True),
        (["runbook-overlay: nccl 2.29.7-1+cuda13.2"], True),
        (["runbook-overlay: nccl 2.29.70"], False),
        (["runbook-overlay: nccl 2.30.4"], False),
        (["runbook-overlay: nccl 2.29"], False),
        (["runbook-overlay: cublas 2.29.7"], False),
        ([], False),
        (["runbook-invalid: nccl: pip could not install it", "runbook-overlay: nccl 2.29.7"], False),
    ],
)
def test_a_run_counts_only_with_the_old_version(lines: list[str], valid: bool) -> None:
    assert (invalidity(SOME, lines) == "") is valid


#: Libraries by overlay: the soname, the folder in the wheel, the wheel, C that reports a version as the real one does.
LIBRARIES = {
    "nccl": (
        "libnccl.so.2", "nvidia/nccl/lib", "nvidia-nccl-cu13",
        "int ncclGetVersion(int *v) { *v = A * 10000 + B * 100 + C; return 0; }",
    ),
    "cublas": (
        "libcublas.so.13", "nvidia/cu13/lib", "nvidia-cublas",
        "int cublasGetProperty(int part, int *v) { int n[] = {A, B, C}; *v = n[part]; return 0; }",
    ),
    "cudnn": (
        "libcudnn.so.9", "nvidia/cudnn/lib", "nvidia-cudnn-cu13",
        "unsigned long cudnnGetVersion() { return A * 10000 + B * 100 + C; }",
    ),
}  # fmt: skip


def compile_library(name: str, version: str, folder: Path) -> None:
    soname, _, _, source = LIBRARIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    macros = [f"-D{letter}={number}" for letter, number in zip("ABC", version.split("."), strict=True)]
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", *macros, f"-Wl,-soname,{soname}", "-o", str(folder / soname)]
    subprocess.run(command, input=source, text=True, check=True)


def write_wheel(name: str, version: str, content: Path, folder: Path) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    info, record = f"{stem}.dist-info", list[str]()
    members = {str(path.relative_to(content)): path.read_bytes() for path in content.rglob("*") if path.is_file()}
    members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    members[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, data in members.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            record.append(f"{path},sha256={digest},")
            wheel.writestr(path, data)
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))


@pytest.mark.slow
@pytest.mark.component("compiler")
def test_old_versions_are_really_loaded_in_a_run_and_in_the_fixed_image(tmp_path: Path) -> None:
    """The machine has the new libraries; pip and the loader are real, and pip sees only these wheels."""
    old = {"nccl": "2.29.7", "cublas": "13.3.0", "cudnn": "9.20.0"}
    for name, version in old.items():
        _, place, wheel, _ = LIBRARIES[name]
        compile_library(name, version, tmp_path / name / place)
        write_wheel(wheel, version, tmp_path / name, tmp_path)
        compile_library(name, "99.1.2", tmp_path / "machine")
    (tmp_path / "kernels/my_kernels").mkdir(parents=True)
    (tmp_path / "kernels/my_kernels/__init__.py").touch()
    write_wheel("my-kernels", "1.2", tmp_path / "kernels", tmp_path)
    changes = [
        CUDA,
        *(Component({"nccl": "NCCL", "cublas": "cuBLAS", "cudnn": "cuDNN"}[n], v, "99") for n, v in old.items()),
    ]
    overlays, _ = plan_overlays(changes, {"my-kernels": "1.2"})
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(tmp_path / "machine"),
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "HOME": str(tmp_path),
        "PIP_CONSTRAINT": str(tmp_path / "constraint.txt"),  # as NGC's images pin their own versions
    }  # fmt: skip
    (tmp_path / "constraint.txt").write_text("nvidia-nccl-cu13==99\n")
    for overlay in overlays.values():
        text = script(overlay, tmp_path)
        for wheels in (str(tmp_path), "/nowhere"):  # it is installed once
            run_env = {**env, "PIP_FIND_LINKS": wheels}
            process = subprocess.run(["bash", "-c", text], env=run_env, capture_output=True, text=True)
            assert (process.returncode, invalidity(overlay, process.stdout.splitlines())) == (0, ""), process.stderr
        run, variable = (line.replace("/opt", str(tmp_path)) for line in overlay.dockerfile_lines())
        subprocess.run(["bash", "-c", run.removeprefix("RUN ")], env=env, check=True, capture_output=True)
        program = "import importlib.metadata; print(importlib.metadata.version('my-kernels'))"
        program = program if overlay.module else overlay.report
        reported = f"export {variable.removeprefix('ENV ')}; python3 -c {shlex.quote(program)}"
        version = subprocess.run(["bash", "-c", reported], env=env, capture_output=True, text=True).stdout.strip()
        report = f"runbook-overlay: {overlay.name} {version}"
        assert invalidity(overlay, [report]) == ""
        without = subprocess.run(["python3", "-c", program], env=env, capture_output=True, text=True).stdout.strip()
        assert without != version
    for change, says in (
        ({"requirement": "nvidia-nccl-cu13==1.0"}, "pip could not install"),
        ({"report": "1/0"}, "could not be read"),
    ):
        broken = replace(overlays["nccl"], **change)
        text = script(broken, tmp_path / "x")
        process = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True)
        assert process.returncode == INVALID
        assert says in invalidity(broken, process.stdout.splitlines())
