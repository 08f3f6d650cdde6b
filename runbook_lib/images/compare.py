"""The changes of a new image: the components that the configs of two images name, the download, the environment.

Everything is taken from the configs; what they do not name is said to be not named.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from runbook_lib.images.drivers import Needed
from runbook_lib.images.reference import Image, PlatformImage
from runbook_lib.text.markdown import code
from runbook_lib.text.redact import Redactor

Change = Literal["same", "changed", "major", "back", "new", "gone"]

#: Component → the variables that may name its version, the first that is there counts: NGC's, then those of the CUDA
#: images on which CoreWeave's stand.
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
    "same": "same",
    "changed": "",
    "major": "**major**",
    "back": "**older**",
    "new": "newly named",
    "gone": "no longer named",
}
_COLUMNS = ("component", "old", "new", "change")
_LONGEST, _MOST = 80, 40  # characters of a value that a table shows, names in one sentence


@dataclass(frozen=True)
class Component:
    """A version before and after, empty where the image does not name it."""

    name: str
    old: str
    new: str

    @property
    def change(self) -> Change:
        """``major``: the first number rose; ``back``: the version fell; ``new`` and ``gone``: one side names none."""
        if self.old == self.new:
            return "same"
        if not self.old or not self.new:
            return "gone" if self.old else "new"
        old, new = _numbers(self.old), _numbers(self.new)
        if not old or not new:
            return "changed"
        if new < old:
            return "back"
        return "major" if new[:1] > old[:1] else "changed"


@dataclass(frozen=True)
class PlatformComparison:
    """One platform that both images have.  ``size``: bytes to download, before and after.

    ``added``, ``dropped``: variables of the environment with their values; ``altered``: name to both values.
    """

    components: tuple[Component, ...]
    size: tuple[int, int]
    added: Mapping[str, str]
    dropped: Mapping[str, str]
    altered: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Comparison:
    """``old`` and ``new``: what the images are called.  ``gone`` and ``arrived``: platforms that one of them lacks."""

    old: str
    new: str
    platforms: Mapping[str, PlatformComparison]
    gone: tuple[str, ...] = ()
    arrived: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, str]]:
        """One row a component and platform, and one for the download: what tables and CSV files show."""
        rows = []
        for platform, found in self.platforms.items():
            told = [(one.name, one.old, one.new, one.change) for one in found.components if one.old or one.new]
            old, new = found.size
            told.append(("download", _bytes(old), _bytes(new), "same" if old == new else "changed"))
            rows += [{"platform": platform, **dict(zip(_COLUMNS, cells, strict=True))} for cells in told]
        return rows

    def environment(self) -> list[dict[str, str]]:
        """One row a variable and platform; values without secrets, cut where they are long."""
        rows = []
        for platform, found in self.platforms.items():
            variables = {name: ("", value, "new") for name, value in found.added.items()}
            variables |= {name: (value, "", "gone") for name, value in found.dropped.items()}
            variables |= {name: (old, new, "changed") for name, (old, new) in found.altered.items()}
            for name, (old, new, change) in sorted(variables.items()):
                old, new = (_short(Redactor({name: value}).text(value)) for value in (old, new))
                rows.append({"platform": platform, "variable": name, "old": old, "new": new, "change": change})
        return rows

    def markdown(self) -> str:
        """For the text of a pull request: a table for each group of platforms in which the same changes."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        groups: dict[tuple[Component, ...], list[str]] = {}
        for platform, found in self.platforms.items():
            groups.setdefault(found.components, []).append(platform)
        for components, platforms in groups.items():
            # A blank line before whatever follows ends a table of Markdown.
            yield from _table(self.old, self.new, platforms, components)
            yield from (_size(platform, self.platforms[platform]) for platform in platforms)
            new = {one.name: one.new for one in components}
            needed = Needed.of({"CUDA_VERSION": new["CUDA"], "CUDA_DRIVER_VERSION": new["driver"]}).told
            if needed.verdict != "unknown":
                yield f"- {needed.reason}"
            yield ""
        if not groups:
            yield f"{code(self.old)} and {code(self.new)} have no platform in common.\n"
        if self.gone:
            yield f"**No longer published for {_names(self.gone)}.**\n"
        if self.arrived:
            yield f"New for {_names(self.arrived)}.\n"
        yield from self._variables("added", {platform: it.added for platform, it in self.platforms.items()})
        yield from self._variables("dropped", {platform: it.dropped for platform, it in self.platforms.items()})

    def _variables(self, title: str, found: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        groups: dict[tuple[str, ...], list[str]] = {}
        for platform, variables in found.items():
            if variables:
                groups.setdefault(tuple(sorted(variables)), []).append(platform)
        for names, platforms in groups.items():
            where = "" if len(platforms) == len(self.platforms) else f" for {_names(platforms)}"
            more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
            yield f"Environment variables {title}{where}: {_names(names[:_MOST])}{more}.\n"


def compare(old: Image, new: Image, names: tuple[str, str] = ("old", "new")) -> Comparison:
    """Compare two images platform by platform; ``names`` is what they are called, such as their tags."""
    both = sorted(old.platforms.keys() & new.platforms.keys())
    return Comparison(
        *names,
        {platform: _compared(old.platforms[platform], new.platforms[platform]) for platform in both},
        tuple(sorted(old.platforms.keys() - new.platforms.keys())),
        tuple(sorted(new.platforms.keys() - old.platforms.keys())),
    )


def merged(rows: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """The rows to look at: those that only differ in their platform as one."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row in rows:
        groups.setdefault(tuple((key, value) for key, value in row.items() if key != "platform"), []).append(
            row["platform"]
        )
    return [{"platform": ", ".join(platforms), **dict(cells)} for cells, platforms in groups.items()]


def versions(image: PlatformImage) -> dict[str, str]:
    """Component → version as the config names it, empty where it does not."""
    found = {
        name: next((image.env[variable] for variable in variables if image.env.get(variable)), "")
        for name, variables in COMPONENTS.items()
    }
    # The label that Ubuntu's own image has, and that images built on it inherit.
    is_ubuntu = image.labels.get("org.opencontainers.image.ref.name") == "ubuntu"
    return found | {"Ubuntu": image.labels.get("org.opencontainers.image.version", "") if is_ubuntu else ""}


def _compared(old: PlatformImage, new: PlatformImage) -> PlatformComparison:
    before, after = versions(old), versions(new)
    shared = old.env.keys() & new.env.keys()
    return PlatformComparison(
        tuple(Component(name, before[name], after[name]) for name in before),
        (old.size, new.size),
        {name: value for name, value in new.env.items() if name not in old.env},
        {name: value for name, value in old.env.items() if name not in new.env},
        {name: (old.env[name], new.env[name]) for name in shared if old.env[name] != new.env[name]},
    )


def _table(old: str, new: str, platforms: list[str], components: tuple[Component, ...]) -> Iterator[str]:
    yield f"| {_names(platforms)} | {code(old)} | {code(new)} | |"
    yield "| --- | --- | --- | --- |"
    for one in components:
        if one.old or one.new:
            cells = (code(_short(value)) if value else "not named" for value in (one.old, one.new))
            yield f"| {one.name} | {' | '.join(cells)} | {_NOTED[one.change]} |"
    unnamed = [one.name for one in components if not one.old and not one.new]
    yield ""
    if unnamed:
        yield f"Neither image names its {', '.join(unnamed)}."
        yield ""


def _size(platform: str, found: PlatformComparison) -> str:
    old, new = found.size
    change = f", {(new - old) / old:+.1%}" if old else ""
    return f"- Download for {code(platform)}: {_bytes(new)} compressed (before: {_bytes(old)}{change})"


def _bytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size:,} bytes"


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of its release part: of 2.12.0a0+0291f96 these are 2, 12 and 0."""
    match = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(map(int, match[1].split("."))) if match else ()
