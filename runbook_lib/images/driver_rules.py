"""The NVIDIA driver that each CUDA release needs, as data: each rule with its source and the source's date.

A release that is missing here has no known rule.  Read on 2026-11-21.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RuleSource:
    """The source of a rule: its title, public address and date (a month for the notes on a month's image)."""

    name: str
    address: str
    dated: str


def _notes(image: str, path: str, month: str) -> RuleSource:
    year, _, number = month.partition(".")
    address = f"https://docs.nvidia.com/deeplearning/{path}/rel-{year}-{number}.html"
    return RuleSource(f"NVIDIA's notes on the {image} image {month}", address, f"20{year}-{number}")


def _pytorch(month: str) -> RuleSource:
    return _notes("PyTorch", "frameworks/pytorch-release-notes", month)


def _triton(month: str) -> RuleSource:
    """Return the notes on Triton, whose paragraph on drivers is that of all NGC images of the month."""
    return _notes("Triton", "triton-inference-server/release-notes", month)


_TOOLKIT = RuleSource(
    "the table of toolkits and drivers in the release notes of CUDA 13.2 Update 2",
    "https://docs.nvidia.com/cuda/archive/13.2.2/cuda-toolkit-release-notes/index.html",
    "2026",
)
#: The table of compatibility packages and driver branches.
GUIDE = RuleSource(
    "NVIDIA's guide to CUDA compatibility",
    "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    "2026-09-09",
)
#: CUDA minor-version compatibility, a rule of its own.
MINOR = RuleSource(
    "NVIDIA's guide to CUDA compatibility",
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    "2026-09-09",
)


@dataclass(frozen=True)
class DriverRule:
    """The requirements of one CUDA release for a driver.

    ``needs``: the lowest driver that runs it.  ``required``: True if the source requires that driver of an image, False
    if it only names the driver that the toolkit comes with.  ``forward``: the lowest driver of each branch on which
    data-center GPUs run it by the compatibility package.  ``refused``: branches that the source calls not forward
    compatible.  ``note``: an oddity of the source, in complete sentences.
    """

    needs: str
    source: RuleSource
    required: bool = True
    forward: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    note: str = ""


_TO_12_1 = ("450.51", "470.57", "510.47", "515.65", "525.85")
_FROM_12_3 = ("470.57", "525.85", "535.86", "545.23")
_REFUSED_12_0 = ("418", "440", "460", "520")
_REFUSED_12_3 = ("418", "440", "450", "460", "510", "520")
_REFUSED_12_6 = (*_REFUSED_12_3, "530", "545", "555")
_NOTE_OF_12_3 = "Its list of branches that are not forward compatible is that of CUDA 12.3."

#: CUDA release → its rule.
RULES: Mapping[str, DriverRule] = {
    "11.8": DriverRule("520", _triton("22.09"), forward=_TO_12_1[:4], refused=("418", "440", "460")),
    "12.0": DriverRule("525", _pytorch("23.02"), forward=_TO_12_1, refused=_REFUSED_12_0),
    "12.1": DriverRule("530", _triton("23.04"), forward=(*_TO_12_1, "530.30"), refused=_REFUSED_12_0),
    "12.2": DriverRule(
        "535",
        _triton("23.08"),
        forward=("450.51", "470.57", "510.47", "525.85", "535.86"),
        refused=_REFUSED_12_0,
    ),
    "12.3": DriverRule("545", _triton("24.01"), forward=_FROM_12_3, refused=_REFUSED_12_3),
    "12.4": DriverRule("545", _triton("24.04"), forward=_FROM_12_3, refused=_REFUSED_12_3, note=_NOTE_OF_12_3),
    "12.5": DriverRule("545", _pytorch("24.06"), forward=_FROM_12_3, refused=_REFUSED_12_3, note=_NOTE_OF_12_3),
    "12.6": DriverRule("560", _triton("24.10"), forward=_FROM_12_3, refused=_REFUSED_12_6),
    "12.8": DriverRule(
        "570",
        _pytorch("25.03"),
        forward=_FROM_12_3,
        refused=(*_REFUSED_12_6, "560"),
        note="The notes on the Triton image of the same month name 560 instead of 570.",
    ),
    "12.9": DriverRule(
        "575",
        _pytorch("25.04"),
        forward=_FROM_12_3,
        refused=(*_REFUSED_12_6, "560"),
        note="Its list of branches that are not forward compatible is that of CUDA 12.8.",
    ),
    # From 25.12 on the notes on the images name no drivers and point to NVIDIA's guide.
    "13.0": DriverRule("580", _TOOLKIT, required=False),
    "13.1": DriverRule("590", _TOOLKIT, required=False),
    "13.2": DriverRule("595", _TOOLKIT, required=False),
    "13.3": DriverRule("610", GUIDE, required=False),
    "13.4": DriverRule("615", GUIDE, required=False),
}

#: CUDA release → the branches of which its compatibility package takes every driver, by GUIDE.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("12.3", "12.4", "12.5", "12.6", "12.8"), ("535",)),
    "12.9": ("535", "570"),
    "13.0": ("535", "570"),
    "13.1": ("535", "570", "580"),
    "13.2": ("535", "570", "580", "590"),
    "13.3": ("535", "570", "580", "590", "595"),
    "13.4": ("535", "570", "580", "590", "595", "610"),
}

#: Major CUDA release → the lowest driver on which programs of all its minor releases start, by MINOR.
MINORS: Mapping[str, str] = {"11": "450.80.02", "12": "525.60.13", "13": "580"}
