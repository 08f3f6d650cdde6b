"""Commands that lead into the image: each option, each way, and what is refused."""

import re
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.containers.engine import Engine
from runbook_lib.containers.work import local as inside_run
from runbook_lib.containers.work import pyxis, target, task, unit_tests
from runbook_lib.containers.work.image import Image, inspected
from runbook_lib.containers.work.pyxis import Allocation
from runbook_lib.containers.work.target import Place
from runbook_lib.containers.work.task import Here, Step
from runbook_lib.containers.work.unit_tests import Bucket
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS

LM, BRIDGE = MEGATRON_LM.name, MEGATRON_BRIDGE.name
BUILT = inside_run.of(MEGATRON_LM, Image.parse("megatron-lm:local"), "/home/me/lm", "/home/me/.cache/uv")
FILE = inside_run.of(MEGATRON_BRIDGE, Image.parse("/shared/bridge.sqsh"), "/shared/bridge", "/shared/cache")
SHELL = inside_run.session(BUILT)
LOCK = Step("Lock", ("uv", "lock"), "container", "Why.")
ME = Here(uid=1000, gid=1001, engine=Engine("docker"))


# -- where this process stands -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "files", "sign"),
    [
        ({}, (), ""),
        ({"SLURM_JOB_ID": "7", "container": "", "SLURM_CONTAINER": "no"}, ("/.dockerignore",), ""),
        ({}, ("/.dockerenv",), "/.dockerenv"),
        ({}, ("/run/.containerenv",), "/run/.containerenv"),
        ({}, ("/.lock",), "/.lock"),
        ({"container": "podman"}, (), "$container"),
        ({"APPTAINER_CONTAINER": "/x.sif"}, (), "$APPTAINER_CONTAINER"),
        ({"NVIDIA_PYTORCH_VERSION": "26.04"}, (), "$NVIDIA_PYTORCH_VERSION"),
    ],
)
def test_the_signs_of_a_container(env: dict[str, str], files: tuple[str, ...], sign: str) -> None:
    assert task.container_sign(env, lambda path: path in files) == sign


def test_elsewhere_uv_is_refused_with_the_reason() -> None:
    assert task.why_not(Here("/.dockerenv", "Linux")) == ""
    assert "CUDA wheels, which do not exist for macOS" in task.why_not(Here(system="Darwin"))
    assert "come from the image" in task.why_not(Here())
    assert task.why_not(Here(system="Windows")).startswith("uv is not run on Windows")
    for here in (Here(), Here(system="Darwin")):
        with pytest.raises(Refused, match="Choose local"):
            target.require("host", here)
    with pytest.raises(Refused, match="none of the signs"):
        target.require("inside", Here())
    for name in ("local", "slurm", "apptainer"):
        target.require(name, Here(system="Darwin"))
    target.require("host", Here("/.dockerenv"))


@pytest.mark.parametrize(
    ("here", "name", "lacking"),
    [
        (Here("/.dockerenv"), "inside", ""),
        (Here(engine=Engine("podman"), slurm=True), "local", ""),
        (Here(slurm=True, apptainer=True), "slurm", ""),
        (Here(apptainer=True), "apptainer", ""),
        (Here(), "local", "Neither docker nor podman works"),
        (Here(system="Darwin", engine=Engine("docker")), "local", "reach no GPU"),
    ],
)
def test_the_place_is_what_the_machine_has(here: Here, name: str, lacking: str) -> None:
    assert target.choose("", here) == name
    told = target.lacking(name, here, gpus=True)  # type: ignore[arg-type]
    assert told.startswith(lacking) if lacking == "" and told == "" else lacking in told
    with pytest.raises(RunbookError, match="none of inside, local"):
        target.choose("cloud", here)


# -- images ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "kind", "enroot"),
    [
        ("megatron-lm:local", "megatron-lm:local", "built", None),
        ("localhost/megatron-lm:local-lts", "localhost/megatron-lm:local-lts", "built", None),
        ("nemo:26.06", "nvcr.io/nvidia/nemo:26.06", "nemo", "nvcr.io#nvidia/nemo:26.06"),
        ("nvcr.io/nvidia/nemo:26.08.rc5", "nvcr.io/nvidia/nemo:26.08.rc5", "nemo", "nvcr.io#nvidia/nemo:26.08.rc5"),
        (
            "nvcr.io/nvidia/pytorch:26.04-py3",
            "nvcr.io/nvidia/pytorch:26.04-py3",
            "other",
            "nvcr.io#nvidia/pytorch:26.04-py3",
        ),
        ("/shared/a-1.sqsh", "/shared/a-1.sqsh", "file", "/shared/a-1.sqsh"),
    ],
)
def test_an_image_by_any_of_its_names(text: str, name: str, kind: str, enroot: str | None) -> None:
    image = Image.parse(text)
    assert (image.name, image.kind) == (name, kind)
    if enroot is None:
        with pytest.raises(RunbookError, match="task import"):
            _ = image.enroot
    else:
        assert image.enroot == enroot


