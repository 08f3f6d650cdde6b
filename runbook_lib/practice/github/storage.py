"""The storage of the forge's downloads: addresses that are valid for a short time and need no token."""

import secrets
from dataclasses import dataclass

from werkzeug.wrappers import Request, Response

from runbook_lib.practice.serving import file_response

PREFIX = "/_storage/"
_KEPT_FILES = 64
_EXPIRED = "<Error><Code>AuthenticationFailed</Code></Error>"


@dataclass(frozen=True)
class _StoredFile:
    media_type: str
    data: bytes
    expires: float


class Storage:
    """Files under addresses that nobody can guess.  Only the newest are kept: clients download at once."""

    def __init__(self) -> None:
        self._files: dict[str, _StoredFile] = {}

    def put(self, name: str, media_type: str, data: bytes, expires: float) -> str:
        """Store a file until a moment of the forge's clock, and return its path."""
        path = f"{PREFIX}{secrets.token_hex(16)}/{name}"
        self._files[path] = _StoredFile(media_type, data, expires)
        for old in list(self._files)[:-_KEPT_FILES]:
            del self._files[old]
        return path

    def get(self, request: Request, now: float) -> Response:
        """Return the file or the requested range of it; 403 for an address that is no longer valid."""
        file = self._files.get(request.path)
        if file is None or now > file.expires:
            return Response(_EXPIRED, 403, content_type="application/xml")
        return file_response(request, file.data, file.media_type)
