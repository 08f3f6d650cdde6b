"""A cluster as its user describes it.  Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from runbook_lib.compute.work.allocation import Allocation
from runbook_lib.recipes.workloads import Workload

_WORD = re.compile(r"[\w.+@=/-]+")
_MOUNTABLE = re.compile(r"/[^,:\x00-\x1f]*")
#: Slurm reads an option to the end of its line, so white space, quotes and ``#`` are excluded.
_OPTION = re.compile(r"--(?P<name>[a-z][a-z-]{1,40})(=[\w.,:+@%/&|*()!=\[\]-]{1,200})?")
#: Options of ``sbatch`` that follow from the recipes and the other settings.
_RESERVED = (
    "account", "array", "chdir", "error", "export", "gpus-per-node", "job-name", "nodes", "ntasks-per-node",
    "open-mode", "output", "parsable", "partition", "time", "wait", "wrap",
)  # fmt: skip
#: Options by which a user decides how a node's processors are shared.
_SHARING = re.compile(r"--(?:exclusive|oversubscribe|cpus-per-(?:gpu|task)|mincpus|cores-per-socket)(?:=|$)")


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
    """A cluster.  Paths are absolute and shared between the nodes.

    ``partitions`` and ``images`` are by platform, "" or ``image`` for all others.  ``mounts`` have a path outside, one
    inside the container, and optionally ``ro``.  Without an image a task runs in the checkout itself, else on an
    archive of the commit in ``results``; ``runtime`` starts the containers: pyxis, apptainer, or "" for the available
    one.  ``at_once`` limits the running elements of an array, 0 for no limit.  ``gpus`` is False if the cluster
    allocates complete nodes and has no GPU resources; ``gpu_type`` is Slurm's name of the GPUs to request.  Tests whose
    recipe names fewer GPUs per node get ``least_gpus``, because CI's own runners provide all of theirs. ``master_port``
    is 0 for a separate port per job.  ``options`` are further options of ``sbatch``.  ``shared``: the user vouches that
    all nodes see the paths.  ``platform`` is the one whose tests run, "" for all; with ``early`` a test ends as soon as
    its golden values are complete.  ``session`` is for work inside the image.
    ``engine`` builds images, "" for the first that works.  ``node_gpus`` are the GPUs of a node, by partition, "" for
    the default one.  ``in_image`` are folders that the image contains.  For a search, ``search_image`` names the
    image of each ``{tag}``, and ``components`` are versions in the good image.
    """

    checkout: str
    results: str
    image: str = ""
    partitions: Mapping[str, str] = field(default_factory=dict)
    account: str = ""
    mounts: tuple[tuple[str, ...], ...] = ()
    at_once: int = 0
    gpus: bool = True
    least_gpus: int = 0
    options: tuple[str, ...] = ()
    shared: bool = False
    node_gpus: Mapping[str, int] = field(default_factory=dict)
    in_image: tuple[str, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    runtime: str = ""
    gpu_type: str = ""
    master_port: int = 0
    platform: str = "dgx_h100"
    early: bool = False
    session: Session = field(default_factory=Session)
    engine: str = ""
    search_image: str = ""
    components: Mapping[str, str] = field(default_factory=dict)

    @property
    def image_names(self) -> tuple[str, ...]:
        """The images of all platforms."""
        return tuple(dict.fromkeys(filter(None, [self.image, *self.images.values()])))

    def image_for(self, platform: str) -> str:
        """Return the image for a platform, "" if there is none."""
        return self.images.get("".join(platform.split()), self.image)

    def partition(self, platform: str) -> str:
        """Return the partition for a platform, several of them comma-separated, "" for the cluster's own choice."""
        return self.partitions.get("".join(platform.split()), self.partitions.get("", ""))

    def gpus_for(self, workload: Workload) -> int:
        """Return the GPUs per node that a test gets here."""
        return workload.gpus and max(workload.gpus, self.least_gpus)

    def exclusive(self, partition: str, gpus: int) -> bool:
        """Return True if a test with this number of GPUs per node gets its nodes with all processors and memory.

        By default Slurm gives one processor per task, which all processes of a node would share.
        """
        if any(_SHARING.match(option) for option in self.options):
            return False
        sizes = [self.node_gpus.get(name, 0) for name in partition.split(",")]
        # With a fixed port, two tests on a node would collide.
        return not self.gpus or self.master_port > 0 or (min(sizes) > 0 and max(sizes) <= gpus)

    def problems(self, *, partitions: Collection[str] | None = None) -> tuple[str, ...]:
        """Return the problems as sentences.  Partitions are compared with the cluster's if available."""
        names: set[str] = set()
        for value in filter(None, self.partitions.values()):
            names.update(value.split(","))
        problems = [*self._path_problems(), *self._option_problems()]
        for name in sorted(names):
            if not _WORD.fullmatch(name):
                problems.append(f"{name!r} is not a valid name of a partition.")
            elif partitions is not None and name not in partitions:
                known = ", ".join(sorted(partitions)) or "none"
                problems.append(f"The cluster has no partition {name} that you may use. Available: {known}.")
        if self.account and not _WORD.fullmatch(self.account):
            problems.append(f"{self.account!r} is not a valid name of an account.")
        return tuple(problems)

    def _path_problems(self) -> Iterator[str]:
        for name, path in (("The checkout", self.checkout), ("The folder for results", self.results)):
            if not (path.startswith("/") and _WORD.fullmatch(path)):
                yield f"{name} is {path!r}; expected an absolute path of letters, digits and any of . _ + @ = / -."
        for mount in self.mounts:
            outside, inside, *flags = mount
            if not (_MOUNTABLE.fullmatch(outside) and _MOUNTABLE.fullmatch(inside) and flags in ([], ["ro"], ["rw"])):
                yield (
                    f"The mount {':'.join(mount)} is invalid: expected two absolute paths without commas, colons and "
                    "control characters, such as /shared/data:/mnt/artifacts, and perhaps :ro."
                )
        for image in self.image_names:
            if re.search(r"[\s\x00]", image):
                yield f"The name of the image {image!r} contains white space."

    def _option_problems(self) -> Iterator[str]:
        if self.gpu_type and not _WORD.fullmatch(self.gpu_type):
            yield f"{self.gpu_type!r} is not a valid type of GPUs."
        for option in self.options:
            match = _OPTION.fullmatch(option)
            if match is None:
                yield f"The option {option!r} cannot be passed to sbatch: expected --name=value."
                continue
            # Slurm accepts abbreviated option names.
            reserved = next((name for name in _RESERVED if name.startswith(match["name"])), "")
            if reserved:
                yield (
                    f"The option {option!r} cannot be passed to sbatch: --{reserved} follows from the recipe and the "
                    "other settings."
                )
