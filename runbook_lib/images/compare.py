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
_NOTED: dict[Change, str] = {
    "same": "same", "changed": "", "major": "**major**", "back": "**older**", "new": "newly named",
    "gone": "no longer named",
}  # fmt: skip
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
class PlatformComparison:
    """One platform that both images have. ``size``: bytes to download, before and after.

    ``added``, ``dropped``: variables of the environment with their values; ``altered``: name → both values.
    """

    components: tuple[Component, ...]
    size: tuple[int, int]
    added: Mapping[str, str]
    dropped: Mapping[str, str]
    altered: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class ImageComparison:
    """Two images, ``old`` and ``new``, compared by platform, and the platforms that only one of them has."""

    old: str
    new: str
    platforms: Mapping[str, PlatformComparison]
    removed_platforms: tuple[str, ...] = ()
    added_platforms: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, str]]:
        """Return one row per component and platform, and one per download, for tables and CSV files."""
        rows: list[dict[str, str]] = []
        for name, platform in self.platforms.items():
            old, new = platform.size
            download = Component("download", _bytes(old), _bytes(new))
            for component in (*platform.components, download):
                change: str = component.change
                if component is download and old != new:
                    change = "changed"
                if component.old or component.new:
                    row = {"platform": name, "component": component.name, "old": component.old, "new": component.new}
                    rows.append(row | {"change": change})
        return rows

    def environment(self) -> list[dict[str, str]]:
        """Return one row per variable and platform; secrets are masked, and long values are cut."""
        rows = []
        for name, platform in self.platforms.items():
            variables = {variable: ("", value, "new") for variable, value in platform.added.items()}
            variables |= {variable: (value, "", "gone") for variable, value in platform.dropped.items()}
            variables |= {variable: (*values, "changed") for variable, values in platform.altered.items()}
            for variable, (old, new, change) in sorted(variables.items()):
                old = shorten(Redactor({variable: old}).text(old), _MAX_VALUE)
                new = shorten(Redactor({variable: new}).text(new), _MAX_VALUE)
                rows.append({"platform": name, "variable": variable, "old": old, "new": new, "change": change})
        return rows

    def markdown(self) -> str:
        """Return the text for a pull request: a table for each group of platforms with the same changes."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        groups: dict[tuple[Component, ...], list[str]] = {}
        for name, platform in self.platforms.items():
            groups.setdefault(platform.components, []).append(name)
        for components, names in groups.items():
            yield from _table(self.old, self.new, names, components)
            for name in names:
                before, after = self.platforms[name].size
                change = ""
                if before:
                    change = f", {(after - before) / before:+.1%}"
                yield f"- Download for {code(name)}: {_bytes(after)} compressed (before: {_bytes(before)}{change})"
            new = {component.name: component.new for component in components}
            driver = DriverRequirement.of({"CUDA_VERSION": new["CUDA"], "CUDA_DRIVER_VERSION": new["driver"]}).summary
            if driver.verdict != "unknown":
                yield f"- {driver.reason}"
            yield ""
        if not groups:
            yield f"{code(self.old)} and {code(self.new)} have no platform in common.\n"
        if self.removed_platforms:
            yield f"**No longer published for {_names(self.removed_platforms)}.**\n"
        if self.added_platforms:
            yield f"New for {_names(self.added_platforms)}.\n"
        yield from self._variables("added")
        yield from self._variables("dropped")

    def _variables(self, change: Literal["added", "dropped"]) -> Iterator[str]:
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, platform in self.platforms.items():
            variables = platform.added if change == "added" else platform.dropped
            groups.setdefault(tuple(sorted(variables)), []).append(name)
        groups.pop((), None)
        for variables_of_group, platforms in groups.items():
            listed = join_first([code(variable) for variable in variables_of_group], _MAX_NAMES)
            where = ""
            if len(platforms) < len(self.platforms):
                where = f" for {_names(platforms)}"
            yield f"Environment variables {change}{where}: {listed}.\n"


def compare(old: Image, new: Image, names: tuple[str, str] = ("old", "new")) -> ImageComparison:
    """Compare two images platform by platform; ``names`` are their names in tables, such as their tags."""
    before, after = old.platforms, new.platforms
    both = {name: _compare_platform(before[name], after[name]) for name in sorted(before.keys() & after.keys())}
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


def _compare_platform(old: PlatformImage, new: PlatformImage) -> PlatformComparison:
    before, after = versions(old), versions(new)
    both = old.env.keys() & new.env.keys()
    added = {name: value for name, value in new.env.items() if name not in old.env}
    dropped = {name: value for name, value in old.env.items() if name not in new.env}
    altered = {name: (old.env[name], new.env[name]) for name in both if old.env[name] != new.env[name]}
    components = tuple(Component(name, before[name], after[name]) for name in before)
    return PlatformComparison(components, (old.size, new.size), added, dropped, altered)


def _table(old: str, new: str, platforms: list[str], components: tuple[Component, ...]) -> Iterator[str]:
    yield f"| {_names(platforms)} | {code(old)} | {code(new)} | |"
    yield "| --- | --- | --- | --- |"
    for component in components:
        if component.old or component.new:
            yield f"| {component.name} | {_cell(component.old)} | {_cell(component.new)} | {_NOTED[component.change]} |"
    yield ""  # ends the table
    if unnamed := [component.name for component in components if not (component.old or component.new)]:
        yield f"Neither image declares its {', '.join(unnamed)}.\n"


def _cell(version: str) -> str:
    if not version:
        return "not named"
    return code(shorten(version, _MAX_VALUE))


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
