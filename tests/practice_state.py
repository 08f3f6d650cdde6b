"""The state of the practice environment, as a person could see it."""

import hashlib
from contextlib import suppress

from runbook_lib.notebook.place import LOCK
from runbook_lib.practice.world import PracticeWorld
from runbook_lib.world.github.models import NotAllowed


def fingerprint(world: PracticeWorld) -> str:
    """Return a digest of all that a run could change: checkout, remote, and the forge's answers."""
    digest = hashlib.sha256()
    for place in (world.checkout, world.home / "remote.git"):
        for file in sorted(path for path in place.rglob("*") if path.is_file() and "objects" not in path.parts):
            if file.name not in ("index", "ORIG_HEAD", "FETCH_HEAD", LOCK):
                digest.update(f"{file}\n".encode() + file.read_bytes())
    forge = world.forge()
    digest.update(repr([forge.pulls(state="all"), forge.list_issues(), forge.runs()]).encode())
    with suppress(NotAllowed):
        digest.update(repr([forge.comments(pull.number) for pull in forge.pulls(state="all")]).encode())
    return digest.hexdigest()
