"""What a ``pyproject.toml`` lets uv install: its extras and its groups, and which of the two a name is.  Pure.

Extras stand in ``[project.optional-dependencies]``, groups in ``[dependency-groups]`` (PEP 735).  They are easily taken
for one another: Megatron-LM's own guide installs ``--group dev``, which is an extra there, and uv refuses it.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from runbook_lib.errors import CannotTell, RunbookError

PATH = "pyproject.toml"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
#: ``name[extras] specifier``, as PEP 508 has it; what stands after a semicolon is a marker.
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)(?P<extras>\[[\w., -]{0,200}\])?"
    r"\s{0,9}(?:[<>=!~][\w.*+!<>=~, ]{1,200}|@\s*[^\s;'\"\\]{1,500})?(?:\s{0,9};\s{0,9}\S.{0,300})?"
)


@dataclass(frozen=True)
class Project:
    """Names are as the file spells them.  ``paths`` are the packages that come from folders: name → folder.

    ``listed`` says by a package's normalized name what lists it: ``extra dev``, ``the project's dependencies``, each
    with the requirement there.  ``text`` is the file's.
    """

    name: str
    extras: tuple[str, ...]
    groups: tuple[str, ...]
    paths: Mapping[str, str] = field(default_factory=dict)
    listed: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    text: str = field(default="", repr=False)

    @classmethod
    def read(cls, text: str, path: str = PATH) -> "Project":
        """Read the file's text.  Raises CannotTell where it is no project of uv's."""
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            marks = " It holds the marks of a merge conflict: join the file by hand." if "<<<<<<< " in text else ""
            raise CannotTell(f"{path} cannot be read as TOML: {error}.{marks}") from error
        project, uv = _table(data, "project"), _table(data, "tool", "uv")
        if not project:
            raise CannotTell(f"{path} has no table [project], so uv manages no project here.")
        extras, groups = _table(project, "optional-dependencies"), dict(_table(data, "dependency-groups"))
        if (older := uv.get("dev-dependencies")) is not None:  # uv's own form of before PEP 735
            groups.setdefault("dev", older)
        sources = {name: it for name, it in _table(uv, "sources").items() if isinstance(it, dict)}
        return cls(
            str(project.get("name", "")), tuple(extras), tuple(groups),
            {name: str(it["path"]) for name, it in sources.items() if "path" in it},
            _listed(project.get("dependencies"), extras, groups), text,
        )  # fmt: skip

    def kinds(self, name: str) -> tuple[str, ...]:
        """What a name is here: of ``extra`` and ``group``, as uv compares names."""
        named = (("extra", self.extras), ("group", self.groups))
        return tuple(kind for kind, names in named if _spelled(name, names))

    def where(self, package: str) -> tuple[str, ...]:
        """What lists a package already, such as ``extra dev``; ``the project's dependencies`` for the required ones."""
        return tuple(where for where, _ in self.listed.get(normalized(package), ()))

    def has(self, asked: str, place: str) -> bool:
        """Whether a requirement stands in a place: the package, with the version and the extras that are asked for."""
        there = [it for where, it in self.listed.get(normalized(package_name(asked)), ()) if where == place]
        return any(_meets(it, asked) for it in there)

    def same_but_for(self, package: str, other: str) -> bool:
        """Whether another text of the file says the same, except of this package."""
        try:
            texts = [_without(package, tomllib.loads(it)) for it in (self.text, other)]
        except (tomllib.TOMLDecodeError, RecursionError):
            return False
        return bool(texts[0] == texts[1])

    def option(self, kind: str, name: str) -> tuple[str, str]:
        """``--extra dev``, the name as the file spells it.

        Raises RunbookError that says what the name is, where it is not a ``kind``.
        """
        names = {"extra": self.extras, "group": self.groups}[kind]
        if spelled := _spelled(name, names):
            return f"--{kind}", spelled
        raise RunbookError(self._no_such(kind, name))

    def _no_such(self, kind: str, name: str) -> str:
        told = f"{self.name or 'This project'} has no {kind} {name!r}"
        if others := self.kinds(name):
            return (
                f"{told}: here it is an {others[0]}".replace("an group", "a group") + f". Write --{others[0]} {name}."
            )
        near = get_close_matches(name, [*self.extras, *self.groups], 3)
        meant = [f"--{self.kinds(it)[0]} {it}" for it in near]
        advice = f" Did you mean {' or '.join(meant)}?" if meant else ""
        return f"{told}.{advice} Its extras are {_list(self.extras)}; its groups are {_list(self.groups)}."


