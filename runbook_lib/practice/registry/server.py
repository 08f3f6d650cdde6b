"""An OCI registry for practice: it serves the images of ``practice.images``.

It speaks the read side of the OCI distribution specification, with the token challenge that nvcr.io gives to
everybody, and nothing else.
"""

import base64
import binascii
import contextlib
import hashlib
import json
import re
import socket
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from weakref import WeakSet

from runbook_lib.practice.loopback import is_local
from runbook_lib.practice.registry.images import REPOSITORY, Content, content


class RegistryServer:
    """The registry, answering on a port of 127.0.0.1 from threads of this process until it is closed."""

    def __init__(self, port: int = 0, held: Content | None = None) -> None:
        self._server = _Server(("127.0.0.1", port), held or content())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="practice registry", daemon=True).start()

    def close(self) -> None:
        """Stop answering, on open connections too.  May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def serve(port: int = 0) -> RegistryServer:
    """Start the practice registry on ``port`` if that is free, so that addresses written down stay good."""
    try:
        return RegistryServer(port)
    except OSError:
        return RegistryServer()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], held: Content) -> None:
        super().__init__(address, _Handler)
        self.held = held
        self.connections: WeakSet[socket.socket] = WeakSet()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Remember the connection: a client may keep it open."""
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without it the kernel holds each short answer back for 40 ms.
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_GET(self) -> None:
        """Route a request; the paths are those of the distribution specification."""
        if not is_local(self.headers.get("Host")):
            return self._error(421, "DENIED", "this registry answers on its own machine alone")
        url = urlsplit(self.path)
        if url.path == "/token":
            return self._token(parse_qs(url.query))
        if not url.path.startswith("/v2/"):
            return self._error(404, "NOT_FOUND", "no such page")
        path = re.fullmatch(r"/v2/(?P<name>.+)/(?P<kind>tags|manifests|blobs)/(?P<reference>[^/]+)", url.path)
        name = path["name"] if path else ""
        if self.headers.get("Authorization") != f"Bearer {_token_for(name)}":
            return self._challenge(name)
        if url.path == "/v2/":
            return self._send(200, b"{}")
        if path is None or name != REPOSITORY:
            return self._error(404, "NAME_UNKNOWN", "repository name not known to registry", {"name": name})
        if path["kind"] == "tags":
            return self._tags(path["reference"], parse_qs(url.query))
        if path["kind"] == "manifests":
            return self._manifest(path["reference"])
        blob = self.server.held.blobs.get(path["reference"])
        if blob is None:
            return self._error(404, "BLOB_UNKNOWN", "blob unknown to registry", {"digest": path["reference"]})
        return self._send(200, blob.data, "application/octet-stream", {"Docker-Content-Digest": blob.digest})

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's; _send leaves the body out

    def _challenge(self, name: str) -> None:
        host = f"http://127.0.0.1:{self.server.server_address[1]}"
        scope = f',scope="repository:{name}:pull"' if name else ""
        header = f'Bearer realm="{host}/token",service="practice-registry"{scope}'
        self._error(401, "UNAUTHORIZED", "authentication required", headers={"WWW-Authenticate": header})

    def _token(self, query: Mapping[str, list[str]]) -> None:
        """Anybody gets a token; who signs in must do it as nvcr.io wants it."""
        if "Authorization" in self.headers and not _signed_in(self.headers["Authorization"]):
            return self._error(401, "UNAUTHORIZED", "the user name is $oauthtoken, the password an API key")
        scope = query.get("scope", [""])[0]
        match = re.fullmatch(r"repository:(.+):pull", scope)
        token = _token_for(match[1] if match else "")
        return self._send(200, json.dumps({"token": token, "expires_in": 300}).encode())

    def _tags(self, reference: str, query: Mapping[str, list[str]]) -> None:
        if reference != "list":
            return self._error(404, "NOT_FOUND", "no such page")
        last = query.get("last", [""])[0]
        tags = [tag for tag in sorted(self.server.held.tags) if tag > last]
        count = query.get("n", [str(len(tags))])[0]
        if not count.isdecimal():
            return self._error(400, "PAGINATION_NUMBER_INVALID", "invalid number of results requested", {"n": count})
        page, headers = tags[: int(count)], {}
        if page and len(page) < len(tags):
            query_next = f"last={quote(page[-1])}&n={count}"
            headers["Link"] = f'</v2/{REPOSITORY}/tags/list?{query_next}>; rel="next"'
        return self._send(200, json.dumps({"name": REPOSITORY, "tags": page}).encode(), headers=headers)

    def _manifest(self, reference: str) -> None:
        held = self.server.held
        found = held.manifests.get(held.tags.get(reference, reference))
        if found is None:
            return self._error(404, "MANIFEST_UNKNOWN", "manifest unknown", {"reference": reference})
        accepted = [part.split(";")[0].strip() for part in self.headers.get("Accept", "*/*").split(",")]
        if not {found.media_type, "*/*", "application/*"}.intersection(accepted):
            return self._error(404, "MANIFEST_UNKNOWN", f"found {found.media_type}, which Accept does not name")
        return self._send(200, found.data, found.media_type, {"Docker-Content-Digest": found.digest})

    def _error(
        self,
        status: int,
        code: str,
        message: str,
        detail: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        body = {"errors": [{"code": code, "message": message, "detail": detail}]}
        self._send(status, json.dumps(body).encode(), headers=headers)

    def _send(
        self,
        status: int,
        body: bytes,
        media_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        standard = {
            "Docker-Distribution-Api-Version": "registry/2.0",
            "Content-Type": media_type,
            "Content-Length": str(len(body)),
        }
        for header, value in (standard | dict(headers or {})).items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal belongs to the runbook."""


def _token_for(name: str) -> str:
    """The token for one repository ("" for none): known here, opaque to a client, worth nothing elsewhere."""
    return hashlib.sha256(f"practice token for {name}".encode()).hexdigest()


def _signed_in(header: str) -> bool:
    kind, _, text = header.partition(" ")
    try:
        user, _, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return kind == "Basic" and user == "$oauthtoken" and bool(password)
