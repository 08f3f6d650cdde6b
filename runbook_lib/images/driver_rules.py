"""The NVIDIA driver that each CUDA release needs, read from ``driver_rules.toml``: each rule with its source."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_DATA = tomllib.loads((files("runbook_lib.images") / "driver_rules.toml").read_text("utf-8"))
_NOTES = {"PyTorch": "frameworks/pytorch-release-notes", "Triton": "triton-inference-server/release-notes"}


@dataclass(frozen=True)
class RuleSource:
    """The source of a rule: its title, public URL and date (a month for the notes on a month's image)."""

    name: str
    address: str
    dated: str


@dataclass(frozen=True)
class DriverRule:
    """The requirements of one CUDA release for a driver; ``driver_rules.toml`` describes the fields."""

    needs: str
    source: RuleSource
    required: bool = True
    forward: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    package: tuple[str, ...] = ()
    note: str = ""
    months: tuple[str, ...] = ()


def image_notes(image: str, month: str) -> RuleSource:
    """Return the release notes on an NGC image, ``PyTorch`` or ``Triton``, of a month such as ``25.04``."""
    dated = f"20{month.replace('.', '-')}"
    address = f"https://docs.nvidia.com/deeplearning/{_NOTES[image]}/rel-{dated[2:]}.html"
    return RuleSource(f"NVIDIA's notes on the {image} image {month}", address, dated)


def _rule(fields: Mapping[str, Any]) -> DriverRule:
    values: dict[str, Any] = {}
    for name, value in fields.items():
        values[name] = tuple(value) if isinstance(value, list) else value
    source = fields["source"]
    values["source"] = _SOURCES.get(source) or image_notes(*source.split())
    return DriverRule(**values)


_SOURCES = {name: RuleSource(**fields) for name, fields in _DATA["sources"].items()}
GUIDE, MINOR = _SOURCES["guide"], _SOURCES["minor"]
#: CUDA release → its rule.
RULES: Mapping[str, DriverRule] = {cuda: _rule(fields) for cuda, fields in _DATA["cuda"].items()}
#: Major CUDA release → the lowest driver on which programs of all its minor releases start, by MINOR.
MINORS: Mapping[str, str] = _DATA["minors"]


def cuda_of_month(month: str) -> str:
    """Return the CUDA release of NGC's images of a month such as ``25.04``; empty if it is unknown."""
    for cuda, rule in RULES.items():
        if rule.months and rule.months[0] <= month <= rule.months[1]:
            return cuda
    return ""
