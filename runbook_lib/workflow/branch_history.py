"""The commits of the bump's branch: made and recorded here, and reviewed before they are pushed or tested.

A commit is the runbook's own when it holds exactly what the records say was planned on its parent; where this archive
does not know it, when it is exactly the plan of the pins for its parent.  An empty commit and a clean merge of the base
add nothing.  Every other commit is *foreign*: whoever made it, whatever it is called.  It is pushed and tested only
when a person who saw its diff confirms it, by its full id.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook_lib import display
from runbook_lib.bump import FOREIGN, Bump
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git import commit_changes
from runbook_lib.git.commit_changes import Commit
from runbook_lib.records import archive
from runbook_lib.records.step_record import StepRecord
from runbook_lib.text.edits import Edit, edited_paths
from runbook_lib.text.redact import Redactor
from runbook_lib.text.sanitize import visible
from runbook_lib.workflow import bump_branch
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.bump_plan import plan_commit

#: A branch with more commits than that is none that a person can review; copy-pr-bot trusts none with 250.
_MOST = 200


@dataclass(frozen=True)
class Known:
    """What the records of a bump know of its commits.

    ``planned`` are the pairs of a parent and the changes that were planned on it, with the ids of what was committed;
    ``confirmed`` are the commits that a person has confirmed.
    """

    planned: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    confirmed: frozenset[str] = frozenset()


def known(records: Path | None) -> Known:
    """Read the records of a bump's folder; nothing where there is none."""
    if records is None or not records.is_dir():
        return Known()
    planned: dict[tuple[str, str], frozenset[str]] = {}
    confirmed: set[str] = set()
    for run in archive.read_records(records).readable:
        after = {str(it.get("before")): str(it.get("after")) for it in _entries(run, "effects", "commit")}
        listed = (run.get("inputs") or {}).get("planned_commits")
        for entry in (it for it in listed if isinstance(it, dict)) if isinstance(listed, list) else ():
            parent, made = str(entry.get("parent")), str(entry.get("changes"))
            ids = {after[parent]} if parent in after else set()
            planned[parent, made] = planned.get((parent, made), frozenset()) | ids
        for it in run.get("exceptions") or ():
            name, _, commit = str(it.get("exception")).partition(":")
            if name == FOREIGN:
                confirmed.add(commit)
    return Known(planned, frozenset(confirmed))


def _entries(run: Mapping[str, Any], kind: str, effect: str) -> list[Mapping[str, Any]]:
    return [it for it in run.get(kind) or () if it.get("effect") == effect]


@dataclass(frozen=True)
class Review:
    """The commits between the base and a head, the oldest first, and those of them that are foreign.

    ``confirmed`` are the foreign ones that a person has confirmed, by this run's ``allow`` or an earlier one's.
    ``made`` are the ids of those whose messages are the runbook's own as well.
    """

    branch: BumpBranch
    head: str
    commits: tuple[Commit, ...] = ()
    foreign: tuple[Commit, ...] = ()
    confirmed: tuple[Commit, ...] = ()
    made: frozenset[str] = frozenset()

    @property
    def held(self) -> str:
        """What is waited for; empty where every commit is the runbook's own or confirmed."""
        if not self.foreign:
            return ""
        count = "a commit" if len(self.foreign) == 1 else f"{len(self.foreign)} commits"
        return f"waiting for a person to confirm {count} that the runbook did not make: {_list(self.foreign)}"

    @property
    def next(self) -> str:
        """How to confirm the foreign commits, and how to undo them."""
        return f"Read the diff. If it is right, run again with {self.parameter}. {self.undo}" if self.foreign else ""

    @property
    def parameter(self) -> str:
        """The parameter that confirms them, to be pasted."""
        names = [*sorted(self.branch.bump.allow), *(f"{FOREIGN}:{commit.id}" for commit in self.foreign)]
        return f'allow="{", ".join(names)}"'

    @property
    def undo(self) -> str:
        """How to take the oldest foreign commit off the branch, with all that follows."""
        bump, checkout = self.branch.bump, self.branch.checkout
        parent = next(iter(self.foreign[0].parents), "")
        if not parent:
            return f"Else delete the branch {bump.branch}, and run again."
        git = f"git -C {shlex.quote(str(checkout.path))}"
        here = f"{git} switch {bump.branch} && {git} stash --include-untracked && {git} reset --hard {parent}"
        away = f"{git} push --force-with-lease {bump.remote} {parent}:refs/heads/{bump.branch}"
        return (
            f"Else take it off the branch, with all that follows it: `{here}` (what is not committed is stashed); and "
            f"where it is pushed: `{away}`."
        )

    def show(self) -> View:
        """The diff of each foreign commit, with who wrote it and how to confirm it."""
        shown = display.View("", "")
        redactor = Redactor(os.environ)
        for commit in self.foreign:
            kind = " (a merge: its diff is against its first parent)" if len(commit.parents) > 1 else ""
            shown += display.note(redactor.text(f"{commit.id}{kind}: {_named(commit)}, {commit.date}"))
            diff = redactor.text(commit_changes.shown(self.branch.checkout, commit))
            shown += display.diff(diff, empty="It changes no file.")
            shown += display.note(f"All of it: git -C {self.branch.checkout.path} show {commit.id}")
        return shown + display.note(f"{self.held[:1].upper()}{self.held[1:]}. {self.next}") if self.foreign else shown

    def record(self, step: StepRecord) -> None:
        """Keep in the record what was confirmed now, or what is to be confirmed, with its diff."""
        for commit in self.confirmed if self.branch.bump.apply else ():
            step.allowed(f"{FOREIGN}:{commit.id}", f"It is {_named(commit)}.")
        if not self.foreign:
            return
        step.warn(f"The runbook did not make {_list(self.foreign)}.")
        step.diff("\n".join(commit_changes.shown(self.branch.checkout, commit) for commit in self.foreign) + "\n")
        for commit in self.foreign:
            step.decide("allow", f"{FOREIGN}:{commit.id}", f"The runbook did not make {_named(commit)}. Read its diff.")


