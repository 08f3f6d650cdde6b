"""The pins against the real history of Megatron-LM: what people changed is the ground truth."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from runbook_lib.bump.sync_survey import survey
from runbook_lib.cli.__main__ import main
from runbook_lib.errors import RunbookError
from runbook_lib.images.families import NGC
from runbook_lib.pins import plan
from runbook_lib.pins.check import outcome
from runbook_lib.pins.repositories import MEGATRON_LM as REPOSITORY
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay

MEGATRON_LM = REPOSITORY.sites

GITLAB = ".gitlab/stages/01.build.yml"
VERSION = {"dev": "docker/.ngc_version.dev", "lts": "docker/.ngc_version.lts"}
DOCKERFILE = {"dev": "docker/Dockerfile.ci.dev", "lts": "docker/Dockerfile.ci.lts"}
ROW = {"dev": "CI_MCORE_DEV_IMAGE", "lts": "CI_MCORE_LTS_IMAGE"}
SINCE = "23a1dcaf74"
MAIN = "d98e8a64"


def texts(clone: Path, ref: str) -> dict[str, str | None]:
    return Checkout.open(clone).read(MEGATRON_LM.paths, ref)


def planned(given: dict[str, str | None], target: str, image_type: str) -> dict[str, dict[int, tuple[str, str]]]:
    """Return old and new text, by file and line, of the lines that a plan changes."""
    made = plan.plan(given, MEGATRON_LM, NGC.read(target), image_type, digest_of_target=str)
    assert all(edit.before == given[edit.path] for edit in made.edits)
    lines: dict[str, dict[int, tuple[str, str]]] = {}
    for edit in made.edits:
        pairs = zip(edit.before.split("\n"), edit.after.split("\n"), strict=True)
        lines[edit.path] = {n: pair for n, pair in enumerate(pairs, 1) if pair[0] != pair[1]}
    assert {(path, line) for path in lines for line in lines[path]} == {(c.path, c.line) for c in made.changes}
    return lines


# What people changed ---------------------------------------------------------------------------


def people_changed(clone: Path, before: str, after: str) -> dict[str, dict[int, tuple[str, str]]]:
    """Line of the old file, old and new text, for each line of a dev pin's file that names the image."""
    found: dict[str, dict[int, tuple[str, str]]] = {}
    old, new = (Checkout.open(clone).read([VERSION["dev"], GITLAB, DOCKERFILE["dev"]], ref) for ref in (before, after))
    for path in old:
        was = [(n, line) for n, line in enumerate((old[path] or "").split("\n"), 1) if "nvidia/pytorch" in line]
        now = [line for line in (new[path] or "").split("\n") if "nvidia/pytorch" in line]
        lines = {n: (line, other) for (n, line), other in zip(was, now, strict=True) if line != other}
        found |= {path: lines} if lines else {}
    return found


@pytest.mark.parametrize(
    ("bump", "mended", "target", "places"),
    [
        ("82049aa847", "82049aa847", "25.11-py3", {VERSION["dev"]: 1, GITLAB: 1}),
        ("f5b2ec0130", "f5b2ec0130", "26.02-py3", {VERSION["dev"]: 1, GITLAB: 2}),
        # The rows of GitLab were forgotten and came with #4688.
        ("5fe3f06658", "7cdf652c16", "26.04-py3", {VERSION["dev"]: 1, GITLAB: 2}),
        # The default of the Dockerfile was forgotten and came with #5680.
        ("64bee49c96", "97b25d9d7b", "26.06-py3", {VERSION["dev"]: 1, GITLAB: 2, DOCKERFILE["dev"]: 1}),
    ],
    ids=["#2923", "#3474", "#4611 with #4688", "#5632 with #5680"],
)
def test_the_plan_changes_the_lines_that_people_finally_changed(megatron_lm, bump, mended, target, places):
    parent = f"{bump}^"
    given = texts(megatron_lm, parent)
    made = planned(given, target, "dev")
    assert made == people_changed(megatron_lm, parent, mended)
    assert {path: len(lines) for path, lines in made.items()} == places
    # #4611 gave the file the final newline that it had lacked; a bump keeps the ending there is.
    made = plan.plan(given, MEGATRON_LM, NGC.read(target), "dev", digest_of_target=str)
    (edit,) = [e for e in made.edits if e.path == VERSION["dev"]]
    assert edit.after.endswith("\n") == edit.before.endswith("\n") == (bump == "64bee49c96")


# The pins, read another way: line by line ---------------------------------------------------------------------------


