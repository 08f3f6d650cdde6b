"""Tags and digests separate from their image: the value of a variable, or of a key beside the repository's."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from runbook_lib.images.families import DOCKER_HUB, NGC_HOST
from runbook_lib.pins.discover.variables import VariableValue, values_of
from runbook_lib.pins.tag_parts import ANY, compose, form_around

_MAX_NAMES = 500  # variables of a file
_LONGEST = 400  # maximum length of a word with variables
_NEAR = 12  # lines between the keys of an image and of its tag
_VARIABLE = (
    r"(?:\$?\{\{[^{}\n]{0,100}\}\}|\$\{[^{}\n]{0,100}\}|\$(?:env:)?[A-Za-z_]\w{0,60}|\$\(\w{1,60}\)|\{[A-Za-z_][\w.]{0,60}\}|"
    r"\$\[\[[^\[\]\n]{0,100}\]\]|<<[^<>\n]{0,100}>>)"
)
_WORD = re.compile(
    rf"(?:(?<![\w./$#}})-])|(?<=:-))(?!-)(?P<image>(?:[\w./#-]|{_VARIABLE}){{1,{_LONGEST}}}+):"
    rf"(?P<tag>(?!-)(?:[\w.-]|{_VARIABLE}){{1,100}}+)"
)
# A registry and path before a variable that has the last part of the name, and the tag or its beginning.
_FOLDER = re.compile(
    rf"(?<![\w./$#}})-])(?P<folder>(?:[\w.-]{{1,100}}+/){{1,9}})(?P<variable>{_VARIABLE})(?P<rest>[\w.-]{{0,50}}+)(?![:/$])"
)
# The default of a variable, in the notations of shells, GitHub Actions, Jinja and development containers.
_DEFAULT = re.compile(
    r"(?:^\$\{(?:localEnv:)?\w{1,60}:?[-=:]|\|(?:\||[ \t]{0,9}default\()[ \t]{0,9}[\"'])"
    r"(?P<value>[A-Za-z0-9][\w./-]{0,127})[\"']?\)?[ \t]{0,9}\}{1,2}$"
)
_NAME = re.compile(r"([A-Za-z_]\w{0,60})(?::?[-+?=][^{}\n]{0,100}|[ \t]{0,9}\|[^{}\n]{0,100})?[\s)}\]>]*$")
_EACH_VARIABLE = re.compile(_VARIABLE)
_AT_VARIABLE = re.compile(f"@{_VARIABLE}")
_PART_OF_TAG = re.compile(rf"(?P<variable>{_VARIABLE})|(?<!ubuntu)(?<![0-9.])[0-9]{{1,9}}(?:\.[0-9]{{1,9}})+")
_MANY = re.compile(r"[0-9]\.[0-9]")  # a part of a tag that changes from release to release
_AFTER_VERSION = re.compile(r"[0-9].*[A-Za-z]")  # what precedes the version of Ubuntu, which no bump moves alone
_KEY = re.compile(
    r"(?m)^(?P<indent>[ \t]*(?:-[ \t]+)?)[\"']?(?P<key>[A-Za-z_][\w.-]{0,60})[\"']?[ \t]{0,20}[:=][ \t]{0,20}"
)
_LINE = re.compile(r"(?P<indent>[ \t]*)(?![ \t]|#|//)\S")
_TAG_KEY = re.compile(r"(?i)(?:new|image|docker|container|finalImage)?[_-]?(?:tag|version)|reference")
# The ends of the keys of an image and of its tag; what precedes them is the same: ``cudaImage`` and ``cudaImageTag``.
_IMAGE_ENDING = re.compile(r"(?i)[._-]?(?:image)?[._-]?(?:repository|repo|name|image)$")
_TAG_ENDING = re.compile(r"(?i)[._-]?(?:image)?[._-]?(?:tag|version)$")
_REGISTRY_KEY = re.compile(r"(?i)(?:image|container)?[_-]?(?:registry|host|hub)")
_HOST_VALUE = re.compile(rf"[\"']?{re.escape(NGC_HOST)}/?(?=[\"']?[ \t]{{0,20}},?[ \t]{{0,20}}\r?$)", re.MULTILINE)
_NAME_KEY = re.compile(r"(?i)(?:new)?[_-]?(?:image|container)?[_-]?(?:repository|image|name)")
_PATH_VALUE = re.compile(
    r"[\"']?(?P<value>[a-z0-9][a-z0-9._/-]{0,200}+)(?=[\"']?[ \t]{0,20},?[ \t]{0,20}\r?$)", re.MULTILINE
)
_PATH_WITH_TAG = re.compile(
    r"[\"']?(?P<path>[a-z0-9][a-z0-9._-]{0,100}+(?:/[a-z0-9._/-]{1,200}+)?):(?P<value>[A-Za-z0-9_][\w.-]{0,127}+)"
    r"(?=[\"']?[ \t]{0,20}\r?$)",
    re.MULTILINE,
)
# A value with its name beside it, as in the settings of a Helm release: ``- name: image.tag``, ``value: 26.04-py3``.
_NAMED_VALUE = re.compile(
    r"\bname[\"']?[ \t]{0,20}[:=][ \t]{0,20}[\"']?(?P<key>[A-Za-z_][\w.-]{0,60})[\"']?[ \t]{0,20},?[ \t]{0,20}"
    r"(?:\r?\n[ \t]+)?"
    r"[\"']?value[\"']?[ \t]{0,20}[:=][ \t]{0,20}[\"']?(?P<value>[A-Za-z0-9][\w./-]{0,200}+)(?![:$@{])"
)
# The name of an image as a key, with its tag as the value.
_AFTER_NAME = re.compile(
    r"[\"']?[ \t]{0,9}(?::(?=[ \t\"'])|=>?)[ \t]{0,9}[\"']?(?P<value>[A-Za-z0-9][\w.-]{0,126}\w)[\"']?[ \t]{0,9}"
    r"(?=[,}#\r\n]|\Z)"
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
    r"(?=(?:@sha256:[0-9a-f]{64})?[\"']?[ \t]*(?:[,;][ \t]*)?(?:#[^\n]{0,200})?\r?$)",
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

    Of several variables in a tag, those with a version are such values; the others have the value that the file gives
    them.
    """
    words = [word for word in _WORD.finditer(text) if _is_composed(text, word)]
    names: dict[str, None] = {}
    for word in words:
        for variable in (*_EACH_VARIABLE.finditer(word[0]), _AT_VARIABLE.match(text, word.end())):
            names |= dict.fromkeys(_name(variable) if variable else ())
    assigned = values_of(text, list(names)[:_MAX_NAMES])
    forms: dict[int, str] = {}
    for word in words:
        image = _expand(word["image"], assigned)
        if _EACH_VARIABLE.search(image):
            continue
        tag = word["tag"]
        if not _EACH_VARIABLE.search(tag) and image != word["image"]:
            yield SplitTag(*word.span("tag"), image, tag, "{tag}")
        parts = list(_parts_of_tag(text, word, assigned))
        if any(forms.setdefault(start, form) != form for start, _, form in parts):
            continue  # a tag of another form has a value too
        for start, value, form in parts:
            tag = _expand(word["tag"], assigned) if ANY in form else compose(form, value)
            yield SplitTag(start, start + len(value), image, tag, form)
        for start, digest in _values(_AT_VARIABLE.match(text, word.end()), assigned):
            yield SplitTag(start, start + len(digest), image, tag, "{digest}", digest)


