"""The state of the practice forge, as pushes, comments and the clock change its pull requests and runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runbook_lib.clients.github.errors import NotAllowed
from runbook_lib.errors import RunbookError
from runbook_lib.pins.repositories import LTS
from runbook_lib.practice import content
from runbook_lib.practice.accounts import ACCOUNTS, ACTIONS_BOT, COPY_PR_BOT, ENGINEER, PracticeAccount
from runbook_lib.practice.ci import evidence, plan
from runbook_lib.practice.git import BareRepository
from runbook_lib.practice.store import (
    AttemptRecord,
    CommentRecord,
    EventRecord,
    JobRecord,
    LabelRecord,
    RunRecord,
    Store,
    TicketRecord,
)
from runbook_lib.recipes import rows

REPOSITORY = "practice/Megatron-LM"
#: Duration of the practice CI in seconds of its clock, which each command moves on by more.
CI_SECONDS = 1000.0
#: The history of the practice checkout mentions an issue 8 and pull requests up to 9.
_FIRST_NUMBER = 10
#: CI tests main every day; the last time was this many seconds before the world was created.
_LAST_DAILY_RUN = 6 * 3600.0


class PracticeRefusal(NotAllowed):
    """What does not exist (``status`` 404, 410), or the account may not do (403)."""

    def __init__(self, message: str = "Not Found", status: int = 404) -> None:
        verb = "allow" if status == 403 else "find"
        super().__init__(f"The practice forge does not {verb} it: {message.rstrip('.')}.")
        self.message, self.status = message, status


class InvalidRequest(RunbookError):
    """A request that GitHub answers with 422: a ``field`` of a ``resource`` with an error ``code``, or a message."""

    def __init__(self, resource: str, *, field: str = "", code: str = "custom", message: str = "") -> None:
        super().__init__(f"The practice forge refuses it: {resource} {field} {code} {message}".rstrip())
        self.error = {"resource": resource, "code": code, "field": field, "message": message}


@dataclass(frozen=True)
class RunState:
    """A run with one of its attempts and that attempt's jobs, and its status now."""

    run: RunRecord
    attempt: AttemptRecord
    jobs: Sequence[JobRecord]
    status: plan.GitHubStatus


@dataclass(frozen=True)
class JobState:
    """A job of an attempt, and its status now."""

    state: RunState
    record: JobRecord
    status: plan.GitHubStatus

    @property
    def planned(self) -> plan.Planned:
        """The job as it ended, which is earlier than planned if the run was cancelled."""
        return evidence.as_ended(self.record.planned, self.state.attempt.started, self.status)

    @property
    def log(self) -> str:
        """The log of a job that has ended."""
        planned = self.planned
        return evidence.log(planned, self.state.attempt.started + planned.starts)


