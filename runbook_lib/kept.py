"""What a record keeps beside its statement: tables, changes and images, which may be missing or be damaged."""

import base64
import csv
import json
from collections.abc import Iterator
from pathlib import Path


def rows(file: Path) -> list[dict[str, str]]:
    """The rows of a table; none if it cannot be read."""
    try:
        found = list(csv.DictReader(text(file).splitlines(keepends=True)))
    except csv.Error:
        return []
    # Cells beyond the head, and those that a short row lacks, have no text as name or value.
    return [{k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)} for row in found]


def images(notebook: Path) -> Iterator[tuple[str, str, str]]:
    """Kind, base64 and description of each image that an executed notebook shows."""
    content = text(notebook)
    if '"image/' not in content:  # most have none, and need not be parsed
        return
    try:
        cells = json.loads(content)["cells"]
        shown = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
        for data in shown:
            for kind in ("image/svg+xml", "image/png"):
                if kind in data:
                    raw = "".join(data[kind])
                    encoded = base64.b64encode(raw.encode()).decode() if "svg" in kind else raw.replace("\n", "")
                    yield kind, encoded, "".join(data.get("text/plain", ""))
                    break
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def text(file: Path) -> str:
    """The text of a file, empty if there is none; links are not followed."""
    try:
        return "" if file.is_symlink() else file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
