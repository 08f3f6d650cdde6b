"""The images of the repositories: their builds, from ``builds.toml``, and the internal GitLab's ready images.  Pure."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.images.reference import ImageRef, ImageType
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, Repository


@dataclass(frozen=True)
class KnownBuild:
    """The build of a repository's image.

    The first of ``dockerfiles`` that exists is used, with the image type for ``{type}``.  ``argument`` takes the base
    image; ``defaults`` are values of arguments that the user does not set, ``required`` are arguments that must be set.
    """

    name: str
    dockerfiles: Sequence[str]
    argument: str
    target: str = ""
    context: str = "."
    defaults: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[str] = ()


_TABLE: Mapping[str, Any] = tomllib.loads((files("runbook_lib.compute") / "builds.toml").read_text("utf-8"))
BUILDS: Mapping[str, KnownBuild] = {name: KnownBuild(**fields) for name, fields in _TABLE["builds"].items()}
#: The images of the NeMo framework, each the base of the next.
STACK = (
    KnownBuild(**_TABLE["stack"]["first"]), BUILDS[MEGATRON_BRIDGE.name], KnownBuild(**_TABLE["stack"]["last"])
)  # fmt: skip
#: By repository, the number of GPUs and the script of five iterations of training.
TRAINING: Mapping[str, Mapping[str, Any]] = _TABLE["training"]

#: The git remote on whose host the internal images are.
GITLAB_REMOTE = "gitlab"
_INTERNAL_IMAGE = "adlr/megatron-lm/mcore_ci_dev"
#: A URL, which may have a user and a port; and ssh's short form.
_URL = re.compile(r"(?:https?|ssh|git\+ssh)://(?:[^/@]*@)?(?P<host>[^/:@\[\]]+)(?::\d*)?/.+", re.IGNORECASE)
_SHORT_URL = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/:@]+):(?!//).+")
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+")


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
    return ImageRef(remote_host(url), _INTERNAL_IMAGE, tag="main")


def remote_host(url: str) -> str:
    """Return the host in a remote's URL, without user and port.  Raises CannotTell if there is none."""
    match = _URL.fullmatch(url.strip()) or _SHORT_URL.fullmatch(url.strip())
    if match is None or not _HOST.fullmatch(match["host"].lower()):
        raise CannotTell(
            f"The URL {url[:200]!r} of the remote {GITLAB_REMOTE!r} has no host such as gitlab.example.com, so "
            "the registry of the internal images is unknown. Correct it (`git remote set-url`), or build the image."
        )
    return match["host"].lower()
