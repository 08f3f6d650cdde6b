"""The practice forge: the port `Forge`, in process, as one account sees it."""

import functools
import json
import os
import re
import sqlite3
import subprocess
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from runbook_lib.clients.github.models import (
    Artifact,
    Comment,
    GitHubRepository,
    Issue,
    LabelEvent,
    Pull,
    WorkflowJob,
    WorkflowRun,
)
from runbook_lib.errors import RunbookError, Unreachable
from runbook_lib.practice import ci, evidence
from runbook_lib.practice.hub import Attempt, Hub, ListedJob, PracticeRefusal, StoredFile
from runbook_lib.practice.store import ACCOUNTS, ENGINEER, PracticeAccount, Ticket
from runbook_lib.text.redact import Redactor

#: Lifetime of artifacts and logs; seconds.
LIFETIME = 90 * 86400.0
RUNNERS = {"dgx_h100": "nvidia-ci-aws-gpu-x8", "dgx_gb200": "nvidia-ci-aws-use2-gpu-x4"}
_LONGEST_BODY = 65536  # characters

T = TypeVar("T")


class InvalidRequest(RunbookError):
    """A request that GitHub answers with 422."""

    def __init__(self, message: str) -> None:
        super().__init__(f"The practice forge refuses it: {message}.")


def transactions(forge: type[T]) -> type[T]:
    """Carry out each public method in one transaction of the stored state, which an error undoes."""

    def carried_out(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: "PracticeForge", /, *args: Any, **kwargs: Any) -> Any:
            try:
                with self.hub.store.transaction():
                    return method(self, *args, **kwargs)
            except (sqlite3.Error, subprocess.CalledProcessError) as error:
                raise Unreachable(f"The practice forge failed: {error}. Run the same command again.") from error

        return call

    for name, method in vars(forge).copy().items():
        if callable(method) and not name.startswith("_"):
            setattr(forge, name, carried_out(method))
    return forge


