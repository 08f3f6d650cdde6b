"""The board of the start page: the status of each bump, and the notebook to open next."""

import html
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
_READY = "ready"
_CARD = "border:1px solid rgba(128,128,128,.4);border-radius:.4rem;padding:.4rem 1rem;margin:.6rem 0"


def show(audit: str) -> View:
    """Show every bump of the archive, those in flight first; ``audit`` is the notebook's parameter."""
    bumps = _bumps(audit)
    if not bumps:
        return display.note(f"No bump yet in {_root(audit)}. Start one below.")
    in_flight = [bump for bump in bumps if bump.state != _READY]
    ready = [bump for bump in bumps if bump.state == _READY]
    shown = display.note(f"{display.count(len(in_flight), 'bump')} in flight, {len(ready)} ready to merge or merged.")
    for bump in in_flight:
        shown += _card(bump)
    if ready:
        shown += display.table(
            {"bump": title(bump), "state": bump.state, "since": bump.since, "what": bump.sentence} for bump in ready
        )
    return shown


def conclude(step: StepRecord, audit: str) -> None:
    """Record the board."""
    rows = []
    in_flight = []
    for bump in _bumps(audit):
        rows.append({"bump": title(bump), "state": bump.state, "what": bump.sentence, "next": bump.next})
        if bump.state != _READY:
            in_flight.append(f"{title(bump)} is {bump.state}")
    step.table("bumps", rows)
    step.done(f"In flight: {'; '.join(in_flight)}." if in_flight else "No bump is in flight.")


def _bumps(audit: str) -> list[BumpStatus]:
    root = _root(audit)
    if not root.is_dir():
        return []
    return [bump for bump in archive.status(root) if bump.is_started]


def _root(audit: str) -> Path:
    if audit:
        return Path(audit).expanduser().absolute()
    return archive.default(session.notebook(notebooks.START))


def title(bump: BumpStatus) -> str:
    """Return for example ``owner/name main dev 26.04-py3 (practice)``."""
    practice = " (practice)" if bump.practice else ""
    return f"{bump.repository} {bump.base} {bump.image_type} {bump.tag}{practice}"


def _card(bump: BumpStatus) -> View:
    newest = run_view.newest(Path(bump.story).parent)
    steps = []
    for name, label in _TITLES.items():
        state = newest[name].state if name in newest else "not run"
        steps.append(f"{label} {display.MARKS.get(state, state)}")
    line = " → ".join(steps)
    text = [title(bump), f"  {line}", f"  {bump.state} since {bump.since}: {bump.sentence}"]
    if bump.next:
        text.append(f"  next: {bump.next}")
    links = [_notebook_link(notebooks.BUMP, "Continue: open bump")]
    if bump.step != notebooks.BUMP:  # the step that blocks the bump
        links.append(_notebook_link(bump.step, f"open {bump.step}"))
    links += [link(name, url) for name, url in bump.links.items()]
    heading, state = html.escape(title(bump)), html.escape(display.MARKS.get(bump.state, bump.state))
    paragraphs = [
        f"<strong>{heading}</strong>: {state}, since <time>{html.escape(bump.since)}</time>",
        html.escape(line),
        display.linked(bump.sentence),
        " · ".join(links),
    ]
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return View(f'<div style="{_CARD}">{body}</div>', "\n".join(text))


def _notebook_link(notebook: str, label: str) -> str:
    return f'<a href="{quote(notebook, safe="")}.ipynb">{html.escape(label)}</a>'
