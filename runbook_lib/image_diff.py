"""Images of a registry as a person names them, and what differs between two: what ``runbook image`` asks."""

import argparse
import re

from runbook_lib.compare import compare
from runbook_lib.errors import CannotTell
from runbook_lib.image import Image, ImageRef
from runbook_lib.registry import Registry
from runbook_lib.sites import MEGATRON_LM


def reference(text: str) -> ImageRef:
    """An image as a person names it; a tag alone, such as 26.04-py3, is one of NGC's PyTorch image."""
    return ImageRef.parse(f"{MEGATRON_LM.image}:{text}" if re.fullmatch(r"\w[\w.-]*", text) else text)


def read(text: str) -> Image:
    """The image in its registry.  Raises CannotTell where that has none of the name."""
    ref = reference(text)
    with Registry.connect(ref) as registry:
        found = registry.image(ref.digest or ref.tag or "latest")
    if found is None:
        raise CannotTell(f"{registry.name} has no image {ref}. Look for the right tag, or correct the name.")
    return found


def command(options: argparse.Namespace) -> int:
    """``runbook image diff A B``: prints Markdown."""
    names = (options.old, options.new)
    print(compare(read(options.old), read(options.new), names).markdown())
    return 0
