"""``runbook watch`` and ``revert``: propose newer tags, and revert merged bumps."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from runbook_lib.bump import Bump
from runbook_lib.errors import Refused
from runbook_lib.git.checkout import Checkout
from runbook_lib.steps import revert, watch
from runbook_lib.system.clock import now
from runbook_lib.text.redact import Redactor
from runbook_lib.workflow import repository


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


def command_revert(options: argparse.Namespace) -> int:
    """Preview the pull request that reverts a merged bump or, with ``--publish``, open it; return 0."""
    checkout = Checkout.open(options.repo)
    bump = Bump.parse(
        tag=options.tag, image_type=options.image_type, base=options.base, remote=options.remote,
        apply=options.publish, publish=options.publish, repository=repository.choose(checkout, _pins(options)),
    )  # fmt: skip
    result = revert.revert(checkout, bump, options.reason, options.until)
    shown = [result.sentence, result.url] if result.url else [result.sentence, "", result.text]
    print(Redactor(os.environ).text("\n".join(shown)))
    return 0


def _pins(options: argparse.Namespace) -> str:
    """Return the option ``--pins``, as an absolute path if it is a file, because notebooks run in another folder."""
    path = Path(options.pins).expanduser()
    return str(path.absolute()) if options.pins and path.is_file() else str(options.pins)
