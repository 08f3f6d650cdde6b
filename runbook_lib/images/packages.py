"""The pip and dpkg packages of an image, and the differences between two images.

They come from an SBOM (SPDX, CycloneDX or syft's JSON) or from the package databases of the layers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from runbook_lib.errors import CannotTell
from runbook_lib.text.lists import shorten
from runbook_lib.text.markdown import code

#: Kind (``pip`` or ``dpkg``) and name → the versions, sorted: several environments may each have one.
Inventory: TypeAlias = Mapping[tuple[str, str], tuple[str, ...]]

DPKG_STATUS = "var/lib/dpkg/status"
_KINDS = {"pypi": "pip", "python": "pip", "deb": "dpkg"}  # the type in a package URL, or syft's → kind
_METADATA = re.compile(r"(?:[^/]+/)*(?:dist|site)-packages/[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO)")
_MOST = 200_000  # packages in one SBOM
_MAX_TEXT = 120  # characters of a name or a version
_DEPTH = 20  # components inside components, as CycloneDX allows


@dataclass(frozen=True)
class LayerDatabase:
    """The package databases in one layer, and the paths that the layer removes from the layers below.

    ``dpkg``: name → version, None if the layer does not have that database.  ``pip``: path → name and version.
    ``opaque``: the folders whose content in lower layers is hidden.
    """

    dpkg: Mapping[str, str] | None = None
    pip: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    opaque: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PackageSource:
    """The packages of one image, and where they were read.

    ``unread``: the reason for each layer that was not read; ``layers``: the number of all layers, 0 for an SBOM.
    """

    image: str
    origin: str
    packages: Inventory
    layers: int = 0
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class PackageComparison:
    """Two images' packages.  ``received``: bytes read from the registry, ``size``: the bytes of both images."""

    old: PackageSource
    new: PackageSource
    received: int = 0
    size: int = 0

    def rows(self) -> list[dict[str, str]]:
        """Return one row per package that differs.

        A package found in only one image is ``new`` or ``gone`` if the other was read completely, else ``unclear``.
        """
        rows = []
        for key in sorted(self.old.packages.keys() | self.new.packages.keys()):
            old, new = (", ".join(side.packages.get(key, ())) for side in (self.old, self.new))
            change = "changed"
            if not old:
                change = "unclear" if self.old.unread else "new"
            elif not new:
                change = "unclear" if self.new.unread else "gone"
            if old != new:
                rows.append({"kind": key[0], "package": key[1], "old": old, "new": new, "change": change})
        return rows

    def as_json(self) -> dict[str, object]:
        """Return the comparison for machines."""
        document: dict[str, object] = {"bytes_read": self.received, "bytes_of_images": self.size}
        for name, side in (("old", self.old), ("new", self.new)):
            document[name] = {
                "image": side.image, "source": side.origin, "packages": len(side.packages),
                "layers": side.layers, "unread": list(side.unread),
            }  # fmt: skip
        return document | {"differences": self.rows()}

    def markdown(self) -> str:
        """Return the table of differences, and the parts that were not read."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if rows := self.rows():
            yield f"| package | {code(self.old.image)} | {code(self.new.image)} | |"
            yield "| --- | --- | --- | --- |"
        else:
            yield "No difference between the packages that were read."
        for row in rows:
            old, new = (row[side] and code(shorten(row[side], _MAX_TEXT)) for side in ("old", "new"))
            yield f"| {code(row['package'])} ({row['kind']}) | {old} | {new} | {row['change']} |"
        yield ""
        for side in (self.old, self.new):
            yield f"- {code(side.image)}: {len(side.packages)} packages from {side.origin}."
            if side.unread:
                yield f"- {len(side.unread)} of {side.layers} layers of {code(side.image)} were not read: "
                yield from (f"  - {reason}" for reason in sorted(set(side.unread)))
        if self.size:
            share = f"{self.received / self.size:.1%}"
            yield f"- {self.received:,} bytes were read from the registry, {share} of the images."
        if any(row["change"] == "unclear" for row in rows):
            yield "- *unclear*: the other image may have it in a layer that was not read; `--all` reads every layer."


def is_metadata(path: str) -> bool:
    """Return True if a path is the metadata of a pip package."""
    return _METADATA.fullmatch(path) is not None


def parse_metadata(text: str) -> tuple[str, str] | None:
    """Return name and version in a pip package's metadata, or None."""
    values = _fields(text)
    if values.get("name") and values.get("version"):
        return canonicalize_name(values["name"]), values["version"]
    return None


