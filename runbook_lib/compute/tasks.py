"""The tasks that belong inside the image: the table ``tasks.toml``, its rows as commands, and the facts for them.

Both projects build and develop inside containers, and always with uv: CUDA, PyTorch and packages compiled against them
come from the image; another machine would resolve, build and lock different packages.
"""

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.world.git.checkout import Checkout

TABLE: Mapping[str, Any] = tomllib.loads((files("runbook_lib.compute") / "tasks.toml").read_text("utf-8"))
#: The values of the notebook's parameter ``task``, with descriptions.
TASKS: Mapping[str, str] = {name: row["is"] for name, row in TABLE["tasks"].items() if "is" in row}
#: Paths of a checkout whose existence is a fact.
FILES: tuple[str, ...] = tuple(TABLE["files"])
PYPROJECT, LOCK = "pyproject.toml", "uv.lock"
MCORE_SUBMODULE = "3rdparty/Megatron-LM"
#: Facts about a checkout, a place and the task's arguments, by their names in the table.
Values = Mapping[str, str | bool | Sequence[str]]


@dataclass(frozen=True)
class WorkStep:
    """One command of a task, run on the host or in the container.

    ``reason`` is one or more sentences; ``env`` has variables by name.  A step that needs a ``terminal`` is only shown.
    """

    title: str
    command: tuple[str, ...]
    place: Literal["host", "container"] = "host"
    reason: str = ""
    gpus: bool = False
    terminal: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The command, ready to paste into a shell."""
        return shlex.join(self.command)


@dataclass(frozen=True)
class TaskPlan:
    """The steps of a task; ``idle`` says why there is nothing to do, and ``next`` what is left to the user."""

    steps: tuple[WorkStep, ...] = ()
    idle: str = ""
    next: str = ""
    warnings: tuple[str, ...] = ()


def plan_task(name: str, values: Values) -> TaskPlan:
    """Return the plan of a row of the table.  Raises Refused, with the row's own sentence."""
    row = TABLE["tasks"][name]
    values, texts = {**values, **row.get("values", {})}, {}
    for key in ("refuse", "idle", "next", "warn"):
        texts[key] = [text.format_map(values) for when, text in row.get(key, {}).items() if holds(when, values)]
    if texts["refuse"]:
        raise Refused(" ".join(texts["refuse"]))
    if texts["idle"]:
        return TaskPlan(idle=" ".join(texts["idle"]))
    steps = []
    for names in row["steps"]:
        for name in [names] if isinstance(names, str) else names:
            if holds(TABLE["steps"][name].get("when", ""), values):
                steps.append(make_step(name, values))
                break
    return TaskPlan(tuple(steps), "", " ".join(texts["next"]), tuple(texts["warn"]))


def make_step(name: str, values: Values) -> WorkStep:
    """Return a step of the table with its placeholders replaced."""
    row = TABLE["steps"][name]
    env = {variable: value.format_map(values) for variable, value in row.get("env", {}).items()}
    title, reason = (row[key].format_map(values) for key in ("title", "reason"))
    gpus, terminal = row.get("gpus", False), row.get("terminal", False)
    return WorkStep(title, expand(row["command"], values), row["place"], reason, gpus, terminal, env)


def expand(command: str, values: Values) -> tuple[str, ...]:
    """Return the words of a command with their placeholders replaced.

    A list replaces a word that consists only of its placeholder, with one word per element.
    """
    words: list[str] = []
    for word in shlex.split(command):
        value = values.get(word[1:-1]) if word.startswith("{") else None
        if isinstance(value, list | tuple):
            words += value
        else:
            words.append(word.format_map(values))
    return tuple(words)


def holds(condition: str, values: Values) -> bool:
    """Return True if all facts of a condition hold; ``!`` is not."""
    return all(bool(values.get(fact.removeprefix("!"))) != fact.startswith("!") for fact in condition.split())


def split_words(arguments: str) -> tuple[str, ...]:
    """Split a parameter into words like a shell.  Raises RunbookError."""
    try:
        return tuple(shlex.split(arguments))
    except ValueError as error:
        raise RunbookError(f"arguments={arguments!r} cannot be read: {error}.") from error


