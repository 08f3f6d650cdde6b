"""Tags and digests separate from their image: the value of a variable, or of a key beside the repository's."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from runbook_lib.images.families import NGC_HOST
from runbook_lib.pins.tag_parts import compose, form_around

_MAX_VALUES = 50  # of one variable in a file
_LONGEST = 400  # maximum length of a word with variables
_NEAR = 12  # lines between the keys of an image and of its tag
_VARIABLE = (
    r"(?:\$?\{\{[^{}\n]{0,100}\}\}|\$\{[^{}\n]{0,100}\}|\$[A-Za-z_]\w{0,60}|\$\(\w{1,60}\)|\{[A-Za-z_]\w{0,60}\})"
)
_WORD = re.compile(
    rf"(?:(?<![\w./$#}})-])|(?<=:-))(?!-)(?P<image>(?:[\w./#-]|{_VARIABLE}){{1,{_LONGEST}}}+):"
    rf"(?P<tag>(?!-)(?:[\w.-]|{_VARIABLE}){{1,100}}+)"
)
# The default of a variable, in the notations of shells, GitHub Actions and development containers.
_DEFAULT = re.compile(
    r"(?:^\$\{(?:localEnv:)?\w{1,60}:?[-=:]|\|\|[ \t]{0,9}[\"'])(?P<value>[A-Za-z0-9][\w./-]{0,127})"
    r"[\"']?[ \t]{0,9}\}{1,2}$"
)
_NAME = re.compile(r"([A-Za-z_]\w{0,60})(?::?[-+?=][^{}\n]{0,100})?[\s)}]*$")
_EACH_VARIABLE = re.compile(_VARIABLE)
_AT_VARIABLE = re.compile(f"@{_VARIABLE}")
_ASSIGNED = re.compile(
    r"(?m)^[ \t]*(?:-[ \t]+)?(?:(?:ARG|ENV|export|readonly|local|set)[ \t]+)?[\"']?(?P<name>[A-Za-z_]\w{0,60})[\"']?"
    r"(?::[ \t]{0,9}\w{1,20}(?=[ \t]{1,9}=))?"  # the type of a constant in Python
    r"[ \t]{0,20}[:?]?[=:][ \t]{0,20}[\"']?(?:\$\{\w{1,60}:?-)?(?P<value>[A-Za-z0-9][\w./:#-]{0,200})"
)
# The default of a variable of Bake, Packer or Terraform.
_DECLARED = re.compile(
    r"\bvariable[ \t]{1,20}\"(?P<name>\w{1,60})\"[ \t]{0,20}\{[^{}]{0,500}?\bdefault[ \t]{0,20}=[ \t]{0,20}\""
    r"(?P<value>[A-Za-z0-9][\w./:#-]{0,200})\""
)
_KEY = re.compile(
    r"(?m)^(?P<indent>[ \t]*(?:-[ \t]+)?)[\"']?(?P<key>[A-Za-z_][\w-]{0,40})[\"']?[ \t]{0,20}[:=][ \t]{0,20}"
)
_LINE = re.compile(r"(?P<indent>[ \t]*)(?![ \t]|#|//)\S")
_TAG_KEY = re.compile(r"(?i)(?:new|image|docker|container)?[_-]?(?:tag|version)")
_REGISTRY_KEY = re.compile(r"(?i)(?:image|container)?[_-]?(?:registry|host|hub)")
_HOST_VALUE = re.compile(rf"[\"']?{re.escape(NGC_HOST)}/?(?=[\"']?[ \t]{{0,20}},?[ \t]{{0,20}}\r?$)", re.MULTILINE)
_NAME_KEY = re.compile(r"(?i)(?:new)?[_-]?(?:image|container)?[_-]?(?:repository|image|name)")
_PATH_VALUE = re.compile(
    r"[\"']?(?P<value>[a-z0-9][a-z0-9._/-]{0,200}+)(?=[\"']?[ \t]{0,20},?[ \t]{0,20}\r?$)", re.MULTILINE
)
# The comment of Renovate's presets for variables: ``# renovate: datasource=docker depName=nvcr.io/nvidia/cuda``.
_ANNOTATION = re.compile(r"renovate:(?P<fields>(?:[ \t]{1,9}\w{1,40}=[^\s=]{1,300}){1,9})[^\n]{0,100}\n")
_ANNOTATED = re.compile(r"(?<!\w)(\w{1,40}+)=(\S{1,300}+)")
_ANNOTATED_VALUE = re.compile(r"[^\n=:]{0,100}[=:][ \t]{0,9}[\"']?(?P<value>[A-Za-z0-9][\w.-]{0,127}+)")
_FOLDER_KEY = re.compile(r"(?i)(?:image|container)?[_-]?(?:repo|repository|registry)")
_INLINE = re.compile(r"[{(][^{}()\n]{1,500}[)}]")
_PAIR = re.compile(
    r"(?<![\w-])[\"']?(?P<key>[A-Za-z_][\w-]{0,40})[\"']?[ \t]{0,20}[:=][ \t]{0,20}"
    r"[\"']?(?P<value>[A-Za-z0-9][\w./-]{0,200})(?=(?:@sha256:[0-9a-f]{64})?[\"']?[ \t]{0,20}[,)}])"
)
_DIGEST = r"(?P<value>sha256:[0-9a-f]{64})(?![0-9A-Za-z])"
_AT_DIGEST = re.compile(f"@{_DIGEST}")
_DIGEST_VALUE = re.compile(f"[\"']?{_DIGEST}")
_DIGEST_IN_LINE = re.compile(rf"(?i:\bdigest)[\"']?[ \t]{{0,20}}[:=][ \t]{{0,20}}[\"']?{_DIGEST}")
_TAG_VALUE = re.compile(
    r"[\"']?(?P<value>[A-Za-z0-9_][\w.-]{0,126}\w)"
    r"(?=(?:@sha256:[0-9a-f]{64})?[\"']?[ \t]*(?:,[ \t]*)?(?:#[^\n]{0,200})?\r?$)",
    re.MULTILINE,
)


class SplitTag(NamedTuple):
    """A value that is a part of a tag, ``text[start:end]``; ``form`` is the format of the tag around it.

    The value may be the ``digest`` of the image instead.
    """

    start: int
    end: int
    image: str
    tag: str
    form: str
    digest: str = ""


def of_variables(text: str) -> Iterator[SplitTag]:
    """Yield the tags of images that are composed of variables in the same file, or the values that are a part of one.

    Of several variables in a tag, the first one is such a value; the others have the value that the file gives them.
    """
    words = [word for word in _WORD.finditer(text) if _is_composed(text, word)]
    if not words:
        return
    assigned: dict[str, list[re.Match[str]]] = {}
    for assignment in itertools.chain(_ASSIGNED.finditer(text), _DECLARED.finditer(text)):
        values = assigned.setdefault(assignment["name"], [])
        if len(values) < _MAX_VALUES:
            values.append(assignment)
    for word in words:
        image = _expand(word["image"], assigned)
        variables = list(_EACH_VARIABLE.finditer(text, *word.span("tag")))
        tag = word["tag"]
        if _EACH_VARIABLE.search(image):
            continue
        if not variables and image != word["image"]:
            yield SplitTag(*word.span("tag"), image, tag, "{tag}")
        for variable in variables[:1]:
            before = text[word.start("tag") : variable.start()]
            after = _expand(text[variable.end() : word.end("tag")], assigned)
            if _EACH_VARIABLE.search(after):
                continue
            for start, value in _values(variable, assigned):
                form = form_around(before, value, after)
                tag = compose(form, value)
                yield SplitTag(start, start + len(value), image, tag, form)
        for start, digest in _values(_AT_VARIABLE.match(text, word.end()), assigned):
            yield SplitTag(start, start + len(digest), image, tag, "{digest}", digest)


def _is_composed(text: str, word: re.Match[str]) -> bool:
    """Return True if a variable is a part of the image or of its tag, or stands in place of its digest."""
    return bool(_EACH_VARIABLE.search(word[0]) or _AT_VARIABLE.match(text, word.end()))


def _values(
    variable: re.Match[str] | None, assigned: Mapping[str, Sequence[re.Match[str]]]
) -> Iterator[tuple[int, str]]:
    """Yield start and text of the values of a variable: those that the file assigns to it, and its default in place."""
    if variable is None:
        return
    name = _NAME.search(variable[0])
    for assignment in assigned.get(name[1], ()) if name else ():
        yield assignment.start("value"), assignment["value"]
    if default := _DEFAULT.search(variable[0]):
        yield variable.start() + default.start("value"), default["value"]


def digest_beside(text: str, start: int, end: int) -> re.Match[str] | None:
    """Return the digest of the tag ``text[start:end]``: after it, or at a key of the same mapping."""
    if after := _AT_DIGEST.match(text, end):
        return after
    begin = text.rfind("\n", 0, start) + 1
    opening = max(text.rfind("{", begin, start), text.rfind("(", begin, start))
    if opening >= 0:
        inline = _INLINE.match(text, opening)
        return _DIGEST_IN_LINE.search(text, *inline.span()) if inline and inline.end() > end else None
    own = _KEY.match(text, begin)
    if own is None or text[own.end() : start].strip("\"'"):
        return None
    for key in _neighbours(text, begin, len(own["indent"])):
        if key["key"].lower() == "digest":
            return _DIGEST_VALUE.match(text, key.end())
    return None


def _expand(image: str, assigned: dict[str, list[re.Match[str]]]) -> str:
    """Return the name of an image with the first value of each variable in it, as far as the file has them."""

    def value(match: re.Match[str]) -> str:
        _, first = next(_values(match, assigned), (0, match[0]))
        return first.rstrip("/")

    return _EACH_VARIABLE.sub(value, image).replace("#", "/")


def of_keys(text: str, untagged: Sequence[tuple[int, int, str]]) -> Iterator[SplitTag]:
    """Yield the values of keys like ``tag`` and ``newTag`` beside a key with an image that has no tag.

    ``untagged`` are start, end and name of the images without a tag.
    """
    for start, end, image in untagged:
        begin = text.rfind("\n", 0, start) + 1
        own = _KEY.match(text, begin)
        if (
            own is None
            or text[own.end() : start].strip("\"'")
            or text[end : end + 1] not in ("", "\n", "\r", '"', "'", " ", ",")
        ):
            continue
        neighbours = list(_neighbours(text, begin, len(own["indent"])))
        if _FOLDER_KEY.fullmatch(own["key"]):
            image += _last_name(text, neighbours, ("image", "name") if image.count("/") == 1 else ("image",))
        for key in neighbours:
            value = _TAG_VALUE.match(text, key.end())
            if value and _TAG_KEY.fullmatch(key["key"]):
                yield SplitTag(*value.span("value"), image, value["value"], "{tag}")
                break


def _last_name(text: str, keys: Sequence[re.Match[str]], names: Sequence[str]) -> str:
    """Return ``/`` and the last part of an image's name at one of the keys; empty if none has one of the names."""
    for key in keys:
        value = _PATH_VALUE.match(text, key.end())
        if value and "/" not in value["value"] and key["key"] in names:
            return f"/{value['value']}"
    return ""


