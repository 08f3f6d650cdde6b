"""The state of the practice forge, as pushes, comments, the bots and the clock change its pull requests and runs.

The rules of copy-pr-bot come from its documentation and from Megatron-LM's `.github/copy-pr-bot.yaml`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.practice import ci, evidence, seed
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.store import ACCOUNTS, ACTIONS_BOT, COPY_PR_BOT, ENGINEER, Store, StoredRun, Ticket
from runbook_lib.transport.downloads import MissingFile

REPOSITORY = "practice/Megatron-LM"
#: Duration of the practice CI in seconds of its clock, which each command moves on by more.
CI_SECONDS = 1000.0
#: The history of the practice checkout mentions an issue 8 and pull requests up to 9.
_FIRST_NUMBER = 10
#: Earlier runs of the merge queue: the pull request, and by how many seconds it is older than the world.
_QUEUE_RUNS = {7: 9 * 3600.0, 9: 6 * 3600.0}
#: GitHub's IDs exceed 32 bits; so must these, or a client that truncates them would not fail here.  The IDs of a run's
#: jobs and artifacts lie between its own and that of the next run.
_FIRST_ID, _IDS_OF_RUN, _IDS_OF_ATTEMPT, _ARTIFACTS = 5_000_000_000, 100_000, 1000, 50_000

_COMMAND = re.compile(r"/ok(?:ay)? to test(?:\s+(?P<sha>\S+))?")
_DRAFT = (
    "This PR has been automatically converted to **draft** because all PRs must start as drafts.\n\n"
    "When you are ready for review, click **Ready for Review** to begin the review process."
)
_NO_SYNC = "Auto-sync is disabled for draft pull requests in this repository. Workflows must be run manually."
_VETTING = "This pull request requires additional validation before any workflows can run on NVIDIA's runners."
_ERRORS = {
    "E1": "The command needs the full id of the commit to test: `/ok to test <commit id>`.",
    "E2": "The commit id is not that of the latest commit of this pull request.",
    "E3": "Only people with write access to this repository can authorize its workflows.",
}


class PracticeRefusal(NotAllowed):
    """What does not exist (``status`` 404, 410), or the account may not do (403)."""

    def __init__(self, message: str = "Not Found", status: int = 404) -> None:
        verb = "allow" if status == 403 else "find"
        super().__init__(f"The practice forge does not {verb} it: {message.rstrip('.')}.")
        self.message, self.status = message, status


@dataclass(frozen=True)
class StoredFile:
    """A file without a server; ``read`` returns the content, or raises PracticeRefusal."""

    read: Callable[[], bytes]

    def open(self, web: object) -> "FileInMemory":
        """Return the file for reading.  Raises MissingFile."""
        try:
            return FileInMemory(self.read())
        except PracticeRefusal as error:
            raise MissingFile(str(error)) from error


@dataclass(frozen=True)
class FileInMemory:
    """A file that is read in parts."""

    content: bytes

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.content)

    def part(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start``, or fewer at the end."""
        return self.content[start : start + size]


@dataclass(frozen=True)
class Attempt:
    """An attempt of a run, with its jobs, and its status now."""

    run: StoredRun
    number: int
    jobs: Sequence[ci.Job]
    status: ci.Status

    @property
    def started(self) -> float:
        return float(self.run.attempts[self.number - 1][0])

    @property
    def cancelled(self) -> float | None:
        cancelled: float | None = self.run.attempts[self.number - 1][1]
        return cancelled


@dataclass(frozen=True)
class ListedJob:
    """A job that GitHub lists, and its status now."""

    id: int
    attempt: Attempt
    planned: ci.Job
    status: ci.Status

    @property
    def ended(self) -> ci.Job:
        """The job as it ended, which is earlier than planned if the run was cancelled."""
        return evidence.as_ended(self.planned, self.attempt.started, self.status)

    @property
    def log(self) -> str:
        """The log of a job that has ended."""
        return evidence.log(self.ended, self.attempt.started + self.ended.starts)

    @property
    def artifact(self) -> int:
        """The ID of its artifact; 0 for a job that leaves none, because it never ran in this attempt."""
        ran = self.status.completed and self.status.started != self.status.completed and self.planned.starts >= 0
        return self.id + _ARTIFACTS if ran and self.planned.test_case else 0


