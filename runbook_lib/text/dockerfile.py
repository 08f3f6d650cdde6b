"""A Dockerfile as Docker's reference defines it: ARGs, stages, and the stages that a build of a target needs.

Source: https://docs.docker.com/reference/dockerfile/.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from runbook_lib.errors import CannotTell
from runbook_lib.text.dockerfile_syntax import HOLDS_HEREDOCS, Instruction, directives, expand, instructions
from runbook_lib.text.suggestions import did_you_mean

_STAGE_NAME = re.compile(r"[a-z][a-z0-9_.-]*")

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,80}/")
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
#: Arguments that every build knows without an ARG.
#: Source: https://docs.docker.com/reference/dockerfile/#predefined-args.
PREDEFINED = frozenset(_PROXIES) | {name.upper() for name in _PROXIES}


@dataclass(frozen=True)
class Arg:
    """An ARG. ``default`` is as written, with quotes and variables unresolved; None if there is none."""

    name: str
    default: str | None
    line: int


@dataclass(frozen=True)
class Stage:
    """A stage, which starts with a FROM.  ``base`` and ``platform`` are as written; ``name`` is lowercase or empty.

    ``uses`` are the stages or images in ``COPY --from`` and mounts; ``secrets`` are the IDs of mounted secrets.
    ``folders`` are those of the context that it copies, as far as they are written as ``name/``.
    """

    index: int
    name: str
    base: str
    line: int
    platform: str = ""
    args: tuple[Arg, ...] = ()
    uses: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name, or its number from 0."""
        return self.name or str(self.index)


