"""Patterns that the library computes: run, in a process of its own, with all that is compiled noted.

Prints the patterns by the place of the call that got them, or by the key of the use that they were evaluated for.
"""

import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

_noted: dict[str, list[Any]] = {}


def _note(key: str, pattern: Any, flags: int) -> None:
    if isinstance(pattern, re.Pattern):
        pattern, flags = pattern.pattern, pattern.flags & ~re.UNICODE
    binary = isinstance(pattern, bytes)
    entry = [pattern.decode("latin-1") if binary else pattern, int(flags), binary]
    if entry not in _noted.setdefault(key, []):
        _noted[key].append(entry)


@cache
def _positions(code: CodeType) -> list[tuple[int | None, ...]]:
    return [*code.co_positions()]


def _noting(function: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    def noted(pattern: Any, *args: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(folder):
            line, last, begin, end = _positions(frame.f_code)[frame.f_lasti // 2]
            given = [it for it in (*args, *options.values()) if isinstance(it, re.RegexFlag)]
            key = f"{file.relative_to(folder).as_posix()}:{line},{begin},{last},{end}"
            _note(key, pattern, given[0] if given else 0)
        return function(pattern, *args, **options)

    return noted


def _import_all(folder: Path) -> None:
    for file in sorted(folder.rglob("*.py")):
        parts = [folder.name, *file.relative_to(folder).with_suffix("").parts]
        if parts[-1] not in ("__main__", "kernel_main"):  # these two run when they are imported
            importlib.import_module(".".join(part for part in parts if part != "__init__"))


def _evaluate(folder: Path, key: str, file: str, function: str, written: str) -> None:
    """Note what is written of a module's own names, and of samples; of an iterable of samples each."""
    module = sys.modules.get(".".join([folder.name, *Path(file).with_suffix("").parts]))
    samples = SAMPLES.get(key.partition(":")[0], {}) if folder.name == "runbook_lib" else {}
    try:
        pattern = eval(written, {**vars(module), **samples}) if module else None  # of our own source
    except NameError:
        return
    if isinstance(pattern, str | bytes | re.Pattern):
        _note(key, pattern, 0)


def main(folder: Path) -> None:
    """Note what is compiled when the modules below a folder are imported, when `RUN` is run, and what can be evaluated.

    The uses that are not known otherwise come as JSON: key, file, function and what is written.
    """
    sys.path.insert(0, str(folder.parent))
    unknown = json.load(sys.stdin)
    for name in ("search", "match", "fullmatch", "sub", "subn", "split", "finditer", "findall", "compile"):
        setattr(re, name, _noting(getattr(re, name), folder))
    _import_all(folder)
    for use in unknown:
        _evaluate(folder, *use)
    if folder.name == "runbook_lib":
        for run in RUN:
            run()
    os.write(1, json.dumps(_noted).encode())


# -- of this library ---------------------------------------------------------------------------------------------------

#: What stands for values from outside in patterns that are made of them, by function.
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "workflow.pull_request_body.compose_body": {"name": "base-image-runbook:golden-values:"},
    "pins.sites._pins": {"name": "nvcr.io/nvidia/pytorch"},
    "records.timeline._broken": {"case": "gpt3_tp1"},
    "steps.broken_tests.issue.choose": {"test": SimpleNamespace(case="gpt3_tp1")},
    "recipes.issue_references.issue_of_comment": {"repository": "o/r"},
    "recipes.issue_references.issue_of_reason": {"repository": "o/r"},
    "records.verify._check_place_and_time": {"start": datetime(2026, 1, 2, tzinfo=UTC)},
    "golden.match_artifacts.parse_upload_name": {"run": 123},
}


def _module(name: str) -> Any:
    return importlib.import_module(f"runbook_lib.{name}")


def _build_arguments() -> None:
    """The expressions of `locate` for a build argument."""
    for kind in ("DockerArg", "BuildArg"):
        getattr(_module("pins.finders"), kind)("NAME").find('ARG NAME="image:1"\nFROM image:$NAME\n', "image")


def _texts() -> None:
    """The texts that a pins file finds."""
    _module("pins.finders").literal_text("a {tag} b").find("a 26.04-py3 b", "image")


def _known_problems() -> None:
    """The signs of all known problems."""
    for pitfall in _module("triage.known_problems").PITFALLS:
        for pattern in pitfall.patterns:
            _note("triage.known_problems.find: pattern", pattern, re.MULTILINE)


def _rules() -> None:
    """All rules for lines of logs, each of which is compiled when a line needs it."""
    patterns = _module("triage.patterns")
    for rule in (*patterns.LINES, *patterns.WORDS):
        _note("triage.patterns.LogPattern.regex: self.pattern", rule.regex, 0)
        if rule.context:
            _note("triage.patterns.LogPattern.context: self.context_pattern", rule.context, 0)


def _secrets() -> None:
    """All forms of secrets, each of which is compiled when a text needs it."""
    for form in _module("text.redact")._FORMS.values():
        _note("text.redact._compiled: form", form, re.ASCII)


def _schemas() -> None:
    """The patterns of the schemas of users' files."""

    def note(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                pattern = value["pattern"]
                _note("text.user_file._in_bounds: pattern", pattern.removesuffix("$") + r"\Z", 0)
            for item in value.values():
                note(item)
        elif isinstance(value, list):
            for item in value:
                note(item)

    for package, module in (("pins", "pins_file"), ("slurm", "site_file")):
        name = _module(f"{package}.{module}").SCHEMA
        note(dict(_module("text.user_file").load_schema(f"runbook_lib.{package}", name)))


def _redactor() -> None:
    _module("text.redact").Redactor({"A_TOKEN": "first-value-of-one", "B_TOKEN": "another-value-123"})


def _dockerfile() -> None:
    for escape in ("\\", "`"):
        for _ in _module("text.dockerfile_syntax").instructions(f"# escape={escape}\nFROM a\n"):
            pass


#: What must run for patterns that functions compute to be compiled.
RUN: tuple[Callable[[], None], ...] = (
    _build_arguments, _texts, _known_problems, _rules, _secrets, _redactor,
    _dockerfile, _schemas,
)  # fmt: skip

if __name__ == "__main__":
    main(Path(sys.argv[1]))
