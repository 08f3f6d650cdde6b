"""What every test gets: a home, an environment and signals of its own, and no network but loopback."""

import ipaddress
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from bumping import World
    from slurm_cluster import Cluster

    from runbook_lib.practice.world import PracticeWorld

ROOT = Path(__file__).resolve().parents[1]

# Of the variables that a person or a CI service has set, a test sees these alone.
_KEPT = {
    *("PATH", "TMPDIR", "USER", "LOGNAME", "LD_LIBRARY_PATH", "CI"),
    *("MEGATRON_LM", "MEGATRON_BRIDGE", "ML_CONTAINERS", "PYTORCH_TEST_INFRA", "REPLAY_ALL", "SHOTS", "PLANT_ALL"),
}
_KEPT_PREFIXES = ("PYTEST_", "COVERAGE_")
_GIT_CONFIG = """\
[user]
    name = Ada Tester
    email = ada@example.org
[init]
    defaultBranch = main
[gc]
    auto = 0
[maintenance]
    auto = false
[core]
    fsync = none
[safe]
    directory = *
"""

# deadline: how long one example takes says more about the machine than about the code.
hypothesis.settings.register_profile("default", deadline=None, max_examples=25)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")

#: Folders of tests of which each takes long.
_SLOW_FOLDERS = ("browser", "replay", "trust")
_NOBODY = "127.0.0.255"
#: Other kinds of socket cannot leave the machine.
_INTERNET = (socket.AF_INET, socket.AF_INET6)
#: What tried to leave the machine during the running test.
_escapes: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Prepare each process (so each worker) before any test module is imported."""
    if _names_no_test(config):
        config.option.markexpr = "not slow"  # handed to the workers, which are told the test paths by name
    os.environ["TMPDIR"] = tempfile.tempdir = os.path.realpath(tempfile.gettempdir())
    home = Path(tempfile.mkdtemp(prefix="runbook-tests-"))
    (home / ".gitconfig").write_text(_GIT_CONFIG)
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))

    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(_KEPT_PREFIXES):
            del os.environ[name]
    # Of this environment also where pytest was not started by environment/run.
    programs = [str(ROOT / "environment/bin"), str(Path(sys.prefix, "bin")), *os.environ["PATH"].split(":")]
    os.environ.update(
        HOME=str(home),
        PATH=":".join(dict.fromkeys(programs)),
        VIRTUAL_ENV=sys.prefix,
        PYTHONNOUSERSITE="1",
        JUPYTER_PREFER_ENV_PATH="1",
        GIT_CONFIG_NOSYSTEM="1",
        LANG="C.UTF-8",
        TZ="UTC",
        # Nothing answers there, so no child process leaves the machine either.
        # One spelling of each, the one that all clients read, so that a test can set another value.
        http_proxy=f"http://{_NOBODY}:9",
        HTTPS_PROXY=f"http://{_NOBODY}:9",
        NO_PROXY="127.0.0.1,localhost,::1",
    )
    time.tzset()
    os.fsync = lambda _: None  # no test outlives a power failure
    os.umask(0o022)
    _restore_signals()
    sys.addaudithook(_watch)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Let one worker more run slow tests, which wait for other processes a part of their time."""
    return (os.cpu_count() or 1) + 1 if config.option.markexpr == "slow" else None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to leave the machine: Python calls this audit hook."""
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    elif event in ("socket.bind", "socket.connect", "socket.sendto") and arguments[0].family in _INTERNET:
        host = arguments[1][0]
    else:
        return
    if host == _NOBODY or not _is_local(host):
        _escapes.append(f"{event} {host!r}")
        raise PermissionError(f"Tests stay on this machine: {event} {host!r}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no test of a folder of slow ones for the quick tests alone."""
    named = collection_path.parent == ROOT / "tests" and collection_path.name in _SLOW_FOLDERS
    return True if named and config.option.markexpr == "not slow" else None


def _names_no_test(config: pytest.Config) -> bool:
    """Return whether the command names no file, mark or keyword, so that only the quick tests run."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return not (named or config.option.markexpr or config.option.keyword)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print how the other tests are run, as the last line."""
    if config.option.markexpr == "not slow" and not hasattr(config, "workerinput") and not config.option.collectonly:
        print("These were the quick tests. The slow ones: environment/run pytest -m slow")


def _restore_signals() -> None:
    """Unblock all signals, and let the tests' children start with none ignored, as nohup and a background job do.

    A child inherits that a signal is ignored, but no handler: one that does nothing keeps this process as it was.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _is_local(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name is None or name == "localhost":
        return True
    try:
        return ipaddress.ip_address(str(name)).is_loopback
    except ValueError:
        return False


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the runs of a test leave their records."""
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    return tmp_path / "audit"