def of_annotations(text: str) -> Iterator[SplitTag]:
    """Yield the values below comments that specify their image for Renovate."""
    for note in _ANNOTATION.finditer(text):
        fields: dict[str, str] = dict(_ANNOTATED.findall(note["fields"]))
        name = fields.get("packageName") or fields.get("depName")
        value = _ANNOTATED_VALUE.match(text, note.end())
        if value and name:
            yield SplitTag(*value.span("value"), name, value["value"], "{tag}")


def of_inline(text: str) -> Iterator[SplitTag]:
    """Yield the tags in mappings of one line, such as ``{repository: nvcr.io/nvidia/pytorch, tag: 26.04-py3}``."""
    for mapping in _INLINE.finditer(text):
        pairs = list(_PAIR.finditer(text, *mapping.span()))
        tag = next((pair for pair in pairs if _TAG_KEY.fullmatch(pair["key"])), None)
        name = next((pair for pair in pairs if _NAME_KEY.fullmatch(pair["key"]) and "/" in pair["value"]), None)
        if tag is None or name is None:
            continue
        registry = next((f"{pair['value']}/" for pair in pairs if _REGISTRY_KEY.fullmatch(pair["key"])), "")
        yield SplitTag(*tag.span("value"), registry + name["value"], tag["value"], "{tag}")


