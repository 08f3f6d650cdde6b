"""The tracking issue of a broken test: an open one, or a new one in the form of Megatron-LM's ``mcore-create-issue``.

A new issue mentions only the repository's team on call.  Its owner and whom it mentions are shown before it is filed.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.golden.ci_runs import ChosenRun
from runbook_lib.pins.bump import Bump
from runbook_lib.text.markdown import render, unlinked
from runbook_lib.text.recipes.quarantine import BROKEN
from runbook_lib.text.recipes.rows import RecipeRow, Target
from runbook_lib.world.conditions.forge import IssueFiled
from runbook_lib.world.github.models import Issue
from runbook_lib.world.machine.clock import now
from runbook_lib.world.ports import Forge

LABEL = "bug"
#: A quarantine is reviewed when the next base image is due.
REVIEW_AFTER = timedelta(days=30)
#: By the test's state on the base branch: the image is named as the cause only if the test passes there.
_INTRODUCTIONS = {
    "new": "The test fails in CI with a new base image",
    "failing": "The test fails in CI on {base}, even without the new base image",
    "unknown": "The test fails in CI; it is unknown whether the new base image is the cause",
}
_LAUNCHER = ("python", "tests/test_utils/python_scripts/launch_nemo_run_workload.py")


def review_date() -> str:
    """Return the date by which a quarantine of today is reviewed."""
    return f"{now() + REVIEW_AFTER:%Y-%m-%d}"


def marker(test: Target) -> str:
    """Return the comment that identifies the test in an issue filed by this tool."""
    name = re.sub(r"[^\w.+/@:-]", "", test.subject)
    return f"<!-- base-image-runbook:broken {name} -->"


def choose(issues: Iterable[Issue], test: Target, login: str = "") -> Issue | None:
    """Return a test's open issue: one with its marker, else the oldest that names the case in its title or body.

    Only issues by members of the repository or by ``login`` count: a stranger could close or change an issue that a
    recipe row refers to.  A name that is only a prefix of another test's name does not match.
    """
    trusted = []
    for issue in sorted(issues, key=lambda issue: issue.number):
        if issue.state == "open" and not issue.is_pull and (issue.insider or (login and issue.author == login)):
            trusted.append(issue)
    marked = [issue for issue in trusted if marker(test) in issue.body]
    if marked:
        return marked[0]
    name = re.compile(rf"(?<![\w-]){re.escape(test.case)}(?![\w-])")
    unmarked = [issue for issue in trusted if "base-image-runbook:broken" not in issue.body]
    named = [issue for issue in unmarked if name.search(issue.title)]
    named += [issue for issue in unmarked if name.search(issue.body)]
    return next(iter(named), None)


def open_issue(github: Forge, test: Target) -> Issue | None:
    """Return the open issue that tracks a test."""
    # GitHub's search lags behind new issues; the list of our own issues does not.
    login = github.me()
    own = github.list_issues(login)
    return choose([*github.search_issues(test.case), *own], test, login)


def known_issue(github: Forge | None, test: Target) -> tuple[int, str]:
    """Return the open issue that the decision names or that tracks the test, 0 for none, and a warning.

    Raises Refused for a closed issue: only a person knows which one is meant.
    """
    if github is None:
        return 0, ""
    warning = ""
    if test.issue:
        issue = github.issue(test.issue)
        if issue.is_open:
            return test.issue, ""
        if not issue.is_pull:
            raise Refused(f"{test} names #{test.issue}, which is {issue.state}.", "Name an open issue.")
        warning = f"#{test.issue} is a pull request, so it does not track {test}; an issue of its own does."
    found = open_issue(github, test)
    return found.number if found else 0, warning


def of_failure(
    github: Forge | None,
    test: Target,
    job: DiagnosedJob,
    run: ChosenRun,
    row: RecipeRow | None,
    known: int,
    **found: str,
) -> IssueFiled:
    """Return the condition that an issue tracks a test that failed in a run: ``known``, or one that is filed once.

    ``row`` is the recipe's first row of the test, and ``found`` further facts.  Lines of an internal log are left out:
    readers of the issue may not see its server.
    """
    pull = run.pull_request.pull
    facts = {
        "PR": pull.url if pull else "", "Run": run.url, "Job": job.failure.url, "Head": run.tested, **found,
        "Signature": f"{job.failure.kind}: {job.failure.cause}",
    }  # fmt: skip
    is_internal = run.source is not None and run.source.gitlab
    introduction = _INTRODUCTIONS[job.on_base.state].format(base=run.bump.base)
    evidence = () if is_internal else job.failure.evidence
    return _filed(github, test, run.bump, known, row, facts, introduction, job, evidence)


def of_quarantined(
    github: Forge | None, test: Target, bump: Bump, row: RecipeRow, age: str, known: int
) -> IssueFiled:  # fmt: skip
    """Return the condition that an issue tracks a row that was quarantined without one; ``age`` is in words."""
    facts = {"Quarantined": f"{age} ({row.recipe}:{row.line})"}
    introduction = "The test is quarantined, and was not tracked by an issue"
    return _filed(github, test, bump, known, row, facts, introduction)


def _filed(
    github: Forge | None, test: Target, bump: Bump, known: int, row: RecipeRow | None, facts: Mapping[str, str],
    introduction: str, job: DiagnosedJob | None = None, evidence: Sequence[str] = (),
) -> IssueFiled:  # fmt: skip
    owner = "" if known or github is None else _owner(github, test, bump.base)
    oncall = bump.repository.tests.oncall
    facts = {
        **facts, "Environment": test.environment, "Hardware": test.platform or (job.platform if job else ""),
        "Owner": owner or "nobody", "Review by": review_date(),
    }  # fmt: skip
    body = render(
        "issue", marker=marker(test), test=test.name, job=job, introduction=introduction, reason=test.reason,
        oncall=oncall, facts={name: value for name, value in facts.items() if value}, evidence=evidence,
        commands=_commands(test, row, bump), row=row, base=bump.base,
    )  # fmt: skip
    title = unlinked(f"🐛 CI failure: {test}")
    return IssueFiled(str(test), marker(test), title, f"{body}\n", LABEL, owner, oncall, known)


def _owner(github: Forge, test: Target, base: str) -> str:
    """Return the last author of the test on the base branch, if issues may be assigned to the account."""
    try:
        author = github.last_author(test.path, base)
        return author if author and github.is_assignable(author) else ""
    except RunbookError:
        return ""


def _commands(test: Target, row: RecipeRow | None, bump: Bump) -> list[str]:
    """Return the command that reproduces the failure on a machine with the test's platform."""
    if row is None:
        return [shlex.join(["bash", test.script] if test.script else ["pytest", test.case])]
    scope = next((cell.value.removesuffix(BROKEN) for cell in row.scopes), "mr-github")
    program = [
        *_LAUNCHER, "--scope", f"{scope}{BROKEN}", "--model", test.model, "--test-case", test.case, "--environment",
        test.environment, "--platform", test.platform, "--container-image",
    ]  # fmt: skip
    image = f"{bump.repository.sites.image}:{bump.tag}" if bump.tag else "the base image"
    return [f"{shlex.join(program)} <image built on {image}>"]
