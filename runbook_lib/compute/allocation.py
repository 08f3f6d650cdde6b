"""A request to Slurm for nodes.  Pure."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Allocation:
    """A number of nodes and of GPUs per node; ``time`` in the format of ``--time``.  Empty: Slurm's default."""

    nodes: int = 1
    gpus: int = 8
    account: str = ""
    partition: str = ""
    time: str = ""

    @property
    def minutes(self) -> int:
        """The time limit in minutes, 0 if there is none."""
        days, _, clock = self.time.rpartition("-")
        parts = [int(part) for part in clock.split(":") if part]
        if days:
            hours, minutes = [*parts, 0][:2]
            return (int(days) * 24 + hours) * 60 + minutes
        if len(parts) == 3:
            return parts[0] * 60 + parts[1]
        return parts[0] if parts else 0

    def options(self, *, gpus: bool, terminal: bool = False) -> Iterator[str]:
        """Yield the options of ``srun``; a step without GPUs, such as a sync, or with a terminal runs on one node."""
        yield f"--nodes={self.nodes if gpus and not terminal else 1}"
        yield "--ntasks-per-node=1"
        if gpus and self.gpus:
            yield f"--gpus-per-node={self.gpus}"
        for name in ("account", "partition", "time"):
            if value := getattr(self, name):
                yield f"--{name}={value}"
