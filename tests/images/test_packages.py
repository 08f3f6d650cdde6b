"""The packages of an image: from documents, from databases in layers, and how two images differ."""

import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.images.packages import (
    DPKG_STATUS,
    LayerDatabase,
    PackageComparison,
    PackageSource,
    is_metadata,
    merge,
    of_document,
    parse_dpkg,
    parse_metadata,
)

TORCH, LIBC = ("pip", "torch"), ("dpkg", "libc6")
SPDX = {
    "packages": [
        {"externalRefs": [{"referenceLocator": "pkg:pypi/Torch@2.10.0%2Bcu13"}]},
        {"externalRefs": [{"referenceLocator": "pkg:deb/ubuntu/libc6@2.39-0?arch=amd64&distro=ubuntu"}]},
        {"externalRefs": [{"referenceLocator": "pkg:npm/left-pad@1"}], "name": "left-pad"},
        {"externalRefs": None},
        7,
    ]
}
BOTH = {TORCH: ("2.10.0+cu13",), LIBC: ("2.39-0",)}


@pytest.mark.parametrize(
    ("document", "packages"),
    [
        ({"packages": []}, {}),
        ({"artifacts": []}, {}),
        ({"bomFormat": "CycloneDX"}, {}),
        (SPDX, BOTH),
        ({"predicateType": "https://spdx.dev/Document", "predicate": SPDX}, BOTH),
        (
            {"bomFormat": "CycloneDX", "components": [{"components": [{"purl": "pkg:pypi/torch", "version": "2"}]}]},
            {TORCH: ("2",)},
        ),
        (
            {"artifacts": [{"type": "python", "name": "Torch", "version": "2"}, {"type": "gem", "name": "a"}]},
            {TORCH: ("2",)},
        ),
    ],
)
def test_an_sbom_is_read_in_each_format(document: object, packages: object) -> None:
    assert of_document(document) == packages


@pytest.mark.parametrize("document", [None, [], "text", {}, {"bomFormat": "other"}, {"predicate": {}}])
def test_another_document_is_refused(document: object) -> None:
    with pytest.raises(CannotTell, match="SBOM"):
        of_document(document)


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("", {}),
        ("Package: a\nStatus: deinstall ok config-files\nVersion: 1\n", {}),
        (
            "Package: a\nStatus: install ok installed\nVersion: 1\nDescription: x\n Version: 9\n\n\nPackage: b\n",
            {"a": "1"},
        ),
    ],
)
def test_dpkg_lists_what_is_installed(text: str, packages: object) -> None:
    assert parse_dpkg(text) == packages


def test_metadata_ends_at_its_first_empty_line() -> None:
    assert parse_metadata("Name: My_Pkg\nVersion: 1.2\n\nName: other\n") == ("my-pkg", "1.2")
    assert parse_metadata("Name: x\n\nVersion: 1\n") is None


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("usr/lib/python3/dist-packages/a-1.dist-info/METADATA", True),
        ("opt/v/lib/site-packages/a-1.egg-info/PKG-INFO", True),
        ("usr/lib/python3/dist-packages/a/METADATA", False),
        ("srv/a-1.dist-info/METADATA", False),
    ],
)
def test_metadata_is_known_by_its_path(path: str, is_one: bool) -> None:
    assert is_metadata(path) == is_one


PATH = "usr/lib/python3/dist-packages/torch-2.dist-info/METADATA"
BASE = LayerDatabase({"libc6": "1"}, {PATH: ("torch", "2")})


@pytest.mark.parametrize(
    ("upper", "packages"),
    [
        (LayerDatabase(), {TORCH: ("2",), LIBC: ("1",)}),
        (LayerDatabase(removed=frozenset({"usr/lib/python3"}), dpkg={"libc6": "2"}), {LIBC: ("2",)}),
        (LayerDatabase(removed=frozenset({PATH.removesuffix("/METADATA"), DPKG_STATUS})), {}),
        (LayerDatabase(opaque=frozenset({"usr/lib"})), {LIBC: ("1",)}),
        (LayerDatabase(opaque=frozenset({""})), {}),
        (LayerDatabase(pip={"x": ("torch", "3")}), {TORCH: ("2", "3"), LIBC: ("1",)}),
    ],
)
def test_layers_are_applied_in_order(upper: LayerDatabase, packages: object) -> None:
    assert merge([BASE, upper]) == packages


@pytest.mark.parametrize(
    ("unread", "changes"),
    [((), {"a": "gone", "b": "changed", "c": "new"}), (("x",), {"a": "unclear", "b": "changed", "c": "new"})],
)
def test_a_package_is_removed_only_if_everything_was_read(unread: tuple[str, ...], changes: object) -> None:
    old = PackageSource("old", "layers", {("pip", "a"): ("1",), ("pip", "b"): ("1",), ("pip", "d"): ("1",)}, 1)
    new = PackageSource("new", "layers", {("pip", "b"): ("2",), ("pip", "c"): ("1",), ("pip", "d"): ("1",)}, 1, unread)
    rows = PackageComparison(old, new).rows()
    assert {row["package"]: row["change"] for row in rows} == changes
