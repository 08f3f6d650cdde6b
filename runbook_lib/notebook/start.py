"""The board of the start page: the status of each bump, and the notebook to open next."""

import html
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from IPython.display import display as display_output
from IPython.display import update_display

from runbook_lib import display, notebooks
from runbook_lib.checks import Evidence
from runbook_lib.model import Outcome, Plan
from runbook_lib.notebook import cards, session
from runbook_lib.pins.bump import Bump
from runbook_lib.record import archive
from runbook_lib.record.archive import read_records
from runbook_lib.record.status import BumpStatus, is_preview, status, with_steps
from runbook_lib.system.clock import ago
from runbook_lib.world import commands
from runbook_lib.world.outside import World

#: The steps of a bump, as named on the board.
_NAMES = ("preflight", "GitHub pin", "GitLab pin", "pull request", "CI", "golden values", "broken tests", "in sync")
_TITLES = dict(zip(notebooks.STEPS, _NAMES, strict=True))
_BOARD = "runbook-board"
_STEPPER = "list-style:none;display:flex;flex-wrap:wrap;gap:.4rem 1.4rem;padding:0;margin:.4rem 0"
_CARD = "border:1px solid rgba(128,128,128,.4);border-radius:.4rem;padding:.4rem 1rem;margin:.6rem 0"


def show_board() -> None:
    """Show every bump in the archive, those in flight first."""
    display_output(board(), display_id=_BOARD)


def refresh_board() -> None:
    """Show the current board in place of the old one."""
    update_display(board(), display_id=_BOARD)


def board() -> display.View:
    """Return the board: bumps in flight, then those that are ready, then those that were only previewed."""
    bumps = _bumps()
    if not bumps:
        return display.note("No bump yet. Start one below.")
    in_flight = [bump for bump in bumps if bump.is_in_flight]
    ready = [bump for bump in bumps if bump.state == "ready"]
    previewed = [title(bump) for bump in bumps if bump.state == "previewed"]
    shown = display.note(f"{display.count(len(in_flight), 'bump')} in flight, {len(ready)} ready to merge or merged.")
    for bump in in_flight:
        shown += _card(bump)
    for bump in ready:
        shown += _line(bump)
    if previewed:
        shown += display.note(f"Only previewed, nothing changed: {', '.join(previewed)}.")
    return shown


@dataclass(frozen=True)
class BoardFacts:
    """The bumps, and the board; None in JupyterLab, where it is shown above the form and changes meanwhile."""

    bumps: tuple[BumpStatus, ...]
    board: display.View | None


def look(world: World, bump: Bump) -> BoardFacts:
    """Read the archive."""
    return BoardFacts(tuple(_bumps()), None if session.interactive() else board())


def plan(facts: BoardFacts, bump: Bump) -> Plan[World]:
    """Return the bumps in flight as the outcome."""
    rows = [
        {"bump": title(bump), "state": bump.state, "what": bump.sentence, "next": commands.text(bump.next)}
        for bump in facts.bumps
    ]
    in_flight = [f"{title(bump)} is {bump.state}" for bump in facts.bumps if bump.is_in_flight]
    sentence = f"In flight: {'; '.join(in_flight)}." if in_flight else "No bump is in flight."
    if facts.board is None:  # this text stays as it is while the board changes
        sentence = "The board above shows the bumps in flight."
    shown = (facts.board,) if facts.board else ()
    return Plan(Outcome(sentence), shown, evidence=Evidence(tables={"bumps": rows}), only_reads=True)


def _bumps() -> list[BumpStatus]:
    root = archive.default(session.notebook(notebooks.START))
    if not root.is_dir():
        return []
    return [bump for bump in status(root) if bump.is_started]


def title(bump: BumpStatus) -> str:
    """Return for example ``owner/name main dev 26.04-py3 (practice)``."""
    practice = " (practice)" if bump.practice else ""
    return f"{bump.repository} {bump.base} {bump.image_type} {bump.tag}{practice}"


