"""The comparison of golden values for reviewers: Markdown for the pull request, and rows for tables and CSV."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from runbook_lib.golden.groups import Group
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.measure import VERDICTS, Judgement, Measure, Verdict
from runbook_lib.text.lists import aligned
from runbook_lib.text.markdown import code
from runbook_lib.text.recipes.file_names import GoldenFileName

#: The buckets of |avg_rel_diff|: the first has only 0, the last everything from its bound.
BUCKETS = ("== 0", "(0, 1e-6)", "[1e-6, 1e-4)", "[1e-4, 1e-3)", "[1e-3, 1e-2)", "[1e-2, 1e-1)", ">= 1e-1")
_BOUNDS = (math.ulp(0.0), 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
_MAX_FILES = 20


def by_metric(judgements: Iterable[Judgement]) -> list[dict[str, object]]:
    """Return a row for each metric and platform: ``n`` files, median and maximum of |avg_rel_diff|, files by bucket.

    Files without a shared finite step do not count.
    """
    import pandas as pd  # only where values have been compared: its import takes longer than most steps

    changes = []
    for measure in _measures(judgements):
        if measure.avg_rel_diff is not None:
            size = abs(measure.avg_rel_diff)
            changes.append((*_metric(measure), size, BUCKETS[bisect_right(_BOUNDS, size)]))
    frame = pd.DataFrame(changes, columns=["metric", "platform", "size", "bucket"])
    sizes = frame.groupby(["metric", "platform"])["size"].agg(n="size", median="median", max="max")
    buckets = pd.crosstab([frame["metric"], frame["platform"]], frame["bucket"]).reindex(columns=BUCKETS, fill_value=0)
    rows: list[dict[str, object]] = sizes.join(buckets).reset_index().to_dict("records")
    return rows


def _metric(measure: Measure) -> tuple[str, str]:
    """Return the metric and its platform: a baseline's metric has it and a batch size before its name."""
    place, _, metric = measure.metric.rpartition("/")
    name = GoldenFileName.of_path(measure.file)
    return metric, place.partition("/")[0] or (name.platform if name else "")


def _measures(judgements: Iterable[Judgement]) -> list[Measure]:
    measures: list[Measure] = []
    for judgement in judgements:
        measures += judgement.measures
    return measures


def in_order(judgements: Iterable[Judgement]) -> tuple[Judgement, ...]:
    """Sort by urgency: refused, held back (the worst first), accepted, and the rest by name."""

    def urgency(judgement: Judgement) -> tuple[int, bool, float, str]:
        return VERDICTS.index(judgement.verdict), not judgement.accepted, -judgement.weight, judgement.file

    return tuple(sorted(judgements, key=urgency))


def rows(judgements: Iterable[Judgement]) -> list[dict[str, object]]:
    """Return one row per (file, metric): the fields of its Measure, None if not finite, and of its judgement."""
    result: list[dict[str, object]] = []
    for judgement in judgements:
        for measure in judgement.measures:
            cost = judgement.costs.get(measure.metric)
            row = {**vars(measure), "ratio": None if cost is None or abs(cost) > 700 else math.exp(cost)}
            for name, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):  # which JSON has no number for
                    row[name] = None
            result.append(row | {"verdict": judgement.verdict, "ci": "fails" if measure.metric in judgement.ci else ""})
    return result


def verdict_rows(judgements: Iterable[Judgement]) -> list[dict[str, object]]:
    """Return one row per renamed or changed file, the most urgent first."""
    result: list[dict[str, object]] = []
    for judgement in in_order(judgements):
        if judgement.verdict != "unchanged":
            result.append({
                "file": judgement.file, "verdict": judgement.verdict, "reasons": judgement.sentence,
                "notes": "; ".join(judgement.notes), "accepted": judgement.accepted, "group": judgement.group,
            })  # fmt: skip
    return result


def group_rows(groups: Iterable[Group]) -> list[dict[str, object]]:
    """Return one row per decision on a group."""
    return [{**group.row, "files": len(group.files)} for group in groups]


