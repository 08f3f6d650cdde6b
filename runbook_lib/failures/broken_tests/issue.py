"""The tracking issue of a broken test: choosing an open one, or filing a new one.

An issue names the test, the failed run and job, the pull request, the verbatim error and how to reproduce it
(``skills/mcore-create-issue/SKILL.md`` of Megatron-LM).  It mentions nobody; the assignee is a field of its own.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from runbook_lib.clients.github.models import Issue
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.pins.bump import Bump
from runbook_lib.recipes.file_names import FOLDER
from runbook_lib.recipes.quarantine import BROKEN
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.text import markdown_texts
from runbook_lib.text.markdown import unlinked
from runbook_lib.world.conditions.issues import IssueFiled
from runbook_lib.world.ports import Forge

LABEL = "bug"
#: By the test's state on the base branch: the image is named as the cause only if the test passes there.
_TITLES = {
    "new": "CI failure with base image {tag}: {test}",
    "failing": "CI failure on {base}: {test}",
    "unknown": "CI failure in a run with base image {tag}: {test}",
}
_INTRODUCTIONS = {
    "new": "The test fails in CI with a new base image",
    "failing": "The test fails in CI on {base}, even without the new base image",
    "unknown": "The test fails in CI; it is unknown whether the new base image is the cause",
}


def marker(test: Target) -> str:
    """Return the comment that identifies the test in an issue filed by this tool."""
    name = re.sub(r"[^\w.+/@-]", "", f"{test.model}/{test.case}@{test.platform}")
    return f"<!-- base-image-runbook:broken {name} -->"


def choose(issues: Iterable[Issue], test: Target, login: str = "") -> Issue | None:
    """Return a test's open issue: one with its marker, else the oldest that names the case in its title or body.

    Only issues by members of the repository or by ``login`` count: a stranger could close or change an issue that a
    recipe row refers to.  A name that is only a prefix of another test's name does not match.
    """
    trusted = []
    for issue in sorted(issues, key=lambda issue: issue.number):
        if issue.state == "open" and (issue.insider or (login and issue.author == login)):
            trusted.append(issue)
    marked = [issue for issue in trusted if marker(test) in issue.body]
    if marked:
        return marked[0]
    name = re.compile(rf"(?<![\w-]){re.escape(test.case)}(?![\w-])")
    unmarked = [issue for issue in trusted if "base-image-runbook:broken" not in issue.body]
    for field in ("title", "body"):
        for issue in unmarked:
            if name.search(getattr(issue, field)):
                return issue
    return None


def open_issue(github: Forge, test: Target) -> Issue | None:
    """Return the open issue that tracks a test."""
    # GitHub's search lags behind new issues; the list of our own issues does not.
    login = github.me()
    own = github.list_issues(login)
    return choose([*github.search_issues(test.case), *own], test, login)


def filed(test: Target, title: str, body: str, base: str, known: int = 0) -> IssueFiled:
    """Return the condition that an issue tracks the test: ``known``, or one that is filed once.

    A new one is assigned to the last author of the test on branch ``base``.
    """
    path = f"{FOLDER}/{test.model}/{test.case}"
    return IssueFiled(str(test), marker(test), title, body, LABEL, path, base, known)


def title(test: Target, bump: Bump, job: DiagnosedJob | None = None) -> str:
    """Return the title of a new issue."""
    state = job.on_base.state if job else "unknown"
    return unlinked(_TITLES[state].format(tag=bump.tag, base=bump.base, test=test))


def body(
    test: Target, bump: Bump, job: DiagnosedJob | None, *, recipe: str, scopes: Sequence[str], old: str, new: str,
    run: str, pull: str, search_result: str = "", internal: bool = False,
) -> str:  # fmt: skip
    """Return the text of a new issue; ``old`` and ``new`` are image references, ``run`` and ``pull`` URLs.

    ``search_result`` is bisect-image's result for the test.  ``internal`` omits the log lines, because readers of
    the issue may not have access to the run's server.
    """
    state, evidence = "unknown", tuple[str, ...]()
    if job is not None:
        state = job.on_base.state
        if not internal:
            evidence = job.failure.evidence
    facts = {"environment": test.environment, "platform": test.platform, "image": f"{old} → {new}"}
    if search_result:
        facts["change in the image"] = search_result
    introduction = _INTRODUCTIONS[state].format(base=bump.base)
    return _text(
        test, introduction, facts, recipe, scopes, new, base=bump.base, job=job, evidence=evidence, run=run, pull=pull
    )


def body_of_quarantined(test: Target, row: RecipeRow, age: str) -> str:
    """Return the text of an issue for a row that was quarantined without one; ``age`` is in words."""
    facts = {"environment": ", ".join(row.environments), "platforms": ", ".join(row.platforms)}
    facts["quarantined"] = f"{age} ({row.recipe}:{row.line})"
    scopes = [cell.value.removesuffix(BROKEN) for cell in row.scopes]
    introduction = "The test is quarantined, and was not tracked by an issue"
    return _text(test, introduction, facts, row.recipe, scopes, "the base image")


def _text(
    test: Target, introduction: str, facts: Mapping[str, str], recipe: str, scopes: Sequence[str], image: str,
    **values: object,
) -> str:  # fmt: skip
    facts = {"test": f"{test.model}/{test.case}", **facts, "recipe": f"{recipe}, scopes {', '.join(scopes)}"}
    scope = next(iter(scopes), "mr-github")
    program = ["python", "tests/test_utils/python_scripts/launch_nemo_run_workload.py"]
    program += ["--scope", f"{scope}-broken", "--model", test.model, "--test-case", test.case]
    program += ["--environment", test.environment, "--platform", test.platform, "--container-image"]
    command = f"{shlex.join(program)} <image built on {image}>"
    text = markdown_texts.render(
        "issue", marker=marker(test), introduction=introduction, test=test, facts=facts, recipe=recipe,
        command=command, **values,
    )  # fmt: skip
    return f"{text}\n"
