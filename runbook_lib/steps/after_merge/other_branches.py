"""The images that other branches use, and the commands that bump those on an older one."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from runbook_lib.bump import Bump
from runbook_lib.errors import CannotTell
from runbook_lib.git import blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.families import is_older
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.notebooks import BUMP
from runbook_lib.pins.check import check_pins
from runbook_lib.runner.command_line import command
from runbook_lib.workflow.bump_branch import BumpBranch


def branch_rows(branch: BumpBranch, refs: str) -> tuple[list[dict[str, object]], str]:
    """Return each branch as last fetched, with its image, state and next command, and a note on branches without pins.

    ``refs`` as the notebook takes them: names or patterns, by default those of the repository.  Raises CannotTell for
    refs that name no branch.
    """
    bump, checkout, sites = branch.bump, branch.checkout, branch.bump.repository.sites
    refs_by_name = _matching(checkout, bump, branch.base_remote, refs)
    if bump.base in refs_by_name:
        refs_by_name[bump.base] = branch.base_commit  # newer than the last fetch
    stored = blobs.read_blobs(checkout.path, [(ref, path) for ref in refs_by_name.values() for path in sites.pin_paths])
    rows: list[dict[str, object]] = []
    without_pins = []
    for name, ref in refs_by_name.items():
        texts: dict[str, str | None] = {}
        for path in sites.pin_paths:
            blob = stored[ref, path]
            texts[path] = blob[1] if blob else None
        if not sites.matches(texts):
            without_pins.append(name)
            continue
        pins = [pin for pin in check_pins(texts, sites) if pin.role == f"lockstep {bump.image_type}" and pin.image]
        tags = sorted({sites.family.read(ImageRef.parse(pin.image).tag or "") for pin in pins})
        state, fix = image_state(tags, bump, name)
        rows.append({"branch": name, "image": ", ".join(map(str, tags)) or "–", "state": state, "next": fix})
    if without_pins:
        return rows, f"Left out, as they have no known pin site: {', '.join(without_pins)}."
    return rows, ""


def image_state(tags: Sequence[Tag], bump: Bump, branch: str) -> tuple[str, str]:
    """Return the state of a branch with pins at these tags, compared with the bump's, and the command that fixes it."""
    check = f"runbook check --ref {branch}"
    if not tags:
        return "cannot tell", check
    if bump.tag is None and len(tags) > 1:
        return "out of sync", check
    if bump.tag is None:
        return "in sync", ""
    if any(is_older(tag, bump.tag) for tag in tags):
        return "older", command(BUMP, bump, base=branch, refs=None, apply=None, publish=None)
    if any(is_older(bump.tag, tag) for tag in tags):
        return "newer", ""
    if bump.tag in tags:
        return "names it", ""
    return "another edition or build", ""


def _matching(checkout: Checkout, bump: Bump, remote: str, refs: str) -> dict[str, str]:
    """Return the full refs of the branches that ``refs`` names, by their short names."""
    prefix = f"refs/remotes/{remote}/" if remote else "refs/heads/"
    known = {ref.removeprefix(prefix): ref for ref in blobs.branches(checkout.path) if ref.startswith(prefix)}
    chosen: dict[str, str] = {}
    for pattern in (refs or bump.repository.branches).replace(",", " ").split():
        short = pattern.removeprefix(f"{remote}/") if remote else pattern
        matched = [name for name in known if fnmatchcase(name, short)]
        if refs and not matched:
            raise CannotTell(f"No branch of {remote or 'this clone'} matches {pattern!r}. Fetch first, or correct it.")
        chosen |= {name: known[name] for name in matched if refs or name != bump.base}
    return chosen
