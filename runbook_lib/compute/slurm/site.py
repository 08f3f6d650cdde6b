"""A cluster, or another machine, as its user describes it in a small YAML file.

``site.schema.json`` declares the format, and ``docs/build-and-verify.md`` has an example.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import RunbookError
from runbook_lib.text import user_file
from runbook_lib.world.machine.files import read_named

#: The JSON schema that declares the format, beside this module.
SCHEMA = "site.schema.json"


@dataclass(frozen=True)
class Resources:
    """The nodes of a job, the GPUs on each of them, and its time limit in minutes."""

    nodes: int
    gpus: int
    minutes: int


@dataclass(frozen=True)
class Session:
    """The resources and settings of a command inside the image; an empty one is the default of Slurm, or of uv.

    ``time`` is ``hours:minutes:seconds``, ``cache`` the folder of uv's cache, ``env`` variables by name.
    Alibaba's image is pulled inside a VPC of the ``region``; from the public registry if it is empty.
    """

    nodes: int = 1
    gpus_per_node: int = 8
    account: str = ""
    partition: str = ""
    time: str = ""
    cache: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    region: str = ""

    @property
    def minutes(self) -> int:
        """The time limit in minutes, rounded up, 0 if there is none."""
        hours, minutes, seconds = map(int, (self.time or "0:0:0").split(":"))
        return hours * 60 + minutes + (seconds > 0)


@dataclass(frozen=True)
class Site:
    """A cluster or another machine.  Paths are absolute and shared between the nodes.

    ``mounts`` are ``outside:inside``, optionally with ``:ro`` at the end.  ``options`` are further options of
    ``sbatch``.  With ``early`` a test ends as soon as its golden values are complete.  ``engine`` builds images, "" for
    the first that works.  ``session`` is for work inside the image, and names partition and account.  ``gpus`` is
    False if the cluster allocates complete nodes and has no GPU resources.  Tests whose recipe names fewer GPUs per
    node get ``least_gpus``, because CI's own runners provide all of theirs.  For a search, ``search_image`` names the
    image of each ``{tag}``, and ``components`` are versions in the good image.
    """

    results: str = ""
    image: str = ""
    mounts: Sequence[str] = ()
    options: Sequence[str] = ()
    early: bool = False
    engine: str = ""
    session: Session = field(default_factory=Session)
    platform: str = "dgx_h100"
    gpus: bool = True
    least_gpus: int = 0
    search_image: str = ""
    components: Mapping[str, str] = field(default_factory=dict)


def read_site(named: str) -> Site:
    """Return the site in a file, else in the one that ``RUNBOOK_SITE`` names; without either an empty one.

    Raises RunbookError for a file that cannot be read.
    """
    named = named or os.environ.get("RUNBOOK_SITE", "")
    if not named:
        return Site()
    try:
        text = read_named(Path(named).expanduser()).decode("utf-8", "replace")
    except (OSError, ValueError, RuntimeError) as error:  # an impossible file name, or the home of nobody
        raise RunbookError(
            f"The site file {named!r} cannot be read: {error}.", "Correct site, or RUNBOOK_SITE."
        ) from error
    return parse(text, named)


def parse(text: str, origin: str) -> Site:
    """Return the site that a file's text describes, which may be empty.

    Raises RunbookError, which names file, line and key.
    """
    schema = user_file.load_schema("runbook_lib.compute.slurm", SCHEMA)
    listed = user_file.read(text, schema, "site file", origin).values
    values: dict[str, Any] = {key.replace("-", "_"): value for key, value in listed.items() if value is not None}
    image = values.get("image", "")
    if image and not image.startswith("/") and "#" not in image:  # Pyxis would pull it from Docker Hub
        values["image"] = WorkImage.parse(image).enroot_address
    for name in ("results", "cache"):
        values[name] = os.path.expanduser(values.get(name, "").rstrip("/"))
    # The fields of a session are keys of the file, too.
    values["session"] = Session(**{each.name: values.pop(each.name) for each in fields(Session) if each.name in values})
    return Site(**values)