def of_last_names(text: str) -> Iterator[SplitTag]:
    """Yield the tags of images in variables that have the last part of the name too, such as ``pytorch:26.04``."""
    words = list(_FOLDER.finditer(text))
    assigned = values_of(text, {name for word in words for name in _NAME.findall(word["variable"])})
    for word in words:
        for start, value in _values(_EACH_VARIABLE.match(text, word.start("variable")), assigned):
            name, _, part = value.partition(":")
            if part:
                form = form_around("", part, word["rest"])
                begin = start + len(name) + 1
                yield SplitTag(begin, begin + len(part), word["folder"] + name, compose(form, part), form)


def _parts_of_tag(
    text: str, word: re.Match[str], assigned: Mapping[str, Sequence[VariableValue]]
) -> Iterator[tuple[int, str, str]]:
    """Yield start and text of the values that are a part of a word's tag, with the form of the tag around each."""
    parts = list(_PART_OF_TAG.finditer(text, *word.span("tag")))
    values = [_values_of_part(part, assigned) for part in parts]
    many = [index for index, of_one in enumerate(values) if of_one and _MANY.search(of_one[0][1])]
    together = len(many) > 1 and all(len(values[index]) == 1 for index in many)
    chosen = many if together else many[:1] or [index for index, of_one in enumerate(values) if of_one][:1]
    for index in chosen if any(part["variable"] for part in parts) else ():
        around, end = [""], word.start("tag")
        for other, part in enumerate(parts):
            around[-1] += text[end : part.start()]
            end = part.end()
            if other == index:
                around.append("")
            else:
                around[-1] += ANY if together and other in many else _expand(part[0], assigned)
        around[-1] += text[end : word.end("tag")]
        if not any(map(_EACH_VARIABLE.search, around)) and (together or not _AFTER_VERSION.match(around[0])):
            for start, value in values[index]:
                yield start, value, form_around(around[0], value, around[1])


