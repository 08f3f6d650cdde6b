"""Work with uv as sequences of steps: install, add a dependency, lock again, lint.  Pure.

Sources: Megatron-LM's ``skills/mcore-build-and-dependency`` and ``mcore-linting-and-formatting``, Megatron-Bridge's
``skills/build-and-dependency`` and ``CONTRIBUTING.md``.  Where a guide's own command fails, the working one is used:
``uv add --optional --extra x package`` is refused by uv, whose option is ``--optional x``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from runbook_lib.containers.work import pyproject
from runbook_lib.containers.work.pyproject import PATH, Project
from runbook_lib.containers.work.task import Step
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM

LOCK = "uv.lock"
SUBMODULE = "3rdparty/Megatron-LM"
AUTOFORMAT = "tools/autoformat.sh"
#: What development needs, by the guides; of these, what the project has.
_USUAL = ("training", "dev", "test")
_LTS = (
    "The LTS image's packages are pinned in docker/lts/requirements.txt, and no extra of pyproject.toml holds them: "
    "edit the pin there and build docker/Dockerfile.ci.lts again."
)
#: Extras that take no more packages.
_CLOSED: Mapping[str, Mapping[str, str]] = {
    MEGATRON_LM.name: {"lts": _LTS, "mlm": "The extra mlm is deprecated in favour of training: name that."}
}


@dataclass(frozen=True)
class Tree:
    """A checkout as these plans see it.

    ``changed`` are those of pyproject.toml and uv.lock that differ from HEAD; ``head`` is the text of pyproject.toml
    there; ``unmerged`` all files in conflict;
    ``joining`` is the operation of git that waits for them.  ``base`` is the base branch as tracked, such as
    ``origin/main``, empty where it is not; ``theirs`` the commit whose uv.lock is that branch's.  ``was_conflict``:
    uv.lock was in conflict in this operation.  ``marks``: it holds the marks of one.  ``missing`` are submodules that
    are not initialized, ``mcore`` the branch of Megatron-Core that Megatron-Bridge's submodule stands on, where known.
    """

    repository: str
    project: Project
    branch: str = ""
    branches: frozenset[str] = frozenset()
    base: str = "origin/main"
    theirs: str = ""
    changed: frozenset[str] = frozenset()
    head: str = ""
    unmerged: tuple[str, ...] = ()
    joining: Literal["", "merge", "rebase", "cherry-pick"] = ""
    was_conflict: bool = False
    marks: bool = False
    lock: bool = True
    missing: tuple[str, ...] = ()
    mcore: str = ""
    files: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Work:
    """A sequence of steps.  ``sync`` holds the options of the environment to sync, apart as it depends on the place.

    ``idle`` says why nothing is to do, ``after`` what a person does then, ``warnings`` are whole sentences.
    """

    steps: tuple[Step, ...] = ()
    sync: tuple[str, ...] | None = None
    locked: bool = True
    idle: str = ""
    after: str = ""
    warnings: tuple[str, ...] = ()


def submodules(tree: Tree) -> tuple[Step, ...]:
    """What uv needs before it can lock: a submodule that is not initialized is "not a Python project"."""
    return tuple(
        Step(
            f"Initialize the submodule {path}", ("git", "submodule", "update", "--init", path), "host",
            f"pyproject.toml takes a package from {path}; empty, it is no Python project and uv cannot lock.",
        )
        for path in tree.missing
    )  # fmt: skip


def install(tree: Tree, wanted: str, image_type: str = "dev") -> Work:
    """Install extras and groups as pyproject.toml defines them; empty: what development needs.

    Raises Refused for LTS, RunbookError for a name that the project does not have.
    """
    if image_type == "lts" and not wanted and tree.repository == MEGATRON_LM.name:
        raise Refused(f"No sync makes the environment of LTS. {_LTS}")
    options = pyproject.options(tree.project, wanted) if wanted.strip() else usual(tree)
    warnings = []
    if not tree.lock:
        warnings.append("This checkout has no uv.lock, so uv resolves anew, and what it installs may change any day.")
    if tree.mcore == "dev":
        warnings.append("Megatron-Core stands on dev, for which uv.lock was not made: it is synced without --locked.")
    warnings.append(
        "uv sync takes away what was not asked for: in the image's own /opt/venv that is Transformer Engine of the "
        "extra te, and what is installed beside the lock, such as DeepEP. With --inexact it stays."
    )
    return Work(submodules(tree), options, tree.lock and tree.mcore != "dev", warnings=tuple(warnings))


def usual(tree: Tree) -> tuple[str, ...]:
    """What development needs, by the repository's guide, of what the project has."""
    everything = ("--all-extras", "--all-groups")
    if tree.repository == MEGATRON_BRIDGE.name:
        return everything
    named = [it for it in _USUAL if len(tree.project.kinds(it)) == 1]
    return pyproject.options(tree.project, " ".join(named)) if named else everything


