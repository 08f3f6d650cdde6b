"""The repository whose pins a clone has: the one requested, that of its own pins file, or one that we know."""

import os
from collections.abc import Sequence
from pathlib import Path

from runbook_lib.errors import RunbookError
from runbook_lib.git.blobs import read_blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import FILE, MEGATRON_LM, REPOSITORIES, Repository
from runbook_lib.system.atomic_files import read_named


def choose(checkout: Checkout, pins: str = "", refs: Sequence[str] = ()) -> Repository:
    """Return the repository that ``pins`` names: one that we know (``megatron-bridge``), or the path of a pins file.

    Empty: the pins file of the clone (of its HEAD, where it is bare; else of the first of ``refs`` that has one), else
    the repository that its remote names, else the one whose files it has, at one of ``refs`` or at HEAD, else
    Megatron-LM.  A fork is recognized by its name without the owner.  Raises RunbookError for a name that is unknown,
    and for a pins file that cannot be used.
    """
    if pins:
        return _named(checkout, pins)
    named = [ref for ref in refs if ref and not set(ref) & set("*?[")]
    if (text := _pins_file(checkout, named)) is not None:
        return _declared(checkout, text, FILE)
    return recognize(checkout, ["HEAD" if checkout.bare else None, *named]) or MEGATRON_LM


def recognize(checkout: Checkout, states: Sequence[str | None]) -> Repository | None:
    """Return the known repository of a clone, by its remote or by its files at one of ``states`` or at HEAD."""
    name = _slug(checkout).rpartition("/")[2].lower()
    for repository in REPOSITORIES:
        if short(repository) == name:
            return repository
    paths = {path for repository in REPOSITORIES for path in repository.sites.marker_paths}
    for state in [*states, "HEAD"]:  # nothing may be checked out
        texts = checkout.read(paths, state)
        for repository in REPOSITORIES:
            if repository.sites.matches(texts):
                return repository
    return None


def _pins_file(checkout: Checkout, refs: Sequence[str]) -> str | None:
    """Return the text of the clone's pins file, else of the first of ``refs`` that has one: all read together."""
    if not checkout.bare and (text := checkout.read([FILE])[FILE]) is not None:
        return text
    commits = ["HEAD", *refs] if checkout.bare else refs
    blobs = read_blobs(checkout.path, [(commit, FILE) for commit in commits])
    return next((blob[1] for commit in commits if (blob := blobs[commit, FILE])), None)


def _named(checkout: Checkout, pins: str) -> Repository:
    for repository in REPOSITORIES:
        if pins.lower() in (short(repository), repository.name.lower()):
            return repository
    path = Path(pins).expanduser()
    if "/" not in pins and not path.suffix and not os.path.exists(path):
        names = ", ".join(map(short, REPOSITORIES))
        raise RunbookError(f"pins={pins!r} names no known repository: choose one of {names}, or give a file.")
    try:
        text = read_named(path).decode("utf-8")
    except (OSError, ValueError) as error:  # not UTF-8, or a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RunbookError(f"The pins file {pins} cannot be read: {reason}. Correct the parameter pins.") from error
    return _declared(checkout, text, pins)


def _declared(checkout: Checkout, text: str, origin: str) -> Repository:
    from runbook_lib.pins import pins_file  # most clones have no such file

    return pins_file.parse(text, _slug(checkout) or checkout.path.name, origin)


def short(repository: Repository) -> str:
    """Return the lowercase name without the owner, by which a fork is recognized."""
    return repository.name.rpartition("/")[2].lower()


def _slug(checkout: Checkout) -> str:
    """Return ``owner/name``, or nothing where no remote names it."""
    try:
        return checkout.repository()
    except RunbookError:
        return ""
