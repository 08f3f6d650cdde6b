"""Published facts and known issues of NGC's monthly PyTorch images, with their sources, from ``months.toml``."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from runbook_lib.images.drivers import image_notes
from runbook_lib.images.families import ALIBABA, NGC, built_on, family_of
from runbook_lib.images.reference import Image, ImageRef, PlatformImage


@dataclass(frozen=True)
class KnownIssue:
    """A known issue or change of the images from month ``first`` to ``last`` (empty: not known to be fixed)."""

    first: str
    kind: str
    text: str
    source: str
    last: str = ""

    def concerns(self, month: str) -> bool:
        """Return True if the image of that month has it; no for the empty month."""
        return self.first <= month and (not self.last or month <= self.last)

    def row(self) -> dict[str, str]:
        """Return the row of a table."""
        until = f" to {self.last}" if self.last else ""
        return {"since": self.first + until, "kind": self.kind, "issue": self.text, "source": self.source}


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads((files("runbook_lib.images") / "months.toml").read_text("utf-8"))


def month_of(repository: str, tag: str) -> str:
    """Return the month of a tag of NGC's PyTorch image, such as ``26.04``; empty for other images and tags."""
    match = re.fullmatch(r"([0-9]{2}\.[0-9]{2})-py3(-.+)?", tag)
    if match and f"/{repository}".endswith("/nvidia/pytorch"):
        return match[1]
    return ""


def facts(old: str, new: str) -> list[dict[str, str]]:
    """Return the rows of a table: each component that a source names for one of the two months, with the source."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for side, column in ((old, "old"), (new, "new")):
        for entry in _data()["month"].get(side, ()):
            source = _data()["source"][entry["source"]]["name"]
            for name, version in entry.items():
                if name != "source":
                    row = {"component": name, "old": "", "new": "", "source": source}
                    rows.setdefault((name, source), row)[column] = version
    return sorted(rows.values(), key=lambda row: row["component"].lower())


def cuda_release(month: str) -> tuple[str, str]:
    """Return the CUDA release of a month's images, such as ``13.3``, with its source; empty if it is unknown.

    NVIDIA's notes on the images come first.  Other sources name CUDA's update too, but that of a related image, which
    may have another one; where they name several releases, none is believed.
    """
    for release, (first, last) in _data()["notes"].items():
        if first <= month <= last:
            notes = image_notes("PyTorch", month)
            return release, f"{notes.name}, {notes.address}"
    named: dict[str, str] = {}
    for entry in _data()["month"].get(month, ()):
        if "CUDA" in entry:
            source = _data()["source"][entry["source"]]
            named[".".join(entry["CUDA"].split(".")[:2])] = f"{source['name']}, {source['address']}"
    return named.popitem() if len(named) == 1 else ("", "")


def documented_image(ref: ImageRef) -> tuple[Image, str] | None:
    """Return an image as described by the documentation of its tag, and a sentence that cites it; None without any.

    The description has only the CUDA release; it replaces the registry's answer for a verdict on drivers.
    """
    family = family_of(ref)
    if family not in (NGC, ALIBABA) or not family.reads(ref.tag or ""):
        return None
    tag, steps = family.read(ref.tag or ""), []
    if family is ALIBABA:
        steps.append(f"Alibaba's {tag} is built on NGC's {built_on(tag)}, of the month before")
        tag = built_on(tag)
    if tag.kind != "release":
        return None
    month = str(tag).partition("-")[0]
    cuda, source = cuda_release(month)
    if not cuda:
        return None
    steps.append(f"NGC's {tag} has CUDA {cuda} ({source})")
    image = Image("", {"any platform": PlatformImage("", 0, {"CUDA_VERSION": cuda})})
    return image, f"Judged by the tag alone: {'; '.join(steps)}."


def new_issues(old: str, new: str) -> list[KnownIssue]:
    """Return the known issues of month ``new``'s image that month ``old``'s does not have."""
    issues = [KnownIssue(**fields) for fields in _data()["issue"]]
    return [issue for issue in issues if issue.concerns(new) and not issue.concerns(old)]


def markdown(issues: Sequence[KnownIssue]) -> str:
    """Return the issues as a list for a pull request; empty if there are none."""
    if not issues:
        return ""
    lines = [f"- since {issue.first}, {issue.kind}: {issue.text} ([source]({issue.source}))" for issue in issues]
    return "\n".join(["Known issues of the new image that the old one does not have:", "", *lines, ""])
