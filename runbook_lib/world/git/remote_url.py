"""The target of a git remote's URL: a project on a host, or a path on this machine."""

import re
from dataclasses import dataclass
from typing import Self

#: A URL, which may have a user and a port; or ssh's short form.
_URL = re.compile(
    r"(?:(?:(?P<web>https?)|ssh|git\+ssh)://(?:[^/@\s]*@)?(?P<host>[a-z0-9][a-z0-9.-]*)(?P<port>:[1-6]?\d{1,4})?/++"
    r"|(?:[^/@:\s]+@)?(?P<short>[a-z0-9][a-z0-9.-]*):(?!:|//)/?)(?P<path>[^\s\x00-\x1f\x7f]+?)(?:\.git)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RemoteUrl:
    """A project's ``path`` (without ``.git``) on a ``host`` (without port); any other text is a path without a host.

    ``server`` is where the project's pages should be: at a web URL's port, else at the default one.
    """

    host: str
    path: str
    server: str = ""

    def __str__(self) -> str:
        return f"{self.path} on {self.host}" if self.host else self.path

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a remote's URL."""
        match = _URL.fullmatch(url.strip().rstrip("/"))
        if match is None:
            return cls("", url)
        host = (match["host"] or match["short"]).lower()
        port = (match["port"] or "") if match["web"] else ""
        return cls(host, match["path"], f"https://{host}{port}")
