"""The labels that a pull request needs, from its changes: Megatron-LM's own table as data.  Pure.

Source: ``skills/mcore-cicd/SKILL.md`` of Megatron-LM, "Which label to attach"; for a bump of the base image the rule of
``skills/mcore-bump-base-image/SKILL.md`` has precedence.  The table is about the nature of a change, at which a path
only hints.  If a path permits two labels, the stronger one is shown with its reason: a person may know better.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from runbook_lib.bump import ImageType
from runbook_lib.clients.github.ci_status import FUNCTIONAL, LIGHTWEIGHT, LTS
from runbook_lib.errors import CannotTell
from runbook_lib.golden.file_names import FOLDER
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.known_sites import MEGATRON_LM
from runbook_lib.pins.sites import Sites, Texts
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import gating
from runbook_lib.text.lists import join_first

MBRIDGE, NEMO_RL = "Run MBridge tests", "Run NeMoRL tests"
#: No label: CI runs its slim tests, or none.
NONE = ""

#: A label (or NONE), the reason, and the form of a path.  The first row that matches a path counts.
SCOPE: tuple[tuple[str, str, str], ...] = (
    (NONE, "documentation only", r"docs/.*|images/.*|(?:.*/)?[^/]*\.(?:md|rst)|LICENSE"),
    (FUNCTIONAL, "golden values change, and only the functional tests compare with them",
     rf"{FOLDER}/.*/golden_values_[^/]*\.json"),
    (LIGHTWEIGHT, "existing tests change", r"tests/.*"),
    (NONE, "CI and tooling only",
     r"\.[^/]+/.*|\.[^/]+|tools/.*|scripts/.*|skills/.*|Makefile|codecov\.yml|greptile\.json"),
    (LIGHTWEIGHT, "containers and dependencies change", r"docker/.*|pyproject\.toml|uv\.lock|setup\.py"),
    (FUNCTIONAL, "it can change numerics: model, attention, optimizer, parallelism, precision or routing",
     r"megatron/(?:core|legacy)/(?:models?|transformer|ssm|fusions|extensions|optimizer|distributed|tensor_parallel"
     r"|pipeline_parallel|quantization|mpu)/.*"
     r"|megatron/core/(?:activations|fp[48]_utils|full_cuda_graph|optimizer_param_scheduler|parallel_state|recompute"
     r"|num_microbatches_calculator|packed_seq_params|process_groups_config)\.py"
     r"|megatron/core/datasets/.*|megatron/training/training\.py"),
    (LIGHTWEIGHT, "other library code changes, and by default", r".*"),
)  # fmt: skip

#: Additional labels: every row that matches any path.
ADDITIONAL: tuple[tuple[str, str, str], ...] = (
    (MBRIDGE, "it touches the integration with Megatron-Bridge", r"(?i).*(?:mbridge|megatron.bridge).*"),
    (NEMO_RL, "it may affect NeMo RL's integration", r"(?i)megatron/(?:rl|core/resharding)/.*|.*nemo.?rl(?![a-z]).*"),
)

_CONFIG = re.compile(rf"{FOLDER}/[^/]+/[^/]+/model_config\.ya?ml")
_PINNED = re.compile(r"docker/\.ngc_version\.(dev|lts)")
_IMAGE_TYPES: tuple[ImageType, ...] = ("dev", "lts")
#: Labels that may be set without being needed, and the objection to each.
_UNNEEDED = {
    LIGHTWEIGHT: "the changed paths do not need it",
    FUNCTIONAL: "the changed paths do not need it; it runs more tests than necessary",
    LTS: "optional: it switches CI to the LTS image, whatever else is set",
}
_OVERRIDES = f"it overrides {FUNCTIONAL!r}, and compares no golden values: remove it"


@dataclass(frozen=True)
class ChangeFacts:
    """Facts that the paths of a change do not show.

    ``added`` are the paths that are new, ``newly_run`` the tests that CI runs now and did not run before, and
    ``bumped`` the image types whose pins move.
    """

    added: frozenset[str] = frozenset()
    newly_run: tuple[str, ...] = ()
    bumped: frozenset[ImageType] = frozenset()


@dataclass(frozen=True)
class Label:
    """A label that a pull request needs; the name is NONE if it needs none to choose its tests."""

    name: str
    reason: str
    paths: tuple[str, ...]


def needed_labels(paths: Iterable[str], facts: ChangeFacts | None = None) -> tuple[Label, ...]:
    """Return the one label that chooses the tests, then additional ones.  A change without paths needs none.

    Only one label chooses: of `Run tests` and `Run functional tests` CI obeys the former, so the latter must be alone.
    """
    facts = facts or ChangeFacts()
    changed = sorted(set(paths))
    if not changed:
        return ()
    return (_scope(changed, facts), *_additional(changed, facts))


def _scope(paths: list[str], facts: ChangeFacts) -> Label:
    if facts.bumped:
        image_types = " and ".join(sorted(facts.bumped))
        return Label(FUNCTIONAL, f"the base image moves ({image_types}), which changes numerics", _pinned(paths))
    new_tests = tuple(path for path in paths if path in facts.added and _CONFIG.fullmatch(path))
    if new_tests:
        reason = "a functional test is new, and its golden values come from a run with this label"
        return Label(FUNCTIONAL, reason, new_tests)
    if facts.newly_run:
        changed_recipes = tuple(path for path in paths if path.startswith(f"{recipes.FOLDER}/"))
        return Label(FUNCTIONAL, f"CI newly runs {', '.join(facts.newly_run)}", changed_recipes)
    matches: dict[str, dict[str, list[str]]] = {FUNCTIONAL: {}, LIGHTWEIGHT: {}, NONE: {}}
    for path in paths:
        for label, reason, form in SCOPE:
            if re.fullmatch(form, path, re.DOTALL):
                matches[label].setdefault(reason, []).append(path)
                break
    label = next(label for label, reasons in matches.items() if reasons)
    label_paths = sorted(itertools.chain.from_iterable(matches[label].values()))
    return Label(label, "; ".join(matches[label]), tuple(label_paths))


def _pinned(paths: list[str]) -> tuple[str, ...]:
    return tuple(path for path in paths if path in MEGATRON_LM.pin_paths) or tuple(paths)


def _additional(paths: list[str], facts: ChangeFacts) -> Iterator[Label]:
    if "lts" in facts.bumped:
        yield Label(LTS, "the pin of the LTS image moves", _pinned(paths))
    for name, reason, form in ADDITIONAL:
        if matches := tuple(path for path in paths if re.fullmatch(form, path, re.DOTALL)):
            yield Label(name, reason, matches)


def bumped_by_pins(before: Texts, after: Texts, sites: Sites = MEGATRON_LM) -> frozenset[ImageType]:
    """Return the image types whose lockstep pins name another image than before.  None if either side has no pins."""
    if not (sites.matches(before) and sites.matches(after)):
        return frozenset()
    old, new = _lockstep_images(before, sites), _lockstep_images(after, sites)
    # A file that had no pin before moves nothing, nor does another row of an image that it has.
    pinned = {(role, path) for role, path, _ in old}
    moved = {role for role, path, _ in new - old if (role, path) in pinned}
    return frozenset(image_type for image_type in _IMAGE_TYPES if f"lockstep {image_type}" in moved)


def _lockstep_images(texts: Texts, sites: Sites) -> set[tuple[str, str, str]]:
    return {(pin.role, pin.path, pin.image) for pin in check_pins(texts, sites) if pin.image}


def bumped_by_paths(paths: Collection[str]) -> frozenset[ImageType]:
    """Return the image types whose pins move according to the paths: of files that contain nothing but a pin."""
    names = {match[1] for path in paths if (match := _PINNED.fullmatch(path))}
    return frozenset(image_type for image_type in _IMAGE_TYPES if image_type in names)


def newly_run_tests(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the functional tests that CI runs with the recipes after a change, and not with those before it.

    A recipe that cannot be read counts as one without rows.
    """
    return tuple(sorted(_gating_tests(after) - _gating_tests(before)))


