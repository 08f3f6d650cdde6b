"""``story.html`` of a bump: what moved, who decided what, and what each run did, in order; fit for a change ticket.

It is made from the records alone, loads nothing, holds no script, prints well, and stays below a megabyte: what was too
much for it is named, and stands in the records.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from runbook_lib import display
from runbook_lib.records import timeline
from runbook_lib.records.attachments import rows
from runbook_lib.records.pages.html import Room, cut, facts, listing, moment, page, shown, span, to_bytes
from runbook_lib.records.pages.story_runs import happened
from runbook_lib.records.statement import RUN, when
from runbook_lib.records.status import BEFORE_MERGE, BumpStatus, Run, is_preview

Row = Mapping[str, object]

#: Bytes of the page, and of the facts and tables above what happened.
_LARGEST, _ABOVE = 995_000, 120_000
#: The newest decisions, and values of one fact, that are shown; the rows of a table, fewer where they are long.
_MOST, _ROWS = 50, (200, 50, 10)
#: Characters of a sentence, of a value, and of a part of the title.
_SENTENCE, _VALUE, _NAME = 2_000, 400, 100
_ALL_OF_IT = "… (all of it in the record)"
_STYLE = """
.standing { border: 1px solid var(--line); border-left: .3rem solid var(--muted); border-radius: .3rem;
  padding: .6rem 1rem; margin: 1rem 0; overflow-wrap: anywhere; }
