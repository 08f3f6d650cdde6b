"""The kind of an image reference, classified by its file's name and the lines around it."""

import re
import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from runbook_lib.pins.discover.comments import is_comment
from runbook_lib.pins.discover.references import Reference
from runbook_lib.pins.discover.tools import is_foreign, tool_of
from runbook_lib.pins.discover.yaml_path import YamlPath, YamlPaths
from runbook_lib.text.dockerfile_syntax import instructions
from runbook_lib.text.lists import shorten

Kind: TypeAlias = Literal[
    "whole-file", "dockerfile-arg", "dockerfile-from", "build-arg", "container-image", "matrix-row", "ci-variable",
    "workflow-input", "configuration", "script", "code", "documentation", "record", "test", "comment", "foreign",
]  # fmt: skip
FileType: TypeAlias = Literal["dockerfile", "document", "yaml", "data", "script", "code"]
Ci: TypeAlias = Literal["github", "gitlab", "other", ""]

_DOCKERFILE = re.compile(r"(?:.*[._-])?(?:docker|container)file(?:\..*|[-_ ][^.]*)?", re.IGNORECASE | re.DOTALL)
_DATA = tomllib.loads((files("runbook_lib.pins.discover") / "kinds.toml").read_text("utf-8"))
_WORDS = {name: frozenset(words) for name, words in _DATA["words"].items()}
_FOR_PEOPLE = _WORDS["for_people"] | _WORDS["tests"]
_TEST_NAME = re.compile(r"test_.*|.*_tests?\.\w+|.*\.(?:test|spec)\.\w+|conftest\.py", re.IGNORECASE)
_OLD_RELEASE = re.compile(r"(?:^|/)(?:v|release-)?[0-9]+\.[0-9]+(?:\.[0-9x]+)*/")
_DATED = re.compile(
    r"\s{0,40}(?:[-*+]|#{1,6})?\s{0,9}\W{0,3}(?:[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}|[0-9]{1,2}/[0-9]{1,2}/[0-9]{4})"
)
_WAS = re.compile(r"\b(?:was|were)\s+(?:measured|obtained|benchmarked|collected|recorded|verified)\b", re.IGNORECASE)
_NEAR = 1000  # characters of a line, before a reference and after, that are considered
_BUILD_ARG = re.compile(r"--build-arg[ =]+[\"']?(?P<name>[A-Za-z_]\w*)=[\"']?$")
_ASSIGNED = re.compile(r"(?<![\w-])(?P<name>[A-Za-z_]\w*)=[\"']?(?:\$\{\{[^}\n]{0,200})?[\"']?$")
_ARGUMENT = re.compile(r"(?<!\S)(?P<name>[A-Za-z_]\w*)=\S*$")
_NAME_BEFORE = re.compile(r"(?<![\w./#+-])[\w./#+-]*+:$")  # the name of the image whose tag alone is the reference
_FILE = re.compile(r"[\w./-]+")
_LTS = re.compile(r"(?<![A-Za-z])lts(?![A-Za-z])", re.IGNORECASE)
_MAX_KEYS = 200  # characters of a path of keys in a sentence
_FALLBACK = re.compile(r"\binputs\.[\w-]+[ ]*\|\|[ ]*[\"']$")


@dataclass(frozen=True)
class Nature:
    """The kind of a reference, and ``why`` in a few words.

    ``ci`` or ``tool``, such as Helm: the owner of the file; ``for_people``: only people read or run the file.
    ``name``: the argument that receives the image, and ``dockerfile``: the file that the argument is passed to, if
    that is known.  ``yaml``: the position of the reference in a YAML file.
    """

    kind: Kind
    why: str
    ci: Ci = ""
    for_people: bool = False
    name: str = ""
    yaml: YamlPath | None = None
    dockerfile: str = ""
    tool: str = ""


