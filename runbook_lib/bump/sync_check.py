"""Notebook 07-sync-check: compare all pins on the bump's branch, or in the work tree if there is no branch yet.

It changes nothing.  A preview compares the pins as the bump will leave them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from runbook_lib import display, notebooks
from runbook_lib.bump import pins_step, sync_survey
from runbook_lib.bump.sync_survey import Survey
from runbook_lib.model import Check, Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import PinVerdict, check_pins, lockstep_tags
from runbook_lib.text.lists import join_first, shorten
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.command import GitFailed
from runbook_lib.world.ports import World

NAME = notebooks.SYNC_CHECK
_NAMED = 5  # lines in a sentence


@dataclass(frozen=True)
class SyncFacts:
    """The pins to judge: as they are, or as ``planned``.

    ``untouched`` compares the pins of the other image type with the base.  ``old_lines`` are the lines outside the
    pins that name the old tag, by place; ``unsearched`` is the reason if they are unknown.
    """

    branch: BumpBranch
    survey: Survey
    planned: bool
    untouched: tuple[Check, ...]
    old_lines: Mapping[str, str]
    unsearched: str


def look(world: World, bump: Bump) -> SyncFacts:
    """Read the pins.  Raises RunbookError for pins that cannot be planned."""
    branch = BumpBranch.look(world, bump)
    survey, planned = _read_pins(world, branch)
    untouched = (pins_step.check_other_type(branch, branch.fork, branch.start),) if branch.tip else ()
    old_lines, unsearched = {}, ""
    if bump.tag is not None and survey.snapshots[0].commit:
        try:
            old_lines = _old_lines(branch, survey.snapshots[0].verdicts)
        except GitFailed as error:
            unsearched = f"{world.checkout.path} could not be searched for lines that name the old tag. {error}"
    return SyncFacts(branch, survey, planned, untouched, old_lines, unsearched)


def plan(facts: SyncFacts, bump: Bump) -> Plan[World]:
    """Judge whether the pins agree, or will agree after the planned edits."""
    survey, branch = facts.survey, facts.branch
    in_sync = survey.outcome == "in sync"
    summary = f"With the planned edits: {survey.summary}" if facts.planned else survey.summary
    findings = list(filter(None, [facts.unsearched]))
    if facts.old_lines:
        places = join_first(list(facts.old_lines), _NAMED)
        named = f"The old tag is still named outside of the pins: {places}"
        findings.append(f"{named}. A bump does not move these lines.")
    sentences = (*survey.sentences, *findings)
    old_lines = [{"place": place, "line": line} for place, line in facts.old_lines.items()]
    shown = display.table(survey.rows()) + display.notes(sentences) + display.note(summary)
    return Plan(
        Outcome(summary, Next() if in_sync else Next("Fix the pins named above; a bump moves them together.")),
        (shown + display.table(old_lines) if old_lines else shown,),
        checks=(Check.of("all pins agree", in_sync, " ".join([summary, *survey.notes])), *facts.untouched),
        evidence=Evidence(
            inputs={"base_commit": branch.base_commit, "head_commit": branch.start},
            tables={"pins": survey.rows()} | ({"old-tag": old_lines} if old_lines else {}),
            warnings=tuple(findings) if in_sync else sentences,  # preflight names informational pins
        ),
    )


def _read_pins(world: World, branch: BumpBranch) -> tuple[Survey, bool]:
    """Return the pins, and whether that is with the planned edits."""
    bump = branch.bump
    compare = partial(sync_survey.survey, world.checkout, image_type=bump.image_type, repository=bump.repository)
    # Run on its own, the step proves that a branch is in sync now; in a bump's preview the edits are still to come.
    is_preview = bump.tag and not bump.apply and (branch.tip is None or world.journal.is_bump)
    if branch.tip is None and not is_preview:
        return compare(), False
    edits = pins_step.plan_commit(branch, branch.start).edits if is_preview else ()
    return compare([branch.start], expected=bump.tag, edits=edits, of_bump=True), bool(edits)


def _old_lines(branch: BumpBranch, pins: Sequence[PinVerdict]) -> dict[str, str]:
    """Return place → text of each line that names the old tag where the bump's branch starts, except for ``pins``.

    What a partial clone lacks is not fetched.  Raises GitFailed if git cannot search.
    """
    sites, checkout = branch.bump.repository.sites, branch.checkout
    before = check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites)
    moved = lockstep_tags(before, branch.bump.image_type)
    tags = set(chain(*moved.values())) - set(chain(*lockstep_tags(pins).values()))
    if not tags:
        return {}
    options = ["-n", "-I", "-z", "--fixed-strings", "--full-name", "--no-recurse-submodules", "--no-color"]
    listed = checkout.git("grep", *options, *(f"-e{tag}" for tag in tags), branch.start, "--", offline=True)
    known = {(pin.path, pin.line) for pin in (*before, *pins)}
    lines = {}
    for line in listed.split("\n"):
        path, _, rest = line.removeprefix(f"{branch.start}:").partition("\0")
        number, _, text = rest.partition("\0")
        if number.isdecimal() and (path, int(number)) not in known:  # a file's name may hold a line feed
            lines[f"{path}:{number}"] = shorten(text.strip(), 120)
    return lines
