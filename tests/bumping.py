"""A practice repository with its forge in a test's own folder, and a bump on it: real git, in process, a set clock."""

import atexit
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from archives import told
from clones import git
from controls import Controls
from github_server.server import Forge
from people import STRANGER, PeopledForge

from runbook_lib.bump import open_pr, pins_step
from runbook_lib.bump.pins_step import NO_PLAN, PlannedBump
from runbook_lib.bump.run import Run, Step
from runbook_lib.bump.run_ci import RunCi
from runbook_lib.decisions import KINDS, Decision, Decisions
from runbook_lib.model import Check, Next
from runbook_lib.pins.bump import Bump
from runbook_lib.practice import seed
from runbook_lib.practice.store import ENGINEER, Store
from runbook_lib.record import decisions, run_file
from runbook_lib.record.recorder import Recorder
from runbook_lib.record.run_file import Identity
from runbook_lib.world import commands
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.conditions import forge as forge_conditions
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.github.client import GitHub
from runbook_lib.world.machine import provenance
from runbook_lib.world.machine.clock import now, stamp
from runbook_lib.world.machine.files import make_folder, write
from runbook_lib.world.ports import ONLINE, Services
from runbook_lib.world.ports import World as Outside
from runbook_lib.world.transport import http

REPOSITORY = "practice/Megatron-LM"
BRANCH = "bump/main/dev-26.04-py3"
#: An account of the forge that may read, and its fork.
CONTRIBUTOR = "outside-contributor"
EXISTS = Check("the image exists", "passed", "")


@dataclass(frozen=True)
class Opened:
    """The bump's newest commit in the checkout, and its pull request on the forge if there is one, after step 3."""

    commit: str | None
    pull: Any


class Timed:
    """Services on the clock of a test, which moves on while somebody sleeps."""

    def __init__(self, services: Services, now: list[float]) -> None:
        self._services, self._now = services, now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._services, name)

    def sleep(self, seconds: float) -> None:
        self._now[0] += seconds

    def monotonic(self) -> float:
        return self._now[0]


