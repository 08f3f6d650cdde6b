"""Static plots of golden values: SVG that opens offline, on a light and on a dark page alike."""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from runbook_lib.display import Picture, View, note
from runbook_lib.golden import summary
from runbook_lib.golden.judge import Judgement
from runbook_lib.golden.values import Golden

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue and orange are told apart by all eyes, and the line styles and marks differ as well.
_OLD, _NEW = "#0072b2", "#d55e00"
_FLOOR = 1e-9
_GIB = 2.0**30


def drift(judged: Iterable[Judgement]) -> Picture | View:
    """How the size of avg_rel_diff is distributed over the files, a row a metric, on a logarithmic axis."""
    found = tuple(judged)
    metrics = [one.metric for one in summary.by_metric(found)]
    if not metrics:
        return note("No metric of two golden files could be compared.")
    figure, (axes,) = _figure(9, 1.2 + 0.55 * len(metrics), 1)
    for row, metric in enumerate(metrics):
        sizes = sorted(
            max(abs(m.avg_rel_diff), _FLOOR)
            for one in found
            for m in one.measures
            if m.metric == metric and m.avg_rel_diff is not None and math.isfinite(m.avg_rel_diff)
        )
        # Spread evenly up and down, so that equal values do not hide each other.
        heights = [row + ((i * 7) % 11 - 5) / 18 for i in range(len(sizes))]
        axes.plot(sizes, heights, "o", color=_OLD, alpha=0.45, markersize=4, markeredgewidth=0)
        if sizes:
            middle = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
            axes.plot([middle], [row], "|", color=_NEW, markersize=20, markeredgewidth=2.5)
    axes.set_xscale("log")
    axes.set_xlim(_FLOOR / 2, None)
    powers = range(-9, max(0, math.ceil(math.log10(axes.get_xlim()[1]))))
    axes.set_xticks([10.0**power for power in powers], ["0", *(f"1e{power}" for power in powers[1:])])
    axes.set_xticks([], minor=True)
    axes.set_ylim(len(metrics) - 0.4, -0.6)
    axes.set_yticks(range(len(metrics)), metrics)
    axes.set_xlabel("|avg_rel_diff| of a file; the bar is the median")
    return _svg(figure, f"Distribution of |avg_rel_diff| for {', '.join(metrics)}")


def times(judged: Iterable[Judgement]) -> Picture | View:
    """Iteration time after to before, a mark a file, sorted: above 1 is slower."""
    ratios = sorted(
        (m.ratio, one.file)
        for one in judged
        for m in one.measures
        if m.metric == "iteration-time" and m.ratio is not None and 0 < m.ratio < math.inf
    )
    if not ratios:
        return note("No iteration time could be compared.")
    figure, (axes,) = _figure(9, 3.4, 1)
    axes.axhline(1, color="#888888", linewidth=1)
    axes.plot(range(1, len(ratios) + 1), [ratio for ratio, _ in ratios], "o", color=_OLD, markersize=4)
    worst, file = ratios[-1]
    if worst > summary.SLOWER:
        axes.annotate(
            f"{_case(file)}: {worst:.2f} times", (len(ratios), worst), xytext=(-8, 0), textcoords="offset points",
            ha="right", va="center", fontsize=8,
        )  # fmt: skip
    axes.set_yscale("log")
    ticks = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10]
    low, high = ratios[0][0] / 1.15, worst * 1.25
    axes.set_ylim(min(low, 0.8), max(high, 1.25))
    shown = [tick for tick in ticks if min(low, 0.8) <= tick <= max(high, 1.25)]
    axes.set_yticks(shown, [f"{tick:g}" for tick in shown])
    axes.set_yticks([], minor=True)
    axes.set_xlabel(f"{len(ratios)} files, sorted")
    axes.set_ylabel("iteration time, new / old")
    return _svg(figure, f"Iteration time new to old of {len(ratios)} files; the slowest is {worst:.2f} times")


def worst(
    judged: Iterable[Judgement], old: Mapping[str, Golden], new: Mapping[str, Golden], *, count: int = 4
) -> Picture | View:
    """Old against new, step by step, for the worst metric of the files that a person must see first."""
    shown: list[tuple[str, str]] = []
    for one in summary.in_order(judged):
        metric = _worst_metric(one)
        if metric and one.file in old and one.file in new and len(shown) < count:
            shown.append((one.file, metric))
    if not shown:
        return note("No file has steps to show.")
    figure, panels = _figure(9, 2.5 * len(shown), len(shown))
    for axes, (file, metric) in zip(panels, shown, strict=True):
        for golden, label, colour, style in ((old, "old", _OLD, "-"), (new, "new", _NEW, "--")):
            steps = golden[file].series.get(metric, {})
            unit = _GIB if metric.startswith("mem-") else 1.0
            points = sorted((step, value / unit) for step, value in steps.items() if math.isfinite(value))
            axes.plot([s for s, _ in points], [v for _, v in points], style, color=colour, label=label, linewidth=1.5)
        title = f"{metric} (GiB)" if metric.startswith("mem-") else metric
        axes.set_title(f"{_case(file)}\n{title}", fontsize=9, loc="left")
        if "time" in metric and axes.get_ylim()[1] > 0:
            # The first steps warm up, and would press all others flat.
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter("")
        axes.legend(frameon=False, fontsize=8)
    panels[-1].set_xlabel("step")
    return _svg(figure, "; ".join(f"{metric} of {file}, old and new" for file, metric in shown))


def _worst_metric(one: Judgement) -> str:
    measured = {m.metric: m for m in one.measures}
    for reason in one.reasons:
        if reason.metric in measured:
            return reason.metric
    # A refused file names the metric in its sentence: "NaN or infinity: lm loss at step 3".
    for reason in one.reasons:
        for metric in measured:
            if f"{metric} at step" in reason.sentence:
                return metric
    moved = [m for m in one.measures if m.max_abs]
    return max(moved, key=lambda m: abs(m.avg_rel_diff or 0.0)).metric if moved else ""


def _case(file: str) -> str:
    parts = file.split("/")
    name = parts[-1].removeprefix("golden_values_").removesuffix(".json")
    return f"{parts[-2]}, {name}" if len(parts) > 1 else file


def _figure(width: float, height: float, rows: int) -> "tuple[Figure, Sequence[Axes]]":
    # Without pyplot: it keeps every figure alive, and asks for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    panels: list[Axes] = [figure.add_subplot(rows, 1, row + 1) for row in range(rows)]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, panels


def _svg(figure: "Figure", told: str) -> Picture:
    import html

    import matplotlib as mpl

    out = io.StringIO()
    # The same data give the same bytes: no date, no random ids.  "$" in a name is no formula.
    with mpl.rc_context({"svg.hashsalt": "golden", "text.parse_math": False}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    drawing = re.sub(r"^.*?(?=<svg)", "", out.getvalue(), count=1, flags=re.DOTALL)
    named = drawing.replace("<svg ", f'<svg role="img" aria-label="{html.escape(told)}" style="max-width:100%" ', 1)
    return Picture(named, told)
