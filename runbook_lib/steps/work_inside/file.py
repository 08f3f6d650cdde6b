"""An image as a file on shared storage: made once, found again by the image's own id."""

from dataclasses import replace
from pathlib import Path

from runbook_lib.containers import run
from runbook_lib.containers.work import pyxis
from runbook_lib.containers.work.image import Image
from runbook_lib.containers.work.target import Place
from runbook_lib.containers.work.task import Step


def identity(place: Place) -> str:
    """The id of an image that was built here; empty for others, and where the engine has none of that name."""
    image, engine = place.container.image, place.here.engine
    return run.image_id(engine, image.name) if engine and image.kind == "built" else ""


def made(place: Place, folder: str = "") -> tuple[str, tuple[Step, ...]]:
    """The image's file, and the steps that make it; none where it is there.  Without a folder, beside uv's cache.

    Raises Refused for an image that is a file.
    """
    image, engine, known = place.container.image, place.here.engine, identity(place)
    within = str(Path(folder).expanduser().absolute()) if folder else str(Path(place.container.cache).parent)
    if place.name == "apptainer":
        path, steps = pyxis.built_sif(image, within, known, there=False)
        there = Path(path).is_file()
        return pyxis.built_sif(image, within, known, there=True) if there else (path, steps)
    path, steps = pyxis.imported(image, within, known, engine, there=False)
    there = Path(path).is_file()
    return pyxis.imported(image, within, known, engine, there=True) if there else (path, steps)


def on_cluster(place: Place, folder: str = "") -> tuple[Place, tuple[Step, ...]]:
    """The place with its image as a file that the cluster's nodes can read, and the steps that make that."""
    path, steps = made(place, folder)
    return replace(place, container=replace(place.container, image=Image.parse(path))), steps