def moment(seconds: float) -> datetime:
    """Return a time as GitHub shows it, in whole seconds; ``seconds`` since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC)


@transactions
class PracticeForge:
    """The practice forge, whose methods are those of the port; the URLs of its objects lead to the folder ``pages``."""

    scopes: str | None = "repo, workflow"

    def __init__(self, hub: Hub, pages: Path, account: PracticeAccount = ENGINEER) -> None:
        self.hub, self.account, self._pages = hub, account, pages

    @property
    def repository(self) -> str:
        return self.hub.repository

    def close(self) -> None: ...

    def url(self, page: str) -> str:
        """Return the URL of a page, such as ``pull/10``, which the end of a run writes."""
        return (self._pages / f"{page}.html").as_uri()

    def public(self, value: T) -> T:
        text = json.dumps(Redactor(os.environ).data(value), ensure_ascii=False)
        public: T = json.loads(text.encode("utf-8", "replace"))
        return public

    def require_write(self, author: str = "") -> None:
        """Raise PracticeRefusal if the account may not write to the repository, and is not the author."""
        if not self.account.may_write and self.account.login != author:
            raise PracticeRefusal("Must have admin rights to Repository.", 403)

    def text(self, text: str) -> str:
        """Return a text as it is published.  Raises InvalidRequest if it is too long."""
        if len(text) > _LONGEST_BODY:
            raise InvalidRequest(f"it is too long (maximum is {_LONGEST_BODY} characters)")
        return self.public(text)

    # -- the account and the repository -----------------------------------------------------------------------------

    def me(self) -> str:
        return self.account.login

    def repo(self) -> GitHubRepository:
        permissions = {"pull", "triage", "push"} if self.account.may_write else {"pull"}
        return GitHubRepository(self.repository, frozenset(permissions), private=False)

    def may_read(self, area: str) -> bool:
        return bool(area)

    def may_write(self, login: str) -> bool:
        return self.account.may_write and login in ACCOUNTS and ACCOUNTS[login].may_write

    def is_assignable(self, login: str) -> bool:
        return login in ACCOUNTS and ACCOUNTS[login].may_write

    def last_author(self, path: str, ref: str) -> str:
        logins = {account.email: account.login for account in ACCOUNTS.values() if account.email}
        commits = self.hub.home.history(self.resolve(ref), path)
        return logins.get(self.hub.home.show(commits[0], "%ae"), "") if commits else ""

    def behind(self, base: str, head: str) -> int:
        return self.hub.home.compare(self.resolve(base), self.resolve(head))[1]

    def resolve(self, revision: str) -> str:
        """Return a commit by branch or ID; ``owner:branch`` names one of a fork.  Raises PracticeRefusal."""
        owner, _, name = revision.rpartition(":")
        place = self.hub.places.get(owner or self.hub.owner)
        names = [f"refs/heads/{name}", *([name] if re.fullmatch("[0-9a-f]{40}", name) else [])]
        for full_name in names:
            if place and (sha := place.resolve(full_name)):
                self.hub.home.fetch(place, sha)
                return sha
        raise PracticeRefusal()

    # -- pull requests ----------------------------------------------------------------------------------------------

    def pulls(self, head: str | None = None, base: str | None = None, state: str = "open") -> tuple[Pull, ...]:
        return tuple(
            self.show_pull(ticket, mergeable=None)
            for ticket in self.hub.tickets()
            if ticket.base_ref
            and state in ("all", ticket.state)
            and head in (None, f"{ticket.head_owner}:{ticket.head_ref}")
            and base in (None, ticket.base_ref)
        )

    def pull(self, number: int) -> Pull:
        """Return one pull request; its merge is computed on the first request, and shown from the second on."""
        ticket = self._find_pull(number)
        merged = self.hub.with_merge_commit(ticket) if ticket.state == "open" else ticket
        if merged.merge_of != ticket.merge_of:
            return self.show_pull(ticket, mergeable=None)
        return self.show_pull(merged, merged.mergeable)

    def _find_pull(self, number: int) -> Ticket:
        ticket = self.hub.ticket(number)
        if not ticket.base_ref:
            raise PracticeRefusal()
        return ticket

    def show_pull(self, ticket: Ticket, mergeable: bool | None) -> Pull:
        """Return a pull request as it is shown."""
        return Pull(
            number=ticket.id, url=self.url(ticket.page), title=ticket.title, body=ticket.body, draft=ticket.draft,
            state=ticket.state, merged=ticket.merged, head_ref=ticket.head_ref, head_sha=ticket.head_sha,
            head_owner=ticket.head_owner, base_ref=ticket.base_ref, base_sha=ticket.base_sha,
            merge_commit=ticket.merge_sha, mergeable=mergeable, labels=frozenset(ticket.labels), author=ticket.author,
        )  # fmt: skip

    def files(self, number: int) -> Mapping[str, str]:
        pull, git = self._find_pull(number), self.hub.home
        _, _, fork_point = git.compare(pull.base_sha, pull.head_sha)
        return {path: git.patch(fork_point, pull.head_sha, path) for path in git.changes(fork_point, pull.head_sha)}

    def open_pull(self, title: str, head: str, base: str, body: str, *, draft: bool = True) -> Pull:
        """Open a pull request; ``head`` is ``owner:branch``.  The answer shows it before the bots act."""
        hub, (owner, _, branch) = self.hub, head.rpartition(":")
        if owner == hub.owner and not self.account.may_write:
            raise InvalidRequest("the author must be a collaborator")
        try:
            tip, base_tip = self.resolve(head), self.resolve(base)
        except PracticeRefusal as error:
            raise InvalidRequest(f"head {head} or base {base} is invalid") from error
        if any(pull.head_sha == tip and pull.base_ref == base for pull in self.pulls(head)):
            raise InvalidRequest(f"A pull request already exists for {head}")
        if not hub.home.log(base_tip, tip):
            raise InvalidRequest(f"No commits between {base} and {head}")
        ticket = hub.create(
            0, self.account.login, title=self.public(title), body=self.text(body), draft=draft, head_owner=owner,
            head_ref=branch, head_sha=tip, base_ref=base, base_sha=base_tip,
        )  # fmt: skip
        hub.home.set_ref(f"refs/pull/{ticket.id}/head", tip)
        hub.welcome(ticket)
        return self.show_pull(ticket, mergeable=None)

    def update_pull(self, number: int, body: str) -> Pull:
        ticket = self._find_pull(number)
        self.require_write(ticket.author)
        self.hub.store.change(ticket, body=self.text(body))
        return self.pull(number)

    # -- labels and comments ----------------------------------------------------------------------------------------

    def labels(self, number: int) -> frozenset[str]:
        return frozenset(self.hub.ticket(number).labels)

    def labellings(self, number: int) -> tuple[LabelEvent, ...]:
        return tuple(LabelEvent(name, on, moment(when)) for name, on, when in self.hub.ticket(number).events)

    def add_label(self, number: int, name: str) -> None:
        ticket = self.hub.ticket(number)
        self.require_write()
        self.hub.label(ticket, name, on=True)

    def remove_label(self, number: int, name: str) -> None:
        ticket = self.hub.ticket(number)
        self.require_write()
        if name not in ticket.labels:
            raise PracticeRefusal("Label does not exist")
        self.hub.label(ticket, name, on=False)

    def comments(self, number: int) -> tuple[Comment, ...]:
        ticket = self.hub.ticket(number)
        return tuple(self._comment(ticket, comment) for comment in ticket.comments)

    def _comment(self, ticket: Ticket, stored: dict[str, Any]) -> Comment:
        author, number = ACCOUNTS[stored["author"]], stored["id"]
        url = f"{self.url(ticket.page)}#issuecomment-{number}"
        return Comment(
            number, author.login, stored["body"], moment(stored["created"]), url, author.may_write, author.bot
        )

    def comment(self, number: int, body: str) -> Comment:
        ticket = self.hub.ticket(number)
        if not body.strip():
            raise InvalidRequest("Body cannot be blank")
        return self._comment(ticket, self.hub.add_comment(ticket, self.account.login, self.text(body)))

    def remove_comment(self, comment: Comment) -> None:
        self.require_write(comment.author)
        for ticket in self.hub.tickets():
            left = [each for each in ticket.comments if each["id"] != comment.id]
            if len(left) < len(ticket.comments):
                self.hub.store.change(ticket, comments=left)
                return
        raise PracticeRefusal()

    # -- issues -----------------------------------------------------------------------------------------------------

    def _issue(self, ticket: Ticket) -> Issue:
        return Issue(
            ticket.id, self.url(ticket.page), ticket.title, ticket.body, ticket.state, frozenset(ticket.labels),
            ticket.author, ACCOUNTS[ticket.author].may_write,
        )  # fmt: skip

    def search_issues(self, words: str) -> tuple[Issue, ...]:
        words = words.replace('"', " ").lower()
        return tuple(each for each in self.list_issues() if words in f"{each.title}\n{each.body}".lower())

    def list_issues(self, creator: str = "") -> tuple[Issue, ...]:
        issues = (each for each in reversed(self.hub.tickets()) if not each.base_ref and each.state == "open")
        return tuple(self._issue(each) for each in issues if creator in ("", each.author))

    def issue(self, number: int) -> Issue:
        return self._issue(self.hub.ticket(number))

    def file_issue(self, title: str, body: str, labels: Collection[str] = (), assignee: str = "") -> Issue:
        if self.account.may_write and assignee and not self.is_assignable(assignee):
            raise InvalidRequest(f"{assignee} cannot be assigned")
        set_labels = sorted(labels) if self.account.may_write else []
        return self._issue(
            self.hub.create(0, self.account.login, title=self.public(title), body=self.text(body), labels=set_labels)
        )

    def withdraw_issue(self, issue: Issue) -> None:
        ticket = self.hub.ticket(issue.number)
        self.require_write(ticket.author)
        self.hub.close(ticket)

    # -- CI ---------------------------------------------------------------------------------------------------------

    def runs(
        self, branch: str | None = None, head_sha: str | None = None, event: str | None = None,
        status: str | None = None, since: datetime | None = None,
    ) -> tuple[WorkflowRun, ...]:  # fmt: skip
        asked = {"head_branch": branch, "head_sha": head_sha, "event": event}.items()
        found = self.hub.runs(lambda run: all(value in (None, getattr(run, name)) for name, value in asked))
        ended = (run for run in map(self._run, found) if status in (None, run.status, run.conclusion))
        return tuple(run for run in ended if since is None or run.created >= since)

    def run(self, run_id: int) -> WorkflowRun:
        return self._run(self.hub.run(run_id)[-1])

    def _run(self, attempt: Attempt) -> WorkflowRun:
        run, status = attempt.run, attempt.status
        return WorkflowRun(
            run.id, self.url(f"actions/runs/{run.id}"), ci.WORKFLOW, run.head_sha, run.head_branch, status.status,
            status.conclusion or "", attempt.number, moment(run.created),
        )  # fmt: skip

    def jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        return tuple(map(self._job, self.hub.jobs(self.hub.run(run_id)[-1])))

    def job(self, job_id: int) -> WorkflowJob:
        return self._job(self.hub.job(job_id))

    def _job(self, job: ListedJob) -> WorkflowJob:
        planned, status = job.planned, job.status
        return WorkflowJob(
            id=job.id, url=self.url(f"actions/runs/{job.attempt.run.id}/job/{job.id}"), name=planned.name,
            status=status.status, conclusion=status.conclusion or "",
            started=moment(status.started),
            completed=None if status.completed is None else moment(status.completed),
            failed_steps=(planned.kind,) if status.conclusion == "failure" else (),
            runners=(RUNNERS.get(planned.platform, "ubuntu-latest"),),
        )  # fmt: skip

    def rerun_failed(self, run_id: int) -> None:
        """Run the failed jobs of a run once more, as its next attempt."""
        self.require_write()
        latest = self.hub.run(run_id)[-1]
        if latest.status.status != "completed" or latest.status.conclusion == "success":
            raise PracticeRefusal("This workflow run has not ended, or has no failed jobs to rerun", 403)
        self.hub.store.change(latest.run, attempts=[*latest.run.attempts, [self.hub.clock(), None]])

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        return tuple(
            Artifact(
                job.artifact, evidence.artifact_name(job.planned, run_id, job.id), len(self.hub.archive(job)),
                self._is_expired(job), moment(job.status.completed or 0.0),
            )
            for attempt in self.hub.run(run_id) for job in self.hub.jobs(attempt) if job.artifact
        )  # fmt: skip

    def artifact(self, artifact_id: int) -> StoredFile:
        return StoredFile(lambda: self.read_artifact(artifact_id))

    def read_artifact(self, artifact_id: int) -> bytes:
        """Return an artifact's zip.  Raises PracticeRefusal."""
        job = self.hub.job(artifact_id)
        if artifact_id != job.artifact or self._is_expired(job):
            raise PracticeRefusal("Artifact has expired", 410)
        return self.hub.archive(job)

    def _is_expired(self, job: ListedJob) -> bool:
        return "expired" in job.planned.script or self.hub.clock() > (job.status.completed or 0.0) + LIFETIME

    def log(self, job_id: int) -> StoredFile:
        return StoredFile(lambda: self.read_log(job_id))

    def read_log(self, job_id: int) -> bytes:
        """Return the log of a job that has ended.  Raises PracticeRefusal."""
        job = self.hub.job(job_id)
        gone = self.hub.clock() > (job.status.completed or 0.0) + LIFETIME
        if job.status.status != "completed" or job.status.conclusion == "skipped" or gone:
            raise PracticeRefusal("There is no log (any more)", 410)
        return job.log.encode()

    def deployment_failed(self, sha: str) -> bool:
        newest = self.hub.runs(lambda run: run.event == "push" and run.head_sha == sha)[:1]
        queue = [job for attempt in newest for job in self.hub.jobs(attempt) if job.planned.kind == "queue"]
        return any(job.status.conclusion in ("failure", "cancelled") for job in queue)
