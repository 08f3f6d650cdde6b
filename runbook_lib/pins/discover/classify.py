"""The kind of a reference to an image, judged by its file's name and by the lines around it."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from runbook_lib.pins.discover.references import Reference
from runbook_lib.pins.discover.yaml_path import YamlPath, YamlPaths

Kind: TypeAlias = Literal[
    "whole-file", "dockerfile-arg", "dockerfile-from", "build-arg", "container-image", "matrix-row", "ci-variable",
    "workflow-input", "configuration", "script", "code", "documentation", "record", "test", "comment",
]  # fmt: skip

_DOCKERFILE = re.compile(r"(?:.*\.)?(?:docker|container)file(?:\..*)?", re.IGNORECASE)
_DOCUMENTS = frozenset({".md", ".mdx", ".rst", ".adoc", ".txt", ".ipynb", ".html", ".tex", ".markdown"})
_YAML = frozenset({".yml", ".yaml"})
_DATA = _YAML | {".json", ".json5", ".jsonc", ".toml", ".ini", ".cfg", ".env", ".conf", ".hcl", ".tf", ".properties"}
_SCRIPTS = frozenset({".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".sub", ".mk", ".ps1", ".bat"})
_SCRIPT_NAMES = frozenset({"makefile", "justfile", "gnumakefile"})
_SLASHES = frozenset(
    {".js", ".ts", ".go", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".java", ".rs", ".groovy", ".jsonc"}
)
_TESTS = frozenset({"test", "tests", "testing", "testdata", "fixtures", "__tests__"})
_TEST_NAME = re.compile(r"test_.*|.*_tests?\.\w+|.*\.(?:test|spec)\.\w+|conftest\.py", re.IGNORECASE)
#: What stands below these is for people: to read, or to run by hand.
_ASIDE = frozenset(
    {"examples", "example", "samples", "sample", "tutorials", "tutorial", "docs", "doc", "skills", "demos", "demo"}
    | {"notebooks", "contrib", "research"} | _TESTS
)  # fmt: skip
# Words in a path that tell of what was, and a folder of documentation for one release.
_PAST = frozenset(
    {"changelog", "changes", "history", "news", "releases", "results", "summary", "report", "reports", "benchmark"}
    | {"benchmarks", "card", "cards", "verification", "archive", "archived", "issues"}
)  # fmt: skip
_OLD_RELEASE = re.compile(r"(?:^|/)(?:v|release-)?[0-9]+\.[0-9]+(?:\.[0-9x]+)*/")
_DATED = re.compile(
    r"\s{0,40}(?:[-*+]|#{1,6})?\s{0,9}\W{0,3}(?:[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}|[0-9]{1,2}/[0-9]{1,2}/[0-9]{4})"
)
_WAS = re.compile(r"\b(?:was|were)\s+(?:measured|obtained|benchmarked|collected|recorded|verified)\b", re.IGNORECASE)
_NEAR = 1000  # characters of a line, before a reference and after, that are looked at
_BUILD_ARG = re.compile(r"--build-arg[ =]+[\"']?(?P<name>[A-Za-z_]\w*)=[\"']?$")
_ASSIGNED = re.compile(r"(?<![\w-])(?P<name>[A-Za-z_]\w*)=[\"']?(?:\$\{\{[^}\n]{0,200})?[\"']?$")
_FILE = re.compile(r"[\w./-]+")
_LTS = re.compile(r"(?<![A-Za-z])lts(?![A-Za-z])", re.IGNORECASE)
_MOST_SHOWN = 200  # characters of a path of keys
_FALLBACK = re.compile(r"\binputs\.[\w-]+[ ]*\|\|[ ]*[\"']$")


@dataclass(frozen=True)
class Nature:
    """The kind, and ``why`` in a few words.  ``ci``: which CI's file it is in, if any; ``aside``: for people only.

    ``name``: of the argument that gets the image, and ``dockerfile`` what it is passed to, where that stands beside it;
    ``yaml``: where the reference stands, in a YAML file.
    """

    kind: Kind
    why: str
    ci: Literal["github", "gitlab", "other", ""] = ""
    aside: bool = False
    name: str = ""
    yaml: YamlPath | None = None
    dockerfile: str = ""


@dataclass(frozen=True)
class File:
    """A file with its text, which is looked through once for all references in it."""

    path: str
    text: str

    @cached_property
    def lines(self) -> Sequence[str]:
        """Split at line feeds, as git does."""
        return self.text.split("\n")

    @cached_property
    def ci(self) -> Literal["github", "gitlab", "other", ""]:
        """Whose configuration the file is."""
        first = self.path.split("/")[0]
        if first == ".github":
            return "github"
        if first == ".gitlab" or first.startswith(".gitlab-ci"):
            return "gitlab"
        known = {".circleci", ".buildkite", ".ci", "ci", "Jenkinsfile", ".drone.yml", "cloudbuild.yaml"}
        return "other" if first in known or first.startswith("azure-pipelines") else ""

    @cached_property
    def type(self) -> Literal["dockerfile", "document", "yaml", "data", "script", "code"]:
        """The language of the file, by its name, else by its first line."""
        name = PurePosixPath(self.path).name.lower()
        suffix = PurePosixPath(name).suffix
        if suffix in _DOCUMENTS or name.startswith(("readme", "changelog", "license")):
            return "document"
        if _DOCKERFILE.fullmatch(name):
            return "dockerfile"
        if suffix in _DATA or name == ".env":
            return "yaml" if suffix in _YAML else "data"
        first = self.text[:100].split("\n", 1)[0]
        shell = first.startswith("#!") and re.search(r"\b(?:ba|z|da|k)?sh\b", first)
        return "script" if suffix in _SCRIPTS or name in _SCRIPT_NAMES or shell else "code"

    @cached_property
    def aside(self) -> bool:
        """True if the file is in a folder that only people read or run."""
        return not _ASIDE.isdisjoint(self.path.lower().split("/")[:-1])

    def nature(self, reference: Reference) -> Nature:
        """Return the kind of a reference in this file, and the reason."""
        index, column = reference.line - 1, reference.column
        before = self.text[reference.start - min(column, _NEAR) : reference.start]
        if self._stripped == (reference.start, reference.end):
            return Nature("whole-file", "the file holds it and nothing else", self.ci, self.aside)
        if self.type == "document":
            return self._document(before + self.lines[index][column : column + _NEAR])
        if self._commented(before):
            return Nature("comment", "it stands in a comment", self.ci, self.aside)
        if self.type == "dockerfile":
            return self._dockerfile(index, before)
        if build_arg := _BUILD_ARG.search(before):
            return Nature("build-arg", f"--build-arg {build_arg['name']}", self.ci, self.aside, build_arg["name"])
        if self.type == "yaml":
            return self._yaml(reference.start, before)
        return self._other()

    @cached_property
    def _stripped(self) -> tuple[int, int]:
        """The span of the text without white space around it."""
        return len(self.text) - len(self.text.lstrip()), len(self.text.rstrip())

    def _document(self, line: str) -> Nature:
        if past := self._past():
            return Nature("record", past, aside=True)
        if _DATED.match(line) or _WAS.search(line):
            return Nature("record", "its line tells what was", aside=True)
        return Nature("documentation", "in a document", aside=True)

    def _past(self) -> str:
        """Return why the file is a record of the past; empty where it is not."""
        words = set(re.split(r"[/._-]", self.path.lower()))
        if not _PAST.isdisjoint(words):
            return f"the file tells what was ({', '.join(sorted(_PAST & words))})"
        if self.aside and (release := _OLD_RELEASE.search(self.path)):
            return f"of the release {release[0].strip('/')}"
        return ""

    def _commented(self, before: str) -> bool:
        if PurePosixPath(self.path).suffix.lower() in _SLASHES:
            return bool(re.match(r"\s*(?://|/?\*)", before) or re.search(r"\s//\s", before))
        if before.lstrip().startswith("#"):
            return True
        # A sign within quotes begins no comment, and in a Dockerfile only the first of a line does.
        return self.type != "dockerfile" and bool(re.match(r"(?:[^#\"']|\"[^\"]*\"|'[^']*'|(?<=\S)#)*\s#", before))

    def _dockerfile(self, index: int, before: str) -> Nature:
        first, keyword = self._instructions[index]
        if keyword == "ARG" and (name := _ASSIGNED.search(before)):
            late = ", which no FROM can use: a FROM stands before it" if self._first_from < first else ""
            return Nature("dockerfile-arg", f"default of ARG {name['name']}{late}", self.ci, self.aside, name["name"])
        if keyword == "FROM" or (keyword == "COPY" and before.rstrip().endswith("--from=")):
            return Nature("dockerfile-from", f"{keyword} names it", self.ci, self.aside)
        return Nature("code", f"{keyword or 'the Dockerfile'} names it", self.ci, self.aside)

    @cached_property
    def _instructions(self) -> Sequence[tuple[int, str]]:
        """For each line of a Dockerfile where its instruction begins, and its keyword."""
        result: list[tuple[int, str]] = []
        continued = False
        for index, line in enumerate(self.lines):
            if not continued:
                word = re.match(r"\s*(\S{0,40})", line)
                instruction = index, word[1].upper() if word else ""
            result.append(instruction)
            continued = line.rstrip().endswith("\\")
        return result

    @cached_property
    def _first_from(self) -> int:
        return next((at for at, line in enumerate(self.lines) if line[:5].upper() == "FROM "), len(self.lines))

    def _yaml(self, start: int, before: str) -> Nature:
        where = self._paths.at(start)
        keys = where.keys
        dockerfile = self._paths.sibling(where, ("file", "dockerfile")) if "build-args" in keys[-1:] else ""
        if not _FILE.fullmatch(dockerfile):
            dockerfile = ""

        def nature(kind: Kind, why: str, name: str = "") -> Nature:
            return Nature(kind, why, self.ci, self.aside, name, where, dockerfile.removeprefix("./"))

        last, shown = keys[-1] if keys else "", ".".join(keys)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
        named = _ASSIGNED.search(before)
        if _FALLBACK.search(before):
            return nature("workflow-input", f"default of an input, at {shown}", named["name"] if named else "")
        if last == "build-args" or (len(keys) > 1 and keys[-2] in ("build-args", "args") and named):
            return nature(
                "build-arg", f"build-arg {named['name'] if named else ''}".rstrip(), named["name"] if named else ""
            )
        if where.block and self.ci:
            return nature("script", f"script at {shown}")
        if self.ci and not self.aside:
            inner = [key for key in keys if not key.isdecimal()]
            if where.has("inputs") and last == "default":
                return nature("workflow-input", f"default of an input, at {shown}")
            if last in ("image", "container") or inner[-2:] == ["image", "name"] or inner[-1:] == ["services"]:
                return nature("container-image", f"image of a job, at {shown}")
            if where.has("matrix"):
                return nature("matrix-row", f"row of a matrix, at {shown}")
            if where.has("with"):
                return nature("workflow-input", f"passed to an input, at {shown}")
            if {"variables", "env"} & set(keys):
                return nature("ci-variable", f"variable, at {shown}")
            return nature("configuration", f"a value, at {shown}")
        if past := self._past():
            return nature("record", past)
        if self._tested():
            return nature("test", "a test's data")
        if last in ("image", "container"):
            return nature("container-image", f"image of a container, at {shown}")
        return nature("configuration", f"a value, at {shown}")

    def _other(self) -> Nature:
        if self.type == "script":
            return Nature("script", "a script names it", self.ci, self.aside)
        if self.type == "data" and (past := self._past()):
            return Nature("record", past)
        if self._tested():
            return Nature("test", "a test's code or data")
        if self.type == "data":
            return Nature("configuration", "a value in a file of settings", self.ci, self.aside)
        return Nature("code", "a constant or a default in code", self.ci, self.aside)

    def lts_beside(self, start: int) -> bool:
        """Return True if the line of a reference, or of a value in the same mapping, says LTS."""
        first, end = self._paths.at(start).siblings
        first = self.text.rfind("\n", 0, min(first or start, start)) + 1
        end = max(end, self.text.find("\n", max(end, start)))
        index = bisect_left(self._lts, first)
        return index < len(self._lts) and self._lts[index] < end

    @property
    def lts(self) -> bool:
        """True if the file's name contains LTS."""
        return bool(_LTS.search(self.path))

    @cached_property
    def _paths(self) -> YamlPaths:
        return YamlPaths(self.text)

    @cached_property
    def _lts(self) -> Sequence[int]:
        return [match.start() for match in _LTS.finditer(self.text)]

    def _tested(self) -> bool:
        parts = self.path.split("/")
        return not _TESTS.isdisjoint(map(str.lower, parts[:-1])) or bool(_TEST_NAME.fullmatch(parts[-1]))
