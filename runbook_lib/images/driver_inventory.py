"""The drivers of a cluster, read from what its tools print: ``nvidia-smi`` and Slurm's ``scontrol show node``.

Text from many nodes may come in one piece, with each line labelled (``pdsh``, ``srun --label``, ``clush``) or in blocks
under a node's name (``dshbak``, ``clush -b``).  A node that does not say its driver is one whose driver is unknown.
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
# Those who speak of a node are none: `pdsh@login: gpu4: ssh exited with exit code 255`, `srun: error: gpu4: task 3: …`.
_LABEL = re.compile(
    r"(?:(?:pdsh@[\w.-]{1,200}|clush|srun|slurmstepd|ssh|bash|sh|warning|error|note): {1,8}){0,4}"
    r"(?:(?!nvidia-smi:)(?P<node>[\w.\[\],-]{1,200}): {1,8}(?=\S))?",
    re.ASCII | re.IGNORECASE,
)
_HEADING = re.compile(
    r"^-{3,200}[ \t\r]*\n([\w.\[\],-]{1,200})(?: \(\d{1,6}\))?[ \t\r]*\n-{3,200}[ \t\r]*$", re.ASCII | re.MULTILINE
)
_FIELD = re.compile(r"(?:^|\s)(ActiveFeatures|AvailableFeatures|Extra|Comment|Gres)=(\S*)")
_FEATURE = re.compile(rf"(?:nvidia[_-]?)?driver(?:[_-]?version)?[=:_-]?(?P<driver>{DRIVER})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, order=True)
class Seen:
    """A driver, and the node that has it; empty where the driver is unknown, or where no node was named."""

    driver: str
    node: str = ""


def named(text: str, where: str = "RUNBOOK_DRIVERS") -> tuple[Seen, ...]:
    """A list such as ``535.104.05, 550.54``.  Raises RunbookError, which names ``where`` it stands."""
    found = [entry for entry in re.split(r"[\s,]+", text) if entry]
    for entry in found:
        try:
            numbers(entry)
        except RunbookError as error:
            raise RunbookError(f"{where} names drivers, divided by commas. {error}") from None
    return _once(map(Seen, found))


def nvidia_smi(text: str) -> tuple[Seen, ...]:
    """What ``nvidia-smi`` printed: its table, ``-q``, or ``--query-gpu=driver_version`` as CSV, of one node or many.

    A node that is named and does not say its driver has an unknown one.  Raises RunbookError where nothing in the text
    tells of a driver.
    """
    names: list[str] = []
    found = _once(_lines(text, names))
    telling = {one.node for one in found}
    if telling - {""}:  # in the text of one machine, what looks like a label is none
        found = _once((*found, *(Seen("", name) for name in names if name not in telling)))
    if not found:
        raise RunbookError(
            "The text is no output of nvidia-smi that names a driver. Give what nvidia-smi prints, or what nvidia-smi "
            "--query-gpu=driver_version --format=csv,noheader prints."
        )
    return found


def slurm(text: str) -> tuple[Seen, ...]:
    """What ``scontrol show node`` printed: each node with GPUs, and its driver where a feature or comment names one.

    Such as ``driver=535.104.05`` or ``nvidia-driver-535.104.05``.  Raises RunbookError where there is no node in it.
    """
    blocks = re.split(r"(?m)^[ \t]*NodeName=", text)[1:]
    if not blocks:
        raise RunbookError("The text names no node of Slurm. Give what scontrol show node prints.")
    return _once(_nodes(blocks))


def _lines(text: str, names: list[str]) -> Iterator[Seen]:
    """What each line tells; ``names`` gets each node that is named."""
    columns: dict[str, int] = {}  # node → the column that its header names
    first, *blocks = _HEADING.split(text)
    for block, body in [("", first), *zip(blocks[::2], blocks[1::2], strict=True)]:
        names += [block] if block else []
        for line in map(str.strip, body.splitlines()):
            label = _LABEL.match(line)
            node = label["node"] if label else None
            names += [node] if node else []
            yield from _line(line[label.end() :] if label else line, node or block, columns)


def _line(line: str, node: str, columns: dict[str, int]) -> Iterator[Seen]:
    if _BROKEN.search(line):
        yield Seen("", node)
    elif match := _NAMED.search(line):
        yield _seen(match[1], node)
    elif not re.search(r"[|+]", line):
        cells = [cell.strip() for cell in next(csv.reader([line], strict=False), [])]
        if "driver_version" in cells:
            columns[node] = cells.index("driver_version")
        elif node in columns and columns[node] < len(cells):
            yield _seen(cells[columns[node]], node)
        elif len(versions := [cell for cell in cells if re.fullmatch(DRIVER, cell, re.ASCII)]) == 1:
            yield _seen(versions[0], node)


def _nodes(blocks: Iterable[str]) -> Iterator[Seen]:
    for block in blocks:
        name = re.split(r"\s", block, maxsplit=1)[0]
        fields = dict(_FIELD.findall(block))
        said = (fields.get(field, "") for field in ("ActiveFeatures", "AvailableFeatures", "Extra", "Comment"))
        entries = (entry for text in said for entry in re.split(r"[,;&|]", text))
        driver = next((match["driver"] for entry in entries if (match := _FEATURE.fullmatch(entry))), "")
        # A node without GPUs has no driver to tell of.
        if driver or fields.get("Gres", "gpu") not in ("(null)", "", "none"):
            yield Seen(driver, name)


def _seen(text: str, node: str) -> Seen:
    """``N/A`` and whatever else is no version is an unknown driver."""
    return Seen(text if re.fullmatch(DRIVER, text, re.ASCII) else "", node)


def _once(found: Iterable[Seen]) -> tuple[Seen, ...]:
    return tuple(dict.fromkeys(found))
