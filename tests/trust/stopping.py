"""Headless bumps in practice environments of a test's own, and what stops them at a moment that a test names."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from bumping import written
from clones import git
from small_runbooks import ROOT, command, environ

from runbook_lib.practice import open_world
from runbook_lib.record.run_file import JOURNAL, REPORT

TAG = "26.04-py3"
ACCEPT = "hybrid/hybrid_mr_tp2_cp2/golden_values_dev_dgx_h100.json: known, and right"
BROKEN = "gpt3_mcore_te_tp4_pp1_long@dgx_h100: it hangs; moe/gpt3_moe_mcore_tp2_ep4_memory: out of memory"
#: What a bump goes through, and about how many moments a visit has: of any kind, and of those that change things.
STEPS = {
    "start": (66, 4), "00-preflight": (69, 5), "01-github-pin": (86, 5), "02-gitlab-pin": (57, 2),
    "03-open-pr": (98, 7), "04-run-ci": (64, 2), "05-golden-values": (110, 11), "06-broken-tests": (166, 9),
    "07-sync-check": (50, 2), "ready": (77, 1), "end": (24, 4),
}  # fmt: skip
ROUND = ("04-run-ci", "05-golden-values", "06-broken-tests")
_CHANGING = re.compile(
    r"git -C \S+ (--git-dir=\S+ \S+ )?(add|branch --quiet|commit|merge --|push|restore|rm|switch|update-ref)"
    r"|change |answer to|/(?!\S*(/cache/|\.ipynb$|/tmp/))\S+$"
)
_STEP = re.compile(rb'^{"kind": "step", .*"name": "([^"]+)"', re.MULTILINE)
#: Seconds for a run to end at all, and to end while what it has come to is held.
PATIENCE, HEARD = 240.0, 10.0


@dataclass(frozen=True)
class Point:
    """Where and how to stop a run: at the ``number``-th moment of that visit of a step, or of those that change things.

    ``target`` is the driver, a kernel, or both; ``later`` is in seconds after the moment, None for right before it.
    With ``what``, at the first that this pattern finds instead; and never at one that has ``avoid`` in it.
    """

    step: str
    visit: int
    changing: bool
    number: int
    signal: signal.Signals
    target: str
    later: float | None = None
    what: str = ""
    avoid: str = ""

    @classmethod
    def at(cls, what: str, signal: signal.Signals, target: str) -> "Point":
        """Right before the first thing that looks so, in any step."""
        return cls("", 1, True, 1, signal, target, what=what)

    @classmethod
    def drawn(
        cls, draw: random.Random, step: str, *, visit: int | None = None, changing: bool | None = None
    ) -> "Point":
        """A point of a step."""
        changing = draw.random() < 0.6 if changing is None else changing
        return cls(
            step,
            visit or (draw.choice((1, 1, 2)) if step in ROUND else 1),
            changing,
            1 + draw.randrange(STEPS[step][changing]),
            draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
            draw.choice(("driver", "kernel", "both")),
            draw.choice((None, draw.uniform(0, 0.03))),
        )


@dataclass
class Moments:
    """The moments of a run, told one by one; whoever comes to that of ``point`` waits until ``go_on``."""

    point: Point | None = None
    now: tuple[str, int] = ("start", 1)
    journal: Path | None = None
    seen: Counter[tuple[str, int, bool]] = field(default_factory=Counter)
    log: list[tuple[str, int, bool, str]] = field(default_factory=list)
    entered: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def come(self, what: str, changing: bool) -> None:
        """A moment has come."""
        with self.lock:
            if what.endswith(f"/{JOURNAL}"):
                self.journal = Path(what)
            if self.journal is not None and self.now[0] != "end":
                ended = what == f"{self.journal.parent}/{REPORT}"
                self.now = ("end", 1) if ended else _step(self.journal)
            self.seen[*self.now, changing] += 1
            self.log.append((*self.now, changing, what))
            hit = self.point is not None and self._hit(self.point, what, changing)
            if hit:
                self.point = None
                self.reached.set()
        if hit:
            self.released.wait(PATIENCE)

    def _hit(self, point: Point, what: str, changing: bool) -> bool:
        if point.avoid and point.avoid in what:
            return False
        if point.what:
            return changing and re.search(point.what, what) is not None
        if self.now == (point.step, point.visit):
            self.entered = True
            count = self.seen[*self.now, True] + (0 if point.changing else self.seen[*self.now, False])
            return count >= point.number and (changing or not point.changing)
        order = list(STEPS)
        later = order.index(self.now[0]) > order.index("06-broken-tests" if point.step in ROUND else point.step)
        return self.entered or later


def _step(journal: Path) -> tuple[str, int]:
    """The last step that a run has begun, and how often it has."""
    names = [name.decode() for name in _STEP.findall(journal.read_bytes())] if journal.exists() else []
    return (names[-1], names.count(names[-1])) if names else ("start", 1)


@dataclass
class World:
    """A practice environment; runs wait for its CI, unless that is ``slow``."""

    folder: Path
    slow: bool = False
    moments: Moments = field(default_factory=Moments)
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "world"

    @property
    def checkout(self) -> Path:
        return self.home / "Megatron-LM"

    @property
    def remote(self) -> Path:
        return self.home / "remote.git"

    @property
    def audit(self) -> Path:
        return self.folder / "audit"

    @property
    def output(self) -> Path:
        return self.folder / "out.ipynb"

    def env(self, **more: str) -> dict[str, str]:
        env = environ(
            RUNBOOK_PRACTICE_HOME=str(self.home), RUNBOOK_AUDIT=str(self.audit), TMPDIR=str(self.folder / "tmp"),
            MPLCONFIGDIR=str(self.folder.parent / "matplotlib"),
        )  # fmt: skip
        del env["GITHUB_REPOSITORY"]
        return env | more

    def copy(self, made: Path) -> None:
        """Have the template's content."""
        shutil.copytree(made, self.home)
        git(self.checkout, "remote", "set-url", "origin", str(self.remote))
        shared = self.home / "gitlab.git" / "objects" / "info" / "alternates"
        shared.write_text(f"{self.remote}/objects\n")

    @property
    def _waits(self) -> tuple[str, ...]:
        return () if self.slow else ("-p", "wait", "True")

    def start(self, *arguments: str, watched: bool = True, **more: str) -> "subprocess.Popen[str]":
        """A headless bump, whose moments are told if ``watched``."""
        if watched:
            path = f"{Path(__file__).with_name('moments')}:{ROOT}"
            more |= {"PYTHONPATH": path, "MOMENTS": str(self.folder / "moments"), "MOMENTS_WITHIN": str(self.folder)}
        told = self.folder / "decisions.yaml"
        if not told.exists():
            written(told, accept=ACCEPT, broken=BROKEN, confirm="divergence")
        given = {"tag": TAG, "decisions": str(told)}
        options = [part for name, value in given.items() for part in ("-r", name, value)]
        run = subprocess.Popen(
            command(ROOT / "runbooks/bump.ipynb", self.output, *options, *self._waits, *arguments),
            env=self.env(**more), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.started.append(run)
        return run

    def end(self) -> None:
        """End what a test that failed has left running."""
        self.moments.released.set()
        for run in self.started:
            if run.poll() is None:
                run.kill()
                run.communicate()


def template(folder: Path) -> None:
    """A practice environment that is whole, with a forge that has seen nothing."""
    open_world(folder)
    for left in (*folder.glob("forge.sqlite*"), folder / "practice-world.lock"):
        left.unlink()


@contextlib.contextmanager
def world(made: Path, folder: Path, *, slow: bool = False) -> Iterator[World]:
    """A copy of the template, with its moments told."""
    found = World(folder, slow)
    (folder / "tmp").mkdir(parents=True)
    found.copy(made)
    with contextlib.ExitStack() as undo:
        undo.enter_context(_listening(found))
        if slow:
            with open_world(found.home).store.transaction() as state:
                state.ci_seconds = 36000.0
        undo.callback(found.end)
        yield found


@contextlib.contextmanager
def _listening(world: World) -> Iterator[None]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(world.folder / "moments"))
    listener.listen(64)
    closed = threading.Event()

    def serve() -> None:
        while not closed.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_one, args=(world, connection), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield
    closed.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _one(world: World, connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
        for line in lines:
            event, what = json.loads(line)
            done = event in ("os.rename", "os.link", "subprocess.Popen", "forge")
            world.moments.come(what, done and bool(_CHANGING.match(what)))
            connection.sendall(b".")


def processes(world: World) -> list[psutil.Process]:
    """All that live and were started for this world's runs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.environ().get("TMPDIR") == str(world.folder / "tmp")
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kernels(driver: int) -> list[psutil.Process]:
    """The kernels below a driver, that of the bump first."""
    with contextlib.suppress(psutil.Error):
        return [
            it
            for it in psutil.Process(driver).children(recursive=True)
            if "ipykernel_launcher" in " ".join(it.cmdline())
        ]
    return []


def ignores(process: psutil.Process, number: signal.Signals) -> bool:
    """Whether a signal has no effect, as an interrupt of a kernel that runs no cell."""
    with contextlib.suppress(OSError):
        (mask,) = re.findall(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        return bool(int(mask, 16) >> (number - 1) & 1)
    return True


def kill(world: World, point: Point, draw: random.Random) -> tuple[bool, int, str]:
    """Run the bump and stop it there: whether it was, its exit status, and what it said."""
    world.moments = moments = Moments(point)
    driver = world.start()
    told: list[str] = []
    assert driver.stdout is not None
    reading = threading.Thread(target=lambda: told.append(driver.stdout.read()), daemon=True)  # type: ignore[union-attr]
    reading.start()
    while not moments.reached.wait(0.02) and driver.poll() is None:
        pass
    stopped = moments.reached.is_set()
    if stopped:
        if point.later is not None:
            moments.released.set()
            time.sleep(point.later)
        found = [kernel for kernel in kernels(driver.pid) if not ignores(kernel, point.signal)]
        chosen = [draw.choice(found)] if found and point.target == "kernel" else found if point.target == "both" else []
        # Of a run that has no kernel yet there is but the driver to stop.
        whom = [*([] if point.target == "kernel" and found else [driver.pid]), *(it.pid for it in chosen)]
        for pid in whom:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, point.signal)
        if point.later is None and driver.pid in whom:  # on a busy machine a kernel would go far before it hears of it
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(HEARD)
        moments.released.set()
    driver.wait(PATIENCE)
    gone(world)
    reading.join(5)
    driver.stdout.close()
    return stopped, driver.returncode, "".join(told)


def gone(world: World) -> None:
    """Nothing that was started for the world lives any more, within some seconds."""
    until = time.monotonic() + 60
    while left := processes(world):
        assert time.monotonic() < until, [" ".join(it.cmdline()) for it in left]
        time.sleep(0.02)