def of_registries(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and name of the images whose registry is the value of a neighbouring key."""
    for match in _HOST_VALUE.finditer(text):
        begin = text.rfind("\n", 0, match.start()) + 1
        own = _KEY.match(text, begin)
        if own is None or own.end() != match.start() or not _REGISTRY_KEY.fullmatch(own["key"]):
            continue
        for key in _neighbours(text, begin, len(own["indent"])):
            value = _PATH_VALUE.match(text, key.end())
            if value and "/" in value["value"] and _NAME_KEY.fullmatch(key["key"]):
                yield *value.span("value"), f"{NGC_HOST}/{value['value']}"
                break


def _neighbours(text: str, begin: int, column: int) -> Iterator[re.Match[str]]:
    """Yield the keys of the same mapping on the lines after ``begin``, then on the lines before it."""
    position = text.find("\n", begin) + 1
    for _ in range(_NEAR):
        if not position or _column(text, position, column) < column or _is_first(text, position, column):
            break
        yield from _keys_at(text, position, column)
        position = text.find("\n", position) + 1
    position = begin
    for _ in range(_NEAR):
        if position == 0 or _is_first(text, position, column):
            break
        position = text.rfind("\n", 0, position - 1) + 1
        if _column(text, position, column) < column:
            break
        yield from _keys_at(text, position, column)


def _keys_at(text: str, position: int, column: int) -> Iterator[re.Match[str]]:
    key = _KEY.match(text, position)
    if key and len(key["indent"]) == column:
        yield key


def _is_first(text: str, position: int, column: int) -> bool:
    """Return True if an item of the list that the mapping belongs to begins on the line."""
    key = _KEY.match(text, position)
    return key is not None and "-" in key["indent"] and len(key["indent"]) <= column


def _column(text: str, position: int, default: int) -> int:
    """Return the column of the line's key, else of its first sign; the default if it is empty or a comment."""
    if key := _KEY.match(text, position):
        return len(key["indent"])
    line = _LINE.match(text, position)
    return len(line["indent"]) if line else default
