"""An OCI registry on this machine, which serves the images of practice.

It implements only the read side of the OCI distribution specification, with nvcr.io's token challenge for everybody.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from local_server import LoopbackServer
from werkzeug.wrappers import Request, Response

from runbook_lib.practice.registry import REPOSITORY, Month, image_of
from runbook_lib.practice.store import scripted

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"

_VERSION = {"Docker-Distribution-Api-Version": "registry/2.0"}


@dataclass(frozen=True)
class Blob:
    """Bytes with their media type, stored under their digest."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(self.data).hexdigest()

    def descriptor(self, **more: object) -> dict[str, object]:
        """Return the descriptor by which a manifest refers to it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data), **more}


class RegistryContent(NamedTuple):
    """The content of a registry: digest → content, and tag → digest of the index."""

    manifests: Mapping[str, Blob]
    blobs: Mapping[str, Blob]
    tags: Mapping[str, str]


def content(offered: Mapping[str, Month] | None = None) -> RegistryContent:
    """Return the images of the given months, complete and tiny, described like those of practice."""
    manifests, blobs, tags = dict[str, Blob](), dict[str, Blob](), dict[str, str]()
    for month, versions in (scripted("images") if offered is None else offered).items():
        members = []
        for architecture, platform in image_of(month, versions).platforms.items():
            # Nothing unpacks it: what an image holds is read from its configuration.
            layer = Blob(LAYER, f"practice image {month} for {architecture}\n".encode())
            config = _blob(CONFIG, {
                "architecture": architecture, "os": "linux",
                "config": {
                    "Env": [f"{name}={value}" for name, value in platform.env.items()],
                    "Labels": dict(platform.labels),
                },
                # The layer is not compressed, so its digest equals its content's digest.
                "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
            })  # fmt: skip
            manifest = _blob(MANIFEST, {
                "schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor(),
                "layers": [layer.descriptor()],
            })  # fmt: skip
            blobs |= {layer.digest: layer, config.digest: config}
            manifests[manifest.digest] = manifest
            members.append(manifest.descriptor(platform={"architecture": architecture, "os": "linux"}))
        index = _blob(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": members})
        manifests[index.digest] = index
        tags[f"{month}-py3"] = index.digest
    return RegistryContent(manifests, blobs, tags)


def _blob(media_type: str, document: Mapping[str, object]) -> Blob:
    return Blob(media_type, json.dumps(document, separators=(",", ":")).encode())


class RegistryServer(LoopbackServer):
    """The registry.  ``stored`` is what it serves; by default the images of all practice months."""

    def __init__(self, stored: RegistryContent | None = None, *, listen: bool = False) -> None:
        self._stored = stored or content()
        super().__init__(self.answer, listen=listen)

    def answer(self, request: Request) -> Response:
        """Answer one request."""
        if request.path == "/token":
            return _issue_token(request)
        match = re.fullmatch(r"/v2/(.+)/(tags|manifests|blobs)/(.+)", request.path)
        name, kind, reference = match.groups() if match else ("", "", "")
        if request.headers.get("Authorization") != f"Bearer {_token_for(name)}":
            return self._challenge(name)
        if not match:
            return _json({})
        if name != REPOSITORY:
            return _error(404, "NAME_UNKNOWN", "repository name not known to registry")
        if kind == "tags":
            return _json({"name": REPOSITORY, "tags": sorted(self._stored.tags)})
        digest = self._stored.tags.get(reference, reference)
        held = self._stored.manifests if kind == "manifests" else self._stored.blobs
        if (blob := held.get(digest)) is None:
            return _error(404, "MANIFEST_UNKNOWN" if kind == "manifests" else "BLOB_UNKNOWN", "unknown to registry")
        headers = _VERSION | {"Docker-Content-Digest": blob.digest}
        media_type = blob.media_type if kind == "manifests" else "application/octet-stream"
        return Response(blob.data, headers=headers, content_type=media_type)

    def _challenge(self, name: str) -> Response:
        challenge = f'Bearer realm="{self.url}/token",service="practice-registry"'
        if name:
            challenge += f',scope="repository:{name}:pull"'
        response = _error(401, "UNAUTHORIZED", "authentication required")
        response.headers["WWW-Authenticate"] = challenge
        return response


def _issue_token(request: Request) -> Response:
    """Give everybody a token; a client that signs in must do so like on nvcr.io."""
    if "Authorization" in request.headers:
        login = request.authorization
        if login is None or login.type != "basic" or login.username != "$oauthtoken" or not login.password:
            return _error(401, "UNAUTHORIZED", "the user name must be $oauthtoken, and the password an API key")
    scope = re.fullmatch(r"repository:(.+):pull", request.args.get("scope", ""))
    return _json({"token": _token_for(scope[1] if scope else ""), "expires_in": 300})


def _token_for(name: str) -> str:
    """Return the token for one repository ("" for none), which is opaque to clients and worthless elsewhere."""
    return hashlib.sha256(f"practice token for {name}".encode()).hexdigest()


def _error(status: int, code: str, message: str) -> Response:
    return _json({"errors": [{"code": code, "message": message, "detail": None}]}, status)


def _json(body: object, status: int = 200) -> Response:
    return Response(json.dumps(body), status, _VERSION, content_type="application/json")
