"""The answers of the practice forge: records in, JSON out.

``shapes.json`` contains the fields of each kind of object.  Their form is that of GitHub's OpenAPI description, against
which the tests check every answer.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import quote

from github_server.api import ServedHub
from github_server.diff import FileChange, file_changes
from runbook_lib.practice.accounts import ACCOUNTS, COPY_PR_BOT, PracticeAccount
from runbook_lib.practice.actions import RUNNERS
from runbook_lib.practice.ci import plan
from runbook_lib.practice.hub import JobState, RunState
from runbook_lib.practice.store import CommentRecord, EventRecord, LabelRecord, TicketRecord

REPOSITORY_ID = 480_000_001
Json = dict[str, Any]


def _load() -> dict[str, Json]:
    """Return kind of object → start of its node ID, its URL, its fields, and the paths below its URL."""
    kinds: dict[str, Json] = json.loads(files(__package__).joinpath("shapes.json").read_text(encoding="utf-8"))
    for name, kind in kinds.items():
        base = kinds.get(kind.get("extends", ""), {"fields": {}})
        kinds[name] = {**base, **kind, "fields": base["fields"] | kind["fields"]}
    return kinds


_KINDS = _load()


def timestamp(seconds: float) -> str:
    """Return a time in GitHub's format; ``seconds`` since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def api_url(hub: ServedHub) -> str:
    """Return the URL of the repository in the API."""
    return f"{hub.url}/repos/{hub.repository}"


def _node_id(start: str, number: int) -> str:
    return f"{start}_{b64encode(str(number).encode()).decode().rstrip('=')}"


def shape(hub: ServedHub, kind: str, record: object = None, /, **values: object) -> Json:
    """Return an object of this kind, filled with the fields of a record and these values."""
    table = _KINDS[kind]
    names: Json = {"forge": hub.url, "api": api_url(hub), "web": f"{hub.url}/{hub.repository}"}
    names |= {"repository_id": REPOSITORY_ID, "workflow": plan.WORKFLOW, **getattr(record, "__dict__", {}), **values}
    shown: Json = {}
    if "url" in table:
        shown["url"] = Template(table["url"]).substitute(names)
    if "node" in table:
        shown["node_id"] = _node_id(table["node"], names["id"])
    for name, path in table.get("urls", {}).items():
        shown[f"{name}_url"] = shown["url"] + path
    return shown | _fill(table["fields"], names)


def _fill(fields: Json, names: Mapping[str, Any]) -> Json:
    """Return the fields with the values of ``$name``; numbers in fields named ``…_at`` are times."""
    filled = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            value = _fill(value, names)
        elif isinstance(value, str) and value.startswith("$") and value[1:] in names:
            value = names[value[1:]]
        elif isinstance(value, str):
            value = Template(value).substitute(names)
        if name.endswith("_at") and isinstance(value, float):
            value = timestamp(value)
        filled[name] = value
    return filled


def account(hub: ServedHub, record: PracticeAccount, kind: str = "account") -> Json:
    """Return an account; ``GET /user`` shows it as the kind ``own_account``."""
    return shape(hub, kind, record, path=quote(record.login))


def user(hub: ServedHub, login: str) -> Json:
    """Return the account with this login; any other login is that of an organization."""
    return account(hub, ACCOUNTS.get(login) or PracticeAccount(80_000_001, login, login, type="Organization"))


def repository(hub: ServedHub, owner: str) -> Json:
    """Return the repository, or the fork of another owner."""
    return shape(
        hub, "repository", id=REPOSITORY_ID + list(hub.places).index(owner), name=hub.name,
        full_name=f"{owner}/{hub.name}", owner=user(hub, owner), fork=owner != hub.owner, private=hub.private,
        visibility="private" if hub.private else "public", has_issues=hub.has_issues,
    )  # fmt: skip


def labels(hub: ServedHub, names: tuple[str, ...]) -> list[Json]:
    """Return the labels with these names, in this order."""
    shown = {}
    for record in hub.store.all(LabelRecord):
        shown[record.name] = shape(hub, "label", record, path=quote(record.name), default=record.name == "bug")
    return [shown[name] for name in names]


def _authored(hub: ServedHub, login: str) -> Json:
    """Return an author, and GitHub's name for the relation of the account to the repository."""
    author = ACCOUNTS[login]
    association = "MEMBER" if author.may_write else "CONTRIBUTOR"
    if author.type == "Bot":
        association = "NONE"
    return {"user": account(hub, author), "association": association}


def comment(hub: ServedHub, record: CommentRecord) -> Json:
    """Return a comment of an issue or pull request."""
    ticket = hub.store.find(TicketRecord, record.number)
    page = ticket.page if ticket else "issues"
    return shape(hub, "comment", record, page=page, **_authored(hub, record.author))


def event(hub: ServedHub, record: EventRecord) -> Json:
    """Return the event of a label that was added or removed."""
    colors = {label.name: label.color for label in hub.store.all(LabelRecord)}
    return shape(hub, "event", record, actor=user(hub, record.actor), color=colors.get(record.label, "ededed"))


def _ticket(hub: ServedHub, kind: str, ticket: TicketRecord, **values: object) -> Json:
    assignees = [user(hub, login) for login in ticket.assignees]
    return shape(
        hub, kind, ticket, page=ticket.page, labels=labels(hub, ticket.labels), assignees=assignees,
        assignee=next(iter(assignees), None), comments=len(hub.store.all(CommentRecord, ticket.number)),
        **_authored(hub, ticket.author), **values,
    )  # fmt: skip


