"""``runbook status``, ``runbook review`` and ``runbook audit``: the bumps in the archive, and its verification.

The decisions of a bump are shown card by card, as the form shows them.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from runbook_lib import display, notebooks
from runbook_lib.cli.command import Answer, command
from runbook_lib.errors import RunbookError
from runbook_lib.notebook import cards
from runbook_lib.notebook.cards import Card
from runbook_lib.record import archive, run_file, store
from runbook_lib.record import status as records
from runbook_lib.record.run_file import REPORT
from runbook_lib.record.status import BumpStatus
from runbook_lib.world import commands
from runbook_lib.world.machine.clock import ago
from runbook_lib.world.machine.files import read_named


@command("status")
def status() -> Answer:
    """Show the status of each bump in the archive ($RUNBOOK_AUDIT, else audit/)."""
    root = archive.default()
    bumps, warnings = records.status(root), list(records.warnings(root))
    shown = [asdict(bump) | {"next": commands.text(bump.next)} for bump in bumps]
    return Answer(0, {"bumps": shown, "warnings": warnings}, _status_lines(root, bumps), warnings)


def _status_lines(root: Path, bumps: Sequence[BumpStatus]) -> Iterator[str]:
    started = [bump for bump in bumps if bump.is_started]
    if not started:
        yield f"There is no bump in {root}. Start one: {commands.papermill(notebooks.BUMP, {'tag': '26.04-py3'})}"
    for bump in started:
        yield from _lines(bump)
    if others := [bump for bump in bumps if not bump.is_started]:
        yield "Runs that changed nothing:"
    for bump in others:
        yield f"  {bump.title}: {bump.state}. {bump.sentence}".rstrip()


def _lines(bump: BumpStatus) -> Iterator[str]:
    yield f"{bump.title}: {bump.state}"
    yield f"  {bump.step}: {bump.sentence or 'no result yet'}"
    yield f"  since {run_file.parse_time(bump.since):%Y-%m-%d %H:%M} UTC ({ago(bump.since)})"
    if bump.next:
        yield f"  next: {commands.text(bump.next)}"
    yield from (f"  {name}: {url}" for name, url in bump.links.items())
    yield f"  record: {bump.record}"
    if (report := Path(bump.record) / REPORT).is_file():
        yield f"  report: {report}"


@command("review 26.05-py3")
@click.argument("tag", default="")
@click.pass_obj
def review(as_json: bool, tag: str) -> Answer | int:
    """Show each decision that a bump waits for, and write the answers into its file of decisions.

    TAG is the tag of the bump (default: the newest bump that waits).  What was decided is written also after q, Ctrl-C
    and the end of the input.  With --json only list the decisions.  Exit status: 0 all decided, 1 some are open.
    """
    bump = _bump(archive.default(), tag)
    folder = Path(bump.folder)
    if not cards.read(folder) and not as_json:
        print("Nothing is left to decide.")
        return 0
    given = _given(folder)
    file = Path(os.path.expanduser(str(given.get("decisions") or folder / run_file.DECISIONS)))
    open_cards = cards.read(folder, file)
    known = {card.id: card.answer for card in open_cards if card.answer}
    if as_json:
        asked = [{**card.question, "answer": card.answer} for card in open_cards]
        return Answer(int(len(known) < len(asked)), {"tag": bump.tag, "file": str(file), "decisions": asked}, ())
    print(f"{bump.repository} {bump.base} {bump.image_type} {bump.tag}")
    answers = _ask_all(open_cards, known)
    new = [card for card in open_cards if answers.get(card.id) != known.get(card.id)]
    print(f"\n{len(answers)} of {len(open_cards)} decided.")
    if new:
        cards.save(file, new, answers)
        print(f"Written into {file}. To apply these decisions: {commands.papermill(notebooks.BUMP, given)}")
    return int(len(answers) < len(open_cards))


def _bump(root: Path, tag: str) -> BumpStatus:
    """Return the bump to a tag, or the newest with something to decide."""
    bumps = [bump for bump in records.status(root) if bump.is_started and tag in ("", bump.tag)]
    if not bumps:
        raise RunbookError(
            f"There is no bump{f' to {tag}' if tag else ''} in {root}.",
            "`runbook status` lists them; RUNBOOK_AUDIT names another archive.",
        )
    return next((bump for bump in bumps if cards.read(Path(bump.folder))), bumps[0])


def _given(folder: Path) -> dict[str, Any]:
    """Return the parameters that were given to the bump's newest run, except for its mode and its CI run."""
    for run in reversed(archive.read_records(folder).readable):
        parameters = run["parameters"]
        if run["notebook"]["name"] == notebooks.BUMP and parameters:
            return {name: value for name, value in parameters.items() if name not in ("mode", "run_id")}
    raise RunbookError(f"No run of bump was found in {folder}.", "Run it once: it asks for the decisions.")


