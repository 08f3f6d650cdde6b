"""The notebook on images whose components are real: pulled from a registry, and their overlays built inside."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_repository
import small_runbooks
from building import Place, place, start_registry
from component_images import KERNEL_VERSIONS, KERNELS, WORKLOAD, ComponentImages, write_docker

from runbook_lib.bisect.image.ledger import LEDGER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.component("registry"),
    pytest.mark.component("container"),
    pytest.mark.component("compiler"),
]
#: The machine of the tests may be a container itself, in which the library would look for no engine.
HIDE_CONTAINER = """\
import os.path
exists = os.path.exists
os.path.exists = lambda path: path not in ("/.dockerenv", "/run/.containerenv") and exists(path)
"""
PINS = """\
version: 1
image: nvcr.io/nvidia/pytorch
pins:
- {path: docker/.ngc_version.dev, find: {file: whole}}
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("components")
    process, url = start_registry(folder, folder / "registry")
    try:
        engine = place(folder, url)
        components = ComponentImages(engine, folder / "layers")
        for month in KERNEL_VERSIONS:
            components.write_wheels(month)
        for month in KERNEL_VERSIONS:
            components.publish(month)
        write_docker(folder / "bin")
        (folder / "bin/sitecustomize.py").write_text(HIDE_CONTAINER)
        yield engine
    finally:
        process.terminate()
        process.wait(60)


def checkout_with_workload(folder: Path) -> Path:
    """Return a checkout with the measured test, and a pins file."""
    checkout = slurm_repository.create(folder / "checkout")
    for name, text in {
        "workload.py": WORKLOAD,
        ".base-image-pins.yaml": PINS,
        "docker/.ngc_version.dev": "nvcr.io/nvidia/pytorch:26.03-py3\n",
    }.items():
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(text)
    for arguments in (["add", "-A"], ["commit", "-q", "-m", "workload"]):
        subprocess.run(["git", "-C", str(checkout), *arguments], check=True)
    return checkout


def search(images: Place, folder: Path) -> tuple[str, list[dict[str, object]]]:
    """Run the notebook as papermill does; return what it prints, and the runs of the ledger."""
    checkout = checkout_with_workload(folder)
    site = folder / "site.yaml"
    site.write_text(f"gpus-per-node: 0\ncomponents: {{{KERNELS}: '1.2'}}\n")
    parameters = {
        "tag": "26.06-py3", "good": "26.03-py3", "repo": str(checkout), "test": "python3 workload.py",
        "metric": "value higher", "budget": "80", "site": str(site),
    }  # fmt: skip
    words = [word for name, value in parameters.items() for word in ("-r", name, value)]
    executed = folder / "executed.ipynb"
    programs = f"{images.folder}/bin"
    env = {
        "RUNBOOK_AUDIT": str(folder / "audit"),
        **images.env,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{programs}:{small_runbooks.ROOT}",
    }
    status, out, err = small_runbooks.papermill(
        small_runbooks.ROOT / "runbooks/bisect-image.ipynb", executed, *words, "-p", "mode", "local",
        cwd=small_runbooks.ROOT, **env,
    )  # fmt: skip
    assert status == 0, (out + err)[-3000:]
    (ledger,) = (checkout / ".git/runbook-bisect").glob(f"*/{LEDGER}")
    runs = json.loads(ledger.read_text())["runs"]
    return "\n".join(small_runbooks.outputs(executed)), [{**run, **run["point"]} for run in runs]


def loaded_nccl(line: dict[str, object]) -> str:
    """Return what the test prints of a run, if its image and overlay are what the ledger says."""
    if line["restored"] == ["nccl"] or line["tag"] == "26.04-py3":
        return "NCCL 22907"
    return {"26.05-py3": "NCCL 23003", "26.06-py3": "NCCL 23007"}.get(str(line["tag"]), "NCCL 2")


def check_runs(folder: Path, text: str, lines: list[dict[str, object]]) -> None:
    """Compare the search's result with what each run really loaded."""
    assert "26.05-py3 is the first bad tag, 26.04-py3 the last good one. Restoring nccl makes 26.05-py3 good." in text
    assert len(lines) <= 80
    outcomes = {(line["tag"], *line["restored"]): line["outcome"] for line in lines}  # type: ignore[misc]
    for name in ("nccl", "cublas", "cudnn", KERNELS):
        assert outcomes["26.05-py3", name] == "value"
    # There is no git in the image: an overlay that cannot be built is no evidence.
    assert outcomes["26.05-py3", "transformer-engine"] == "invalid"
    (results,) = folder.glob("checkout/.git/runbook-bisect/*/runs")
    for line in lines:
        if line["outcome"] == "value":
            output = (results / str(line["number"]) / "errors.log").read_text()
            assert loaded_nccl(line) in output, output
            assert ("my-kernels 1.2" in output) == (line["tag"] == "26.04-py3" or line["restored"] == [KERNELS]) or (
                line["tag"] == "26.03-py3"
            )


def test_in_containers_the_old_versions_are_really_loaded_and_the_fix_works(images: Place, tmp_path: Path) -> None:
    text, lines = search(images, tmp_path)
    check_runs(tmp_path, text, lines)
    fix = [line for line in text.splitlines() if line.startswith(("RUN env", "ENV LD_LIBRARY_PATH"))]
    (tmp_path / "Dockerfile").write_text("\n".join(["FROM nvcr.io/nvidia/pytorch:26.06-py3", *fix, "COPY w.py /"]))
    (tmp_path / "w.py").write_text(WORKLOAD)
    images.buildah("build", "--format=docker", "--tag=localhost/fixed", str(tmp_path))
    container = images.buildah("from", "--quiet", "localhost/fixed").strip()
    assert "NCCL 22907" in images.buildah("run", container, "--", "bash", "-c", "python3 /w.py 2>&1")
    images.buildah("rm", container)