class Hub:
    """One repository with its forks, tickets and runs.  Every method is called inside a transaction."""

    def __init__(
        self, store: Store, remote: Path, clock: Callable[[], float] | None = None,
        forks: Mapping[str, Path] = MappingProxyType({}), repository: str = REPOSITORY, seconds: float = CI_SECONDS,
    ) -> None:  # fmt: skip
        """Open the forge of a bare repository; ``forks`` are those of other owners, ``seconds`` CI's duration."""
        self.store, self.repository, self._default_seconds = store, repository, seconds
        self.clock = clock or store.now
        self.owner, self.name = repository.split("/")
        self.home = BareRepository(remote)
        self.places = {self.owner: self.home} | {owner: BareRepository(path) for owner, path in forks.items()}
        with store.transaction():
            if not store.setting("seeded", False):
                self._seed()

    def _seed(self) -> None:
        for label in content.document()["labels"]:
            self.store.create(LabelRecord, **label)
        now = self.clock()
        if self.repository == REPOSITORY:
            self.store.create(
                TicketRecord, author=ENGINEER.login, created=now, updated=now, **content.document()["issue"]
            )
            if tip := self.home.tips().get("main"):
                self._dispatch("main", tip, tip, now - _LAST_DAILY_RUN)
        self.store.set("next number", _FIRST_NUMBER)
        self.store.set("seeded", True)

    def ticket(self, number: int) -> TicketRecord:
        """Return the current state of an issue or a pull request.  Raises PracticeRefusal."""
        ticket = self.store.find(TicketRecord, number)
        if ticket is None:
            raise PracticeRefusal()
        return self.refreshed(ticket)

    def tickets(self) -> list[TicketRecord]:
        """Return all issues and pull requests, newest first."""
        return [self.refreshed(ticket) for ticket in reversed(self.store.all(TicketRecord))]

    def refreshed(self, ticket: TicketRecord) -> TicketRecord:
        """Return a ticket after a check of its branches, if it is a pull request: pushed to, merged or deleted."""
        if not ticket.is_pull or ticket.state != "open" or ticket.head_owner not in self.places:
            return ticket
        now = self.clock()
        head = self.places[ticket.head_owner].tips().get(ticket.head_ref)
        base = self.home.tips().get(ticket.base_ref, ticket.base_sha)
        if head is not None and head != ticket.head_sha:
            self.home.fetch(self.places[ticket.head_owner], head)
            self.home.set_ref(f"refs/pull/{ticket.number}/head", head)
            ticket = self.store.change(ticket, head_sha=head, base_sha=base, updated=now)
            self.stop_runs(ticket)
        if base != ticket.base_sha and self.home.contains(base, ticket.head_sha):
            self._dispatch(ticket.base_ref, base, ticket.base_sha, now)
            return self.close(self.store.change(ticket, merged=now, merge_sha=base))
        if head is None:
            return self.close(ticket)
        return ticket

    def close(self, ticket: TicketRecord, reason: str | None = None) -> TicketRecord:
        """Close a ticket; copy-pr-bot deletes the mirror of a pull request."""
        if ticket.is_pull and ticket.mirror in self.home.tips():
            self.home.set_ref(f"refs/heads/{ticket.mirror}", None)
        now = self.clock()
        return self.store.change(ticket, state="closed", state_reason=reason, closed=now, updated=now)

    def add_comment(self, ticket: TicketRecord, author: PracticeAccount, body: str) -> CommentRecord:
        """Add a comment."""
        now = self.clock()
        self.store.change(ticket, updated=now)
        return self.store.create(CommentRecord, number=ticket.number, author=author.login, body=body, created=now)

    def set_labels(self, ticket: TicketRecord, names: Sequence[str], actor: str) -> TicketRecord:
        """Give the ticket exactly these labels; unknown ones are created, as on GitHub, and case is ignored."""
        now = self.clock()
        labels = {label.name.lower(): label.name for label in self.store.all(LabelRecord)}
        for name in names:
            if name.lower() not in labels:
                labels[name.lower()] = name
                self.store.create(LabelRecord, name=name, color="ededed")
        requested = list(dict.fromkeys(labels[name.lower()] for name in names))
        for name in (*ticket.labels, *requested):
            if (name in ticket.labels) != (name in requested):
                event = "labeled" if name in requested else "unlabeled"
                fields = {"number": ticket.number, "actor": actor, "event": event, "created": now}
                self.store.create(EventRecord, **fields, label=name)
        return self.store.change(ticket, labels=requested, updated=now)

    def with_merge_commit(self, ticket: TicketRecord) -> TicketRecord:
        """Return the pull request with the merge commit of this moment."""
        base = self.home.tips().get(ticket.base_ref, ticket.base_sha)
        key = f"{base} {ticket.head_sha}"
        if ticket.merge_of == key:
            return ticket
        merge = self.home.merge(base, ticket.head_sha)
        if merge:
            self.home.set_ref(f"refs/pull/{ticket.number}/merge", merge)
        return self.store.change(ticket, merge_sha=merge, merge_of=key, mergeable=merge is not None)

    def start_run(self, ticket: TicketRecord) -> RunRecord | None:
        """Mirror the head of a pull request and test its merge commit; return None if that was done before.

        A forge that was killed in between has the mirror, but no run of it.
        """
        mirrored = self.home.tips().get(ticket.mirror) == ticket.head_sha
        if mirrored and any(run.head_sha == ticket.head_sha for run in self.store.all(RunRecord, ticket.number)):
            return None
        self.stop_runs(ticket)
        self.home.set_ref(f"refs/heads/{ticket.mirror}", ticket.head_sha)
        ticket = self.with_merge_commit(ticket)
        refused: list[str] = self.store.setting("refused deployments", [])
        run = self._new_run(
            pull=ticket.number, title=ticket.title, author=ticket.author, head_sha=ticket.head_sha,
            head_branch=ticket.mirror, merge_sha=ticket.merge_sha or "", base_sha=ticket.merge_of.split()[0],
            labels=ticket.labels, created=self.clock(), refused=ticket.head_sha in refused or "next" in refused,
        )  # fmt: skip
        self.store.set("refused deployments", [sha for sha in refused if sha != "next"])
        self._attempt(run, 1, COPY_PR_BOT.login, self.clock(), plan.plan(self.situation(run)))
        return run

    @property
    def seconds(self) -> float:
        """The duration of the runs that start now."""
        return float(self.store.setting("ci seconds", self._default_seconds))

    def _new_run(self, **fields: Any) -> RunRecord:
        return self.store.create(RunRecord, run_number=self.store.next("run"), seconds=self.seconds, **fields)

    def _dispatch(self, branch: str, tip: str, base: str, moment: float) -> None:
        """Test a branch of the repository, which happens daily and after a merge; ``base`` is its previous commit."""
        author = ACTIONS_BOT.login
        run = self._new_run(
            pull=0, title=plan.WORKFLOW, author=author, head_sha=tip, head_branch=branch, merge_sha=tip, base_sha=base,
            labels=(), created=moment, event="workflow_dispatch",
        )  # fmt: skip
        # Its jobs are computed on first use, which is rare, so that the world starts quickly.
        self._attempt(run, 1, author, moment)

    def compared_paths(self, base: str, head: str) -> list[str]:
        """Return the files and folders of test cases that a run compares: the changed ones, and those with a fate."""
        changed = [path for path in self.home.changes(base, head) if path.startswith(plan.TEST_CASES)]
        return [*changed, *(f"{plan.TEST_CASES}/{name}" for name in plan.FATES)]

    def situation(self, run: RunRecord) -> plan.Situation:
        """Return the inputs of a run, read at its merge commit."""
        lts = LTS in run.labels
        merge, base = run.merge_sha or run.head_sha, run.base_sha
        folders = [plan.TEST_CASES] if lts else self.compared_paths(base, merge)
        pin = f"docker/.ngc_version.{'lts' if lts else 'dev'}"
        return plan.Situation(
            frozenset(run.labels), ACCOUNTS[run.author].may_write, run.seconds,
            image=self.home.texts(merge, pin).get(pin, "").strip(),
            base_image=self.home.texts(base, pin).get(pin, "").strip(),
            recipes=self.home.texts(merge, rows.FOLDER), golden=self.home.texts(merge, *folders),
            base_golden=self.home.texts(base, *folders), conflict=not run.merge_sha, refused=run.refused,
            broken=frozenset(self.store.setting("broken jobs", [])), how=self.store.setting("broken how", ""),
            event=run.event,
        )  # fmt: skip

    def _attempt(
        self, run: RunRecord, number: int, actor: str, started: float, planned: Sequence[plan.Planned] = ()
    ) -> None:
        self.store.create(AttemptRecord, run=run.id, attempt=number, actor=actor, started=started)
        self._list(run, number, planned)

    def _list(self, run: RunRecord, number: int, planned: Sequence[plan.Planned]) -> None:
        for job in planned:
            artifact = self.store.next() if job.kind in ("unit", "functional") and job.test_case else 0
            self.store.create(JobRecord, run=run.id, attempt=number, artifact=artifact, planned=job)

    def all_attempts(self, run_id: int) -> list[RunState]:
        """Return a run at each of its attempts.  Raises PracticeRefusal."""
        last = self.run(run_id).attempt.attempt
        return [self.run(run_id, number) for number in range(1, last + 1)]

    def run(self, run_id: int, number: int | None = None) -> RunState:
        """Return a run at its latest attempt, or at the attempt with this number.  Raises PracticeRefusal."""
        run = self.store.find(RunRecord, run_id)
        if run is None:
            raise PracticeRefusal()
        if pull := self.store.find(TicketRecord, run.pull):
            self.refreshed(pull)  # a push since the last request may have stopped the run
        return self._state(run, number)

    def runs(self, matches: Callable[[RunRecord], bool]) -> list[RunState]:
        """Return the runs that match, newest first."""
        self.tickets()
        return [self._state(run) for run in reversed(self.store.all(RunRecord)) if matches(run)]

    def _state(self, run: RunRecord, number: int | None = None) -> RunState:
        attempts = self.store.all(AttemptRecord, run.id)
        attempt = attempts[(number or 0) - 1]
        if not self.store.all(JobRecord, run.id):
            self._list(run, 1, plan.plan(self.situation(run)))
        jobs = [job for job in self.store.all(JobRecord, run.id) if job.attempt == attempt.attempt]
        status = plan.run_at([job.planned for job in jobs], attempt.started, self.clock(), attempt.cancelled)
        return RunState(run, attempt, jobs, status)

    def stop_runs(self, ticket: TicketRecord) -> None:
        """Cancel the runs of a pull request that have not ended."""
        for run in self.store.all(RunRecord, ticket.number):
            state = self._state(run)
            if state.status.status != "completed":
                self.store.change(state.attempt, cancelled=self.clock())

    def rerun(self, state: RunState, actor: PracticeAccount) -> None:
        """Start the next attempt of a run that has ended, with the jobs that failed."""
        started, cancelled = state.attempt.started, state.attempt.cancelled
        planned = [job.planned for job in state.jobs]
        jobs = plan.retry(planned, self.clock() - started, cancelled and cancelled - started)
        self._attempt(state.run, state.attempt.attempt + 1, actor.login, self.clock(), jobs)

    def jobs(self, state: RunState) -> list[JobState]:
        """Return the jobs that are listed now."""
        now, attempt, listed = self.clock(), state.attempt, []
        for job in state.jobs:
            status = plan.job_at(job.planned, attempt.started, now, attempt.cancelled)
            if status is not None:
                listed.append(JobState(state, job, status))
        return listed

    def job(self, job_id: int) -> JobState:
        """Return a job that is listed now.  Raises PracticeRefusal."""
        record = self.store.find(JobRecord, job_id)
        if record is not None:
            for job in self.jobs(self.run(record.run, record.attempt)):
                if job.record == record:
                    return job
        raise PracticeRefusal()

    def archive(self, job: JobState) -> bytes:
        """Return the artifact of a job that has ended; it contains no golden values if the job did not end itself."""
        planned, run = job.planned, job.state.run
        golden: dict[str, str] = {}
        if planned is job.record.planned and planned.measures:
            folder = f"{plan.TEST_CASES}/{planned.model}/{planned.test_case}"
            texts, base_texts = self.home.texts(run.merge_sha, folder), self.home.texts(run.base_sha, folder)
            measured = plan.measured(replace(self.situation(run), golden=texts, base_golden=base_texts), planned)
            golden = {path.rpartition("/")[2]: text for path, text in measured.items()}
        return evidence.archive(planned, golden, job.state.attempt.started)
