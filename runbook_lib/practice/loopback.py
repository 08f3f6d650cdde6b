"""Whom the servers of the practice world answer: programs of this machine, and no page of a browser."""

from urllib.parse import urlsplit


def is_local(host: str | None) -> bool:
    """Whether the header ``Host`` of a request names this machine.

    A page from elsewhere can reach 127.0.0.1 under a name of its own whose address it changes (DNS rebinding); its
    browser then sends that name.
    """
    try:
        return urlsplit(f"//{host or ''}").hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        return False
