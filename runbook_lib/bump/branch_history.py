"""The review of the commits on the bump's branch, before they are built on, pushed or tested.

A commit is the runbook's own if the records say that exactly its tree was planned on its parent, or, if this archive
does not know it, if it contains exactly the pin plan for its parent.  An empty commit and a clean merge of the base
add nothing.  Every other commit is *foreign*, whatever its author and title.  It is pushed and tested only after a
person who has read its diff confirms it by its full ID.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.bump.pins_step import plan_commit
from runbook_lib.decisions import FOREIGN, Decision
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.model import Check, Next, Outcome, Plan, Question
from runbook_lib.record import archive
from runbook_lib.text.edits import edited_paths, unapplied
from runbook_lib.text.lists import capitalized, join_first
from runbook_lib.text.recipes.file_names import has_values
from runbook_lib.text.recipes.rows import FOLDER as RECIPES
from runbook_lib.text.redact import Redactor
from runbook_lib.text.sanitize import visible
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.conditions.commits import CommitKind
from runbook_lib.world.git.commits import Commit, is_clean_merge, list_commits, show_diff, tree_changes
from runbook_lib.world.github.models import Pull
from runbook_lib.world.ports import World

#: More commits than this cannot be reviewed; copy-pr-bot does not trust a branch with 250.
LIMIT = 200
_CI_ANSWERS: frozenset[CommitKind] = frozenset({"refresh", "quarantine", "reenable"})
OWN_COMMITS = "every commit is the runbook's own or confirmed"


#: The kind of each commit that was planned, by the IDs of its parent and its tree.
Recorded = Mapping[tuple[str, str], str]


def read_records(records: Path | None) -> Recorded:
    """Return the commits that the records in a bump's folder have planned."""
    planned: dict[tuple[str, str], str] = {}
    for run in archive.read_records(records).readable if records and records.is_dir() else ():
        for entry in run["inputs"].get("planned_commits", ()):
            planned[entry["parent"], entry["tree"]] = entry["kind"]
    return planned


def only_ci_answers(branch: BumpBranch, pushed: str, tip: str, records: Path | None) -> bool:
    """Return whether ``tip`` adds only responses to the pushed commit's CI run, which are waiting to be pushed.

    The responses of one round are pushed together, because each push costs a complete run.
    """
    checkout = branch.checkout
    if not checkout.is_ancestor(pushed, tip):
        return False
    recorded = read_records(records)
    waiting = [commit for commit in list_commits(checkout, pushed, tip) if len(commit.parents) == 1]
    return bool(waiting) and all(_is_ci_answer(branch, commit, recorded) for commit in waiting)


def _is_ci_answer(branch: BumpBranch, commit: Commit, recorded: Recorded) -> bool:
    """Judge a commit by its kind in the records; one that they do not have by the files that it changes."""
    parent = commit.parents[0]
    if kind := recorded.get((parent, commit.tree)):
        return kind in _CI_ANSWERS
    changes = tree_changes(branch.checkout, parent, commit.id)
    is_pins = set(changes) <= set(branch.bump.repository.sites.paths)
    return not is_pins and all(has_values(path) or path.startswith(f"{RECIPES}/") for path in changes)


@dataclass(frozen=True)
class Review:
    """The number of commits between the base and a head, and the ``foreign`` ones among them, oldest first.

    ``confirmed`` are people's decisions on further ones, and ``diffs`` those of the foreign commits.  ``theirs`` is the
    URL of the pull request if it is somebody else's.
    """

    branch: BumpBranch
    commits: int
    foreign: tuple[Commit, ...]
    confirmed: tuple[Decision, ...]
    theirs: str
    diffs: tuple[str, ...]

    @property
    def waiting(self) -> Outcome:
        """The wait for a person, who confirms or undoes the foreign commits."""
        count = "a commit" if len(self.foreign) == 1 else f"{len(self.foreign)} commits"
        sentence = f"waiting for a person to confirm {count} that the runbook did not make: {_list(self.foreign)}"
        decisions, subjects = self.branch.bump.decisions, [f"{FOREIGN}:{commit.id}" for commit in self.foreign]
        confirm = "; ".join(decisions.advice("allow", subject) for subject in subjects)
        return Outcome(sentence, Next.again(f"Read the diff. {self.undo} If it is right, {confirm}."))

    @property
    def undo(self) -> str:
        """The commands that remove the oldest foreign commit and all later ones from the branch, if it is ours."""
        if self.theirs:
            return f"Otherwise have it removed from {self.theirs}, or that pull request closed."
        bump, checkout = self.branch.bump, self.branch.checkout
        if not self.foreign[0].parents:
            return f"Otherwise delete branch {bump.branch} and run again."
        parent = self.foreign[0].parents[0]
        git = f"git -C {shlex.quote(str(checkout.path))}"
        local = f"{git} branch --force {bump.branch} {parent}"
        remote = f"{git} push --force-with-lease {bump.remote} {parent}:refs/heads/{bump.branch}"
        return (
            f"Otherwise remove it and all later commits from the branch: `{local}`; "
            f"and if it has been pushed: `{remote}`."
        )

    def show(self) -> display.View:
        """Show each foreign commit's diff and author, and how to confirm it."""
        view, redactor = display.View("", ""), Redactor(os.environ)
        for commit, diff in zip(self.foreign, self.diffs, strict=True):
            kind = " (a merge: its diff is against its first parent)" if len(commit.parents) > 1 else ""
            view += display.note(redactor.text(f"{commit.id}{kind}: {_describe(commit)}, {commit.date}"))
            view += display.diff(redactor.text(diff), empty="It does not change any file.")
            view += display.note(f"Full diff: git -C {self.branch.checkout.path} show {commit.id}")
        return view + display.note(f"{capitalized(self.waiting.sentence)}. {self.waiting.next}")


