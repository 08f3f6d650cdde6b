"""The drivers of a cluster, read from the output of its tools: ``nvidia-smi`` and Slurm's ``scontrol show node``.

The text may come from many nodes, with each line labelled by its node: ``gpu4: 535.104.05``.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runbook_lib.errors import RunbookError
from runbook_lib.images.drivers import DRIVER, numbers

# The table names it so, since R610 also as the kernel-mode driver; `-q` and `--version` have spaces before the colon.
_NAMED = re.compile(r"\b(?:Driver|KMD) Version {0,60}: {0,20}(\S{1,40})", re.ASCII | re.IGNORECASE)
_BROKEN = re.compile(
    r"NVIDIA-SMI (?:has failed|couldn't find)|Failed to (?:initialize|properly shut down) NVML|No devices were found"
    r"|nvidia-smi: (?:command )?not found|nvidia-smi: No such file",
    re.IGNORECASE,
)
# The node of a line that `pdsh`, `clush` or `srun --label` printed; a shell that reports an error is none.
_LABEL = re.compile(
    r"(?!(?:nvidia-smi|bash|sh|srun|error|warning):)(?P<node>[\w.-]{1,200}): {1,8}(?=\S)", re.ASCII | re.IGNORECASE
)
_FIELD = re.compile(r"(?:^|\s)(ActiveFeatures|AvailableFeatures|Extra|Comment|Gres)=(\S*)")
_FEATURE = re.compile(rf"(?:nvidia[_-]?)?driver(?:[_-]?version)?[=:_-]?(?P<driver>{DRIVER})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, order=True)
class NodeDriver:
    """A driver, and the node that has it; empty where the driver is unknown, or where no node was named."""

    driver: str
    node: str = ""


def named(text: str, where: str = "RUNBOOK_DRIVERS") -> tuple[NodeDriver, ...]:
    """Read a list such as ``535.104.05, 550.54``. Raises RunbookError, which names its source ``where``."""
    entries = [entry for entry in re.split(r"[\s,]+", text) if entry]
    for entry in entries:
        try:
            numbers(entry)
        except RunbookError as error:
            raise RunbookError(f"{where} must be a comma-separated list of drivers. {error}") from None
    return _unique(map(NodeDriver, entries))


def nvidia_smi(text: str) -> tuple[NodeDriver, ...]:
    """Read the output of ``nvidia-smi``: its table, ``-q``, or ``--query-gpu=driver_version`` as CSV, of all nodes.

    A node that is named without a driver has an unknown one. Raises RunbookError where the text names no driver.
    """
    labels: list[str] = []
    drivers = _unique(_lines(text, labels))
    nodes = {driver.node for driver in drivers}
    if nodes - {""}:  # in the text of one machine, what looks like a label is none
        drivers = _unique((*drivers, *(NodeDriver("", label) for label in labels if label not in nodes)))
    if not drivers:
        raise RunbookError(
            "The text is no output of nvidia-smi that names a driver. Give what nvidia-smi prints, or what nvidia-smi "
            "--query-gpu=driver_version --format=csv,noheader prints."
        )
    return drivers


def slurm(text: str) -> tuple[NodeDriver, ...]:
    """Read the output of ``scontrol show node``: each node with GPUs, and the driver that a feature or comment names.

    Such features are ``driver=535.104.05`` and ``nvidia-driver-535.104.05``. Raises RunbookError where the text names
    no node.
    """
    blocks = re.split(r"(?m)^[ \t]*NodeName=", text)[1:]
    if not blocks:
        raise RunbookError("The text names no node of Slurm. Give what scontrol show node prints.")
    return _unique(_nodes(blocks))


def _lines(text: str, labels: list[str]) -> Iterator[NodeDriver]:
    """Yield the driver of each line that names one; ``labels`` gets the label of each line."""
    columns: dict[str, int] = {}  # node → the column that its header names
    for line in map(str.strip, text.splitlines()):
        node = ""
        if label := _LABEL.match(line):
            node = label["node"]
            labels.append(node)
            line = line[label.end() :]
        yield from _line(line, node, columns)


def _line(line: str, node: str, columns: dict[str, int]) -> Iterator[NodeDriver]:
    if _BROKEN.search(line):
        yield NodeDriver("", node)
    elif match := _NAMED.search(line):
        yield _known(match[1], node)
    elif not re.search(r"[|+]", line):
        cells = [cell.strip() for cell in next(csv.reader([line], strict=False), [])]
        if "driver_version" in cells:
            columns[node] = cells.index("driver_version")
        elif node in columns and columns[node] < len(cells):
            yield _known(cells[columns[node]], node)
        elif len(versions := [cell for cell in cells if re.fullmatch(DRIVER, cell, re.ASCII)]) == 1:
            yield _known(versions[0], node)


def _nodes(blocks: Iterable[str]) -> Iterator[NodeDriver]:
    for block in blocks:
        name = re.split(r"\s", block, maxsplit=1)[0]
        fields = dict(_FIELD.findall(block))
        texts = (fields.get(field, "") for field in ("ActiveFeatures", "AvailableFeatures", "Extra", "Comment"))
        entries = re.split(r"[,;&|]", ",".join(texts))
        driver = next((match["driver"] for entry in entries if (match := _FEATURE.fullmatch(entry))), "")
        # A node without GPUs has no driver.
        if driver or fields.get("Gres", "gpu") not in ("(null)", "", "none"):
            yield NodeDriver(driver, name)


def _known(text: str, node: str) -> NodeDriver:
    """Return the driver of a node; ``N/A`` and other texts that are no version are an unknown one."""
    return NodeDriver(text if re.fullmatch(DRIVER, text, re.ASCII) else "", node)


def _unique(drivers: Iterable[NodeDriver]) -> tuple[NodeDriver, ...]:
    return tuple(dict.fromkeys(drivers))
