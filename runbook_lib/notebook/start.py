"""The board of the start page: the status of each bump, and the notebook to open next."""

import html
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from IPython.display import display as display_output
from IPython.display import update_display

from runbook_lib import display, notebooks
from runbook_lib.model import Outcome, Plan
from runbook_lib.notebook import form_views, session
from runbook_lib.pins.bump import Bump
from runbook_lib.record import archive
from runbook_lib.record.status import BumpStatus, status
from runbook_lib.world.machine.clock import ago
from runbook_lib.world.ports import World

_BOARD = "runbook-board"


def show_board() -> None:
    """Show every bump in the archive, those in flight first."""
    display_output(board(_bumps()), display_id=_BOARD)


def refresh_board() -> None:
    """Show the current board in place of the old one."""
    update_display(board(_bumps()), display_id=_BOARD)


def board(bumps: Sequence[BumpStatus]) -> display.View:
    """Return the board: bumps in flight, then those that are ready, then those that were only previewed."""
    if not bumps:
        return display.note("No bump yet. Start one below.")
    in_flight = [bump for bump in bumps if bump.is_in_flight]
    ready = [bump for bump in bumps if bump.state == "ready"]
    previewed = [bump.title for bump in bumps if bump.state == "previewed"]
    shown = display.note(f"{display.count(len(in_flight), 'bump')} in flight, {len(ready)} ready to merge or merged.")
    for bump in (*in_flight, *ready):
        shown += _view(bump)
    if previewed:
        shown += display.note(f"Only previewed, nothing changed: {', '.join(previewed)}.")
    return shown


def look(world: World, bump: Bump) -> Sequence[BumpStatus] | None:
    """Return the bumps in the archive; None in JupyterLab, where the board above the form shows them."""
    return None if session.interactive() else _bumps()


def plan(facts: Sequence[BumpStatus] | None, bump: Bump) -> Plan[World]:
    """Return the board, with the bumps in flight as the outcome."""
    if facts is None:
        return Plan(Outcome("The board above shows the bumps in flight."), only_reads=True)
    in_flight = [f"{bump.title} is {bump.state}" for bump in facts if bump.is_in_flight]
    sentence = f"In flight: {'; '.join(in_flight)}." if in_flight else "No bump is in flight."
    return Plan(Outcome(sentence), (display.Drawing(lambda: board(facts)),), only_reads=True)


def _bumps() -> list[BumpStatus]:
    return [bump for bump in status(archive.default()) if bump.is_started]


def _view(bump: BumpStatus) -> display.View:
    """Show a bump: its state, what comes next while it is in flight, and links."""
    state, opened = display.mark(bump.state), [notebooks.AFTER_MERGE]
    name = display.View(f"<p><strong>{html.escape(bump.title)}</strong></p>", bump.title)
    shown = name + display.note(f"{state}, {ago(bump.since)}: {bump.sentence}".removesuffix(": "))
    if bump.is_in_flight:
        shown += display.note(f"Next: {_next_action(bump)}")
        opened = [notebooks.BUMP]
        if bump.step != notebooks.BUMP:  # the step that blocks the bump
            opened.append(bump.step)
    anchors = " · ".join(f'<a href="{quote(each, safe="")}.ipynb">Open {html.escape(each)}</a>' for each in opened)
    links = display.notes(f"{name}: {url}" for name, url in bump.links.items())
    wrapped = f'<div style="overflow-wrap:anywhere">{form_views.linked(links.html, Path(bump.record))}</div>'
    return shown + display.View(f"<p>{anchors}</p>{wrapped}", links.text)


def _next_action(bump: BumpStatus) -> str:
    """Return what comes next, in the words of the form below."""
    if bump.state == "running":
        return "Nothing. It is running, and the form below follows it."
    press = f"Choose {bump.tag} in the form below, and press Preview, then Apply."
    return form_views.in_form(bump.next, notebooks.BUMP, {}) or press
