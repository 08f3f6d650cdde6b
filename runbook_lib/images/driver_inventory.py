"""The drivers of a cluster's nodes, from a list or from the output of ``nvidia-smi``.

The output may come from many nodes, with each line labelled by its node: ``gpu4: 535.104.05``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from runbook_lib.errors import RunbookError
from runbook_lib.images.drivers import DRIVER, numbers

# The table's wording, since R610 also "kernel-mode driver"; `-q` and `--version` have spaces before the colon.
_NAMED = re.compile(r"\b(?:Driver|KMD) Version {0,60}: {0,20}(\S{1,40})", re.ASCII | re.IGNORECASE)
_BROKEN = re.compile(
    r"NVIDIA-SMI (?:has failed|couldn't find)|Failed to (?:initialize|properly shut down) NVML|No devices were found"
    r"|nvidia-smi: (?:command )?not found|nvidia-smi: No such file",
    re.IGNORECASE,
)
# The node of a labelled line; a shell that reports an error is not a node.
_LABEL = re.compile(
    r"(?!(?:nvidia-smi|bash|sh|srun|error|warning):)(?P<node>[\w.-]{1,200}): {1,8}(?=\S)", re.ASCII | re.IGNORECASE
)


@dataclass(frozen=True, order=True)
class NodeDriver:
    """A driver and its node, each empty if unknown."""

    driver: str
    node: str = ""


def listed_drivers(text: str, origin: str = "RUNBOOK_DRIVERS") -> tuple[NodeDriver, ...]:
    """Parse a list such as ``535.104.05, 550.54``.  Raises RunbookError, which mentions its ``origin``."""
    entries = re.findall(r"[^\s,]+", text)
    for entry in entries:
        try:
            numbers(entry)
        except RunbookError as error:
            raise RunbookError(f"{origin} must be a comma-separated list of drivers. {error}") from None
    return tuple(dict.fromkeys(map(NodeDriver, entries)))


def nvidia_smi(text: str) -> tuple[NodeDriver, ...]:
    """Parse the output of ``nvidia-smi``: its table, ``-q``, or ``--query-gpu=driver_version`` as CSV, of all nodes.

    For a labelled node without a driver, the driver is unknown.  Raises RunbookError if there is no driver in the text.
    """
    labels: list[str] = []
    drivers = dict.fromkeys(_lines(text, labels))
    nodes = {driver.node for driver in drivers}
    if nodes - {""}:  # in the output of one machine, text that looks like a label is not one
        drivers |= dict.fromkeys(NodeDriver("", label) for label in labels if label not in nodes)
    if not drivers:
        raise RunbookError(
            "The text is not output of nvidia-smi that names a driver. Give the output of nvidia-smi, or of nvidia-smi "
            "--query-gpu=driver_version --format=csv,noheader."
        )
    return tuple(drivers)


def _lines(text: str, labels: list[str]) -> Iterator[NodeDriver]:
    """Yield the driver of each line that has one; the label of each line is added to ``labels``."""
    for line in map(str.strip, text.splitlines()):
        node = ""
        if label := _LABEL.match(line):
            node = label["node"]
            labels.append(node)
            line = line[label.end() :]
        if _BROKEN.search(line):
            yield NodeDriver("", node)
        elif match := _NAMED.search(line):
            is_version = re.fullmatch(DRIVER, match[1], re.ASCII)
            yield NodeDriver(match[1] if is_version else "", node)
        elif not re.search(r"[|+]", line):
            cells = map(str.strip, line.split(","))
            versions = [cell for cell in cells if re.fullmatch(DRIVER, cell, re.ASCII)]
            if len(versions) == 1:
                yield NodeDriver(versions[0], node)