def _values_of_part(part: re.Match[str], assigned: Mapping[str, Sequence[VariableValue]]) -> Sequence[tuple[int, str]]:
    """Return the values of a variable, or the version that stands in place of one, each with its start."""
    return list(_values(part, assigned)) if part["variable"] else [(part.start(), part[0])]


def _is_composed(text: str, word: re.Match[str]) -> bool:
    """Return True if a variable is a part of the image or of its tag, or stands in place of its digest."""
    return bool(_EACH_VARIABLE.search(word[0]) or _AT_VARIABLE.match(text, word.end()))


def _name(variable: re.Match[str]) -> tuple[str, ...]:
    match = _NAME.search(variable[0])
    return (match[1],) if match else ()


def _values(
    variable: re.Match[str] | None, assigned: Mapping[str, Sequence[VariableValue]]
) -> Iterator[tuple[int, str]]:
    """Yield start and text of the values of a variable: those that the file assigns to it, and its default in place."""
    if variable is None:
        return
    starts = set[int]()
    for name in _name(variable):
        for value in assigned.get(name, ()):
            starts.add(value.start)
            yield value
    default = _DEFAULT.search(variable[0])
    if default and variable.start() + default.start("value") not in starts:
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
        if key["key"].lower() in ("digest", "imagedigest"):
            return _DIGEST_VALUE.match(text, key.end())
    return None


def _expand(image: str, assigned: Mapping[str, Sequence[VariableValue]]) -> str:
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
        if "." not in image.partition("/")[0] and not {_registry(text, key) for key in neighbours} <= {"", DOCKER_HUB}:
            continue
        if _FOLDER_KEY.fullmatch(own["key"]):
            image += _last_name(text, neighbours, ("image", "name") if image.count("/") == 1 else ("image",))
        for key in neighbours:
            value = _TAG_VALUE.match(text, key.end())
            if value and (_TAG_KEY.fullmatch(key["key"]) or _has_same_beginning(own["key"], key["key"])):
                yield SplitTag(*value.span("value"), image, value["value"], "{tag}")
                break


def of_named_values(text: str) -> Iterator[SplitTag]:
    """Yield the tags among values with a name beside them, whose image is the value of a similar name."""
    values = list(_NAMED_VALUE.finditer(text))
    for index, image in enumerate(values):
        if "/" not in image["value"]:
            continue
        for tag in (*values[index + 1 : index + _NEAR], *reversed(values[max(index - _NEAR, 0) : index])):
            if _has_same_beginning(image["key"], tag["key"]):
                yield SplitTag(*tag.span("value"), image["value"], tag["value"], "{tag}")
                break


