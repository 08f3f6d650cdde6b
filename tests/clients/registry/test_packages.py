"""Packages of images in a registry: SBOMs, layers by budget, hostile archives."""

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.clients.registry.layers import databases
from runbook_lib.errors import CannotTell
from runbook_lib.practice.registry import images
from runbook_lib.practice.registry.images import Blob, RegistryContent
from runbook_lib.practice.registry.server import RegistryServer

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
STATUS = "Package: libc6\nStatus: install ok installed\nVersion: {}\n"
PYTHON = "usr/lib/python3/dist-packages"


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def layer(files: dict[str, bytes]) -> Blob:
    return Blob(GZIP, gzip.compress(archive(files), mtime=0))


def package(name: str, version: str) -> dict[str, bytes]:
    return {f"{PYTHON}/{name}-{version}.dist-info/METADATA": f"Name: {name}\nVersion: {version}\n".encode()}


BIG = layer({"opt/data": os.urandom(400_000)} | package("hidden", "1"))
OLD = [
    BIG,
    layer({"var/lib/dpkg/status": STATUS.format("1").encode()} | package("torch", "2.9")),
    layer(package("a", "1")),
]
NEW = [BIG, layer({"./var/lib/dpkg/status": STATUS.format("2").encode()} | package("torch", "2.10"))]
NEW_SBOM = {"packages": [{"externalRefs": [{"referenceLocator": "pkg:pypi/torch@3"}]}]}


class World:
    """A registry with two images, old and new, to which tests add SBOMs."""

    def __init__(self) -> None:
        self.manifests: dict[str, Blob] = {}
        self.blobs: dict[str, Blob] = {}
        self.tags: dict[str, str] = {}
        self.config = images._json(
            images.CONFIG, {"os": "linux", "architecture": "amd64", "config": {}, "rootfs": {"type": "layers"}}
        )

    def add(self, tag: str, layers: Sequence[Blob], sbom: object = None) -> None:
        blobs = [self.config, *layers]
        manifest = self._manifest(layers)
        members = [manifest.descriptor(platform={"architecture": "amd64", "os": "linux"})]
        if sbom is not None:
            statement = Blob("application/vnd.in-toto+json", json.dumps({"predicate": sbom}).encode())
            attestation = self._manifest([statement])
            notes = {
                "vnd.docker.reference.type": "attestation-manifest",
                "vnd.docker.reference.digest": manifest.digest,
            }
            unknown = {"architecture": "unknown", "os": "unknown"}
            members.append(attestation.descriptor(platform=unknown, annotations=notes))
            blobs.append(statement)
        index = images._json(images.INDEX, {"schemaVersion": 2, "mediaType": images.INDEX, "manifests": members})
        self.manifests[index.digest] = index
        self.tags[tag] = index.digest
        self.blobs |= {blob.digest: blob for blob in blobs}

    def refer(self, tag: str, sbom: object) -> None:
        """Attach an SBOM by the tag that OCI 1.1 names for registries without the referrers API."""
        index = json.loads(self.manifests[self.tags[tag]].data)
        digest = index["manifests"][0]["digest"]
        document = Blob("application/spdx+json", json.dumps(sbom).encode())
        manifest = self._manifest([document])
        self.blobs[document.digest] = document
        descriptor = manifest.descriptor(artifactType="application/spdx+json")
        referrers = images._json(images.INDEX, {"schemaVersion": 2, "manifests": [descriptor]})
        self.manifests[referrers.digest] = referrers
        self.tags[digest.replace(":", "-")] = referrers.digest

    def _manifest(self, layers: Sequence[Blob]) -> Blob:
        manifest = images._json(images.MANIFEST, {
            "schemaVersion": 2, "mediaType": images.MANIFEST, "config": self.config.descriptor(),
            "layers": [blob.descriptor() for blob in layers],
        })  # fmt: skip
        self.manifests[manifest.digest] = manifest
        return manifest


