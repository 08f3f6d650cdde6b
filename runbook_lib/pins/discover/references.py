"""The references to images of the known families in a text.

A reference is the published name (``nvcr.io/nvidia/pytorch``), also in enroot's notation (``nvcr.io#nvidia/…``), the
same path at a mirror, which is a host or a variable, or the path alone if a tag of the family follows, which means
Docker Hub for an image that is there.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import CUDA, DOCKER_HUB, FAMILIES, NGC, NGC_HOST, NUMBERED, AnyFamily
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.pins.discover.split_tags import (
    digest_beside,
    of_annotations,
    of_inline,
    of_keys,
    of_last_names,
    of_named_values,
    of_names,
    of_registries,
    of_tags_beside_registries,
    of_variables,
)

#: Path → host and family.
_KNOWN: dict[str, tuple[str, AnyFamily]] = {}
_AT_HUB = set[str]()  # paths of images that a name without a registry may mean
for _family in (*FAMILIES, CUDA):
    for _image in _family.images:
        _host, _, _path = _image.partition("/")
        _KNOWN.setdefault(_path, (_host, _family))
        if _host == DOCKER_HUB:
            _AT_HUB.add(_path)
#: Texts to search for: every reference's file has one of these, none of which contains another.  The last ones begin
#: the names of images and files that were made of PyTorch's image of a month.
SEARCHED = (
    NGC_HOST,
    *(path for path in _KNOWN if not any(part in path for part in _KNOWN if part != path)),
    *("pytorch2", "pytorch-2", "pytorch_2", "pytorch+2"),
)
_AT_NGC = rf"(?<={re.escape(NGC_HOST)}[/#])(?P<unknown>[a-z0-9]+(?:[._/-]+[a-z0-9]+){{0,20}})"
_PATH = re.compile(
    rf"(?:(?P<path>{'|'.join(map(re.escape, sorted(_KNOWN, key=len, reverse=True)))})|{_AT_NGC})"
    r"(?!/?[A-Za-z0-9_]|[.-]+[A-Za-z0-9_])"
    r"(?::(?:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})(?![A-Za-z0-9_/-]|\.[A-Za-z0-9_])(?P<more>[${]|<(?!/))?|(?P<variable>[$<{\\%\[*+'\"&|(])))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?"
)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:(?:{_LABEL}\.)+{_LABEL}(?::[0-9]+)?|{_LABEL}:[0-9]+|localhost)"
# In ``registry-vpc.{region}.example.com`` one label is a placeholder.
_VARIABLE = r"(?:\$\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}|\$\([^()\n]*\)|\$\w+|\{[^{}\n]*\}|<[^<>\s]+>)"
_REGISTRY = re.compile(
    rf"(?:(?P<scheme>[a-z][a-z0-9+.-]*):(?=//))?(?:(?<!:)//|(?<=:)//|(?<![\w.$#/:-]))"
    rf"(?P<registry>{_HOST}|(?:(?:{_LABEL}\.)+{_VARIABLE}(?:\.{_LABEL})+|{_VARIABLE}))(?P<middle>(?:[/#][A-Za-z0-9][A-Za-z0-9._-]*)*)[/#]$"
)
#: The tag of a monthly image on its own, or within the name of an image that was made from it.
MONTHLY_TAG = re.compile(
    r"(?<![0-9.])[0-9]{2}\.(?:0[1-9]|1[0-2])-py3(?![A-Za-z0-9_]|\.(?!(?:sqsh|sif|simg)\b|\s|\Z)|-(?:igpu|min)\b)"
)
_BEFORE_DEFAULT = re.compile(r".*\$\{\w{1,60}:?[-=](?=[^}]*\Z)", re.DOTALL)
_NAMES_IMAGE = re.compile(r"(?<![A-Za-z0-9])pytorch[-_+]?$")
_BEFORE = 255  # characters of registry and path, by the reference package of distribution
_OF_IMAGES = frozenset({None, "docker", "oci", "oras", "dockerd", "docker-daemon"})
_OF_CODE = frozenset({"github.com", "gitlab.com", "huggingface.co", "hf.co", "bitbucket.org"})


@dataclass(frozen=True)
class Reference:
    """An image of a family named at ``text[start:end]``; ``line`` counts from 1, ``column`` from 0.

    ``image``: registry and path, or the path alone; ``tag`` and ``digest`` may be empty; ``variable``: a variable or a
    placeholder stands in place of the tag.  ``form``: the text is only a part of the tag, which is in braces in this
    form; the file names the image elsewhere.
    """

    start: int
    end: int
    line: int
    column: int
    image: str
    tag: str
    digest: str
    variable: bool
    family: AnyFamily
    form: str = ""

    @cached_property
    def read_tag(self) -> Tag | None:
        """The tag as its family reads it; None if there is none, or only a part of one."""
        if not self.tag or self.variable:
            return None
        try:
            return self.family.read(self.tag)
        except RunbookError:
            return None

    @property
    def complete(self) -> bool:
        """True if registry and path are written out."""
        try:
            return ImageRef.parse(self.image).name == self.image
        except RunbookError:
            return False

    def __str__(self) -> str:
        return f"{self.image}{self.tag and ':' + self.tag}{self.digest and '@' + self.digest}"


def references(text: str, bare: str = "") -> Iterator[Reference]:
    """Yield all references in a text, in order.  Lines end at line feeds alone, as they do for git.

    ``bare``: the image that monthly tags without a name are of, in a text that need not name it.
    """
    line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
    found = list(_named(text, line_starts))
    split = list(_split(text, line_starts, found))
    # Where the file has the registry of a reference, the tag in it is a pin.
    starts = sorted(reference.start for reference in split)
    found = [reference for reference in found if _is_definite(reference) or not _holds(reference, starts)] + split
    # The bare name of an image that we do not know says nothing on its own.
    unnamed = [NUMBERED, CUDA]
    found = [reference for reference in found if reference.tag or reference.family not in unnamed]
    names_image = any(reference.family is NGC for reference in found)
    spans = sorted((reference.start, reference.end) for reference in found)
    found += _parts(text, line_starts, spans, bare or NGC.images[0], names_image=names_image or bool(bare))
    found += list(_digests(text, line_starts, found))
    yield from sorted(found, key=lambda reference: reference.start)


def _is_definite(reference: Reference) -> bool:
    """Return True if the text itself names registry and tag, so that neither a key beside it nor a variable does."""
    is_bare = reference.form and reference.image.startswith(f"{DOCKER_HUB}/")
    return reference.complete and not is_bare and not reference.variable


def _holds(reference: Reference, starts: Sequence[int]) -> bool:
    """Return True if one of the sorted offsets is within the reference."""
    index = bisect_left(starts, reference.start)
    return index < len(starts) and starts[index] < reference.end


def _split(text: str, line_starts: list[int], named: list[Reference]) -> Iterator[Reference]:
    """Yield the parts of tags outside of the ``named`` references, each once."""
    untagged = list(of_registries(text))
    untagged += [
        (one.start, one.end, one.image) for one in named if not one.tag and not one.digest and not one.variable
    ]
    taken = sorted((reference.start, reference.end) for reference in named if _is_definite(reference))
    seen = set[int]()
    for split in (
        *of_annotations(text), *of_variables(text), *of_last_names(text), *of_inline(text), *of_keys(text, untagged),
        *of_named_values(text), *of_names(text, untagged), *of_tags_beside_registries(text),
    ):  # fmt: skip
        image = f"{DOCKER_HUB}/{split.image}" if split.image in _AT_HUB else split.image
        path = image.partition("/")[2]
        host, family = _KNOWN.get(path, (NGC_HOST, NUMBERED))
        index = bisect_right(taken, (split.start, len(text))) - 1
        if (
            (not image.startswith(f"{host}/") and image not in family.images)
            or "/" not in path  # a folder of images
            or split.start in seen
            or (index >= 0 and split.start < taken[index][1])
        ):
            continue
        line = bisect_right(line_starts, split.start)
        column = split.start - line_starts[line - 1]
        reference = Reference(
            split.start,
            split.end,
            line,
            column,
            image,
            split.tag,
            split.digest,
            variable=False,
            family=family,
            form=split.form,
        )
        if reference.read_tag is not None:
            seen.add(split.start)
            yield reference


def _digests(text: str, line_starts: list[int], found: list[Reference]) -> Iterator[Reference]:
    """Yield the digests apart from the image that stand beside a tag."""
    for tag in found:
        if tag.form and not tag.digest and (digest := digest_beside(text, tag.start, tag.end)):
            start, end = digest.span("value")
            line = bisect_right(line_starts, start)
            yield replace(
                tag, start=start, end=end, line=line, column=start - line_starts[line - 1],
                digest=digest["value"], form="{digest}",
            )  # fmt: skip


def _parts(
    text: str, line_starts: list[int], spans: list[tuple[int, int]], image: str, *, names_image: bool
) -> Iterator[Reference]:
    """Yield the monthly tags of ``image`` outside of ``spans``, the spans of the references that name it.

    In a text that does not name the image elsewhere, those are tags in names that begin like the image's.
    """
    family = _KNOWN.get(image.partition("/")[2], ("", NUMBERED))[1]
    for match in MONTHLY_TAG.finditer(text):
        index = bisect_right(spans, (match.start(), len(text))) - 1
        if index >= 0 and match.start() < spans[index][1]:
            continue
        line = bisect_right(line_starts, match.start())
        before = text[max(line_starts[line - 1], match.start() - _BEFORE) : match.start()]
        if before.endswith(":") and "pytorch" not in re.split(r"[^\w./-]", before[:-1])[-1]:
            continue  # the tag of another image
        if not names_image and not _NAMES_IMAGE.search(before):
            continue
        column = match.start() - line_starts[line - 1]
        yield Reference(*match.span(), line, column, image, match[0], "", variable=False, family=family, form="{tag}")


def _named(text: str, line_starts: list[int]) -> Iterator[Reference]:
    previous_end = 0  # the registry of a reference is not part of the reference before it
    for match in _PATH.finditer(text):
        path = match["path"] or match["unknown"]
        host, family = _KNOWN.get(path, (NGC_HOST, NUMBERED))
        begin = max(text.rfind("\n", previous_end, match.start()) + 1, match.start() - _BEFORE, previous_end)
        registry = _registry(text[begin : match.start()], host)
        if registry is None or (match["unknown"] and not f"/{registry[:-1]}".endswith(f"/{NGC_HOST}")):
            continue
        tag = (match["tag"] or "").rstrip(".-")
        end = match.start() + len(path)
        if match["digest"]:
            end = match.end("digest")
        elif tag:
            end = match.start("tag") + len(tag)
        start, form, digest = match.start() - len(registry), "", match["digest"] or ""
        if tag and not registry and path in _AT_HUB:
            registry = f"{DOCKER_HUB}/"
            start, end, form, digest = match.start("tag"), match.start("tag") + len(tag), "{tag}", ""
        elif "#" in registry and tag and not digest:
            start, form = match.start("tag"), "{tag}"  # enroot's notation is not an OCI reference
        line = bisect_right(line_starts, start)
        reference = Reference(
            start=start,
            end=end,
            line=line,
            column=start - line_starts[line - 1],
            image=registry.replace("#", "/") + path,
            tag=tag,
            digest=digest,
            variable=bool(match["more"] or match["variable"]),
            family=family,
            form=form,
        )
        is_named = bool(registry and match["path"]) or (path in _AT_HUB and not reference.tag and not digest)
        if reference.read_tag is not None or is_named or match["unknown"]:
            previous_end = reference.end
            yield reference


def _default_start(before: str) -> int:
    """Return the offset after an open ``${NAME-``, ``${NAME:-`` or ``${NAME:=``, which no registry begins before."""
    match = _BEFORE_DEFAULT.match(before)
    return match.end() if match else 0


def _registry(before: str, host: str) -> str | None:
    """Return the registry at the end of ``before``, with the sign that ends it; None if this is not an image name."""
    before = before[_default_start(before) :]
    if before.endswith(("docker://", "docker-image://")):
        return ""
    match = _REGISTRY.search(before)
    if match is None and before.endswith((f"{host}/", f"{host}#")):
        return before[-len(host) - 1 :]  # after a sign that no registry is expected to follow
    if match is None:
        return None if re.search(r"[\w./:#@\\$%>)}~-]$", before) else ""
    registry = before[match.start("registry") :]
    if registry[:-1] == host:
        return registry
    if match["scheme"] not in _OF_IMAGES or match["registry"] in _OF_CODE:
        return f"{host}/" if registry.endswith(f"/{host}/") else None
    return registry
