"""The state of the practice environment, read past the library."""

import hashlib
import json
import urllib.error
import urllib.request
from typing import Any

from runbook_lib import practice
from runbook_lib.notebook.begin import LOCK


def fingerprint(world: practice.PracticeWorld) -> str:
    """Return a digest of all that a run could change: checkout, remote, and the forge's answers."""
    digest = hashlib.sha256()
    for place in (world.checkout, world.home / "remote.git"):
        for file in sorted(path for path in place.rglob("*") if path.is_file() and "objects" not in path.parts):
            if file.name not in ("index", "ORIG_HEAD", "FETCH_HEAD", LOCK):
                digest.update(f"{file}\n".encode() + file.read_bytes())
    for path in ("pulls?state=all", "issues?state=all", "actions/runs", "issues/1/comments"):
        url = f"{world.env['GITHUB_API_URL']}/repos/{world.env['GITHUB_REPOSITORY']}/{path}"
        request = urllib.request.Request(url, headers={"Authorization": "Bearer practice-token"})
        try:
            with urllib.request.urlopen(request) as answer:
                digest.update(answer.read())
        except urllib.error.HTTPError as error:
            digest.update(str(error.code).encode())
    return digest.hexdigest()


def read_forge(world: practice.PracticeWorld, path: str) -> list[Any]:
    """Return the forge's answer for ``path`` below the repository."""
    url = f"{world.env['GITHUB_API_URL']}/repos/{world.env['GITHUB_REPOSITORY']}/{path}"
    request = urllib.request.Request(url, headers={"Authorization": "Bearer practice-token"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)  # type: ignore[no-any-return]
