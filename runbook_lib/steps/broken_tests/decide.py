"""Step 6, first half: what still fails in a CI run, why, and what a person decides about it.  Changes nothing.

A failed test is *explained* by golden values that were refreshed, *decided* when its rows are out of the way on the
bump's branch, and *flaky* when its cause is infrastructure: that is run again.  All others are open, and hold the
round's push back.
"""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from runbook_lib import display
from runbook_lib.clients.github import issues as github_issues
from runbook_lib.clients.github.models import Issue
from runbook_lib.display import View
from runbook_lib.errors import Refused
from runbook_lib.golden.collect import CollectionProblem
from runbook_lib.recipes import issue_references, quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.steps.broken_tests import issue as tracking
from runbook_lib.steps.broken_tests.issue import BrokenTest
from runbook_lib.text.edits import Edit
from runbook_lib.triage import failed_jobs
from runbook_lib.triage.failed_jobs import Seen
from runbook_lib.workflow import golden_comparison
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.pull_request import PullRequestState
from runbook_lib.workflow.quarantines import is_out, recipe_texts, rows_of, settled
from runbook_lib.workflow.run_choice import ChosenRun

#: Causes that a person may call broken; drift is for step 5, and builds, linters and unit tests stand in no recipe.
_PROPOSED = frozenset({"hang", "out of memory", "shape", "import error", "unknown"})


@dataclass(frozen=True)
class Triage:
    """The failed jobs of a run, and of them, by name, those that golden values do not explain.

    ``unread`` says of which of them that is only because their values are not to be had, and why.
    """

    asked: ChosenRun
    seen: tuple[Seen, ...] = ()
    undecided: tuple[str, ...] = ()
    unread: tuple[CollectionProblem, ...] = ()

    @property
    def pull_request(self) -> PullRequestState:
        """The pull request that the run belongs to."""
        return self.asked.pull_request

    def show(self) -> View:
        """Each failed job with its cause and evidence."""
        if self.asked.source is None:
            return display.note(f"{self.asked.idle[:1].upper()}{self.asked.idle[1:]}.")
        lost = display.notes(self.warnings, title="Warnings")
        return self.asked.show() + lost + failed_jobs.show(self.seen)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person must know who decides."""
        told = "Whether golden values explain the failure of {} is not known. {}"
        return tuple(told.format(it.job, it.sentence) for it in self.unread)


@dataclass(frozen=True)
class Decision:
    """A test that a person calls broken.  ``issue`` tracks it, else one is filed with ``title`` and ``body``."""

    target: Target
    test: BrokenTest
    seen: Seen | None
    issue: Issue | None
    title: str = ""
    body: str = ""


@dataclass(frozen=True)
class Plan:
    """What would be done.  ``done`` are named tests that are out of the way already, ``back`` those that come back."""

    triage: Triage
    decisions: tuple[Decision, ...] = ()
    done: tuple[Target, ...] = ()
    back: tuple[Target, ...] = ()
    soft: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def branch(self) -> BumpBranch:
        """Where the bump stands."""
        return self.triage.pull_request.branch

    def edits(self, issues: Mapping[Target, int]) -> tuple[Edit, ...]:
        """The recipes with these tests out of the way, each by its issue's number, and others back."""
        texts = recipe_texts(self.branch, [it.target.case for it in self.decisions] + [it.case for it in self.back])
        whole = "whole-row" in self.branch.bump.allow
        made = []
        for path, before in texts.items():
            after = before
            for target, issue in issues.items():
                companions = tuple(issues)
                after = quarantine.mark(
                    path, after, [target], issue, companions=companions, soft=self.soft, whole_rows=whole
                ).after
            after = quarantine.unmark(path, after, self.back, whole_rows=whole).after if self.back else after
            if after != before:
                made.append(Edit(path, before, after))
        return tuple(made)

    def show(self) -> View:
        """The tests, their issues and the change of the recipes; issues to be filed are ``#(new)`` in it."""
        from runbook_lib.text import edits

        if self.triage.asked.source is None:
            return display.note("There is nothing to decide.")
        rows = [
            {"test": str(it.target), "reason": it.target.reason,
             "issue": f"#{it.issue.number} {it.issue.url}" if it.issue else "is filed"}
            for it in self.decisions
        ]  # fmt: skip
        rows += [{"test": str(it), "reason": it.reason, "issue": "found: out of the way already"} for it in self.done]
        rows += [{"test": str(it), "reason": it.reason, "issue": "comes back"} for it in self.back]
        shown = display.table(rows, empty="No test was named as broken.")
        if self.soft:
            shown += display.note(
                "allow_failure lets these rows fail. Only GitLab honours it: on GitHub they stay red."
            )
        numbers = {it.target: it.issue.number if it.issue else 0 for it in self.decisions}
        shown += display.diff(edits.diff(self.edits(numbers)), empty="No recipe changes.")
        for it in self.decisions:
            if it.issue is None:
                shown += display.code(it.body, title=f"Issue: {it.title}")
        return shown + display.notes(self.warnings, title="Warnings") + self._proposal()

    def _proposal(self) -> View:
        text = proposal(self)
        return (
            display.code(text, title="Tests that could be called broken; give those that are, with your reason")
            if (text)
            else display.View("", "")
        )


