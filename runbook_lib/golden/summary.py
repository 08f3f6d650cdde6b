"""The comparison of golden values as reviewers read it: Markdown for the pull request, rows for tables and CSV."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runbook_lib.golden.judge import Judgement, Verdict
from runbook_lib.golden.measure import Measure
from runbook_lib.text.markdown import code

#: Upper bounds of the buckets of |avg_rel_diff|; the first holds 0 alone, the last what is above all.
_BOUNDS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
BUCKETS = ("== 0", "(0, 1e-6)", "[1e-6, 1e-4)", "[1e-4, 1e-3)", "[1e-3, 1e-2)", "[1e-2, 1e-1)", ">= 1e-1")
CSV_COLUMNS = (
    "file", "metric", "n_steps", "avg_rel_diff", "median_abs_rel_diff", "max_abs_rel_diff", "last_shift", "ratio",
    "verdict", "ci",
)  # fmt: skip
_SHOWN = 20
#: From which ratio an iteration time counts as longer.
SLOWER = 1.25


@dataclass(frozen=True)
class MetricSummary:
    """One metric over all files: ``n`` files with shared steps; median and maximum of |avg_rel_diff|; bucket counts."""

    metric: str
    n: int
    median_abs: float
    max_abs: float
    worst: str
    buckets: tuple[int, ...]


def bucket(avg_rel_diff: float) -> int:
    """The index in BUCKETS."""
    size = abs(avg_rel_diff)
    return 0 if size == 0 else 1 + sum(size >= bound for bound in _BOUNDS)


def by_metric(judged: Iterable[Judgement]) -> tuple[MetricSummary, ...]:
    """Per metric, in order of name; files without a shared finite step do not count."""
    found: dict[str, list[Measure]] = {}
    for one in judged:
        for measure in one.measures:
            if measure.avg_rel_diff is not None:
                found.setdefault(measure.metric, []).append(measure)
    return tuple(_metric(name, found[name]) for name in sorted(found))


def _metric(name: str, measures: Sequence[Measure]) -> MetricSummary:
    sizes = [abs(one.avg_rel_diff or 0.0) for one in measures]
    counts = [0] * len(BUCKETS)
    for size in sizes:
        counts[bucket(size)] += 1
    return MetricSummary(
        name, len(sizes), median(sizes), max(sizes), measures[sizes.index(max(sizes))].file, tuple(counts)
    )


def in_order(judged: Iterable[Judgement]) -> tuple[Judgement, ...]:
    """What a person must see first: refused, held back (the worst first), accepted, the rest by name."""
    rank: Mapping[Verdict, int] = {"refused": 0, "held back": 1, "refresh": 2, "unchanged": 3}
    return tuple(sorted(judged, key=lambda one: (rank[one.verdict], not one.accepted, -one.weight, one.file)))


def rows(judged: Iterable[Judgement]) -> list[dict[str, object]]:
    """A row a (file, metric), with the keys CSV_COLUMNS."""
    return [
        dict(
            zip(
                CSV_COLUMNS,
                (
                    one.file, one.metric, one.n_steps, one.avg_rel_diff, one.median_abs, one.max_abs, one.last_shift,
                    one.ratio, judgement.verdict, judgement.ci.get(one.metric, ""),
                ),
                strict=True,
            )
        )
        for judgement in judged
        for one in judgement.measures
    ]  # fmt: skip


def verdict_rows(judged: Iterable[Judgement]) -> list[dict[str, object]]:
    """A row a file that is not unchanged, what must be seen first."""
    return [
        {
            "file": one.file,
            "verdict": one.verdict,
            "reasons": sentence(one),
            "notes": "; ".join(one.notes),
            "accepted": one.accepted,
        }
        for one in in_order(judged)
        if one.verdict != "unchanged"
    ]


def sentence(one: Judgement) -> str:
    """All reasons of a judgement, the worst first."""
    return "; ".join(
        f"{reason.metric}: {reason.sentence}" if reason.metric else reason.sentence for reason in one.reasons
    )


def markdown(judged: Iterable[Judgement]) -> str:
    """The blurb for the pull request.  Names and texts stand in code spans: nothing in them is markup or a mention."""
    found = in_order(judged)
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in ("refresh", "held back", "refused")}
    accepted = [one for one in found if one.accepted]
    parts = [
        f"### Golden values\n\n{counts['refresh']} refreshed, {counts['held back']} held back, "
        f"{counts['refused']} refused, {sum(one.verdict == 'unchanged' for one in found)} unchanged."
    ]
    parts += _files("Refused: NaN, infinity or not readable", [one for one in found if one.verdict == "refused"])
    parts += _files("Held back: a person must look", [one for one in found if one.verdict == "held back"])
    parts += _files("Accepted by name", accepted)
    metrics = by_metric(found)
    if metrics:
        parts += [_table(metrics), _interpretation(found, metrics)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _files(title: str, found: Sequence[Judgement]) -> list[str]:
    if not found:
        return []
    lines = [f"**{title}** ({len(found)})", ""]
    for one in found[:_SHOWN]:
        why = f" accepted: {code(one.accepted[:200])}" if one.accepted else ""
        lines.append(f"- {code(one.file)} {code(sentence(one)[:300])}{why}")
    if len(found) > _SHOWN:
        lines.append(f"- and {len(found) - _SHOWN} more")
    return ["\n".join(lines)]


def _table(metrics: Sequence[MetricSummary]) -> str:
    heads = ("metric", "n", "median", "max", *(f"`{name}`" for name in BUCKETS))
    lines = [
        "`avg_rel_diff = mean((old − new) / old)` per file and metric; median and maximum of its absolute value:",
        "",
    ]
    lines.append(f"| {' | '.join(heads)} |")
    lines.append(f"|---|{'---:|' * (len(heads) - 1)}")
    for one in metrics:
        cells = (code(one.metric), one.n, f"{one.median_abs:.2e}", f"{one.max_abs:.2e}", *one.buckets)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _interpretation(found: Sequence[Judgement], metrics: Sequence[MetricSummary]) -> str:
    """Only the lines that fit the data."""
    lines = []
    for one in metrics:
        if "loss" in one.metric and one.max_abs < 1e-3:
            small = "is the same" if one.max_abs == 0 else f"moved by less than {_power(one.max_abs)}"
            lines.append(f"- {code(one.metric)} {small} in all {one.n} files.")
    ratios = [m.ratio for j in found for m in j.measures if m.metric == "iteration-time" and m.ratio is not None]
    slower, faster = sum(ratio > SLOWER for ratio in ratios), sum(ratio < 1 / SLOWER for ratio in ratios)
    if slower:
        lines.append(
            f"- `iteration-time` is more than {SLOWER - 1:.0%} longer in {slower} of {len(ratios)} files "
            f"(median of all: {median(ratios):.2f} times)."
        )
    if faster:
        lines.append(
            f"- `iteration-time` is more than {1 - 1 / SLOWER:.0%} shorter in {faster} of {len(ratios)} files."
        )
    hidden = [
        m for j in found for m in j.measures
        if m.avg_rel_diff is not None and m.max_abs is not None and m.max_abs > 0.05 and abs(m.avg_rel_diff) < 1e-3
    ]  # fmt: skip
    if hidden:
        names = ", ".join(code(name) for name in sorted({m.metric for m in hidden}))
        lines.append(f"- In {len(hidden)} cases steps move by more than 5% and their signed mean hides it: {names}.")
    failing = sum(bool(one.ci) for one in found)
    if failing:
        lines.append(f"- CI fails {failing} of these tests against the old values.")
    return "\n".join(lines)


def _power(value: float) -> str:
    return f"1e{math.floor(math.log10(value)) + 1}"
