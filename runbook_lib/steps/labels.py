"""The labels that a pull request needs for its changes, or a git range for its own: Megatron-LM's own table.

Source: ``skills/mcore-cicd/SKILL.md`` of Megatron-LM, "Which label to attach"; for a bump of the base image the rule of
``skills/mcore-bump-base-image/SKILL.md`` takes precedence.  The table is about the nature of a change, and paths are
only a hint.  If a path permits two labels, the stronger one is shown with its reason: a person may know better.
"""

import itertools
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from operator import itemgetter

from runbook_lib.bump import ImageType
from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.golden.file_names import FOLDER
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.known_sites import MEGATRON_LM
from runbook_lib.pins.repositories import FUNCTIONAL, LIGHTWEIGHT, LTS
from runbook_lib.pins.sites import Sites, Texts
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import gating
from runbook_lib.text.lists import join_first

_TABLE = tomllib.loads(resources.files("runbook_lib.steps").joinpath("labels.toml").read_text(encoding="utf-8"))
_COLUMNS = itemgetter("label", "reason", "path")
#: Labels (or none), each with its reason and a path pattern.  In SCOPE the first row that matches a path counts.
SCOPE, ADDITIONAL = list(map(_COLUMNS, _TABLE["scope"])), list(map(_COLUMNS, _TABLE["additional"]))

_CONFIG = re.compile(rf"{FOLDER}/[^/]+/[^/]+/model_config\.ya?ml")
_IMAGE_TYPES: tuple[ImageType, ...] = ("dev", "lts")
#: Labels that may be set although they are not needed, and the objection to each.
_UNNEEDED = {
    LIGHTWEIGHT: "the changed paths do not need it",
    FUNCTIONAL: "the changed paths do not need it; it runs more tests than necessary",
    LTS: "optional: it switches CI to the LTS image, whatever else is set",
}
_OVERRIDES = f"it overrides {FUNCTIONAL!r} and compares no golden values: remove it"


@dataclass(frozen=True)
class ChangeFacts:
    """Facts beyond a change's paths: the new paths, tests that CI newly runs, image types whose pins move."""

    added: frozenset[str] = frozenset()
    newly_run: tuple[str, ...] = ()
    bumped: frozenset[ImageType] = frozenset()


@dataclass(frozen=True)
class Label:
    """A label that a pull request needs; the name is empty if it needs no label to select its tests."""

    name: str
    reason: str
    paths: tuple[str, ...]


def needed_labels(paths: Iterable[str], facts: ChangeFacts | None = None) -> tuple[Label, ...]:
    """Return the one label that selects the tests, then additional ones.  A change without paths needs none.

    Only one label takes effect: if both `Run tests` and `Run functional tests` are set, CI obeys the former.
    """
    facts = facts or ChangeFacts()
    changed = sorted(set(paths))
    if not changed:
        return ()
    pinned = tuple(path for path in changed if path in MEGATRON_LM.pin_paths) or tuple(changed)
    labels = [_scope(changed, facts, pinned)]
    if "lts" in facts.bumped:
        labels.append(Label(LTS, "the pin of the LTS image moves", pinned))
    for name, reason, form in ADDITIONAL:
        if matches := tuple(path for path in changed if re.fullmatch(form, path, re.DOTALL)):
            labels.append(Label(name, reason, matches))
    return tuple(labels)


def _scope(paths: list[str], facts: ChangeFacts, pinned: tuple[str, ...]) -> Label:
    if facts.bumped:
        image_types = " and ".join(sorted(facts.bumped))
        return Label(FUNCTIONAL, f"the base image moves ({image_types}), which changes numerics", pinned)
    new_tests = tuple(path for path in paths if path in facts.added and _CONFIG.fullmatch(path))
    if new_tests:
        reason = "a functional test is new, and its golden values come from a run with this label"
        return Label(FUNCTIONAL, reason, new_tests)
    if facts.newly_run:
        changed_recipes = tuple(path for path in paths if path.startswith(f"{recipes.FOLDER}/"))
        return Label(FUNCTIONAL, f"CI newly runs {', '.join(facts.newly_run)}", changed_recipes)
    reasons: dict[str, dict[str, str]] = {FUNCTIONAL: {}, LIGHTWEIGHT: {}, "": {}}
    for path in paths:
        label, reason = next((label, reason) for label, reason, form in SCOPE if re.fullmatch(form, path, re.DOTALL))
        reasons[label][path] = reason
    label, reason_of = next((label, by_path) for label, by_path in reasons.items() if by_path)
    return Label(label, "; ".join(dict.fromkeys(reason_of.values())), tuple(reason_of))