def _gating_tests(texts: Mapping[str, str | None]) -> set[str]:
    tests = set()
    for path, text in texts.items():
        try:
            rows = recipes.rows(path, text or "")
        except CannotTell:
            continue
        for row in rows:
            if row.case.startswith("tests/") or not any(gating(cell.value) for cell in row.scopes):
                continue
            for platform, environment in itertools.product(row.platforms, row.environments):
                tests.add(f"{row.model}/{row.case}@{platform} ({environment})")
    return tests


def table_rows(needed: Iterable[Label], present: Collection[str] | None = None) -> list[dict[str, object]]:
    """Return the labels as rows of a table; with a pull request's ``present`` labels, their state and unneeded ones."""
    table: list[dict[str, object]] = []
    names = set()
    for label in needed:
        names.add(label.name)
        paths = join_first(label.paths, 3)
        table.append({"label": label.name or "none", "reason": label.reason, "paths": paths})
        if present is not None:
            state = "set" if label.name in present else "missing"
            table[-1]["state"] = state if label.name else "–"
    for name, objection in _UNNEEDED.items():
        if not names or name in names or name not in (present or ()):
            continue
        if name == LIGHTWEIGHT and FUNCTIONAL in names:
            objection = _OVERRIDES
        table.append({"label": name, "reason": objection, "paths": "", "state": "set, not needed"})
    return table
