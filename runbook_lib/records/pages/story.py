"""``story.html`` of a bump: the moved pins, people's decisions, and each run's work; suitable for a change ticket.

It is made only from the records and stays below a megabyte: omissions are named, and are in the records.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib import display
from runbook_lib.records import attachments, timeline
from runbook_lib.records.pages import html
from runbook_lib.records.pages.bump_facts import TableSection, bump_facts, moved_pins, table_sections
from runbook_lib.records.pages.formats import format_value, truncate
from runbook_lib.records.statement import EXECUTED, RUN
from runbook_lib.records.status import BumpStatus, Predicate, is_preview, outcome_sentence

if TYPE_CHECKING:
    from markupsafe import Markup

#: Maximum bytes of the page, and of the facts and tables above the runs.
_PAGE, _ABOVE = 995_000, 120_000
#: Maximum bytes of all plots, all diffs, the runs reduced to their outcome, and the sentence about omitted runs.
_PLOTS, _DIFFS, _HEADS, _LAST_SENTENCE = 450_000, 120_000, 60_000, 1_000
#: The facts that are shown first.
_SUMMARY = ("pull request", "CI run", "people", "from first to last", "time in runs")
#: Maximum values of one fact; rows of a table (fewer if they are long); rows of a run's table.
_VALUES, _ROWS, _RUN_ROWS = 50, (200, 50, 10), 40
#: Maximum characters of a URL, of a value, and of a part of the title or a fact's name.
_ADDRESS, _VALUE, _TITLE = 2_000, 400, 100
#: Maximum lines of a diff shown in full, and the lines shown of a longer one.
_SHORT_DIFF, _FIRST_LINES = 120, 40
#: Levels of detail for a run, most detailed first.
_LEVELS = ("full", "brief", "head")
#: A run's tables: file, label and columns.
_RUN_TABLES = (
    ("failures.csv", "failed jobs", ("job", "class", "cause", "on the base branch")),
    ("verdicts.csv", "golden files to review", ("file", "verdict", "reasons", "notes", "accepted")),
)


def render(folder: Path, status: BumpStatus, runs: Sequence[Predicate], made_of: str = "") -> str:
    """Return a bump's page from its records in ``folder``, oldest first, which are already redacted.

    ``made_of`` identifies the state of the records.
    """
    budget = html.ByteBudget(_ABOVE)
    pins = moved_pins(folder, runs)
    facts, omitted_facts = _fitting_facts(bump_facts(folder, status, runs), budget)
    values = {
        "title": f"{_title(status, pins)}: {truncate(status.state, _TITLE)}",
        "heading": _title(status, pins),
        "made_of": made_of,
        "status": status,
        "as_of": max((str(run.get("ended") or run["started"]) for run in runs), default=""),
        "records": len(runs),
        "facts": facts,
        "summary": {name: facts[name] for name in _SUMMARY if name in facts},
        "omitted_facts": omitted_facts,
        "sections": [_fitting_table(section, budget) for section in table_sections(folder, runs, pins)],
        "statement": RUN,
    }
    above = html.render("story.html", **values, runs=[], omitted_runs=0)
    shown, omitted = _History(folder, runs).render(_PAGE - len(html.to_bytes(above)))
    return html.render("story.html", **values, runs=shown, omitted_runs=omitted)


def _title(status: BumpStatus, pins: Sequence[Mapping[str, str]]) -> str:
    old_tags = dict.fromkeys(row["old"].rpartition(":")[2] for row in pins)
    old = truncate(", ".join(old_tags), _TITLE)
    tag = truncate(status.tag or "no tag", _TITLE)
    if old and status.tag:
        tag = f"{old} → {tag}"
    return f"Base image {tag} ({truncate(status.image_type, _TITLE)}) on {truncate(status.base, _TITLE)}"


def _fitting_facts(values: Mapping[str, object], budget: html.ByteBudget) -> tuple[dict[str, list[str]], int]:
    """Return the facts that fit, shortened, and the number of omitted ones."""
    fitting: dict[str, list[str]] = {}
    omitted = 0
    for name, value in values.items():
        if not value:
            continue
        items = value if isinstance(value, list) else [value]
        short = {truncate(name, _TITLE): [truncate(format_value(item), _VALUE) for item in items[-_VALUES:]]}
        if budget.take(html.macros("parts.html").facts(short)):
            fitting |= short
        else:
            omitted += 1
    return fitting, omitted


def _fitting_table(section: TableSection, budget: html.ByteBudget) -> dict[str, object]:
    """Return a section for the template, with as many rows as fit."""
    rows = [_short_row(row, section.columns) for row in section.rows[: _ROWS[0]]]
    for number in _ROWS:
        markup = html.macros("parts.html").table(rows[:number], section.columns, section.title)
        if budget.take(markup):
            return {"section": section, "table": markup, "omitted": max(len(section.rows) - number, 0)}
    return {"section": section, "table": "", "omitted": len(section.rows)}


def _short_row(row: Mapping[str, object], columns: Iterable[str]) -> dict[str, str]:
    short = {name: truncate(format_value(row.get(name)), _VALUE) for name in columns}
    return short | {"url": truncate(format_value(row.get("url")), _ADDRESS)}


class _History:
    """The runs of a bump as HTML.  A warning, table, plot or diff is shown only at its first occurrence."""

    def __init__(self, folder: Path, runs: Sequence[Predicate]) -> None:
        self._folder = folder
        self._entries = timeline.entries(runs)
        self._plots, self._diffs = html.ByteBudget(_PLOTS), html.ByteBudget(_DIFFS)
        #: The run in which each text first occurred.
        self._first: dict[str, str] = {}
        for entry in self._entries:
            for run in (*entry.steps, entry.run):
                for text in self._texts(run):
                    self._first.setdefault(text, str(run["id"]))

    def _texts(self, run: Predicate) -> Iterator[str]:
        record = self._folder / run["id"]
        yield from map(str, run.get("warnings") or ())
        for image in attachments.images(record / EXECUTED):
            yield image.data
        for name in ("failures.csv", "verdicts.csv", "change.diff"):
            yield attachments.text(record / name)

    def render(self, size: int) -> "tuple[list[Markup], int]":
        """Return the runs, oldest first, and the number of omitted ones.

        Beyond ``size`` bytes, the newest are shown in full, older ones in brief, and the oldest are omitted.
        """
        budget, heads = html.ByteBudget(size - _HEADS - _LAST_SENTENCE), html.ByteBudget(_HEADS)
        shown: list[Markup] = []
        for number, entry in reversed(list(enumerate(self._entries, 1))):
            for level in _LEVELS:
                markup = self._entry(number, entry, level)
                room = heads if level == "head" else budget
                if room.take(markup):
                    shown.append(markup)
                    break
        return shown[::-1], len(self._entries) - len(shown)

    def _entry(self, number: int, entry: timeline.TimelineEntry, level: str) -> "Markup":
        """Return a run that a person started: in full, with its steps in brief, or only its outcome."""
        names = {*entry.unchanged, *(step["notebook"]["name"] for step in entry.steps)}
        details: dict[str, Any] = {}
        if level == "full":
            # The newest run gets the remaining space for plots and diffs first.
            details = {step["id"]: self._details(step, set()) for step in reversed(entry.steps)}
            details[entry.run["id"]] = self._details(entry.run, names)
        macros = html.macros("story_run.html")
        markup: Markup = macros.entry(number, level, entry, details, timeline.person(entry.run))
        return markup

    def _details(self, run: Predicate, steps: set[str]) -> dict[str, Any]:
        """Return a run's work and findings, except for the named steps, which are shown elsewhere."""
        return {
            "effects": [
                f"{timeline.describe_effect(effect)} {effect.get('url') or ''}"
                for effect in run.get("effects") or ()
                if "record" not in effect  # a step's effects are shown with the step
            ],
            **_checks(run, steps),
            "warnings": [text for text in map(str, run.get("warnings") or ()) if self._is_first(run, text)],
            "tables": [table for table in self._tables(run) if table["rows"]],
            **self._images(run),
            "diff": self._diff(run),
        }

    def _tables(self, run: Predicate) -> Iterator[dict[str, Any]]:
        for file, label, columns in _RUN_TABLES:
            path = self._folder / run["id"] / file
            if not self._is_first(run, attachments.text(path)):
                continue
            rows = []
            for row in attachments.rows(path):
                # A golden file that was refreshed may need no further mention.
                if row.get("verdict") != "refresh" or any(row.get(name) for name in ("reasons", "notes", "accepted")):
                    rows.append(row)
            short = [_short_row(row, columns) for row in rows[:_RUN_ROWS]]
            used = [name for name in columns if any(row[name] for row in short)]
            yield {"label": label, "rows": short, "columns": used, "omitted": len(rows) - len(short)}

    def _images(self, run: Predicate) -> dict[str, Any]:
        from markupsafe import Markup

        images: list[dict[str, str]] = []
        omitted = 0
        for image in attachments.images(self._folder / run["id"] / EXECUTED):
            if not self._is_first(run, image.data):
                continue
            if self._plots.take(image.html):
                images.append({"image": Markup(image.html), "caption": image.description})
            else:
                omitted += 1
        return {"images": images, "omitted_images": omitted}

    def _diff(self, run: Predicate) -> dict[str, Any] | None:
        from markupsafe import Markup

        text = attachments.text(self._folder / run["id"] / "change.diff")
        if not text or not self._is_first(run, text):
            return None
        lines = text.removesuffix("\n").split("\n")
        shown = lines if len(lines) <= _SHORT_DIFF else lines[:_FIRST_LINES]
        files = re.findall(r"^\+\+\+ (?:b/)?(.+)", text, re.MULTILINE)
        label = f"change of {', '.join(files)[:200]}"
        rows = Markup(display.diff("\n".join(shown)).html)
        markup = html.macros("story_run.html").diff(rows, label)
        fits = self._diffs.take(markup)
        omitted = len(lines) - len(shown)
        return {"markup": markup, "fits": fits, "files": len(files), "lines": len(lines), "omitted": omitted}

    def _is_first(self, run: Predicate, text: str) -> bool:
        return self._first.get(text) == str(run["id"])


def _checks(run: Predicate, steps: set[str]) -> dict[str, Any]:
    """Return the passed checks by name, and the others with their details; for a preview only the passed ones."""
    passed, not_passed = [], []
    for check in run.get("checks") or ():
        if check.get("name") in steps:
            continue
        status = str(check.get("status"))
        if status == "passed":
            passed.append(format_value(check.get("name")))
        # A waiting step's outcome already shows what it is waiting for.
        elif check.get("detail") != outcome_sentence(run) and not is_preview(run):
            mark = display.MARKS.get(status, status)
            not_passed.append(f"{mark}: {format_value(check.get('name'))}. {format_value(check.get('detail'))}")
    return {"passed": passed, "not_passed": not_passed}
