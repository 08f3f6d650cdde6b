"""Facts and tables above the runs of a bump's story: pins, image changes, decisions, merge conditions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from runbook_lib.records import attachments, timeline
from runbook_lib.records.pages.formats import format_duration, format_period, format_time
from runbook_lib.records.requirements import requirements
from runbook_lib.records.statement import RUN, parse_time
from runbook_lib.records.status import BumpStatus, Predicate, is_preview

#: Number of newest decisions that are shown.
_NEWEST = 50


@dataclass(frozen=True)
class TableSection:
    """A table with a heading; ``source`` is where a reader finds the omitted rows.

    ``is_open``: it belongs to the summary; other tables are folded.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, object]]
    source: str
    introduction: str = ""
    remark: str = ""
    is_open: bool = False


def bump_facts(folder: Path, status: BumpStatus, runs: Sequence[Predicate]) -> dict[str, object]:
    """Return the names and values (or lists of values) that describe a bump."""
    inputs: dict[str, object] = {}
    for run in runs:
        if is_preview(run) and any(inputs.values()):
            continue
        for name, value in (run.get("inputs") or {}).items():
            inputs[name] = value or inputs.get(name)
    platforms = _newest_table(folder, runs, "platforms.csv")
    versions: dict[str, None] = {}
    for run in runs:
        if library := run.get("library"):
            versions[f"{library.get('version')} {library.get('commit') or ''}".strip()] = None
    return {
        "repository": f"{status.repository}, branch {status.base}",
        "image": f"{status.tag} ({status.image_type}) {inputs.get('digest') or ''}".strip() if status.tag else "",
        "platforms": [f"{row.get('platform')} {row.get('digest')}" for row in platforms],
        **_links(status, runs),
        "base commit": inputs.get("base_commit"),
        "head commit": inputs.get("head_commit"),
        "merge commit": inputs.get("merge_commit"),
        "people": list(dict.fromkeys(map(timeline.person, runs))),
        "started": format_time(status.started),
        "last run ended": format_time(status.last),
        "from first to last": format_period(status.started, status.last),
        "time in runs": _time_in_runs(runs),
        "runbook": list(versions),
    }


def _links(status: BumpStatus, runs: Sequence[Predicate]) -> dict[str, object]:
    """Return each name with all its URLs: a bump may have several CI runs."""
    # Only the status links issues, because runs record them as effects.
    addresses: dict[str, list[str]] = {name: [] for name in status.links}
    for run in sorted(runs, key=lambda run: str(run.get("ended") or run["started"])):
        for name, url in (run.get("links") or {}).items():
            if str(url) not in addresses.setdefault(str(name), []):
                addresses[str(name)].append(str(url))
    return {name: urls or [status.links[name]] for name, urls in addresses.items()}


def _time_in_runs(runs: Iterable[Predicate]) -> str:
    """Return the total duration of the finished runs that a person started."""
    duration = timedelta()
    for run in runs:
        if run.get("parent") is None and run.get("ended"):
            duration += parse_time(run["ended"]) - parse_time(run["started"])
    return format_duration(duration)


def moved_pins(folder: Path, runs: Sequence[Predicate]) -> list[dict[str, str]]:
    """Return the newest row for each pin from the ``changes.csv`` of all runs."""
    pins = {}
    for run in runs:
        for row in attachments.rows(folder / run["id"] / "changes.csv"):
            if row.keys() >= {"path", "line", "selector", "old", "new"}:
                pins[row["path"], row["selector"]] = row
    return list(pins.values())


def table_sections(folder: Path, runs: Sequence[Predicate], pins: Sequence[Mapping[str, str]]) -> list[TableSection]:
    """Return the tables of a story that have any rows, the decisions first: they belong to the summary."""
    sections = [
        _decision_section(timeline.decisions(runs)),
        _pin_section(pins),
        _merge_section(runs),
        _image_section(_newest_table(folder, runs, "image-changes.csv")),
    ]
    return [section for section in sections if section.rows]


def _pin_section(pins: Sequence[Mapping[str, str]]) -> TableSection:
    rows = []
    for pin in pins:
        place = f"{pin['path']}:{pin['line']}"
        rows.append({"pin": place, "where": pin["selector"], "from": pin["old"], "to": pin["new"]})
    columns = ("pin", "where", "from", "to")
    return TableSection("Moved pins", columns, rows, "changes.csv of the records", is_open=True)


def _image_section(changes: Iterable[Mapping[str, str]]) -> TableSection:
    platforms: dict[tuple[str, ...], list[str]] = {}
    for row in changes:
        component = tuple(row.get(name, "") for name in ("component", "old", "new", "change"))
        platforms.setdefault(component, []).append(row.get("platform", ""))
    columns = ("component", "from", "to", "change", "platforms")
    rows = []
    for component, names in platforms.items():
        if component[-1] != "same":
            rows.append(dict(zip(columns, (*component, ", ".join(names)), strict=True)))
    return TableSection("Changes in the new image", columns, rows, "image-changes.csv of the records")


def _decision_section(decisions: Sequence[timeline.RecordedDecision]) -> TableSection:
    rows = []
    for decision in decisions[-_NEWEST:]:
        rows.append({**vars(decision), "when (UTC)": format_time(decision.at)[:19]})
    columns = ("decision", "reason", "when (UTC)", "by")
    older = len(decisions) - len(rows)
    remark = f"… and {older} older: see the records." if older else ""
    return TableSection("Decisions by people", columns, rows, "the records", remark=remark, is_open=True)


def _merge_section(runs: Sequence[Predicate]) -> TableSection:
    """Return the requirements for the merge that the newest run of the bump notebook has checked."""
    rows: list[dict[str, object]] = []
    introduction = ""
    outcomes = {"met": "✓ met", "missing": "… missing", "unknown": "? unknown"}
    for run in reversed(runs):
        if found := requirements(run):
            introduction = f"As checked by the run that started at {format_time(run['started'])}."
            rows += [
                {"condition": each.name, "outcome": outcomes[each.state], "detail": each.evidence} for each in found
            ]
            break
    columns = ("condition", "outcome", "detail")
    return TableSection("Before the merge", columns, rows, f"{RUN} of that run's record", introduction, is_open=True)


def _newest_table(folder: Path, runs: Sequence[Predicate], name: str) -> list[dict[str, str]]:
    """Return the rows of the newest file of that name that has any."""
    for run in reversed(runs):
        rows = attachments.rows(folder / run["id"] / name)
        if rows:
            return rows
    return []
