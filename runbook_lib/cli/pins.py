"""``runbook pins find``: the pins of a repository, and a pins file with them."""

import os
from dataclasses import asdict

import click

from runbook_lib.cli.command import Answer, command
from runbook_lib.errors import Refused
from runbook_lib.pins.repositories import FILE
from runbook_lib.world import repository as repositories
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.machine import files
from runbook_lib.world.pin_search import Findings, find


def _write(findings: Findings, checkout: Checkout) -> str:
    """Write the pins file into the work tree, and return its path.  Raises Refused if it cannot be written."""
    target = checkout.path / FILE
    known = repositories.recognize(checkout)
    problem = ""
    if checkout.bare:
        problem = "the clone is bare. Give one with a work tree."
    elif not findings.text:
        problem = "no pin was found that a bump would move."
    elif os.path.lexists(target):
        problem = "it exists and is never overwritten. Move it away first."
    elif known:
        problem = f"the pins of {known.name} are built in. To replace all of them, save the file that is shown."
    if problem:
        raise Refused(f"{target} was not written: {problem}")
    files.write(target, findings.text)
    return str(target)


@click.group()
def pins() -> None:
    """Find the pins of a repository."""


@command("pins find --write ~/my-repository", pins)
@click.argument("repo", default=".")
@click.option("--write", is_flag=True, help="Write the file to .base-image-pins.yaml if that does not exist.")
def find_pins(repo: str, write: bool) -> Answer:
    """Find the places in the files of HEAD that name an image of a known family, and draft a pins file.

    What one of the last two bumps of an image changed is lockstep, other places are informational.  REPO is a clone,
    possibly bare (default: the current one).  Exit status: 0 found, 1 none found, 2 cannot tell, or the file could not
    be written.
    """
    checkout = Checkout.open(repo)
    findings = find(checkout)
    written = _write(findings, checkout) if write else None
    found = [{"role": pin.role, "history": pin.history, **asdict(pin.place)} for pin in findings.pins]
    skipped = [{"role": "skipped", "history": "", **asdict(place)} for place in findings.skipped]
    lines = [
        "{role:<13}  {path}:{line} {image}:{tag} ({history}{skip_reason})".format(**row) for row in (*found, *skipped)
    ]
    lockstep = sum(pin.lockstep for pin in findings.pins)
    numbers = f"{lockstep} lockstep, {len(found) - lockstep} informational, {len(skipped)} skipped"
    lines += ["", *findings.notes, f"Commit {findings.commit[:10]}: {numbers}."]
    if written:
        lines.append(f"Written to {written}. Read every entry, then run `runbook check`.")
    lines = [line.replace("\n", "\\n") for line in lines]  # a name may hold a line feed
    if findings.text and not written:
        lines.append(f"--write writes {FILE}:\n\n{findings.text.rstrip()}")
    document = {**findings._asdict(), "pins": found, "skipped": skipped, "written": written}
    return Answer(0 if found else 1, document, lines)
