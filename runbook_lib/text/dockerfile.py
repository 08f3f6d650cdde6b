"""A Dockerfile as Docker's reference defines it: ARGs, stages, and what a build of a stage needs.  Pure.

Source: https://docs.docker.com/reference/dockerfile/.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from runbook_lib.errors import CannotTell
from runbook_lib.text.dockerfile_syntax import HOLDS_HEREDOCS, Instruction, directives, expand, instructions

_STAGE_NAME = re.compile(r"[a-z][a-z0-9_.-]*")

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
#: Arguments that every build knows without an ARG.
#: Source: https://docs.docker.com/reference/dockerfile/#predefined-args.
PREDEFINED = frozenset(_PROXIES) | {name.upper() for name in _PROXIES}


@dataclass(frozen=True)
class Arg:
    """An ARG.  ``default`` is as written, quotes and variables unresolved; None where there is none."""

    name: str
    default: str | None
    line: int


@dataclass(frozen=True)
class Stage:
    """The stage that one FROM begins.  ``base`` and ``platform`` are as written; ``name`` is lowercase or empty.

    ``uses`` are the stages or images that ``COPY --from`` and mounts name; ``secrets`` the ids of mounted secrets.
    """

    index: int
    name: str
    base: str
    line: int
    platform: str = ""
    args: tuple[Arg, ...] = ()
    uses: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name, or its number from 0."""
        return self.name or str(self.index)