@pytest.mark.parametrize(
    "text",
    ["", "nemo:26.13", "nemo:yesterday", "alibaba:25.05-py3", "-v", "a b", "x;rm -rf", "/shared/a,b.sqsh", "UPPER:x"],
)
def test_no_name_of_an_image(text: str) -> None:
    with pytest.raises(RunbookError):
        Image.parse(text)


def test_a_digest_is_not_for_enroot_and_a_port_is_warned_of() -> None:
    with pytest.raises(RunbookError, match="takes no digest"):
        _ = Image.parse("nvcr.io/nvidia/nemo:26.06@sha256:" + "0" * 64).enroot
    assert "access forbidden" in Image.parse("gitlab.example.com:5005/adlr/x:main").warnings[0]


@given(st.text(max_size=60))
def test_whatever_is_typed_becomes_one_word_or_a_sentence(text: str) -> None:
    try:
        image = Image.parse(text)
    except RunbookError:
        return
    assert not image.name.startswith("-")
    assert shlex.split(shlex.quote(image.name)) == [image.name]
    assert not any(character.isspace() for character in image.name)


def test_alibaba_brings_its_options_and_what_not_to_do() -> None:
    image = Image.parse("alibaba:25.05-serverless")
    words = inside_run.engine_run(inside_run.of(MEGATRON_LM, image, "/c"), Engine("docker"), SHELL)
    assert {"--ipc=host", "--net=host", "--privileged"} <= set(words)
    assert not [it for it in words if it.startswith("--shm-size")]
    told = " ".join(image.warnings)
    assert all(it in told for it in ("Do not reinstall PyTorch", "stage3_prefetch", "CHECKPOINT_OPTIMIZATION=true"))
    assert image.no_uv().startswith("uv work is not done in")
    assert inside_run.demo(SHELL).command == ("ljperf", "benchmark", "--model", "deepspeed/llama3-8b")
    assert Image.parse("megatron-lm:local").no_uv() == ""


# -- on this machine ---------------------------------------------------------------------------------------------


def test_a_session_has_what_the_guides_ask_for() -> None:
    words = inside_run.engine_run(BUILT, Engine("docker", options=("--context=x",)), SHELL)
    assert words[:6] == ("docker", "--context=x", "run", "--rm", "--interactive", "--tty")
    assert {
        "--gpus=all", "--shm-size=24g", "--ulimit=memlock=-1", "--ulimit=stack=67108864",
        "--volume=/home/me/lm:/opt/megatron-lm", "--volume=/home/me/.cache/uv:/opt/uv-cache",
        "--env=UV_CACHE_DIR=/opt/uv-cache", "--workdir=/opt/megatron-lm",
    } <= set(words)  # fmt: skip
    assert words[-2:] == ("megatron-lm:local", "bash")
    assert not [it for it in words if it.startswith("--user")]


def test_what_writes_into_the_checkout_writes_as_the_person() -> None:
    docker = inside_run.engine_run(BUILT, Engine("docker"), LOCK, ME)
    podman = inside_run.engine_run(BUILT, Engine("podman"), LOCK, ME)
    assert "--user=1000:1001" in docker
    assert "--user=0:0" in podman
    assert "--env=HOME=/tmp" in docker
    assert not {"--gpus=all", "--tty", "--shm-size=24g"} & set(docker)
    assert "--device=nvidia.com/gpu=all" in inside_run.engine_run(BUILT, Engine("podman"), SHELL)
    assert docker[-2:] == ("uv", "lock")


def test_what_an_engine_cannot_run_is_refused() -> None:
    with pytest.raises(Refused, match="install docker or podman"):
        inside_run.engine_run(BUILT, Engine("buildah"), SHELL)
    with pytest.raises(Refused, match="is a file"):
        inside_run.engine_run(FILE, Engine("docker"), SHELL)