def apply_review(plan: Plan[World], reviewed: Review) -> Plan[World]:
    """Return the plan with the review of the commits that it builds on: it does nothing while one is unconfirmed."""
    evidence = plan.evidence
    if not reviewed.foreign:
        commits = display.count(reviewed.commits, "commit")
        if reviewed.confirmed:
            commits += f", {len(reviewed.confirmed)} of them confirmed by a person"
        check = Check(OWN_COMMITS, "passed", f"{commits}.")
        if reviewed.branch.bump.apply:  # a preview confirms nothing
            evidence = replace(evidence, decided=(*evidence.decided, *reviewed.confirmed))
        return replace(plan, checks=(*plan.checks, check), evidence=evidence)
    unknown = f"The runbook did not make {_list(reviewed.foreign)}."
    why = "The runbook did not make {}. Read its diff."
    questions = (Question("allow", f"{FOREIGN}:{each.id}", why.format(_describe(each))) for each in reviewed.foreign)
    return replace(
        plan,
        shown=(*plan.shown, reviewed.show()),
        conditions=(),
        questions=(*plan.questions, *questions),
        waiting=reviewed.waiting,
        checks=(*plan.checks, Check(OWN_COMMITS, "waiting", f"{reviewed.waiting.sentence}.")),
        evidence=replace(evidence, diff="\n".join((*reviewed.diffs, "")), warnings=(*evidence.warnings, unknown)),
    )


def review(branch: BumpBranch, head: str, records: Path | None, theirs: str = "") -> Review:
    """Judge every commit between the base branch and ``head`` by its changes.  Writes nothing.

    ``theirs`` is the URL of the pull request if it is somebody else's.

    Raises Refused for more commits than can be reviewed.
    """
    bump = branch.bump
    commits = list_commits(branch.checkout, branch.base_commit, head)
    if len(commits) > LIMIT:
        raise Refused(
            f"{bump.branch} has {len(commits)} commits that are not on {bump.base}, and at most {LIMIT} can be "
            "reviewed, so nothing was pushed or tested.",
            "Check the base, or delete the branch and run again.",
        )
    ids = {commit.id for commit in commits}
    recorded = read_records(records)
    others = [commit for commit in commits if not _is_own(branch, commit, ids, recorded)]
    confirmed = {commit.id: bump.allowed(f"{FOREIGN}:{commit.id}") for commit in others}
    foreign = tuple(commit for commit in others if not confirmed[commit.id])
    diffs = tuple(show_diff(branch.checkout, commit) for commit in foreign)
    return Review(branch, len(commits), foreign, tuple(filter(None, confirmed.values())), theirs, diffs)


def review_pull(branch: BumpBranch, pull: Pull, records: Path | None, *, mine: bool) -> Review | None:
    """Return the review of a pull request's commits, whoever made them; None if they cannot be fetched."""
    if not branch.checkout.has(pull.head_sha):
        with suppress(RunbookError):  # may have been pushed since the branch was read
            if mine:
                branch.checkout.fetch(branch.bump.remote, branch.bump.branch)
            else:
                branch.checkout.fetch_pull(branch.base_remote, pull.number)
    if not branch.checkout.has(pull.head_sha):
        return None
    return review(branch, pull.head_sha, records, theirs="" if mine else pull.url)


def _is_own(branch: BumpBranch, commit: Commit, ids: set[str], recorded: Recorded) -> bool:
    """Return whether the records have a commit, or it adds nothing beyond the plan of the pins and the base."""
    checkout = branch.checkout
    if len(commit.parents) == 2:
        of_the_base = [parent for parent in commit.parents if parent not in ids]
        return len(of_the_base) == 1 and is_clean_merge(checkout, commit)
    if len(commit.parents) != 1:
        return False
    parent = commit.parents[0]
    changes = tree_changes(checkout, parent, commit.id)
    if not changes or (parent, commit.tree) in recorded:
        return True
    if not set(changes) <= set(branch.bump.repository.sites.paths):
        return False
    try:
        edits = plan_commit(branch, parent).edits
        texts = checkout.read(edited_paths(edits), commit.id)
    except RunbookError:
        return False  # the pins of its parent cannot be moved, or a file is too large
    modes_stay = all(change.mode == change.old_mode for change in changes.values())
    return modes_stay and changes.keys() <= texts.keys() and not unapplied(edits, texts)


def _describe(commit: Commit) -> str:
    return f"{commit.id[:10]} {visible(commit.title)[:80]!r} by {visible(commit.author)[:80]}"


def _list(commits: Sequence[Commit]) -> str:
    return join_first(list(map(_describe, commits)), 5)