@pytest.fixture
def practised(archive: Path, monkeypatch: pytest.MonkeyPatch) -> "PracticeWorld":
    """A practice environment in which notebooks run."""
    from runbook_lib.practice.world import open_world

    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(archive.with_name("world")))
    return open_world()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The images of practice, for ``runbook image``."""
    from runbook_lib.practice.registry import PracticeRegistry

    monkeypatch.setattr("runbook_lib.cli.image.ONLINE", SimpleNamespace(registry=PracticeRegistry))


@pytest.fixture
def no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that refuses connections, and is not asked again."""
    monkeypatch.setenv("RUNBOOK_REGISTRY", "http://127.0.0.1:9")
    monkeypatch.setattr("runbook_lib.world.transport.http.PAUSES", ())


@pytest.fixture(autouse=True)
def _confined(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that tried to leave the machine, even if the code under test swallowed the refusal."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    escapes = list(_escapes)
    _escapes.clear()
    assert not escapes, f"This test tried to leave the machine: {'; '.join(escapes)}"


@pytest.fixture(autouse=True)
def _parsed_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parses artifacts and logs in this process, except in the tests of that: another takes 0.3 s to start."""
    if request.path.stem == "test_parser":
        return
    from runbook_lib.world.transport import parser

    running: list[parser.Parser[Any, Any]] = []

    def part(file: parser.SharedFile, start: int, size: int) -> bytes:
        answer = running[-1].part(file.number, start, size)
        if isinstance(answer, Exception):
            raise answer
        file.size, data = answer
        return data

    def ask(self: parser.Parser[Any, Any], items: dict[int, Any], note: Callable[[int, Any], object]) -> str:
        running.append(self)
        for number, item in items.items():
            note(*parser.answer(self.function, number, item))
        running.pop()
        return ""

    # This process has spent seconds on other tests.
    monkeypatch.setattr("runbook_lib.failures.read_logs.SECONDS", float("inf"))
    monkeypatch.setattr(parser.SharedFile, "part", part)
    monkeypatch.setattr(parser.Parser, "_ask", ask)


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts one line in the place of each curve in the tests of steps: drawing it takes as long as a step."""
    if request.path.stem == "test_golden_step" or {"bump", "compute", "failures", "trust"} & {*request.path.parts}:
        from runbook_lib.display import Picture
        from runbook_lib.golden import plots

        for name in ("decision", "values_by_group"):
            monkeypatch.setattr(plots, name, lambda *_: Picture("<svg xmlns='http://www.w3.org/2000/svg'/>", "a curve"))


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new practice repository, to be copied: its remote and its checkout."""
    from bumping import seeded

    folder = tmp_path_factory.mktemp("seeded")
    seeded(folder)
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all attacks, browser and replay tests, and those that need a component."""
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        if folder in _SLOW_FOLDERS or item.get_closest_marker("component"):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips, or in CI fails, a test whose component is not installed."""
    for marker in item.iter_markers("component"):
        if lacking := _lacking(marker.args[0]):
            reason = f"{', '.join(lacking)} not found: environment/components {marker.args[0]} installs it"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def _lacking(component: str) -> list[str]:
    """What the component brings and is not here; see environment/components.txt."""
    environment = ROOT / "environment"
    path = os.environ["PATH"] + ":/usr/sbin"
    for line in (environment / "components.txt").read_text().splitlines():
        name, *columns = (column.strip() for column in line.split("|"))
        if name == component:
            things = columns[0].split()
            return [t for t in things if not ((environment / t).exists() if "/" in t else shutil.which(t, path=path))]
    raise ValueError(f"environment/components.txt lists no component {component!r}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator["World"]:
    """A practice repository with its forge, and no branch of a bump yet."""
    from bumping import world

    with world(tmp_path) as started:
        yield started


@pytest.fixture
def opened(tmp_path: Path) -> Iterator["World"]:
    """The same with the pull request of a bump, as step 3 leaves it."""
    from bumping import World, world

    with world(tmp_path, World.open_pr) as started:
        yield started


@pytest.fixture(scope="module")
def real() -> Iterator["Cluster"]:
    """A real Slurm of two nodes, which forgets ended jobs after an hour."""
    from slurm_cluster import cluster

    with cluster() as started:
        yield started


@pytest.fixture
def colleague(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the owner of the fork write to the repository, too."""
    from people import ACCOUNTS, STRANGER

    monkeypatch.setitem(ACCOUNTS, STRANGER.login, replace(STRANGER, may_write=True))


def _clone(variable: str) -> Path:
    """A real clone with its full history; it may be bare.  Tests must not change it."""
    clone = os.environ.get(variable)
    if not clone:
        pytest.skip(f"{variable} names no clone")
    return Path(clone).resolve(strict=True)


@pytest.fixture(scope="session")
def megatron_lm() -> Path:
    return _clone("MEGATRON_LM")


@pytest.fixture(scope="session")
def megatron_bridge() -> Path:
    return _clone("MEGATRON_BRIDGE")


@pytest.fixture(scope="session")
def ml_containers() -> Path:
    return _clone("ML_CONTAINERS")
