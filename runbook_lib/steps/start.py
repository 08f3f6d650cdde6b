"""The start page's board: where each bump stands, what it waits for, and what to open next."""

import html
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from runbook_lib import display, notebooks
from runbook_lib.display import View
from runbook_lib.records import archive, run_view
from runbook_lib.records.pages.html import link
from runbook_lib.records.status import BumpStatus
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import session

#: The steps of a bump as the board names them.
_TITLES = dict(
    zip(
        notebooks.STEPS,
        ("preflight", "GitHub pin", "GitLab pin", "pull request", "CI", "golden values", "broken tests", "in sync"),
        strict=True,
    )
)
_OVER = ("ready",)
_CARD = "border:1px solid rgba(128,128,128,.4);border-radius:.4rem;padding:.4rem 1rem;margin:.6rem 0"


def show(audit: str) -> View:
    """Every bump of the archive, those in flight first; ``audit`` is the parameter of that name."""
    found = _bumps(audit)
    if not found:
        return display.note(f"No bump yet in {_root(audit)}. Start one below.")
    flying = [it for it in found if it.state not in _OVER]
    over = [it for it in found if it.state in _OVER]
    shown = [_card(it) for it in flying]
    told = display.note(f"{display.count(len(flying), 'bump')} in flight, {len(over)} ready to merge or merged.")
    rows = ({"bump": title(it), "state": it.state, "since": it.since, "what": it.sentence} for it in over)
    return sum(shown, told) + (display.table(rows) if over else display.View("", ""))


def conclude(step: StepRecord, audit: str) -> None:
    """Tell the record what the board said."""
    found = _bumps(audit)
    step.table("bumps", [{"bump": title(it), "state": it.state, "what": it.sentence, "next": it.next} for it in found])
    flying = [f"{title(it)} is {it.state}" for it in found if it.state not in _OVER]
    step.done(f"In flight: {'; '.join(flying)}." if flying else "No bump is in flight.")


def _bumps(audit: str) -> list[BumpStatus]:
    root = _root(audit)
    return [it for it in archive.status(root) if it.is_started] if root.is_dir() else []


def _root(audit: str) -> Path:
    return Path(audit).expanduser().absolute() if audit else archive.default(session.notebook(notebooks.START))


def title(bump: BumpStatus) -> str:
    """``owner/name main dev 26.04-py3``, and that it is practice."""
    return f"{bump.repository} {bump.base} {bump.image_type} {bump.tag}{' (practice)' * bump.practice}"


def _card(bump: BumpStatus) -> View:
    newest = run_view.newest(Path(bump.story).parent)
    states = ((label, newest[name].state if name in newest else "not run") for name, label in _TITLES.items())
    line = " → ".join(f"{label} {display.MARKS.get(state, state)}" for label, state in states)
    text = [title(bump), f"  {line}", f"  {bump.state} since {bump.since}: {bump.sentence}"]
    text += [f"  next: {bump.next}"] * bool(bump.next)
    links = [f'<a href="{quote(name, safe="")}.ipynb">{html.escape(said)}</a>' for name, said in _opened(bump)]
    links += [link(name, url) for name, url in bump.links.items()]
    shown = [
        f"<strong>{html.escape(title(bump))}</strong>: {html.escape(display.MARKS.get(bump.state, bump.state))}, since "
        f"<time>{html.escape(bump.since)}</time>",
        html.escape(line),
        display.linked(bump.sentence),
        " · ".join(links),
    ]
    return View(f'<div style="{_CARD}">{"".join(f"<p>{it}</p>" for it in shown)}</div>', "\n".join(text))


def _opened(bump: BumpStatus) -> Sequence[tuple[str, str]]:
    """The notebooks to open next: the whole bump goes on by itself; the step that holds it up shows why."""
    held = [(bump.step, f"look at {bump.step}")] if bump.step != notebooks.BUMP else []
    return [(notebooks.BUMP, "Go on: open bump"), *held]
