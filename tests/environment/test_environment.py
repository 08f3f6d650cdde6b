"""Tests of environment/run and related files that need no network.  .ci/run performs a real installation."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import hostile_folder
import pytest
from small_runbooks import notebook
from stand_ins import stand_in

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "environment"
# With these, tests do not need the machine's own Pythons.
TOOLS = ("sh", "cat", "cmp", "echo", "env", "readlink", "true")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that environment/run needs, in a folder with a space, without an environment."""
    place = tmp_path / "a checkout"
    shutil.copytree(ENVIRONMENT, place / "environment", ignore=shutil.ignore_patterns(".*"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH without any Python, where tests put fake ones."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(str(shutil.which(tool)))
    return folder


def install(checkout: Path) -> None:
    """Make the checkout look like one with a complete environment."""
    environment = checkout / "environment"
    (environment / ".venv/bin").mkdir(parents=True)
    (environment / ".venv/bin/python").symlink_to(sys.executable)
    sources = (environment / "uv.txt", environment / "requirements.txt", checkout / "pyproject.toml")
    content = f"{checkout}\n" + "".join(source.read_text() for source in sources)
    (environment / ".venv/installed").write_text(content)


def run(command: Path | str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    options = {"input": "", **options}
    return subprocess.run([command, *arguments], text=True, capture_output=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_a_complete_environment_is_used_silently(checkout: Path, tools: Path, tmp_path: Path) -> None:
    """No Python is started, which would take longer than everything else."""
    install(checkout)
    command = (checkout / "environment/run", "sh", "-c", "pwd; cat; exit 7")
    done = run(*command, cwd=tmp_path, input="given", env={"PATH": str(tools), "PWD": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (7, f"{tmp_path}\ngiven", "")


def test_a_missing_command_is_reported_with_the_available_ones(checkout: Path, tools: Path) -> None:
    install(checkout)
    done = run(checkout / "environment/run", "runbok", env={"PATH": f"{tools}:/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (127, "")
    assert "runbok" in done.stderr
    assert "papermill, runbook, jupyter" in done.stderr


def test_it_works_through_links_and_from_another_folder(checkout: Path, tmp_path: Path) -> None:
    install(checkout)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/second").symlink_to("../a checkout/environment/run")
    (tmp_path / "bin/first").symlink_to("second")
    (tmp_path / "elsewhere/bin").mkdir(parents=True)
    (tmp_path / "elsewhere/a checkout/environment").mkdir(parents=True)
    away = {**os.environ, "CDPATH": str(tmp_path / "elsewhere")}
    done = run("bin/first", "sh", "-c", 'echo "$VIRTUAL_ENV"; pwd', cwd=tmp_path, env=away)
    assert (done.stdout, done.stderr) == (f"{checkout}/environment/.venv\n{tmp_path}\n", "")


def test_the_users_python_settings_are_ignored(checkout: Path) -> None:
    install(checkout)
    mine = {"PYTHONPATH": "/mine", "PYTHONHOME": "/mine", "JUPYTER_CONFIG_PATH": "/my/jupyter"}
    done = run(checkout / "environment/run", "env", env={**os.environ, **mine})
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    environment = checkout / "environment"
    assert seen["PATH"].split(":")[:2] == [str(environment / "bin"), str(environment / ".venv/bin")]
    assert seen["VIRTUAL_ENV"] == str(environment / ".venv")
    assert seen["PYTHONNOUSERSITE"] == "1"
    assert seen["JUPYTER_CONFIG_PATH"] == f"{environment}/jupyter:/my/jupyter"
    assert not {"PYTHONPATH", "PYTHONHOME"} & seen.keys()


@pytest.fixture
def inside(checkout: Path) -> Path:
    """A checkout's environment/run, whose environment has the packages of the one that runs the tests."""
    install(checkout)
    programs = checkout / "environment/.venv/bin"
    (programs / "python").unlink()
    for name in ("python", "runbook", "jupyter"):
        stand_in(programs, name, f'exec "{sys.prefix}/bin/{name}" "$@"')
    return checkout / "environment/run"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("runbook", "check", "."), (0, 1, 2)),
        (("runbook", "--version"), (0,)),
        (("python", "-m", "runbook_lib.notebook.papermill", "--version"), (0,)),
        (("python3", "-m", "runbook_lib.cli", "--version"), (0,)),
        (("python", "-c", "import yaml, runbook_lib, IPython, matplotlib"), (0,)),
        (("python", "-"), (0,)),
        (("papermill", "--version"), (0,)),
        (("papermill", "NOTEBOOK", "out.ipynb", "--cwd", "."), (0,)),
        (("jupyter", "lab", "--version"), (0,)),
        (("jupyter", "--paths"), (0,)),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
@pytest.mark.slow
def test_nothing_is_run_or_imported_from_the_current_folder(
    inside: Path, tmp_path: Path, command: tuple[str, ...], status: tuple[int, ...]
) -> None:
    folder = tmp_path / "their clone"
    marker = hostile_folder.fill(folder)
    run("git", "init", "--quiet", str(folder))
    book = notebook(
        tmp_path / "book.ipynb", "import yaml, runbook_lib.text.redact", "step.conclude('done', Outcome('Done.'))"
    )
    words = [str(book) if word == "NOTEBOOK" else word for word in command]
    theirs = {"PATH": f":.:{os.environ['PATH']}:", "PYTHONSTARTUP": "yaml.py", "RUNBOOK_AUDIT": str(tmp_path / "audit")}
    done = run(inside, *words, cwd=folder, env={**os.environ, **theirs})
    assert not marker.exists(), marker.read_text()
    assert done.returncode in status, done.stderr


def test_papermill_is_the_command_that_keeps_records(checkout: Path, tmp_path: Path) -> None:
    install(checkout)
    stand_in(checkout / "environment/.venv/bin", "papermill", "echo papermill itself")
    (checkout / "environment/.venv/bin/python").unlink()
    stand_in(checkout / "environment/.venv/bin", "python", 'echo "$@"')
    done = run(checkout / "environment/run", "papermill", "a b.ipynb", "-p", "tag", "26.04-py3", cwd=tmp_path)
    assert done.stdout == "-P -m runbook_lib.notebook.papermill a b.ipynb -p tag 26.04-py3\n"


def changed(name: str) -> Callable[[Path], Path]:
    def change(checkout: Path) -> Path:
        with (checkout / name).open("a") as file:
            file.write("\n# changed\n")
        return checkout

    return change


def without_its_python(checkout: Path) -> Path:
    python = checkout / "environment/.venv/bin/python"
    python.unlink()
    python.symlink_to("/removed/by/an/upgrade/python3")
    return checkout


OUTDATED: dict[str, Callable[[Path], Path]] = {
    "another uv": changed("environment/uv.txt"),
    "other packages": changed("environment/requirements.txt"),
    "another project": changed("pyproject.toml"),
    "moved": lambda checkout: checkout.rename(checkout.with_name("moved")),
    "without its Python": without_its_python,
}


@pytest.mark.parametrize("kind", OUTDATED)
def test_an_outdated_environment_is_built_again(checkout: Path, tools: Path, kind: str) -> None:
    install(checkout)
    stand_in(tools, "python3", 'case $1$2 in -I-c) ;; *) echo "building" >&2; exit 125 ;; esac')
    place = OUTDATED[kind](checkout)
    done = run(place / "environment/run", "echo", "started", env={"PATH": str(tools)})
    assert (done.returncode, done.stdout, done.stderr) == (125, "", "building\n")


_BUILDS = 'case $1$2 in -I-c) ;; *) echo "building with {}" >&2; exit 125 ;; esac'


@pytest.mark.parametrize(
    ("pythons", "said"),
    [
        ({}, "no working python3"),
        ({"python3": 'case $1 in --version) echo "Python 3.9.18" ;; *) exit 1 ;; esac'}, "Python 3.9.18"),
        (
            {"python3.12": "case $3 in *ensurepip*) exit 1 ;; *print*) echo 3.12 ;; esac"},
            "apt-get install python3.12-venv",
        ),
        # A version manager's shim, behind which there is none.
        (
            {"python3": "exit 127", "python3.13": _BUILDS.format(3.13), "python3.11": _BUILDS.format(3.11)},
            "building with 3.13",
        ),
    ],
)
def test_the_newest_python_that_will_do_is_taken(
    checkout: Path, tools: Path, pythons: dict[str, str], said: str
) -> None:
    for name, script in pythons.items():
        stand_in(tools, name, script)
    done = run(checkout / "environment/run", "true", env={"PATH": str(tools)})
    assert (done.returncode, said in done.stderr) == (125, True), done.stderr
    assert not (checkout / "environment/.venv").exists()


def test_a_second_start_waits_for_the_first(checkout: Path, tools: Path) -> None:
    stand_in(tools, "python3", f'exec "{sys.executable}" "$@"')
    with (checkout / "environment/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [checkout / "environment/run", "echo", "started"],
            env={"PATH": str(tools)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        assert "environment/run: Waiting" in second.stderr.readline()
        install(checkout)
    assert second.communicate(timeout=200) == ("started\n", "")


def test_a_checkout_that_cannot_be_written(checkout: Path, tools: Path) -> None:
    stand_in(tools, "python3", f'exec "{sys.executable}" "$@"')
    (checkout / "environment/.lock").mkdir()
    done = run(checkout / "environment/run", "true", env={"PATH": str(tools)})
    assert done.returncode == 125
    assert "The environment could not be built in" in done.stderr


def test_the_hook_needs_only_the_core_dependencies(tmp_path: Path) -> None:
    """The pre-commit hook of `runbook check` is installed without the extra `runbooks`."""
    program = """if True:
        import sys
        class CoreOnly:
            def find_spec(self, name, path=None, target=None):
                top = name.partition(".")[0]
                if top not in {*sys.stdlib_module_names, "click", "yaml", "_yaml", "runbook_lib"}:
                    raise ModuleNotFoundError(f"{top} is no core dependency")
        sys.meta_path.insert(0, CoreOnly())
        from runbook_lib.cli.__main__ import main
        sys.exit(main(["check", sys.argv[1]]))
    """
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/.ngc_version.dev").write_text("nvcr.io/nvidia/pytorch:26.04-py3\n")
    run("git", "init", "--quiet", str(tmp_path))
    done = run(sys.executable, "-c", program, str(tmp_path))
    assert "core dependency" not in done.stderr
    assert done.returncode in (0, 1, 2), done.stderr


def test_jupyterlab_knows_every_setting() -> None:
    schemas = Path(sysconfig.get_path("data"), "share/jupyter/lab/schemas")
    overrides = json.loads((ENVIRONMENT / "jupyter/labconfig/default_setting_overrides.json").read_text())
    for plugin, settings in overrides.items():
        package, _, name = plugin.partition(":")
        known = json.loads((schemas / package / f"{name}.json").read_text())["properties"]
        assert settings.keys() <= known.keys(), plugin


GUARDED = """
import os, socket, subprocess, urllib.request
from contextlib import suppress
import pytest

def test_a_connection():
    with suppress(OSError):
        socket.create_connection(("192.0.2.1", 80))

def test_a_name():
    with suppress(OSError):
        socket.getaddrinfo("example.org", 80)

def test_a_client_that_knows_proxies():
    with suppress(OSError):
        urllib.request.urlopen("http://example.org")

def test_passes_as_a_child_process_reaches_nobody():
    assert subprocess.run(["git", "ls-remote", "https://example.org/x.git"], capture_output=True).returncode
    os.environ["LEAK"] = "1"

def test_passes_with_an_environment_of_its_own():
    assert not {"LEAK", "GITHUB_TOKEN", "XDG_STATE_HOME"} & os.environ.keys()

@pytest.mark.component("absent")
def test_a_component():
    raise AssertionError("ran without its component")
"""


@pytest.mark.parametrize(("ci", "others"), [("", {"error": 3, "skipped": 1}), ("true", {"error": 4})])
@pytest.mark.slow
def test_tests_cannot_reach_the_network(tmp_path: Path, ci: str, others: dict[str, int]) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests")
    (tmp_path / "tests/test_guarded.py").write_text(GUARDED)
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/components.txt").write_text("absent | no-such-command | apt | no-such-package\n")
    secrets = {
        "GITHUB_TOKEN": "hush",
        "XDG_STATE_HOME": "/home/me/state",
        "CI": ci,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "tests")
    done = run(sys.executable, *command, cwd=tmp_path, env={**os.environ, **secrets})
    (summary,) = [line for line in done.stdout.splitlines() if " passed" in line]
    counts = re.findall(r"(\d+) (passed|failed|skipped|error)", summary)
    # Failures before or after a test are errors.
    assert {outcome: int(number) for number, outcome in counts} == {"passed": 5, **others}, done.stdout
