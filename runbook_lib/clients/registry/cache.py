"""Cached replies of registries.  A cache that cannot be read or written is an empty one: it only saves time."""

import base64
import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from runbook_lib.errors import RunbookError
from runbook_lib.system import atomic_files
from runbook_lib.system.user_folders import cache_folder


@dataclass(frozen=True)
class CachedAnswer:
    """A reply; ``age`` is in seconds since the registry last gave it, negative if a clock was changed."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    age: float = 0.0


class Cache:
    """A folder that belongs to the user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Self | None:
        """Return the cache of RUNBOOK_CACHE, else below XDG_CACHE_HOME or HOME; None for ``off``."""
        folder = cache_folder(env, "registry")
        return cls(folder) if folder else None

    def content(self, digest: str) -> CachedAnswer | None:
        """Return the content of a digest; None if it is missing or damaged."""
        with contextlib.suppress(OSError):
            body = self._content_path(digest).read_bytes()
            if _is(digest, body):
                return CachedAnswer(body)
        return None

    def keep_content(self, digest: str, body: bytes) -> None:
        """Store content under its digest; content with a different digest is not stored."""
        if _is(digest, body):
            self._write(self._content_path(digest), body)

    def entry(self, key: str) -> CachedAnswer | None:
        """Return the reply that is stored under the key, however old."""
        try:
            stored = json.loads(self._entry_path(key).read_bytes())
            headers = {str(name): str(value) for name, value in stored["headers"].items()}
            return CachedAnswer(base64.b64decode(stored["body"]), headers, time.time() - float(stored["read"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def keep(self, key: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Store a reply just received from the registry."""
        document: dict[str, Any] = {"key": key, "read": time.time(), "headers": dict(headers)}
        document["body"] = base64.b64encode(body).decode()
        self._write(self._entry_path(key), json.dumps(document).encode())

    def forget(self, key: str) -> None:
        """Remove the reply that is stored under the key."""
        with contextlib.suppress(OSError):
            self._entry_path(key).unlink(missing_ok=True)

    def _content_path(self, digest: str) -> Path:
        algorithm, _, encoded = digest.partition(":")
        return self._folder / algorithm / encoded

    def _entry_path(self, key: str) -> Path:
        return self._folder / "answers" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _write(self, path: Path, body: bytes) -> None:
        with contextlib.suppress(OSError, RunbookError):
            # Images may be private, so nobody else needs to see them.
            atomic_files.private_folder(path.parent)
            atomic_files.close_to_others(self._folder)
            atomic_files.write(path, body)


def ago(age: float) -> str:
    """Return the age in words, such as "2 hours ago"."""
    if age < -60:
        return "at a future time according to this machine's clock, which is or was wrong"
    for seconds, unit in ((24 * 3600.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if age >= seconds:
            number = int(age / seconds)
            return f"{number} {unit}{'s' * (number != 1)} ago"
    return "just now"


def _is(digest: str, body: bytes) -> bool:
    algorithm, _, encoded = digest.partition(":")
    return hashlib.new(algorithm, body).hexdigest() == encoded