def markdown(verdicts: Verdicts) -> str:
    """Return the text for the pull request, starting with the decisions on groups.

    Names are in code spans, so that nothing in them becomes markup or a mention.
    """
    judgements = in_order(verdicts.judgements)
    by_verdict: dict[Verdict, list[Judgement]] = {verdict: [] for verdict in VERDICTS}
    for judgement in judgements:
        by_verdict[judgement.verdict].append(judgement)
    waiting = sum(judgement.verdict == "refresh" for judgement in judgements if judgement.file in verdicts.waiting)
    counts = [
        f"{len(by_verdict['refresh']) - waiting} refreshed, {len(by_verdict['held back'])} held back",
        f"{len(by_verdict['ambiguous'])} ambiguous" if by_verdict["ambiguous"] else "",
        f"{waiting} waiting for a decision on their group" if waiting else "",
        f"{len(by_verdict['refused'])} refused, {len(by_verdict['renamed'] + by_verdict['unchanged'])} unchanged.",
    ]
    dangers = [code(danger[:400]) for danger in verdicts.accepted_dangers]
    parts = [
        f"### Golden values\n\n{', '.join(filter(None, counts))}",
        _list("One decision for many files", [_group(group) for group in verdicts.groups], len(verdicts.groups)),
        _files("Refused: CI would reject these files", by_verdict["refused"]),
        _files("Held back: a person must decide", by_verdict["held back"]),
        _files("Ambiguous: another run decides", by_verdict["ambiguous"]),
        _list("Accepted despite the danger: review these first", dangers, len(dangers)),
        _files("Accepted", [judgement for judgement in judgements if judgement.accepted]),
        _files("Renamed", by_verdict["renamed"]),
    ]
    if metrics := by_metric(judgements):
        source = f"priors alone ({code(verdicts.missing)})" if verdicts.missing else "the history of each test"
        failing = sum(bool(judgement.ci) for judgement in judgements)
        parts.append(_table(metrics))
        if hidden := {measure.metric for measure in _measures(judgements) if measure.is_hidden}:
            names = ", ".join(map(code, sorted(hidden)))
            parts.append(f"The signed mean hides that steps changed by more than 5 %: {names}.")
        parts.append(f"CI fails {failing} of these tests against the old values.")
        parts.append(f"Times and memory were judged by {source}.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _list(title: str, lines: Sequence[str], most: int) -> str:
    """Return a list with its title; empty without lines."""
    if not lines:
        return ""
    shown = [f"- {line}" for line in lines[:most]]
    if len(lines) > most:
        shown.append(f"- and {len(lines) - most} more")
    return "\n".join([f"**{title}** ({len(lines)})", "", *shown])


def _files(title: str, judgements: Iterable[Judgement]) -> str:
    return _list(title, list(map(_file, judgements)), _MAX_FILES)


def _group(group: Group) -> str:
    decision = f" accepted: {code(group.accepted[:200])}" if group.accepted else ": held back"
    return f"{code(group.id)} {code(group.sentence)}{decision}"


def _file(judgement: Judgement) -> str:
    line = code(judgement.file)
    if judgement.reasons:
        line += f" {code(judgement.sentence[:300])}"
    if judgement.accepted:
        line += f" accepted: {code(judgement.accepted[:200])}"
    return line


def _table(metrics: Iterable[Mapping[str, object]]) -> str:
    heads = ["metric", "platform", "n", "median", "max", *(f"`{name}`" for name in BUCKETS)]
    rows = [heads, ["---", "---", *["---:"] * (len(heads) - 2)]]
    for row in metrics:
        numbers = [row["n"], f"{row['median']:.2e}", f"{row['max']:.2e}", *(row[name] for name in BUCKETS)]
        rows.append([code(str(row["metric"])), code(str(row["platform"])), *map(str, numbers)])
    about = "`avg_rel_diff = mean((old − new) / old)` per file and metric; median and maximum of its absolute value:"
    lines = aligned([[*(f"| {cell}" for cell in row), "|"] for row in rows])  # readable in a terminal, too
    return "\n".join([about, "", *lines])