@dataclass(frozen=True)
class Dockerfile:
    """A whole file.  ``args`` are those before the first FROM, the only ones that a FROM can use.

    ``path`` is how messages name it; ``heredocs`` says whether it has here-documents, which older builders refuse.
    """

    path: str
    args: tuple[Arg, ...]
    stages: tuple[Stage, ...]
    escape: str = "\\"
    syntax: str = ""
    heredocs: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages that have one."""
        return tuple(stage.name for stage in self.stages if stage.name)

    @property
    def arguments(self) -> frozenset[str]:
        """The names of all ARGs, in any stage."""
        return frozenset(arg.name for arg in (*self.args, *(arg for stage in self.stages for arg in stage.args)))

    def stage(self, target: str = "") -> Stage:
        """The stage of that name or number; the last one where none is asked for.  Raises CannotTell."""
        if not target:
            return self.stages[-1]
        found = self._named(target, len(self.stages))
        if found is None and _is_number(target) and int(target) < len(self.stages):
            return self.stages[int(target)]
        if found is None:
            known = f"it has {', '.join(self.names)}" if self.names else "none of its stages has a name"
            raise CannotTell(f"{self.path} has no stage {target!r}{meant(target.lower(), self.names)}; {known}.")
        return found

    def values(self, given: Mapping[str, str]) -> dict[str, str]:
        """The values that a FROM sees: given, or the default, which may name those before it."""
        values: dict[str, str] = {}
        for arg in self.args:
            if arg.name in given:
                values[arg.name] = given[arg.name]
            elif arg.default is not None:
                values[arg.name] = expand(arg.default, values, self.escape)
        return values

    def base(self, stage: Stage, given: Mapping[str, str]) -> str:
        """The image, or earlier stage, that a stage begins with.  Raises CannotTell where a variable has no value."""
        base = expand(stage.base, self.values(given), self.escape)
        if not base:
            names = re.findall(r"\$\{?(\w+)", stage.base)
            outside = [name for name in names if name not in {arg.name for arg in self.args}]
            why = (
                f"ARG {outside[0]} is not declared before the first FROM"
                if outside
                else f"{' and '.join(names)} has no default and was not given"
            )
            raise CannotTell(f"{self.path}:{stage.line}: FROM {stage.base} names nothing, as {why}.")
        return base

    def needed(self, target: str, given: Mapping[str, str]) -> tuple[Stage, ...]:
        """The stages that a build of a target runs, in the order of the file."""
        todo, found = [self.stage(target)], dict[int, Stage]()
        while todo:
            stage = todo.pop()
            if stage.index not in found:
                found[stage.index] = stage
                begun = self._named(self.base(stage, given), stage.index)
                used = (self._used(name, stage.index) for name in stage.uses)
                todo += [it for it in (begun, *used) if it]
        return tuple(found[index] for index in sorted(found))

    def images(self, target: str, given: Mapping[str, str]) -> tuple[str, ...]:
        """The images that a build of a target begins with or copies from; ``scratch`` is none."""
        found: list[str] = []
        for stage in self.needed(target, given):
            base = self.base(stage, given)
            found += [base] if self._named(base, stage.index) is None else []
            found += [name for name in stage.uses if self._used(name, stage.index) is None]
        return tuple(dict.fromkeys(name for name in found if name != "scratch"))

    def _named(self, name: str, before: int) -> Stage | None:
        """The last of the stages before a number that has this name."""
        return next((it for it in reversed(self.stages[:before]) if it.name and it.name == name.lower()), None)

    def _used(self, name: str, before: int) -> Stage | None:
        if _is_number(name) and int(name) < before:
            return self.stages[int(name)]
        return self._named(name, before)


def meant(text: str, known: Sequence[str]) -> str:
    """`` (did you mean …?)``, or nothing where no known name is near."""
    near = get_close_matches(text, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def parse(text: str, path: str = "Dockerfile") -> Dockerfile:
    """Read a Dockerfile.  Raises CannotTell, with file and line, for what Docker would not take."""
    given = directives(text)
    reader = _Reader(text, path)
    for instruction in instructions(text):
        reader.take(instruction)
    if not reader.stages:
        raise CannotTell(f"{path} has no FROM, so it builds nothing.")
    return Dockerfile(
        path,
        tuple(reader.args),
        tuple(reader.stages),
        given.get("escape", "\\"),
        given.get("syntax", ""),
        reader.heredocs,
    )


def arguments(text: str) -> frozenset[str]:
    """The build arguments that a Dockerfile declares in any of its stages, and those that every build knows.

    Also of a file that Docker would not take.
    """
    return PREDEFINED | {
        word.partition("=")[0] for it in instructions(text) if it.keyword == "ARG" for word in it.words
    }


@dataclass
class _Reader:
    """The state of a file that is being read."""

    text: str
    path: str
    args: list[Arg] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    heredocs: bool = False

    def take(self, instruction: Instruction) -> None:
        line = instruction.line(self.text)
        where = f"{self.path}:{line}"
        if instruction.unended:
            raise CannotTell(f"{where}: the here-document {instruction.unended} has no end.")
        self.heredocs |= bool(instruction.heredocs)
        if instruction.keyword == "FROM":
            self.stages.append(self._stage(instruction, line, where))
        elif instruction.keyword == "ARG":
            made = [Arg(*_name_and_default(word), line) for word in instruction.words]
            if not made:
                raise CannotTell(f"{where}: ARG names no argument.")
            self._add(args=tuple(made))
        elif not self.stages:
            raise CannotTell(f"{where}: {instruction.keyword} stands before the first FROM; only ARG may.")
        else:
            self._add(*_uses(instruction))

    def _stage(self, instruction: Instruction, line: int, where: str) -> Stage:
        words = list(instruction.words)
        flags = [words.pop(0) for word in instruction.words if word.startswith("--") and word in words[:1]]
        unknown = [flag for flag in flags if not flag.startswith("--platform=")]
        if unknown or len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
            raise CannotTell(
                f"{where}: expected FROM [--platform=…] IMAGE [AS NAME], found FROM {instruction.rest[:80]}."
            )
        name = words[2].lower() if len(words) == 3 else ""
        if name and not _STAGE_NAME.fullmatch(name):
            raise CannotTell(f"{where}: {words[2]!r} cannot name a stage: a letter, then letters, digits, _, . and -.")
        platform = flags[-1].partition("=")[2] if flags else ""
        return Stage(len(self.stages), name, words[0], line, platform)

    def _add(self, uses: tuple[str, ...] = (), secrets: tuple[str, ...] = (), args: tuple[Arg, ...] = ()) -> None:
        if not self.stages:
            self.args += args
            return
        it = self.stages[-1]
        self.stages[-1] = Stage(
            it.index, it.name, it.base, it.line, it.platform,
            it.args + args,
            tuple(dict.fromkeys(it.uses + uses)),
            tuple(dict.fromkeys(it.secrets + secrets)),
        )  # fmt: skip


def _name_and_default(word: str) -> tuple[str, str | None]:
    name, given, default = word.partition("=")
    return name, default if given else None


def _uses(instruction: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The stages or images, and the secrets, that the flags of COPY, ADD or RUN name.  ONBUILD's come later."""
    uses, secrets = list[str](), list[str]()
    for word in instruction.words if instruction.keyword in HOLDS_HEREDOCS else ():
        flag, _, value = word.partition("=")
        if not flag.startswith("--"):
            break
        if flag == "--from":
            uses.append(value)
        elif flag == "--mount":
            keys = dict(part.partition("=")[::2] for part in value.split(","))
            if keys.get("from"):
                uses.append(keys["from"])
            if keys.get("type") == "secret":
                secrets.append(keys.get("id") or keys.get("target", "").rpartition("/")[2])
    return tuple(uses), tuple(secrets)


def _is_number(text: str) -> bool:
    """Return True if the text can be the number of a stage; Python refuses thousands of digits."""
    return text.isdecimal() and len(text) <= 9