def _ask_all(open_cards: tuple[Card, ...], known: cards.Answers) -> dict[str, Mapping[str, str]]:
    """Ask for a decision on each card until the user stops; what is known is decided, unless they decide otherwise."""
    answers = dict(known)
    with suppress(click.Abort):  # the end of the input, and Ctrl-C
        for number, card in enumerate(open_cards, 1):
            print(f"\n[{number}/{len(open_cards)}] {cards.evidence(card).text}")
            if answer := _ask(card):
                answers[card.id] = answer
    return answers


def _ask(card: Card) -> Mapping[str, str] | None:
    """Return the complete answer to a card; None to leave it open.  Raises click.Abort to stop."""
    options = {option.key: option for option in card.options}
    print(*(f"{key} {option.label} " for key, option in options.items()), "n next ", "q stop")
    while (key := click.prompt("Decide", "n", type=click.Choice([*options, "n", "q"]), show_choices=False)) in options:
        answer = {"choice": options[key].choice, "reason": click.prompt("Reason", options[key].reason or None)}
        if answer["choice"] == "accept" and card.danger:
            question = f"Type {card.danger} to accept the {card.danger_in_words}"
            answer["typed"] = click.prompt(question, "", show_default=False)
        if not (problem := cards.problem(card, answer)):
            return answer
        print(f"✗ {problem}")
    if key == "q":
        raise click.Abort
    return None


@click.group()
def audit() -> None:
    """Verify an archive of records, or add a notebook to one."""


@command("audit verify ~/audit", audit)
@click.argument("folder", default="", metavar="[DIR]")
def verify(folder: str) -> Answer:
    """Check every record of the archive DIR against its commit, digests and history.

    Exit status: 0 intact, 1 not intact, 2 there is no archive.
    """
    root = Path(os.path.expanduser(folder)).absolute() if folder else archive.default()
    problems, counts = store.verify(root)
    if not store.RecordStore(root).exists and not problems:  # one that this machine has seen has lost its history
        raise RunbookError(f"There is no archive {root}.", "Name its folder: runbook audit verify DIR")
    result = f"not intact: {display.count(len(problems), 'problem')}" if problems else "intact"
    return Answer(
        int(bool(problems)),
        {"archive": str(root), "problems": problems, "checked": str(counts)},
        [f"{root} is {result}. Checked {counts}."],
        problems,
    )


@command("audit add out.ipynb", audit)
@click.argument("file", metavar="OUT.ipynb")
def add(file: str) -> Answer:
    """Add the executed notebook OUT.ipynb, which names its record, to the record of a run without the engine."""
    try:
        notebook = json.loads(read_named(Path(os.path.expanduser(file))))
        cells = [cell["cell_type"] for cell in notebook["cells"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunbookError(
            f"{file} cannot be read as a notebook: {error}.", "Name the executed copy that papermill wrote."
        ) from error
    folder = archive.attach(archive.default(), notebook)
    report = folder / REPORT
    lines = [f"{display.count(len(cells), 'cell')} added to {folder}", f"Report: {report}"]
    return Answer(0, {"record": str(folder), "report": str(report)}, lines)
