"""The tracking issue of a broken test: the choice of an open one, and the title and text of a new one.  Pure.

An issue names the test, the run and job that failed, the pull request, the error verbatim and how to reproduce it
(``skills/mcore-create-issue/SKILL.md`` of Megatron-LM).  It mentions nobody; the assignee is a field of its own.
"""

import re
import shlex
from collections.abc import Iterable, Sequence

from runbook_lib.bump import Bump
from runbook_lib.clients.github.models import Issue
from runbook_lib.recipes.quarantine import BROKEN
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.text.markdown import address, code, prose, unlinked
from runbook_lib.text.sanitize import inert
from runbook_lib.triage.base_branch import BaseResult
from runbook_lib.triage.diagnose import Failure

LABEL = "bug"
_EVIDENCE_LINES = 30


def marker(test: Target) -> str:
    """Return the comment in an issue of this tool that identifies its test."""
    name = re.sub(r"[^\w.+/@-]", "", f"{test.model}/{test.case}@{test.platform}")
    return f"<!-- base-image-runbook:broken {name} -->"


def choose(issues: Iterable[Issue], test: Target, login: str = "") -> Issue | None:
    """Return the open issue of a test: one with its marker, else the oldest that names the case in its title or text.

    Only issues of members of the repository count, and those of ``login``: a stranger could close or change an issue
    that a recipe row refers to.  A name that merely begins another test's name does not match.
    """
    trusted = [
        issue for issue in issues if issue.state == "open" and (issue.insider or (login and issue.author == login))
    ]
    trusted.sort(key=lambda issue: issue.number)
    for issue in trusted:
        if marker(test) in issue.body:
            return issue
    name = re.compile(rf"(?<![\w-]){re.escape(test.case)}(?![\w-])")
    unmarked = [issue for issue in trusted if "base-image-runbook:broken" not in issue.body]
    for field in ("title", "body"):
        for issue in unmarked:
            if name.search(getattr(issue, field)):
                return issue
    return None


def title(test: Target, bump: Bump, on_base: BaseResult | None = None) -> str:
    """Return the title of a new issue; it names the image as the cause only where the base branch passes."""
    state = on_base.state if on_base else "unknown"
    titles = {
        "new": f"CI failure with base image {bump.tag}: {test}",
        "failing": f"CI failure on {bump.base}: {test}",
        "unknown": f"CI failure in a run with base image {bump.tag}: {test}",
    }
    return unlinked(titles[state])


def body(
    test: Target,
    bump: Bump,
    *,
    recipe: str,
    scopes: Sequence[str],
    old: str,
    new: str,
    run: str,
    pull: str,
    failure: Failure | None,
    on_base: BaseResult | None = None,
    internal: bool = False,
) -> str:
    """Return the text of a new issue; ``old`` and ``new`` are image references, ``run`` and ``pull`` addresses.

    ``internal`` leaves the lines of the log out, as readers of the issue may have no access to the server of the run.
    """
    facts = {
        "test": f"{test.model}/{test.case}",
        "environment": test.environment,
        "platform": test.platform,
        "image": f"{old} → {new}",
        "recipe": f"{recipe}, scopes {', '.join(scopes)}",
    }
    comparison = on_base.sentence if on_base else "unknown: the test did not fail in this run"
    introductions = {
        "new": "The test fails in CI with a new base image",
        "failing": f"The test fails in CI on {prose(bump.base)}, also without the new base image",
        "unknown": "The test fails in CI; it is not known if the new base image is the cause",
    }
    introduction = introductions[on_base.state if on_base else "unknown"]
    lines = [marker(test), f"{introduction}: {prose(test.reason)}", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {code(value)} |" for name, value in facts.items())]
    lines.append(f"| on {code(bump.base)} | {prose(comparison)} |")
    links = {f"job on {bump.base}": on_base.url if on_base else ""}
    links |= {"failing run": run, "failing job": failure.url if failure else "", "pull request": pull}
    lines += [f"| {name} | {address(url)} |" for name, url in links.items() if url]
    if failure is not None:
        lines += ["", f"**Cause** ({failure.kind}): {prose(failure.cause)}"]
        if failure.evidence and internal:
            lines += ["", "The log is on an internal server, so its lines are not copied here."]
        elif failure.evidence:
            lines += ["", *_fenced(failure.evidence)]
    return "\n".join([*lines, "", *_instructions(test, scopes, new, recipe)]) + "\n"


def body_of_quarantined(test: Target, row: RecipeRow, age: str) -> str:
    """Return the text of an issue for a row that was quarantined without one; ``age`` as a person reads it."""
    scopes = tuple(cell.value.removesuffix(BROKEN) for cell in row.scopes)
    facts = {
        "test": f"{test.model}/{test.case}",
        "environment": ", ".join(row.environments),
        "platforms": ", ".join(row.platforms),
        "recipe": f"{row.recipe}:{row.line}, scopes {', '.join(scopes)}",
        "quarantined": age,
    }
    lines = [marker(test), f"The test is quarantined, and no issue tracked it: {prose(test.reason)}", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {code(value)} |" for name, value in facts.items())]
    return "\n".join([*lines, "", *_instructions(test, scopes, "the base image", row.recipe)]) + "\n"


def _instructions(test: Target, scopes: Sequence[str], image: str, recipe: str) -> list[str]:
    return [
        "**To reproduce**, on the machine that has the platform:",
        "",
        *_fenced([_reproduce(test, scopes, image)]),
        "",
        f"**To re-enable**: fix the test, restore the scopes of its row in {code(recipe)}, set the label "
        "`Run functional tests` on the pull request, and close this issue.",
    ]


def _reproduce(test: Target, scopes: Sequence[str], image: str) -> str:
    scope = next(iter(scopes), "mr-github")
    options = {
        "scope": f"{scope}-broken", "model": test.model, "test-case": test.case,
        "environment": test.environment, "platform": test.platform,
    }  # fmt: skip
    arguments = " ".join(f"--{name} {shlex.quote(value)}" for name, value in options.items())
    program = "python tests/test_utils/python_scripts/launch_nemo_run_workload.py"
    return f"{program} {arguments} --container-image <image built on {image}>"


def _fenced(lines: Iterable[str]) -> list[str]:
    """Return a code block that no line can end, and in which nothing is a mention, a link or a bot's command."""
    verbatim = [inert(line).replace("\r", "").replace("\n", " ") for line in lines]
    verbatim = verbatim[:_EVIDENCE_LINES]
    fences = re.findall("`{3,}", "\n".join(verbatim))
    fence = "`" * (max(map(len, fences), default=2) + 1)
    return [f"{fence}text", *verbatim, fence]
