"""The image that is worked in: what a person may call it, what it asks of the engine, and what not to do in it.  Pure.

Sources: Megatron-Bridge's ``skills/build-and-dependency`` (NeMo's images by tag), Alibaba's release notes of
training-nv-pytorch 25.05 (its options and what it warns of), and enroot's ``doc/cmd/import.md`` (its addresses).
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.images.tags import alibaba
from runbook_lib.images.tags.alibaba import AlibabaTag
from runbook_lib.images.tags.nemo import NemoTag

NEMO = ("nvcr.io", "nvidia/nemo")
Kind = Literal["built", "nemo", "alibaba", "other", "file"]
_LOCAL = re.compile(r"(?:localhost/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9._-]+)*(?::[\w][\w.-]{0,127})?")
_FILE = re.compile(r"/[^,:\s\x00-\x1f\x7f]*\.(?:sqsh|squashfs|sif)")
#: Tags that name another image every now and then.
_MOVING = re.compile(r"latest|main|dev|nightly.*|(?=.*local).*")

_ALIBABA_WARNINGS = (
    "Do not reinstall PyTorch, DeepSpeed and the like in this image: Alibaba has patched them, and a plain release "
    "takes the patches away.",
    "Leave zero_optimization.stage3_prefetch_bucket_size of DeepSpeed's configuration empty or auto.",
    "With CHECKPOINT_OPTIMIZATION=true recomputation saves memory; since its move to PyTorch 2.6 the gain is smaller "
    "for language models.",
)


@dataclass(frozen=True)
class Image:
    """``name`` is as the engine takes it; ``kind`` says where it comes from: built here, pulled, or a file.

    ``options`` are those of ``docker run`` that the image asks for; ``warnings`` are what not to do in it.
    """

    name: str
    kind: Kind
    options: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Image":
        """Read ``nemo:26.06``, ``alibaba:25.05-serverless``, ``megatron-lm:local``, a full reference, or a file.

        Raises RunbookError for anything else, and for a tag that such an image cannot have.
        """
        text = text.strip()
        short, _, tag = text.partition(":")
        if short == "nemo" and tag:
            return cls._pulled(ImageRef(*NEMO, tag))
        if short == "alibaba" and tag:
            return cls._pulled(alibaba.address(AlibabaTag.parse(tag)))
        if _FILE.fullmatch(text):
            return cls(text, "file")
        if _LOCAL.fullmatch(text) and not ("/" in text and re.search(r"[.:]", text.partition("/")[0])):
            return cls(text, "built")
        return cls._pulled(ImageRef.parse(text))

    @classmethod
    def _pulled(cls, ref: ImageRef) -> "Image":
        if (ref.registry, ref.repository) == NEMO and ref.tag:
            return cls(str(ref), "nemo", (), NemoTag.parse(ref.tag).notes)
        if ref.repository.endswith("/training-nv-pytorch"):
            notes = AlibabaTag.parse(ref.tag).notes if ref.tag else ()
            return cls(str(ref), "alibaba", ("--ipc=host", "--net=host", "--privileged"), (*notes, *_ALIBABA_WARNINGS))
        if ":" in ref.registry:
            told = (
                f"The address {ref} has a port: a registry that is reached without one answers 'access forbidden' then."
            )
            return cls(str(ref), "other", (), (told,))
        return cls(str(ref), "other")

    @property
    def moves(self) -> bool:
        """Whether the name stands for another image every now and then, so that its name does not tell which."""
        if self.kind == "file" or "@" in self.name:
            return False
        tag = self.name.rpartition("/")[2].partition(":")[2]
        return self.kind == "built" or not tag or _MOVING.fullmatch(tag) is not None

    @property
    def enroot(self) -> str:
        """As Enroot and Pyxis take it: a file's path, or with ``#`` after the registry, which else is Docker Hub.

        Raises RunbookError for an image that only this machine's engine has, and for a digest.
        """
        if self.kind == "file":
            return self.name
        if self.kind == "built":
            raise RunbookError(
                f"{self.name} is known to this machine's engine alone, and Pyxis would look for it on Docker Hub. "
                "Import it into a .sqsh file on shared storage first (task import), and name that file as image."
            )
        ref = ImageRef.parse(self.name)
        if ref.digest:
            raise RunbookError(f"Enroot takes no digest, and {self.name} has one. Name the image by its tag.")
        return f"{ref.registry}#{ref.repository}{f':{ref.tag}' if ref.tag else ''}"

    def no_uv(self) -> str:
        """Why uv installs nothing in this image; empty where it may."""
        if self.kind != "alibaba":
            return ""
        return f"uv work is not done in {self.name}. {_ALIBABA_WARNINGS[0]} Use the image that the project builds."


def inspected(image: Image, identity: str) -> str:
    """A name for the image's ``.sqsh`` file, the same for the same image and no other.

    ``identity`` is the id or the digest, ``sha256:…``.  Empty: the whole reference tells, where its tag does not move.
    """
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", image.name.rpartition("/")[2]).strip("-.")[:100] or "image"
    digits = re.sub(r"[^0-9a-f]", "", identity.rpartition(":")[2])[:12]
    return f"{stem}-{digits or hashlib.sha256(image.name.encode()).hexdigest()[:12]}.sqsh"