def bumped_by_pins(before: Texts, after: Texts, sites: Sites = MEGATRON_LM) -> frozenset[ImageType]:
    """Return the image types whose lockstep pins name a new image; none if either side has no pins."""
    if not (sites.matches(before) and sites.matches(after)):
        return frozenset()
    old, new = ({(pin.role, pin.path, pin.image) for pin in check_pins(texts, sites)} for texts in (before, after))
    # A pin in a file that had none before is not a move, nor is another row with an image that the file already had.
    pinned = {(role, path) for role, path, image in old if image}
    moved = {role for role, path, image in new - old if image and (role, path) in pinned}
    return frozenset(image_type for image_type in _IMAGE_TYPES if f"lockstep {image_type}" in moved)


def bumped_by_paths(paths: Collection[str]) -> frozenset[ImageType]:
    """Return the image types whose pins move, judged by the paths of files that contain nothing but a pin."""
    return frozenset(image_type for image_type in _IMAGE_TYPES if f"docker/.ngc_version.{image_type}" in paths)


def newly_run_tests(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the functional tests that CI newly runs after a change of recipes; an unreadable one counts as empty."""
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
    """Return the labels as table rows; with a pull request's ``present`` labels, also their state and unneeded ones."""
    table: list[dict[str, object]] = []
    names = set()
    for label in needed:
        names.add(label.name)
        row: dict[str, object] = {
            "label": label.name or "none",
            "reason": label.reason,
            "paths": join_first(label.paths, 3),
        }
        if present is not None:
            row["state"] = "set" if label.name in present else "missing"
        if present is not None and not label.name:
            row["state"] = "–"
        table.append(row)
    for name, objection in _UNNEEDED.items():
        if not names or name in names or name not in (present or ()):
            continue
        if name == LIGHTWEIGHT and FUNCTIONAL in names:
            objection = _OVERRIDES
        table.append({"label": name, "reason": objection, "paths": "", "state": "set, not needed"})
    return table


@dataclass(frozen=True)
class LabelledChange:
    """A change.  ``present``: its pull request's labels, None for a range; ``limitation``: what was not examined."""

    name: str
    paths: tuple[str, ...]
    facts: ChangeFacts = field(default_factory=ChangeFacts)
    present: frozenset[str] | None = None
    limitation: str = ""

    @property
    def needed(self) -> tuple[Label, ...]:
        """The labels that the change needs."""
        return needed_labels(self.paths, self.facts)


def of_range(checkout: Checkout, span: str) -> LabelledChange:
    """Return the changes in ``BASE..HEAD`` since the two diverged.  Raises CannotTell for an unknown commit."""
    base, _, head = span.replace("...", "..").partition("..")
    try:
        old, new = checkout.resolve(base or "HEAD"), checkout.resolve(head or "HEAD")
    except RunbookError as error:
        raise CannotTell(f"{span!r} is not a range of commits in {checkout.path}. {error}") from error
    fork = checkout.merge_base(old, new)
    if fork is None:
        raise CannotTell(f"{base} and {head} in {checkout.path} have no commit in common, so there is no range.")
    paths, facts = _examine(checkout, fork, new)
    return LabelledChange(span, paths, facts)


def of_pull(checkout: Checkout, github: GitHub, number: int) -> LabelledChange:
    """Return a pull request's changes and labels; only their paths if this clone does not have its head commit."""
    pull = github.pull(number)
    name = f"#{number} {pull.title}"
    if checkout.has(pull.head_sha) and checkout.has(pull.base_sha):
        fork = checkout.merge_base(pull.base_sha, pull.head_sha)
        if fork is not None:
            paths, facts = _examine(checkout, fork, pull.head_sha)
            return LabelledChange(name, paths, facts, pull.labels)
    paths = tuple(sorted(set(github.files(number))))
    fetch = f"git fetch {checkout.base_remote() or 'origin'} pull/{number}/head"
    limitation = (
        f"This clone does not have {pull.head_sha[:10]}, so only the paths were examined: whether a test is new "
        f"or runs again is unknown. To examine everything: {fetch}."
    )
    return LabelledChange(name, paths, ChangeFacts(bumped=bumped_by_paths(paths)), pull.labels, limitation)


def _examine(checkout: Checkout, old: str, new: str) -> tuple[tuple[str, ...], ChangeFacts]:
    """Return the changed paths, and the facts that only the contents show."""
    fields = checkout.git("diff", "--name-status", "--no-renames", "-z", old, new).split("\0")
    statuses = dict(zip(fields[1::2], fields[0::2], strict=False))
    added = frozenset(path for path, status in statuses.items() if status == "A")
    paths = [path for path in statuses if path.startswith(f"{recipes.FOLDER}/") and path.endswith((".yaml", ".yml"))]
    newly_run = newly_run_tests(checkout.read(paths, old), checkout.read(paths, new))
    bumped: frozenset[ImageType] = frozenset()
    if statuses.keys() & set(MEGATRON_LM.pin_paths):
        before, after = (checkout.read(MEGATRON_LM.pin_paths, commit) for commit in (old, new))
        bumped = bumped_by_pins(before, after)
    return tuple(sorted(statuses)), ChangeFacts(added, newly_run, bumped)
