"""The values that a text gives to variables, in the notations of the files that name images.

They are assignments, declarations with a default, items of a list, and the defaults of arguments and inputs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_MAX_VALUES = 50  # of one variable in a file
_VALUE = r"[\"']?(?P<value>[A-Za-z0-9][\w./:#-]{0,200}+)(?![${(])"
# Anything that may stand between a sign of assignment and the value: the default in it is the value.
_AROUND = (
    r"(?:[\"']?\$\{\w{1,60}:?[-=]|[\w.]{1,40}\((?:[\"']\w{1,60}[\"'],[ \t]{0,9})?(?:default[ \t]{0,9}=[ \t]{0,9})?|"
    r"\{(?:[^{}\n]{0,100}[ ,])?default[ \t]{0,9}:[ \t]{0,9}|"
    r"[\"']?\{\{[^{}\n]{0,60}\|[ \t]{0,9}default[ \t(]{1,9})?"
)
_IS = r"[ \t]{0,20}(?:[:?+]{0,2}=(?!=)>?|:(?=[ \t\"']))[ \t]{0,20}"
# The type of a constant in Python, TypeScript or Go.
_TYPE = r"(?:[ \t]{0,9}:[ \t]{0,9}[A-Za-z][\w.\[\], |]{0,40}?(?=[ \t]{0,9}=)|[ \t]{1,9}string(?=[ \t]{0,9}=))?"
_KEY = r"(?:(?<![\w$/-])|(?m:^)[ \t]*\$(?:env:)?)[\"']?(?P<name>{names})[\"']?"
_LATER = r"(?:default|value)[\"']?[ \t]{0,20}[:=][ \t]{0,20}"
_PATTERNS = (
    _KEY + _TYPE + _IS + _AROUND + _VALUE,
    # ``name:`` with a ``default:`` or ``value:`` in the mapping below it
    r"(?m)^(?P<indent>[ \t]*)[\"']?(?P<name>{names})[\"']?:[ \t]*\r?\n"
    r"(?:(?P=indent)[ \t][^\n]*+\n){0,8}?(?P=indent)[ \t]++[\"']?" + _LATER + _VALUE,
    # ``name: NAME`` with a ``value`` or ``default`` beside it
    r"\bname[\"']?[ \t]{0,20}[:=][ \t]{0,20}[\"']?(?P<name>{names})[\"']?[ \t]{0,20}"
    r"(?:,[ \t]{0,20}|\r?\n(?:[ \t]++(?!-)[^\n]*\n){0,3}?[ \t]+)[\"']?" + _LATER + _VALUE,
    # a variable of Bake, Packer or Terraform
    r"\bvariable[ \t]{1,20}\"(?P<name>{names})\"[ \t]{0,20}\{[^{}]{0,500}?\b" + _LATER + _VALUE,
)
_LISTS = (
    _KEY + r"[ \t]{0,20}[:=][ \t]{0,20}\[(?P<items>[^\[\]]{1,1000})\]",
    r"(?m)^[ \t]*(?:-[ \t]+)?[\"']?(?P<name>{names})[\"']?:[ \t]*\r?\n"
    r"(?P<items>(?:[ \t]*(?:-[ \t]+|#)[^\n]*+(?:\n|\Z)){1,50})",
)
_ITEM = re.compile(
    r"(?:^|(?<=,)|(?<=-[ \t]))[ \t\r\n]*[\"']?(?P<value>[A-Za-z0-9][\w./:#-]{0,200}+)[\"']?[ \t]*(?=[,\r\n#]|$)"
)
_COMMENT = re.compile(r"[ \t]*(?:#(?!SBATCH)|//|<!--)")


class VariableValue(NamedTuple):
    """A value given to a variable, at ``start`` in the text."""

    start: int
    text: str


def values_of(text: str, names: Iterable[str]) -> Mapping[str, list[VariableValue]]:
    """Return the values of each of the named variables, in the order of the text; comments give none."""
    alternatives = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    values: dict[str, dict[int, VariableValue]] = {}
    if alternatives:
        for name, value in _found(text, alternatives):
            of_name = values.setdefault(name, {})
            if len(of_name) < _MAX_VALUES and not _COMMENT.match(text, text.rfind("\n", 0, value.start) + 1):
                of_name[value.start] = value
    return {name: [of_name[start] for start in sorted(of_name)] for name, of_name in values.items()}


def _found(text: str, alternatives: str) -> Iterator[tuple[str, VariableValue]]:
    for pattern in _PATTERNS:
        for match in re.finditer(pattern.replace("{names}", alternatives), text):
            yield match["name"], VariableValue(match.start("value"), match["value"])
    for pattern in _LISTS:
        for match in re.finditer(pattern.replace("{names}", alternatives), text):
            for item in _ITEM.finditer(match["items"]):
                yield match["name"], VariableValue(match.start("items") + item.start("value"), item["value"])