def issue(hub: ServedHub, ticket: TicketRecord) -> Json:
    """Return an issue; GitHub shows pull requests as issues, too."""
    return _ticket(hub, "pull_as_issue" if ticket.is_pull else "issue", ticket)


def search_result(hub: ServedHub, ticket: TicketRecord) -> Json:
    """Return an issue as shown by the search: without a body if that is empty."""
    shown = issue(hub, ticket) | {"score": 1.0}
    if ticket.body is None:
        del shown["body"]
    return shown


def _side(hub: ServedHub, owner: str, ref: str, sha: str) -> Json:
    repo = repository(hub, owner) if owner in hub.places else None
    return {"label": f"{owner}:{ref}", "ref": ref, "sha": sha, "user": user(hub, owner), "repo": repo}


def pull(hub: ServedHub, ticket: TicketRecord, kind: str = "pull", **values: object) -> Json:
    """Return a pull request as lists show it."""
    head = _side(hub, ticket.head_owner, ticket.head_ref, ticket.head_sha)
    return _ticket(hub, kind, ticket, head=head, base=_side(hub, hub.owner, ticket.base_ref, ticket.base_sha), **values)


def pull_in_full(hub: ServedHub, ticket: TicketRecord) -> Json:
    """Return a pull request on its own."""
    _, _, fork_point = hub.home.compare(ticket.base_sha, ticket.head_sha)
    changes = file_changes(hub.home, fork_point, ticket.head_sha) if fork_point else ()
    return pull(
        hub, ticket, "pull_in_full", is_merged=ticket.merged is not None, mergeable_state=_mergeable_state(ticket),
        from_fork=ticket.head_owner != hub.owner, commits=len(hub.home.log(ticket.base_sha, ticket.head_sha)),
        changed_files=len(changes), additions=sum(file.additions for file in changes),
        deletions=sum(file.deletions for file in changes),
    )  # fmt: skip


def _mergeable_state(ticket: TicketRecord) -> str:
    if ticket.mergeable is None:
        return "unknown"
    if not ticket.mergeable:
        return "dirty"
    return "draft" if ticket.draft else "clean"


def commit(hub: ServedHub, sha: str) -> Json:
    """Return a commit."""
    details = hub.home.commit(sha)
    accounts = {record.email: account(hub, record) for record in ACCOUNTS.values() if record.email}
    return shape(
        hub, "commit", details, id=int(details.sha[:12], 16), author_account=accounts.get(details.author_email),
        committer_account=accounts.get(details.committer_email),
        parents=[shape(hub, "parent", sha=sha) for sha in details.parents],
    )  # fmt: skip


def file_change(hub: ServedHub, file: FileChange, sha: str) -> Json:
    """Return a file of a diff."""
    return shape(hub, "file", file, commit=sha, address=quote(file.path), lines=file.additions + file.deletions)


def run(hub: ServedHub, state: RunState) -> Json:
    """Return a run of the workflow, at the attempt of the state."""
    record, attempt = state.run, state.attempt
    changed = _changed_at((job.planned for job in state.jobs), attempt.started, hub.clock())
    previous = None
    if attempt.attempt > 1:
        previous = f"{api_url(hub)}/actions/runs/{record.id}/attempts/{attempt.attempt - 1}"
    head = vars(hub.home.commit(record.head_sha)) | {"head_author": hub.home.commit(record.head_sha).author}
    values = head | vars(record) | {
        "attempt": attempt.attempt, "started": attempt.started, "status": state.status.status,
        "conclusion": state.status.conclusion, "updated": state.status.completed or changed,
        "workflow_path": plan.WORKFLOW_PATH, "suite": record.id + 1, "suite_node": _node_id("CS", record.id + 1),
        "actor": user(hub, COPY_PR_BOT.login if record.pull else record.author),
        "triggering_actor": user(hub, attempt.actor), "previous_attempt": previous,
        "repository": repository(hub, hub.owner),
    }  # fmt: skip
    return shape(hub, "run", **values)


def job(hub: ServedHub, job: JobState) -> Json:
    """Return a job.  On GitHub even a waiting job has a start: the time when it was listed."""
    planned, status = job.record.planned, job.status
    created = job.state.attempt.started + max(planned.appears, 0.0)
    label = RUNNERS.get(planned.platform, "ubuntu-latest")
    values: Json = vars(planned) | vars(status) | {
        "id": job.record.id, "run": job.record.run, "attempt": job.record.attempt, "labels": [label], "steps": [],
        "head_sha": job.state.run.head_sha, "head_branch": job.state.run.head_branch, "created": created,
        "started": created if status.started is None else status.started,
        "runner_id": None, "runner": None, "runner_group": None,
    }  # fmt: skip
    if status.started is not None and status.conclusion != "skipped":
        step = {"status": "in_progress"} if status.status == "waiting" else {}
        values |= {"steps": [shape(hub, "step", **values | step)], "runner_id": 1}
        values |= {"runner": f"{label}-practice", "runner_group": "practice"}
    return shape(hub, "job", **values)


def _changed_at(jobs: Iterable[plan.Planned], started: float, now: float) -> float:
    """Return when the run last changed visibly."""
    last = started
    for job in jobs:
        for moment in (job.appears, job.starts, job.ends):
            if last < started + moment <= now:
                last = started + moment
    return last
