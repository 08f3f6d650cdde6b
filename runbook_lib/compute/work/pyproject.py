"""A ``pyproject.toml`` as read by uv: its extras and groups, and the packages in each.  Pure.

Extras are in ``[project.optional-dependencies]``, groups in ``[dependency-groups]`` (PEP 735).  They are easily
confused: Megatron-LM's own guide installs ``--group dev``, which is an extra there, and uv refuses it.
"""

import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from runbook_lib.errors import CannotTell, RunbookError

PYPROJECT = "pyproject.toml"
#: The place of packages that are neither in an extra nor in a group.
REQUIRED = "the project's dependencies"


@dataclass(frozen=True)
class PythonProject:
    """The parts of a pyproject.toml that determine what uv installs; names are spelled as in the file.

    ``places`` maps ``extra dev``, ``group test``
    and ``the project's dependencies`` to the requirements listed there.
    """

    name: str
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    places: Mapping[str, tuple[Requirement, ...]] = field(default_factory=dict)

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
        extras, groups = _table(project, "optional-dependencies"), dict(_table(data, "dependency-groups"))
        if "dev-dependencies" in uv:  # uv's own format, from before PEP 735
            groups.setdefault("dev", uv["dev-dependencies"])
        lists = {REQUIRED: project.get("dependencies")}
        lists |= {f"extra {name}": entries for name, entries in extras.items()}
        lists |= {f"group {name}": entries for name, entries in groups.items()}
        places = {place: _requirements(entries) for place, entries in lists.items()}
        title = project.get("name")
        return cls(title if isinstance(title, str) else "", tuple(extras), tuple(groups), places)

    def kinds(self, name: str) -> tuple[str, ...]:
        """Return the kinds of a name, ``extra`` and ``group``, comparing names like uv."""
        return tuple(kind for kind in ("extra", "group") if self._spelling(kind, name))

    def where(self, package: str) -> tuple[str, ...]:
        """Return the places that list a package, such as ``extra dev``."""
        places = []
        for place, requirements in self.places.items():
            if any(_same_name(requirement.name, package) for requirement in requirements):
                places.append(place)
        return tuple(places)

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
        similar = get_close_matches(name, [*self.extras, *self.groups], 3)
        options = [f"--{self.kinds(match)[0]} {match}" for match in similar]
        advice = f" Did you mean {' or '.join(options)}?" if options else ""
        names = f"Its extras are {_join(self.extras)}; its groups are {_join(self.groups)}."
        raise RunbookError(f"{problem}.{advice} {names}")

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
                raise RunbookError(
                    f"{word} does not select packages. Name extras and groups: "
                    f"{_join((*self.extras, *self.groups))}; or --all-extras --all-groups."
                )
            elif len(kinds) == 2:
                raise RunbookError(
                    f"{word!r} is an extra and a group of {self.name}: write --extra {word} or --group {word}."
                )
            else:
                options += self.option("".join(kinds) or "extra or group", word)
        return tuple(options)

    def _spelling(self, kind: str, name: str) -> str:
        names = {"extra": self.extras, "group": self.groups}.get(kind, ())
        return next((spelling for spelling in names if _same_name(spelling, name)), "")


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


def _same_name(first: str, second: str) -> bool:
    return canonicalize_name(first) == canonicalize_name(second)


def _requirements(entries: object) -> tuple[Requirement, ...]:
    """Return the requirements of a list; entries such as ``{include-group = "test"}`` are skipped."""
    requirements = []
    for entry in entries if isinstance(entries, list) else ():
        with suppress(InvalidRequirement, TypeError):
            requirements.append(Requirement(entry))
    return tuple(requirements)


def _table(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return a nested table, empty if it is missing or not a table."""
    for key in keys:
        data = data.get(key, {})
        if not isinstance(data, dict):
            return {}
    return data


def _join(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