@pytest.mark.parametrize(
    ("image", "source"),
    [
        ("megatron-lm:local", "docker-daemon:megatron-lm:local"),
        ("nemo:26.06", "docker://nvcr.io/nvidia/nemo:26.06"),
        ("/shared/x.sif", "/shared/x.sif"),
    ],
)
def test_apptainer_has_neither_the_home_nor_the_variables_of_the_person(image: str, source: str) -> None:
    words = inside_run.apptainer_exec(inside_run.of(MEGATRON_LM, Image.parse(image), "/c", "/u"), SHELL)
    assert words[:2] == ("apptainer", "exec")
    assert {"--nv", "--cleanenv", "--no-home", "--bind=/c:/opt/megatron-lm", "--pwd=/opt/megatron-lm"} <= set(words)
    assert words[-2:] == (source, "bash")


@pytest.mark.parametrize("path", ["relative", "/a:b", "/a,b", "/a\nb", "/a\x1b[31m"])
def test_a_path_that_would_be_two_mounts_is_refused(path: str) -> None:
    with pytest.raises(Refused, match="cannot be mounted"):
        inside_run.of(MEGATRON_LM, Image.parse("x:local"), path)


def test_a_work_tree_brings_the_git_directory_that_it_names() -> None:
    image = Image.parse("x:local")
    assert inside_run.of(MEGATRON_LM, image, "/c", git="/c/.git").mounts == ()
    assert inside_run.of(MEGATRON_LM, image, "/c", git="/main/.git").mounts == (("/main/.git", "/main/.git"),)
    assert inside_run.of(ML_CONTAINERS, image, "/c").inside == "/opt/ml-containers"


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), min_size=1, max_size=5))
def test_hostile_words_stay_words(words: list[str]) -> None:
    step = Step("x", tuple(word.replace("\x00", "") for word in words), "container", "Why.")
    made = inside_run.engine_run(BUILT, Engine("docker"), step, ME)
    assert tuple(shlex.split(task.line(made))) == made
    said = subprocess.run(["sh", "-c", f"printf '%s\\0' {task.folded(made)}"], capture_output=True, check=True).stdout
    assert said == b"".join(word.encode() + b"\0" for word in made)


# -- on a cluster ------------------------------------------------------------------------------------------------


def test_a_session_on_slurm() -> None:
    allocation = Allocation(2, 4, "team", "batch", "4:00:00")
    words = pyxis.srun(FILE, allocation, SHELL, BRIDGE)
    assert words[:3] == ("srun", "--nodes=2", "--ntasks-per-node=1")
    assert {
        "--gpus-per-node=4", "--account=team", "--partition=batch", "--time=4:00:00", "--mpi=pmix", "--pty",
        "--container-image=/shared/bridge.sqsh", "--no-container-mount-home",
        "--container-workdir=/opt/Megatron-Bridge",
        "--container-mounts=/shared/bridge:/opt/Megatron-Bridge,/shared/cache:/opt/uv-cache",
    } <= set(words)  # fmt: skip
    inner = words[words.index("env") :]
    assert inner[1] == "UV_CACHE_DIR=/opt/uv-cache"
    assert inner[-1] == "bash"
    assert "--mpi=pmix" not in pyxis.srun(FILE, allocation, SHELL, LM)
    with pytest.raises(RunbookError, match="Docker Hub"):
        pyxis.srun(BUILT, allocation, SHELL, LM)


@pytest.mark.parametrize(
    "wrong", [{"account": "a b"}, {"partition": "-x"}, {"time": "soon"}, {"nodes": 0}, {"gpus": -1}, {"account": "a;b"}]
)
def test_what_slurm_cannot_take(wrong: dict[str, object]) -> None:
    with pytest.raises(RunbookError):
        Allocation(**wrong)  # type: ignore[arg-type]


def test_the_environment_is_synced_once_under_a_lock_by_one_task() -> None:
    step = pyxis.sync_once(FILE, ("--all-extras",))
    assert not step.gpus
    words = pyxis.srun(FILE, Allocation(1, 8), step, BRIDGE)
    assert not [it for it in words if it.startswith("--gpus")]
    assert "UV_PROJECT_ENVIRONMENT=/opt/Megatron-Bridge/.venv" in words
    assert words[-2:] == ("--locked", "--all-extras")
    assert "flock" in " ".join(words)
    assert "--locked" not in pyxis.sync_once(FILE, (), locked=False).command
    shell = pyxis.session(SHELL, FILE, shared=True)
    assert dict(shell.env) == {"UV_PROJECT_ENVIRONMENT": "/opt/Megatron-Bridge/.venv"}
    assert "uv run --no-sync" in shell.why
    with pytest.raises(Refused, match="cache"):
        pyxis.sync_once(inside_run.of(MEGATRON_LM, BUILT.image, "/c"), ())


