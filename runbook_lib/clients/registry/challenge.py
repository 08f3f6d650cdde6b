"""The challenge of a registry that requires a login.

Source of the format: the token challenge of the distribution project, used by nvcr.io and most others.
"""

import re
from dataclasses import dataclass
from typing import Any

import httpx

from runbook_lib.transport import urls


@dataclass(frozen=True)
class Challenge:
    """``realm``: the URL of the token service, if any; ``password``: the registry itself requires a password."""

    realm: httpx.URL | None
    service: str = ""
    password: bool = False

    @classmethod
    def parse(cls, text: str) -> "Challenge":
        """Parse a WWW-Authenticate header with any content."""
        bearer = re.search(r"\bBearer\s+(.*)", text, re.IGNORECASE)
        fields = dict(re.findall(r'(?<!\w)(\w+)="([^"]*)"', bearer[1])) if bearer else {}
        password = bearer is None and re.search(r"\bBasic\b", text, re.IGNORECASE) is not None
        return cls(web_address(fields.get("realm", "")), fields.get("service", ""), password)

    def request(self, repository: str) -> httpx.URL:
        """Return the URL for getting a token, with our own scope, because the challenge's may include pushing."""
        assert self.realm is not None, "the caller has checked it"
        return self.realm.copy_merge_params({"service": self.service, "scope": f"repository:{repository}:pull"})


def token(document: Any) -> str | None:
    """Return the token in a token service's reply; None if there is none that fits in a header."""
    if not isinstance(document, dict):
        return None
    text = document.get("token") or document.get("access_token")
    if isinstance(text, str) and re.fullmatch(r"[\x21-\x7e]+", text):
        return text
    return None


def web_address(text: str) -> httpx.URL | None:
    """Return a web URL; None for anything else."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return None
    return url if url.scheme in ("http", "https") and url.host else None


def is_private(url: httpx.URL) -> bool:
    """Return True if nobody else can read the requests, or answer in place of the server."""
    return urls.is_private(url.scheme, url.host)
