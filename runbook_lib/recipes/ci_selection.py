"""The tests that Megatron-LM's CI selects from the labels of a pull request.  Pure.

Source: the decision tree of ``skills/mcore-cicd/SKILL.md``, which the step "Configure" of
``.github/workflows/cicd-main.yml`` decides; its names of scopes differ between branches.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pkgutil import get_data

from runbook_lib.errors import CannotTell
from runbook_lib.images.reference import ImageType
from runbook_lib.pins.repositories import LTS

WORKFLOW_FILE = ".github/workflows/cicd-main.yml"
#: The tree of main at d98e8a64, as that file writes it.
TREE = (get_data(__name__, "ci_tree.txt") or b"").decode()
_LABEL = re.compile(r"""^[ \t]*(HAS_\w+)=.*any\(\. == "([^"]+)"\)""", re.M)
_BRANCH = re.compile(
    r"^[ \t]*(?:if|elif|else)\b(.*)\n(?:[ \t]*(?:#.*)?\n)*"
    r"[ \t]*SCOPE=([\w-]+); N_REPEAT=([0-9]{1,3}); LIGHTWEIGHT=(true|false)",
    re.M,
)
_TEST = re.compile(r'"\$(\w+)" == "(\w+)"')
_IMPLIED = re.compile(r'^[ \t]*\[ "\$(\w+)" == "true" \] && (HAS_\w+)=true', re.M)
_CADENCES = {"merge_group": "mergegroup", "schedule": "nightly", "workflow_dispatch": "nightly"}


@dataclass(frozen=True)
class CiSelection:
    """The tests of a run.  ``cadence`` filters them, except if it is None.

    ``label`` determined the scope, empty if none did; ``further`` are labels with other effects, ``overridden`` are
    labels that would have decided without ``label``, ``unused`` those that select nothing.
    """

    scope: str
    repeats: int
    lightweight: bool
    image: ImageType
    cadence: str | None
    label: str = ""
    further: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The selection, and the label behind it, as a sentence."""
        repeats = "1 repeat" if self.repeats == 1 else f"{self.repeats} repeats"
        text = f"scope {self.scope}, {repeats}, golden values compared"
        if self.lightweight:
            text = f"scope {self.scope}, {repeats}, lightweight (4 steps, golden values not compared)"
        text += f", {self.image} image"
        if self.cadence:
            text += f", cadence {self.cadence}"
        text += f"; decided by {self.label!r}." if self.label else "; no label decides."
        if self.further:
            text += f" Also in effect: {', '.join(self.further)}."
        if self.overridden:
            text += f" Without effect beside {self.label!r}: {', '.join(self.overridden)}."
        if self.unused:
            text += f" Labels that select no tests: {', '.join(self.unused)}."
        return text


def select_tests(labels: Collection[str], event: str = "push", workflow: str = TREE) -> CiSelection:
    """Return the tests that CI selects for a pull request with these labels at the start of the run.

    ``event`` is the run's event: only a push to ``pull-request/<N>`` has labels.  ``workflow`` is the text of
    WORKFLOW_FILE at the pull request's head.  Raises CannotTell for a workflow that decides differently.
    """
    if event != "push":
        labels = ()
    label_names = dict(_LABEL.findall(workflow))
    branches = _BRANCH.findall(workflow)
    if not label_names or not branches:
        raise CannotTell(
            f"In this commit {WORKFLOW_FILE} has no decision tree of the known form (SCOPE, N_REPEAT, LIGHTWEIGHT). "
            "See there, or in the summary of the run's job `configure`, what the labels select."
        )
    conditions = {"IS_MERGE_GROUP": event == "merge_group", "IS_CI_WORKLOAD": event == "schedule"}
    conditions |= {variable: name in labels for variable, name in label_names.items()}
    values = {"EVENT_NAME": event} | {variable: str(value).lower() for variable, value in conditions.items()}
    for variable, implied in _IMPLIED.findall(workflow):
        if values.get(variable) == "true":
            values[implied] = "true"
    deciding: set[str] = set()
    for condition, *_ in branches:
        deciding.update(_labels(condition, label_names))
    condition, scope, repeats, lightweight = next(branch for branch in branches if _is_met(branch[0], values))
    label = next(iter(_labels(condition, label_names)), "")
    cadence = None
    if "CADENCE" in workflow and not label:
        cadence = _CADENCES.get(event, "pr")
    others = set(labels) - {label}
    overridden = others & deciding
    further = others.intersection(label_names.values()) - overridden
    image: ImageType = "lts" if LTS in further else "dev"
    return CiSelection(
        scope, int(repeats), lightweight == "true", image, cadence, label, tuple(sorted(further)),
        tuple(sorted(overridden)), tuple(sorted(others - overridden - further)),
    )  # fmt: skip


def _labels(condition: str, label_names: dict[str, str]) -> list[str]:
    return [label_names[name] for name, _ in _TEST.findall(condition) if name in label_names]


def _is_met(condition: str, values: dict[str, str]) -> bool:
    tests = _TEST.findall(condition)
    return not tests or any(values.get(variable) == value for variable, value in tests)
