"""Secrets taken out of whatever is kept or shown."""

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"

#: Names of environment variables whose values are secrets.
_SECRET_NAME = re.compile(
    r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|_PAT|_PASS)(?:_\d+)?$", re.IGNORECASE
)
#: Shorter values are words that a text may hold by chance.
_SHORTEST = 8

# Tokens by the form that their issuers give them.  Each pattern is linear: no repetition within a repetition
# can match the same text in two ways.
_KNOWN = re.compile(
    r"""
      \bgh[opusr]_[A-Za-z0-9]{20,}              # GitHub: classic, OAuth, user, server, refresh
    | \bgithub_pat_[A-Za-z0-9_]{20,}            # GitHub: fine-grained
    | \bgl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|oas)-[A-Za-z0-9_.-]{16,}   # GitLab
    | \bnvapi-[A-Za-z0-9_-]{16,}                # NVIDIA
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b             # AWS
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}          # Slack
    | \bhf_[A-Za-z0-9]{30,}                     # Hugging Face
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}   # JSON web tokens
    """,
    re.VERBOSE,
)
_PEM = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[A-Za-z0-9+/=\s:,-]|\\[nr])*")
_HEADER = re.compile(r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{20,}")
_AUTHORIZATION = re.compile(r"(?i)(authorization\W{1,4}(?:token\s+)?)(?!bearer\b|basic\b)[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(?<=://)[^/@\s\"'<>]{1,200}@")


class Redactor:
    """Replaces secrets: the values of this environment's secret variables in every usual spelling, and known forms."""

    def __init__(self, env: Mapping[str, str]) -> None:
        secrets = {value for name, value in env.items() if len(value) >= _SHORTEST and _SECRET_NAME.search(name)}
        spellings = sorted({s for secret in secrets for s in _spellings(secret)}, key=lambda s: (-len(s), s))
        self._values = re.compile("|".join(map(re.escape, spellings))) if spellings else None

    def __repr__(self) -> str:
        return "Redactor()"

    def text(self, text: str) -> str:
        """The text without secrets."""
        if self._values is not None:
            text = self._values.sub(MASK, text)
        text = _PEM.sub(MASK, _KNOWN.sub(MASK, text))
        text = _AUTHORIZATION.sub(rf"\1{MASK}", _HEADER.sub(rf"\1{MASK}", text))
        return _USERINFO.sub(f"{MASK}@", text)

    def data(self, value: Any) -> Any:
        """The same for every text within lists and mappings, keys included; the rest stays as it is."""
        return _map(value, self.text)


def _map(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map(key, change): _map(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map(item, change) for item in value]
    return value


def _spellings(secret: str) -> set[str]:
    """How a secret shows up in addresses, HTML, JSON, Python's repr and base64, where it may follow a user's name."""
    plain = {
        secret,
        secret.strip(),
        quote(secret, safe=""),
        quote_plus(secret),
        html.escape(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
    }
    encoded: set[str] = set()
    for raw in {secret.encode(), secret.strip().encode()}:
        for offset in range(3):
            # What precedes and follows the secret decides the first and last characters: leave those out.
            start, end = (0, 2, 3)[offset], (offset + len(raw)) * 8 // 6
            for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
                encoded.add(alphabet(b"\0" * offset + raw)[start:end].decode())
    return {s for s in plain | encoded if len(s) >= _SHORTEST}
