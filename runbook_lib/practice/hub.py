"""The practice forge's inner life: what pushes, comments and the clock do to pull requests and runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.practice.ci import plan, suites
from runbook_lib.practice.git import Bare
from runbook_lib.practice.github.protocol import ACCOUNTS, ACTIONS_BOT, Account, not_found
from runbook_lib.practice.github.storage import Storage
from runbook_lib.practice.state import Attempt, Comment, Event, Job, Label, Run, Store, Ticket

#: name, colour, description of the labels that the repository starts with.
LABELS: tuple[tuple[str, str, str], ...] = (
    ("Run tests", "0e8a16", "Run the functional tests in lightweight mode"),
    ("Run functional tests", "1d76db", "Run the functional tests and compare golden values"),
    ("Run MBridge tests", "5319e7", "Run the tests of Megatron-Bridge too"),
    ("Run NeMoRL tests", "5319e7", "Run the tests of NeMo RL too"),
    ("container::lts", "fbca04", "Test on the LTS image"),
    ("complexity: low", "c2e0c6", "Set by a bot; chooses no tests"),
    ("bug", "d73a4a", "Something isn't working"),
)
#: The practice checkout's history speaks of an issue 8 and of pull requests up to 9.
FIRST_NUMBER = 10
_QUARANTINED = (
    8,
    "[ci] gpt3_mcore_te_tp8_pp1_fp8: loss jumps at step 20",
    "The functional test `gpt/gpt3_mcore_te_tp8_pp1_fp8` (dev, dgx_h100) fails since the image 26.02-py3: "
    "the loss jumps at step 20.\n\nIts scope is `mr-broken` until this is closed.",
)


#: The branches that CI tests every day; it did so this many seconds before the world began.
TESTED_DAILY = ("main",)
_TESTED_BEFORE = 6 * 3600.0


@dataclass(frozen=True)
class RunState:
    """A run, the attempt asked for with its jobs, and what is seen of it now."""

    run: Run
    attempt: Attempt
    jobs: Sequence[Job]
    seen: plan.Seen


class Hub:
    """One repository with its forks, tickets and runs.  Every method is called inside a transaction."""

    def __init__(
        self,
        store: Store,
        remote: Path,
        forks: Mapping[str, Path],
        repository: str,
        clock: Callable[[], float],
        seconds: float,
    ) -> None:
        self.store, self.repository, self.clock, self.seconds = store, repository, clock, seconds
        self.owner, self.name = repository.split("/")
        self.home = Bare(remote)
        self.places = {self.owner: self.home} | {owner: Bare(path) for owner, path in forks.items()}
        self.storage = Storage()
        self.url = ""
        with store.transaction():
            if not store.setting("seeded", False):
                self._seed()

    def _seed(self) -> None:
        for name, color, description in LABELS:
            self.store.save(Label(self.store.next(), name, color, description))
        now = self.clock()
        number, title, body = _QUARANTINED
        if self.repository == "practice/Megatron-LM":
            self.store.save(
                Ticket(number, self.store.next(), "release-engineer", title, body, now, now, labels=("bug",))
            )
            for branch, tip in self.home.tips(*TESTED_DAILY).items():
                self._dispatch(branch, tip, tip, now - _TESTED_BEFORE)
        self.store.set("next number", FIRST_NUMBER)
        self.store.set("seeded", True)

    # -- tickets ------------------------------------------------------------------------------------------------

    def ticket(self, number: int) -> Ticket:
        """An issue or a pull request as it is now; 404 without one."""
        ticket = self.store.find(Ticket, number)
        if ticket is None:
            raise not_found()
        return self.refreshed(ticket)

    def tickets(self) -> list[Ticket]:
        """All of them, newest first."""
        tips = {owner: place.tips() for owner, place in self.places.items()}
        return [self.refreshed(ticket, tips) for ticket in reversed(self.store.all(Ticket))]

    def refreshed(self, ticket: Ticket, tips: Mapping[str, Mapping[str, str]] | None = None) -> Ticket:
        """A pull request after looking at its branches: pushed to, merged, or its branch gone."""
        if not ticket.is_pull or ticket.state != "open" or ticket.head_owner not in self.places:
            return ticket
        now = self.clock()
        if tips is None:
            owners = {self.owner, ticket.head_owner}
            tips = {owner: self.places[owner].tips(ticket.base_ref, ticket.head_ref) for owner in owners}
        head = tips[ticket.head_owner].get(ticket.head_ref)
        base = tips[self.owner].get(ticket.base_ref, ticket.base_sha)
        if head is not None and head != ticket.head_sha:
            self.home.bring(self.places[ticket.head_owner], head)
            self.home.point(f"refs/pull/{ticket.number}/head", head)
            ticket = self.store.change(ticket, head_sha=head, base_sha=base, updated=now)
            self.stop_runs(ticket)
        if base != ticket.base_sha and self.home.contains(base, ticket.head_sha):
            self._dispatch(ticket.base_ref, base, ticket.base_sha, now)
            ticket = self.store.change(ticket, merged=now, merge_sha=base)
            return self.close(ticket)
        return ticket if head is not None else self.close(ticket)

    def close(self, ticket: Ticket, reason: str | None = None) -> Ticket:
        """Close a ticket; copy-pr-bot takes the mirror of a pull request away."""
        if ticket.is_pull and self.home.tips(ticket.mirror):
            self.home.point(f"refs/heads/{ticket.mirror}", None)
        now = self.clock()
        return self.store.change(ticket, state="closed", state_reason=reason, closed=now, updated=now)

    def say(self, ticket: Ticket, author: Account, body: str) -> Comment:
        """Write a comment."""
        now = self.clock()
        self.store.change(ticket, updated=now)
        return self.store.save(Comment(self.store.next(), ticket.number, author.login, body, now))

    def labelled(self, ticket: Ticket, names: Sequence[str], actor: str) -> Ticket:
        """The ticket with exactly these labels; unknown ones are made, as GitHub does, and case does not count."""
        known = {label.name.lower(): label for label in self.store.all(Label)}
        for name in names:
            if name.lower() not in known:
                known[name.lower()] = self.store.save(Label(self.store.next(), name, "ededed"))
        wanted = tuple(dict.fromkeys(known[name.lower()].name for name in names))
        for name in (*ticket.labels, *wanted):
            if (name in ticket.labels) != (name in wanted):
                event = "labeled" if name in wanted else "unlabeled"
                self.store.save(Event(self.store.next(), ticket.number, actor, event, self.clock(), name))
        return self.store.change(ticket, labels=wanted, updated=self.clock())

    def merged_now(self, ticket: Ticket) -> Ticket:
        """The pull request with the merge commit of this moment."""
        base = self.home.tips(ticket.base_ref).get(ticket.base_ref, ticket.base_sha)
        key = f"{base} {ticket.head_sha}"
        if ticket.merge_of == key:
            return ticket
        merge = self.home.merge(base, ticket.head_sha)
        if merge:
            self.home.point(f"refs/pull/{ticket.number}/merge", merge)
        return self.store.change(ticket, merge_sha=merge, merge_of=key, mergeable=merge is not None)

    def merge_pull(self, ticket: Ticket) -> Ticket:
        """What the merge queue does in the end: the base branch gets a merge commit."""
        ticket = self.merged_now(ticket)
        if ticket.merge_sha is None:
            raise ValueError(f"#{ticket.number} conflicts with {ticket.base_ref}")
        self.home.point(f"refs/heads/{ticket.base_ref}", ticket.merge_sha)
        return self.refreshed(ticket)

    # -- runs ---------------------------------------------------------------------------------------------------

    def start_run(self, ticket: Ticket) -> Run | None:
        """Mirror the head of a pull request and test its merge commit; None when it is mirrored already.

        A forge that was killed in between has the mirror, and no run of it.
        """
        mirrored = self.home.tips(ticket.mirror).get(ticket.mirror) == ticket.head_sha
        if mirrored and any(it.head_sha == ticket.head_sha for it in self.store.all(Run, ticket.number)):
            return None
        self.stop_runs(ticket)
        self.home.point(f"refs/heads/{ticket.mirror}", ticket.head_sha)
        ticket = self.merged_now(ticket)
        base = ticket.merge_of.split()[0]
        refused: list[str] = self.store.setting("refused deployments", [])
        run = Run(
            self.store.next(), self.store.next("run"), ticket.number, ticket.title, ticket.author, ticket.head_sha,
            ticket.mirror, ticket.merge_sha or "", base, ticket.labels, self.clock(),
            refused=ticket.head_sha in refused or "next" in refused, seconds=self._seconds(),
            internal=str(self.store.setting("internal", "run")),
        )  # fmt: skip
        self.store.set("refused deployments", [each for each in refused if each != "next"])
        self.store.save(run)
        self._attempt(run, 1, "copy-pr-bot[bot]", plan.plan(self._situation(run)))
        return run

    def _seconds(self) -> float:
        return float(self.store.setting("ci seconds", self.seconds))

    def _dispatch(self, branch: str, tip: str, base: str, moment: float) -> None:
        """Test a branch of the repository itself: every day, and after a merge.  ``base`` is where it stood before."""
        run = self.store.save(Run(
            self.store.next(), self.store.next("run"), 0, plan.WORKFLOW, ACTIONS_BOT.login, tip, branch, tip, base, (),
            moment, event="workflow_dispatch", seconds=self._seconds(),
            internal=str(self.store.setting("internal", "run")),
        ))  # fmt: skip
        # Its jobs are worked out when somebody looks: few do, and the world is to start quickly.
        self.store.save(Attempt(self.store.next(), run.id, 1, ACTIONS_BOT.login, moment))

    def _situation(self, run: Run) -> plan.Situation:
        """What a run depends on, read at its merge commit."""
        lts = suites.suite(run.labels).lts
        merge, base = run.merge_sha or run.head_sha, run.base_sha
        # Golden files are large and many; equal ones agree anyway, except with the values of another image.
        changed = [change.path for change in self.home.changes(base, merge) if change.path.startswith(plan.TEST_CASES)]
        folders = [plan.TEST_CASES] if lts else [*changed, *(f"{plan.TEST_CASES}/{name}" for name in plan.FATES)]
        golden = self.home.texts(merge, *folders)
        return plan.Situation(
            labels=frozenset(run.labels),
            maintainer=ACCOUNTS[run.author].permission == "write",
            seconds=run.seconds,
            image=self.image(merge, lts),
            base_image=self.image(base, lts),
            recipes=self.home.texts(merge, suites.RECIPES),
            golden=golden,
            base_golden=self.home.texts(base, *folders),
            conflict=not run.merge_sha,
            refused=run.refused,
            gb200=bool(self.store.setting("gb200", True)),
            broken=frozenset(self.store.setting("broken jobs", [])),
            how=str(self.store.setting("broken how", "")),
            event=run.event,
            changed=frozenset(path for path in changed if path in golden and "/golden_values" in path),
        )

    def image(self, commit: str, lts: bool) -> str:
        """The tag that CI builds on at a commit."""
        path = f"docker/.ngc_version.{'lts' if lts else 'dev'}"
        return self.home.texts(commit, path).get(path, "").strip()

    def _attempt(self, run: Run, number: int, actor: str, planned: Sequence[plan.Planned]) -> None:
        self.store.save(Attempt(self.store.next(), run.id, number, actor, self.clock()))
        self._list(run, number, planned)

    def _list(self, run: Run, number: int, planned: Sequence[plan.Planned]) -> None:
        for job in planned:
            artifact = self.store.next() if job.kind in ("unit", "functional") and job.test_case else 0
            self.store.save(Job(self.store.next(), run.id, number, artifact, job))

    def attempts(self, run: Run) -> list[Attempt]:
        return self.store.all(Attempt, run.id)

    def run(self, run_id: int, number: int | None = None) -> RunState:
        """A run at its latest attempt, or the one asked for; 404 without it."""
        run = self.store.find(Run, run_id)
        if run is None:
            raise not_found()
        if pull := self.store.find(Ticket, run.pull):
            self.refreshed(pull)  # a push that nobody has seen yet may have stopped it
        attempts = self.attempts(run)
        if number is not None and not 1 <= number <= len(attempts):
            raise not_found()
        return self._state(run, attempts[(number or 0) - 1])

    def runs(self, wanted: Callable[[Run], bool] = lambda run: True) -> list[RunState]:
        """The runs that are wanted, newest first."""
        self.tickets()
        found = [run for run in reversed(self.store.all(Run)) if wanted(run)]
        return [self._state(run, self.attempts(run)[-1]) for run in found]

    def _state(self, run: Run, attempt: Attempt) -> RunState:
        jobs = self.store.all(Job, run.id)
        if not jobs:
            self._list(run, 1, plan.plan(self._situation(run)))
            jobs = self.store.all(Job, run.id)
        jobs = [job for job in jobs if job.attempt == attempt.attempt]
        seen = plan.run_at([job.planned for job in jobs], attempt.started, self.clock(), attempt.cancelled)
        return RunState(run, attempt, jobs, seen)

    def stop_runs(self, ticket: Ticket) -> None:
        """Cancel what still runs for a pull request."""
        for run in self.store.all(Run, ticket.number):
            self.cancel(self._state(run, self.attempts(run)[-1]))
            if run.stopped is None:
                self.store.change(run, stopped=self.clock())

    def cancel(self, state: RunState) -> bool:
        """Cancel a run; False when it has ended already."""
        if state.seen.status == "completed":
            return False
        self.store.change(state.attempt, cancelled=self.clock())
        return True

    def rerun(self, state: RunState, actor: Account, only: plan.Planned | None = None) -> None:
        """Start the next attempt of a run that has ended: of the jobs that failed, or of that one alone."""
        started, cancelled = state.attempt.started, state.attempt.cancelled
        planned = [job.planned for job in state.jobs]
        stopped = None if cancelled is None else cancelled - started
        jobs = plan.again(planned, self.clock() - started, stopped, only)
        self._attempt(state.run, state.attempt.attempt + 1, actor.login, jobs)

    def golden(self, state: RunState, job: Job) -> dict[str, str]:
        """File name → text of the golden values that a job measured; none where it did not get so far."""
        if not job.planned.measures:
            return {}
        run, lts = state.run, suites.suite(state.run.labels).lts
        folder = f"{plan.TEST_CASES}/{job.planned.model}/{job.planned.test_case}"
        found = plan.measured(
            job.planned,
            self.home.texts(run.merge_sha, folder),
            self.home.texts(run.base_sha, folder),
            image=self.image(run.merge_sha, lts),
            base_image=self.image(run.base_sha, lts),
            lts=lts,
        )
        return {path.rpartition("/")[2]: text for path, text in found.items()}


def shown(state: RunState, now: float) -> list[tuple[Job, plan.Seen]]:
    """The jobs that are listed now, with what is seen of each."""
    attempt = state.attempt
    seen = ((job, plan.job_at(job.planned, attempt.started, now, attempt.cancelled)) for job in state.jobs)
    return [(job, state_now) for job, state_now in seen if state_now is not None]
