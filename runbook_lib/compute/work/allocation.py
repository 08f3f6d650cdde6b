"""A request to Slurm for nodes.  Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from runbook_lib.errors import RunbookError

_NAME = r"[A-Za-z0-9_][\w.+@=-]*"
_FORMS = {
    "account": re.compile(_NAME),
    "partition": re.compile(rf"{_NAME}(?:,{_NAME})*"),
    "time": re.compile(r"(?:\d{1,4}-)?\d{1,4}(?::\d{2}){0,2}"),
}


@dataclass(frozen=True)
class Allocation:
    """A number of nodes and of GPUs per node; ``time`` in the format of ``--time``.  Empty: Slurm's default."""

    nodes: int = 1
    gpus: int = 8
    account: str = ""
    partition: str = ""
    time: str = ""

    def __post_init__(self) -> None:
        for name, value in self._named():
            if value and not _FORMS[name].fullmatch(value):
                raise RunbookError(f"{name}={value!r} is not a value that Slurm accepts for --{name}.")

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
        for name, value in self._named():
            if value:
                yield f"--{name}={value}"

    def _named(self) -> tuple[tuple[str, str], ...]:
        return (("account", self.account), ("partition", self.partition), ("time", self.time))