Diff = Callable[..., dict[str, object]]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def diff(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Diff]:
    servers = []

    def run(*options: str) -> dict[str, object]:
        server = RegistryServer(0, RegistryContent(world.manifests, world.blobs, world.tags))
        servers.append(server)
        monkeypatch.setenv("RUNBOOK_REGISTRY", server.url)
        monkeypatch.setenv("RUNBOOK_CACHE", "off")
        names = [f"nvcr.io/nvidia/pytorch:{tag}" for tag in ("old", "new")]
        assert main(["image", "diff", *names, "--packages", "--json", *options]) == 0
        packages: dict[str, object] = json.loads(capsys.readouterr().out)["packages"]
        return packages

    yield run
    for server in servers:
        server.close()


def changes(document: dict[str, object]) -> dict[str, tuple[str, str, str]]:
    rows = document["differences"]
    assert isinstance(rows, list)
    return {row["package"]: (row["old"], row["new"], row["change"]) for row in rows}


def test_layers_are_read_within_five_percent_of_the_bytes(world: World, diff: Diff) -> None:
    world.add("old", OLD)
    world.add("new", NEW)
    document = diff()
    assert changes(document) == {
        "libc6": ("1", "2", "changed"), "torch": ("2.9", "2.10", "changed"), "a": ("1", "", "unclear"),
    }  # fmt: skip
    assert document["bytes_read"] <= 0.05 * document["bytes_of_images"]  # type: ignore[operator]
    assert len(document["new"]["unread"]) == 1  # type: ignore[index]
    everything = diff("--all")
    assert changes(everything)["a"] == ("1", "", "gone")
    assert everything["new"]["unread"] == []  # type: ignore[index]
    assert BIG.descriptor()["size"] < everything["bytes_read"] < 1.2 * len(BIG.data)  # type: ignore[operator]


@pytest.mark.parametrize("referrer", [False, True])
def test_an_sbom_saves_the_layers(world: World, diff: Diff, referrer: bool) -> None:
    old = {"packages": [{"externalRefs": [{"referenceLocator": "pkg:pypi/torch@2"}]}]}
    world.add("old", OLD, old)
    world.add("new", NEW, None if referrer else NEW_SBOM)
    if referrer:
        world.refer("new", NEW_SBOM)
    document = diff()
    assert changes(document) == {"torch": ("2", "3", "changed")}
    assert document["old"]["source"] == document["new"]["source"] == "its SBOM"  # type: ignore[index]


def test_one_sbom_alone_or_a_broken_one_leaves_the_layers(world: World, diff: Diff) -> None:
    world.add("old", OLD, {"packages": "none"})
    world.add("new", NEW, NEW_SBOM)
    assert changes(diff())["torch"] == ("2.9", "2.10", "changed")


def test_a_layer_that_cannot_be_read_is_named(world: World, diff: Diff) -> None:
    zstd = Blob("application/vnd.oci.image.layer.v1.tar+zstd", b"\x28\xb5\x2f\xfd1234")
    damaged = layer(package("b", "1"))
    world.add("old", OLD)
    world.add("new", [*NEW, zstd, damaged])
    world.blobs[damaged.digest] = layer(package("b", "2"))
    document = diff("--all")
    reasons = " ".join(document["new"]["unread"])  # type: ignore[index]
    assert "zstd" in reasons
    assert damaged.digest in reasons
    assert "b" not in changes(document)


def hostile_header() -> bytes:
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 2**33
    return entry.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 2000,
        b"\x1f\x8b" + b"x" * 100,
        gzip.compress(archive(package("a", "1")))[:-20],
        b"\x28\xb5\x2f\xfd",
        hostile_header(),
        gzip.compress(b"\0" * 512 + hostile_header()[512:] * 80_000),
    ],
    ids=["empty", "text", "not gzip", "cut", "zstd", "header", "bomb"],
)
def test_a_broken_layer_is_refused_or_empty(data: bytes) -> None:
    try:
        result = databases(io.BytesIO(data), len(data))
    except CannotTell:
        return
    assert not result.pip
    assert result.dpkg is None


def test_links_devices_and_paths_upwards_are_ignored() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            entry = tarfile.TarInfo("var/lib/dpkg/status")
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
        tar.addfile(tarfile.TarInfo("../../var/lib/dpkg/status"))
        tar.addfile(tarfile.TarInfo("usr/.wh.lib"))
        tar.addfile(tarfile.TarInfo("opt/.wh..wh..opq"))
    buffer.seek(0)
    result = databases(buffer, 1)
    assert result.dpkg is None
    assert result.removed == {"usr/lib"}
    assert result.opaque == {"opt"}
