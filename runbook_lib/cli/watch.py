"""``runbook watch``: propose newer tags."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from runbook_lib.errors import Refused
from runbook_lib.git.checkout import Checkout
from runbook_lib.steps import watch
from runbook_lib.system.clock import now
from runbook_lib.text.redact import Redactor


def command_watch(options: argparse.Namespace) -> int:
    """Compare the pins with the registry and, with ``--publish``, propose a newer tag; return the exit status."""
    request = watch.WatchOptions(
        today=now().date(), image_type=options.image_type, base=options.base, remote=options.remote,
        pins=_pins(options), audit=options.audit, cool_down=options.cool_down, publish=options.publish,
    )  # fmt: skip
    try:
        report = watch.watch(Checkout.open(options.repo), request)
    except Refused as error:
        print(f"runbook watch: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(Redactor(os.environ).data(_as_json(report)), indent=2))
    else:
        for result in report.results:
            print(Redactor(os.environ).text("\n".join(watch.as_lines(result))))
    for problem in report.problems:
        print(f"runbook watch: {Redactor(os.environ).text(problem)}", file=sys.stderr)
    return report.exit_status


def _as_json(report: watch.WatchReport) -> dict[str, object]:
    """Return the result as JSON: the fields of the first image, and if there are several, all of them as ``images``."""
    results = [asdict(result) for result in report.results]
    document: dict[str, object] = {"format": 1, **(results[0] if results else {})}
    if len(results) > 1 or report.problems:
        document |= {"images": results, "problems": list(report.problems)}
    return document


def _pins(options: argparse.Namespace) -> str:
    """Return the option ``--pins``, as an absolute path if it is a file, because notebooks run in another folder."""
    path = Path(options.pins).expanduser()
    return str(path.absolute()) if options.pins and path.is_file() else str(options.pins)
