"""A checkout with a ``pyproject.toml`` as read by uv: the facts that determine what a task consists of.

Extras are in ``[project.optional-dependencies]``, groups in ``[dependency-groups]`` (PEP 735).  They are easily
confused: Megatron-LM's own guide installs ``--group dev``, which is an extra there, and uv refuses it.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from runbook_lib.compute.tasks import Values
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.commit_changes import list_files
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM

PYPROJECT = "pyproject.toml"


@dataclass(frozen=True)
class PythonProject:
    """The parts of a pyproject.toml that determine what uv installs, with names as in the file.

    ``extras`` and ``groups`` are its lists, each with its requirements.
    """

    name: str
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, path: str = PYPROJECT) -> "PythonProject":
        """Parse the file's text.  Raises CannotTell if it is not a project that uv manages."""
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: also for a number of thousands of digits
            conflict = " It has conflict marks: merge the file by hand." if "<<<<<<< " in text else ""
            raise CannotTell(f"{path} cannot be read as TOML: {error}.{conflict}") from error
        project, uv = _table(data, "project"), _table(data, "tool", "uv")
        if not project:
            raise CannotTell(f"{path} has no [project] table, so there is no project for uv to manage.")
        groups = dict(_table(data, "dependency-groups"))
        if "dev-dependencies" in uv:  # uv's own format, from before PEP 735
            groups.setdefault("dev", uv["dev-dependencies"])
        lists = (_table(project, "optional-dependencies"), groups)
        name = project.get("name")
        return cls(
            name if isinstance(name, str) else "",
            *({key: _requirements(entries) for key, entries in kind.items()} for kind in lists),
        )

    def kinds(self, name: str) -> dict[str, str]:
        """Return the kinds of a name, ``extra`` and ``group``, with its spelling; names are compared as uv does."""
        wanted = canonicalize_name(name)
        kinds: dict[str, str] = {}
        for kind, listed in (("extra", self.extras), ("group", self.groups)):
            for known in listed:
                if canonicalize_name(known) == wanted:
                    kinds[kind] = known
        return kinds

    def options(self, names: str) -> tuple[str, ...]:
        """Return the options of ``uv sync`` for bare names, or for options such as ``--extra dev --group test``.

        Raises RunbookError for a name that does not exist, exists as the other kind, or as both without its option.
        """
        words, options = iter(names.replace(",", " ").split()), list[str]()
        for word in words:
            if word in ("--all-extras", "--all-groups"):
                options.append(word)
                continue
            wanted = word.removeprefix("--") if word in ("--extra", "--group") else ""
            name = next(words, "") if wanted else word
            kinds = self.kinds(name)
            kind = wanted or "".join(kinds)
            if kind not in kinds:
                found = " or ".join(f"--{kind} {name}" for kind in kinds)
                advice = f"Write {found}." if found else "Or: --all-extras --all-groups."
                extras, groups = (", ".join(listed) or "none" for listed in (self.extras, self.groups))
                raise RunbookError(
                    f"{self.name or 'This project'} has no {wanted or 'single extra or group'} {name!r}. Its extras "
                    f"are {extras}; its groups are {groups}. {advice}"
                )
            options += (f"--{kind}", kinds[kind])
        return tuple(options)


def parse_requirement(text: str) -> Requirement:
    """Parse a package in the format of ``uv add``: ``einops``, ``einops~=0.8``, ``name[extra] @ https://…``.

    Raises RunbookError for anything else, such as an option or a path.
    """
    try:
        if not text.isprintable():
            raise InvalidRequirement("It has control characters.")
        return Requirement(text.strip())
    except InvalidRequirement as error:
        raise RunbookError(
            f"{text[:80]!r} is not a package name with an optional version. Examples: einops, einops~=0.8"
        ) from error


def _requirements(entries: object) -> tuple[str, ...]:
    """Return the packages of a list; entries such as ``{include-group = "test"}`` are skipped."""
    texts = [entry for entry in entries if isinstance(entry, str)] if isinstance(entries, list) else []
    return tuple(canonicalize_name(match[0]) for text in texts if (match := re.match(r"[\w.-]+", text)))


