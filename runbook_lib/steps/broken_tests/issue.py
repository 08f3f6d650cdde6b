"""The issue that a broken test is tracked by: how an open one is found, and what a new one says.  Pure.

An issue names the test, the run and job that failed, the pull request, the error verbatim and how to reproduce it
(``skills/mcore-create-issue/SKILL.md`` of Megatron-LM).  It mentions nobody: the assignee is set beside it.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from runbook_lib.bump import Bump
from runbook_lib.clients.github.models import Issue
from runbook_lib.text.markdown import address, code, prose, unlinked
from runbook_lib.text.sanitize import inert
from runbook_lib.triage.diagnose import Failure

LABEL = "bug"
_EVIDENCE = 30


@dataclass(frozen=True)
class Broken:
    """A test that a person declares broken on one platform, and why.  ``scopes`` are those that its row had."""

    model: str
    case: str
    environment: str
    platform: str
    reason: str
    recipe: str = ""
    scopes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``model/case (dev, dgx_h100)``."""
        return f"{self.model}/{self.case} ({self.environment}, {self.platform})"

    @property
    def marker(self) -> str:
        """What tells an issue of this tool from others that name the test."""
        named = re.sub(r"[^\w.+/@-]", "", f"{self.model}/{self.case}@{self.platform}")
        return f"<!-- base-image-runbook:broken {named} -->"


def choose(issues: Iterable[Issue], broken: Broken, me: str = "") -> Issue | None:
    """The open issue for this test: with its marker, else the oldest that names the test case in its title or text.

    Only of people whom the repository has let in, and of ``me``: a stranger could close or change what a row names.  A
    name that is only the beginning of another test's does not count.
    """
    known = (it for it in issues if it.state == "open" and (it.insider or (me and it.author == me)))
    found = sorted(known, key=lambda it: it.number)
    if marked := [it for it in found if broken.marker in it.body]:
        return marked[0]
    whole = re.compile(rf"(?<![\w-]){re.escape(broken.case)}(?![\w-])")
    others = [it for it in found if "base-image-runbook:broken" not in it.body]
    in_title = [it for it in others if whole.search(it.title)]
    return next(iter(in_title or (it for it in others if whole.search(it.body))), None)


def title(broken: Broken, bump: Bump) -> str:
    """The title of a new issue."""
    return unlinked(f"CI failure with base image {bump.tag}: {broken.name}")


def body(
    broken: Broken,
    bump: Bump,
    *,
    old: str,
    new: str,
    run: str,
    pull: str,
    failure: Failure | None,
    internal: bool = False,
) -> str:
    """The text of a new issue; ``old`` and ``new`` are image references, ``run`` and ``pull`` addresses.

    ``internal``: the run is on a server that not all may read who read the issue: no lines of its log are told.
    """
    facts = {
        "test": f"{broken.model}/{broken.case}",
        "environment": broken.environment,
        "platform": broken.platform,
        "image": f"{old} → {new}",
        "recipe": f"{broken.recipe}, scopes {', '.join(broken.scopes)}",
    }
    lines = [broken.marker, f"The test fails in CI with a new base image: {prose(broken.reason)}", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {code(value)} |" for name, value in facts.items())]
    links = {"failing run": run, "failing job": failure.url if failure else "", "pull request": pull}
    lines += [f"| {name} | {address(url)} |" for name, url in links.items() if url]
    if failure is not None:
        lines += ["", f"**Cause** ({failure.kind}): {prose(failure.cause)}"]
        if failure.evidence and internal:
            lines += ["", "The log lies on an internal server; its lines are not copied here."]
        elif failure.evidence:
            lines += ["", *_fenced(failure.evidence)]
    lines += ["", "**To reproduce**, on the machine that has the platform:", "", *_fenced([_reproduce(broken, new)])]
    lines += [
        "",
        f"**To re-enable**: mend it, give the row in {code(broken.recipe)} its scopes back, set the label "
        "`Run functional tests` on the pull request, and close this issue.",
    ]
    return "\n".join(lines) + "\n"


def _reproduce(broken: Broken, image: str) -> str:
    scope = next(iter(broken.scopes), "mr-github")
    given = {
        "scope": f"{scope}-broken", "model": broken.model, "test-case": broken.case,
        "environment": broken.environment, "platform": broken.platform,
    }  # fmt: skip
    told = " ".join(f"--{name} {shlex.quote(value)}" for name, value in given.items())
    program = "python tests/test_utils/python_scripts/launch_nemo_run_workload.py"
    return f"{program} {told} --container-image <image built on {image}>"


def _fenced(lines: Iterable[str]) -> list[str]:
    """Verbatim, whatever fences the lines hold: nothing in it is a mention, a link or a bot's command."""
    listed = [inert(line).replace("\r", "").replace("\n", " ") for line in lines]
    listed = listed[:_EVIDENCE]
    longest = max((len(run) for line in listed for run in re.findall("`{3,}", line)), default=2)
    fence = "`" * (longest + 1)
    return [f"{fence}text", *listed, fence]
