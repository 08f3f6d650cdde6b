"""Whether a bump is ready to merge: everything that must hold, looked up anew, and what is left to people."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.clients.github import issues
from runbook_lib.clients.github.client import GitHub
from runbook_lib.clients.github.copy_pr_bot import commands
from runbook_lib.clients.github.models import Pull
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.display import View
from runbook_lib.errors import RunbookError
from runbook_lib.records.status import BEFORE_MERGE
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.execute import StepResult
from runbook_lib.runner.sequence import ROUNDS, conclude
from runbook_lib.triage.failed_jobs import failed
from runbook_lib.workflow import (
    branch_history,
    ci_run,
    golden_comparison,
    pull_request,
    push_round,
    quarantines,
    sync_survey,
)
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.proposal import is_mine
from runbook_lib.workflow.pull_request import PullRequestState


@dataclass(frozen=True)
class Item:
    """Something that must hold before the merge.  ``ok`` None: it does not apply, and ``found`` is the reason."""

    name: str
    ok: bool | None
    found: str
    next: str = ""


@dataclass(frozen=True)
class Readiness:
    """``idle`` says why nothing was looked up; ``people`` is what is theirs to do once all items hold.

    ``ci`` is False where the repository's CI cannot be followed here.
    """

    items: tuple[Item, ...] = ()
    people: tuple[str, ...] = ()
    idle: str = ""
    ci: bool = True

    @property
    def missing(self) -> tuple[Item, ...]:
        """What does not hold yet."""
        return tuple(item for item in self.items if item.ok is False)

    def show(self) -> View:
        """Every item, and what people must do."""
        if self.idle:
            return display.note(self.idle)
        words = {True: "✓ holds", False: "✗ missing", None: "– does not apply"}
        rows = (
            {"before the merge": it.name, "outcome": words[it.ok], "found": it.found, "next": it.next}
            for it in self.items
        )
        return display.table(rows) + display.notes(self.people, title="Left to people")


def look(branch: BumpBranch, github: GitHub | None, records: Path | None = None) -> Readiness:
    """Look everything up: the run of the head commit, its pins, golden values, issues, GitLab.  Changes nothing.

    ``records`` is the bump's folder in the archive.
    """
    bump = branch.bump
    if bump.tag is None or github is None or not bump.apply:
        return Readiness(idle="Whether it is ready to merge is looked up by a run that applies.")
    state = pull_request.read_state(branch, github)
    pull = state.pull
    if pull is None:
        return Readiness(idle=state.problem or "There is no pull request, so nothing is to be merged.")
    if not branch.checkout.has(pull.head_sha):
        return Readiness(idle=f"#{pull.number} stands at {pull.head_sha[:10]}, which this clone does not have.")
    # What is looked up, and the step that a repository may have no use for.
    lookups: dict[str, tuple[str, Callable[[], Iterable[Item]]]] = {
        "a green CI run of the head commit": (notebooks.RUN_CI, lambda: _of_ci(state, github, pull)),
        "commits that are the runbook's own, or confirmed": ("", lambda: [_commits(state, pull, records)]),
        "pins that agree on that commit": ("", lambda: [_pins(branch, pull)]),
        "golden values with nothing held back": (notebooks.GOLDEN_VALUES, lambda: [_values(branch, records)]),
        "an open issue for every broken test": (notebooks.BROKEN_TESTS, lambda: _issues(branch, github, pull)),
        "a green pipeline on GitLab": (notebooks.GITLAB_PIN, lambda: [_gitlab(pull)]),
        "a push of what is here": ("", lambda: [_pushed(branch, pull)]),
    }
    items: list[Item] = []
    for name, (step, lookup) in lookups.items():
        try:
            items += [Item(name, None, why)] if (why := bump.repository.inapplicable(step)) else lookup()
        except RunbookError as error:  # one answer that is not to be had hides no other
            items.append(Item(name, False, str(error), "Run bump again."))
    return Readiness(tuple(items), tuple(_people(state, pull)), ci=not bump.repository.inapplicable(notebooks.RUN_CI))


def _of_ci(state: PullRequestState, github: GitHub, pull: Pull) -> Iterator[Item]:
    now = ci_run.progress(state, pull, github)
    short = pull.head_sha[:10]
    by = ", ".join(it.author for it in commands(state.comments, pull.head_sha)) or "copy-pr-bot" * bool(now.run)
    yield Item(
        "authorization of the head commit", bool(by), f"{short}, by {by or 'nobody'}.", "" if by else notebooks.RUN_CI
    )
    told = f"{now.sentence.rstrip('.')}."
    if now.state == "failed":
        soft = {
            str(row["test"])
            for row in quarantines.quarantined_since_fork(state.branch, pull.head_sha)
            if row["form"] == "soft"
        }
        red = {job.name for job in failed(now.jobs)}
        explained = {name for name in red if name.partition(" - ")[0] in soft}
        if red and red == explained:
            yield Item(
                "a green CI run of the head commit",
                True,
                f"Red, and explained: {', '.join(sorted(red))} may fail (soft).",
            )
            return
    base = f" It tested the merge with {pull.base_ref}" + (
        f", which has moved by {state.behind} commits since." if state.behind else " as it is."
    )
    yield Item(
        "a green CI run of the head commit", now.state == "passed", told + base * (now.state == "passed"), now.next
    )


def _commits(state: PullRequestState, pull: Pull, records: Path | None) -> Item:
    name = "commits that are the runbook's own, or confirmed"
    if not is_mine(pull, state.head_name):
        return Item(name, None, f"They are {pull.author}'s: a person reads every line.")
    reviewed = branch_history.review(state.branch, pull.head_sha, records)
    told = f"{reviewed.waiting}." if reviewed.foreign else f"{display.count(len(reviewed.commits), 'commit')}."
    return Item(name, not reviewed.foreign, told, reviewed.next)


def _pins(branch: BumpBranch, pull: Pull) -> Item:
    found = sync_survey.survey(
        branch.checkout.path,
        [pull.head_sha],
        expected=branch.bump.tag,
        image_type=branch.bump.image_type,
        repository=branch.bump.repository,
    )
    return Item("pins that agree on that commit", found.outcome == "in sync", found.summary, notebooks.SYNC_CHECK)


def _values(branch: BumpBranch, records: Path | None) -> Item:
    held = [
        one for one in golden_comparison.changed_since_fork(branch, records) if one.verdict in ("held back", "refused")
    ]
    names = ", ".join(one.file for one in held[:4]) + (" …" if len(held) > 4 else "")
    told = f"{names} {'is' if len(held) == 1 else 'are'} held back." if held else "Nothing is held back."
    return Item("golden values with nothing held back", not held, told, "05-golden-values, with accept" if held else "")


def _issues(branch: BumpBranch, github: GitHub, pull: Pull) -> Iterator[Item]:
    name = "an open issue for every broken test"
    marked = quarantines.quarantined_since_fork(branch, pull.head_sha)
    lacking = [str(row["test"]) for row in marked if not row["issue"]]
    closed = []
    for row in marked:
        if isinstance(row["issue"], int):
            issue = issues.read(github, row["issue"])
            closed += [f"#{issue.number} of {row['test']} is {issue.state}"] if issue.state != "open" else []
    told = [f"{test} has none" for test in lacking] + closed
    found = "; ".join(told) if told else f"{display.count(len(marked), 'test')} marked."
    yield Item(
        name, not told, f"{found.rstrip('.')}.", "File one, and name it in the comment above the row." if told else ""
    )


def _gitlab(pull: Pull) -> Item:
    name, short = "a green pipeline on GitLab", pull.head_sha[:10]
    if not os.environ.get("GITLAB_URL"):
        return Item(name, None, "No GitLab is set up here (GITLAB_URL): whoever has access must look.")
    newest = next(iter(GitLab.connect().pipelines(pull.head_sha)), None)
    if newest is None:
        how = "Start one with tools/trigger_internal_ci.py (--dry-run first), or skip it with a reason there."
        return Item(name, False, f"{short} has none.", how)
    told = f"Pipeline {newest.id} of {short}: {newest.status}. {newest.url}"
    if newest.status == "skipped":
        return Item(name, None, told)
    how = "05-golden-values, then 06-broken-tests" if newest.status == "failed" else "Run bump again."
    return Item(name, newest.status == "success", told, "" if newest.status == "success" else how)


def _pushed(branch: BumpBranch, pull: Pull) -> Item:
    same = branch.start == pull.head_sha
    told = f"{branch.start[:10]} here, {pull.head_sha[:10]} on #{pull.number}."
    return Item(
        "a push of what is here",
        same,
        told,
        "" if same else "05-golden-values or 06-broken-tests push it.",
    )


def _people(state: PullRequestState, pull: Pull) -> Iterator[str]:
    if pull.draft:
        yield f"Press *Ready for review* on {pull.url}."
    yield "Reviews of the code owners."
    repository = state.bump.repository
    if not repository.workflow:
        yield f"Look at the checks of {pull.url}, which are not followed here."
    yield from (sentence for label, sentence in repository.offers.items() if label not in pull.labels)
    yield "The merge queue; then 08-after-merge." if repository.workflow else "The merge; then 08-after-merge."


def finish(step: StepRecord, results: tuple[StepResult, ...], found: Readiness, *, wait: bool = False) -> View:
    """The outcome of the whole bump: ready to merge, or all that is missing.

    The plan of a preview that would ``wait`` for CI ends with what is done once CI has ended.
    """
    goes_on = wait and not step.bump.apply and any(it.planned or it.state == "waiting" for it in results)
    conclude(step, results, push_round.actions_after_ci(step.bump, ROUNDS) if goes_on else ())
    if found.idle or not all(result.ok for result in results):
        return display.note(found.idle or "A step failed, so the bump is not ready.")
    for it in found.items:
        step.check(Check(f"{BEFORE_MERGE}{it.name}", "passed" if it.ok else "skipped", it.found))
    step.table("before the merge", [vars(it) for it in found.items])
    if all(result.state == "previewed" for result in results):
        return found.show()  # what the run would do stays its outcome
    if found.missing:
        # What was found of each stands in the table; a single one has room for it here.
        listed = ", ".join(it.name for it in found.missing)
        only = f" ({found.missing[0].found.rstrip('.')})" if len(found.missing) == 1 else ""
        last = {it.notebook: it for it in results if it.notebook[:2] in ("04", "05", "06")}
        waits = [it.next for it in last.values() if it.state == "waiting" and it.next]
        # What CI waits for is answered by the steps after it.
        following = " ".join(dict.fromkeys(waits[1:] or waits)) or found.missing[0].next
        step.waiting(f"not ready to merge; missing: {listed}{only}", following)
    else:
        but = "" if found.ci else ", but for CI, which is not followed here"
        step.done(f"Ready to merge{but}: everything that must hold was looked up and holds.", " ".join(found.people))
    return found.show()
