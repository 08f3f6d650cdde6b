"""``runbook golden diff``: a comparison of the golden values of two commits, or of two folders."""

import os
from pathlib import Path

import click

from runbook_lib.cli.command import Answer, command
from runbook_lib.errors import CannotTell
from runbook_lib.golden import diff as comparison
from runbook_lib.golden import history, summary
from runbook_lib.golden.diff import GoldenFiles
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.world.git.checkout import Checkout


@click.group()
def golden() -> None:
    """Judge changes of golden values."""


@command("golden diff main my-branch --repo ~/Megatron-LM", golden)
@click.argument("old")
@click.argument("new")
@click.option("--repo", default=".", help="The clone with the commits, possibly bare (default: the current one).")
@click.option(
    "--history", "up_to", default="", metavar="REF", help="Judge with the history up to this commit (default: OLD)."
)
def diff(old: str, new: str, repo: str, up_to: str) -> Answer:
    """Compare the golden values of two commits, or of two folders, and print Markdown.

    Exit status: 0 if every change is expected drift, 1 if a file would be held back or refused, 2 cannot tell.
    """
    before, after = _side(old, repo), _side(new, repo)
    if not before.contents and not after.contents:
        raise CannotTell(
            f"Neither {old} nor {new} contains a golden file.",
            "Name commits of a Megatron-LM clone with --repo, or folders with model/test_case/golden_values_….json.",
        )
    verdicts = comparison.compare(before, after, _history(old, repo, up_to))
    text = summary.markdown(verdicts).rstrip("\n")
    return Answer(int(bool(verdicts.blocked)), comparison.as_json(verdicts), [text])


def _history(old: str, repo: str, up_to: str) -> GoldenHistory:
    """Read the history up to the revision given by ``--history``, or up to the old revision."""
    if not up_to and os.path.isdir(os.path.expanduser(old)):
        return GoldenHistory(missing="OLD is a folder; give a revision with --history")
    checkout = Checkout.open(Path(repo))
    return history.read(checkout, checkout.resolve(up_to) if up_to else old)


def _side(name: str, repo: str) -> GoldenFiles:
    folder = Path(os.path.expanduser(name))
    return comparison.of_folder(folder) if os.path.isdir(folder) else comparison.of_revision(Path(repo), name)
