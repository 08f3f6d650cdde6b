"""The comparison of golden values for reviewers: Markdown for the pull request, and rows for tables and CSV."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runbook_lib.golden.form import Judgement, Verdict
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.measure import Measure
from runbook_lib.golden.shifts import Group
from runbook_lib.text.markdown import code

#: Upper bounds of the buckets of |avg_rel_diff|; the first bucket has only 0, the last everything from the last bound.
_BOUNDS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
BUCKETS = ("== 0", "(0, 1e-6)", "[1e-6, 1e-4)", "[1e-4, 1e-3)", "[1e-3, 1e-2)", "[1e-2, 1e-1)", ">= 1e-1")
CSV_COLUMNS = (
    "file", "metric", "n_steps", "avg_rel_diff", "median_abs_rel_diff", "max_abs_rel_diff", "last_shift", "ratio",
    "verdict", "ci",
)  # fmt: skip
_MAX_FILES = 20
#: The ratio from which an iteration time counts as longer.
SLOWER = 1.25
_RANK: Mapping[Verdict, int] = {"refused": 0, "held back": 1, "ambiguous": 2, "refresh": 3, "unchanged": 4}


@dataclass(frozen=True)
class MetricSummary:
    """One metric over all files: ``n`` files with shared steps; median and maximum of |avg_rel_diff|; bucket counts."""

    metric: str
    n: int
    median_abs: float
    max_abs: float
    buckets: tuple[int, ...]


def bucket(avg_rel_diff: float) -> int:
    """Return the index in BUCKETS."""
    size = abs(avg_rel_diff)
    if size == 0:
        return 0
    return 1 + sum(size >= bound for bound in _BOUNDS)


def by_metric(judgements: Iterable[Judgement]) -> tuple[MetricSummary, ...]:
    """Summarize each metric, sorted by name; files without a shared finite step do not count."""
    sizes: dict[str, list[float]] = {}
    for measure in _measures(judgements):
        if measure.avg_rel_diff is not None:
            sizes.setdefault(measure.metric, []).append(abs(measure.avg_rel_diff))
    summaries = []
    for metric, values in sorted(sizes.items()):
        counts = Counter(map(bucket, values))
        buckets = tuple(counts[index] for index in range(len(BUCKETS)))
        summaries.append(MetricSummary(metric, len(values), median(values), max(values), buckets))
    return tuple(summaries)


def _measures(judgements: Iterable[Judgement]) -> list[Measure]:
    measures: list[Measure] = []
    for judgement in judgements:
        measures += judgement.measures
    return measures


def in_order(judgements: Iterable[Judgement]) -> tuple[Judgement, ...]:
    """Sort by urgency: refused, held back (the worst first), accepted, and the rest by name."""
    return tuple(sorted(judgements, key=_urgency))


def _urgency(judgement: Judgement) -> tuple[int, bool, float, str]:
    return _RANK[judgement.verdict], not judgement.accepted, -judgement.weight, judgement.file


def rows(judgements: Iterable[Judgement]) -> list[dict[str, object]]:
    """Return one row per (file, metric), with the keys CSV_COLUMNS."""
    result: list[dict[str, object]] = []
    for judgement in judgements:
        for measure in judgement.measures:
            row = (
                measure.file, measure.metric, measure.n_steps, measure.avg_rel_diff, measure.median_abs,
                measure.max_abs, measure.last_shift, measure.ratio, judgement.verdict,
                judgement.ci.get(measure.metric, ""),
            )  # fmt: skip
            result.append(dict(zip(CSV_COLUMNS, row, strict=True)))
    return result


def verdict_rows(judgements: Iterable[Judgement]) -> list[dict[str, object]]:
    """Return one row per renamed or changed file, the most urgent first."""
    result: list[dict[str, object]] = []
    for judgement in in_order(judgements):
        if judgement.verdict != "unchanged" or judgement.renamed:
            row: dict[str, object] = {
                "file": judgement.file,
                "verdict": judgement.verdict,
                "reasons": sentence(judgement),
                "notes": "; ".join(judgement.notes),
                "accepted": judgement.accepted,
                "group": judgement.group,
            }
            result.append(row)
    return result


def group_rows(groups: Iterable[Group]) -> list[dict[str, object]]:
    """Return one row per decision on a group."""
    rows = []
    for group in groups:
        rows.append({**group.row, "files": len(group.files), "p_value": f"{group.p_value:.2g}"})
    return rows


def sentence(judgement: Judgement) -> str:
    """Return all reasons of a judgement, the worst first."""
    clauses = []
    for reason in judgement.reasons:
        clauses.append(f"{reason.metric}: {reason.sentence}" if reason.metric else reason.sentence)
    return "; ".join(clauses)


def markdown(verdicts: Verdicts) -> str:
    """Return the text for the pull request, starting with the decisions on groups.

    Names are in code spans, so that nothing in them becomes markup or a mention.
    """
    judgements = in_order(verdicts.judgements)
    by_verdict: dict[Verdict, list[Judgement]] = {verdict: [] for verdict in _RANK}
    for judgement in judgements:
        by_verdict[judgement.verdict].append(judgement)
    waiting = sum(judgement.verdict == "refresh" for judgement in judgements if judgement.file in verdicts.waiting)
    counts = [
        f"{len(by_verdict['refresh']) - waiting} refreshed, {len(by_verdict['held back'])} held back",
        f"{len(by_verdict['ambiguous'])} ambiguous" if by_verdict["ambiguous"] else "",
        f"{waiting} waiting for a decision on their group" if waiting else "",
        f"{len(by_verdict['refused'])} refused, {len(by_verdict['unchanged'])} unchanged.",
    ]
    parts = [
        f"### Golden values\n\n{', '.join(filter(None, counts))}",
        _groups(verdicts.groups),
        _files("Refused: NaN, infinity or not readable", by_verdict["refused"]),
        _files("Held back: a person must decide", by_verdict["held back"]),
        _files("Ambiguous: another run decides", by_verdict["ambiguous"]),
        _dangers(verdicts),
        _files("Accepted", [judgement for judgement in judgements if judgement.accepted]),
        _files("Renamed", [judgement for judgement in judgements if judgement.renamed]),
    ]
    metrics = by_metric(judgements)
    if metrics:
        parts += [_table(metrics), _interpretation(judgements, metrics), _error_rates(verdicts)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _groups(groups: Sequence[Group]) -> str:
    lines = [f"**One decision for many files** ({len(groups)})", ""]
    for group in groups:
        probability = f"p = {max(group.p_value, 1e-300):.0e}"
        line = f"- {code(group.id)} {code(group.sentence)}, {probability}"
        lines.append(line + (f" accepted: {code(group.accepted[:200])}" if group.accepted else ": held back"))
    return "\n".join(lines) if groups else ""


def _dangers(verdicts: Verdicts) -> str:
    lines = [f"- {code(sentence[:400])}" for sentence in verdicts.accepted_dangers]
    return (
        "\n".join([f"**Accepted despite the danger: review these first** ({len(lines)})", "", *lines]) if lines else ""
    )


def _error_rates(verdicts: Verdicts) -> str:
    """Return the error rates of the verdicts on times and memory."""
    rates, source = verdicts.error_rates, "the history of each test"
    if verdicts.missing:
        source = f"priors alone ({code(verdicts.missing)})"
    noticed = rates["noticed of ×1.5 slower"]
    lines = (
        f"Times and memory were judged by {source}. Noise alone would raise {rates['false questions']:.1f} questions"
    )
    if noticed is not None:
        lines += f"; of tests that became ×1.5 slower, about {noticed:.0%} would be noticed"
    return f"{lines}."


def _files(title: str, judgements: Sequence[Judgement]) -> str:
    if not judgements:
        return ""
    lines = [f"**{title}** ({len(judgements)})", ""]
    for judgement in judgements[:_MAX_FILES]:
        line = f"- {code(judgement.file)}"
        if judgement.renamed:
            line += f" was {code(judgement.renamed)}"
        if judgement.reasons:
            line += f" {code(sentence(judgement)[:300])}"
        if judgement.accepted:
            line += f" accepted: {code(judgement.accepted[:200])}"
        lines.append(line)
    if len(judgements) > _MAX_FILES:
        lines.append(f"- and {len(judgements) - _MAX_FILES} more")
    return "\n".join(lines)


def _table(metrics: Sequence[MetricSummary]) -> str:
    heads = ["metric", "n", "median", "max"]
    heads += [f"`{name}`" for name in BUCKETS]
    lines = [
        "`avg_rel_diff = mean((old − new) / old)` per file and metric; median and maximum of its absolute value:",
        "",
        f"| {' | '.join(heads)} |",
        f"|---|{'---:|' * (len(heads) - 1)}",
    ]
    for metric in metrics:
        cells = [code(metric.metric), str(metric.n), f"{metric.median_abs:.2e}", f"{metric.max_abs:.2e}"]
        cells += map(str, metric.buckets)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _interpretation(judgements: Sequence[Judgement], metrics: Sequence[MetricSummary]) -> str:
    """Return only the lines that apply to the data."""
    measures = _measures(judgements)
    lines = [*_losses(metrics), *_times(measures)]
    hidden = list(filter(_mean_hides_steps, measures))
    if hidden:
        names = ", ".join(map(code, sorted({measure.metric for measure in hidden})))
        lines.append(f"- In {len(hidden)} cases steps change by more than 5%, but the signed mean hides that: {names}.")
    failing = sum(bool(judgement.ci) for judgement in judgements)
    if failing:
        lines.append(f"- CI fails {failing} of these tests against the old values.")
    return "\n".join(lines)


def _losses(metrics: Sequence[MetricSummary]) -> list[str]:
    lines = []
    for metric in metrics:
        if "loss" in metric.metric and metric.max_abs < 1e-3:
            change = "is the same"
            if metric.max_abs > 0:
                change = f"moved by less than 1e{math.floor(math.log10(metric.max_abs)) + 1}"
            lines.append(f"- {code(metric.metric)} {change} in all {metric.n} files.")
    return lines


def _times(measures: Sequence[Measure]) -> list[str]:
    ratios = []
    for measure in measures:
        if measure.metric == "iteration-time" and measure.ratio is not None:
            ratios.append(measure.ratio)
    slower, faster = sum(ratio > SLOWER for ratio in ratios), sum(ratio < 1 / SLOWER for ratio in ratios)
    lines = []
    if slower:
        lines.append(
            f"- `iteration-time` is more than {SLOWER - 1:.0%} longer in {slower} of {len(ratios)} files "
            f"(median of all: {median(ratios):.2f} times)."
        )
    if faster:
        lines.append(
            f"- `iteration-time` is more than {1 - 1 / SLOWER:.0%} shorter in {faster} of {len(ratios)} files."
        )
    return lines


def _mean_hides_steps(measure: Measure) -> bool:
    if measure.avg_rel_diff is None or measure.max_abs is None:
        return False
    return measure.max_abs > 0.05 and abs(measure.avg_rel_diff) < 1e-3
