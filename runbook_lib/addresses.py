"""Where a token may be sent: the addresses of services, as the environment names them.  Pure."""

import re

from runbook_lib.errors import RunbookError

#: What leads to this machine alone.
LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Strict on purpose: two libraries that read an odd address differently would be a way to another host.
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?:(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)|\[(?P<six>[0-9A-Fa-f:.]+)\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/[A-Za-z0-9._~/-]*)?"
)


def of_service(name: str, text: str, example: str) -> str:
    """The address in the variable ``name`` of a service that gets a token.

    Raises RunbookError for what is no address of the web, holds a user name, password, query or fragment, or would
    show the token to the network.  The message does not repeat the address: it may hold a password.
    """
    found = _read(text)
    if found is None:
        raise RunbookError(
            f"{name} is not an address such as {example}: scheme, host, port and path alone, without a user name, "
            "password, query or fragment. Nothing was sent."
        )
    if not is_private(found["scheme"], host := found["host"] or found["six"]):
        raise RunbookError(
            f"{name} leads to {host} by plain http://, where anybody on the way could read the token. Nothing was "
            f"sent. Name its https:// address, such as {example}."
        )
    return text


def is_address(text: str) -> bool:
    """Whether this is scheme, host, port and path of something on the web, and nothing else."""
    return _read(text) is not None


def _read(text: str) -> re.Match[str] | None:
    found = _ADDRESS.fullmatch(text)
    return found if found and 0 < int(found["port"] or 443) < 65536 else None


def is_private(scheme: str, host: str | None) -> bool:
    """Whether nobody else can read along, or answer in its place."""
    return scheme == "https" or (scheme == "http" and (host or "").lower() in LOOPBACK)