def options(project: Project, wanted: str) -> tuple[str, ...]:
    """The options of ``uv sync`` for what a person names, in that order: bare names, or ``--extra dev --group test``.

    A bare name becomes the extra or the group that it is.  Raises RunbookError for a name that is neither, or both, or
    the other, and for an option that does not choose what is installed.
    """
    try:
        words = shlex.split(wanted.replace(",", " "))
    except ValueError as error:
        raise RunbookError(f"What to install is {wanted!r}, where a quotation mark is not closed.") from error
    made: list[str] = []
    rest = iter(words)
    for word in rest:
        head, equals, value = word.partition("=")
        if head in ("--all-extras", "--all-groups", "--no-default-groups") and not equals:
            made.append(head)
        elif match := re.fullmatch(r"--(no-|only-)?(extra|group)", head):
            name = value if equals else next(rest, "")
            if not name:
                raise RunbookError(f"{head} is followed by no name. Name an extra or a group of {PATH}.")
            if match[1] == "only-" and match[2] == "extra":
                raise RunbookError("uv has no option --only-extra; --only-group is for groups alone.")
            option, spelled = project.option(match[2], name)
            made += [option.replace("--", f"--{match[1] or ''}"), spelled]
        elif word.startswith("-"):
            raise RunbookError(
                f"{word} does not choose what is installed. Name extras and groups: "
                f"{_list((*project.extras, *project.groups))}; or --all-extras --all-groups."
            )
        else:
            made += _bare(project, word)
    if any(it == "--only-group" for it in made) and any(it in ("--extra", "--all-extras", "--group") for it in made):
        raise RunbookError("--only-group installs nothing else, so uv refuses other extras and groups beside it.")
    return tuple(made)


def _bare(project: Project, name: str) -> tuple[str, str]:
    kinds = project.kinds(name)
    if len(kinds) == 1:
        return project.option(kinds[0], name)
    if kinds:
        raise RunbookError(
            f"{name!r} is an extra and a group of {project.name}: write --extra {name} or --group {name}."
        )
    raise RunbookError(project._no_such("extra or group", name))


def normalized(name: str) -> str:
    """A name as packages, extras and groups are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(text: str) -> str:
    """A package as ``uv add`` takes it, checked: ``einops``, ``einops~=0.8``, ``name[extra] @ https://…``.

    Raises RunbookError for anything else, such as an option or a path.
    """
    match = _REQUIREMENT.fullmatch(text.strip())
    if match is None or not text.isprintable():
        raise RunbookError(
            f"{text[:80]!r} is not the name of a package with its version: expected one such as einops or einops~=0.8."
        )
    return text.strip()


def package_name(text: str) -> str:
    """The name alone of a requirement that was checked."""
    match = _REQUIREMENT.fullmatch(text.strip())
    assert match is not None
    return match["name"]


def _meets(listed: str, asked: str) -> bool:
    try:
        there, wanted = Requirement(listed), Requirement(asked)
    except InvalidRequirement:
        return False
    if wanted.url:  # uv moves the address to its own table of sources
        return True
    same = not wanted.specifier or there.specifier == wanted.specifier
    return same and wanted.extras <= there.extras and (wanted.marker is None or there.marker == wanted.marker)


def _without(package: str, data: Any, table: str = "") -> Any:
    """The data without what is required of a package, and without its source."""
    if isinstance(data, dict):
        kept = {key: it for key, it in data.items() if table != "sources" or normalized(key) != normalized(package)}
        return {key: _without(package, it, key) for key, it in kept.items()}
    if isinstance(data, list):
        return [_without(package, it) for it in data if not _is_of(package, it)]
    return data


def _is_of(package: str, entry: object) -> bool:
    match = _NAME_FIRST.match(entry.strip()) if isinstance(entry, str) else None
    return match is not None and normalized(match[0]) == normalized(package)


def _spelled(name: str, names: Sequence[str]) -> str:
    return next((it for it in names if normalized(it) == normalized(name)), "") if _NAME.fullmatch(name) else ""


def _table(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    found: object = data
    for key in keys:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _listed(
    required: object, extras: Mapping[str, Any], groups: Mapping[str, Any]
) -> Mapping[str, tuple[tuple[str, str], ...]]:
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    lists: Iterator[tuple[str, object]] = iter([
        ("the project's dependencies", required),
        *((f"extra {name}", it) for name, it in extras.items()),
        *((f"group {name}", it) for name, it in groups.items()),
    ])  # fmt: skip
    for where, entries in lists:
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, str) and (match := _NAME_FIRST.match(entry.strip())):
                name = normalized(match[0])
                found[name] = (*found.get(name, ()), (where, entry))
    return found


_NAME_FIRST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