def _table(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return a nested table, empty if it is missing or not a table."""
    for key in keys:
        data = data.get(key, {})
        if not isinstance(data, dict):
            return {}
    return data


LOCK = "uv.lock"
MCORE_SUBMODULE = "3rdparty/Megatron-LM"
_EVERYTHING = ("--all-extras", "--all-groups")


@dataclass(frozen=True)
class ProjectState:
    """A checkout with a pyproject.toml.

    ``base`` is the tracked base branch, such as ``origin/main``, empty if it is not tracked.  ``lock_changed``: uv.lock
    differs from HEAD.  ``unmerged`` are all files in conflict, and ``conflict_marks`` are in uv.lock.  ``mcore_branch``
    is the Megatron-Core branch that the submodule is pinned to, if known.
    """

    repository: str
    project: PythonProject
    base: str = "origin/main"
    lock_changed: bool = False
    unmerged: tuple[str, ...] = ()
    conflict_marks: bool = False
    has_lock: bool = True
    missing_submodules: tuple[str, ...] = ()
    mcore_branch: str = ""
    files: frozenset[str] = frozenset()

    def values(self, image_type: str = "dev") -> Values:
        """Return the facts about the checkout, for the table of tasks; its files in folders are facts as well."""
        return {
            **{path: True for path in self.files if "/" in path},
            "base": self.base, "base_branch": self.base.rpartition("/")[2],
            "lock": self.has_lock, "lock_changed": self.lock_changed,
            "lock_conflict": self.conflict_marks or LOCK in self.unmerged,
            "project_conflict": PYPROJECT in self.unmerged,
            "other_conflicts": ", ".join([path for path in self.unmerged if path != LOCK][:8]),
            "submodules": self.missing_submodules, "mcore_dev": self.mcore_branch == "dev",
            "linters": next((name for name, listed in self.project.groups.items() if "ruff" in listed), ""),
            "extras": ", ".join(self.project.extras) or "none yet",
            "lts_extra": bool(self.project.extras.get("lts")),
            "locked": ("--locked",) if self.has_lock and self.mcore_branch != "dev" else (),
            "sync_options": self.usual_options(image_type),
        }  # fmt: skip

    def usual_options(self, image_type: str = "dev") -> tuple[str, ...]:
        """Return the options of ``uv sync`` for development, according to the repository's guide."""
        # The guide's extra training was called mlm until core_r0.16.
        training = "training" if "training" in self.project.extras else "mlm"
        names = [name for name in (training, image_type, "test") if len(self.project.kinds(name)) == 1]
        if self.repository == MEGATRON_BRIDGE.name or not names:
            return _EVERYTHING
        return self.project.options(" ".join(names))

    def install_values(self, names: str, image_type: str = "dev") -> Values:
        """Return the facts about the extras and groups to install; without names, those needed for development.

        Raises RunbookError for a name that the project does not have.
        """
        options = self.project.options(names) if names.strip() else self.usual_options(image_type)
        if options == ("--group", "linting"):
            options = ("--only-group", "linting")  # like CI, which installs the linters alone
        return {"sync_options": options, "lts": image_type == "lts" and not names.strip()}

    def add_values(self, arguments: str) -> Values:
        """Return the facts about a package to add: ``einops~=0.8``, perhaps after ``--optional`` or ``--group NAME``.

        Raises RunbookError for an invalid name.
        """
        option, _, rest = arguments.strip().partition(" ")
        extra, package, options, location = "", arguments.strip(), tuple[str, ...](), "the project's dependencies"
        if option in ("--optional", "--extra", "--group"):
            extra, _, package = rest.strip().partition(" ")
        name, place = parse_requirement(package).name, canonicalize_name(extra)
        is_lm, kinds = self.repository == MEGATRON_LM.name, self.project.kinds
        is_mlm = is_lm and place == "mlm" and bool(kinds("training"))
        is_refused = is_mlm or (is_lm and place == "lts" and not kinds("lts"))  # by the table, with the reason
        if extra and not is_refused:
            # uv would create a new extra for a mistyped name; this refuses it.
            given, spelling = self.project.options(extra)
            options, location = (given.replace("--extra", "--optional"), spelling), f"{given[2:]} {spelling}"
        return {
            "extra": extra, "package": name, "branch": canonicalize_name(name), "requirement": package.strip(),
            "options": options, "location": location, "lts": place == "lts", "mlm": is_mlm,
        }  # fmt: skip


def read_project_state(checkout: Checkout, repository: str, base: str = "main") -> ProjectState:
    """Read the state of a checkout; ``repository`` is ``owner/name``.

    Raises CannotTell without a pyproject.toml that uv manages.
    """
    text, lock = checkout.read([PYPROJECT, LOCK], "HEAD" if checkout.bare else None).values()
    if text is None:
        raise CannotTell(f"{checkout.path} has no {PYPROJECT}, so uv has nothing to work on.")
    project = PythonProject.parse(text)
    remote = checkout.base_remote()
    tracked = f"{remote}/{base}" if remote and checkout.tracked_tip(remote, base) else ""
    if checkout.bare:
        files = frozenset(list_files(checkout, "HEAD"))
        return ProjectState(repository, project, base=tracked, has_lock=lock is not None, files=files)
    files = frozenset(checkout.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"))
    unmerged = checkout.git("diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    missing = missing_submodules(checkout)
    return ProjectState(
        repository, project, tracked, bool(checkout.uncommitted([LOCK])), tuple(filter(None, unmerged)),
        re.search(r"(?m)^(?:<<<<<<<|>>>>>>>) ", lock or "") is not None, has_lock=lock is not None,
        missing_submodules=missing, mcore_branch="" if missing else _mcore_branch(checkout), files=files,
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