def parse_dpkg(text: str) -> dict[str, str]:
    """Return name → version of the installed packages in dpkg's database."""
    packages = {}
    for paragraph in text.split("\n\n"):
        values = _fields(paragraph)
        if values.get("package") and values.get("version") and values.get("status", "").endswith(" installed"):
            packages[values["package"]] = values["version"]
    return packages


def _fields(text: str) -> dict[str, str]:
    """Return the first value of each field until the first empty line."""
    values: dict[str, str] = {}
    for line in text.lstrip("\n").split("\n"):
        if not line.strip():
            break
        name, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            values.setdefault(name.lower(), value.strip()[:_MAX_TEXT])
    return values


def merge(layers: Iterable[LayerDatabase]) -> Inventory:
    """Return the packages of an image from its layers, lowest first."""
    dpkg: Mapping[str, str] = {}
    pip: dict[str, tuple[str, str]] = {}
    for layer in layers:
        pip = {path: package for path, package in pip.items() if not _hides(layer, path)}
        pip |= layer.pip
        if _hides(layer, DPKG_STATUS):
            dpkg = {}
        if layer.dpkg is not None:
            dpkg = layer.dpkg
    pairs = [(("pip", name), version) for name, version in pip.values()]
    return _inventory([*pairs, *((("dpkg", name), version) for name, version in dpkg.items())])


def _hides(layer: LayerDatabase, path: str) -> bool:
    """Return True if the layer removes a path of the layers below it."""
    parts = path.split("/")
    folders = ["/".join(parts[:length]) for length in range(len(parts))]
    return not layer.opaque.isdisjoint(folders) or not layer.removed.isdisjoint([*folders, path])


def of_document(document: object) -> Inventory:
    """Return the packages of an SBOM: SPDX or CycloneDX, also in an in-toto statement, or syft's JSON.

    Raises CannotTell for any other document.
    """
    if isinstance(document, dict) and isinstance(document.get("predicate"), dict):
        document = document["predicate"]
    if isinstance(document, dict) and isinstance(document.get("packages"), list):
        return _inventory(_spdx(document["packages"]))
    if isinstance(document, dict) and isinstance(document.get("artifacts"), list):
        return _inventory(_syft(document["artifacts"]))
    if isinstance(document, dict) and document.get("bomFormat") == "CycloneDX":
        return _inventory(_cyclonedx(document.get("components"), _DEPTH))
    raise CannotTell("This is not a readable SBOM: expected JSON of SPDX 2, CycloneDX or syft.")


def _spdx(packages: Sequence[Any]) -> Iterator[tuple[tuple[str, str], str]]:
    for package in _objects(packages):
        for reference in _objects(package.get("externalRefs")):
            yield from _purl(reference.get("referenceLocator"), package.get("versionInfo"))


def _syft(artifacts: Sequence[Any]) -> Iterator[tuple[tuple[str, str], str]]:
    for artifact in _objects(artifacts):
        kind = _KINDS.get(str(artifact.get("type")))
        name, version = artifact.get("name"), artifact.get("version")
        if kind and isinstance(name, str) and isinstance(version, str):
            yield (kind, name), version


def _cyclonedx(components: object, depth: int) -> Iterator[tuple[tuple[str, str], str]]:
    for component in _objects(components):
        yield from _purl(component.get("purl"), component.get("version"))
        if depth:
            yield from _cyclonedx(component.get("components"), depth - 1)


def _objects(values: object) -> list[dict[str, Any]]:
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, dict)]


def _purl(text: object, version: object) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the package of a package URL, such as pkg:deb/ubuntu/libc6@2.39?arch=amd64, if it is of a known kind."""
    if not isinstance(text, str) or not text.startswith("pkg:"):
        return
    path = text.removeprefix("pkg:").partition("#")[0].partition("?")[0]
    path, _, in_url = path.partition("@")
    kind, name = _KINDS.get(path.partition("/")[0]), unquote(path.rpartition("/")[2])
    known = unquote(in_url) or version
    if kind and name and known and isinstance(known, str):
        yield (kind, name), known


def _inventory(pairs: Iterable[tuple[tuple[str, str], str]]) -> Inventory:
    versions: dict[tuple[str, str], set[str]] = {}
    for number, ((kind, name), version) in enumerate(pairs):
        if number >= _MOST:
            raise CannotTell(f"There are more than {_MOST:,} packages, which no image has.")
        if kind == "pip":
            name = canonicalize_name(name)
        versions.setdefault((kind, name[:_MAX_TEXT]), set()).add(version[:_MAX_TEXT])
    return {key: tuple(sorted(values)) for key, values in versions.items()}