def _card(bump: BumpStatus) -> display.View:
    # A preview counts only for a notebook that was never run to apply anything.
    runs = sorted(with_steps(read_records(Path(bump.folder)).readable), key=is_preview, reverse=True)
    states = {run["notebook"]["name"]: run["state"] for run in runs}
    labels = []
    items = []
    for name, label in _TITLES.items():
        state = states.get(name, "not run")
        mark = display.MARKS.get(state, state)
        labels.append(f"{label} {mark}")
        items.append(_stepper_item(name, label, mark, is_current=name == bump.step))
    state = display.MARKS.get(bump.state, bump.state)
    text = [title(bump), f"  {' → '.join(labels)}", f"  {bump.state}, {ago(bump.since)}: {bump.sentence}"]
    if bump.next:
        text.append(f"  next: {commands.text(bump.next)}")
    opened = [notebooks.BUMP]
    if bump.step != notebooks.BUMP:  # the step that blocks the bump
        opened.append(bump.step)
    paragraphs = [
        _heading(bump, state),
        display.linked(bump.sentence),
        f"Next: {_next_action(bump)}",
        _links(bump, opened),
    ]
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs if paragraph)
    stepper = f'<ol style="{_STEPPER}">{"".join(items)}</ol>'
    return display.View(f'<div style="{_CARD}">{stepper}{body}</div>', "\n".join(text))


def _line(bump: BumpStatus) -> display.View:
    """Show a bump that is ready to merge or merged."""
    text = f"{title(bump)}: {bump.state}, {ago(bump.since)}: {bump.sentence}"
    parts = [_heading(bump, bump.state), display.linked(bump.sentence), _links(bump, [notebooks.AFTER_MERGE])]
    return display.View(f"<p>{'<br>'.join(parts)}</p>", text)


def _heading(bump: BumpStatus, state: str) -> str:
    time = f'<time title="{html.escape(bump.since)}">{html.escape(ago(bump.since))}</time>'
    return f"<strong>{html.escape(title(bump))}</strong>: {html.escape(state)}, {time}"


def _links(bump: BumpStatus, opened: Iterable[str]) -> str:
    """Return links to these notebooks, and those of the bump."""
    links = [_notebook_link(name, f"Open {name}") for name in opened]
    return " · ".join(links + [_link(name, url) for name, url in _addresses(bump).items()])


def _stepper_item(notebook: str, label: str, mark: str, *, is_current: bool) -> str:
    """Return a step with its icon and its state in words, as a link to its notebook."""
    icon, _, word = mark.partition(" ")
    current = ' aria-current="step"' if is_current else ""
    weight = ";font-weight:bold" if is_current else ""
    text = f"{icon} {_notebook_link(notebook, label)}<br><small>{html.escape(word)}</small>"
    return f'<li style="margin:0{weight}"{current}>{text}</li>'


def _next_action(bump: BumpStatus) -> str:
    """Return the next action, in the words of the form."""
    press = f"choose {html.escape(bump.tag)} in the form below and press <em>Preview</em>, then <em>Apply</em>."
    if bump.state == "running":
        return "nothing; it is running, and the form below follows it."
    decisions = [card for card in cards.read(Path(bump.folder)) if not card.held]
    if decisions:
        return f"decide {display.count(len(decisions), 'card')} in the form below; then {press}"
    if "hold" in bump.blockers:
        return f"fix the cause, or start another bump; to lift the hold, decide its card again, and {press}"
    if bump.for_ci:
        return f"nothing until CI has ended; then {press}"
    if bump.state == "failed":
        return f"fix what failed; then {press}"
    return press


def _addresses(bump: BumpStatus) -> dict[str, str]:
    """Return the web addresses of a bump's links by name."""
    return {name: url for name, url in bump.links.items() if url.startswith(("https://", "http://"))}


def _link(name: str, url: str) -> str:
    return f'<a href="{html.escape(url)}">{html.escape(name)}</a>'


def _notebook_link(notebook: str, label: str) -> str:
    return f'<a href="{quote(notebook, safe="")}.ipynb">{html.escape(label)}</a>'
