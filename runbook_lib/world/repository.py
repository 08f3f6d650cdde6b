"""The repository whose pins a clone has: the requested one, its own pins file, or a known one."""

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.pins.repositories import FILE, MEGATRON_LM, REPOSITORIES, Repository
from runbook_lib.world.git.blobs import read_files
from runbook_lib.world.git.checkout import Checkout, slug_of
from runbook_lib.world.machine.files import read_named

_ON_HOST = re.compile(r"(?!file:)[a-z+]+://|[^/:@]+@[^/:@]+:")  # a URL, or user@host:path


def choose(checkout: Checkout, pins: str = "", refs: Sequence[str] = ()) -> Repository:
    """Return the repository that ``pins``, else $RUNBOOK_PINS, names: a known one (``megatron-bridge``) or a pins file.

    If neither names one: the clone's pins file (from HEAD if it is bare; else from the first of ``refs`` that has one),
    else the repository named by a remote, else, if no remote names one, Megatron-LM.  A fork is recognized by its name
    without the owner.  Raises RunbookError for an unknown name or an unusable pins file, and CannotTell for a clone of
    an unknown repository.
    """
    if pins := pins or os.environ.get("RUNBOOK_PINS", ""):
        return _named(checkout, pins)
    if (text := _pins_file(checkout, [ref for ref in refs if ref and not set(ref) & set("*?[^")])) is not None:
        return _declared(checkout, text, FILE)
    if repository := recognize(checkout):
        return repository
    if names := _remote_names(checkout):
        known = ", ".join(map(short, REPOSITORIES))
        raise CannotTell(
            f"{checkout.path} is a clone of {' and '.join(sorted(names))}, whose pins are unknown, and it has no "
            f"{FILE}.",
            f"Draft one with `runbook pins find --write {checkout.path}`; or, for a renamed "
            f"fork, set RUNBOOK_PINS to the original: one of {known}.",
        )
    return MEGATRON_LM


def recognize(checkout: Checkout) -> Repository | None:
    """Return the known repository that a remote of a clone names."""
    names = {name.rpartition("/")[2].lower() for name in _remote_names(checkout)}
    return next((repository for repository in REPOSITORIES if short(repository) in names), None)


def _remote_names(checkout: Checkout) -> set[str]:
    """Return ``owner/name`` of each remote on a host, and of the checkout or GITHUB_REPOSITORY; a path names none."""
    names = {checkout.slug or os.environ.get("GITHUB_REPOSITORY", "")} - {""}
    for url in checkout.remote_urls().values():
        if _ON_HOST.match(url):
            with contextlib.suppress(RunbookError):
                names.add(slug_of(url))
    return names


def _pins_file(checkout: Checkout, refs: Sequence[str]) -> str | None:
    """Return the text of the clone's pins file, else of the first of ``refs`` that has one: all read together."""
    if not checkout.bare and (text := checkout.read([FILE])[FILE]) is not None:
        return text
    commits = ["HEAD", *refs] if checkout.bare else refs
    texts = read_files(checkout.path, [(commit, FILE) for commit in commits]).values()
    return next((text for text in texts if text is not None), None)


def _named(checkout: Checkout, pins: str) -> Repository:
    for repository in REPOSITORIES:
        if pins.lower() in (short(repository), repository.name.lower()):
            return repository
    path = Path(os.path.expanduser(pins))
    if "/" not in pins and not path.suffix and not os.path.exists(path):
        names = ", ".join(map(short, REPOSITORIES))
        raise RunbookError(f"pins={pins!r} is not a known repository.", f"Choose one of {names}, or give a file.")
    try:
        text = read_named(path).decode("utf-8")
    except (OSError, ValueError) as error:  # not UTF-8, or an impossible file name
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RunbookError(f"The pins file {pins} cannot be read: {reason}.", "Correct the parameter pins.") from error
    return _declared(checkout, text, pins)


def _declared(checkout: Checkout, text: str, origin: str) -> Repository:
    from runbook_lib.pins import pins_file  # most clones have no such file

    return pins_file.parse(text, name_of(checkout), origin)


def short(repository: Repository) -> str:
    """Return the lowercase name without the owner, which identifies a fork."""
    return repository.name.rpartition("/")[2].lower()


def name_of(checkout: Checkout) -> str:
    """Return ``owner/name``, or the folder's name if no remote names the repository."""
    try:
        return checkout.repository()
    except RunbookError:
        return checkout.path.name