def add(tree: Tree, package: str, extra: str = "") -> Work:
    """Add a package, lock, and commit both files on a branch of their own.

    Raises Refused where other changes would get into that commit, RunbookError for a name that is none.
    """
    package = pyproject.requirement(package)
    name = pyproject.package_name(package)
    target, place = _target(tree, extra)
    branch = f"build/add-{pyproject.normalized(name)}"
    listed = tree.project.has(package, place)
    begun = tree.branch == branch and PATH in tree.changed and tree.project.same_but_for(name, tree.head)
    if listed and not tree.changed:
        return Work(idle=f"{name} stands in {place} already.")
    if tree.changed and not (listed and begun):
        raise Refused(
            f"{' and '.join(sorted(tree.changed))} have uncommitted changes, which would get into the commit that adds "
            f"{name}. Commit or stash them, then run again."
        )
    title = f"build: add {name}" if tree.repository == MEGATRON_BRIDGE.name else f"build: add {name} dependency"
    adding = Step(
        f"Add {name} to {place}", ("uv", "add", "--no-sync", *target, package), "container",
        "uv writes pyproject.toml and uv.lock together, or neither; nothing is installed yet, as that builds for long.",
    )  # fmt: skip
    check = Step("Check the lock", ("uv", "lock", "--check"), "container",
                 "CI syncs with --locked, which a lock that does not fit refuses.")  # fmt: skip
    warnings = () if extra else (
        f"A required dependency reaches all who depend on this project, so it needs a strong reason. Preferred is an "
        f"optional extra: {', '.join(tree.project.extras) or 'none yet'}.",
    )  # fmt: skip
    return Work(
        (*_onto(tree, branch), *submodules(tree), *(() if listed else (adding,)), check,
         *commit(tree, (PATH, LOCK), title)),
        after=f"Push {branch} and open its pull request; the feature that needs {name} follows in another, after it.",
        warnings=warnings,
    )  # fmt: skip


def _target(tree: Tree, extra: str) -> tuple[tuple[str, ...], str]:
    """The options of ``uv add`` and the words for where a package goes."""
    if not extra:
        return (), "the project's dependencies"
    if closed := _CLOSED.get(tree.repository, {}).get(pyproject.normalized(extra)):
        raise Refused(f"Nothing is added to {extra}. {closed}")
    kinds = tree.project.kinds(extra)
    kind = kinds[0] if kinds else "extra"  # uv would make a new extra of a name that is mistyped
    option, spelled = tree.project.option(kind, extra)
    return ("--optional" if kind == "extra" else option, spelled), f"{kind} {spelled}"


def _onto(tree: Tree, branch: str) -> tuple[Step, ...]:
    if tree.branch == branch:
        return ()
    if not tree.base and branch not in tree.branches:
        raise Refused(
            f"The base branch is not known in this clone, so {branch} cannot begin there: `git fetch` it first."
        )
    made = branch in tree.branches
    command = ("git", "switch", branch) if made else ("git", "switch", "--no-track", "-c", branch, tree.base)
    why = "Changes of dependencies go in a pull request of their own, before the feature that needs them."
    return (Step("Go to a branch of its own", command, "host", why),)


def signing(tree: Tree) -> tuple[str, ...]:
    """The options of ``git commit`` that the repository's guide gives: signed off, and with a key where it says so."""
    return ("-s",) if tree.repository == MEGATRON_BRIDGE.name else ("-S", "-s")


