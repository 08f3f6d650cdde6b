"""A checkout with a ``pyproject.toml`` as read by uv: the facts that determine what a task consists of.

Extras are in ``[project.optional-dependencies]``, groups in ``[dependency-groups]`` (PEP 735).  They are easily
confused: Megatron-LM's own guide installs ``--group dev``, which is an extra there, and uv refuses it.  So a name is
enough, and its kind follows from the file.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runbook_lib.compute.tasks import Values
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import MEGATRON_BRIDGE

PYPROJECT = "pyproject.toml"
LOCK = "uv.lock"
MCORE_SUBMODULE = "3rdparty/Megatron-LM"


@dataclass(frozen=True)
class PythonProject:
    """The extras and groups of a pyproject.toml, each with its requirements."""

    extras: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "PythonProject":
        """Parse the file's text.  Raises CannotTell if it is not a project that uv manages."""
        try:
            data = tomllib.loads(text)
            extras = dict(data["project"].get("optional-dependencies", {}))
            return cls(extras, dict(data.get("dependency-groups", {})))
        except (ValueError, RecursionError) as error:  # ValueError: also for a number of thousands of digits
            conflict = " It has conflict marks: merge the file by hand." if "<<<<<<< " in text else ""
            raise CannotTell(f"{PYPROJECT} cannot be read as TOML: {error}.{conflict}") from error
        except (KeyError, AttributeError, TypeError) as error:
            raise CannotTell(f"{PYPROJECT} has no valid [project] table, so uv manages nothing here.") from error

    def options(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the options of ``uv sync`` for names of extras and groups; options are passed on as they are.

        Raises RunbookError for a name that does not exist.
        """
        if any(word.startswith("-") for word in words):
            return words
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


@dataclass(frozen=True)
class ProjectState:
    """A checkout with a pyproject.toml.

    ``base`` is the tracked base branch, such as ``origin/main``, empty if it is not tracked.  ``lock_changed``: uv.lock
    differs from HEAD.  ``unmerged`` are all files in conflict, and ``submodules`` those that are not initialized.
    ``mcore_branch`` is the Megatron-Core branch that the submodule is pinned to, if known.
    """

    repository: str
    project: PythonProject
    base: str = "origin/main"
    lock_changed: bool = False
    unmerged: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    mcore_branch: str = ""
    files: frozenset[str] = frozenset({LOCK})

    def values(self, image_type: str = "dev", words: tuple[str, ...] = ()) -> Values:
        """Return the facts about the checkout and the words of ``arguments``, for the table of tasks.

        Its files in folders are facts as well.  Raises RunbookError for a name that the project does not have.
        """
        extras, groups, has_lock = self.project.extras, self.project.groups, LOCK in self.files
        linters = (name for name, listed in groups.items() if any(str(it).startswith("ruff") for it in listed))
        package = re.match(r"[\w.-]*", words[-1] if words else "")
        return {
            **{path: True for path in self.files if "/" in path},
            "base": self.base, "base_branch": self.base.rpartition("/")[2],
            "lock": has_lock, "lock_changed": self.lock_changed, "lock_conflict": LOCK in self.unmerged,
            "project_conflict": PYPROJECT in self.unmerged,
            "other_conflicts": ", ".join([path for path in self.unmerged if path != LOCK][:8]),
            "submodules": self.submodules, "mcore_dev": self.mcore_branch == "dev", "linters": next(linters, ""),
            "locked": ("--locked",) if has_lock and self.mcore_branch != "dev" else (),
            "extras": ", ".join(extras) or "none yet", "lts_extra": bool(extras.get("lts")),
            "words": words, "package": package[0] if package else "", "optional": len(words) > 1,
            "mlm": "mlm" in words and "training" in extras,
            "lts": "lts" in words or (image_type == "lts" and not words),
        }  # fmt: skip

    def sync_options(self, image_type: str, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the options of ``uv sync`` for these names; without any, those for development by the guide."""
        # The guide's extra training was called mlm until core_r0.16.
        wanted = ("training" if "training" in self.project.extras else "mlm", image_type, "test")
        known = {*self.project.extras, *self.project.groups}
        usual = tuple(name for name in wanted if name in known)
        if not words and (self.repository == MEGATRON_BRIDGE.name or not usual):
            return ("--all-extras", "--all-groups")
        return self.project.options(words or usual)


def read_project_state(checkout: Checkout, repository: str, base: str = "main") -> ProjectState:
    """Read the state of a checkout; ``repository`` is ``owner/name``.

    Raises CannotTell without a pyproject.toml that uv manages.
    """
    text = checkout.read([PYPROJECT])[PYPROJECT]
    if text is None:
        raise CannotTell(f"{checkout.path} has no {PYPROJECT}, so uv has nothing to work on.")
    remote = checkout.base_remote()
    tracked = f"{remote}/{base}" if remote and checkout.tracked_tip(remote, base) else ""
    files = frozenset(checkout.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"))
    unmerged = checkout.git("diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    missing = missing_submodules(checkout)
    return ProjectState(
        repository, PythonProject.parse(text), tracked, bool(checkout.uncommitted([LOCK])),
        tuple(filter(None, unmerged)), missing, "" if missing else _mcore_branch(checkout), files,
    )  # fmt: skip


def missing_submodules(checkout: Checkout) -> tuple[str, ...]:
    """Return the submodules that are not initialized, so that their folders are empty."""
    if checkout.read([".gitmodules"])[".gitmodules"] is None:
        return ()
    lines = checkout.git("submodule", "status").splitlines()
    return tuple(line[1:].split()[1] for line in lines if line.startswith("-"))


def _mcore_branch(checkout: Checkout) -> str:
    """Return the Megatron-Core branch whose pinned commit the submodule has, or an empty string."""
    pins = checkout.read([".dev.commit", ".main.commit"])
    if None in pins.values() or not (checkout.path / MCORE_SUBMODULE / ".git").exists():
        return ""
    head = checkout.git("-C", MCORE_SUBMODULE, "rev-parse", "HEAD")
    return next((path.split(".")[1] for path, text in pins.items() if text and text.strip() == head), "")