@dataclass
class World:
    """``steps`` are the accounts of all runs so far; ``forge`` is for what others do, and for what fails.

    With ``listen`` the server of the forge is there for other processes, too.
    """

    home: Path
    forge: Controls
    now: list[float]
    undo: ExitStack
    steps: list[Recorder] = field(default_factory=list)
    services: Services = ONLINE
    listen: bool = False

    @property
    def checkout(self) -> Checkout:
        return Checkout(self.home / "checkout", bare=False)

    @property
    def remote(self) -> Path:
        return self.home / "remote.git"

    @property
    def fork(self) -> Path:
        return self.home / CONTRIBUTOR / "Megatron-LM.git"

    def github(self, token: str = "practice-token") -> Any:
        """The forge as the owner of a token sees it; over HTTP for a token that only GitHub's rules are about."""
        account = {"practice-token": ENGINEER, "contributor-token": STRANGER}.get(token)
        return self.forge.seen_by(account) if account else self.online(token)

    @cached_property
    def served(self) -> Forge:
        """The same forge as a server on its file, for the real client."""
        self.undo.enter_context(patch.object(http, "PAUSES", (0, 0)))
        forks = {CONTRIBUTOR: self.fork}
        return self.undo.enter_context(
            Forge(self.home / "forge.sqlite", self.remote, self.forge.hub.clock, forks, listen=self.listen)
        )

    def online(self, token: str = "practice-token") -> GitHub:
        """The real client, with this token."""
        env = {"GITHUB_TOKEN": token, "GITHUB_API_URL": self.served.url}
        return GitHub(REPOSITORY, env)

    @property
    def records(self) -> Path:
        """The bump's folder in the archive."""
        return self.home / "audit" / "practice-Megatron-LM" / "main" / "records"

    def step(self, bump: Bump) -> Recorder:
        """Begin a run, with a record that later runs can read."""
        name = f"record-{time.monotonic_ns():020}"  # steps may run side by side
        predicate = {
            "id": name, "state": "running", "notebook": {"name": "03-open-pr"}, "started": stamp(now()),
            "process": provenance.process(), "parent": None, "ended": None,
            "bump": asdict(Identity(REPOSITORY, bump.base, bump.image_type, str(bump.tag or ""), practice=True)),
        }  # fmt: skip
        folder = self.records / name
        make_folder(folder)
        write(folder / run_file.RUN, run_file.to_bytes(predicate))
        self.steps.append(Recorder("03-open-pr", bump, folder, {**run_file.empty_run(), **predicate}))
        return self.steps[-1]

    def said(self, kind: str) -> Any:
        """What the last run told the record of this kind, and what comes next as a person reads it."""
        entries = told(self.steps[-1], kind)
        if kind not in ("done", "waiting"):
            return entries
        return [it | {"next": commands.text(Next(**it["next"]))} for it in entries]

    def outcome(self) -> str:
        """The sentence that the last run ended with."""
        return str([*self.said("done"), *self.said("waiting")][-1]["sentence"])

    def effects(self) -> list[str]:
        return [entry["kind"] for entry in self.said("effects")]

    def kept(self, name: str) -> str:
        """A file that the last run left in its record."""
        folder = self.steps[-1].folder
        assert folder
        return (folder / name).read_text()

    def conditions(self) -> dict[str, dict[str, Any]]:
        """What became of each condition of the last run, by its sentence."""
        return {str(each["sentence"]): each for each in self.said("conditions")}

    def checks(self) -> dict[str, str]:
        return {entry["name"]: entry["status"] for entry in self.said("checks")}

    def open_pr(self, token: str = "practice-token", **parameters: Any) -> Opened:
        """Step 3, as its notebook runs it."""
        bump = self.run(open_pr, token=token, **parameters)
        number = self.steps[-1].run["inputs"].get("pull_request")
        commit = self.checkout.branch_tip(bump.branch) if bump.tag else None
        return Opened(commit, self.github().pull(number) if number else None)

    def run(self, *steps: Step[Any], token: str = "practice-token", **parameters: Any) -> Bump:
        """Run steps as their notebook does."""
        bump = bump_to(**parameters)
        run = self.context(bump, token)
        with patch.object(pins_step, "plan_bump", _plan_without_registry):
            for step in steps:
                run.step(step)
        run.close()
        return bump

    def context(self, bump: Bump, token: str = "practice-token") -> Run:
        """Begin a run of a notebook; the clock moves on while it sleeps."""
        run = Run(bump, self.checkout, self.step(bump), self.services)
        run.__dict__["world"] = Outside(
            self.checkout,
            self.github(token),
            run.record,
            Timed(self.services, self.now),
            run.record.records,
        )
        return run

    def head(self) -> str:
        """The commit of the bump's branch on the remote."""
        return git(self.remote, "rev-parse", BRANCH)

    def commit_on(self, branch: str, path: str, text: str) -> str:
        """Somebody else's commit on a branch of the remote."""
        other = self.home / "other"
        if not other.exists():
            git(self.home, "clone", "-q", str(self.remote), str(other))
        git(other, "fetch", "-q")
        git(other, "switch", "-q", "-C", branch, f"origin/{branch}")
        (other / path).parent.mkdir(parents=True, exist_ok=True)
        (other / path).write_text(text)
        git(other, "add", path)
        git(other, "commit", "-qm", f"Change {path}")
        git(other, "push", "-q", "origin", branch)
        return git(other, "rev-parse", "HEAD")

    def state(self) -> tuple[str, ...]:
        """Files, refs and what the forge holds."""
        checkout = self.home / "checkout"
        github = self.github()
        pulls = github.pulls(state="all")
        talk = [(it.author, it.body) for pull in pulls for it in github.comments(pull.number)]
        return (
            git(checkout, "status", "--porcelain=v2", "--branch"), git(checkout, "for-each-ref"),
            git(checkout, "diff"), git(self.remote, "for-each-ref"), repr(pulls), repr(talk),
        )  # fmt: skip


def allowed(names: str) -> Decisions:
    """Decisions to make these named exceptions, as a person writes them."""
    return Decisions(tuple(Decision("allow", name, "a test") for name in names.replace(",", " ").split()))


