"""``runbook watch``: newer tags than those of the pins, proposed."""

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
    """Compare the pins with the registry, and propose a newer tag with ``--publish``; return the exit status."""
    pins = options.pins
    if os.path.isfile(Path(pins).expanduser()):
        pins = str(Path(pins).expanduser().absolute())
    request = watch.WatchOptions(
        today=now().date(), image_type=options.image_type, base=options.base, remote=options.remote, pins=pins,
        audit=options.audit, cool_down=options.cool_down, publish=options.publish,
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