@dataclass(frozen=True)
class Dockerfile:
    """A complete file.  ``args`` are those before the first FROM, the only ones that a FROM can use.

    ``path`` is its name in messages; ``heredocs`` is True if it has here-documents, which older builders refuse.
    """

    path: str
    args: tuple[Arg, ...]
    stages: tuple[Stage, ...]
    escape: str = "\\"
    heredocs: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages that have one."""
        return tuple(stage.name for stage in self.stages if stage.name)

    @property
    def arguments(self) -> frozenset[str]:
        """The names of all ARGs, in any stage."""
        args = itertools.chain(self.args, *(stage.args for stage in self.stages))
        return frozenset(arg.name for arg in args)

    def stage(self, target: str = "") -> Stage:
        """Return the stage with this name or number, by default the last one. Raises CannotTell if there is none."""
        if not target:
            return self.stages[-1]
        stage = self._named(target, len(self.stages)) or self._numbered(target, len(self.stages))
        if stage is None:
            known = ", ".join(self.names) or "none with a name"
            hint = did_you_mean(target.lower(), self.names)
            raise CannotTell(f"{self.path} has no stage {target!r}{hint}; it has {known}.")
        return stage

    def values(self, arguments: Mapping[str, str]) -> dict[str, str]:
        """Return the values visible to a FROM: ``arguments``, or the defaults, which may refer to earlier ones."""
        values: dict[str, str] = {}
        for arg in self.args:
            if arg.name in arguments:
                values[arg.name] = arguments[arg.name]
            elif arg.default is not None:
                values[arg.name] = expand(arg.default, values, self.escape)
        return values

    def base(self, stage: Stage, arguments: Mapping[str, str]) -> str:
        """Return the image or earlier stage that a stage starts from.  Raises CannotTell if a variable has no value."""
        base = expand(stage.base, self.values(arguments), self.escape)
        if base:
            return base
        names = re.findall(r"\$\{?(\w+)", stage.base)
        reason = f"{' and '.join(names)} has no default and no value was passed"
        declared = [arg.name for arg in self.args]
        if undeclared := [name for name in names if name not in declared]:
            reason = f"ARG {undeclared[0]} is not declared before the first FROM"
        raise CannotTell(f"{self.path}:{stage.line}: FROM {stage.base} is not an image: {reason}.")

    def needed(self, target: str, arguments: Mapping[str, str]) -> tuple[Stage, ...]:
        """Return the stages that a build of a target runs, in the order of the file."""
        pending = [self.stage(target)]
        needed: dict[int, Stage] = {}
        while pending:
            stage = pending.pop()
            if stage.index in needed:
                continue
            needed[stage.index] = stage
            sources = [self._named(self.base(stage, arguments), stage.index)]
            sources += [self._used(name, stage.index) for name in stage.uses]
            pending += filter(None, sources)
        return tuple(needed[index] for index in sorted(needed))

    def images(self, target: str, arguments: Mapping[str, str]) -> tuple[str, ...]:
        """Return the images that a build of a target starts from or copies from, without ``scratch``."""
        images: dict[str, None] = {}
        for stage in self.needed(target, arguments):
            base = self.base(stage, arguments)
            if self._named(base, stage.index) is None:
                images[base] = None
            for name in stage.uses:
                if self._used(name, stage.index) is None:
                    images[name] = None
        images.pop("scratch", None)
        return tuple(images)

    def _named(self, name: str, before: int) -> Stage | None:
        """Return the last stage with this name and a number lower than ``before``."""
        named = (stage for stage in reversed(self.stages[:before]) if stage.name and stage.name == name.lower())
        return next(named, None)

    def _numbered(self, number: str, before: int) -> Stage | None:
        # Python refuses to convert thousands of digits.
        if number.isdecimal() and len(number) <= 9 and int(number) < before:
            return self.stages[int(number)]
        return None

    def _used(self, name: str, before: int) -> Stage | None:
        return self._numbered(name, before) or self._named(name, before)


def parse(text: str, path: str = "Dockerfile") -> Dockerfile:
    """Parse a Dockerfile. Raises CannotTell, with file and line, for syntax that Docker would refuse."""
    args: list[Arg] = []
    stages: list[Stage] = []
    heredocs = False
    for instruction in instructions(text):
        line = instruction.line(text)
        location = f"{path}:{line}"
        if instruction.unended:
            raise CannotTell(f"{location}: the here-document {instruction.unended} has no end.")
        heredocs |= bool(instruction.heredocs)
        if instruction.keyword == "FROM":
            stages.append(_stage(instruction, len(stages), line, location))
        elif instruction.keyword == "ARG":
            if not instruction.words:
                raise CannotTell(f"{location}: ARG names no argument.")
            declared = tuple(_arg(word, line) for word in instruction.words)
            if stages:
                stages[-1] = replace(stages[-1], args=stages[-1].args + declared)
            else:
                args += declared
        elif not stages:
            raise CannotTell(f"{location}: {instruction.keyword} is before the first FROM; only ARG may be there.")
        elif instruction.keyword in HOLDS_HEREDOCS:
            stages[-1] = _with_sources(stages[-1], instruction)
    if not stages:
        raise CannotTell(f"{path} has no FROM, so it builds nothing.")
    return Dockerfile(path, tuple(args), tuple(stages), directives(text).get("escape", "\\"), heredocs)


def arguments(text: str) -> frozenset[str]:
    """Return the build arguments declared in any stage of a Dockerfile, and the predefined ones.

    The file may be one that Docker would refuse.
    """
    names = set(PREDEFINED)
    for instruction in instructions(text):
        if instruction.keyword == "ARG":
            names |= {word.partition("=")[0] for word in instruction.words}
    return frozenset(names)


def _arg(word: str, line: int) -> Arg:
    name, equals, default = word.partition("=")
    return Arg(name, default if equals else None, line)


def _stage(instruction: Instruction, index: int, line: int, location: str) -> Stage:
    words = list(instruction.words)
    platform = name = ""
    while words and words[0].startswith("--platform="):
        platform = words.pop(0).partition("=")[2]
    if len(words) == 3 and words[1].upper() == "AS":
        name = words.pop().lower()
        words.pop()
        if not _STAGE_NAME.fullmatch(name):
            expected = "expected a letter, then letters, digits, _, . or -"
            raise CannotTell(f"{location}: {name!r} is not a stage name: {expected}")
    if len(words) != 1 or words[0].startswith("--"):
        expected = "expected FROM [--platform=…] IMAGE [AS NAME]"
        raise CannotTell(f"{location}: {expected}, found FROM {instruction.rest[:80]}.")
    return Stage(index, name, words[0], line, platform)


def _with_sources(stage: Stage, instruction: Instruction) -> Stage:
    """Return the stage with the stages or images, and the secrets, in the flags of COPY, ADD or RUN."""
    uses, secrets = dict.fromkeys(stage.uses), dict.fromkeys(stage.secrets)
    for word in instruction.words:
        flag, _, value = word.partition("=")
        if not flag.startswith("--"):
            break
        if flag == "--from":
            uses[value] = None
        elif flag == "--mount":
            options = dict(part.partition("=")[::2] for part in value.split(","))
            if options.get("from"):
                uses[options["from"]] = None
            if options.get("type") == "secret":
                secrets[options.get("id") or options.get("target", "").rpartition("/")[2]] = None
    folders = list(stage.folders)
    if instruction.keyword == "COPY" and not any(word.startswith("--from") for word in instruction.words):
        folders += [word for word in instruction.words[:-1] if _FOLDER.fullmatch(word)]
    return replace(stage, uses=tuple(uses), secrets=tuple(secrets), folders=tuple(folders))
