"""Where the forge's downloads lie: addresses that are good for a short time, need no token, and serve ranges."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from runbook_lib.practice.github.protocol import Answer

PREFIX = "/_storage/"
_KEEP = 64


@dataclass(frozen=True)
class _Stored:
    kind: str
    data: bytes
    until: float


class Storage:
    """Bytes under addresses that nobody can guess.  Only the newest are kept: an address is used at once."""

    def __init__(self) -> None:
        self._stored: dict[str, _Stored] = {}

    def put(self, name: str, kind: str, data: bytes, until: float) -> str:
        """Keep bytes until a moment of the forge's clock; the path under which they may be had."""
        path = f"{PREFIX}{secrets.token_hex(16)}/{name}"
        self._stored[path] = _Stored(kind, data, until)
        for old in list(self._stored)[:-_KEEP]:
            del self._stored[old]
        return path

    def get(self, path: str, headers: Mapping[str, str], now: float) -> Answer:
        """The bytes, or the range of them that is asked for.  403 for an address that is no longer good."""
        stored = self._stored.get(path)
        if stored is None or now > stored.until:
            return Answer(403, b"<Error><Code>AuthenticationFailed</Code></Error>", {"Content-Type": "application/xml"})
        return part(stored.data, stored.kind, headers)


def part(data: bytes, kind: str, headers: Mapping[str, str]) -> Answer:
    """The bytes, or the range of them that the headers of a request ask for."""
    size, common = len(data), {"Content-Type": kind, "Accept-Ranges": "bytes"}
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", "").replace(" ", ""))
    if asked is None or not (asked[1] or asked[2]):
        return Answer(200, data, common)
    first = int(asked[1]) if asked[1] else max(0, size - int(asked[2]))
    last = min(size - 1, int(asked[2])) if asked[1] and asked[2] else size - 1
    if first > last:
        return Answer(416, b"", common | {"Content-Range": f"bytes */{size}"})
    return Answer(206, data[first : last + 1], common | {"Content-Range": f"bytes {first}-{last}/{size}"})
