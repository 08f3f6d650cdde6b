"""Renovate's settings, reduced to the custom managers with regular expressions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from runbook_lib.errors import CannotTell
from runbook_lib.pins.renovate.expressions import file_pattern, python_pattern
from runbook_lib.text import json5, untrusted_regex
from runbook_lib.text.lists import join_first

#: The files in which Renovate looks for its settings, in the same order.
FILES = (
    "renovate.json", "renovate.jsonc", "renovate.json5", ".github/renovate.json", ".github/renovate.jsonc",
    ".github/renovate.json5", ".gitlab/renovate.json", ".gitlab/renovate.jsonc", ".gitlab/renovate.json5",
    ".renovaterc", ".renovaterc.json", ".renovaterc.jsonc", ".renovaterc.json5", "package.json",
)  # fmt: skip
_MAX_LISTED = 5  # names in one sentence
_TEMPLATES = ("datasource", "depName", "packageName", "currentValue", "registryUrl")
_OLD_NAMES = {"lookupNameTemplate": "packageNameTemplate", "fileMatch": "managerFilePatterns"}
_READ = frozenset(
    {"customType", "description", "managerFilePatterns", "matchStrings", "matchStringsStrategy"}
    | {f"{name}Template" for name in _TEMPLATES}
)
#: Fields whose omission would change the meaning of an import, with the reason.
_NEEDED = {
    "extractVersionTemplate": "the file names only a part of the tag. Declare that pin by hand, with the key tag",
    "currentDigestTemplate": "the digest is not what the file has",
}
#: Settings other than the managers that affect Renovate's bumps, with their replacements here.
_BESIDE = {
    "packageRules": "use the keys groups and watch of the pins file for such rules",
    "extends": "presets are not fetched; `runbook pins discover` reads the `# renovate:` comments of their managers",
    "ignorePaths": "delete the pins of such files from the draft",
    "includePaths": "delete the pins of other files from the draft",
    "enabledManagers": "all custom managers of the type regex are read",
}


@dataclass(frozen=True)
class RegexManager:
    """A custom manager: Python patterns for its files and for its matches, and the templates of the fields.

    ``combines``: the matches of all patterns in a file are one dependency.
    """

    name: str
    files: tuple[str, ...]
    excluded: tuple[str, ...]
    patterns: tuple[str, ...]
    templates: Mapping[str, str]
    combines: bool = False


@dataclass(frozen=True)
class RenovateSettings:
    """The managers in a file, and sentences on the parts that were not imported."""

    managers: tuple[RegexManager, ...]
    left_out: tuple[str, ...]


def parse(text: str, name: str) -> RenovateSettings:
    """Parse the text of a settings file.  ``name`` is its name, also used in messages.

    Raises CannotTell if it is not a settings file.
    """
    try:
        values = json5.loads(text)
    except CannotTell as error:
        raise CannotTell(f"{name} could not be read: {error}. Correct it and run again.") from error
    if PurePosixPath(name).name == "package.json" and isinstance(values, dict):
        values = values.get("renovate")
    if not isinstance(values, dict):
        raise CannotTell(f"{name} has no settings of Renovate: a mapping was expected.")
    managers: list[RegexManager] = []
    left_out: list[str] = []
    for key in ("customManagers", "regexManagers"):
        for index, fields in enumerate(_list(values.get(key))):
            described = f"{key}[{index}]"
            try:
                managers.append(_manager(fields, described, left_out))
            except CannotTell as error:
                left_out.append(f"{described}: {error}.")
    for key, instead in _BESIDE.items():
        if values.get(key):
            names = [name for name in _list(values[key]) if isinstance(name, str)]
            listed = f" ({join_first(names, _MAX_LISTED)})" if names else ""
            left_out.append(f"{key}{listed}: not taken over; {instead}.")
    if values.get("enabled") is False:
        left_out.append("enabled: Renovate is switched off by these settings; they were read anyway.")
    return RenovateSettings(tuple(managers), tuple(left_out))


def _list(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, list) else [value]


def _manager(fields: Any, name: str, left_out: list[str]) -> RegexManager:
    if not isinstance(fields, dict):
        raise CannotTell("a mapping was expected")
    custom_type = fields.get("customType", "regex")
    if custom_type != "regex":
        raise CannotTell(f"its customType is {custom_type}, and only regex is read")
    is_regex = "fileMatch" in fields
    fields = {_OLD_NAMES.get(key, key): value for key, value in fields.items()}
    for key, reason in _NEEDED.items():
        if key in fields:
            raise CannotTell(f"it has {key}, so {reason}")
    strategy = fields.get("matchStringsStrategy", "any")
    if strategy not in ("any", "combination"):
        raise CannotTell(f"its matchStringsStrategy is {strategy}; only any and combination are read")
    templates = {}
    for field in _TEMPLATES:
        if f"{field}Template" in fields:
            templates[field] = _template(fields[f"{field}Template"], f"{field}Template")
    files: list[str] = []
    excluded: list[str] = []
    for pattern in _texts(fields, "managerFilePatterns"):
        negated = pattern.startswith("!") and not is_regex
        try:
            regex = python_pattern(pattern) if is_regex else file_pattern(pattern.removeprefix("!" if negated else ""))
            untrusted_regex.named_groups(regex)
        except CannotTell as error:
            raise CannotTell(f"its pattern for files {pattern[:80]!r} cannot be used: {error}") from error
        (excluded if negated else files).append(regex)
    patterns = []
    for pattern in _texts(fields, "matchStrings"):
        try:
            patterns.append(python_pattern(pattern))
            untrusted_regex.named_groups(patterns[-1])
        except CannotTell as error:
            raise CannotTell(f"its matchString {pattern[:80]!r} cannot be used: {error}") from error
    if unread := sorted(fields.keys() - _READ):
        left_out.append(
            f"{name}: {', '.join(unread)} not taken over; a bump replaces the tag alone, and its family orders tags."
        )
    return RegexManager(
        name, tuple(files), tuple(excluded), tuple(patterns), templates, combines=strategy == "combination"
    )


def _texts(fields: Mapping[str, Any], key: str) -> Sequence[str]:
    texts = _list(fields.get(key))
    if not texts or not all(isinstance(text, str) for text in texts):
        raise CannotTell(f"its {key} should be a list of texts")
    return texts


def _template(text: Any, key: str) -> str:
    """Return a template.  Raises CannotTell if its braces contain anything except names of groups."""
    if not isinstance(text, str):
        raise CannotTell(f"its {key} should be a text")
    if "{{" in PLACEHOLDER.sub("", text):
        raise CannotTell(f"its {key} {text[:80]!r} contains more than names of groups in braces")
    return text


#: The name of a group in a Handlebars template.
PLACEHOLDER = re.compile(r"\{\{\{[ \t]{0,9}(\w{1,60})[ \t]{0,9}\}\}\}|\{\{[ \t]{0,9}(\w{1,60})[ \t]{0,9}\}\}")
