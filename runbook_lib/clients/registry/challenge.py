"""What a registry that refuses to answer asks for, and where tokens are given before it has said so.

Source of the form: the token challenge of the distribution project, which nvcr.io and most others give.
"""

import re
from dataclasses import dataclass
from typing import Any

import httpx

from runbook_lib.transport import urls

#: What well-known registries always answer at first, by their host: written down to save that round trip.
KNOWN = {
    "nvcr.io": 'Bearer realm="https://nvcr.io/proxy_auth"',
    "ghcr.io": 'Bearer realm="https://ghcr.io/token",service="ghcr.io"',
    "registry-1.docker.io": 'Bearer realm="https://auth.docker.io/token",service="registry.docker.io"',
}


@dataclass(frozen=True)
class Challenge:
    """``realm``: where tokens are given, None where nowhere; ``password``: the registry itself wants a password."""

    realm: httpx.URL | None
    service: str = ""
    password: bool = False

    @classmethod
    def parse(cls, text: str) -> "Challenge":
        """Read a header WWW-Authenticate, whatever it says."""
        bearer = re.search(r"\bBearer\s+(.*)", text, re.IGNORECASE)
        fields = dict(re.findall(r'(?<!\w)(\w+)="([^"]*)"', bearer[1])) if bearer else {}
        password = bearer is None and re.search(r"\bBasic\b", text, re.IGNORECASE) is not None
        return cls(web_address(fields.get("realm", "")), fields.get("service", ""), password)

    def request(self, repository: str) -> httpx.URL:
        """Return the address that gives a token, with our own scope: the challenge's may ask for the right to push."""
        assert self.realm is not None, "the caller has looked"
        return self.realm.copy_merge_params({"service": self.service, "scope": f"repository:{repository}:pull"})


def token(document: Any) -> str | None:
    """Return the token in a token service's answer; None if it has none that fits into a header."""
    granted = document if isinstance(document, dict) else {}
    found = granted.get("token") or granted.get("access_token")
    return found if isinstance(found, str) and re.fullmatch(r"[\x21-\x7e]+", found) else None


def web_address(text: str) -> httpx.URL | None:
    """Return an address of the web; None for anything else."""
    try:
        read = httpx.URL(text)
    except httpx.InvalidURL:
        return None
    return read if read.scheme in ("http", "https") and read.host else None


def is_private(url: httpx.URL) -> bool:
    """Return whether nobody else can read along, or answer in the server's place."""
    return urls.is_private(url.scheme, url.host)
