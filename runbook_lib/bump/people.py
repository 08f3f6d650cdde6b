"""The work that a bump leaves to people once it is ready, and what nobody has tested or refreshed by then."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from runbook_lib import notebooks
from runbook_lib.bump import branch_history, gitlab_tests, policy
from runbook_lib.errors import RunbookError
from runbook_lib.failures import quarantines
from runbook_lib.failures.failed_jobs import MAX_AGE
from runbook_lib.text.lists import join_first
from runbook_lib.world.bump_branch import BumpBranch, PullRequestState, read_progress
from runbook_lib.world.github.ci_status import CiStatus, branch_of, on_base
from runbook_lib.world.github.models import Pull, WorkflowJob
from runbook_lib.world.ports import Forge

#: The branches of the weekly updates of ``uv.lock``.
_UPDATES = "bump-ci-container-"
_MOST_RUNS = 5  # of the merge queue that are read


@dataclass(frozen=True)
class Head:
    """The bump's pull request, and the review of its commits."""

    branch: BumpBranch
    state: PullRequestState
    pull: Pull
    github: Forge
    review: branch_history.Review

    @cached_property
    def ci(self) -> CiStatus:
        """The state of its CI run, read once.  Raises RunbookError if it cannot be."""
        return read_progress(self.state, self.pull, self.github)


def left_to_people(head: Head) -> Iterator[str]:
    """Yield, once every requirement is met, what people do and know before the merge."""
    branch, pull, github = head.branch, head.pull, head.github
    repository = branch.bump.repository
    if pull.draft:
        yield f"Press “Ready for review” on {pull.url}."
    yield "Get the code owners' reviews."
    if not repository.ci.workflow:
        yield f"{policy.describe_triggers(branch)} Read the checks of {pull.url}, which are not followed here."
    yield from gitlab_tests.describe(branch)
    if repository.tests.golden and branch.bump.image_type == "dev":
        fork = branch.checkout.merge_base(pull.head_sha, branch.base_commit) or branch.base_commit
        yield from gitlab_tests.unrefreshed(branch, fork, pull.head_sha)
    yield from (sentence for label, sentence in repository.ci.offers.items() if label not in pull.labels)
    if repository.ci.workflow:
        try:
            yield from _around(github, pull)
            off = {each.test for each in quarantines.quarantined_since_fork(branch, pull.head_sha)}
            yield from _queue(github, pull, repository.ci.workflow, head.ci, off)
        except RunbookError as error:
            yield f"Look for open pull requests that this one concerns, and what only the merge queue tests: {error}"
    if sentence := repository.ci.syncs.get(pull.base_ref):
        yield sentence
    merge = "Add it to the merge queue" if repository.ci.workflow else "Merge it"
    yield f"{merge}; then run {notebooks.AFTER_MERGE}."


def _around(github: Forge, pull: Pull) -> Iterator[str]:
    """Yield what the merge means for other open pull requests."""
    copied = branch_of(pull.number)
    for other in github.pulls(base=copied):
        yield f"Retarget #{other.number} before the merge, because its base is {copied}: {other.url}."
    updates = [other for other in github.pulls(base=pull.base_ref) if other.head_ref.startswith(_UPDATES)]
    paths = frozenset(github.files(pull.number)) if updates else frozenset()
    for other in updates:
        if same := sorted(paths.intersection(github.files(other.number))):
            yield f"#{other.number} changes {join_first(same, 6)} too: whichever is merged last needs an update."


def _queue(github: Forge, pull: Pull, workflow: str, status: CiStatus, off: AbstractSet[str]) -> Iterator[str]:
    """Yield what only the merge queue will test, according to its newest complete run into the base.

    One of documents only, or with an early end, tests less than half of what tested the pull request.  ``off`` are the
    tests that the bump itself switches off.
    """
    if status.run is None:
        return
    here = _tested(status.jobs)
    runs = github.runs(event="merge_group", since=status.run.created - MAX_AGE)
    ended = (run for run in runs if run.status == "completed" and run.name == workflow and on_base(run, pull.base_ref))
    for run in islice(ended, _MOST_RUNS):
        queued = _tested(github.jobs(run.id))
        if 2 * len(here & queued) >= len(here):
            break
    else:
        yield "What only the merge queue will test is unknown: no recent and complete run of it was found."
        return
    names = [name for name in sorted(queued - here) if name.partition(" - ")[0] not in off]
    known = f"CI run {run.id} of {run.created:%Y-%m-%d} there"
    jobs = f"{join_first(names, 6)} (as in {known})" if names else f"no other job ({known} had none)"
    yield f"Only the merge queue will test the merge with what is merged before it, and {jobs}."


def _tested(jobs: Iterable[WorkflowJob]) -> set[str]:
    return {job.name for job in jobs if job.conclusion not in ("skipped", "cancelled")}
