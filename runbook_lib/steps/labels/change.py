"""What a pull request or a git range changes, and the labels that this asks for: ``runbook labels``.

Changes nothing: it reads a clone and, for a pull request, GitHub.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runbook_lib.bump import ImageType
from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.blobs import read_blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.recipes import rows
from runbook_lib.steps.labels import rules
from runbook_lib.steps.labels.rules import Facts, Label


@dataclass(frozen=True)
class Changed:
    """``name`` is what was looked at.  ``present`` are the labels of a pull request, None for a range.

    ``unsure`` says what could not be looked at.
    """

    name: str
    paths: tuple[str, ...]
    facts: Facts = field(default_factory=Facts)
    present: frozenset[str] | None = None
    unsure: str = ""

    @property
    def needed(self) -> tuple[Label, ...]:
        """The labels that the change asks for."""
        return rules.wanted(self.paths, self.facts)


def of_range(checkout: Checkout, span: str) -> Changed:
    """What ``BASE..HEAD`` changes since both parted.  Raises CannotTell for a commit that is not there."""
    base, _, head = span.replace("...", "..").partition("..")
    try:
        old, new = checkout.resolve(base or "HEAD"), checkout.resolve(head or "HEAD")
    except RunbookError as error:
        raise CannotTell(f"{span!r} is no range of commits of {checkout.path}. {error}") from error
    fork = checkout.merge_base(old, new)
    if fork is None:
        raise CannotTell(f"{base} and {head} in {checkout.path} have no commit in common, so there is no range.")
    paths, facts = _looked_at(checkout, fork, new)
    return Changed(span, paths, facts)


def of_pull(checkout: Checkout, github: GitHub, number: int) -> Changed:
    """What a pull request changes, and the labels that it has.

    Where this clone has not fetched its head commit, the paths alone must tell.
    """
    pull = github.pull(number)
    name = f"#{number} {pull.title}"
    if checkout.has(pull.head_sha) and checkout.has(pull.base_sha):
        fork = checkout.merge_base(pull.base_sha, pull.head_sha)
        if fork is not None:
            paths, facts = _looked_at(checkout, fork, pull.head_sha)
            return Changed(name, paths, facts, pull.labels)
    paths = tuple(sorted(set(github.files(number))))
    unsure = (
        f"This clone does not have {pull.head_sha[:10]}, so by the paths alone: whether a test is new or comes back "
        f"was not looked at. To know: git fetch {checkout.base_remote() or 'origin'} pull/{number}/head."
    )
    return Changed(name, paths, Facts(bumped=rules.by_paths(paths)), pull.labels, unsure)


def _looked_at(checkout: Checkout, old: str, new: str) -> tuple[tuple[str, ...], Facts]:
    listed = checkout.git("diff", "--name-status", "--no-renames", "-z", old, new).split("\0")
    changed = dict(zip(listed[1::2], listed[0::2], strict=False))
    added = frozenset(path for path, status in changed.items() if status == "A")
    of_recipes = [path for path in changed if path.startswith(f"{rows.FOLDER}/") and path.endswith((".yaml", ".yml"))]
    before, after = (_texts(checkout.path, at, of_recipes) for at in (old, new))
    bumped: frozenset[ImageType] = frozenset()
    pins = MEGATRON_LM.sites.pin_paths
    if set(changed) & set(pins):
        was, now = (_texts(checkout.path, at, pins) for at in (old, new))
        bumped = rules.moved(was, now)
    return tuple(sorted(changed)), Facts(added, rules.anew(before, after), bumped)


def _texts(place: Path, commit: str, paths: Collection[str]) -> Mapping[str, str | None]:
    found = read_blobs(place, [(commit, path) for path in paths])
    return {path: blob[1] if (blob := found[commit, path]) else None for path in paths}
