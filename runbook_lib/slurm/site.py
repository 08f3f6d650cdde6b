"""A cluster as its user describes it.  Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from runbook_lib.recipes.workloads import Workload

_WORD = re.compile(r"[\w.+@=/-]+")
_MOUNTABLE = re.compile(r"/[^,:\x00-\x1f]*")
_OPTION = re.compile(r"--(?P<name>[a-z][a-z-]{1,40})(=[\w.,:+@%/-]{1,200})?")
#: Options of ``sbatch`` that follow from the recipes and the other settings.
_RESERVED = frozenset({
    "job-name", "nodes", "ntasks-per-node", "gpus-per-node", "time", "partition", "account", "array", "output", "error",
    "export", "wrap", "chdir", "parsable", "wait", "open-mode",
})  # fmt: skip
#: Options by which a user decides how a node's processors are shared.
_SHARING = re.compile(r"--(?:exclusive|oversubscribe|cpus-per-(?:gpu|task)|mincpus|cores-per-socket)(?:=|$)")


@dataclass(frozen=True)
class Site:
    """A cluster.  Paths are absolute and shared between the nodes.

    ``partitions`` are by platform, "" for all others; ``mounts`` are pairs of a path outside and inside the container.
    Without an ``image`` a task runs in the checkout itself, else on an archive of the commit in ``results``.
    ``at_once`` limits the running elements of an array, 0 for no limit.  ``gpus`` is False if the cluster allocates
    whole nodes and knows no GPUs.  Tests whose recipe names fewer GPUs per node get ``least_gpus``, because CI's own
    runners give all that they have.  ``options`` are further options of ``sbatch``.  ``shared``: the user vouches that
    all nodes see the paths.  ``node_gpus`` are the GPUs of a node, by partition, "" for the default one.  ``in_image``
    are folders that the image contains.
    """

    checkout: str
    results: str
    image: str = ""
    partitions: Mapping[str, str] = field(default_factory=dict)
    account: str = ""
    mounts: tuple[tuple[str, str], ...] = ()
    at_once: int = 0
    gpus: bool = True
    least_gpus: int = 0
    options: tuple[str, ...] = ()
    shared: bool = False
    node_gpus: Mapping[str, int] = field(default_factory=dict)
    in_image: tuple[str, ...] = ()

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
        return not self.gpus or (min(sizes) > 0 and max(sizes) <= gpus)

    def problems(
        self, *, partitions: Collection[str] | None = None, accounts: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Return what cannot work, as sentences.  Partitions and accounts are compared with the cluster's if given."""
        names: set[str] = set()
        for value in filter(None, self.partitions.values()):
            names.update(value.split(","))
        problems = [*self._path_problems(), *self._option_problems()]
        for name in sorted(names):
            problems += _name_problems("partition", name, partitions)
        if self.account:
            problems += _name_problems("account", self.account, accounts)
        return tuple(problems)

    def _path_problems(self) -> Iterator[str]:
        for name, path in (("The checkout", self.checkout), ("The folder for results", self.results)):
            if not (path.startswith("/") and _WORD.fullmatch(path)):
                yield f"{name} is {path!r}; expected an absolute path of letters, digits and any of . _ + @ = / -."
        for outside, inside in self.mounts:
            if not (_MOUNTABLE.fullmatch(outside) and _MOUNTABLE.fullmatch(inside)):
                yield (
                    f"The mount {outside}:{inside} is invalid: a path is absolute and has no comma, colon or control "
                    "character."
                )
        if re.search(r"[\s\x00]", self.image):
            yield f"The name of the image {self.image!r} contains white space."

    def _option_problems(self) -> Iterator[str]:
        for option in self.options:
            match = _OPTION.fullmatch(option)
            if match is None:
                yield f"The option {option!r} cannot be passed to sbatch: expected --name=value."
                continue
            for name in sorted(_RESERVED):
                # Slurm accepts the beginning of an option's name for the whole name.
                if name.startswith(match["name"]):
                    yield (
                        f"The option {option!r} cannot be passed to sbatch: --{name} follows from the recipe and the "
                        "other settings."
                    )
                    break


def _name_problems(kind: str, name: str, known: Collection[str] | None) -> Iterator[str]:
    if not _WORD.fullmatch(name):
        yield f"{name!r} is not a valid name of {'an' if kind == 'account' else 'a'} {kind}."
    elif known is not None and name not in known:
        yield f"The cluster has no {kind} {name} for you. It has: {', '.join(sorted(known)) or 'none'}."
