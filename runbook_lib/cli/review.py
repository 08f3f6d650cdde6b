"""``runbook review``: the decisions of a bump, card by card in the terminal, as the form shows them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from runbook_lib import notebooks
from runbook_lib.cli.command import Answer, command
from runbook_lib.errors import RunbookError
from runbook_lib.notebook import cards
from runbook_lib.notebook.cards import Card
from runbook_lib.record import archive, run_file
from runbook_lib.record.archive import read_records
from runbook_lib.record.status import BumpStatus, status
from runbook_lib.world import commands


@command("review 26.05-py3")
@click.argument("tag", default="")
@click.pass_obj
def review(as_json: bool, tag: str) -> Answer | int:
    """Show each decision that a bump waits for, and write the answers into its file of decisions.

    TAG is the tag of the bump (default: the newest bump that waits).  With --json only list them.  Exit status: 0 all
    decided, 1 some decisions are open.
    """
    bump = _bump(archive.default(), tag)
    folder = Path(bump.folder)
    if not cards.read(folder) and not as_json:
        print("Nothing is left to decide.")
        return 0
    given = _given(folder)
    file = Path(os.path.expanduser(str(given.get("decisions") or folder / run_file.DECISIONS)))
    open_cards = cards.read(folder, file)
    held = {card.id: card.answer for card in open_cards if card.held}
    if as_json:
        asked = [{**card.question, "held": card.held} for card in open_cards]
        return Answer(int(len(held) < len(asked)), {"tag": bump.tag, "file": str(file), "decisions": asked}, ())
    print(f"{bump.repository} {bump.base} {bump.image_type} {bump.tag}")
    answers = _ask_all(open_cards, held)
    new = [card for card in open_cards if answers.get(card.id) != held.get(card.id)]
    missing = [card for card in open_cards if card.id not in answers or cards.problem(card, answers[card.id])]
    print(f"\n{len(open_cards) - len(missing)} of {len(open_cards)} decided.")
    if new:
        cards.save(file, new, answers)
        print(f"Written into {file}. To apply these decisions: {commands.papermill(notebooks.BUMP, given)}")
    return int(bool(missing))


def _bump(root: Path, tag: str) -> BumpStatus:
    """Return the bump to a tag, or the newest with something to decide."""
    bumps = [bump for bump in status(root) if bump.is_started and tag in ("", bump.tag)]
    if not bumps:
        raise RunbookError(
            f"There is no bump{f' to {tag}' if tag else ''} in {root}.",
            "`runbook status` lists them; RUNBOOK_AUDIT names another archive.",
        )
    return next((bump for bump in bumps if cards.read(Path(bump.folder))), bumps[0])


def _given(folder: Path) -> dict[str, Any]:
    """Return the parameters that were given to the bump's newest run, except for its mode and its CI run."""
    for run in reversed(read_records(folder).readable):
        parameters = run["parameters"]
        if run["notebook"]["name"] == notebooks.BUMP and parameters:
            return {name: value for name, value in parameters.items() if name not in ("mode", "run_id")}
    raise RunbookError(f"No run of bump was found in {folder}.", "Run it once: it asks for the decisions.")


def _ask_all(open_cards: tuple[Card, ...], held: cards.Answers) -> dict[str, Mapping[str, str]]:
    """Ask for a decision on each card; those on hold are decided, unless the user decides otherwise."""
    answers = dict(held)
    for number, card in enumerate(open_cards, 1):
        print(f"\n[{number}/{len(open_cards)}] {cards.evidence(card).text}")
        print("  ".join(f"{option.key} {option.label} " for option in card.options), " Enter next   q stop")
        while (key := _read("> ")) not in (None, "", "q"):
            answer = _answer(card, key)
            if answer is not None:
                answers[card.id] = answer
                break
        if key in (None, "q"):
            break
    return answers


def _answer(card: Card, key: str) -> Mapping[str, str] | None:
    """Return the answer that a key begins; None, with a message, for an unknown key or an incomplete answer."""
    option = next((option for option in card.options if option.key == key), None)
    if option is None:
        print(f"Type one of {', '.join(option.key for option in card.options)}, then press Enter.")
        return None
    typed = _read(f"Reason [{option.reason}]: " if option.reason else "Reason: ")
    answer = {"choice": option.choice, "reason": typed or option.reason}
    if answer["choice"] == "accept" and card.danger:
        answer["typed"] = _read(f"Type {card.danger} to accept the {card.danger_in_words}: ") or ""
    if problem := cards.problem(card, answer):
        print(f"✗ {problem}")
        return None
    return answer


def _read(prompt: str) -> str | None:
    """Return a stripped line of standard input; None at end of file."""
    print(prompt, end="", flush=True)
    line = sys.stdin.readline()
    return line.strip() if line else None
