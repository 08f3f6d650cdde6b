"""Bumps in practice environments of a test's own, and what must hold of them at any moment and at their end."""

import contextlib
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cells
import psutil
from bumping import written
from clones import git
from forked import Forked
from small_runbooks import ROOT, environ

from runbook_lib.notebook import papermill
from runbook_lib.practice.store import Record, Store
from runbook_lib.practice.world import open_world
from runbook_lib.record.store import verify

TAG = "26.04-py3"
BRANCH = f"bump/main/dev-{TAG}"
ACCEPT = "hybrid/hybrid_mr_tp2_cp2/golden_values_dev_dgx_h100.json: known, and right"
BROKEN = "gpt3_mcore_te_tp4_pp1_long@dgx_h100: it hangs; moe/gpt3_moe_mcore_tp2_ep4_memory: out of memory"
PINS = (".gitlab/stages/01.build.yml", "docker/.ngc_version.dev", "docker/Dockerfile.ci.dev")
_CASES = "tests/functional_tests/test_cases/"
#: What one commit refreshes: all that drifts.
GOLDEN = {
    f"{_CASES}{case}/golden_values_dev_dgx_{platform}.json"
    for case in ("gpt/gpt3_mcore_te_tp1_pp1", "moe/gpt3_moe_mcore_te_ep8")
    for platform in ("h100", "gb200")
} | {f"{_CASES}hybrid/hybrid_mr_tp2_cp2/golden_values_dev_dgx_h100.json"}
RECIPES = {"tests/test_utils/recipes/h100/gpt.yaml", "tests/test_utils/recipes/h100/moe.yaml"}
FILED = "🐛 CI failure: "
_TAGS = re.compile(r"nvcr\.io/nvidia/pytorch:(26\.0[24]-py3)")
#: Seconds for a run to end.
PATIENCE = 250.0


class World:
    """A practice environment with an archive, and the processes that were started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.audit = folder, folder / "world", folder / "audit"
        self.checkout, self.remote = self.home / "Megatron-LM", self.home / "remote.git"
        self.started: list[Forked] = []

    def start(self, *, kernel: bool = False, parameters: object = None, **env: str) -> Forked:
        """Start the bump in a process group of its own: its cells alone, or with papermill and a kernel."""
        told = self.folder / "decisions.yaml"
        if not told.exists():
            written(told, accept=ACCEPT, broken=BROKEN, confirm="divergence")
        given = {"tag": TAG, "decisions": str(told), "wait": True} | dict(parameters or {})  # type: ignore[call-overload]
        call: tuple[Any, ...] = (cells.main, "bump", given)
        if kernel:
            options = [part for name, value in given.items() for part in ("-p", name, str(value))]
            call = papermill.main, [str(ROOT / "runbooks/bump.ipynb"), str(self.folder / "out.ipynb"), *options]
        seen = environ(
            RUNBOOK_PRACTICE_HOME=str(self.home), RUNBOOK_AUDIT=str(self.audit), TMPDIR=str(self.folder / "tmp"),
            MPLCONFIGDIR=str(self.folder.parent / "matplotlib"),
        )  # fmt: skip
        del seen["GITHUB_REPOSITORY"]
        said = self.folder / f"said-{len(self.started)}"
        run = Forked(said, *call, cwd=self.folder, env=seen | env)
        self.started.append(run)
        return run

    def bump(self, *, kernel: bool = False, **env: str) -> tuple[int, str]:
        """Run the bump; its exit status, and what it said."""
        return self.ended(self.start(kernel=kernel, **env))

    def ended(self, run: Forked) -> tuple[int, str]:
        """Wait for a run and all that it has started: its exit status, and what it said, which is no traceback."""
        status, told = run.ended(PATIENCE)
        until = time.monotonic() + 60
        while left := self._processes():
            assert time.monotonic() < until, [" ".join(it.cmdline()) for it in left]
            time.sleep(0.02)
        # Of ipykernel, when its sockets are closed too early, a traceback may be seen; of no other.
        assert not re.search(r'File "\S*/runbook_lib/(?!notebook/outputs)', told), told
        return status, told

    def _processes(self) -> list[psutil.Process]:
        """All that live and were started for this world's runs, once all of them have been asked to end."""
        found = []
        alive = any(run.poll() is None for run in self.started)
        for process in [] if alive else psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mine = process.environ().get("TMPDIR") == str(self.folder / "tmp")
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def template(folder: Path) -> Path:
    """Make a practice environment that is whole, with a forge that has seen nothing."""
    open_world(folder)
    for left in (*folder.glob("forge.sqlite*"), folder / "practice-world.lock"):
        left.unlink()
    return folder


