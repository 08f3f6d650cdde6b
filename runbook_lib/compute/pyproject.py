"""A ``pyproject.toml`` as read by uv: its extras and groups, and the packages in each.  Pure.

Extras are in ``[project.optional-dependencies]``, groups in ``[dependency-groups]`` (PEP 735).  They are easily
confused: Megatron-LM's own guide installs ``--group dev``, which is an extra there, and uv refuses it.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from runbook_lib.errors import CannotTell, RunbookError

PYPROJECT = "pyproject.toml"


@dataclass(frozen=True)
class PythonProject:
    """The parts of a pyproject.toml that determine what uv installs, with names as in the file.

    ``places`` maps ``extra`` and ``group`` to their names, each with its requirements.
    """

    name: str
    places: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=lambda: {"extra": {}, "group": {}})

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
        places = {}
        for kind, lists in (("extra", _table(project, "optional-dependencies")), ("group", groups)):
            places[kind] = {name: _requirements(entries) for name, entries in lists.items()}
        return cls(str(project.get("name", "")), places)

    def kinds(self, name: str) -> tuple[str, ...]:
        """Return the kinds of a name, ``extra`` and ``group``, comparing names like uv."""
        return tuple(kind for kind in self.places if self._spelling(kind, name))

    def groups_with(self, package: str) -> tuple[str, ...]:
        """Return the groups that list a package."""
        return tuple(name for name, listed in self.places["group"].items() if package in listed)

    def option(self, kind: str, name: str) -> tuple[str, str]:
        """Return for example ``("--extra", "dev")``.

        Raises RunbookError with the actual kind of the name if it is not a ``kind``.
        """
        if spelling := self._spelling(kind, name):
            return f"--{kind}", spelling
        problem = f"{self.name or 'This project'} has no {kind} {name!r}"
        if kinds := self.kinds(name):
            article = "an" if kinds[0] == "extra" else "a"
            raise RunbookError(f"{problem}: here it is {article} {kinds[0]}. Write --{kinds[0]} {name}.")
        similar = get_close_matches(name, [known for listed in self.places.values() for known in listed], 3)
        options = " or ".join(f"--{self.kinds(match)[0]} {match}" for match in similar)
        raise RunbookError(f"{problem}.{f' Did you mean {options}?' if options else ''} {self._names}")

    def options(self, names: str) -> tuple[str, ...]:
        """Return the options of ``uv sync`` for bare names, or for options such as ``--extra dev --group test``.

        A bare name is resolved to an extra or a group.  Raises RunbookError for a name that is neither or both, and for
        an option that does not select packages.
        """
        words, options = iter(names.replace(",", " ").split()), list[str]()
        for word in words:
            kinds = self.kinds(word)
            if word in ("--all-extras", "--all-groups"):
                options.append(word)
            elif word in ("--extra", "--group"):
                options += self.option(word[2:], next(words, ""))
            elif word.startswith("-"):
                raise RunbookError(f"{word} does not select packages. {self._names} Or: --all-extras --all-groups.")
            elif len(kinds) == 2:
                raise RunbookError(
                    f"{word!r} is an extra and a group of {self.name}: write --extra {word} or --group {word}."
                )
            else:
                options += self.option("".join(kinds) or "extra or group", word)
        return tuple(options)

    @property
    def _names(self) -> str:
        extras, groups = (", ".join(names) or "none" for names in self.places.values())
        return f"Its extras are {extras}; its groups are {groups}."

    def _spelling(self, kind: str, name: str) -> str:
        wanted = canonicalize_name(name)
        return next((known for known in self.places.get(kind, ()) if canonicalize_name(known) == wanted), "")


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
    names = []
    for entry in entries if isinstance(entries, list) else ():
        try:
            names.append(canonicalize_name(Requirement(entry).name))
        except (InvalidRequirement, TypeError):
            continue
    return tuple(names)


def _table(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return a nested table, empty if it is missing or not a table."""
    for key in keys:
        data = data.get(key, {})
        if not isinstance(data, dict):
            return {}
    return data
