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
    "nodes": re.compile(r"[0-9]{1,4}"),
    "gpus": re.compile(r"[0-9]{1,4}"),
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
        if self.nodes < 1 or self.gpus < 0:
            raise RunbookError(f"{self.nodes} nodes with {self.gpus} GPUs each cannot be allocated.")

    @classmethod
    def parse(cls, text: str) -> "Allocation":
        """Parse ``nodes=2 gpus=8 account=… partition=a,b time=4:00:00``; every part is optional.

        Raises RunbookError for anything else.
        """
        values: dict[str, str] = {}
        for word in re.split(r"\s+|,\s|,(?=\w+=)", text.strip().rstrip(",")):  # a partition may be a list
            name, _, value = word.partition("=")
            if word and (name not in _FORMS or "=" not in word):
                raise RunbookError(
                    f"slurm contains {word!r}. Expected words such as nodes=1 gpus=8 account=… time=4:00:00."
                )
            if name in ("nodes", "gpus") and not _FORMS[name].fullmatch(value):
                raise RunbookError(f"slurm contains {value!r} instead of a number, such as nodes=1 gpus=8.")
            if word:
                values[name] = value
        nodes, gpus = values.pop("nodes", cls.nodes), values.pop("gpus", cls.gpus)
        return cls(int(nodes), int(gpus), **values)

    def options(self, *, gpus: bool) -> Iterator[str]:
        """Yield the options of ``srun``; a step without GPUs, such as a sync, runs on one node."""
        yield f"--nodes={self.nodes if gpus else 1}"
        yield "--ntasks-per-node=1"
        if gpus and self.gpus:
            yield f"--gpus-per-node={self.gpus}"
        for name, value in self._named():
            if value:
                yield f"--{name}={value}"

    def _named(self) -> tuple[tuple[str, str], ...]:
        return (("account", self.account), ("partition", self.partition), ("time", self.time))
