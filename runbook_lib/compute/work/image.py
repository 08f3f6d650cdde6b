"""The image to work in: the names that a user may give it, its engine options, and its restrictions.  Pure.

Sources: Megatron-Bridge's ``skills/build-and-dependency`` (NeMo's images by tag), Alibaba's release notes of
training-nv-pytorch 25.05 (its options and warnings), and enroot's ``doc/cmd/import.md`` (its addresses).
"""

import re
from dataclasses import dataclass
from typing import Literal

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import ALIBABA, NEMO, family_of, named_image
from runbook_lib.images.reference import ImageRef
from runbook_lib.images.tags import alibaba

_LOCAL_NAME = re.compile(r"(?:localhost/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9._-]+)*(?::[\w][\w.-]{0,127})?")
_FILE = re.compile(r"/[^,:\s\x00-\x1f\x7f]*\.(?:sqsh|squashfs|sif)")
#: Tags that move to a different image from time to time.
_MUTABLE_TAG = re.compile(r"latest|main|dev|nightly.*")

_ALIBABA_OPTIONS = ("--ipc=host", "--net=host", "--privileged")
_ALIBABA_WARNINGS = (
    "Do not reinstall PyTorch, DeepSpeed and the like in this image: Alibaba has patched them, and a plain release "
    "removes the patches.",
    "Leave zero_optimization.stage3_prefetch_bucket_size of DeepSpeed's configuration empty or auto.",
    "CHECKPOINT_OPTIMIZATION=true saves memory by recomputation; with PyTorch 2.6 the gain is smaller for language "
    "models.",
)


@dataclass(frozen=True)
class WorkImage:
    """An image to work in.

    ``name`` is the engine's name for it; ``kind`` is ``built`` (on this machine), ``file``, or the place to pull from.
    ``options`` are the options of ``docker run`` that it needs; ``warnings`` are sentences.
    """

    name: str
    kind: Literal["built", "nemo", "alibaba", "other", "file"]
    options: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, region: str = "") -> "WorkImage":
        """Parse ``nemo:26.06``, ``alibaba:25.05-serverless``, ``megatron-lm:local``, a full reference, or a file.

        With a ``region``, ``alibaba:…`` comes from the registry of a VPC in that region.  Raises RunbookError for
        anything else, and for a tag that such an image cannot have.
        """
        text = text.strip()
        named = named_image(text)
        if named and region and family_of(named) is ALIBABA and named.tag:
            named = alibaba.vpc_address(ALIBABA.read(named.tag), region)
        if named:
            return cls._pulled(named)
        if _FILE.fullmatch(text):
            return cls(text, "file")
        has_registry = "/" in text and re.search(r"[.:]", text.partition("/")[0])
        if _LOCAL_NAME.fullmatch(text) and not has_registry:
            return cls(text, "built")
        return cls._pulled(ImageRef.parse(text))

    @classmethod
    def _pulled(cls, reference: ImageRef) -> "WorkImage":
        name, tag = str(reference), reference.tag
        if reference.name == NEMO.images[0] and tag:
            return cls(name, "nemo", warnings=NEMO.read(tag).notes)
        if reference.repository.endswith("/training-nv-pytorch"):
            notes = ALIBABA.read(tag).notes if tag else ()
            return cls(name, "alibaba", _ALIBABA_OPTIONS, (*notes, *_ALIBABA_WARNINGS))
        if ":" in reference.registry:
            warning = f"{name} has a port. A registry that is published without one responds with 'access forbidden'."
            return cls(name, "other", warnings=(warning,))
        return cls(name, "other")

    @property
    def is_mutable(self) -> bool:
        """True if the name does not identify one image forever."""
        if self.kind == "file" or "@" in self.name:
            return False
        tag = self.name.rpartition("/")[2].partition(":")[2]
        return self.kind == "built" or not tag or "local" in tag or _MUTABLE_TAG.fullmatch(tag) is not None

    @property
    def apptainer_address(self) -> str:
        """The image in the notation of Apptainer: a file, or a URL."""
        scheme = {"file": "", "built": "docker-daemon:"}.get(self.kind, "docker://")
        return f"{scheme}{self.name}"

    @property
    def enroot_address(self) -> str:
        """The image in the notation of Enroot and Pyxis: a file, or a reference with ``#`` after the registry.

        Without ``#`` they would search Docker Hub.  Raises RunbookError for an image that only this machine's engine
        has, and for a digest.
        """
        if self.kind == "file":
            return self.name
        if self.kind == "built":
            raise RunbookError(
                f"Only this machine's engine has {self.name}; Pyxis would search Docker Hub for it. Import it into a "
                ".sqsh file on shared storage first (task import), and name that file as image."
            )
        reference = ImageRef.parse(self.name)
        if reference.digest:
            raise RunbookError(f"Enroot does not accept digests, but {self.name} has one. Name the image by its tag.")
        address = f"{reference.registry}#{reference.repository}"
        return f"{address}:{reference.tag}" if reference.tag else address

    def uv_refusal(self) -> str:
        """Return why uv must not be used in this image, as sentences; empty if it may."""
        if self.kind != "alibaba":
            return ""
        return f"uv is not used in {self.name}. {_ALIBABA_WARNINGS[0]} Use the image that the project builds."
