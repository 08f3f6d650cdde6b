"""An image as a file on shared storage, created once and identified by the image's ID."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.compute import run
from runbook_lib.compute.work.image import WorkImage
from runbook_lib.compute.work.target import WorkTarget
from runbook_lib.compute.work.tasks import WorkStep, make_step
from runbook_lib.errors import Refused


@dataclass(frozen=True)
class ImageFile:
    """The file of an image, and the steps that create it; no steps if it exists already."""

    path: str
    steps: tuple[WorkStep, ...]


def image_id(target: WorkTarget) -> str:
    """Return the ID of an image that was built on this machine; empty for others, or if the engine lacks it."""
    image, engine = target.container.image, target.machine.engine
    if engine is None or image.kind != "built":
        return ""
    return run.image_id(engine, image.name)


def plan_image_file(target: WorkTarget) -> ImageFile:
    """Plan the ``.sqsh`` file of an image, for apptainer its ``.sif`` file, beside uv's cache, which nodes share.

    An image with a mutable name and an unknown ID is imported
    again.  Raises Refused for an image that is a file.
    """
    image, identity = target.container.image, image_id(target)
    if image.kind == "file":
        raise Refused(f"{image.name} is already a file: use it as image in a session.")
    parent = Path(target.container.cache).parent
    if target.name == "apptainer":
        extension, program, source = "sif", "Apptainer", image.apptainer_address
    else:
        extension, program, source = "sqsh", "Enroot", f"dockerd://{image.name}"
        if image.kind != "built":
            source = f"docker://{image.enroot_address}"
        elif target.machine.engine is not None and target.machine.engine.name == "podman":
            source = f"podman://{image.name}"
    path = f"{str(parent).rstrip('/')}/{image_file_stem(image, identity)}.{extension}"
    if Path(path).is_file() and (identity or not image.is_mutable):
        return ImageFile(path, ())
    draft = f"{path}.part"
    clear = make_step("import-clear", draft=draft, program=program)
    create = make_step(f"import-{program.lower()}", draft=draft, source=source)
    return ImageFile(path, (clear, create, make_step("import-publish", draft=draft, path=path)))


def image_file_stem(image: WorkImage, identity: str) -> str:
    """Return a file name without extension that is the same for the same image and differs for any other.

    ``identity`` is the ID or the digest, ``sha256:…``.  If it is empty, the complete reference identifies the image.
    """
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", image.name.rpartition("/")[2]).strip("-.")[:100] or "image"
    digits = re.sub(r"[^0-9a-f]", "", identity.rpartition(":")[2])[:12]
    return f"{stem}-{digits or hashlib.sha256(image.name.encode()).hexdigest()[:12]}"
