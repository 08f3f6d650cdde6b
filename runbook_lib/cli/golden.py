"""``runbook golden diff``: a comparison of the golden values of two commits, or of two folders."""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.golden import history, summary
from runbook_lib.golden.diff import GoldenFiles, as_csv, as_json, compare, of_folder, of_revision
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.system.files import write
from runbook_lib.text.plain_text import plain

#: The width of a terminal from which the table of metrics is shown with its buckets.
_WIDE = 136


def command(options: argparse.Namespace) -> int:
    """Print the comparison; return 0 if all files could be refreshed, 1 if a person must decide first."""
    old, new = (_side(name, options.repo) for name in (options.old, options.new))
    if not old.contents and not new.contents:
        raise CannotTell(
            f"Neither {options.old} nor {options.new} contains a golden file. Name commits of a Megatron-LM clone with "
            "--repo, or folders that contain model/test_case/golden_values_….json."
        )
    verdicts = compare(old, new, _history(options))
    if options.csv:
        write(Path(options.csv), as_csv(verdicts.judgements))
    if options.json:
        print(json.dumps(as_json(verdicts), indent=2, allow_nan=False))
    else:
        narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE
        text = summary.markdown(verdicts, buckets=options.markdown or not narrow).rstrip("\n")
        print(text if options.markdown else plain(text))
    return int(verdicts.open)


def _history(options: argparse.Namespace) -> GoldenHistory:
    """Read the history up to the revision given by ``--history``, or up to the old revision."""
    ref = options.history
    if not ref:
        if os.path.isdir(Path(options.old).expanduser()):
            return GoldenHistory(missing="OLD is a folder; give a revision with --history")
        ref = options.old
    checkout = Checkout.open(Path(options.repo or "."))
    if options.history:
        try:
            ref = checkout.resolve(ref)
        except RunbookError as error:
            raise CannotTell(f"--history names {ref!r}, which is not a commit in {checkout.path}: {error}") from error
    return history.read(checkout, ref, history.default_cache())


def _side(name: str, repo: str) -> GoldenFiles:
    folder = Path(name).expanduser()
    return of_folder(folder) if os.path.isdir(folder) else of_revision(Path(repo or "."), name)