def independent(given: dict[str, str | None], image_type: str) -> dict[tuple[str, int], str]:
    """Tag by file and line of the pins of a type."""
    found: dict[tuple[str, int], str] = {}
    if (version := given[VERSION[image_type]]) is not None:
        found[VERSION[image_type], 1] = version.strip().rpartition(":")[2]
    row: dict[str, tuple[int, str]] = {}
    rows = [row]
    for number, line in enumerate((given[GITLAB] or "").split("\n"), 1):
        if re.match(r" {6}- \w", line):
            row = {}
            rows.append(row)
        if match := re.match(r" {6}[- ] (\w+): (\S+)$", line):
            row[match[1]] = (number, match[2])
        else:
            row = {}
    for row in rows:
        if row.get("IMAGE", (0, ""))[1] == ROW[image_type] and "BASE_IMAGE" in row:
            number, value = row["BASE_IMAGE"]
            found[GITLAB, number] = value.rpartition(":")[2]
    for number, line in enumerate((given[DOCKERFILE[image_type]] or "").split("\n"), 1):
        if line.startswith("FROM"):
            break
        if match := re.fullmatch(r"ARG FROM_IMAGE_NAME=\S+:(\S+)", line):
            found[DOCKERFILE[image_type], number] = match[1]
    return found


def independent_wrong(given: dict[str, str | None]) -> set[tuple[str, int]]:
    """The pins that are not the newest of their type; tags of this form sort as text."""
    wrong: set[tuple[str, int]] = set()
    for image_type in ("dev", "lts"):
        found = independent(given, image_type)
        assert found
        wrong |= {place for place, tag in found.items() if tag != max(found.values())}
    return wrong


# runbook check ------------------------------------------------------------------------------------------------------


#: Pins that a commit forgot, or that the next one brought; the last is of the branch dev, for 18 days.
FORGOTTEN = {
    "5fe3f06658": {GITLAB: 2}, "7cdf652c16": {}, "64bee49c96": {DOCKERFILE["dev"]: 1}, "97b25d9d7b": {},
    "d338cc565f": {VERSION["dev"]: 1},
}  # fmt: skip


def test_check_agrees_with_another_way_to_read_the_pins_on_every_commit_that_touches_them(megatron_lm, capsys):
    log = ["rev-list", "--full-history", f"{SINCE}^..{MAIN}", "--", *MEGATRON_LM.pin_paths]
    listed = [*Checkout.open(megatron_lm).git(*log).split(), *FORGOTTEN]
    assert len(listed) > 50
    refs = [part for commit in listed for part in ("--ref", commit)]
    status = main(["check", "--json", *refs, str(megatron_lm)])
    told = json.loads(capsys.readouterr().out)
    wrong = {commit: independent_wrong(texts(megatron_lm, commit)) for commit in listed}
    assert {ref["ref"]: {(p["path"], p["line"]) for p in ref["pins"] if p["role"] != "informational" and p["detail"]}
            for ref in told["refs"]} == wrong  # fmt: skip
    assert {ref["ref"] for ref in told["refs"] if ref["outcome"] == "out of sync"} == {c for c in wrong if wrong[c]}
    assert {ref["outcome"] for ref in told["refs"]} == {"in sync", "out of sync"}
    assert {commit: Counter(path for path, _ in wrong[commit]) for commit in FORGOTTEN} == FORGOTTEN
    assert status == 1


def test_every_branch_is_checked_and_planned_or_refused(megatron_lm):
    found = survey(Checkout.open(megatron_lm), ["*"], repository=REPOSITORY)
    assert len(found.snapshots) > 50
    release = [snapshot for snapshot in found.snapshots if "core_r" in snapshot.name and snapshot.verdicts]
    assert len(release) >= 8
    assert "cannot tell" not in {outcome(snapshot.verdicts) for snapshot in release}
    for snapshot in found.snapshots:
        given = texts(megatron_lm, snapshot.commit)
        assert bool(snapshot.verdicts) == MEGATRON_LM.matches(given)
        if outcome(snapshot.verdicts) != "cannot tell":
            pins = [it for it in snapshot.verdicts if it.role != "informational" and it.state != "in sync"]
            assert {(pin.path, pin.line) for pin in pins} == independent_wrong(given)
        is_unclear = not snapshot.verdicts or outcome(snapshot.verdicts) == "cannot tell"
        for image_type in ("dev", "lts"):
            if is_unclear:
                with pytest.raises(RunbookError):
                    planned(given, "29.12-py3", image_type)
                continue
            made = planned(given, "29.12-py3", image_type)
            places = {(path, line) for path in made for line in made[path] if not path.startswith(".github/")}
            assert places == set(independent(given, image_type)), snapshot.name
            for old, new in (pair for lines in made.values() for pair in lines.values()):
                assert new == re.sub(r"\d\d\.\d\d-py3", "29.12-py3", old)