@dataclass(frozen=True)
class PythonProject:
    """The extras (``[project.optional-dependencies]``) and groups (PEP 735) of a project, each with its requirements.

    They are easily confused: Megatron-LM's own guide installs ``--group dev``, which is an extra there, and uv refuses
    it.  So a name is enough, and its kind follows from the file.
    """

    extras: Mapping[str, Sequence[Any]]
    groups: Mapping[str, Sequence[Any]]

    @classmethod
    def parse(cls, text: str) -> "PythonProject":
        """Parse the file's text.  Raises CannotTell if it is not a project that uv manages."""
        try:
            data = tomllib.loads(text)
            extras = {name: list(it) for name, it in data["project"].get("optional-dependencies", {}).items()}
            groups = {name: list(it) for name, it in data.get("dependency-groups", {}).items()}
            return cls(extras, groups)
        except (ValueError, RecursionError) as error:  # ValueError: also for a number of thousands of digits
            conflict = " It has conflict marks: merge the file by hand." if "<<<<<<< " in text else ""
            raise CannotTell(f"{PYPROJECT} cannot be read as TOML: {error}.{conflict}") from error
        except (KeyError, AttributeError, TypeError) as error:
            reason = "has no valid [project] table or groups, so uv manages nothing here."
            raise CannotTell(f"{PYPROJECT} {reason}") from error

    def options(self, words: tuple[str, ...], image_type: str = "dev") -> tuple[str, ...]:
        """Return the options of ``uv sync`` for names of extras and groups; options are passed on as they are.

        Without any, return those for development by the project's guide.  Raises RunbookError for an unknown name.
        """
        if any(word.startswith("-") for word in words):
            return words
        if not words:
            # The extra training of Megatron-LM's guide was called mlm until core_r0.16.
            usual = next((name for name in ("training", "mlm") if name in self.extras), "")
            if not usual:
                return ("--all-extras", "--all-groups")
            words = (usual, *(name for name in (image_type, "test") if name in {*self.extras, *self.groups}))
        options: list[str] = []
        for name in words:
            if name not in self.extras and name not in self.groups:
                extras, groups = (", ".join(listed) or "none" for listed in (self.extras, self.groups))
                raise RunbookError(
                    f"This project has no extra or group {name!r}. Its extras are {extras}; its groups are {groups}."
                )
            options += ("--extra" if name in self.extras else "--group", name)
        # Like CI, which installs the linters alone.
        return tuple(options) if options != ["--group", "linting"] else ("--only-group", "linting")


def read_facts(checkout: Checkout, task: str, words: tuple[str, ...], base: str, image_type: str) -> Values:
    """Return the facts about a checkout and the words of ``arguments``, for the table of tasks.

    Raises CannotTell without a pyproject.toml that uv manages, RunbookError for a name that it does not have.
    """
    text = checkout.read([PYPROJECT])[PYPROJECT]
    if text is None:
        raise CannotTell(f"{checkout.path} has no {PYPROJECT}, so uv has nothing to work on.")
    project = PythonProject.parse(text)
    remote = checkout.base_remote()
    tracked = f"{remote}/{base}" if remote and checkout.tracked_tip(remote, base) else ""
    unmerged = [path for path in checkout.git("diff", "--name-only", "--diff-filter=U", "-z").split("\0") if path]
    missing, has_lock = missing_submodules(checkout), (checkout.path / LOCK).exists()
    on_dev = not missing and _is_on_dev(checkout)
    linters = (name for name, listed in project.groups.items() if any(str(it).startswith("ruff") for it in listed))
    package = re.match(r"[\w.-]*", words[-1] if words else "")
    return {
        **{path: (checkout.path / path).is_file() for path in FILES},
        "base": tracked, "base_branch": base, "submodules": missing, "mcore_dev": on_dev,
        "lock": has_lock, "lock_changed": bool(checkout.uncommitted([LOCK])), "lock_conflict": LOCK in unmerged,
        "project_conflict": PYPROJECT in unmerged,
        "other_conflicts": ", ".join([path for path in unmerged if path != LOCK][:8]),
        "locked": ("--locked",) if has_lock and not on_dev else (), "linters": next(linters, ""),
        "extras": ", ".join(project.extras) or "none yet", "lts_extra": bool(project.extras.get("lts")),
        "words": words, "package": package[0] if package else "", "optional": len(words) > 1,
        "mlm": "mlm" in words and "training" in project.extras,
        "lts": "lts" in words or (image_type == "lts" and not words),
        "sync_options": project.options(words if task != "add" else (), image_type),
        # In git's own folder, so that the lock does not change the checkout.
        "host_lock": checkout.git("rev-parse", "--path-format=absolute", "--git-path", "uv-sync.lock"),
    }  # fmt: skip


def missing_submodules(checkout: Checkout) -> tuple[str, ...]:
    """Return the submodules that are not initialized, so that their folders are empty."""
    if checkout.read([".gitmodules"])[".gitmodules"] is None:
        return ()
    lines = checkout.git("submodule", "status").splitlines()
    return tuple(line.split(" ", 1)[1] for line in lines if line.startswith("-"))


def _is_on_dev(checkout: Checkout) -> bool:
    """Return True if the submodule Megatron-Core has the commit that is pinned for its branch dev."""
    pin = checkout.read([".dev.commit"])[".dev.commit"]
    if pin is None or not (checkout.path / MCORE_SUBMODULE / ".git").exists():
        return False
    return checkout.git("-C", MCORE_SUBMODULE, "rev-parse", "HEAD") == pin.strip()
