"""A disk that is full or read-only at any write: a sentence, nothing half-written, and the next run completes it."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bumping import EXISTS, bump_to, git
from disk import ERRORS, failing, full, points, read_only, small
from small_runbooks import notebook, papermill

from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.plan import PinPlan
from runbook_lib.records.chain import Ledger
from runbook_lib.records.step_record import StepRecord
from runbook_lib.records.verify import verify
from runbook_lib.steps import open_pr
from runbook_lib.system import files
from runbook_lib.text.edits import Edit
from runbook_lib.workflow import bump_branch
from runbook_lib.workflow.bump_plan import PlannedBump

BRANCH = "bump/main/dev-26.04-py3"
SHA = "a" * 64


@dataclass
class Scene:
    """``act`` writes below ``folder``, and may be told no; ``whole`` says that nothing is half-written."""

    folder: Path
    act: Callable[[], object]
    whole: Callable[[], object]
    completed: Callable[[], object]


# -- what is written --------------------------------------------------------------------------------------------------


def of_files(home: Path) -> Scene:
    """One file, replaced and made."""
    folder = home / "files"
    folder.mkdir()
    old, new = folder / "old", folder / "new"
    old.write_text("before")

    def act() -> None:
        files.write(old, "after")
        files.write(new, "made")

    def whole() -> None:
        assert old.read_text() in ("before", "after")
        assert not new.exists() or new.read_text() == "made"
        assert {it.name for it in folder.iterdir()} <= {"old", "new"}

    def completed() -> None:
        assert (old.read_text(), new.read_text()) == ("after", "made")

    return Scene(folder, act, whole, completed)


def of_checkout(home: Path) -> Scene:
    """Edits of a work tree: three files, one of them new."""
    folder = home / "checkout"
    git(home, "init", "-q", str(folder))
    before = {"a.yml": "a: 1\n", "deep/b.txt": "b\n"}
    for name, text in before.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    edits = [Edit(name, text, text.upper()) for name, text in before.items()] + [Edit("newer/c.txt", None, "c\n")]

    def state() -> list[str | None]:
        return [(folder / it.path).read_text() if (folder / it.path).exists() else None for it in edits]

    def act() -> None:
        left = [it for it, now in zip(edits, state(), strict=True) if now != it.after]  # as planning again finds it
        try:
            Checkout.open(folder).apply(left)
        except RunbookError as error:
            mixed = state() != [it.before for it in edits]
            if mixed != ("could not be restored" in str(error)):
                raise AssertionError(f"not so: {error}") from error
            raise

    def whole() -> None:
        assert all(now in (it.before, it.after) for it, now in zip(edits, state(), strict=True))
        named = {path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts}
        assert named <= {folder / it.path for it in edits}

    def completed() -> None:
        assert state() == [it.after for it in edits]

    return Scene(folder, act, whole, completed)


def of_record(home: Path) -> Scene:
    """A record, opened, contributed to, and closed."""
    folder = home / "audit"
    runs: list[str] = []

    def act() -> None:
        runs.append(f"20260101T000000Z-03-open-pr-{len(runs):08x}")
        predicate = {
            "id": runs[-1], "state": "running", "bump": {"repository": "o/r", "base": "main", "image_type": "dev",
            "tag": "26.04-py3", "practice": False}, "notebook": {"name": "03-open-pr", "sha256": SHA},
            "started": "2026-01-01T00:00:00Z", "ended": None, "parent": None,
        }  # fmt: skip
        bump = folder / "o-r/main/dev-26.04-py3"
        with Ledger.locked(bump) as ledger:
            place = ledger.open(runs[-1], predicate)
        step = StepRecord("03-open-pr", bump_to(), "o/r", place)
        step.add_inputs(digest="sha256:1")
        step.effect("edit", "a.yml", "old", "new")
        step.table("changes", [{"a": 1}] * 50)
        step.diff("-old\n+new\n")
        step.done("Done.")
        with Ledger.locked(bump) as ledger:
            ledger.close(runs[-1], {**predicate, "state": "done", "ended": "2026-01-01T00:00:01Z"})

    def whole() -> None:
        problems = verify(folder)[0] if folder.exists() else []
        assert all("the next run of this bump repairs it" in it for it in problems)

    def completed() -> None:
        assert not verify(folder)[0]
        closed = json.loads((folder / "o-r/main/dev-26.04-py3" / runs[-1] / "run.json").read_text())
        assert closed["predicate"]["state"] == "done"

    return Scene(folder, act, whole, completed)


SCENES = {it.__name__.removeprefix("of_"): it for it in (of_files, of_checkout, of_record)}


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("name", SCENES)
def test_every_write_may_fail(tmp_path: Path, name: str, code: str) -> None:
    (tmp_path / "count").mkdir()
    counted = SCENES[name](tmp_path / "count")
    total = points(counted.folder, counted.act)
    assert total > 3
    counted.completed()
    for first in range(1, total + 1):
        home = tmp_path / str(first)
        home.mkdir()
        scene = SCENES[name](home)
        with failing(scene.folder, first, ERRORS[code]) as writes:
            told = said(scene)
        assert writes.count >= first, f"write {first}: not reached"
        assert told, f"write {first}: nothing was told"
        scene.whole()
        scene.act()
        scene.completed()


def said(scene: Scene) -> str:
    """The sentence that the scene ended with; empty where it did not fail."""
    return sentence(scene.act)


def sentence(act: Callable[[], object]) -> str:
    """What it ended with, where it failed."""
    try:
        act()
    except RunbookError as error:
        told = str(error).strip()
        return told if told.endswith((".", ")")) and "Traceback" not in told else ""
    return ""


# -- real disks -------------------------------------------------------------------------------------------------------


def committed(checkout: Path) -> str:
    """Step 3 without publishing, as its notebook runs it."""
    bump = bump_to(mode="apply")
    branch = bump_branch.find(Checkout.open(checkout), bump)
    records = checkout.parent.parent / "records"  # on another disk
    record = records / str(len(list(records.glob("*"))))
    record.mkdir(parents=True)
    step = StepRecord("03-open-pr", bump, "practice/Megatron-LM", record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")
        made = open_pr.carry_out(
            step, open_pr.propose(branch, PlannedBump(bump, PinPlan((), (), (), ()), None, EXISTS), None)
        )
        open_pr.verify(step, made)
        step.raise_if_failed()
    assert made.commit is not None
    return made.commit


def practice_checkout(home: Path, seeded: Path) -> Path:
    shutil.copytree(seeded / "checkout", home / "checkout")
    shutil.copytree(seeded / "remote.git", home / "remote.git")
    git(home / "checkout", "remote", "set-url", "origin", str(home / "remote.git"))
    return home / "checkout"


def clean(checkout: Path, start: str) -> None:
    """The branch holds the whole bump or nothing of it, and the work tree no half of a file."""
    git(checkout, "fsck", "--no-dangling", "--no-progress")
    tip = git(checkout, "for-each-ref", "--format=%(objectname)", f"refs/heads/{BRANCH}")
    if tip and tip != start:
        assert git(checkout, "rev-list", "--count", f"{start}..{tip}") == "1"
        assert len(git(checkout, "diff", "--name-only", start, tip).splitlines()) == 3
    for line in git(checkout, "diff", "HEAD").splitlines():
        if line.startswith("+") and not line.startswith("+++"):
            assert "26.04" in line


#: Bytes left on the disk of the checkout; git and the library write about this much for a bump.
LEFT = [4096 * pages for pages in (*range(0, 24), *range(24, 72, 4))]


@pytest.mark.parametrize("left", LEFT)
def test_a_full_disk_of_the_checkout(tmp_path: Path, seeded: Path, left: int) -> None:
    with small(tmp_path / "disk") as disk:
        checkout = practice_checkout(disk, seeded)
        start = git(checkout, "rev-parse", "origin/main")
        with full(disk, left):
            told = sentence(lambda: committed(checkout))
        clean(checkout, start)
        tip = committed(checkout)
        clean(checkout, start)
        assert git(checkout, "diff", "--name-only", start, tip).splitlines()
        assert not git(checkout, "status", "--porcelain")
    assert told or left > 4096 * 8


def test_a_read_only_checkout(tmp_path: Path, seeded: Path) -> None:
    with small(tmp_path / "disk") as disk:
        checkout = practice_checkout(disk, seeded)
        start = git(checkout, "rev-parse", "origin/main")
        with read_only(disk), pytest.raises(RunbookError, match=r"(?i)read-only"):
            committed(checkout)
        clean(checkout, start)
        committed(checkout)
        clean(checkout, start)


@pytest.mark.parametrize("how", [full, read_only])
@pytest.mark.parametrize("place", ["archive", "output", "temporary"])
def test_a_run_whose_disk_refuses(tmp_path: Path, place: str, how: Callable[[Path], Any]) -> None:
    path = notebook(tmp_path / "01-pin.ipynb", "step.effect('edit', 'a', 'b', 'c')\nstep.done('Done.')")
    with small(tmp_path / "disk") as disk:
        on = {name: disk if name == place else tmp_path / name for name in ("archive", "output", "temporary")}
        on["temporary"].mkdir(exist_ok=True)
        env = {"RUNBOOK_AUDIT": str(on["archive"] / "audit"), "TMPDIR": str(on["temporary"])}

        def run() -> tuple[int, str]:
            status, out, err = papermill(
                path, on["output"] / "out.ipynb", "-p", "tag", "26.04-py3", cwd=tmp_path, **env
            )
            return status, out + err

        with how(disk):
            status, said = run()
        assert "Traceback" not in said
        # Where files are kept for a moment, there is another place for them.
        assert status if place != "temporary" else True
        assert not status or re.search(r"(?i)disk is full|read-only|no space|could not", said), said
        assert run()[0] == 0
        assert not verify(on["archive"] / "audit")[0]
        assert json.loads((on["output"] / "out.ipynb").read_text())["cells"]