def test_an_import_is_made_once_and_never_half() -> None:
    identity = "sha256:0123456789abcdef"
    path, steps = pyxis.imported(BUILT.image, "/shared/", identity, Engine("docker"), there=False)
    assert path == "/shared/megatron-lm-local-0123456789ab.sqsh"
    assert [it.command[0] for it in steps] == ["rm", "enroot", "mv"]
    assert steps[1].command == ("enroot", "import", "--output", f"{path}.part", "dockerd://megatron-lm:local")
    assert steps[2].command == ("mv", "--", f"{path}.part", path)
    assert pyxis.imported(BUILT.image, "/shared", identity, Engine("docker"), there=True) == (path, ())
    podman = pyxis.imported(BUILT.image, "/shared", identity, Engine("podman"), there=False)[1]
    assert podman[1].command[-1] == "podman://megatron-lm:local"
    nemo = Image.parse("nemo:26.06")
    file, none = pyxis.imported(nemo, "/s", "", None, there=True)
    assert (re.sub("[0-9a-f]{12}", "*", file), none) == ("/s/nemo-26.06-*.sqsh", ())
    assert pyxis.imported(nemo, "/s", "", None, there=False)[1][1].command[-1] == ("docker://nvcr.io#nvidia/nemo:26.06")
    with pytest.raises(Refused, match="a file already"):
        pyxis.imported(FILE.image, "/s", "", None, there=False)


def test_an_image_that_moves_is_imported_again_where_its_id_is_not_known() -> None:
    for name in ("megatron-lm:local", "megatron-lm:mine", "nvcr.io/nvidia/nemo:nightly", "nvcr.io/nvidia/pytorch"):
        assert pyxis.imported(Image.parse(name), "/s", "", None, there=True)[1]
    assert pyxis.built_sif(BUILT.image, "/s", "sha256:ff", there=True) == ("/s/megatron-lm-local-ff.sif", ())
    sif = pyxis.built_sif(BUILT.image, "/s", "", there=False)[1]
    assert sif[1].command[-1] == "docker-daemon:megatron-lm:local"


def test_images_of_one_name_and_two_registries_have_two_files() -> None:
    names = ("nvcr.io/nvidia/pytorch:26.04-py3", "registry.example.com/team/pytorch:26.04-py3")
    files = {inspected(Image.parse(it), "") for it in (*names, *names)}
    assert len(files) == 2


@given(st.text(max_size=80))
def test_the_name_of_an_images_file_is_one_name(text: str) -> None:
    name = inspected(Image(text, "other"), "sha256:abc")
    assert "/" not in name
    assert not name.startswith((".", "-"))
    assert name.endswith(".sqsh")


# -- places ------------------------------------------------------------------------------------------------------


def test_each_place_reads_a_step_in_its_own_way() -> None:
    host = Step("Commit", ("git", "commit"), "host", "Why.")

    def first(name: str, step: Step, container: inside_run.Container = FILE) -> str:
        return Place(name, container, ME, BRIDGE, Allocation()).words(step)[0]  # type: ignore[arg-type]

    assert [first(name, host) for name in target.PLACES] == ["git"] * 5
    assert first("inside", LOCK) == "uv"
    assert first("local", LOCK, BUILT) == "docker"
    assert first("slurm", LOCK) == "srun"
    assert first("apptainer", LOCK) == "apptainer"
    marked = Step("x", ("bash",), "container", "Why.", env=(("A", "b c"),))
    assert Place("inside", FILE, ME, BRIDGE, Allocation()).words(marked) == ("env", "A=b c", "bash")
    local = Place("local", BUILT, ME, LM, Allocation())
    alibaba = Place("local", inside_run.of(MEGATRON_LM, Image.parse("alibaba:25.05"), "/c"), ME, LM, Allocation())
    assert "--user=1000:1001" in local.words(LOCK)
    assert not [it for it in (*local.words(SHELL), *alibaba.words(LOCK)) if it.startswith("--user")]
    assert local.where(LOCK) == "inside megatron-lm:local, a container of docker or podman on this machine"
    assert local.where(host) == "on this machine, in the checkout"


# -- unit tests --------------------------------------------------------------------------------------------------

