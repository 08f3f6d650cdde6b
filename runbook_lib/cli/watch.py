"""``runbook watch`` and ``runbook revert``: newer tags than those of the pins, proposed and taken back."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from runbook_lib.errors import Refused
from runbook_lib.git.checkout import Checkout
from runbook_lib.steps import revert, watch
from runbook_lib.system.clock import now
from runbook_lib.text.redact import Redactor


def command_watch(options: argparse.Namespace) -> int:
    """Compare the pins with the registry, and propose a newer tag with ``--publish``; return the exit status."""
    request = watch.WatchOptions(
        today=now().date(), image_type=options.image_type, base=options.base, remote=options.remote,
        pins=_pins(options), audit=options.audit, cool_down=options.cool_down, publish=options.publish,
    )  # fmt: skip
    try:
        result = watch.watch(Checkout.open(options.repo), request)
    except Refused as error:
        print(f"runbook watch: {error}", file=sys.stderr)
        return 1
    if options.json:
        document = {"format": 1, **asdict(result)}
        print(json.dumps(Redactor(os.environ).data(document), indent=2))
    else:
        print(Redactor(os.environ).text("\n".join(watch.as_lines(result))))
    return result.exit_status


def command_revert(options: argparse.Namespace) -> int:
    """Open the pull request that reverts a merged bump, with ``--publish``; return 0."""
    request = revert.RevertOptions(
        tag=options.tag, reason=options.reason, until=options.until, image_type=options.image_type,
        base=options.base, remote=options.remote, pins=_pins(options), publish=options.publish,
    )  # fmt: skip
    result = revert.revert(Checkout.open(options.repo), request)
    shown = [result.sentence, result.url] if result.url else [result.sentence, "", result.text]
    print(Redactor(os.environ).text("\n".join(shown)))
    return 0


def _pins(options: argparse.Namespace) -> str:
    """Return the option, as an absolute path if it is a file: notebooks run in another folder."""
    path = Path(options.pins).expanduser()
    return str(path.absolute()) if options.pins and path.is_file() else str(options.pins)
