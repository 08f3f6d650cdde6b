"""What happened in a bump, run by run, as HTML: effects, checks, tables, plots and changes of files."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from runbook_lib import display
from runbook_lib.records import attachments, timeline
from runbook_lib.records.pages.html import Room, boxed, cut, duration, listing, moment, shown
from runbook_lib.records.statement import EXECUTED, REPORT, RUN
from runbook_lib.records.status import BEFORE_MERGE, Run, is_preview, settled
from runbook_lib.records.timeline import Entry

#: Bytes of the plots, of the changes of files, of the runs that are told in a line, and of what is said of the others.
_PLOTS, _DIFFS, _HEADS, _LAST_WORD = 450_000, 120_000, 60_000, 1_000
#: Lines of a change that is shown whole, and of the beginning of a longer one.
_SHORT_CHANGE, _BEGINNING = 120, 40
#: Rows of one table, and characters of one cell, of a sentence, and of a name.
_ROWS, _LONGEST, _SENTENCE, _NAME = 40, 400, 4_000, 200
#: How much of a run is told: as much as has room.
_LEVELS = ("full", "brief", "head")
_FAILURES = ("job", "class", "cause", "on the base branch")
_VERDICTS = ("file", "verdict", "reasons", "notes", "accepted")


def happened(folder: Path, runs: Sequence[Run], room: int) -> list[str]:
    """The runs, oldest first, in so many bytes: where that is too little, the newest are told in full."""
    entries = timeline.entries(runs)
    teller = _Teller(folder, entries)
    whole, heads = Room(room - _HEADS - _LAST_WORD), Room(_HEADS)
    found, untold = [], 0
    for number, entry in reversed(list(enumerate(entries, 1))):
        told = ((teller.entry(number, entry, level), heads if level == "head" else whole) for level in _LEVELS)
        fitting = next((text for text, room in told if room.take(text)), None)
        untold += fitting is None
        found += [fitting] if fitting else []
    if untold:
        runs_told = f"{display.count(untold, 'older run')} had no room here: the records beside this page have all."
        found.append(f'<p class="muted">{runs_told}</p>')
    return found[::-1]


class _Teller:
    """Tells runs, the newest first while there is room; a warning, table, plot or change stands where it was first."""

    def __init__(self, folder: Path, entries: Sequence[Entry]) -> None:
        self._folder = folder
        self._plots, self._diffs = Room(_PLOTS), Room(_DIFFS)
        #: The run that said each text first.
        self._first: dict[str, str] = {}
        for run in (run for entry in entries for run in (*entry.steps, entry.run)):
            place = folder / run["id"]
            plots = (it.data for it in attachments.images(place / EXECUTED))
            tables = (attachments.text(place / name) for name in ("failures.csv", "verdicts.csv", "change.diff"))
            for text in (*map(str, run.get("warnings") or ()), *plots, *tables):
                self._first.setdefault(text, str(run["id"]))

    def entry(self, number: int, entry: Entry, level: str) -> str:
        """One run that a person started: all of it, with its steps in brief, or only how it ended."""
        top, full = entry.run, level == "full"
        name = f"{number}. {cut(top['notebook']['name'], _NAME)}{', as a preview' * is_preview(top)}"
        who = html.escape(f"{cut(timeline.person(top), _NAME)}, {moment(top['started'])}")
        parts = [
            f'<section class="run"><h3>{html.escape(name)}</h3>\n<p class="muted">{who}{_took(top)}{_record(top)}</p>'
        ]
        if level != "head":
            parts += [self._step(step, full=full) for step in reversed(entry.steps)][::-1]
            parts += [f"<p>As before: {html.escape(cut(', '.join(entry.as_before), _SENTENCE))}.</p>"] * bool(
                entry.as_before
            )
        if full:
            parts.append(self._details(top, {*entry.as_before, *(step["notebook"]["name"] for step in entry.steps)}))
        parts.append(f"<p><strong>{_mark(top)}</strong>: {_outcome(top)}</p>{_again(entry)}")
        parts += ['<p class="muted">There was no room for more of it here.</p>'] * (not full)
        return "".join([*parts, "</section>"])

    def _step(self, run: Run, *, full: bool) -> str:
        name = html.escape(cut(run["notebook"]["name"], _NAME))
        return (
            f'<section class="step"><h4>{name}: {_mark(run)}</h4>\n'
            f'<p class="muted">{html.escape(moment(run["started"])[11:])}{_took(run)}{_record(run)}</p>\n'
            f"<p>{display.linked(_sentence(run))}</p>{self._details(run, set()) if full else ''}</section>\n"
        )

    def _details(self, run: Run, steps: set[str]) -> str:
        """What a run did and found by itself: its steps, of these names, are told elsewhere."""
        parts = [
            *_effects(run),
            *_checks(run, steps),
            *self._warnings(run),
            *self._table(run, "failures.csv", "failed jobs", _FAILURES),
            *self._table(run, "verdicts.csv", "golden files to look at", _VERDICTS),
            *self._images(run),
            *self._diff(run),
        ]
        return "\n".join(parts)

    def _warnings(self, run: Run) -> Iterator[str]:
        new = [it for it in map(str, run.get("warnings") or ()) if self._is_first(run, it)]
        if new:
            yield f"<p>Warned:</p><ul>{''.join(f'<li>{display.linked(it)}</li>' for it in new)}</ul>"

    def _table(self, run: Run, file: str, named: str, columns: Sequence[str]) -> Iterator[str]:
        place = self._folder / run["id"] / file
        if not self._is_first(run, attachments.text(place)):
            return
        found = [row for row in attachments.rows(place) if row.get("verdict") != "refresh" or _is_notable(row)]
        short = [{name: cut(row.get(name, ""), _LONGEST) for name in (*columns, "url")} for row in found[:_ROWS]]
        if short:
            used = [name for name in columns if any(row[name] for row in short)]
            yield f"<p>{named.capitalize()}:</p>{listing(short, used, named=named)}"
        if len(found) > _ROWS:
            yield f"<p>… and {len(found) - _ROWS} more, which the record's report has.</p>"

    def _images(self, run: Run) -> Iterator[str]:
        left = 0
        for image in attachments.images(self._folder / run["id"] / EXECUTED):
            if not self._is_first(run, image.data):
                continue
            if self._plots.take(image.html):
                yield f"<figure>{image.html}<figcaption>{html.escape(image.told)}</figcaption></figure>"
            else:
                left += 1
        if left:
            yield f"<p>{display.count(left, 'plot')} had no room here: see {_file(run, EXECUTED)}.</p>"

    def _diff(self, run: Run) -> Iterator[str]:
        text = attachments.text(self._folder / run["id"] / "change.diff")
        if not text or not self._is_first(run, text):
            return
        lines = text.removesuffix("\n").split("\n")
        seen = lines if len(lines) <= _SHORT_CHANGE else lines[:_BEGINNING]
        files = re.findall(r"^\+\+\+ (?:b/)?(.+)", text, re.MULTILINE)
        markup = boxed(display.diff("\n".join(seen)).html, f"change of {', '.join(files)[:200]}", "wide diff")
        all_of_it = (
            f"{display.count(len(files), 'file')}, {display.count(len(lines), 'line')}: {_file(run, 'change.diff')}"
        )
        if not self._diffs.take(markup):
            yield f"<p>The change had no room here ({all_of_it}).</p>"
        else:
            yield f"<p>The change ({all_of_it}):</p>{markup}"
            if len(lines) > len(seen):
                yield f"<p>… and {len(lines) - len(seen)} more lines.</p>"

    def _is_first(self, run: Run, text: str) -> bool:
        return self._first.get(text) == str(run["id"])


def _took(run: Run) -> str:
    """How long it took, after the time at which it began."""
    return f", {duration(run)}" if run.get("ended") else ""


def _mark(run: Run) -> str:
    return html.escape(display.MARKS.get(run["state"], cut(run["state"], _NAME)))


def _outcome(run: Run) -> str:
    outcome = run.get("outcome") or {}
    follows = f" Next: {display.linked(_short(outcome['next']))}" if outcome.get("next") else ""
    return display.linked(_sentence(run) or "Nothing was said.") + follows


def _again(entry: Entry) -> str:
    if not entry.again:
        return ""
    last = entry.again[-1]
    runs = "1 more run found" if len(entry.again) == 1 else f"{len(entry.again)} more runs found"
    words = f": {display.linked(_sentence(last))}" if settled(last) != _sentence(last) else ""
    return f"<p>{runs} the same, the last on {html.escape(moment(last['started']))}{words}{_record(last)}</p>"


def _sentence(run: Run) -> str:
    return _short((run.get("outcome") or {}).get("sentence") or "")


def _short(sentence: object) -> str:
    return cut(str(sentence), _SENTENCE, "… (all of it in the record)")


def _record(run: Run) -> str:
    return f" · {_file(run, REPORT, 'report')}" if run.get("ended") else f" · {_file(run, RUN, 'record')}"


def _file(run: Run, name: str, said: str = "") -> str:
    return f'<a href="./{quote(run["id"], safe="")}/{name}">{said or name}</a>'


def _effects(run: Run) -> Iterator[str]:
    effects = run.get("effects") or ()
    if effects:
        told = (f"{timeline.told(it)} {it.get('url') or ''}".strip() for it in effects)
        items = "".join(f"<li>{display.linked(it)}</li>" for it in told)
        yield f"<p>It changed:</p><ul>{items}</ul>"


def _checks(run: Run, steps: set[str]) -> Iterator[str]:
    """The passed checks by name, the others with what they found."""
    checks = [it for it in run.get("checks") or () if it.get("name") not in steps]
    checks = [it for it in checks if not str(it.get("name")).startswith(BEFORE_MERGE)]
    passed = [shown(it.get("name")) for it in checks if it.get("status") == "passed"]
    # What a step waits for is its outcome, and is told as that.
    others = [it for it in checks if it.get("status") != "passed" and it.get("detail") != _sentence(run)]
    if passed:
        yield f"<p>✓ Checked: {html.escape('; '.join(passed))}.</p>"
    if others and not is_preview(run):
        items = "".join(
            f"<li>{html.escape(display.MARKS.get(str(it.get('status')), str(it.get('status'))))}: "
            f"{html.escape(shown(it.get('name')))}. {display.linked(shown(it.get('detail')))}</li>"
            for it in others
        )
        yield f"<p>Not passed:</p><ul>{items}</ul>"


def _is_notable(verdict: Mapping[str, str]) -> bool:
    """Whether there is more to say of a golden file than that it was refreshed."""
    return any(verdict.get(name) for name in ("reasons", "notes", "accepted"))