FILES = frozenset({
    "tests/unit_tests/test_utils.py", "tests/unit_tests/transformer/moe/test_router.py", "tests/unit_tests/__init__.py",
    "tests/unit_tests/Launch_Unit_Tests_Core.sh",
})  # fmt: skip
BUCKETS = (
    Bucket("tests/unit_tests/**/*.py", "dgx_h100", 8, ("lts", "dev")),
    Bucket("tests/unit_tests/transformer/**/*.py", "dgx_h100", 8, ("dev",)),
    Bucket("tests/unit_tests/transformer/moe/**/*.py", "dgx_h100", 8, ("lts", "dev")),
    Bucket("tests/unit_tests/rl/", "dgx_gb200", 4, ("dev",)),
)


def test_a_bucket_is_run_by_the_script_of_ci() -> None:
    (step,) = unit_tests.plan("tests/unit_tests/transformer/**/*.py", LM, BUCKETS, FILES, "dev")
    assert step.command[:2] == ("bash", "tests/unit_tests/run_ci_test.sh")
    assert step.command[2:8] == ("--tag", "latest", "--environment", "dev", "--bucket", BUCKETS[1].name)
    assert ("GPUS_PER_NODE", "8") in step.env
    assert "--platform" not in step.command
    (gb200,) = unit_tests.plan("tests/unit_tests/rl/", LM, BUCKETS, FILES, "dev")
    assert gb200.command[8:10] == ("--platform", "gb200")
    assert gb200.env == (("GPUS_PER_NODE", "4"),)
    with pytest.raises(RunbookError, match="only for dev"):
        unit_tests.plan("tests/unit_tests/transformer/**/*.py", LM, BUCKETS, FILES, "lts")


@pytest.mark.parametrize(
    ("tests", "last"),
    [
        ("", ("tests/unit_tests",)),
        ("tests/unit_tests/test_utils.py", ("tests/unit_tests/test_utils.py",)),
        ("tests/unit_tests/test_utils.py::TestIt::test_x", ("tests/unit_tests/test_utils.py::TestIt::test_x",)),
        ("tests/unit_tests/transformer", ("tests/unit_tests/transformer",)),
        ("optimizer and not moe", ("tests/unit_tests", "-k", "optimizer and not moe")),
        ("$(rm -rf ~)", ("tests/unit_tests", "-k", "$(rm -rf ~)")),
    ],
)
def test_a_file_a_test_or_a_name_is_run_by_one_group_of_processes(tests: str, last: tuple[str, ...]) -> None:
    (step,) = unit_tests.plan(tests, LM, BUCKETS, FILES, "dev", 4)
    head = ("uv", "run", "--no-sync", "python", "-m", "torch.distributed.run", "--nproc-per-node=4")
    assert step.command[: len(head)] == head
    assert step.command[-len(last) :] == last
    assert step.gpus


def test_the_bucket_in_which_ci_runs_a_file_is_named() -> None:
    path = "tests/unit_tests/transformer/moe/test_router.py"
    assert unit_tests.bucket_of(path, BUCKETS) == "tests/unit_tests/transformer/moe/**/*.py"
    assert unit_tests.bucket_of("tests/unit_tests/test_utils.py", BUCKETS) == "tests/unit_tests/**/*.py"
    assert unit_tests.bucket_of("tests/unit_tests/transformers.py", BUCKETS[1:]) == ""
    (step,) = unit_tests.plan(path, LM, BUCKETS, FILES, "dev")
    assert "in the bucket tests/unit_tests/transformer/moe/**/*.py" in step.why


@pytest.mark.parametrize("tests", ["tests/unit_tests/test_util.py", "-k x", "a\nb", "tests/gone/", "test_utils.p.py"])
def test_tests_that_do_not_exist(tests: str) -> None:
    with pytest.raises(RunbookError):
        unit_tests.plan(tests, LM, BUCKETS, FILES, "dev")
    with pytest.raises(RunbookError, match=r"Did you mean tests/unit_tests/test_utils\.py"):
        unit_tests.plan("tests/unit_tests/test_util.py", LM, BUCKETS, FILES, "dev")


def test_megatron_bridge_has_scripts_for_buckets() -> None:
    (step,) = unit_tests.plan("core", BRIDGE, (), FILES, "dev")
    assert step.command == ("bash", "tests/unit_tests/Launch_Unit_Tests_Core.sh")
    assert dict(step.env) == {"SHARD_ID": "0", "NUM_SHARDS": "1"}
    (one,) = unit_tests.plan("tests/unit_tests/test_utils.py", BRIDGE, (), FILES, "dev")
    assert one.command[-3:] == ("-m", "not pleasefixme", "tests/unit_tests/test_utils.py")
    assert "torch.distributed.run" not in one.command
