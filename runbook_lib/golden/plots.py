"""Static plots of golden values: SVG that opens offline and works on light and dark pages."""

import io
from collections.abc import Container, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from runbook_lib.display import Picture
from runbook_lib.golden.values import Steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue and orange are distinguishable with any colour vision; line styles and marks differ too.
_OLD, _NEW, _INK, _GRID, _PAPER = "#0072b2", "#d55e00", "#24292f", "#dddddd", "#fffffe"
#: The same colours on a dark page.
_DARK = {_OLD: "#56b4e9", _NEW: "#ff9e4a", _INK: "#e6edf3", _GRID: "#444c56", _PAPER: "none"}
_GIB = 2.0**30
_LARGEST = 1e100
#: The units of metrics, by name or first word.
_UNITS = {"iteration": " (s)", "mem": " (GiB)", "throughput": " (tokens/s)", "latency": " (s)"}


def values_by_group(groups: Mapping[str, Sequence[float]], label: str, highlighted: Container[str] = ()) -> Picture:
    """Plot the values of each group and their median, one column per group; ``highlighted`` groups in orange."""
    figure, axes = _figure(max(5.0, 1.3 * len(groups) + 1.5), 4)
    for column, (name, values) in enumerate(groups.items()):
        color = _NEW if name in highlighted else _OLD
        # Spread evenly to both sides, so that equal values do not overlap.
        places = [column + ((i * 7 + 5) % 11 - 5) / 30 for i in range(len(values))]
        axes.plot(places, values, "s" if name in highlighted else "o", color=color, alpha=0.6, markersize=5)
        axes.plot([column], [median(values)], "_", color=_INK, markersize=26, markeredgewidth=1.5)
    axes.set_xticks(range(len(groups)), [f"{name}\nn = {len(values)}" for name, values in groups.items()], fontsize=9)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_ylabel(f"{label}; the bar is the median")
    names = ", ".join(groups).replace("\n", " with ")
    return _svg(figure, f"{label} of {names}")


def decision(
    title: str, metric: str, old: Steps, new: Steps, band: Mapping[int, tuple[float, float]], leaves: int = 0
) -> Picture:
    """Plot one metric, old and new, with the expected ``band`` by step, and the step where it ``leaves`` the band."""
    figure, axes = _figure(5, 2.9)
    unit = _GIB if metric.startswith("mem-") else 1.0
    if steps := [step for step in sorted(band) if all(map(is_drawn, band[step]))]:
        low, high = ([band[step][side] / unit for step in steps] for side in (0, 1))
        axes.fill_between(steps, low, high, color=_OLD, alpha=0.18, linewidth=0, label="expected")
    for series, label, colour, style in ((old, "old", _OLD, "-"), (new, "new", _NEW, "--")):
        steps = [step for step in sorted(series) if is_drawn(series[step])]
        axes.plot(steps, [series[step] / unit for step in steps], style, color=colour, label=label, linewidth=1.5)
    if leaves:
        axes.axvline(leaves, color=_INK, linewidth=1, linestyle=":", label=f"leaves it at step {leaves}")
    axes.set_xlabel("step")
    axes.set_ylabel(f"{metric}{_UNITS.get(metric.partition('-')[0], _UNITS.get(metric, ''))}")
    axes.set_title(_test_name(title), fontsize=9, loc="left", color=_INK)
    if "time" in metric:
        shown = [value for series in (old, new) for step, value in series.items() if step > min(series)]
        if drawn := list(filter(is_drawn, shown)):  # the first step is warm-up
            axes.set_ylim(min(0.0, *drawn), 1.15 * max(drawn))
    axes.legend(frameon=False, fontsize=9, labelcolor=_INK)
    return _svg(figure, f"{metric} of {title}, old and new, with the expected band")


def is_drawn(value: float) -> bool:
    """Return False for NaN, infinity, and what is so large that the axes cannot be divided."""
    return abs(value) < _LARGEST


def _test_name(file: str) -> str:
    folders, _, name = file.rpartition("/")
    if not folders:
        return file
    platform = name.removeprefix("golden_values_").removesuffix(".json")
    return f"{folders.rpartition('/')[2]}, {platform}"


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    import matplotlib as mpl

    # Without pyplot, which keeps every figure alive and needs a display.
    from matplotlib.figure import Figure

    style = mpl.rc_context({
        "figure.facecolor": _PAPER, "axes.facecolor": "none", "axes.spines.top": False, "axes.spines.right": False,
        "axes.edgecolor": _INK, "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
        "xtick.labelsize": 9, "ytick.labelsize": 9, "axes.grid": True, "grid.color": _GRID, "grid.linewidth": 0.6,
        "axes.axisbelow": True,
    })  # fmt: skip
    with style:
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.add_subplot()


def _svg(figure: "Figure", description: str) -> Picture:
    import html

    import matplotlib as mpl

    out = io.StringIO()
    # The same data give the same bytes: no date, no random IDs.  A "$" in a name is not a formula.
    with mpl.rc_context({"svg.hashsalt": "golden", "text.parse_math": False}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    _, _, content = out.getvalue().partition("<svg ")
    colours = ""
    for number, (light, dark) in enumerate(_DARK.items()):
        content = content.replace(light, f"var(--c{number}, {light})")
        colours += f"--c{number}:{dark};"
    theme = f"<style>@media (prefers-color-scheme: dark) {{ svg.golden {{ {colours} }} }}</style>"
    attributes = f'class="golden" role="img" aria-label="{html.escape(description)}" style="max-width:100%"'
    own_attributes, _, shapes = content.partition(">")
    return Picture(f"<svg {attributes} {own_attributes}>{theme}{shapes}", description)