@contextlib.contextmanager
def world(made: Path, folder: Path) -> Iterator[World]:
    """A copy of the template."""
    found = World(folder)
    (folder / "tmp").mkdir(parents=True)
    shutil.copytree(made, found.home)
    git(found.checkout, "remote", "set-url", "origin", str(found.remote))
    (found.home / "gitlab.git/objects/info/alternates").write_text(f"{found.remote}/objects\n")
    try:
        yield found
    finally:
        for run in found.started:  # what a test that failed has left
            if run.poll() is None:
                run.kill()


# -- what must hold --------------------------------------------------------------------------------------------------


def at_any_moment(world: World) -> None:
    """Commits, forge and files: nothing half, nothing twice."""
    for place in (world.checkout, world.remote):
        _commits(place)
    tickets, comments = held(world)
    once = [
        [BRANCH for it in tickets if it.head_ref == BRANCH],
        [it for it in comments if it.startswith("/ok to test")],
        [it.title for it in tickets if it.title.startswith(FILED) and it.state == "open"],
    ]
    assert [it for made in once for it, count in Counter(made).items() if count > 1] == []
    for file in (*PINS, *GOLDEN):
        text = (world.checkout / file).read_text()
        assert len(set(_TAGS.findall(text))) == 1 if file in PINS else json.loads(text), file
    for kept in (*world.folder.glob("out.ipynb"), *world.audit.rglob("*.json"), *world.audit.rglob("*.ipynb")):
        json.loads(kept.read_bytes())
    assert not world.audit.exists() or verify(world.audit)[0] == []


def _commits(place: Path) -> None:
    listed = git(place, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    assert set(listed) - {BRANCH} <= {"main", "dev", "core_r0.1.0", "pull-request/10"}
    commits = git(place, "rev-list", f"main..{BRANCH}").split() if BRANCH in listed else []
    titles = Counter(git(place, "show", "-s", "--format=%s", commit) for commit in commits)
    assert all(count == 1 for title, count in titles.items() if not title.startswith("test: refresh")), titles
    for commit in commits:
        tags = {tag for file in PINS for tag in _TAGS.findall(git(place, "show", f"{commit}:{file}"))}
        assert tags == {TAG}, commit
        changed = set(git(place, "show", "--format=", "--name-only", "--no-renames", commit).split("\n"))
        assert changed in (set(PINS), RECIPES, GOLDEN), changed


def held(world: World) -> tuple[list[Record], list[str]]:
    """What the forge holds: pull requests and issues, and what was said on them."""
    if not (world.home / "forge.sqlite").exists():
        return [], []
    store = Store(world.home / "forge.sqlite")
    with store.transaction() as state:
        tickets = state.tickets
    store.close()
    return tickets, [comment.body for ticket in tickets for comment in ticket.comments]


def at_the_end(world: World) -> None:
    """The bump is done, the checkout clean, and the archive whole."""
    at_any_moment(world)
    assert git(world.checkout, "status", "--porcelain", "--ignored", "--untracked-files=all") == ""
    assert [it.name for it in (world.checkout / ".git").rglob("*.lock")] == ["base-image-runbook.lock"]
    assert git(world.checkout, "rev-parse", BRANCH) == git(world.remote, "rev-parse", BRANCH)
    changed = set(git(world.checkout, "diff", "--name-only", f"main...{BRANCH}").split("\n"))
    assert {*PINS, *GOLDEN, *RECIPES} <= changed
    tickets, _ = held(world)
    assert len([it for it in tickets if it.head_ref == BRANCH]) == 1
    assert len([it for it in tickets if it.title.startswith(FILED)]) == 2
    problems, counts = verify(world.audit)
    assert (problems, counts.running, counts.killed) == ([], 0, 0)
    states = {json.loads(it.read_bytes())["state"] for it in world.audit.rglob("*-bump-*/run.json")}
    assert states <= {"done", "waiting", "failed", "interrupted"}
