"""A cluster, or another machine, as its user describes it in a small YAML file.

``site.schema.json`` declares the format, and ``docs/build-and-verify.md`` has an example.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from runbook_lib.compute.allocation import Allocation
from runbook_lib.compute.work_image import WorkImage
from runbook_lib.compute.workloads import Workload
from runbook_lib.errors import RunbookError
from runbook_lib.text import user_file
from runbook_lib.world.machine.files import read_named

#: The JSON schema that declares the format, beside this module.
SCHEMA = "site.schema.json"
#: Options of ``sbatch`` by which a job is found again, or that the recipes decide.
_RESERVED = ("--array", "--error", "--export", "--job-name", "--nodes", "--ntasks-per-node", "--output", "--wrap")


@dataclass(frozen=True)
class Session:
    """What a command inside the image gets: its ``allocation``, the folder of uv's ``cache``, ``variables`` to set.

    ``region`` is that of the VPC from which Alibaba's image is pulled, empty for the public registry.
    """

    allocation: Allocation = field(default_factory=Allocation)
    cache: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    region: str = ""


@dataclass(frozen=True)
class Site:
    """A cluster of one platform.  Paths are absolute and shared between the nodes.

    ``mounts`` have a path outside, one inside the container, and optionally ``ro``.  Without an ``image`` a test runs
    in the checkout itself, else on an archive of the commit.  ``gpus`` is False if the cluster allocates complete nodes
    and has no GPU resources.  Tests whose recipe names fewer GPUs per node get ``least_gpus``, because CI's own runners
    provide all of theirs.  ``options`` are further options of ``sbatch``.  With ``early`` a test ends as soon as its
    golden values are complete.  ``session`` is for work inside the image, and names partition and account.  ``engine``
    builds images, "" for the first that works.  For a search, ``search_image`` names the image of each ``{tag}``, and
    ``components`` are versions in the good image.
    """

    checkout: str
    results: str
    image: str = ""
    mounts: tuple[tuple[str, ...], ...] = ()
    gpus: bool = True
    least_gpus: int = 0
    options: tuple[str, ...] = ()
    platform: str = "dgx_h100"
    early: bool = False
    session: Session = field(default_factory=Session)
    engine: str = ""
    search_image: str = ""
    components: Mapping[str, str] = field(default_factory=dict)

    def gpus_for(self, workload: Workload) -> int:
        """Return the GPUs per node that a test gets here."""
        return workload.gpus and max(workload.gpus, self.least_gpus)


def read_site(named: str, checkout: Path, env: Mapping[str, str] = os.environ) -> Site:
    """Return the site in a file, else in the one that ``RUNBOOK_SITE`` names; without either an empty one.

    Raises RunbookError for a file that cannot be read.
    """
    named = named or env.get("RUNBOOK_SITE", "")
    if not named:
        return parse("", "(none)", str(checkout))
    try:
        text = read_named(Path(named).expanduser()).decode("utf-8", "replace")
    except (OSError, ValueError) as error:  # ValueError: an impossible file name
        raise RunbookError(
            f"The site file {named!r} cannot be read: {error}.", "Correct site, or RUNBOOK_SITE."
        ) from error
    return parse(text, named, str(checkout))


def parse(text: str, origin: str, checkout: str) -> Site:
    """Return the site that a file's text describes, which may be empty.

    Raises RunbookError, which names file, line and key.
    """
    schema = user_file.load_schema("runbook_lib.compute.slurm", SCHEMA)
    listed = user_file.read(text, schema, "site file", origin).values
    values = {name.replace("-", "_"): value for name, value in listed.items() if value is not None}
    if reserved := [each for each in values.get("options", ()) if each.partition("=")[0] in _RESERVED]:
        raise RunbookError(
            f"The option {reserved[0]!r} in the site file {origin} cannot be passed to sbatch: it follows from the "
            "recipe and the other settings.",
            "Remove it.",
        )
    session = _session(values, origin)
    image = values.get("image", "")
    if image and not image.startswith("/") and "#" not in image:  # Pyxis would pull it from Docker Hub
        image = WorkImage.parse(image).enroot_address
    mounts = tuple(tuple(mount.split(":")) for mount in values.get("mounts", ()))
    names = {each.name for each in fields(Site)} - {"session"}
    given: dict[str, Any] = {name: value for name, value in values.items() if name in names}
    given |= {"results": _folder(values, "results"), "image": image, "mounts": mounts}
    given |= {"options": tuple(values.get("options", ()))}
    return Site(checkout, session=session, **given)


def _session(values: Mapping[str, Any], origin: str) -> Session:
    allocation = Allocation(
        values.get("nodes", Allocation.nodes), values.get("gpus_per_node", Allocation.gpus),
        values.get("account", ""), values.get("partition", ""), values.get("time", ""),
    )  # fmt: skip
    variables = tuple(values.get("env", {}).items())
    for name, value in variables:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not value.isprintable():
            raise RunbookError(
                f"env in the site file {origin} has {name!r}, which is no name of a variable or has no plain value."
            )
    return Session(allocation, _folder(values, "cache"), variables, values.get("region", ""))


def _folder(values: Mapping[str, Any], key: str) -> str:
    return os.path.expanduser(str(values.get(key, "")).rstrip("/"))