class Hub:
    """One repository with its forks, tickets and runs.  Every method is called inside a transaction."""

    def __init__(
        self, store: Store, remote: Path, clock: Callable[[], float] | None = None,
        forks: Mapping[str, Path] = MappingProxyType({}), seconds: float = CI_SECONDS,
    ) -> None:  # fmt: skip
        """Open the forge of a bare repository; ``forks`` are those of other owners, ``seconds`` CI's duration."""
        self.store, self.repository, self.seconds = store, REPOSITORY, seconds
        self.clock = clock or store.now
        self.owner, self.name = REPOSITORY.split("/")
        self.home = BareRepository(remote)
        self.places = {self.owner: self.home} | {owner: BareRepository(path) for owner, path in forks.items()}
        self.inputs, self._first = lru_cache(64)(self._inputs), lru_cache(64)(self._first_jobs)
        with store.transaction():
            if not store.setting("seeded", False):
                self.create(seed.document()["issue"]["id"], ENGINEER.login, **seed.document()["issue"])
                if tip := self.home.tips().get("main"):
                    for number, age in _QUEUE_RUNS.items():
                        self._queue("main", number, tip, f"{tip}^", self.clock() - age)
                store.set("seeded", True)

    def create(self, number: int, author: str, **fields: Any) -> Ticket:
        """Write a new issue or pull request, with the next number if it is 0."""
        number = number or self.store.next("number", _FIRST_NUMBER)
        return self.store.save(Ticket(**{"created": self.clock(), **fields, "id": number, "author": author}))

    def ticket(self, number: int) -> Ticket:
        """Return the current state of an issue or a pull request.  Raises PracticeRefusal."""
        ticket = self.store.find(Ticket, number)
        if ticket is None:
            raise PracticeRefusal()
        return self.refreshed(ticket)

    def tickets(self) -> list[Ticket]:
        """Return all issues and pull requests, newest first."""
        return [self.refreshed(ticket) for ticket in reversed(self.store.all(Ticket))]

    def refreshed(self, ticket: Ticket) -> Ticket:
        """Return a ticket after a check of its branches, if it is a pull request: pushed to, merged or deleted."""
        if not ticket.base_ref or ticket.state != "open":
            return ticket
        head = self.places[ticket.head_owner].tips().get(ticket.head_ref)
        base = self.home.tips().get(ticket.base_ref, ticket.base_sha)
        if head is not None and head != ticket.head_sha:
            self.home.fetch(self.places[ticket.head_owner], head)
            self.home.set_ref(f"refs/pull/{ticket.id}/head", head)
            ticket = self.store.change(ticket, head_sha=head, base_sha=base)
            self.stop_runs(ticket)
        if base != ticket.base_sha and self.home.contains(base, ticket.head_sha):
            self._queue(ticket.base_ref, ticket.id, base, ticket.base_sha, self.clock())
            return self.close(self.store.change(ticket, merged=True, merge_sha=base))
        return self.close(ticket) if head is None else ticket

    def close(self, ticket: Ticket) -> Ticket:
        """Close a ticket; copy-pr-bot deletes the mirror of a pull request."""
        if ticket.base_ref and ticket.mirror in self.home.tips():
            self.home.set_ref(f"refs/heads/{ticket.mirror}", None)
        return self.store.change(ticket, state="closed")

    def add_comment(self, ticket: Ticket, author: str, body: str) -> dict[str, Any]:
        """Add a comment, to which copy-pr-bot may answer."""
        comment = {"id": self.store.next("comment", _FIRST_ID), "author": author, "body": body, "created": self.clock()}
        ticket = self.store.change(ticket, comments=[*ticket.comments, comment])
        command = _COMMAND.fullmatch(body.strip())
        if command and ticket.base_ref and ticket.state == "open":
            error = "" if command["sha"] == ticket.head_sha else "E2" if command["sha"] else "E1"
            error = error if ACCOUNTS[author].may_write else "E3"
            run = None if error else self.start_run(ticket)
            answer = f"@{author}, there was an error processing your request: `{error}`\n\n{_ERRORS.get(error)}"
            if run and "refused" in run.script.values():
                # GitHub shows a failed deployment in the timeline.  The forge adds a comment, which people read.
                answer = f"copy-pr-bot had a problem deploying to test (commit {run.head_sha})."
            if error or (run and "refused" in run.script.values()):
                self.add_comment(ticket, COPY_PR_BOT.login, answer)
        return comment

    def welcome(self, ticket: Ticket) -> None:
        """Do what the bots do to a new pull request: every one becomes a draft."""
        if not ticket.draft:
            ticket = self.store.change(ticket, draft=True)
            self.add_comment(ticket, ACTIONS_BOT.login, _DRAFT)
        answer = _NO_SYNC if ACCOUNTS[ticket.author].may_write else _VETTING
        self.add_comment(self.ticket(ticket.id), COPY_PR_BOT.login, answer)

    def label(self, ticket: Ticket, name: str, on: bool) -> Ticket:
        """Add or remove a label."""
        if (name in ticket.labels) == on:
            return ticket
        labels = [*ticket.labels, name] if on else [label for label in ticket.labels if label != name]
        return self.store.change(ticket, labels=labels, events=[*ticket.events, [name, on, self.clock()]])

    def with_merge_commit(self, ticket: Ticket) -> Ticket:
        """Return the pull request with the merge commit of this moment."""
        base = self.home.tips().get(ticket.base_ref, ticket.base_sha)
        key = f"{base} {ticket.head_sha}"
        if ticket.merge_of == key:
            return ticket
        merge = self.home.merge(base, ticket.head_sha)
        if merge:
            self.home.set_ref(f"refs/pull/{ticket.id}/merge", merge)
        return self.store.change(ticket, merge_sha=merge, merge_of=key, mergeable=merge is not None)

    # -- CI ---------------------------------------------------------------------------------------------------------

    def start_run(self, ticket: Ticket) -> StoredRun | None:
        """Mirror the head of a pull request and test its merge commit; return None if that was done before.

        A forge that was killed in between has the mirror, but no run of it.
        """
        mirrored = self.home.tips().get(ticket.mirror) == ticket.head_sha
        if mirrored and any(run.head_sha == ticket.head_sha for run in self._runs_of(ticket)):
            return None
        self.stop_runs(ticket)
        self.home.set_ref(f"refs/heads/{ticket.mirror}", ticket.head_sha)
        ticket = self.with_merge_commit(ticket)
        script, refused = self.store.setting("script", {}), self.store.setting("refused deployments", [])
        if ticket.head_sha in refused or "next" in refused:
            script = {"cicd-wait-in-queue": "refused"}
        if not ticket.merge_sha:  # there is nothing to check out
            script = {"configure": "broken"}
        self.store.set("refused deployments", [sha for sha in refused if sha != "next"])
        return self._start(
            pull=ticket.id, title=ticket.title, head_sha=ticket.head_sha, head_branch=ticket.mirror,
            merge_sha=ticket.merge_sha or ticket.head_sha, base_sha=ticket.merge_of.split()[0], labels=ticket.labels,
            insider=ACCOUNTS[ticket.author].may_write, event="push", script=script, created=self.clock(),
        )  # fmt: skip

    def _queue(self, branch: str, number: int, tip: str, base: str, moment: float) -> None:
        """Test a merged commit, as the merge queue does before it moves the branch to it."""
        base_sha = self.home.resolve(base) or tip
        name = f"gh-readonly-queue/{branch}/pr-{number}-{base_sha}"
        self._start(
            pull=number, title=ci.WORKFLOW, head_sha=tip, head_branch=name, merge_sha=tip, base_sha=base_sha,
            labels=[], insider=True, event="merge_group", script={}, created=moment,
        )  # fmt: skip

    def _start(self, *, created: float, **fields: Any) -> StoredRun:
        number = self.store.next("run", _FIRST_ID, _IDS_OF_RUN)
        seconds = self.store.setting("ci seconds", self.seconds)
        return self.store.save(
            StoredRun(**fields, id=number, seconds=seconds, created=created, attempts=[[created, None]])
        )

    def _inputs(self, run_id: int) -> ci.Inputs:
        """Return what decides a run, which never changes."""
        run = self.store.find(StoredRun, run_id)
        if run is None:
            raise PracticeRefusal()
        return ci.Inputs(
            self.home.texts(run.merge_sha, *ci.FILES), self.home.texts(run.base_sha, *ci.FILES), tuple(run.labels),
            run.event, run.insider, run.seconds, run.script,
        )  # fmt: skip

    def _first_jobs(self, run_id: int) -> tuple[ci.Job, ...]:
        return ci.jobs(self.inputs(run_id))

    def _runs_of(self, ticket: Ticket) -> list[StoredRun]:
        return [run for run in self.store.all(StoredRun) if run.pull == ticket.id and run.event == "push"]

    def runs(self, matches: Callable[[StoredRun], bool]) -> list[Attempt]:
        """Return the runs that match at their latest attempts, newest first."""
        self.tickets()
        return [self.attempts(run)[-1] for run in reversed(self.store.all(StoredRun)) if matches(run)]

    def run(self, run_id: int) -> list[Attempt]:
        """Return the attempts of a run.  Raises PracticeRefusal."""
        run = self.store.find(StoredRun, run_id)
        if run is None:
            raise PracticeRefusal()
        if self.store.find(Ticket, run.pull):
            self.ticket(run.pull)  # a push since the last request may have stopped the run
        return self.attempts(self.store.find(StoredRun, run_id) or run)

    def attempts(self, run: StoredRun) -> list[Attempt]:
        """Return the attempts of a run."""
        jobs, found = self._first(run.id), list[Attempt]()
        for number, (started, cancelled) in enumerate(run.attempts, 1):
            if found:
                before = found[-1]
                jobs = ci.retry(jobs, started - before.started, before.cancelled and before.cancelled - before.started)
            status = ci.run_at(jobs, started, self.clock(), cancelled)
            found.append(Attempt(run, number, jobs, status))
        return found

    def stop_runs(self, ticket: Ticket) -> None:
        """Cancel the runs of a pull request that have not ended."""
        for run in self._runs_of(ticket):
            if self.attempts(run)[-1].status.status != "completed":
                *before, (started, _) = run.attempts
                self.store.change(run, attempts=[*before, [started, self.clock()]])

    def jobs(self, attempt: Attempt) -> list[ListedJob]:
        """Return the jobs that are listed now."""
        listed, first = [], attempt.run.id + _IDS_OF_ATTEMPT * attempt.number
        for number, job in enumerate(attempt.jobs, first):
            status = ci.job_at(job, attempt.started, self.clock(), attempt.cancelled)
            if status is not None:
                listed.append(ListedJob(number, attempt, job, status))
        return listed

    def job(self, number: int) -> ListedJob:
        """Return the job with this ID, or with the artifact that has it.  Raises PracticeRefusal."""
        run_id = number - (number - _FIRST_ID) % _IDS_OF_RUN
        for attempt in self.run(run_id):
            for job in self.jobs(attempt):
                if number in (job.id, job.artifact):
                    return job
        raise PracticeRefusal()

    def archive(self, job: ListedJob) -> bytes:
        """Return the artifact of a job that has ended; it contains no golden values if the job did not end itself."""
        ended = job.ended
        golden = self.inputs(job.attempt.run.id).measured(ended) if ended is job.planned else {}
        named = {path.rpartition("/")[2]: text for path, text in golden.items()}
        return evidence.archive(ended, named, job.attempt.started)