@dataclass(frozen=True)
class SourceFile:
    """A file with its text, which is parsed once for all references in it."""

    path: str
    text: str

    @cached_property
    def lines(self) -> Sequence[str]:
        """Lines as git splits them, at line feeds."""
        return self.text.split("\n")

    @cached_property
    def ci(self) -> Ci:
        """The CI that the file configures; empty if none."""
        *folders, name = self.path.split("/")
        first = folders[0] if folders else name
        if first == ".github" or name in ("action.yml", "action.yaml"):
            return "github"
        if first == ".gitlab" or first.startswith(".gitlab-ci") or name.endswith((".gitlab-ci.yml", ".gitlab-ci.yaml")):
            return "gitlab"
        is_other = first in _WORDS["ci"] or first.startswith("azure-pipelines")
        return "other" if is_other or re.match(r"Jenkinsfile|.*\.jenkinsfile$", name) else ""

    @cached_property
    def tool(self) -> str:
        """The tool that pulls or builds the images in the file; empty if none is known."""
        return "" if self.type == "dockerfile" else tool_of(self.path, self.text)

    @cached_property
    def type(self) -> FileType:
        """The language of the file, from its name or else its first line."""
        name = PurePosixPath(self.path).name.lower()
        suffix = PurePosixPath(name).suffix
        if suffix in _DATA["types"]["document"] or name.startswith(("readme", "changelog", "license")):
            return "document"
        if _DOCKERFILE.fullmatch(name):
            return "dockerfile"
        for type_name in ("yaml", "data", "script"):
            if suffix in _DATA["types"][type_name] or name in _DATA["names"].get(type_name, ()):
                return type_name
        is_shell = re.match(r"#![^\n]{0,100}\b(?:ba|z|da|k)?sh\b", self.text)
        return "script" if is_shell else "code"

    @cached_property
    def for_people(self) -> bool:
        """True if the file is in a folder that only people read or run."""
        return not _FOR_PEOPLE.isdisjoint(self.path.lower().split("/")[:-1])

    def nature(self, reference: Reference) -> Nature:
        """Return the kind of a reference in this file, and the reason."""
        if is_foreign(self.path):
            return Nature("foreign", "in a copy of another project")
        return replace(self._own_nature(reference), tool=self.tool)

    def _own_nature(self, reference: Reference) -> Nature:
        column = reference.column
        before = self.text[reference.start - min(column, _NEAR) : reference.start]
        if reference.form == "{tag}" and before.endswith(":"):
            before = _NAME_BEFORE.sub("", before)
        if self._stripped == (reference.start, reference.end):
            return self._nature("whole-file", "the file holds it and nothing else")
        if self.type == "document":
            return self._document(before + self.lines[reference.line - 1][column : column + _NEAR])
        # In a Dockerfile only the first sign of a line begins a comment.
        if is_comment(self.path, before, only_at_start=self.type == "dockerfile"):
            return self._nature("comment", "it stands in a comment")
        if self.type == "dockerfile":
            return self._dockerfile(reference.start, before)
        if build_arg := _BUILD_ARG.search(before):
            return self._nature("build-arg", f"--build-arg {build_arg['name']}", build_arg["name"])
        if self.type == "yaml":
            return self._yaml(reference.start, before)
        return self._other_file(reference.start)

    def _nature(self, kind: Kind, why: str, name: str = "") -> Nature:
        return Nature(kind, why, self.ci, self.for_people, name)

    @cached_property
    def _stripped(self) -> tuple[int, int]:
        """The span of the text without white space around it."""
        return len(self.text) - len(self.text.lstrip()), len(self.text.rstrip())

    def _document(self, line: str) -> Nature:
        if reason := self._past_reason():
            return Nature("record", reason, for_people=True)
        if _DATED.match(line) or _WAS.search(line):
            return Nature("record", "its line is about the past", for_people=True)
        return Nature("documentation", "in a document", for_people=True)

    def _past_reason(self) -> str:
        """Return the reason why the file is a record of the past; empty if it is not."""
        path = self.path.lower()
        words = _WORDS["past"].intersection(re.split(r"[/._-]", path))
        if self.type == "document":
            words |= _WORDS["past_names"].intersection(re.split(r"[._-]", path.rpartition("/")[2]))
        if words:
            return f"the file is about the past ({', '.join(sorted(words))})"
        if self.for_people and (release := _OLD_RELEASE.search(self.path)):
            return f"of the release {release[0].strip('/')}"
        return ""

    def _dockerfile(self, start: int, before: str) -> Nature:
        index = bisect_right(self._instructions, start, key=lambda instruction: instruction[0]) - 1
        if index < 0:
            return self._nature("code", "the Dockerfile names it")
        begin, keyword = self._instructions[index]
        if keyword == "ARG" and (name := _ARGUMENT.search(before)):
            late = ""
            if self._first_from < begin:
                late = ", which no FROM can use: a FROM stands before it"
            return self._nature("dockerfile-arg", f"default of ARG {name['name']}{late}", name["name"])
        if keyword in ("FROM", "ENV") or _is_source(before):
            return self._nature("dockerfile-from", f"{keyword} names it")
        return self._nature("code", f"{keyword} names it")

    @cached_property
    def _instructions(self) -> Sequence[tuple[int, str]]:
        """The offset of each instruction of a Dockerfile, and its keyword."""
        return [(instruction.at(0), instruction.keyword) for instruction in instructions(self.text)]

    @cached_property
    def _first_from(self) -> int:
        return next((offset for offset, keyword in self._instructions if keyword == "FROM"), len(self.text))

    def _yaml(self, start: int, before: str) -> Nature:
        position = self._paths.at(start)
        assigned = _ASSIGNED.search(before)
        name = assigned["name"] if assigned else ""
        dockerfile = ""
        if "build-args" in position.keys[-1:]:
            dockerfile = self._paths.sibling(position, ("file", "dockerfile"))
        if not _FILE.fullmatch(dockerfile):
            dockerfile = ""
        path = shorten(".".join(position.keys), _MAX_KEYS)
        kind: Kind = "workflow-input"
        why = f"default of an input, at {path}"
        if not _FALLBACK.search(before):
            kind, why = self._yaml_kind(position, path, name)
            if kind != "build-arg":
                name = ""
        return Nature(kind, why, self.ci, self.for_people, name, position, dockerfile.removeprefix("./"))

    def _yaml_kind(self, position: YamlPath, path: str, name: str) -> tuple[Kind, str]:
        keys = position.keys
        last = keys[-1] if keys else ""
        if last == "build-args" or (name and len(keys) > 1 and keys[-2] in ("build-args", "args")):
            return "build-arg", f"build-arg {name}".rstrip()
        if position.block and self.ci:
            return "script", f"script at {path}"
        if self.ci and not self.for_people:
            return _ci_kind(keys, path)
        if reason := self._past_reason():
            return "record", reason
        if self._is_test():
            return "test", "a test's data"
        if last in ("image", "container"):
            return "container-image", f"image of a container, at {path}"
        return "configuration", f"a value, at {path}"

    def _other_file(self, start: int) -> Nature:
        if self.type == "script":
            return self._nature("script", "a script names it")
        if self.type == "data" and (reason := self._past_reason()):
            return Nature("record", reason)
        if self._is_test():
            return Nature("test", "a test's code or data")
        if self.type == "data":
            return self._data(start)
        return self._nature("code", "a constant or a default in code")

    def _data(self, start: int) -> Nature:
        nature = self._nature("configuration", "a value in a file of settings")
        if not self.path.lower().endswith(".json"):
            return nature
        return replace(nature, yaml=self._paths.at(start))  # JSON is YAML too

    def names_lts(self, start: int, *, beside: bool) -> bool:
        """Return True if the path, or with ``beside`` the line of a reference or of its siblings, names LTS."""
        if _LTS.search(self.path) or not beside:
            return bool(_LTS.search(self.path))
        first, end = self._paths.at(start).siblings
        first = self.text.rfind("\n", 0, min(first or start, start)) + 1
        end = max(end, self.text.find("\n", max(end, start)))
        index = bisect_left(self._lts, first)
        return index < len(self._lts) and self._lts[index] < end

    @cached_property
    def _paths(self) -> YamlPaths:
        return YamlPaths(self.text)

    @cached_property
    def _lts(self) -> Sequence[int]:
        return [match.start() for match in _LTS.finditer(self.text)]

    def _is_test(self) -> bool:
        *folders, name = self.path.split("/")
        return not _WORDS["tests"].isdisjoint(map(str.lower, folders)) or bool(_TEST_NAME.fullmatch(name))


def _is_source(before: str) -> bool:
    """Return True if an option of COPY or RUN before an image makes it the source of files."""
    word = re.split(r"\s", before)[-1]
    return word == "--from=" or (word.startswith("--mount=") and word.endswith((",from=", "=from=")))


def _ci_kind(keys: Sequence[str], path: str) -> tuple[Kind, str]:
    """Return the kind of a value in a CI file, and the reason, from the rules in ``kinds.toml``."""
    names = [key for key in keys if not key.isdecimal()]
    endings = {".".join(names[-length:]) for length in (1, 2)}
    conditions = {"last": set(keys[-1:]), "named": endings, "above": set(keys)}
    for rule in _DATA["values"]:
        if all(present.intersection(rule[name]) for name, present in conditions.items() if name in rule):
            break
    return rule["kind"], f"{rule['why']}, at {path}"
