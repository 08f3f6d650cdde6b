"""``runbook golden diff``: a comparison of the golden values of two commits, or of two folders."""

import argparse
import json
import os
from pathlib import Path

from runbook_lib.errors import CannotTell
from runbook_lib.golden import summary
from runbook_lib.golden.diff import GoldenFiles, as_csv, as_json, compare, of_folder, of_revision
from runbook_lib.system.atomic_files import write


def command(options: argparse.Namespace) -> int:
    """Print the comparison; return 0 if all files could be refreshed, 1 if one is held back or refused."""
    old, new = (_side(name, options.repo) for name in (options.old, options.new))
    if not old.contents and not new.contents:
        raise CannotTell(
            f"Neither {options.old} nor {options.new} has a golden file. Name commits of a clone of Megatron-LM with "
            "--repo, or folders with model/test_case/golden_values_….json in them."
        )
    judged = compare(old, new)
    if options.csv:
        write(Path(options.csv), as_csv(judged))
    print(
        json.dumps(as_json(judged), indent=2, allow_nan=False)
        if options.json
        else summary.markdown(judged).rstrip("\n")
    )
    return int(any(judgement.verdict in ("held back", "refused") for judgement in judged))


def _side(name: str, repo: str) -> GoldenFiles:
    folder = Path(name).expanduser()
    return of_folder(folder) if os.path.isdir(folder) else of_revision(Path(repo or "."), name)
