"""What must hold of a bump at any moment, however it was stopped, and what must hold once it has gone on to its end."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from stopping import TAG, World, git

from runbook_lib.practice.store import Record, Store
from runbook_lib.record import journal, run_file
from runbook_lib.record.verify import verify

BRANCH = f"bump/main/dev-{TAG}"
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


def at_any_moment(world: World) -> None:
    """Commits, forge and files: nothing half, nothing twice."""
    for place in (world.checkout, world.remote):
        _commits(place)
    _forge(world)
    for file in (*PINS, *GOLDEN):
        text = (world.checkout / file).read_text()
        assert len(set(_TAGS.findall(text))) == 1 if file in PINS else json.loads(text), file
    for written in (*world.folder.glob("out.ipynb"), *world.audit.rglob("*.json"), *world.audit.rglob("*.ipynb")):
        json.loads(written.read_bytes())
    problems, _ = verify(world.audit)
    assert problems == []


def _commits(place: Path) -> None:
    listed = git(place, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    assert set(listed) - {BRANCH} <= {"main", "dev", "core_r0.1.0", "pull-request/10"}
    if BRANCH not in listed:
        return
    commits = git(place, "rev-list", f"main..{BRANCH}").split()
    titles = Counter(git(place, "show", "-s", "--format=%s", commit) for commit in commits)
    assert all(n == 1 for title, n in titles.items() if not title.startswith("test: refresh")), titles
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


def _forge(world: World) -> None:
    tickets, comments = held(world)
    assert len([it for it in tickets if it.head_ref == BRANCH]) <= 1, tickets
    told = Counter(it for it in comments if it.startswith("/ok to test"))
    assert all(n == 1 for n in told.values()), told
    filed = Counter(it.title for it in tickets if it.title.startswith(FILED) and it.state == "open")
    assert all(n == 1 for n in filed.values()), filed


def pulls(world: World) -> int:
    """How many pull requests there are of the bump."""
    return len([it for it in held(world)[0] if it.head_ref == BRANCH])


def authorizations(world: World) -> int:
    """How many comments let CI test a commit."""
    return len([it for it in held(world)[1] if it.startswith("/ok to test")])


def at_the_end(world: World, killed: Iterable[tuple[Path, int]] = ()) -> None:
    """The bump is done, the checkout clean, and the archive whole; ``killed`` are records and exit statuses of runs."""
    at_any_moment(world)
    left = git(world.checkout, "status", "--porcelain", "--ignored", "--untracked-files=all")
    assert left == "", left
    assert locks(world) == []
    assert git(world.checkout, "rev-parse", BRANCH) == git(world.remote, "rev-parse", BRANCH)
    changed = set(git(world.checkout, "diff", "--name-only", f"main...{BRANCH}").split("\n"))
    assert {*PINS, *GOLDEN, *RECIPES} <= changed
    assert pulls(world) == 1
    assert len([it for it in held(world)[0] if it.title.startswith(FILED)]) == 2
    problems, counts = verify(world.audit)
    assert (problems, counts.running, counts.killed) == ([], 0, 0)
    for folder, status in killed:
        record = run_file.read(folder)
        sentence = record["outcome"]["sentence"]
        ended = "Ready to merge" in sentence  # at its very end a run is closed before it is stopped
        assert status == 0 or ended or record["state"] in ("interrupted", "failed"), record
        assert sentence, record
        said = journal.collect(journal.lines(folder)).fields
        assert all(said[name] == record[name] for name in ("effects", "checks", "inputs", "links")), record
        assert [it["name"] for it in said["steps"]] == [it["name"] for it in record["steps"]]


def locks(world: World) -> list[Path]:
    """The locks that git holds on the checkout."""
    return [it for it in (world.checkout / ".git").rglob("*.lock") if it.name != "base-image-runbook.lock"]