def triage(asked: ChosenRun, say: Callable[[str], object] = print) -> Triage:
    """Why each failed job of the run failed, and which of them no golden value explains.  Prints how far it is."""
    github = asked.pull_request.github
    if asked.source is None or github is None:
        return Triage(asked)
    if asked.source.gitlab:
        seen = failed_jobs.of_gitlab(asked.source, say)
    else:
        run = failed_jobs.Place(github.run(asked.number))
        seen = failed_jobs.triage(github, run, asked.bump.base, say)
    values = golden_comparison.collect(asked, on_branch=True, say=lambda _: None)
    unread = tuple(it for it in values.missing if it.job in values.undecided)
    return Triage(asked, seen, values.undecided, unread)


def plan(found: Triage, *, broken: str = "", reenable: str = "", soft: bool = False) -> Plan:
    """What a person's list changes; ``broken`` and ``reenable`` as ``quarantine.named`` takes them.

    Their names are checked whether there is a run or not; looks for the issue of each test.  Raises Refused for a test
    that no recipe has or that did not fail in the run, and for an issue that is closed.
    """
    state = found.pull_request
    branch, bump = state.branch, state.bump
    targets, rows = settled(branch, broken, "broken")
    back, _ = settled(branch, reenable, "reenable")
    source = found.asked.source
    if source is None:
        return Plan(found)
    decisions, done, warnings = [], [], []
    for target in targets:
        mine = [row for row in rows if target.is_of(row)]
        if all(is_out(row, soft) for row in mine):
            done.append(target)
            continue
        seen = next((it for it in found.seen if it.test == f"{target.model}/{target.case}"), None)
        if seen is None and "unseen-failure" not in bump.allow:
            raise Refused(f"{target} did not fail in {source.name}, so it is not broken.", "unseen-failure")
        if seen is not None and seen.failure.kind == "golden drift":
            warnings.append(f"{target} only drifted: step 5 refreshes its golden values.")
        decisions.append(_decision(state, target, mine, seen, found.asked.url, internal=source.gitlab))
    return Plan(found, tuple(decisions), tuple(done), back, soft, tuple(warnings))


def _decision(
    state: PullRequestState, target: Target, rows: Sequence[RecipeRow], seen: Seen | None, run: str, *, internal: bool
) -> Decision:
    github, bump = state.github, state.bump
    scopes = dict.fromkeys(cell.value for row in rows for cell in row.scopes if quarantine.gating(cell.value))
    test = BrokenTest(
        target.model, target.case, target.environment, target.platform, target.reason, rows[0].recipe, tuple(scopes)
    )
    issue = None
    if github is not None:
        if number := issue_references.issue_of_reason(target.reason, github.repository):
            issue = github_issues.read(github, number)
            if issue.state != "open":
                raise Refused(f"#{number}, which the reason for {target} names, is {issue.state}. Name an open issue.")
        else:
            # The search lags behind what was just filed; the list of our own does not.
            me = github.me().login
            own = github_issues.listed(github, me)
            issue = tracking.choose([*github_issues.search(github, target.case), *own], test, me)
    old, new = _images(state.branch)
    pull = state.pull.url if state.pull else ""
    failure = seen.failure if seen else None
    body = tracking.body(test, bump, old=old, new=new, run=run, pull=pull, failure=failure, internal=internal)
    return Decision(target, test, seen, issue, tracking.title(test, bump), body)