.standing p { margin: .3rem 0; }
section.run { border-top: 1px solid var(--line); margin-top: 1.5rem; }
section.step { border-left: .2rem solid var(--line); padding-left: 1rem; margin: 1rem 0; }
section.step h4 { margin: 0; }
section p, section ul { margin: .3rem 0; overflow-wrap: anywhere; }
.diff td { opacity: 1 !important; font-size: .8125rem; line-height: 1.35; padding-top: 0; padding-bottom: 0; }
figure { margin: .6rem 0; }
figcaption { font-size: .875rem; color: var(--muted); }
@media print { h2.own { break-before: page; } section.step { border-left: 0; padding-left: 0; } }
"""


def render(folder: Path, status: BumpStatus, runs: Sequence[Run], made_of: str = "") -> str:
    """The page of the bump in that folder, from its records, oldest first; all of it is redacted already.

    ``made_of`` marks the state of the records.
    """
    pins = _pins(folder, runs)
    old = cut(", ".join(dict.fromkeys(row["old"].rpartition(":")[2] for row in pins)), _NAME)
    named = (status.tag or "no tag", status.image_type, status.base, status.state)
    tag, image_type, base, state = (cut(it, _NAME) for it in named)
    title = f"Base image {f'{old} → ' * bool(old and status.tag)}{tag} ({image_type}) on {base}"
    room = Room(_ABOVE)
    above = [
        f"<h1>{html.escape(title)}</h1>",
        _standing(status, runs),
        "<h2>The bump</h2>",
        *_described(_facts(folder, status, runs), room),
        *_moves(folder, runs, pins, room),
        *_decisions(runs, room),
        *_before_merge(runs, room),
        '<h2 class="own">What happened</h2>',
    ]

    def whole(parts: Sequence[str]) -> str:
        return page(f"{title}: {state}", "\n".join(parts), style=_STYLE, made_of=made_of)

    return whole([*above, *happened(folder, runs, _LARGEST - len(to_bytes(whole(above))))])


def _standing(status: BumpStatus, runs: Sequence[Run]) -> str:
    practice = "<p><strong>Practice: nothing here is real, and nothing left the machine.</strong></p>"
    sentence, following, warning = (
        display.linked(cut(it, _SENTENCE, _ALL_OF_IT)) for it in (status.sentence, status.next, status.warning)
    )
    lines = [f"<p><strong>{html.escape(display.MARKS.get(status.state, cut(status.state, _NAME)))}</strong>"
             f" since {html.escape(moment(status.since))}: {sentence}</p>"]  # fmt: skip
    if following:
        lines.append(f"<p><strong>Next</strong>: {following}</p>")
    if warning:
        lines.append(f"<p><strong>Warning</strong>: {warning}</p>")
    ends = html.escape(moment(max((str(run.get("ended") or run["started"]) for run in runs), default="")))
    lines.append(f'<p class="muted">As of {ends}, from {display.count(len(runs), "record")}.</p>')
    return f'{practice * status.practice}<div class="standing">{"".join(lines)}</div>'


def _described(values: Mapping[str, object], room: Room) -> Iterator[str]:
    short = {
        cut(name, _NAME): [cut(shown(it), _VALUE) for it in (value if isinstance(value, list) else [value])][-_MOST:]
        for name, value in values.items()
        if value
    }
    fitting = {name: value for name, value in short.items() if room.take(facts({name: value}))}
    yield facts(fitting)
    if left := len(short) - len(fitting):
        yield f"<p>{display.count(left, 'more fact')} had no room here: see {RUN} of the records.</p>"


def _table(rows: Sequence[Row], columns: Sequence[str], named: str, room: Room, place: str) -> Iterator[str]:
    """As many rows as there is room for; ``place`` is where the others are."""
    short = [{name: cut(shown(row.get(name)), _VALUE if name != "url" else _SENTENCE) for name in (*columns, "url")}
             for row in rows[: _ROWS[0]]]  # fmt: skip
    for most in _ROWS:
        if room.take(markup := listing(short[:most], columns, named=named)):
            yield markup
            break
    else:
        most = 0
    if left := max(len(rows) - most, 0):
        yield f"<p>… and {left} more, which had no room here: see {place}.</p>"


def _facts(folder: Path, status: BumpStatus, runs: Sequence[Run]) -> dict[str, object]:
    inputs: dict[str, object] = {}
    for run in runs:
        if not is_preview(run) or not inputs:
            inputs |= {name: value for name, value in (run.get("inputs") or {}).items() if value}
    platforms = _newest(folder, runs, "platforms.csv")
    own = [run for run in runs if run.get("parent") is None and run.get("ended")]
    libraries = [run["library"] for run in runs if run.get("library")]
    return {
        "repository": f"{status.repository}, branch {status.base}",
        "image": f"{status.tag} ({status.image_type}) {inputs.get('digest', '')}".strip() if status.tag else "",
        "platforms": [f"{row.get('platform')} {row.get('digest')}" for row in platforms],
        **_links(status, runs),
        "base commit": inputs.get("base_commit"),
        "head commit": inputs.get("head_commit"),
        "merge commit": inputs.get("merge_commit"),
        "people": list(dict.fromkeys(timeline.person(run) for run in runs)),
        "began": moment(status.started),
        "last run ended": moment(status.last),
        "from first to last": span(status.started, status.last) if status.last else "",
        "time in runs": _sum(own),
        "runbook": list(dict.fromkeys(f"{it.get('version')} {it.get('commit') or ''}".strip() for it in libraries)),
    }


def _links(status: BumpStatus, runs: Sequence[Run]) -> dict[str, object]:
    """Each name with all addresses that it had: the bump of several CI runs."""
    found: dict[str, list[str]] = {name: [] for name in status.links}
    for run in sorted(runs, key=lambda run: str(run.get("ended") or run["started"])):
        for name, url in (run.get("links") or {}).items():
            if str(url) not in found.setdefault(str(name), []):
                found[str(name)].append(str(url))
    return {name: urls or [status.links[name]] for name, urls in found.items()}


def _sum(runs: Iterable[Run]) -> str:
    seconds = sum((when(run["ended"]) - when(run["started"])).total_seconds() for run in runs)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _moves(folder: Path, runs: Sequence[Run], pins: Sequence[Mapping[str, str]], room: Room) -> Iterator[str]:
    if pins:
        yield "<h2>What moves</h2>"
        rows = [{"pin": f"{it['path']}:{it['line']}", "where": it["selector"], "from": it["old"], "to": it["new"]}
                for it in pins]  # fmt: skip
        yield from _table(rows, ("pin", "where", "from", "to"), "pins that move", room, "changes.csv of the records")
    merged: dict[tuple[str, ...], list[str]] = {}
    for row in _newest(folder, runs, "image-changes.csv"):
        told = tuple(row.get(name, "") for name in ("component", "old", "new", "change"))
        merged.setdefault(told, []).append(row.get("platform", ""))
    changed = [
        {"component": it[0], "from": it[1], "to": it[2], "change": it[3], "platforms": ", ".join(platforms)}
        for it, platforms in merged.items()
        if it[3] != "same"
    ]
    if changed:
        yield "<h2>What the new image changes</h2>"
        columns = ("component", "from", "to", "change", "platforms")
        yield from _table(changed, columns, "what the new image changes", room, "image-changes.csv of the records")


def _pins(folder: Path, runs: Sequence[Run]) -> list[dict[str, str]]:
    found = {
        (row["path"], row["selector"]): row
        for run in runs
        for row in rows(folder / run["id"] / "changes.csv")
        if row.keys() >= {"path", "line", "selector", "old", "new"}
    }
    return list(found.values())


def _decisions(runs: Sequence[Run], room: Room) -> Iterator[str]:
    made = timeline.decisions(runs)
    if made:
        yield "<h2>What people decided</h2>"
        rows = [{"decision": it.what, "url": it.url, "reason": it.reason, "when (UTC)": moment(it.at)[:19],
                 "by": it.by} for it in made[-_MOST:]]  # fmt: skip
        yield from _table(rows, ("decision", "reason", "when (UTC)", "by"), "decisions", room, "the records")
        if len(made) > _MOST:
            yield f"<p>… and {len(made) - _MOST} older ones, which the records have.</p>"


def _before_merge(runs: Sequence[Run], room: Room) -> Iterator[str]:
    """What the newest run of the whole runbook looked up about the merge."""
    for run in reversed(runs):
        checks = [it for it in run.get("checks") or () if str(it.get("name")).startswith(BEFORE_MERGE)]
        if checks:
            began = html.escape(moment(run["started"]))
            yield f"<h2>Before the merge</h2><p>As the run that began at {began} found it.</p>"
            rows = [{"needed": str(it["name"]).removeprefix(BEFORE_MERGE), "found": it.get("detail"),
                     "outcome": "✓ holds" if it.get("status") == "passed" else "… missing"}
                    for it in checks]  # fmt: skip
            named = "what must hold before the merge"
            yield from _table(rows, ("needed", "outcome", "found"), named, room, f"{RUN} of that run's record")
            return


def _newest(folder: Path, runs: Sequence[Run], name: str) -> list[dict[str, str]]:
    """The table of that name which was kept last."""
    return next(filter(None, (rows(folder / run["id"] / name) for run in reversed(runs))), [])