def review(branch: BumpBranch, head: str, records: Path | None) -> Review:
    """Judge every commit between the base branch and ``head`` by what it changes.  Writes nothing.

    Raises Refused for a confirmed commit that is not among them, and for more commits than anybody can review.
    """
    checkout = branch.checkout
    commits = commit_changes.listed(checkout, branch.base_commit, head)
    if len(commits) > _MOST:
        raise Refused(
            f"{branch.bump.branch} holds {len(commits)} commits that {branch.bump.base} lacks, and at most {_MOST} can "
            "be reviewed, so nothing was pushed or tested. Is that the right base? Else delete the branch, and run "
            "again."
        )
    ids = {commit.id for commit in commits}
    given = _confirmed(branch.bump)
    _require_there(branch, given - ids)
    records_know = known(records)
    others = [commit for commit in commits if not _is_own(branch, commit, ids, records_know)]
    confirmed = given | records_know.confirmed
    made = {
        commit.id
        for commit in commits
        if commit.id in confirmed or (commit not in others and _made_here(branch, commit, records_know))
    }
    return Review(
        branch,
        head,
        commits,
        tuple(commit for commit in others if commit.id not in confirmed),
        tuple(commit for commit in others if commit.id in confirmed),
        frozenset(made),
    )


def _require_there(branch: BumpBranch, given: frozenset[str]) -> None:
    """Raise Refused for a confirmed commit that the branch does not have; one that waits for its push is there."""
    there = commit_changes.listed(branch.checkout, branch.base_commit, branch.start) if given else ()
    if unknown := sorted(given - {commit.id for commit in there}):
        bump = branch.bump
        raise Refused(
            f"allow confirms {', '.join(unknown)}, which is no commit of {bump.branch} beyond {bump.base}. "
            "A confirmation holds for one commit alone: take it out of allow."
        )


def _confirmed(bump: Bump) -> frozenset[str]:
    """The commits that the parameter ``allow`` confirms."""
    return frozenset(name.partition(":")[2] for name in bump.allow if name.startswith(f"{FOREIGN}:"))


def _is_own(branch: BumpBranch, commit: Commit, ids: set[str], records: Known) -> bool:
    """Whether a commit adds nothing but what the runbook planned."""
    checkout = branch.checkout
    if len(commit.parents) == 2:
        of_the_base = [parent for parent in commit.parents if parent not in ids]
        return len(of_the_base) == 1 and commit_changes.is_clean_merge(checkout, commit)
    if len(commit.parents) != 1:
        return False
    changes = commit_changes.changes(checkout, commit.parents[0], commit.id)
    if not changes or (commit.parents[0], commit_changes.fingerprint(changes)) in records.planned:
        return True
    if not set(changes) <= set(branch.bump.repository.sites.paths):
        return False
    return changes == _planned_changes(branch, commit.parents[0])


def _planned_changes(branch: BumpBranch, parent: str) -> Mapping[str, commit_changes.Change]:
    """Return what the runbook would change on a commit to move the pins; nothing where it cannot plan on that."""
    try:
        plan = plan_commit(branch, parent)
    except RunbookError:
        return {}
    return commit_changes.expected(branch.checkout, parent, plan.edits)


def _made_here(branch: BumpBranch, commit: Commit, records: Known) -> bool:
    """Whether the records know this very commit, and so its message; or its plan, by a run that was killed then."""
    if len(commit.parents) != 1:
        return False
    changes = commit_changes.changes(branch.checkout, commit.parents[0], commit.id)
    ids = records.planned.get((commit.parents[0], commit_changes.fingerprint(changes)))
    return ids is not None and (not ids or commit.id in ids)


def make(step: StepRecord, branch: BumpBranch, edits: Sequence[Edit], message: str) -> str:
    """Write the edits on the bump's branch and commit them; the new commit's id.  The record gets the plan first.

    What hooks, filters or anybody else have made of it shows in the review of the commit.
    """
    bump, checkout = branch.bump, branch.checkout
    checkout.identity()  # git would say so only after the files are written
    fresh = checkout.branch_tip(bump.branch) is None
    for edit in bump_branch.apply_edits(branch, edits):
        step.effect("edit", edit.path, *edit.digests)
    if fresh:
        step.effect("branch", bump.branch, None, branch.start)
    parent = checkout.resolve("HEAD")
    step.planned_commit(parent, commit_changes.fingerprint(commit_changes.expected(checkout, parent, edits)))
    commit = checkout.commit(edited_paths(edits), message)
    step.effect("commit", bump.branch, parent, commit)
    return commit


def push(step: StepRecord, reviewed: Review, there: str | None) -> None:
    """Push exactly the commit that was reviewed to the bump's branch, where the remote has ``there`` now."""
    bump, checkout = reviewed.branch.bump, reviewed.branch.checkout
    if reviewed.foreign:
        raise Refused(f"Nothing is pushed: {reviewed.held}. {reviewed.next}")
    checkout.push(bump.remote, bump.branch, reviewed.head)
    step.effect("push", f"{bump.remote} {bump.branch}", there, reviewed.head)


def _named(commit: Commit) -> str:
    return f"{commit.id[:10]} {visible(commit.title)[:80]!r} by {visible(commit.author)[:80]}"


def _list(commits: Sequence[Commit]) -> str:
    more = f" and {len(commits) - 5} more" if len(commits) > 5 else ""
    return ", ".join(map(_named, commits[:5])) + more
