"""The references to images of the known families in a text, wherever the name stands plainly.

Found are the name as it is published (``nvcr.io/nvidia/pytorch``), in enroot's spelling too (``nvcr.io#nvidia/…``),
the same path at a registry that mirrors it, be that a host or a variable, and the path alone where a tag of the family
follows.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import FAMILIES, AnyFamily
from runbook_lib.images.reference import ImageRef, Tag

_KNOWN: dict[str, tuple[str, AnyFamily]] = {
    path: (host, family) for family in FAMILIES for host, _, path in (image.partition("/") for image in family.images)
}
#: What to search for: every reference holds one of these, none of which holds another.
SEARCHED = tuple(path for path in _KNOWN if not any(other in path for other in _KNOWN if other != path))
_PATH = re.compile(
    rf"(?P<path>{'|'.join(map(re.escape, sorted(_KNOWN, key=len, reverse=True)))})(?!/?[A-Za-z0-9_]|[.-]+[A-Za-z0-9_])"
    r"(?::(?:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})(?![A-Za-z0-9_/-]|\.[A-Za-z0-9_])(?P<more>[${<]?)|(?P<variable>[$<{\\%\[*+'\"&|(])))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?"
)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:(?:{_LABEL}\.)+{_LABEL}(?::[0-9]+)?|{_LABEL}:[0-9]+|localhost)"
_VARIABLE = r"(?:\$\{\{[^{}\n]*\}\}|\$\{[^{}\n]*\}|\$\([^()\n]*\)|\$\w+|\{[^{}\n]*\}|<[^<>\s]+>)"
_REGISTRY = re.compile(
    rf"(?:(?P<scheme>[a-z][a-z0-9+.-]*):(?=//))?(?:(?<!:)//|(?<=:)//|(?<![\w.$#/:-]))"
    rf"(?P<registry>{_HOST}|{_VARIABLE})(?P<middle>(?:[/#][A-Za-z0-9][A-Za-z0-9._-]*)*)[/#]$"
)
_BEFORE = 255  # characters that a registry and what follows it may have, by the reference package of distribution
_OF_IMAGES = frozenset({None, "docker", "oci", "oras", "dockerd", "docker-daemon"})
_OF_CODE = frozenset({"github.com", "gitlab.com", "huggingface.co", "hf.co", "bitbucket.org"})


@dataclass(frozen=True)
class Reference:
    """A place in a text that names an image of a family; ``text[start:end]`` is what stands there.

    ``image``: registry and path, the registry empty where none stands; ``tag`` and ``digest`` are empty where there is
    none, and ``variable`` says that a variable or a placeholder stands in the tag's place.  ``line`` counts from 1,
    ``column`` from 0.
    ``official``: it is at the registry that publishes it.
    """

    start: int
    end: int
    line: int
    column: int
    image: str
    tag: str
    digest: str
    variable: bool
    official: bool
    family: AnyFamily

    @cached_property
    def read_tag(self) -> Tag | None:
        """The tag as its family understands it; None where there is none, or only a part of one."""
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


def references(text: str) -> Iterator[Reference]:
    """All references in a text, in order.  Lines end at line feeds alone, as they do for git."""
    breaks: list[int] = []
    last = 0  # where the reference before ended: what belongs to it names no registry of this one
    for match in _PATH.finditer(text):
        host, family = _KNOWN[match["path"]]
        begin = max(text.rfind("\n", last, match.start()) + 1, match.start() - _BEFORE, last)
        before = text[begin : match.start()]
        tag = (match["tag"] or "").rstrip(".-")
        registry = _registry(before, host)
        if registry is None:
            continue
        if not breaks:
            breaks = [-1, *(match.start() for match in re.finditer("\n", text))]
        start = match.start() - len(registry)
        line = bisect_right(breaks, start)
        found = Reference(
            start=start,
            end=match.end("digest") if match["digest"] else match.start("tag") + len(tag) if tag else match.end("path"),
            line=line,
            column=start - breaks[line - 1] - 1,
            image=registry.replace("#", "/") + match["path"],
            tag=tag,
            digest=match["digest"] or "",
            variable=bool(match["more"] or match["variable"]),
            official=registry.replace("#", "/") == f"{host}/",
            family=family,
        )
        if registry or found.read_tag is not None:
            last = found.end
            yield found


def _registry(before: str, host: str) -> str | None:
    """Return the registry at the end of ``before``, with the sign that ends it; None if this is no image's name."""
    match = _REGISTRY.search(before)
    if match is None:
        if before.endswith((f"{host}/", f"{host}#")):
            return before[-len(host) - 1 :]  # after a sign that no registry is expected to follow
        return "" if not before or not re.search(r"[\w./:#@\\$%>)}~-]$", before) else None
    registry = before[match.start("registry") :]
    if registry[:-1] == host:
        return registry
    if match["scheme"] not in _OF_IMAGES or match["registry"] in _OF_CODE:
        return f"{host}/" if registry.endswith(f"/{host}/") else None
    return registry
