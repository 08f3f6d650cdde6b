"""Which labels a pull request needs, from what it changes: the project's own table, as data.  Pure.

Source: ``skills/mcore-cicd/SKILL.md`` of Megatron-LM, "Which label to attach"; for a bump of the base image the rule of
``skills/mcore-bump-base-image/SKILL.md`` wins.  The table speaks of the nature of a change and a path only hints at
it, so where a path can be either the stronger label is told, with its reason: a person may know better.
"""

import re
from collections.abc import Collection, Iterable, Mapping
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

MBRIDGE, NEMO_RL = "Run MBridge tests", "Run NeMoRL tests"
#: No label: CI runs its slim tests, or nothing.
NONE = ""

#: For a path the first row that fits: a label (or NONE), why, and what the path looks like.
SCOPE: tuple[tuple[str, str, str], ...] = (
    (NONE, "documentation only", r"docs/.*|images/.*|(?:.*/)?[^/]*\.(?:md|rst)|LICENSE"),
    (FUNCTIONAL, "golden values change, and only the functional tests compare with them",
     rf"{FOLDER}/.*/golden_values_[^/]*\.json"),
    (LIGHTWEIGHT, "existing tests change", r"tests/.*"),
    (NONE, "CI and tooling only",
     r"\.[^/]+/.*|\.[^/]+|tools/.*|scripts/.*|skills/.*|Makefile|codecov\.yml|greptile\.json"),
    (LIGHTWEIGHT, "containers and dependencies change", r"docker/.*|pyproject\.toml|uv\.lock|setup\.py"),
    (FUNCTIONAL, "it can move numerics: model, attention, optimizer, parallelism, precision or routing",
     r"megatron/(?:core|legacy)/(?:models?|transformer|ssm|fusions|extensions|optimizer|distributed|tensor_parallel"
     r"|pipeline_parallel|quantization|mpu)/.*"
     r"|megatron/core/(?:activations|fp[48]_utils|full_cuda_graph|optimizer_param_scheduler|parallel_state|recompute"
     r"|num_microbatches_calculator|packed_seq_params|process_groups_config)\.py"
     r"|megatron/core/datasets/.*|megatron/training/training\.py"),
    (LIGHTWEIGHT, "other library code changes, and by default", r".*"),
)  # fmt: skip

#: Beside the label above: every row that fits any path.
BESIDE: tuple[tuple[str, str, str], ...] = (
    (MBRIDGE, "it touches the integration with Megatron-Bridge", r"(?i).*(?:mbridge|megatron.bridge).*"),
    (NEMO_RL, "it may affect NeMo RL's integration", r"(?i)megatron/(?:rl|core/resharding)/.*|.*nemo.?rl(?![a-z]).*"),
)

_CONFIG = re.compile(rf"{FOLDER}/[^/]+/[^/]+/model_config\.ya?ml")
_PINNED = re.compile(r"docker/\.ngc_version\.(dev|lts)")


@dataclass(frozen=True)
class Facts:
    """What the paths alone do not tell.

    ``added`` are the paths that are new, ``running`` the tests that CI runs now and did not before, and ``bumped`` the
    image types whose pins move.
    """

    added: frozenset[str] = frozenset()
    running: tuple[str, ...] = ()
    bumped: frozenset[ImageType] = frozenset()


@dataclass(frozen=True)
class Label:
    """A label that a pull request needs; the name is NONE where it needs none to choose its tests."""

    name: str
    reason: str
    paths: tuple[str, ...]


def wanted(paths: Iterable[str], facts: Facts | None = None) -> tuple[Label, ...]:
    """The label that chooses the tests (the first), and those beside it.  Nothing for a change of nothing.

    Only one label chooses: of `Run tests` and `Run functional tests` CI takes the former, so the latter stands alone.
    """
    facts, listed = facts or Facts(), sorted(set(paths))
    if not listed:
        return ()
    return (_scope(listed, facts), *_beside(listed, facts))


