"""Files that are read in parts, by many threads, over HTTP.

A forge replies with a redirect to its storage, with a URL that is valid for a short time.  The token goes only to the
forge.  A server without ranges, as for GitLab's logs, sends the complete file, which goes to a temporary one.
"""

import os
import re
import tempfile
import weakref
from collections.abc import Mapping
from typing import IO

import httpx

from runbook_lib.errors import Unreachable
from runbook_lib.world.transport.downloads import MissingFile
from runbook_lib.world.transport.http import Client, NoReply, is_temporary, pause_sentence

_REFUSAL = 2**16  # bytes of a reply that is no file
# int() refuses numbers of thousands of digits, and no file has more bytes than this.
_PART = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18})")

#: Meanings of replies without a file.
_MISSING = {
    401: "does not let this token read it", 403: "does not let this token read it",
    404: "does not find it, or not for this token", 410: "reports that it has expired",
}  # fmt: skip


class RemoteFile:
    """One file on a server; ``size`` in bytes is known after the first part.

    ``secret`` are the headers with the token, which go only to the origin of ``url``.
    """

    def __init__(self, client: Client, url: httpx.URL, secret: Mapping[str, str]) -> None:
        self._client, self._origin, self._secret = client, url, secret
        self._stored = url  # the target of the redirects
        self.size = 0
        self._complete: IO[bytes] | None = None  # the file of a server without ranges

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end.

        Raises MissingFile or Unreachable; for a server without ranges OSError, if the file cannot be stored.
        """
        if not self._complete:
            response = self._request(self._stored, start, size)
            if (
                response.status_code in (401, 403, 404) and self._stored != self._origin
            ):  # the storage's URL has expired
                response = self._request(self._origin, start, size)
            self._stored = response.url
            if not self._complete:
                return self._content(response, start, size)
        return os.pread(self._complete.fileno(), size, start)

    def _content(self, response: httpx.Response, start: int, size: int) -> bytes:
        """Return the part in a reply, if it is the one that was requested.  Raises MissingFile or Unreachable."""
        host, status = response.url.host, response.status_code
        if is_temporary(response):
            problem = "it answers" if status >= 500 else "it limits the rate of requests:"
            pause = pause_sentence(response.headers)
            raise Unreachable(f"{host} could not be read: {problem} HTTP {status}.{pause} Try again later.")
        if problem := _MISSING.get(status, ""):
            raise MissingFile(f"{host} {problem} (HTTP {status})")
        match = _PART.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or status != (206 if match[1] else 416):
            raise Unreachable(f"{host} answered a request for a file with an unusable HTTP {status}.")
        self.size = int(match[3])
        if status == 416:
            return b""
        length = int(match[2]) - int(match[1]) + 1
        if int(match[1]) != start or not length == len(response.content) == min(size, self.size - start):
            raise Unreachable(f"{host} sent a different part of the file than requested.")
        return response.content

    def _request(self, address: httpx.URL, start: int, size: int) -> httpx.Response:
        """Return the reply to a request for a part, or with status 200 set the complete file."""
        host, stored = self._origin.host, list[IO[bytes]]()

        def store() -> IO[bytes]:
            stored.append(tempfile.TemporaryFile())  # noqa: SIM115
            weakref.finalize(self, stored[-1].close)
            return stored[-1]

        try:
            response = self._client.request(
                "GET", address, {"Range": f"bytes={start}-{start + size - 1}"}, source=self._origin,
                secret=self._secret if address == self._origin else {}, largest=max(size, _REFUSAL), store=store,
            )  # fmt: skip
        except NoReply as error:
            raise Unreachable(f"{host} could not be read: {error}.", "Try again later.") from error
        if response.status_code == 200:
            stored[-1].flush()
            self.size, self._complete = stored[-1].tell(), stored[-1]
        return response