def _images(branch: BumpBranch) -> tuple[str, str]:
    """The image of the base branch, where its pins tell one, and that of the bump."""
    from runbook_lib.pins.check import check_pins

    role, sites = f"lockstep {branch.bump.image_type}", branch.bump.repository.sites
    verdicts = check_pins(branch.checkout.read(sites.pin_paths, branch.base_commit), sites)
    old = {it.image for it in verdicts if it.role == role}
    return ", ".join(sorted(old)) or "unknown", f"{sites.image}:{branch.bump.tag}"


def proposal(made: Plan) -> str:
    """What is ``proposed``, as the parameter ``broken`` takes it."""
    return "; ".join(f"{name}: {cause}" for name, cause in proposed(made).items())


def proposed(made: Plan) -> dict[str, str]:
    """The tests that are open and could be called broken, ``model/case@platform``, with their causes.

    A regression of numerics is never among them.
    """
    branch = made.branch
    named = {(it.model, it.case) for it in (*(d.target for d in made.decisions), *made.done)}
    cases = [it.test.split("/", 1) for it in made.triage.seen if it.test and it.failure.kind in _PROPOSED]
    open_cases = [(model, case) for model, case in cases if (model, case) not in named]
    rows = rows_of(branch, [case for _, case in open_cases]) if open_cases else ()
    entries = {}
    for it in made.triage.seen:
        model, _, case = it.test.partition("/")
        if (model, case) not in open_cases:
            continue
        for row in rows:
            if (row.model, row.case) == (model, case) and branch.bump.image_type in row.environments:
                for platform in row.platforms if _on_github(row) else ():
                    cause = issue_references.without_issues(" ".join(it.failure.cause.replace(";", ",").split()))
                    entries[f"{model}/{case}@{platform}"] = textwrap.shorten(cause, 120, placeholder=" …")
    return entries


def _on_github(row: RecipeRow) -> bool:
    return any(cell.value in ("mr-github", "mr-github-slim", "L0", "L1") for cell in row.scopes)


def open_jobs(found: Triage, after: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The jobs that hold the push back, and the flaky ones that are only to run again, by name.

    ``after``: recipes by path as they will be pushed; without it, as the branch has them.
    """
    tests = {it.failure.job: it.test for it in found.seen}
    cases = [test.partition("/")[2] for test in tests.values() if test]
    out = _taken_out(found, cases, after or {})
    left = Counter(found.undecided) - Counter({job: out.get(test, 0) for job, test in tests.items()})
    # The jobs of one test have one name on all platforms, and may fail for different causes: they are counted.
    flaky = left & Counter(it.failure.job for it in found.seen if it.failure.kind == "flaky infrastructure")
    return tuple(sorted((left - flaky).elements())), tuple(sorted(flaky.elements()))


def _taken_out(found: Triage, cases: Sequence[str], after: Mapping[str, str]) -> dict[str, int]:
    """On how many platforms each test ran in the run's commit and is out of the way now."""
    branch = found.pull_request.branch
    tested = found.asked.tested if branch.checkout.has(found.asked.tested) else branch.start
    then = rows_of(branch, cases, tested) if cases else ()
    texts = {**(recipe_texts(branch, cases) if cases else {}), **after}
    now = [row for path, text in texts.items() for row in recipes.rows(path, text)]
    return dict(Counter(test for test, _ in _running(then, branch) - _running(now, branch)))


def _running(rows: Iterable[RecipeRow], branch: BumpBranch) -> set[tuple[str, str]]:
    return {
        (f"{row.model}/{row.case}", platform)
        for row in rows
        if branch.bump.image_type in row.environments and not row.allow_failure
        for platform in row.platforms
        if any(quarantine.gating(cell.value) for cell in row.scopes)
    }
