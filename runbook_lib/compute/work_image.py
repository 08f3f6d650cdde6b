"""The image to work in: the names that a user may give it, what it needs, and its address for each runtime.  Pure.

Sources: Megatron-Bridge's ``skills/build-and-dependency`` (NeMo's images by tag) and enroot's ``doc/cmd/import.md``.
"""

import re
from dataclasses import dataclass
from typing import Literal

from runbook_lib.compute.tasks import TABLE
from runbook_lib.errors import RunbookError
from runbook_lib.images.families import ALIBABA, NEMO, family_of, named_image, vpc_address
from runbook_lib.images.reference import ImageRef

_LOCAL_NAME = re.compile(r"(?:localhost/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9._-]+)*(?::[\w][\w.-]{0,127})?")
_FILE = re.compile(r"/[^,:\s\x00-\x1f\x7f]*\.(?:sqsh|squashfs)")


@dataclass(frozen=True)
class WorkImage:
    """An image to work in.

    ``name`` is the engine's name for it; ``kind`` is ``built`` (on this machine), ``file``, or the place to pull from.
    ``warnings`` are sentences.
    """

    name: str
    kind: Literal["built", "alibaba", "other", "file"]
    warnings: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, region: str = "") -> "WorkImage":
        """Parse ``nemo:26.06``, ``alibaba:25.05-serverless``, ``megatron-lm:local``, a full reference, or a file.

        With a ``region``, ``alibaba:…`` comes from the registry of a VPC in that region.  Raises RunbookError for
        anything else, and for a tag that such an image cannot have.
        """
        text = text.strip()
        reference = named_image(text)
        if reference and region and family_of(reference) is ALIBABA and reference.tag:
            reference = vpc_address(ALIBABA.read(reference.tag), region)
        if reference is None and _FILE.fullmatch(text):
            return cls(text, "file")
        has_registry = "/" in text and re.search(r"[.:]", text.partition("/")[0])
        if reference is None and _LOCAL_NAME.fullmatch(text) and not has_registry:
            return cls(text, "built")
        reference = reference or ImageRef.parse(text)
        name, tag = str(reference), reference.tag
        if reference.repository.endswith("/training-nv-pytorch"):
            return cls(name, "alibaba", (*(ALIBABA.read(tag).notes if tag else ()), *TABLE["alibaba"]["warnings"]))
        warnings = NEMO.read(tag).notes if reference.name == NEMO.images[0] and tag else ()
        return cls(name, "other", warnings)

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
                f"Only this machine's engine has {self.name}; Pyxis would search Docker Hub for it.",
                "Import it into a .sqsh file on shared storage first (task import), and name that file as image.",
            )
        reference = ImageRef.parse(self.name)
        if reference.digest:
            raise RunbookError(
                f"Enroot does not accept digests, but {self.name} has one.", "Name the image by its tag."
            )
        return self.name.replace("/", "#", 1)
