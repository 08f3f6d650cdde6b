"""What a form shows of a run: what applying would do, how far it is, how it ended; as HTML that harms no page."""

import html
import os
from pathlib import Path
from urllib.parse import quote

from runbook_lib import display
from runbook_lib.records.run_view import Run

#: Colours that are legible on a light and on a dark page; a word says the same.
_RED, _AMBER, _GREEN = "#d1242f", "#9a6700", "#1a7f37"
_BOX = "border-left:.25rem solid {colour};padding:.3rem .8rem;margin:.3rem 0;background:rgba(128,128,128,.08)"
#: Lines of a diff that are shown at once; a longer one is folded.
_LONG = 120
#: Lines and names of files that are shown at all.
_MOST, _FILES = 2000, 20
_BELOW = "display:block;margin-left:9rem"
_STATES = {"done": _GREEN, "previewed": _GREEN, "waiting": _AMBER}


def error(sentence: str) -> str:
    """What went wrong, loud and in words.  Empty for nothing."""
    return _box(_RED, f"<strong>✗ {display.linked(sentence)}</strong>") if sentence else ""


def problem(sentence: str) -> str:
    """What is wrong with one field."""
    return f'<span style="{_BELOW};color:{_RED}">✗ {display.linked(sentence)}</span>' if sentence else ""


def hint(sentence: str) -> str:
    """What a person should know about one field."""
    return f'<span style="{_BELOW}">{display.linked(sentence)}</span>' if sentence else ""


def planned(run: Run, *, publish: bool, practice: bool) -> str:
    """What *Apply* will do, the files' changes line by line, and what each step found."""
    here = [str(it["sentence"]) for it in run.planned if not it["publish"]]
    away = [str(it["sentence"]) for it in run.planned if it["publish"]]
    parts = [_list("Apply will, in the checkout on this machine:", here)]
    if publish:
        where = "in the practice forge (nothing leaves this machine)" if practice else "and this leaves the machine"
        parts.append(_list(f"Apply will also, {where}:", away))
    else:
        parts.append(_list("Left out, as Publish is not chosen:", away))
    if not here and not away:
        parts.append(f"<p>Apply will change nothing now: {display.linked(run.sentence)}</p>")
    parts += [_diff(text) for text in run.diffs]
    parts += [folded(f"{it.notebook}: {it.sentence}", it.shown()) for it in run.steps if it.shown()]
    if not run.steps:
        parts.append(folded("What this preview looked at", run.shown(), opened=True))
    return "\n".join(parts)


def far(run: Run | None, total: int) -> str:
    """How far a run is, for who listens: said anew only when it is something new."""
    ended = sum(it.ended for it in run.steps) if run else 0
    return f"{ended} of {total} steps done" if total and ended <= total else "running"


def progress(run: Run | None, said: str, seconds: float, total: int = 0) -> str:
    """The steps so far, a bar if it is known how many there are, and the last lines that were printed."""
    steps = list(run.steps) if run else []
    ended = sum(it.ended for it in steps)
    bar = f'<progress max="{total}" value="{min(ended, total)}" aria-label="steps done"></progress> ' if total else ""
    lines = "".join(f"<li>{_state(it)} {html.escape(it.notebook)}: {display.linked(it.sentence)}</li>" for it in steps)
    # What each step came to stands in the list.
    listed = tuple(f"{mark}  {it.notebook}:" for it in steps for mark in display.MARKS.values())
    last = "\n".join([line for line in said.splitlines() if not line.startswith(listed)][-12:])
    told = f'<pre tabindex="0" style="max-height:12rem;overflow:auto">{html.escape(last)}</pre>' if last else ""
    return f'<p>{bar}{seconds:.0f} s</p><ul style="list-style:none;padding:0">{lines}</ul>{told}'


def result(run: Run, notebook: Path) -> str:
    """How a run ended: its sentence, what is next, links, each step, and where the record is."""
    colour = _STATES.get(run.state, _RED)
    next_ = "Decide what is listed above, then preview again." if run.decisions else run.next
    following = f"<p>Next: {display.linked(next_)}</p>" if next_ else ""
    links = "".join(f"<li>{html.escape(name)}: {display.linked(url)}</li>" for name, url in run.links.items())
    report = os.path.relpath(run.report, notebook.parent)
    page = (
        "" if report.startswith("../../") else f' <a href="{html.escape(quote(report))}" target="_blank">Its report</a>'
    )
    steps = display.table(
        {"step": it.notebook, "outcome": display.MARKS.get(it.state, it.state), "found": it.sentence}
        for it in {it.notebook: it for it in run.steps}.values()  # of several rounds of CI the last
    )
    tag = f" ({run.parameters['tag']})" if run.parameters.get("tag") else ""
    head = html.escape(f"{display.MARKS.get(run.state, run.state)}{tag}:")
    return _box(colour, f"<strong>{head}</strong> {display.linked(run.sentence)}") + "\n".join(
        [following, f"<ul>{links}</ul>" * bool(links), steps.html * bool(run.steps),
         f"<p>Record: <code>{html.escape(str(run.folder))}</code>{page}</p>"]
    )  # fmt: skip


def _state(run: Run) -> str:
    return f'<span style="color:{_STATES.get(run.state, "inherit")}">{html.escape(display.MARKS[run.state])}</span>'


def _box(colour: str, content: str) -> str:
    return f'<div style="{_BOX.format(colour=colour)}">{content}</div>'


def _list(title: str, sentences: list[str]) -> str:
    items = "".join(f"<li>{display.linked(sentence)}</li>" for sentence in sentences)
    return f"<p><strong>{html.escape(title)}</strong></p><ul>{items}</ul>" if sentences else ""


def _diff(text: str) -> str:
    lines, files = text.splitlines(keepends=True), _files(text)
    named = ", ".join(files[:_FILES]) + (f" and {len(files) - _FILES} more" if len(files) > _FILES else "")
    cut = f"<p>{len(lines) - _MOST} more lines stand in change.diff of the preview's record.</p>"
    shown = display.diff("".join(lines[:_MOST])).html + cut * (len(lines) > _MOST)
    return folded(f"Changes: {named}", shown, opened=len(lines) <= _LONG)


def _files(diff: str) -> list[str]:
    names = [line[4:].partition("\t")[0].removeprefix("b/") for line in diff.splitlines() if line.startswith("+++ ")]
    return list(dict.fromkeys(names))


def folded(summary: str, content: str, *, opened: bool = False) -> str:
    """Something long behind one line; empty for no content."""
    if not content:
        return ""
    return f"<details{' open' * opened}><summary>{html.escape(summary)}</summary>\n{content}</details>"
