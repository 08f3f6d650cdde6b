"""Work with uv as plans of steps: install, add a dependency, lock, resolve a conflict, lint.  Pure.

Sources: Megatron-LM's ``skills/mcore-build-and-dependency`` and ``mcore-linting-and-formatting``, Megatron-Bridge's
``skills/build-and-dependency``, ``CONTRIBUTING.md`` and ``scripts/switch_mcore.sh``.  Where a guide's own command
fails, the working one is used: uv refuses ``uv add --optional --extra x package``; its option is ``--optional x``.
"""

from dataclasses import dataclass

from packaging.utils import canonicalize_name

from runbook_lib.compute.work.project_state import LOCK, ProjectState
from runbook_lib.compute.work.pyproject import PYPROJECT, REQUIRED, parse_requirement
from runbook_lib.compute.work.tasks import WorkStep, make_step
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM

AUTOFORMAT = "tools/autoformat.sh"
SWITCH_MCORE = "scripts/switch_mcore.sh"
_EVERYTHING = ("--all-extras", "--all-groups")
_LTS_PINS = "docker/lts/requirements.txt"


@dataclass(frozen=True)
class WorkPlan:
    """The steps of a task.

    ``sync`` has the options of the sync after the steps, whose command depends on where it runs; None for no sync.
    ``no_change`` is the reason why there is nothing to do; ``next_action`` is left to the user.
    """

    steps: tuple[WorkStep, ...] = ()
    sync: tuple[str, ...] | None = None
    locked: bool = True
    no_change: str = ""
    next_action: str = ""
    warnings: tuple[str, ...] = ()


def install(state: ProjectState, names: str, image_type: str = "dev") -> WorkPlan:
    """Plan to install extras and groups; without names, those needed for development.

    Raises Refused for LTS, RunbookError for a name that the project does not have.
    """
    names = names.strip()
    if names:
        options = state.project.options(names)
    elif image_type == "lts" and (reason := _lts_outside_extra(state)):
        raise Refused(f"No sync creates the environment of LTS. {reason}")
    else:
        options = usual_options(state, image_type)
    if options == ("--group", "linting"):
        options = ("--only-group", "linting")  # like CI, which installs the linters alone
    on_mcore_dev = state.mcore_branch == "dev"
    warnings = []
    if not state.has_lock:
        warnings.append(
            "This checkout has no uv.lock, so uv resolves the versions now, and they may change at any time."
        )
    if on_mcore_dev:
        warnings.append("Megatron-Core is on dev, but uv.lock is for main, so the sync runs without --locked.")
    warnings.append(
        "uv sync removes what was not requested: in the image's own /opt/venv that is Transformer Engine from the "
        "extra te, and packages installed outside the lock, such as DeepEP. Add --inexact to keep them."
    )
    locked = state.has_lock and not on_mcore_dev
    return WorkPlan(_submodules(state), options, locked, warnings=tuple(warnings))


def _lts_outside_extra(state: ProjectState) -> str:
    """Return the place of the LTS packages if they are not in the extra ``lts``; empty if they are."""
    if state.repository != MEGATRON_LM.name:
        return ""
    if _LTS_PINS in state.files:
        return (
            f"The LTS image's packages are pinned in {_LTS_PINS}: edit it there and build docker/Dockerfile.ci.lts "
            "again."
        )
    if not state.project.places.get("extra lts"):
        return f"In this checkout the extra lts in {PYPROJECT} is empty, and there is no {_LTS_PINS}."
    return ""


def usual_options(state: ProjectState, image_type: str = "dev") -> tuple[str, ...]:
    """Return the options of ``uv sync`` for development, according to the repository's guide."""
    # The guide's extra training was called mlm until core_r0.16.
    training = "training" if "training" in state.project.extras else "mlm"
    names = [name for name in (training, image_type, "test") if len(state.project.kinds(name)) == 1]
    if state.repository == MEGATRON_BRIDGE.name or not names:
        return _EVERYTHING
    return state.project.options(" ".join(names))


def add(state: ProjectState, arguments: str) -> WorkPlan:
    """Plan to add a package and lock: ``einops~=0.8``, perhaps after ``--optional EXTRA`` or ``--group GROUP``.

    Raises Refused for an extra that is not to be used, RunbookError for an invalid name.
    """
    option, _, rest = arguments.strip().partition(" ")
    extra, package = "", arguments.strip()
    if option in ("--optional", "--extra", "--group"):
        extra, _, package = rest.strip().partition(" ")
    name = parse_requirement(package).name
    options, place = _add_options(state, extra)
    step = make_step("add", package=name, location=place, options=options, requirement=package.strip())
    noun = "" if state.repository == MEGATRON_BRIDGE.name else " dependency"
    signing = "-s" if state.repository == MEGATRON_BRIDGE.name else "-S -s"
    next_action = (
        f"Commit both files on a branch of their own, and open its pull request before that of the feature: "
        f"git switch -c build/add-{canonicalize_name(name)} && "
        f"git commit {signing} -m 'build: add {name}{noun}' -- {PYPROJECT} {LOCK}"
    )
    warnings: tuple[str, ...] = ()
    if not extra:
        extras = ", ".join(state.project.extras) or "none yet"
        warnings = (
            "A required dependency affects everyone who depends on this project, so it needs a strong reason. An "
            f"optional extra is preferred: {extras}.",
        )
    steps = (*_submodules(state), step, make_step("lock-check"))
    return WorkPlan(steps, next_action=next_action, warnings=warnings)


