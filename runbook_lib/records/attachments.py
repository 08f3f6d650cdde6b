"""What a record keeps beside its statement: tables, changes and images, which may be missing or be damaged."""

import base64
import csv
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Of several forms of an image the first is shown.
_KINDS = ("image/svg+xml", "image/png", "image/jpeg")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def rows(file: Path) -> list[dict[str, str]]:
    """The rows of a table; none if it cannot be read."""
    try:
        found = list(csv.DictReader(text(file).splitlines(keepends=True)))
    except csv.Error:
        return []
    # Cells beyond the head, and those that a short row lacks, have no text as name or value.
    return [{k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)} for row in found]


@dataclass(frozen=True)
class Image:
    """An image that a notebook shows: ``data`` is in base64, ``told`` describes it."""

    kind: str
    data: str
    told: str

    @property
    def html(self) -> str:
        """The element that shows it, with all its content."""
        return f'<img alt="{html.escape(self.told)}" src="data:{self.kind};base64,{self.data}">'


def image(data: object) -> Image | None:
    """The image among the forms of one output; None where there is none that could be shown."""
    if not isinstance(data, Mapping):
        return None
    for kind in _KINDS:
        if raw := _joined(data.get(kind)):
            vector = kind == "image/svg+xml"
            encoded = base64.b64encode(raw.encode("utf-8", "replace")).decode() if vector else "".join(raw.split())
            whole = len(encoded) % 4 == 0 and _BASE64.fullmatch(encoded)
            return Image(kind, encoded, _joined(data.get("text/plain"))) if whole else None
    return None


def images(notebook: Path) -> Iterator[Image]:
    """The images that an executed notebook shows."""
    content = text(notebook)
    if '"image/' not in content:  # most have none, and need not be parsed
        return
    try:
        outputs = [output for cell in json.loads(content)["cells"] for output in cell.get("outputs", ())]
        found = [image(output.get("data")) for output in outputs]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    yield from filter(None, found)


def _joined(value: object) -> str:
    """A text that a notebook may keep in lines; empty for anything else."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value if isinstance(value, str) else ""


def text(file: Path) -> str:
    """The text of a file, empty if there is none; links are not followed."""
    try:
        return "" if file.is_symlink() else file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
