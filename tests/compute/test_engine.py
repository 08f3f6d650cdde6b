"""Which engine works, and a program in an image, by stand-ins."""

from pathlib import Path

import pytest
from stand_ins import stand_in

from runbook_lib.compute import engine
from runbook_lib.errors import CannotTell, RunbookError

DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program but those that stand in for it."""
    monkeypatch.setenv("PATH", str(tmp_path))


def says(text: str, status: int = 1) -> str:
    return f"echo '{text}' >&2; exit {status}"


@pytest.mark.parametrize(
    ("name", "script", "told"),
    [
        ("docker", says(DENIED), "docker is installed, but you may not use it: get yourself added to the group docker"),
        ("docker", says(DAEMON), "docker is installed, but its daemon is not running: start it (`systemctl start doc"),
        ("podman", says("cannot set up"), "podman is installed, but does not work. Its last output: cannot set up."),
        ("podman", "exit 3", "podman is installed, but does not work. Its last output: none."),
        ("other", "", "docker is not installed. podman is not installed. buildah is not installed."),
    ],
)
def test_an_engine_that_does_not_work_is_explained(tmp_path, name, script, told):
    stand_in(tmp_path, name, script)
    with pytest.raises(RunbookError) as raised:
        engine.find(name.replace("other", ""))
    assert told in str(raised.value)
    assert "Nothing was built." in str(raised.value)


def test_the_first_that_works_is_taken(tmp_path):
    stand_in(tmp_path, "docker", says(DAEMON))
    stand_in(tmp_path, "podman", "echo 5.0.0")
    stand_in(tmp_path, "buildah", "echo buildah version 1.33.7")
    assert engine.find() == "podman"
    assert engine.find("buildah") == "buildah"
    with pytest.raises(RunbookError, match="daemon is not running"):
        engine.find("docker")


def test_a_program_in_an_image_has_a_time_limit_and_nothing_is_left_of_it(tmp_path):
    stand_in(tmp_path, "docker", f'echo "$*" >> {tmp_path}/asked; [ $1 = rm ] || exec /bin/sleep 600')
    with pytest.raises(CannotTell, match="longer than 0 seconds"):
        engine.inside("docker", "x:local", ["sh"], 0.3)
    run, remove = (tmp_path / "asked").read_text().splitlines()
    name = run.split("--name=")[1].split()[0]
    assert remove == f"rm --force {name}"


def test_output_lost_by_an_engine_is_requested_again(tmp_path):
    stand_in(
        tmp_path, "buildah",
        f'case "$1" in from) echo c;; run) if [ -e {tmp_path}/ran ]; then echo said; fi; : >>{tmp_path}/ran;; esac',
    )  # fmt: skip
    assert engine.inside("buildah", "x:local", ["sh"], 5) == "said\n"