def lock(state: ProjectState) -> WorkPlan:
    """Plan to lock again from pyproject.toml.  Raises Refused while uv.lock is in conflict."""
    if state.lock_in_conflict:
        raise Refused(
            "uv.lock is in conflict: choose the task conflict, which takes the base branch's uv.lock before locking."
        )
    steps = (*_submodules(state), make_step("lock"))
    return WorkPlan(steps, next_action=f"Commit {PYPROJECT} and {LOCK} together, signed off.")


def resolve_conflict(state: ProjectState) -> WorkPlan:
    """Plan to take uv.lock from the base branch, and to lock again with the user's pyproject.toml.

    Raises Refused while pyproject.toml itself is in conflict, which only the user can resolve.
    """
    if not state.lock_in_conflict:
        return WorkPlan(no_change="uv.lock is not in conflict.")
    if PYPROJECT in state.unmerged:
        raise Refused(
            f"{PYPROJECT} is in conflict as well. Merge it by hand and `git add {PYPROJECT}`; then run again, and "
            "uv.lock is generated from it."
        )
    if not state.base:
        raise Refused("This clone does not track the base branch, so its uv.lock is unknown: `git fetch` it first.")
    steps = (*_submodules(state), make_step("take-lock", base=state.base), make_step("lock"), make_step("stage-lock"))
    next_action = "Let git continue, as `git status` says: git commit, or git rebase --continue."
    if conflicts := [path for path in state.unmerged if path != LOCK]:
        next_action = f"Resolve {', '.join(conflicts[:8])} as well. {next_action}"
    return WorkPlan(steps, next_action=next_action)


def switch_mcore(state: ProjectState, branch: str) -> WorkPlan:
    """Plan to switch Megatron-Bridge's Megatron-Core to its pinned ``dev`` or ``main``, and to sync.

    Raises Refused if the checkout has no script for it.
    """
    if SWITCH_MCORE not in state.files:
        raise Refused(f"The checkout has no {SWITCH_MCORE}: only Megatron-Bridge switches Megatron-Core's branch.")
    steps = (*_submodules(state), make_step("switch-mcore", branch=branch))
    if branch == "dev":
        warning = "On dev uv rewrites uv.lock. Do not commit that: the task mcore-main restores the file."
        return WorkPlan(steps, usual_options(state), locked=False, warnings=(warning,))
    if LOCK in state.uncommitted:
        steps = (*steps, make_step("restore-lock"))
    return WorkPlan(steps, usual_options(state))


def lint(state: ProjectState, *, fix: bool) -> WorkPlan:
    """Plan to check the style as CI does, or to fix it.  Raises CannotTell if the project has no linters."""
    if AUTOFORMAT in state.files:
        step = make_step("autoformat", branch=state.base.rpartition("/")[2], check=str(not fix).lower())
        return WorkPlan((step,), next_action="After editing imports, run isort on those files as well." if fix else "")
    groups = [place.removeprefix("group ") for place in state.project.where("ruff") if place.startswith("group ")]
    if not groups:
        raise CannotTell(
            f"The checkout has no {AUTOFORMAT}, and no group in {PYPROJECT} lists ruff, so its linters are unknown."
        )
    lint_options, format_options = (("--fix",), ()) if fix else ((), ("--check",))
    check = make_step("ruff-check", group=groups[0], options=lint_options)
    return WorkPlan((*_submodules(state), check, make_step("ruff-format", group=groups[0], options=format_options)))


def hooks(state: ProjectState, *, run: bool) -> WorkPlan:
    """Plan to install the pre-commit hooks, or to run them on all files."""
    runner = ("uv", "run", "--group", "dev") if state.repository == MEGATRON_BRIDGE.name else ("uvx",)
    if run:
        return WorkPlan((*_submodules(state), make_step("hooks-run", runner=runner)))
    warning = (
        "The hook runs where you commit, and uses the container's environment: commit inside the container, or "
        "install pre-commit on this machine as well."
    )
    return WorkPlan((*_submodules(state), make_step("hooks-install", runner=runner)), warnings=(warning,))


def _submodules(state: ProjectState) -> tuple[WorkStep, ...]:
    return tuple(make_step("submodule", path=path) for path in state.missing_submodules)


def _add_options(state: ProjectState, extra: str) -> tuple[tuple[str, ...], str]:
    """Return the options of ``uv add`` for an extra or a group, and a phrase for it."""
    if not extra:
        return (), REQUIRED
    name, reason = canonicalize_name(extra), ""
    if name == "lts":
        reason = _lts_outside_extra(state)
    elif name == "mlm" and state.repository == MEGATRON_LM.name and state.project.kinds("training"):
        reason = "The extra mlm is deprecated in favour of training: use that instead."
    if reason:
        raise Refused(f"Nothing is added to {extra}. {reason}")
    kind = next(iter(state.project.kinds(extra)), "extra")
    # uv would create a new extra for a mistyped name; this refuses it.
    option, spelling = state.project.option(kind, extra)
    if kind == "extra":
        option = "--optional"
    return (option, spelling), f"{kind} {spelling}"
