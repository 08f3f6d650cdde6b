"""The ready images of Megatron-LM's internal GitLab: their address, from the remote of that name.  Pure.

Source: Megatron-LM's ``skills/mcore-build-and-dependency``.
"""

import re

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.images.reference import ImageRef, ImageType
from runbook_lib.pins.repositories import MEGATRON_LM, Repository

REMOTE = "gitlab"
_IMAGES = {"dev": "adlr/megatron-lm/mcore_ci_dev"}
_TAG = "main"
#: An address with a scheme (a user, a port), and ssh's short form.
_URL = re.compile(r"(?:https?|ssh|git\+ssh)://(?:[^/@]*@)?(?P<host>[^/:@\[\]]+)(?::\d*)?/.+", re.IGNORECASE)
_SHORT = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/:@]+):(?!//).+")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+")


def host(url: str) -> str:
    """The host that a remote's address names, without user and port.  Raises CannotTell where it names none."""
    found = _URL.fullmatch(url.strip()) or _SHORT.fullmatch(url.strip())
    name = found["host"].lower() if found else ""
    if not _NAME.fullmatch(name):
        raise CannotTell(
            f"The remote {REMOTE!r} has the address {url[:200]!r}, which names no host such as gitlab.example.com, so "
            "the registry of the internal images is not known. Correct it (`git remote set-url`), or build the image."
        )
    return name


def internal(url: str | None, repository: Repository, image_type: ImageType = "dev") -> ImageRef:
    """The image that internal CI has built last for main; ``url`` is that of the remote ``gitlab``.

    The address has no port: with one the registry answers "access forbidden".  Raises Refused where there is no such
    image or remote, and CannotTell for an address that names no host.
    """
    if repository.name != MEGATRON_LM.name or image_type not in _IMAGES:
        raise Refused(
            f"An internal image is known for Megatron-LM's dev lane alone, not for {repository.name} ({image_type}). "
            "Build it instead. Nothing was pulled."
        )
    if url is None:
        raise Refused(
            f"This clone has no remote named {REMOTE!r}, whose host has the internal images. Add it with "
            f"`git remote add {REMOTE} ADDRESS`, or build the image. Nothing was pulled."
        )
    return ImageRef(host(url), _IMAGES[image_type], _TAG)
