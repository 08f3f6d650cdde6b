"""``runbook watch``: propose newer tags."""

import argparse
import json
import os
from dataclasses import asdict

from runbook_lib.bump.watch import WatchOptions, watch
from runbook_lib.git.checkout import Checkout
from runbook_lib.system.clock import now
from runbook_lib.text.redact import Redactor


def command(options: argparse.Namespace) -> int:
    """Compare the pins with the registry and, with ``--publish``, propose a newer tag; return the exit status."""
    request = WatchOptions(
        today=now().date(), image_type=options.image_type, base=options.base, remote=options.remote,
        cool_down=options.cool_down, publish=options.publish,
    )  # fmt: skip
    results = watch(Checkout.open(options.repo), request)
    redactor = Redactor(os.environ)
    if options.json:
        document = {"version": 1, "results": [asdict(result) for result in results]}
        print(json.dumps(redactor.data(document), indent=2))
    else:
        for result in results:
            where = f"{result.image} ({result.image_type}) on {result.base}"
            print(redactor.text(f"{where}: {result.state}. {result.sentence}"))
            if result.url:
                print(result.url)
    return max(result.exit_status for result in results)