def _scope(paths: list[str], facts: Facts) -> Label:
    if facts.bumped:
        kinds = " and ".join(sorted(facts.bumped))
        return Label(FUNCTIONAL, f"the base image moves ({kinds}), which moves numerics", _of_a_bump(paths))
    found: dict[tuple[str, str], list[str]] = {}
    new = tuple(path for path in paths if path in facts.added and _CONFIG.fullmatch(path))
    for path in paths:
        label, reason = next((label, why) for label, why, form in SCOPE if re.fullmatch(form, path, re.DOTALL))
        found.setdefault((label, reason), []).append(path)
    if new:
        return Label(FUNCTIONAL, "a functional test is new, and its golden values come from a run with this label", new)
    if facts.running:
        of = tuple(path for path in paths if path.startswith(f"{recipes.FOLDER}/"))
        return Label(FUNCTIONAL, f"CI runs a test anew: {', '.join(facts.running)}", of)
    for wanted_label in (FUNCTIONAL, LIGHTWEIGHT):
        rows = [(why, of) for (label, why), of in found.items() if label == wanted_label]
        if rows:
            return Label(
                wanted_label, "; ".join(why for why, _ in rows), tuple(sorted(p for _, of in rows for p in of))
            )
    return Label(NONE, "; ".join(why for _, why in found), tuple(paths))


def _of_a_bump(paths: list[str]) -> tuple[str, ...]:
    return tuple(path for path in paths if path in MEGATRON_LM.pin_paths) or tuple(paths)


def _beside(paths: list[str], facts: Facts) -> list[Label]:
    labels = []
    if "lts" in facts.bumped:
        labels.append(Label(LTS, "the pin of the LTS image moves", _of_a_bump(paths)))
    for name, reason, form in BESIDE:
        if mine := tuple(path for path in paths if re.fullmatch(form, path, re.DOTALL)):
            labels.append(Label(name, reason, mine))
    return labels


def moved(before: Texts, after: Texts, sites: Sites = MEGATRON_LM) -> frozenset[ImageType]:
    """The image types whose lockstep pins name another image than before.  None where either side has no pins."""
    if not (sites.matches(before) and sites.matches(after)):
        return frozenset()
    old, new = (
        {(it.role, it.path, it.image) for it in check_pins(texts, sites) if it.image} for texts in (before, after)
    )
    # Where a file had no pin before, or gets a row more of an image that it has, nothing moves.
    had = {(role, path) for role, path, _ in old}
    return frozenset(kind for kind in _KINDS if any(it[:2] in had and it[0] == f"lockstep {kind}" for it in new - old))


_KINDS: tuple[ImageType, ...] = ("dev", "lts")


def by_paths(paths: Collection[str]) -> frozenset[ImageType]:
    """The image types whose pins move by the paths alone: by the files that hold nothing but a pin."""
    found = {match[1] for path in paths if (match := _PINNED.fullmatch(path))}
    return frozenset(kind for kind in _KINDS if kind in found)


def anew(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> tuple[str, ...]:
    """The functional tests that some recipe lets CI run now, and none did: new ones, and those that come back.

    A recipe that cannot be read counts as one without rows.
    """
    return tuple(sorted(_gated(after) - _gated(before)))


def _gated(texts: Mapping[str, str | None]) -> set[str]:
    found = set()
    for path, text in texts.items():
        try:
            rows = recipes.rows(path, text or "")
        except CannotTell:
            continue
        found |= {
            f"{row.model}/{row.case}@{platform} ({environment})"
            for row in rows
            if not row.case.startswith("tests/") and any(gating(cell.value) for cell in row.scopes)
            for platform in row.platforms
            for environment in row.environments
        }
    return found


def rows(needed: Iterable[Label], present: Collection[str] | None = None) -> list[dict[str, object]]:
    """A table for people; with the labels that a pull request has, which of these are set, and which are in the way."""
    listed = list(needed)
    table: list[dict[str, object]] = []
    for it in listed:
        row: dict[str, object] = {"label": it.name or "none", "reason": it.reason, "paths": _few(it.paths)}
        if present is not None:
            row["state"] = "–" if not it.name else "set" if it.name in present else "lacks"
        table.append(row)
    names = {it.name for it in listed}
    for name, reason in _ODD.items():
        if listed and present is not None and name in present and name not in names:
            told = _BEATS if name == LIGHTWEIGHT and FUNCTIONAL in names else reason
            table.append({"label": name, "reason": told, "paths": "", "state": "set, not asked for"})
    return table


_BEATS = f"it wins over {FUNCTIONAL!r}, and compares nothing: take it off"
_ODD = {
    LIGHTWEIGHT: "the changed paths do not ask for it",
    FUNCTIONAL: "the changed paths do not ask for it; it runs more than they need",
    LTS: "opt-in: it switches CI to the LTS image, whatever else is set",
}


def _few(paths: tuple[str, ...]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
