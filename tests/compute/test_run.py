"""Which engine works, and what docker prints, by stand-ins: no engine at all first."""

import os
from pathlib import Path

import pytest

from runbook_lib.compute import engine as container
from runbook_lib.compute.engine import BuildCommand, BuildPlan, Engine
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.system import subprocess_lines

DOCKERFILE = "ARG BASE\nFROM ${BASE} AS main\nRUN make\n"
PLAN = BuildPlan("x", BuildCommand("Dockerfile", "main", (("BASE", "b:1"),), "x:local", "linux/amd64"), "b:1", "pin:1")
DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"


def stand_in(folder: Path, name: str, script: str) -> dict[str, str]:
    """A program of that name that is alone on PATH, but for what a shell needs."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return {"PATH": str(folder), "HOME": str(folder)}


def says(text: str, status: int = 1) -> str:
    return f"echo '{text}' >&2; exit {status}"


def test_no_engine_at_all(tmp_path):
    with pytest.raises(RunbookError) as raised:
        container.find("", {"PATH": str(tmp_path)})
    assert str(raised.value).startswith(
        "No engine for images works here. docker is not installed. podman is not installed. buildah is not installed. "
    )


@pytest.mark.parametrize(
    ("name", "script", "told"),
    [
        (
            "docker",
            says(DENIED),
            "docker is installed, but you may not use it: get yourself added to the group docker",
        ),
        (
            "docker",
            says(DAEMON),
            "docker is installed, but its daemon is not running: start it (`systemctl start docker`).",
        ),
        (
            "podman",
            says("cannot set up namespace using newuidmap"),
            "podman is installed, but does not work. Its last output: cannot",
        ),
        ("podman", "exit 3", "podman is installed, but does not work. Its last output: none."),
        (
            "buildah",
            says("kernel does not support overlay fs"),
            "buildah is installed, but does not work. Its last output: kernel",
        ),
        ("docker", "kill -9 $$", "docker is installed, but does not work. Its last output: none."),
    ],
)
def test_an_engine_that_does_not_work_is_explained(tmp_path, name, script, told):
    with pytest.raises(RunbookError) as raised:
        container.find(name, stand_in(tmp_path, name, script))
    assert told in str(raised.value)
    assert "Nothing was built." in str(raised.value)


@pytest.mark.parametrize(
    ("name", "script", "version"),
    [
        ("docker", "echo 28.2.2", (28, 2, 2)),
        ("podman", "echo 4.9.4-rhel", (4, 9, 4)),
        ("buildah", "echo buildah version 1.33.7 '(image-spec 1.1.0)'", (1, 33, 7)),
        ("docker", "echo something else", ()),
    ],
)
def test_an_engine_that_works_has_its_version(tmp_path, name, script, version):
    assert container.find("", stand_in(tmp_path, name, script)) == Engine(name, version)


def test_the_first_that_works_is_taken(tmp_path):
    stand_in(tmp_path, "docker", says(DAEMON))
    stand_in(tmp_path, "podman", "echo 5.0.0")
    env = stand_in(tmp_path, "buildah", "echo buildah version 1.33.7")
    assert container.find("", env).name == "podman"
    assert container.find("buildah", env).name == "buildah"
    with pytest.raises(RunbookError, match="daemon is not running"):
        container.find("docker", env)


# -- docker, by a stand-in -------------------------------------------------------------------------------------------

PROGRESS = """\
echo '#4 [main 1/2] FROM b:1'
echo '#4 DONE 0.1s'
echo '#5 [main 2/2] RUN make'
"""


def docker(folder: Path, script: str, env: dict[str, str] | None = None) -> tuple[container.BuildResult, list[str]]:
    (folder / "Dockerfile").write_text(DOCKERFILE)
    answer = f'if [ "$1 $2" = "image inspect" ]; then cat {folder}/id; exit; fi'
    given = {**stand_in(folder / "bin", "docker", f"{answer}\n{script}"), **(env or {})}
    given["PATH"] += f":{os.environ['PATH']}"
    said: list[str] = []
    done = container.build(PLAN, Engine("docker", (28,)), folder, folder / "log", said.append, given)
    return done, said


def test_docker_builds_with_progress(tmp_path):
    done, said = docker(tmp_path, f"{PROGRESS}printf sha256:0123 > {tmp_path}/id")
    assert (done.image, done.steps, done.failure) == ("sha256:0123", 2, None)
    assert said == ["[main 1/2] FROM b:1", "[main 2/2] RUN make"]
    assert (tmp_path / "log").read_text().splitlines()[1] == "#4 [main 1/2] FROM b:1"


def test_docker_that_fails_is_explained(tmp_path):
    told = "#5 1.0 c++: fatal error: Killed signal terminated program cc1plus"
    done, _ = docker(tmp_path, f"{PROGRESS}echo '{told}'; echo '#5 ERROR: exit code: 2'; exit 1")
    assert done.failure is not None
    assert done.failure.sentence == "The build failed with exit status 2 at [main 2/2] RUN make."
    assert [it.sign for it in done.failure.pitfalls] == ["A process was killed."]


def test_docker_that_keeps_the_image_elsewhere_has_not_built_one_here(tmp_path):
    done, _ = docker(tmp_path, PROGRESS)
    assert (done.image, done.failure is not None) == ("", True)
    assert "cannot find x:local: its builder stores images elsewhere" in done.failure.sentence


def test_docker_without_any_output(tmp_path):
    done, said = docker(tmp_path, "exit 1")
    assert said == []
    assert done.failure is not None
    assert done.failure.sentence == "The build failed before the first instruction."


def test_secrets_of_the_environment_are_not_in_the_log(tmp_path):
    done, _ = docker(tmp_path, "echo token $MY_TOKEN; exit 1", {"MY_TOKEN": "correct-horse-battery"})
    assert (tmp_path / "log").read_text().splitlines()[1:] == ["token ***"]
    assert done.failure is not None
    assert done.failure.lines == ("token ***",)


def test_a_log_without_line_ends_or_of_any_bytes_is_taken(tmp_path):
    done, _ = docker(tmp_path, "head -c 300000 /dev/zero | tr '\\0' x; printf '\\377\\376'; exit 1")
    assert done.failure is not None
    assert (tmp_path / "log").stat().st_size >= 300_000


@pytest.mark.slow
def test_an_endless_logs_beginning_and_end_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess_lines, "LOG_HEAD", 1000)
    monkeypatch.setattr(subprocess_lines, "LOG_TAIL", 10)
    docker(tmp_path, "seq 100000 | sed 's/^/line /'; exit 1")
    kept = (tmp_path / "log").read_text().splitlines()
    assert kept[1] == "line 1"
    assert kept[-1] == "line 100000"
    assert len(kept) < 150
    left = next(line for line in kept if "omitted" in line)
    assert f"[… {100_001 - len(kept)} lines omitted]" == left


def test_a_killed_engines_leftovers_do_not_delay_the_build(tmp_path):
    done, _ = docker(tmp_path, "sleep 600 & kill -9 $$")
    assert done.failure is not None
    assert done.failure.sentence.startswith("The build was ended by SIGKILL before the first instruction.")


def test_a_missing_engine_is_reported(tmp_path):
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    with pytest.raises(RunbookError, match="docker is not installed here"):
        container.build(PLAN, Engine("docker"), tmp_path, tmp_path / "log", print, {"PATH": str(tmp_path)})
    with pytest.raises(CannotTell, match="sh could not be run in x:local with docker"):
        container.inside(Engine("docker"), "x:local", ["sh"], 5, {"PATH": str(tmp_path)})


def test_a_log_that_cannot_be_written_ends_the_build(tmp_path):
    (tmp_path / "log").mkdir()
    with pytest.raises(RunbookError, match="could not be written"):
        docker(tmp_path, "sleep 600")


def test_a_program_in_an_image_has_a_time_limit_and_nothing_is_left_of_it(tmp_path):
    env = stand_in(tmp_path / "bin", "docker", f'echo "$*" >> {tmp_path}/asked; [ $1 = rm ] || sleep 600')
    env["PATH"] += f":{os.environ['PATH']}"
    with pytest.raises(CannotTell, match="longer than 0 seconds"):
        container.inside(Engine("docker"), "x:local", ["sh"], 0.3, env)
    run, remove = (tmp_path / "asked").read_text().splitlines()
    name = run.split("--name=")[1].split()[0]
    assert remove == f"rm --force {name}"


def test_output_lost_by_an_engine_is_requested_again(tmp_path):
    env = stand_in(
        tmp_path, "buildah",
        f'case "$1" in from) echo c;; run) if [ -e {tmp_path}/ran ]; then echo said; fi; : >>{tmp_path}/ran;; esac',
    )  # fmt: skip
    assert container.inside(Engine("buildah"), "x:local", ["sh"], 5, env) == "said\n"
