"""Tables, diffs and images beside a record's statement.  Any of them may be missing or damaged."""

import base64
import csv
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: The image formats that can be shown, in order of preference.
_KINDS = ("image/svg+xml", "image/png", "image/jpeg")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def rows(file: Path) -> list[dict[str, str]]:
    """Return the rows of a table; none if it cannot be read."""
    try:
        table = list(csv.DictReader(text(file).splitlines(keepends=True)))
    except csv.Error:
        return []
    # csv uses None as the name of surplus cells and as the value of missing ones.
    return [{k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)} for row in table]


@dataclass(frozen=True)
class OutputImage:
    """An image in a notebook's output, with its base64 data and its description."""

    kind: str
    data: str
    description: str

    @property
    def html(self) -> str:
        """The HTML element that shows the image and contains its data."""
        return f'<img alt="{html.escape(self.description)}" src="data:{self.kind};base64,{self.data}">'


def image(data: object) -> OutputImage | None:
    """Return one output's image in the preferred format; None if there is no valid one."""
    if not isinstance(data, Mapping):
        return None
    for kind in _KINDS:
        content = _joined(data.get(kind))
        if not content:
            continue
        if kind == "image/svg+xml":
            encoded = base64.b64encode(content.encode("utf-8", "replace")).decode()
        else:
            encoded = "".join(content.split())
        if len(encoded) % 4 == 0 and _BASE64.fullmatch(encoded):
            return OutputImage(kind, encoded, _joined(data.get("text/plain")))
        return None
    return None


def images(notebook: Path) -> Iterator[OutputImage]:
    """Yield the images in the outputs of an executed notebook; none if it cannot be read."""
    content = text(notebook)
    if '"image/' not in content:  # true of most notebooks, which then need no parsing
        return
    try:
        valid = []
        for cell in json.loads(content)["cells"]:
            valid += [image(output.get("data")) for output in cell.get("outputs", ())]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    yield from filter(None, valid)


def _joined(value: object) -> str:
    """Return a string that a notebook may store as a list of lines; empty for anything else."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value if isinstance(value, str) else ""


def text(file: Path) -> str:
    """Return the text of a file; empty if it cannot be read or is a link."""
    try:
        return "" if file.is_symlink() else file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