def of_names(text: str, untagged: Sequence[tuple[int, int, str]]) -> Iterator[SplitTag]:
    """Yield the tags that are the values of keys with the name of an image."""
    for _, end, image in untagged:
        if tag := _AFTER_NAME.match(text, end):
            yield SplitTag(*tag.span("value"), image, tag["value"], "{tag}")


def _has_same_beginning(image_key: str, tag_key: str) -> bool:
    """Return True for the keys of an image and of its tag that differ in their last word alone."""
    if not _TAG_ENDING.search(tag_key):
        return False
    return _IMAGE_ENDING.sub("", image_key).lower() == _TAG_ENDING.sub("", tag_key).lower()


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
    """Yield start, end and name of the images whose registry is the value of a neighbouring key, or of a Helm chart."""
    is_chart = False
    for own, neighbours in _registries(text):
        if own["key"] == "imageRegistry" and own["indent"]:
            is_chart = True
            continue
        for key in neighbours:
            value = _PATH_VALUE.match(text, key.end())
            if value and "/" in value["value"] and _NAME_KEY.fullmatch(key["key"]):
                yield *value.span("value"), f"{NGC_HOST}/{value['value']}"
                break
    if is_chart:
        yield from _of_chart(text)


def of_tags_beside_registries(text: str) -> Iterator[SplitTag]:
    """Yield the tags of images whose registry a neighbouring key names: ``From: nvidia/pytorch:26.04-py3``."""
    for _, neighbours in _registries(text):
        for key in neighbours:
            value = _PATH_WITH_TAG.match(text, key.end())
            if value and (_NAME_KEY.fullmatch(key["key"]) or key["key"].lower() == "from"):
                path = value["path"]
                if "/" not in path:
                    path = _in_namespace(text, path, neighbours)
                if path:
                    yield SplitTag(*value.span("value"), f"{NGC_HOST}/{path}", value["value"], "{tag}")
                break


def _in_namespace(text: str, name: str, keys: Sequence[re.Match[str]]) -> str:
    """Return the name with the namespace in the same header of a container definition; empty if there is none."""
    values = [_PATH_VALUE.match(text, key.end()) for key in keys if key["key"].lower() == "namespace"]
    return next((f"{value['value']}/{name}" for value in values if value), "")


def _registries(text: str) -> Iterator[tuple[re.Match[str], list[re.Match[str]]]]:
    """Yield the keys with NGC's registry as their value, and their neighbours."""
    for match in _HOST_VALUE.finditer(text):
        begin = text.rfind("\n", 0, match.start()) + 1
        own = _KEY.match(text, begin)
        if own and own.end() == match.start() and _REGISTRY_KEY.fullmatch(own["key"]):
            yield own, list(_neighbours(text, begin, len(own["indent"])))


def _of_chart(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the images of a Helm chart's values that have no registry of their own beside ``global.imageRegistry``."""
    for repository in re.finditer(r"(?m)^(?P<indent>[ \t]*)repository:[ \t]{0,20}", text):
        value = _PATH_VALUE.match(text, repository.end())
        if value is None or "/" not in value["value"] or "." in value["value"].partition("/")[0]:
            continue
        keys = _neighbours(text, repository.start(), len(repository["indent"]))
        if not any(_registry(text, key) for key in keys):
            yield *value.span("value"), f"{NGC_HOST}/{value['value']}"


def _registry(text: str, key: re.Match[str]) -> str:
    """Return the value of a key for a registry; empty for other keys."""
    value = re.compile(r"[\"']?([\w.:-]{0,200})").match(text, key.end())
    return value[1] if value and _REGISTRY_KEY.fullmatch(key["key"]) else ""


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
