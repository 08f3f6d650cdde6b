"""``runbook pins import``: a draft of a pins file from Renovate's custom managers."""

import argparse
from pathlib import Path

from runbook_lib.cli.discover import FILE, write_draft
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.settings import refuse_fetching
from runbook_lib.pins.discover.draft import PinsFileDraft, draft
from runbook_lib.pins.discover.roles import shown
from runbook_lib.pins.renovate import settings
from runbook_lib.pins.renovate.located import files_of, locate
from runbook_lib.pins.renovate.settings import RegexManager, RenovateSettings
from runbook_lib.system.atomic_files import read_named

_AUTHOR = "runbook pins import"


def command(options: argparse.Namespace) -> int:
    """Print the draft and the parts left out; return 0 for a draft, 1 if there is none."""
    checkout = Checkout.open(options.repo)
    if checkout.bare:
        raise CannotTell(f"{checkout.path} has no work tree to read files from. Use a clone that has one.")
    refuse_fetching(checkout.path)
    read = _settings(checkout, options.file)
    drafted, left_out = _draft(checkout, read)
    written = write_draft(checkout.path, drafted) if options.write else None
    left_out = [*left_out, *drafted.left_out]
    print(*drafted.chosen, *(f"Left out: {shown(sentence)}" for sentence in left_out), sep="\n")
    print("For images that Renovate finds without custom managers, use `runbook pins discover`.")
    if written:
        print(f"Written to {shown(str(written))}. Read every entry, then run `runbook check`.")
    elif drafted.text:
        print(f"Draft of {FILE} (--write writes it):\n\n{drafted.text}", end="")
    return 0 if drafted.text else 1


def _settings(checkout: Checkout, name: str) -> RenovateSettings:
    """Read the named file, or the first one in which Renovate finds settings.  Raises CannotTell if there is none."""
    paths = [Path(name).expanduser()] if name else [checkout.path / path for path in settings.FILES]
    for path in paths:
        if not name and not path.exists():
            continue
        try:
            text = read_named(path).decode("utf-8")
        except (OSError, ValueError) as error:  # not UTF-8, or not a valid file name
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise CannotTell(f"Renovate's settings {path} cannot be read: {reason}. Correct the path.") from error
        if path.name != "package.json" or name or '"renovate"' in text:
            return settings.parse(text, str(path))
    raise CannotTell(f"{checkout.path} has no Renovate settings ({', '.join(settings.FILES)}). Name the file.")


def _draft(checkout: Checkout, read: RenovateSettings) -> tuple[PinsFileDraft, list[str]]:
    """Return the draft for the managers' matches in the tracked files, and the parts left out."""
    left_out = list(read.left_out)
    paths = [path for path in checkout.git("ls-files", "-z").split("\0") if path and "\n" not in path]
    managers: list[tuple[RegexManager, tuple[str, ...]]] = []
    for manager in read.managers:
        try:
            managers.append((manager, files_of(manager, paths)))
        except RunbookError as error:
            left_out.append(f"{manager.name}: {error}.")
    wanted = dict.fromkeys(path for _, of_manager in managers for path in of_manager)
    texts = {path: text for path, text in checkout.read(list(wanted)).items() if text is not None}
    found = locate([(manager, [path for path in paths if path in texts]) for manager, paths in managers], texts)
    left_out += found.left_out
    if not found.references:
        return PinsFileDraft(
            "", ("Nothing is drafted: the custom managers name no image of a known family.",)
        ), left_out
    return draft(
        found.references, {path: texts[path] for path in {entry.path for entry in found.references}}, _AUTHOR
    ), left_out
