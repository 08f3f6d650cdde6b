"""The status of CI for a bump, from a CI run's status, jobs and labels.

The rules are those of Megatron-LM: workflow ``CICD Megatron-LM`` on the branch ``pull-request/<N>`` to which
copy-pr-bot mirrors a pull request, tests chosen by labels, and a queue (environment ``test``) before the tests.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from runbook_lib import notebooks
from runbook_lib.images.reference import ImageType
from runbook_lib.model import Next
from runbook_lib.pins.repositories import MEGATRON_LM, Repository
from runbook_lib.text.lists import join_first
from runbook_lib.world.github.models import LabelEvent, WorkflowJob, WorkflowRun

WORKFLOW = MEGATRON_LM.ci.workflow

State = Literal[
    "none", "queued", "waiting", "running",
    "passed", "failed", "cancelled", "unknown", "useless", "refused", "superseded",
]  # fmt: skip

#: Maximum number of failed jobs named in a sentence.
_MOST_NAMES = 3

#: Conclusions of runs, and of jobs, that failed.
BAD_RUN = frozenset({"failure", "timed_out", "startup_failure", "action_required"})
#: A job that hangs is cancelled by its time limit.
BAD_JOB = BAD_RUN | {"cancelled"}


#: The runners that Megatron-LM's workflow selects, by the beginnings of their labels (``selected_runner`` there).
_RUNNERS = {"nvidia-ci-aws-use2-gpu-x4": "dgx_gb200", "nvidia-ci-aws-gpu-x8": "dgx_h100"}


def platform_of(job: WorkflowJob) -> str:
    """Return the platform on which a job ran, from its runner and the end of its name; empty if neither shows it.

    Tests with the same name run on several platforms, and the name of a functional test does not show the platform.
    """
    for text in (*job.runners, job.name.rpartition(" - ")[2]):
        if match := re.search(r"gb200|h100|a100", text.lower()):
            return f"dgx_{match[0]}"
        for beginning, platform in _RUNNERS.items():
            if text.startswith(beginning):
                return platform
    return ""


def branch_of(number: int) -> str:
    """Return the branch on which CI runs for a pull request."""
    return f"pull-request/{number}"


def pull_of(branch: str) -> int:
    """Return the number of the pull request for which CI runs on a branch; 0 for any other branch."""
    match = re.fullmatch(r"pull-request/([0-9]{1,18})", branch)
    return int(match[1]) if match else 0


def labels_at(now: Collection[str], events: Iterable[LabelEvent], moment: datetime) -> frozenset[str]:
    """Return the labels at a given time, from the current ones and the events since."""
    labels = set(now)
    for event in sorted(events, key=lambda event: event.at, reverse=True):
        if event.at > moment and event.on:
            labels.discard(event.label)
        elif event.at > moment:
            labels.add(event.label)
    return frozenset(labels)


def wrong_tests(labels: Collection[str], image_type: ImageType, repository: Repository = MEGATRON_LM) -> str:
    """Return why a run that started with these labels is useless for a bump; empty when it is not."""
    on, off = repository.ci.wanted_labels(image_type)
    wrong = [f"without the label {label!r}" for label in sorted(on.difference(labels))]
    wrong += [f"with the label {label!r}" for label in sorted(off.intersection(labels))]
    return " and ".join(wrong)


@dataclass(frozen=True)
class CiStatus:
    """The state of CI for a commit; ``next`` is empty if nothing needs to be done.

    ``progress`` is how far a run under way is, which changes while the state stays.
    """

    state: State
    run: WorkflowRun | None
    jobs: tuple[WorkflowJob, ...]
    sentence: str
    next: Next = field(default_factory=Next)
    progress: str = ""

    @property
    def text(self) -> str:
        """The sentence with the progress."""
        return f"{self.sentence} ({self.progress})" if self.progress else self.sentence

    @property
    def is_over(self) -> bool:
        """True if waiting longer would change nothing."""
        return self.state not in ("none", "queued", "waiting", "running")

    @property
    def mark(self) -> str:
        """A text that changes with the state, with a further failure, and with every tenth of the jobs."""
        failed = sum(job.conclusion in BAD_JOB for job in self.jobs)
        ended = sum(job.status == "completed" for job in self.jobs)
        return f"{self.state} {failed} {ended * 10 // max(len(self.jobs), 1)}"


def count_jobs(jobs: Iterable[WorkflowJob]) -> str:
    """Return the number of jobs by conclusion, in words."""
    counts = Counter((job.conclusion or job.status).replace("_", " ") for job in jobs)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "no job yet"


def on_base(run: WorkflowRun, base: str) -> bool:
    """Return True for a run of a base branch, or of the merge queue in front of it, where upstream tests a merge.

    A branch in a fork may have the same name as the base.
    """
    return not run.fork and (run.head_branch == base or run.head_branch.startswith(f"gh-readonly-queue/{base}/pr-"))


def choose(runs: Iterable[WorkflowRun], head: str, workflow: str = WORKFLOW) -> WorkflowRun | None:
    """Return the newest run of the workflow for exactly this commit.

    A fork may also have a branch ``pull-request/<N>``, whose runs were not started by copy-pr-bot.
    """
    mine = [run for run in runs if run.head_sha == head and run.name == workflow and not run.fork]
    return max(mine, key=lambda run: (run.created, run.id), default=None)


def judge(run: WorkflowRun | None, jobs: Sequence[WorkflowJob], head: str, wrong: str = "") -> CiStatus:
    """Return the status of CI for ``head``; ``wrong`` is the reason why the run is useless, if it is."""
    ran = tuple(jobs)
    if run is None:
        advice = "If none starts within a few minutes, see copy-pr-bot's comments."
        return CiStatus("none", run, ran, f"waiting for a CI run of {head[:10]} to start", Next.again(advice))
    name = f"CI run {run.id} of {head[:10]}"
    if wrong:
        advice = "A commit is tested only once: push another one to the branch (it may be empty), then:"
        sentence = f"waiting for another CI run: {name} started {wrong}, so it is useless"
        return CiStatus("useless", run, ran, sentence, Next.again(advice))
    if run.status != "completed":
        state, progress = _progress(run, ran)
        following = Next.again(f"To follow {run.url}:", wait=True)
        return CiStatus(state, run, ran, f"waiting for {name}", following, progress)
    if run.conclusion == "success":
        return CiStatus("passed", run, ran, f"{name} passed ({count_jobs(ran)}).")
    if run.conclusion == "cancelled":
        advice = f"Rerun it at {run.url} unless a push has cancelled it, then:"
        return CiStatus("cancelled", run, ran, f"waiting for another CI run: {name} was cancelled", Next.again(advice))
    if run.conclusion not in BAD_RUN:
        sentence = f"waiting for a person: {name} ended with the conclusion {run.conclusion!r}"
        return CiStatus("unknown", run, ran, sentence, Next(f"Open {run.url}"))
    bad = sorted({job.name for job in ran if job.conclusion in BAD_JOB})
    sentence = f"waiting for a person: {name} failed ({join_first(bad, _MOST_NAMES) or 'no failed job'})"
    advice = (
        f"{notebooks.GOLDEN_VALUES} refreshes the values that drifted, and {notebooks.BROKEN_TESTS} triages the other "
        f"failures ({run.url})."
    )
    is_unit_test = any(name.startswith("tests/") for name in bad)  # then CI ran no functional test
    first = notebooks.BROKEN_TESTS if is_unit_test else notebooks.GOLDEN_VALUES
    return CiStatus("failed", run, ran, sentence, Next.run(first, advice, run_id=str(run.id)))


def _progress(run: WorkflowRun, jobs: Sequence[WorkflowJob]) -> tuple[State, str]:
    """Return the state of a run that has not ended, and how far it is."""
    done = sum(job.status == "completed" for job in jobs)
    failed = sum(job.conclusion in BAD_RUN for job in jobs)
    counts = f"{done} of {len(jobs)} jobs done" if jobs else "no job yet"
    if failed:
        counts += f", {failed} failed"
    since = f" since {run.created:%Y-%m-%d %H:%M} UTC"
    # In the queue, its job waits for a bot, and no other job runs.
    open_jobs = {job.status for job in jobs if job.status != "completed"}
    if run.status == "waiting" or ("waiting" in open_jobs and "in_progress" not in open_jobs):
        return "waiting", f"in the test queue{since}"
    if run.status != "in_progress" and not done:
        return "queued", f"queued{since}"
    return "running", counts