def commit(tree: Tree, paths: tuple[str, ...], title: str) -> tuple[Step, ...]:
    """Commit these files alone, as the repository asks."""
    signed = signing(tree)
    why = "signed off" if len(signed) == 1 else "signed, and signed off"
    return (
        Step("Stage the files", ("git", "add", "--", *paths), "host", "Both belong to one another."),
        Step("Commit them", ("git", "commit", *signed, "-m", title, "--", *paths), "host",
             f"The repository wants commits {why}: your name and key are on this machine."),
    )  # fmt: skip


def lock(tree: Tree) -> Work:
    """Lock again over the pyproject.toml at hand.  Raises Refused while uv.lock is in conflict."""
    if tree.marks or LOCK in tree.unmerged:
        raise Refused(
            "uv.lock is in conflict: choose the task conflict, which takes the base branch's before it locks."
        )
    step = Step(
        "Lock again", ("uv", "lock"), "container",
        "uv.lock is for Linux with CUDA, and the uv of the image writes it in the form that CI reads.",
    )  # fmt: skip
    return Work((*submodules(tree), step), after=f"Commit {PATH} and {LOCK} together, signed off.")


def lint(tree: Tree, *, fix: bool) -> Work:
    """Check the style as CI does, or mend it.  Raises CannotTell where the project has no linters."""
    if AUTOFORMAT in tree.files:
        if "group" not in tree.project.kinds("linting"):
            raise CannotTell(f"{PATH} has no group linting, so the linters of {AUTOFORMAT} are not known.")
        words = ("env", f"BASE_REF={tree.base.rpartition('/')[2]}", f"CHECK_ONLY={str(not fix).lower()}",
                 "SKIP_DOCS=false", "bash", AUTOFORMAT)  # fmt: skip
        why = (
            "The script looks at the files that differ from the base branch, which it fetches from GitHub as the "
            "remote autoformatter-remote."
        )
        after = "After editing imports, run isort on those files as well." if fix else ""
        return Work((_isolated("linting", words, "Mend the style" if fix else "Check the style", why),), after=after)
    group = next((it.removeprefix("group ") for it in tree.project.where("ruff") if it.startswith("group ")), "")
    if not group:
        raise CannotTell(
            f"The checkout has no {AUTOFORMAT}, and {PATH} lists ruff in no group: how it is linted is not known."
        )
    check = ("ruff", "check", *(["--fix"] if fix else []), ".")
    form = ("ruff", "format", *([] if fix else ["--check"]), ".")
    why = "CI checks the same."
    return Work((*submodules(tree), _isolated(group, check, "Lint", why), _isolated(group, form, "Format", why)))


def _isolated(group: str, words: tuple[str, ...], title: str, why: str) -> Step:
    return Step(
        title, ("uv", "run", "--isolated", "--locked", "--only-group", group, *words), "container",
        f"{why} The linters are those of the group {group}, in an environment of their own: synced into /opt/venv, "
        "that group alone would take everything else away.",
    )  # fmt: skip


def hooks(tree: Tree, *, run: bool) -> Work:
    """Install the hooks of pre-commit, or run them over all files.  Raises Refused where the checkout has none."""
    if ".pre-commit-config.yaml" not in tree.files:
        raise Refused("The checkout has no .pre-commit-config.yaml, so there are no hooks.")
    listed = [it.split() for it in tree.project.where("pre-commit")]
    how = next((("uv", "run", f"--{it[0]}", it[1]) for it in listed if len(it) == 2), ("uvx",))
    if run:
        step = Step("Run the hooks over all files", (*how, "pre-commit", "run", "--all-files"), "container",
                    "They may change files: look at the difference before you commit.")  # fmt: skip
        return Work((*submodules(tree), step))
    step = Step("Install the hooks", (*how, "pre-commit", "install"), "container",
                "git then runs them before each commit of this clone.")  # fmt: skip
    told = (
        "The hook runs where you commit, and names the environment of the container: commit in there, or have "
        "pre-commit on this machine as well."
    )
    return Work((*submodules(tree), step), warnings=(told,))
