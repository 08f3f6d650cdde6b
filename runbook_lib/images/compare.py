"""The changes of a new image: its components, download and environment, as the configs of both images name them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from runbook_lib.images.drivers import DriverRequirement
from runbook_lib.images.reference import Image, PlatformImage
from runbook_lib.text.lists import join_first, shorten
from runbook_lib.text.markdown import code
from runbook_lib.text.redact import Redactor

Change = Literal["same", "changed", "major", "back", "new", "gone"]

#: Component → the variables that may name its version, in order of preference: NGC's, then those of the CUDA images
#: on which CoreWeave's are built.
COMPONENTS: dict[str, tuple[str, ...]] = {
    "CUDA": ("CUDA_VERSION",),
    "driver": ("CUDA_DRIVER_VERSION",),
    "cuDNN": ("CUDNN_VERSION", "NV_CUDNN_VERSION"),
    "cuBLAS": ("CUBLAS_VERSION", "NV_LIBCUBLAS_VERSION"),
    "NCCL": ("NCCL_VERSION", "NV_LIBNCCL_PACKAGE_VERSION"),
    "PyTorch": ("PYTORCH_VERSION", "PYTORCH_BUILD_VERSION"),
    "Transformer Engine": ("TRANSFORMER_ENGINE_VERSION",),
    "Python": ("PYTHON_VERSION",),
}
_NOTED = {
    "same": "same", "changed": "", "major": "**major**", "back": "**older**", "new": "newly named",
    "gone": "no longer named",
}  # fmt: skip
_VARIABLES = {"new": "added", "gone": "dropped"}
_MAX_VALUE, _MAX_NAMES = 80, 40  # characters of a value in a table, names in one sentence


@dataclass(frozen=True)
class Component:
    """A version before and after, empty if the image does not name it."""

    name: str
    old: str
    new: str

    @property
    def change(self) -> Change:
        """``major``: the first number rose; ``back``: the version fell; ``new``, ``gone``: one side has no version."""
        if self.old == self.new:
            return "same"
        if not self.old or not self.new:
            return "gone" if self.old else "new"
        old, new = version_numbers(self.old), version_numbers(self.new)
        if not old or not new:
            return "changed"
        if new < old:
            return "back"
        return "major" if new[:1] > old[:1] else "changed"


@dataclass(frozen=True)
class ImageComparison:
    """Two images, ``old`` and ``new``, by platform, and the platforms that only one of them has."""

    old: str
    new: str
    platforms: Mapping[str, tuple[PlatformImage, PlatformImage]]
    removed_platforms: tuple[str, ...] = ()
    added_platforms: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, str]]:
        """Return one row per component and platform, and one per download, for tables and CSV files."""
        rows: list[dict[str, str]] = []
        for platform, (old, new) in self.platforms.items():
            before, after = versions(old), versions(new)
            for component in (Component(name, before[name], after[name]) for name in before):
                if component.old or component.new:
                    values = component.name, component.old, component.new, component.change
                    rows.append(_row(platform, "component", *values))
            changed = "same" if old.size == new.size else "changed"
            rows.append(_row(platform, "component", "download", _bytes(old.size), _bytes(new.size), changed))
        return rows

    def environment(self) -> list[dict[str, str]]:
        """Return one row per variable that differs and platform; secrets are masked, and long values are cut."""
        rows = []
        for platform, (old, new) in self.platforms.items():
            for name in sorted(old.env.keys() | new.env.keys()):
                before, after = old.env.get(name), new.env.get(name)
                if before != after:
                    change = "new" if before is None else "gone" if after is None else "changed"
                    before, after = (Redactor({name: value}).text(value) for value in (before or "", after or ""))
                    rows.append(_row(platform, "variable", name, before, after, change))
        return rows

    def markdown(self) -> str:
        """Return the text for a pull request: a table of components, the needed driver, and names of variables."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        everywhere = ", ".join(self.platforms)
        if everywhere:
            yield f"| {_names(self.platforms)} | {code(self.old)} | {code(self.new)} | |"
            yield "| --- | --- | --- | --- |"
            for row in merged(self.rows()):
                name = row["component"] if row["platform"] == everywhere else f"{row['component']} ({row['platform']})"
                old, new = (code(row[side]) if row[side] else "not named" for side in ("old", "new"))
                yield f"| {name} | {old} | {new} | {_NOTED[row['change']]} |"
            needs = [DriverRequirement.of(new.env).summary for _, new in self.platforms.values()]
            yield from dict.fromkeys(f"\n{driver.reason}" for driver in needs if driver.verdict != "unknown")
        else:
            yield f"{code(self.old)} and {code(self.new)} have no platform in common."
        yield ""  # ends the table
        if self.removed_platforms:
            yield f"**No longer published for {_names(self.removed_platforms)}.**\n"
        if self.added_platforms:
            yield f"New for {_names(self.added_platforms)}.\n"
        groups: dict[tuple[str, str], list[str]] = {}
        for row in merged(self.environment()):
            if row["change"] != "changed":
                where = "" if row["platform"] == everywhere else f" for {row['platform']}"
                groups.setdefault((_VARIABLES[row["change"]], where), []).append(code(row["variable"]))
        for (change, where), names in groups.items():
            yield f"Environment variables {change}{where}: {join_first(names, _MAX_NAMES)}.\n"


def compare(old: Image, new: Image, names: tuple[str, str]) -> ImageComparison:
    """Compare two images platform by platform; ``names`` are their names in tables, such as their tags."""
    before, after = old.platforms, new.platforms
    both = {name: (before[name], after[name]) for name in sorted(before.keys() & after.keys())}
    removed, added = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    return ImageComparison(*names, both, tuple(removed), tuple(added))


def merged(rows: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the rows, merging those that differ only in their platform."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row in rows:
        cells = tuple((key, value) for key, value in row.items() if key != "platform")
        groups.setdefault(cells, []).append(row["platform"])
    return [{"platform": ", ".join(platforms), **dict(cells)} for cells, platforms in groups.items()]


def versions(image: PlatformImage) -> dict[str, str]:
    """Return each component's version in the config, empty if there is none."""
    result: dict[str, str] = {}
    for component, variables in COMPONENTS.items():
        result[component] = next(filter(None, map(image.env.get, variables)), "")
    # The labels of Ubuntu's own image, which images built on it inherit.
    result["Ubuntu"] = ""
    if image.labels.get("org.opencontainers.image.ref.name") == "ubuntu":
        result["Ubuntu"] = image.labels.get("org.opencontainers.image.version", "")
    return result


def _row(platform: str, kind: str, name: str, old: str, new: str, change: str) -> dict[str, str]:
    shown = {"old": shorten(old, _MAX_VALUE), "new": shorten(new, _MAX_VALUE)}
    return {"platform": platform, kind: name, **shown, "change": change}


def _bytes(size: int) -> str:
    if size >= 1e7:
        return f"{size / 1e9:.2f} GB"
    return f"{size:,} bytes"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of the release part: 2, 12 and 0 of 2.12.0a0+0291f96."""
    match = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    if match is None:
        return ()
    return tuple(map(int, match[1].split(".")))
