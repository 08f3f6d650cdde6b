"""The changes of a pull request or a git range, and the labels that they need.  Changes nothing."""

from dataclasses import dataclass, field

from runbook_lib.bump import ImageType
from runbook_lib.clients.github.client import GitHub
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.recipes import rows
from runbook_lib.steps.labels import rules
from runbook_lib.steps.labels.rules import ChangeFacts, Label


@dataclass(frozen=True)
class LabelledChange:
    """A change; ``present`` are the labels of a pull request, None for a range.

    ``limitation`` says what could not be examined.
    """

    name: str
    paths: tuple[str, ...]
    facts: ChangeFacts = field(default_factory=ChangeFacts)
    present: frozenset[str] | None = None
    limitation: str = ""

    @property
    def needed(self) -> tuple[Label, ...]:
        """The labels that the change needs."""
        return rules.needed_labels(self.paths, self.facts)


def of_range(checkout: Checkout, span: str) -> LabelledChange:
    """Return the changes in ``BASE..HEAD`` since both diverged.  Raises CannotTell for an unknown commit."""
    base, _, head = span.replace("...", "..").partition("..")
    try:
        old, new = checkout.resolve(base or "HEAD"), checkout.resolve(head or "HEAD")
    except RunbookError as error:
        raise CannotTell(f"{span!r} is not a range of commits of {checkout.path}. {error}") from error
    fork = checkout.merge_base(old, new)
    if fork is None:
        raise CannotTell(f"{base} and {head} in {checkout.path} have no commit in common, so there is no range.")
    paths, facts = _examine(checkout, fork, new)
    return LabelledChange(span, paths, facts)


def of_pull(checkout: Checkout, github: GitHub, number: int) -> LabelledChange:
    """Return the changes of a pull request, and its labels.

    If this clone does not have its head commit, only the paths are examined.
    """
    pull = github.pull(number)
    name = f"#{number} {pull.title}"
    if checkout.has(pull.head_sha) and checkout.has(pull.base_sha):
        fork = checkout.merge_base(pull.base_sha, pull.head_sha)
        if fork is not None:
            paths, facts = _examine(checkout, fork, pull.head_sha)
            return LabelledChange(name, paths, facts, pull.labels)
    paths = tuple(sorted(set(github.files(number))))
    limitation = (
        f"This clone does not have {pull.head_sha[:10]}, so only the paths were examined, not whether a test is new or "
        f"runs again. To examine all: git fetch {checkout.base_remote() or 'origin'} pull/{number}/head."
    )
    return LabelledChange(name, paths, ChangeFacts(bumped=rules.bumped_by_paths(paths)), pull.labels, limitation)


def _examine(checkout: Checkout, old: str, new: str) -> tuple[tuple[str, ...], ChangeFacts]:
    """Return the changed paths, and the facts that only the contents show."""
    fields = checkout.git("diff", "--name-status", "--no-renames", "-z", old, new).split("\0")
    statuses = dict(zip(fields[1::2], fields[0::2], strict=False))
    added = frozenset(path for path, status in statuses.items() if status == "A")
    recipes = [path for path in statuses if path.startswith(f"{rows.FOLDER}/") and path.endswith((".yaml", ".yml"))]
    newly_run = rules.newly_run_tests(checkout.read(recipes, old), checkout.read(recipes, new))
    bumped: frozenset[ImageType] = frozenset()
    pins = MEGATRON_LM.sites.pin_paths
    if statuses.keys() & set(pins):
        bumped = rules.bumped_by_pins(checkout.read(pins, old), checkout.read(pins, new))
    return tuple(sorted(statuses)), ChangeFacts(added, newly_run, bumped)
