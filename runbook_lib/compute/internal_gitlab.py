"""The internal GitLab: the project behind a remote's URL, and the image that its CI has built.  Pure."""

import re
from dataclasses import dataclass

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.reference import ImageRef, ImageType
from runbook_lib.pins.repositories import MEGATRON_LM, Repository

#: The git remote on whose host the internal images are.
GITLAB_REMOTE = "gitlab"
_INTERNAL_IMAGE = "adlr/megatron-lm/mcore_ci_dev"
#: A project's URL, which may have a user and a port; or ssh's short form.
_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git\+ssh)://(?:[^/@\s]*@)?(?P<host>[a-z0-9][a-z0-9.-]*)(?::[1-6]?\d{1,4})?/++"
    r"|(?:[^/@:\s]+@)?(?P<short>[a-z0-9][a-z0-9.-]*):(?!:|//)/?)(?P<path>[^\s\x00-\x1f\x7f]+?)(?:\.git)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RemoteProject:
    """A project's ``path`` (without ``.git``) on a ``host`` (without port), or a folder on this machine."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.path} on {self.host}" if self.host else self.path

    @property
    def key(self) -> tuple[str, str]:
        """Equal for all URLs of one project: GitLab's paths are case-insensitive, folders are not."""
        return (self.host, self.path.lower()) if self.host else ("", self.path)


def parse_remote(url: str) -> RemoteProject:
    """Parse a remote's URL.  Raises RunbookError if it is neither a project on a server nor a folder."""
    folder = url.removeprefix("file://")
    if folder.startswith("/"):
        return RemoteProject("", folder.rstrip("/"))
    if match := _ADDRESS.fullmatch(url.strip().rstrip("/")):
        return RemoteProject((match["host"] or match["short"]).lower(), match["path"])
    raise RunbookError(
        f"The remote's URL {url[:200]!r} is not of the form https://host/group/project.git, "
        "ssh://git@host/group/project.git or git@host:group/project.git, and not a folder. Change it with "
        "`git remote set-url`."
    )


def internal_image(url: str | None, repository: Repository, image_type: ImageType = "dev") -> ImageRef:
    """Return the image that internal CI last built for main; ``url`` is the URL of the remote ``gitlab``.

    The reference has no port, because with one the registry responds with "access forbidden".  Raises Refused without
    such an image or remote, and CannotTell for a URL without a host.
    """
    if repository.name != MEGATRON_LM.name or image_type != "dev":
        raise Refused(
            f"An internal image exists for Megatron-LM's dev lane only, not for {repository.name} ({image_type}). "
            "Build the image instead. Nothing was pulled."
        )
    if url is None:
        raise Refused(
            f"This clone has no remote {GITLAB_REMOTE!r}, on whose host the internal images are. Add it with "
            f"`git remote add {GITLAB_REMOTE} ADDRESS`, or build the image. Nothing was pulled."
        )
    host = parse_remote(url).host
    if "." not in host:
        raise CannotTell(
            f"The URL {url[:200]!r} of the remote {GITLAB_REMOTE!r} has no host such as gitlab.example.com, so "
            "the registry of the internal images is unknown.",
            "Correct it (`git remote set-url`), or build the image.",
        )
    return ImageRef(host, _INTERNAL_IMAGE, tag="main")
