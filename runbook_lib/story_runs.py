"""What happened in a bump, run by run, as HTML: effects, checks, tables, plots and changes of files."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from runbook_lib import kept, timeline, views
from runbook_lib.page import Room, boxed, duration, listing, moment, shown
from runbook_lib.standing import Run, is_preview, settled
from runbook_lib.statement import EXECUTED, REPORT, RUN
from runbook_lib.timeline import Entry

#: What the checks of the whole runbook are called that say whether the bump may be merged.
BEFORE_MERGE = "before the merge: "
#: Bytes of all runs in full, of one line for each of the others, of the plots, and of the changes of files.
_WHOLE, _HEADS, _PLOTS, _DIFFS = 750_000, 60_000, 350_000, 150_000
#: Lines of a change that is shown whole, and of the beginning of a longer one.
_SHORT_CHANGE, _BEGINNING = 120, 40
#: Rows of one table, and characters of one cell.
_ROWS, _LONGEST = 40, 400
_FAILURES = ("job", "class", "cause", "on the base branch")
_VERDICTS = ("file", "verdict", "reasons", "notes", "accepted")


def happened(folder: Path, runs: Sequence[Run]) -> list[str]:
    """The runs, oldest first, below a megabyte: where that is too little, the newest are told in full."""
    teller = _Teller(folder)
    told = [teller.entry(number, entry) for number, entry in enumerate(timeline.entries(runs), 1)]
    whole, heads = Room(_WHOLE), Room(_HEADS)
    found, untold = [], 0
    for full, short in reversed(told):
        if whole.take(full):
            found.append(full)
        elif heads.take(short):
            found.append(short)
        else:
            untold += 1
    if untold:
        runs_told = f"{views.count(untold, 'older run')} had no room here: the records beside this page have all."
        found.append(f'<p class="muted">{runs_told}</p>')
    return found[::-1]


class _Teller:
    """Tells runs, and knows what it has told: a warning, a plot or a change is shown once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plots, self._diffs = Room(_PLOTS), Room(_DIFFS)
        self._told: set[str] = set()

    def entry(self, number: int, entry: Entry) -> tuple[str, str]:
        """One run that a person started, with its steps, and without them."""
        top = entry.run
        name = f"{number}. {top['notebook']['name']}{', as a preview' * is_preview(top)}"
        who = html.escape(f"{timeline.person(top)}, {moment(top['started'])}")
        head = f'<h3>{html.escape(name)}</h3>\n<p class="muted">{who}{_took(top)}{_record(top)}</p>'
        end = f"<p><strong>{_mark(top)}</strong>: {_outcome(top)}</p>{_again(entry)}"
        steps = "".join(map(self._step, entry.steps))
        if entry.as_before:
            steps += f"<p>As before: {html.escape(', '.join(entry.as_before))}.</p>"
        details = self._details(top, {*entry.as_before, *(step["notebook"]["name"] for step in entry.steps)})
        left = '<p class="muted">There was no room for more of it here.</p>'
        return (
            f'<section class="run">{head}\n{steps}{details}{end}</section>',
            f'<section class="run">{head}{end}{left}</section>',
        )

    def _step(self, run: Run) -> str:
        name = html.escape(run["notebook"]["name"])
        return (
            f'<section class="step"><h4>{name}: {_mark(run)}</h4>\n'
            f'<p class="muted">{moment(run["started"])[11:]}{_took(run)}{_record(run)}</p>\n'
            f"<p>{views.linked(_sentence(run))}</p>{self._details(run, set())}</section>\n"
        )

    def _details(self, run: Run, steps: set[str]) -> str:
        """What a run did and found by itself: its steps, of these names, are told elsewhere."""
        place = self._folder / run["id"]
        parts = [
            *_effects(run),
            *_checks(run, steps),
            *self._warnings(run),
            *self._table("failed jobs", _FAILURES, kept.rows(place / "failures.csv")),
            *self._table("golden files to look at", _VERDICTS, filter(_is_notable, kept.rows(place / "verdicts.csv"))),
            *self._images(run),
            *self._diff(run),
        ]
        return "\n".join(parts)

    def _warnings(self, run: Run) -> Iterator[str]:
        new = [it for it in map(str, run.get("warnings") or ()) if self._is_new(it)]
        if new:
            yield f"<p>Warned:</p><ul>{''.join(f'<li>{views.linked(it)}</li>' for it in new)}</ul>"

    def _table(self, named: str, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
        found = list(rows)
        short = [{name: _cut(row.get(name, "")) for name in (*columns, "url")} for row in found[:_ROWS]]
        used = [name for name in columns if any(row[name] for row in short)]
        if short and self._is_new(table := listing(short, used, named=named)):
            yield f"<p>{named.capitalize()}:</p>{table}"
            if len(found) > _ROWS:
                yield f"<p>… and {len(found) - _ROWS} more, which the record's report has.</p>"

    def _images(self, run: Run) -> Iterator[str]:
        left = 0
        for kind, data, told in kept.images(self._folder / run["id"] / EXECUTED):
            if not self._is_new(data):
                continue
            image = f'<img alt="{html.escape(told)}" src="data:{kind};base64,{data}">'
            if self._plots.take(image):
                yield f"<figure>{image}<figcaption>{html.escape(told)}</figcaption></figure>"
            else:
                left += 1
        if left:
            yield f"<p>{views.count(left, 'plot')} had no room here: see {_file(run, EXECUTED)}.</p>"

    def _diff(self, run: Run) -> Iterator[str]:
        text = kept.text(self._folder / run["id"] / "change.diff")
        if not text or not self._is_new(text):
            return
        lines = text.removesuffix("\n").split("\n")
        seen = lines if len(lines) <= _SHORT_CHANGE else lines[:_BEGINNING]
        files = re.findall(r"^\+\+\+ (?:b/)?(.+)", text, re.MULTILINE)
        markup = boxed(views.diff("\n".join(seen)).html, f"change of {', '.join(files)[:200]}", "wide diff")
        all_of_it = f"{views.count(len(files), 'file')}, {views.count(len(lines), 'line')}: {_file(run, 'change.diff')}"
        if not self._diffs.take(markup):
            yield f"<p>The change had no room here ({all_of_it}).</p>"
        else:
            yield f"<p>The change ({all_of_it}):</p>{markup}"
            if len(lines) > len(seen):
                yield f"<p>… and {len(lines) - len(seen)} more lines.</p>"

    def _is_new(self, text: str) -> bool:
        new = text not in self._told
        self._told.add(text)
        return new


def _took(run: Run) -> str:
    """How long it took, after the time at which it began."""
    return f", {duration(run)}" if run.get("ended") else ""


def _mark(run: Run) -> str:
    return html.escape(views.MARKS.get(str(run["state"]), str(run["state"])))


def _outcome(run: Run) -> str:
    outcome = run.get("outcome") or {}
    follows = f" Next: {views.linked(str(outcome['next']))}" if outcome.get("next") else ""
    return views.linked(str(outcome.get("sentence") or "Nothing was said.")) + follows


def _again(entry: Entry) -> str:
    if not entry.again:
        return ""
    last = entry.again[-1]
    runs = "1 more run found" if len(entry.again) == 1 else f"{len(entry.again)} more runs found"
    words = f": {views.linked(_sentence(last))}" if settled(last) != _sentence(last) else ""
    return f"<p>{runs} the same, the last on {moment(last['started'])}{words}{_record(last)}</p>"


def _sentence(run: Run) -> str:
    return str((run.get("outcome") or {}).get("sentence", ""))


def _record(run: Run) -> str:
    return f" · {_file(run, REPORT, 'report')}" if run.get("ended") else f" · {_file(run, RUN, 'record')}"


def _file(run: Run, name: str, said: str = "") -> str:
    return f'<a href="{html.escape(quote(run["id"]))}/{name}">{said or name}</a>'


def _effects(run: Run) -> Iterator[str]:
    effects = run.get("effects") or ()
    if effects:
        told = (f"{timeline.told(it)} {it.get('url') or ''}".strip() for it in effects)
        items = "".join(f"<li>{views.linked(it)}</li>" for it in told)
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
            f"<li>{html.escape(views.MARKS.get(str(it.get('status')), str(it.get('status'))))}: "
            f"{html.escape(shown(it.get('name')))}. {views.linked(shown(it.get('detail')))}</li>"
            for it in others
        )
        yield f"<p>Not passed:</p><ul>{items}</ul>"


def _is_notable(verdict: Mapping[str, str]) -> bool:
    """Whether a judged golden file is more than refreshed."""
    return any(verdict.get(name) for name in ("reasons", "notes", "accepted")) or verdict.get("verdict") != "refresh"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
