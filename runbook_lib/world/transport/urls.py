"""URLs of services: those that a token may be sent to, those on this machine, and permitted redirects.

Nothing here uses the network: a name is judged only by its text.
"""

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from runbook_lib.errors import RunbookError

# Strict on purpose: if two libraries parse an unusual URL differently, a request could reach another host.
_ADDRESS = re.compile(
    r"https?://(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/[A-Za-z0-9._~/-]*)?"
)


def service_address(name: str, text: str, example: str) -> str:
    """Return the URL, from the variable ``name``, of a service that receives a token.

    Raises RunbookError for text that is not a web URL, for a URL with a user name, password, query or fragment, and for
    one that would expose the token on the network.  The message does not repeat the URL, which may contain a password.
    """
    if not is_address(text):
        raise RunbookError(
            f"{name} is not a URL such as {example}: only scheme, host, port and path, without a user name, "
            "password, query or fragment. Nothing was sent."
        )
    parts = urlsplit(text)
    if not is_private(parts.scheme, parts.hostname):
        raise RunbookError(
            f"{name} leads to {parts.hostname} over plain http://, where others on the network could read the token. "
            "Nothing was sent.",
            f"Use its https:// URL, such as {example}.",
        )
    return text


def is_address(text: str) -> bool:
    """Return True if the text is a web URL with only scheme, host, port and path."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match["port"] or 443) < 65536


def is_loopback(host: str | None) -> bool:
    """Return True if a host is this machine: ``localhost``, 127.0.0.0/8, ::1, or an IPv6 form of such an IPv4."""
    name = (host or "").lower().strip("[]")
    address = _ip(name)
    return name == "localhost" or (address is not None and address.is_loopback)


def is_private(scheme: str, host: str | None) -> bool:
    """Return True if nobody else can read the requests, or answer in place of the server."""
    return scheme == "https" or (scheme == "http" and is_loopback(host))


def may_redirect(source: tuple[str, str | None], target: tuple[str, str | None]) -> bool:
    """Return True if a reply from one URL may lead to another; both are given as scheme and host.

    Never from a private connection to one that others can read, from https to http, from the network to this machine,
    nor from a named host to an address with a different meaning in each network.
    """
    if target[0] not in ("http", "https") or (source[0], target[0]) == ("https", "http"):
        return False
    if is_private(*source) and not is_private(*target):
        return False
    return _distance(target[1]) >= _distance(source[1])


def _distance(host: str | None) -> int:
    """Return 0 for this machine, 1 for a non-public address, 2 for any other host."""
    name = (host or "").lower().strip("[]").rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return 0
    address = _ip(name)
    if address is None:
        try:  # resolvers also accept 127.1, 0x7f.0.0.1 and 2130706433
            address = ipaddress.IPv4Address(socket.inet_aton(name))
        except (OSError, ValueError):
            return 2
    if address.is_loopback or address.is_unspecified:
        return 0
    return 2 if address.is_global else 1


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address, as IPv4 where IPv6 only wraps it; None for any other text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