def decided(*, confirm: str = "", **told: str) -> Decisions:
    """Decisions as a person writes them: by kind, ``subject: reason; subject: reason``; they confirm this danger."""
    entries = list(allowed(told.pop("allow", "")).entries)
    for kind in KINDS:
        for entry in filter(None, told.pop(kind, "").split("; ")):
            subject, _, reason = entry.partition(": ")
            entries.append(Decision(kind, subject, reason, confirm if kind == "accept" else ""))
    assert not told
    return Decisions(tuple(entries))


def written(file: Path, **told: str) -> str:
    """A file with these decisions, for the parameter of a notebook."""
    decisions.add(file, decided(**told).entries)
    return str(file)


def bump_to(tag: str = "26.04-py3", *, mode: str = "publish", **parameters: Any) -> Bump:
    told = {kind: parameters.pop(kind) for kind in (*KINDS, "confirm") if kind in parameters}
    parameters.setdefault("decisions", decided(**told))
    return Bump.parse(tag=tag, mode=mode, **parameters)


def _plan_without_registry(branch: BumpBranch) -> PlannedBump:
    return PlannedBump(branch.bump, NO_PLAN, None, EXISTS)


def seeded(home: Path) -> None:
    """Make a practice repository with its remote, and without a second CI."""
    seed.create(home / "remote.git", home / "checkout", home / "gitlab.git")
    git(home / "checkout", "remote", "remove", "gitlab")
    shutil.rmtree(home / "gitlab.git")


@cache
def _made(before: Callable[[World], object] | None) -> tuple[Path, float, int]:
    """Make a world, or one in which that was done: its folder, its clock, and how many runs it has had.

    Once per process, to be copied: a copy takes a tenth of the time.
    """
    home = Path(tempfile.mkdtemp(prefix="made-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    if before is None:
        seeded(home)
        git(home, "clone", "-q", "--bare", str(home / "remote.git"), str(home / CONTRIBUTOR / "Megatron-LM.git"))
        return home, 1_800_000_000.0, 0
    with world(home) as made:
        before(made)
    return home, made.now[0], len(made.steps)


def _copy(made: Path, home: Path) -> None:
    shutil.copytree(made, home, dirs_exist_ok=True, symlinks=True)
    for file in (*home.glob("checkout/.git/config"), *home.glob("*/*.git/config"), *home.glob("audit/**/*.jsonl")):
        file.write_text(file.read_text().replace(str(made), str(home)))
    git(home / "checkout", "update-index", "-q", "--refresh")


def forge_of(store: Store, home: Path, clock: Callable[[], float], seconds: float = 100) -> PeopledForge:
    """Open the forge of a world, whose CI takes so long."""
    with store.transaction() as state:
        state.ci_seconds = seconds
    forks = {CONTRIBUTOR: home / CONTRIBUTOR / "Megatron-LM.git"}
    return PeopledForge(store, home / "remote.git", home / "pages" / REPOSITORY, clock, forks)


@contextmanager
def world(home: Path, before: Callable[[World], object] | None = None) -> Iterator[World]:
    """Yield a world of its own in which that was done before."""
    made, start, runs = _made(before)
    _copy(made, home)
    now = [start]
    with ExitStack() as undo:
        store = Store(home / "forge.sqlite")
        undo.callback(store.close)
        patched = undo.enter_context(pytest.MonkeyPatch.context())
        patched.setenv("GITHUB_REPOSITORY", REPOSITORY)
        patched.setattr(forge_conditions, "DELAYS", (0, 0))
        found = World(home, Controls(forge_of(store, home, lambda: now[0])), now, undo)
        folders = sorted(found.records.glob("record-*"))[:runs]
        found.steps += [Recorder("03-open-pr", bump_to(), folder, run_file.read(folder)) for folder in folders]
        yield found


def after_ci(made: World) -> None:
    """Open the pull request, and let its first CI run end."""
    made.open_pr()
    git(made.checkout.path, "switch", "-q", BRANCH)  # it follows the commits
    made.run(RunCi())
    made.now[0] += 1000
