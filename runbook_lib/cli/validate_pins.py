"""``runbook pins validate``: read a pins file and show its images."""

import argparse
import sys
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.pins import pins_file
from runbook_lib.system.files import read_named


def command(options: argparse.Namespace) -> int:
    """Print the images of a pins file; return 1 if the file is invalid.  Raises RunbookError if it cannot be read."""
    name = str(options.file)
    try:
        text = read_named(Path(name).expanduser()).decode("utf-8")
    except (OSError, ValueError) as error:  # not UTF-8, or not a valid file name
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RunbookError(f"The pins file {name} cannot be read: {reason}. Correct the path.") from error
    try:
        sites = pins_file.parse(text, name, name).sites
    except RunbookError as error:
        print(error, file=sys.stderr)
        return 1
    for image in sites.images:
        print(f"{image.name}: {len(sites.only(image).pins)} declared, tags of {image.family.name}.")
    return 0
