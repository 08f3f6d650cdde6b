"""The tests that Megatron-LM's CI selects from the labels of a pull request.  Pure.

Source: the step "Configure" of ``.github/workflows/cicd-main.yml``; its names of scopes differ between branches.
"""

import re
from collections.abc import Collection

from runbook_lib.errors import CannotTell

WORKFLOW_FILE = ".github/workflows/cicd-main.yml"
_LABEL = re.compile(r"""^[ \t]*(HAS_\w+)=.*any\(\. == "([^"]+)"\)""", re.M)
_BRANCH = re.compile(
    r"^[ \t]*(?:if|elif|else)\b(.*)\n(?:[ \t]*(?:#.*)?\n)*"
    r"[ \t]*SCOPE=([\w-]+); N_REPEAT=([0-9]{1,3}); LIGHTWEIGHT=(true|false)",
    re.M,
)
_TEST = re.compile(r'"\$(HAS_\w+)" == "true"')


def describe_selection(labels: Collection[str], workflow: str) -> str:
    """Return a sentence: the tests that CI selects for a pull request with these labels at the start of the run.

    ``workflow`` is the text of WORKFLOW_FILE at the pull request's head; the first condition that a label meets decides
    there.  Raises CannotTell for a workflow that decides differently.
    """
    names = dict(_LABEL.findall(workflow))
    for condition, scope, repeats, lightweight in _BRANCH.findall(workflow):
        label = next((names[each] for each in _TEST.findall(condition) if names.get(each) in labels), "")
        if names and (label or not condition.strip(" ;")):  # the last branch has no condition
            compared = "golden values compared"
            if lightweight == "true":
                compared = "lightweight (4 steps, golden values not compared)"
            if not label and "CADENCE" in workflow:
                compared += ", only tests of the cadence pr"
            times = "1 repeat" if repeats == "1" else f"{repeats} repeats"
            return f"scope {scope}, {times}, {compared}; {f'decided by {label!r}' if label else 'no label decides'}."
    raise CannotTell(
        f"In this commit {WORKFLOW_FILE} has no decision tree of the known form (SCOPE, N_REPEAT, LIGHTWEIGHT). "
        "See there, or in the summary of the run's job `configure`, what the labels select."
    )
