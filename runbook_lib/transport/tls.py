"""The certificates that are trusted here.  httpx reads them for every client, which takes longer than most requests."""

import functools
import os
import ssl


def trusted() -> ssl.SSLContext:
    """What https is checked with: the file or folder of SSL_CERT_FILE or SSL_CERT_DIR, else those of certifi.

    Raises OSError for a file that cannot be read or is none of certificates.
    """
    return _read(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))


@functools.cache
def _read(_file: str, _folder: str) -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()
