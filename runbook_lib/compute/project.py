"""A checkout with a ``pyproject.toml`` as read by uv: the facts that determine what a task consists of.

Extras are in ``[project.optional-dependencies]``, groups in ``[dependency-groups]`` (PEP 735).  They are easily
confused: Megatron-LM's own guide installs ``--group dev``, which is an extra there, and uv refuses it.  So a name is
enough, and its kind follows from the file.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbook_lib.compute.tasks import FILES, Values
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.world.git.checkout import Checkout

PYPROJECT = "pyproject.toml"
LOCK = "uv.lock"
MCORE_SUBMODULE = "3rdparty/Megatron-LM"


@dataclass(frozen=True)
class PythonProject:
    """The extras and groups of a pyproject.toml, each with its requirements."""

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
