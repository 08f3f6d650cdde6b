"""``story.html`` of a bump: what moved, who decided what, and what each run did, in order; fit for a change ticket.

It is made from the records alone, loads nothing, holds no script, prints well, and stays below a megabyte: what was too
much for it is named, and stands in the records.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from runbook_lib import timeline, views
from runbook_lib.kept import rows
from runbook_lib.page import facts, listing, moment, page, span
from runbook_lib.standing import BEFORE_MERGE, BumpStatus, Run, is_preview
from runbook_lib.statement import when
from runbook_lib.story_runs import happened

#: The newest decisions, and addresses of one name, that are shown.
_MOST = 50
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


def render(folder: Path, status: BumpStatus, runs: Sequence[Run]) -> str:
    """The page of the bump in that folder, from its records, oldest first; all of it is redacted already."""
    pins = _pins(folder, runs)
    old = ", ".join(dict.fromkeys(row["old"].rpartition(":")[2] for row in pins))
    title = f"{old} → {status.tag}" if old and status.tag else status.tag or "no tag"
    title = f"Base image {title} ({status.image_type}) on {status.base}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        _standing(status, runs),
        "<h2>The bump</h2>",
        facts(_facts(folder, status, runs)),
        *_moves(folder, runs, pins),
        *_decisions(runs),
        *_before_merge(runs),
        '<h2 class="own">What happened</h2>',
        *happened(folder, runs),
    ]
    return page(f"{title}: {status.state}", "\n".join(parts), style=_STYLE)


def _standing(status: BumpStatus, runs: Sequence[Run]) -> str:
    practice = "<p><strong>Practice: nothing here is real, and nothing left the machine.</strong></p>"
    lines = [f"<p><strong>{html.escape(views.MARKS.get(status.state, status.state))}</strong>"
             f" since {html.escape(moment(status.since))}: {views.linked(status.sentence)}</p>"]  # fmt: skip
    if status.next:
        lines.append(f"<p><strong>Next</strong>: {views.linked(status.next)}</p>")
    if status.warning:
        lines.append(f"<p><strong>Warning</strong>: {views.linked(status.warning)}</p>")
    ends = max((str(run.get("ended") or run["started"]) for run in runs), default="")
    lines.append(f'<p class="muted">As of {html.escape(moment(ends))}, from {views.count(len(runs), "record")}.</p>')
    return f'{practice * status.practice}<div class="standing">{"".join(lines)}</div>'


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
    return {name: urls[-_MOST:] or [status.links[name]] for name, urls in found.items()}


def _sum(runs: Iterable[Run]) -> str:
    seconds = sum((when(run["ended"]) - when(run["started"])).total_seconds() for run in runs)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _moves(folder: Path, runs: Sequence[Run], pins: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if pins:
        yield "<h2>What moves</h2>"
        rows = [{"pin": f"{it['path']}:{it['line']}", "where": it["selector"], "from": it["old"], "to": it["new"]}
                for it in pins]  # fmt: skip
        yield listing(rows, ("pin", "where", "from", "to"), named="pins that move")
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
        yield listing(changed, ("component", "from", "to", "change", "platforms"), named="what the new image changes")


def _pins(folder: Path, runs: Sequence[Run]) -> list[dict[str, str]]:
    found = {
        (row["path"], row["selector"]): row
        for run in runs
        for row in rows(folder / run["id"] / "changes.csv")
        if row.keys() >= {"path", "line", "selector", "old", "new"}
    }
    return list(found.values())


def _decisions(runs: Sequence[Run]) -> Iterator[str]:
    made = timeline.decisions(runs)
    if made:
        yield "<h2>What people decided</h2>"
        rows = [{"decision": it.what, "url": it.url, "reason": it.reason, "when (UTC)": moment(it.at)[:19],
                 "by": it.by} for it in made[-_MOST:]]  # fmt: skip
        yield listing(rows, ("decision", "reason", "when (UTC)", "by"), named="decisions")
        if len(made) > _MOST:
            yield f"<p>… and {len(made) - _MOST} older ones, which the records have.</p>"


def _before_merge(runs: Sequence[Run]) -> Iterator[str]:
    """What the newest run of the whole runbook looked up about the merge."""
    for run in reversed(runs):
        checks = [it for it in run.get("checks") or () if str(it.get("name")).startswith(BEFORE_MERGE)]
        if checks:
            began = html.escape(moment(run["started"]))
            yield f"<h2>Before the merge</h2><p>As the run that began at {began} found it.</p>"
            rows = [{"needed": str(it["name"]).removeprefix(BEFORE_MERGE), "found": it.get("detail"),
                     "outcome": "✓ holds" if it.get("status") == "passed" else "… missing"}
                    for it in checks]  # fmt: skip
            yield listing(rows, ("needed", "outcome", "found"), named="what must hold before the merge")
            return


def _newest(folder: Path, runs: Sequence[Run], name: str) -> list[dict[str, str]]:
    """The table of that name which was kept last."""
    return next(filter(None, (rows(folder / run["id"] / name) for run in reversed(runs))), [])
