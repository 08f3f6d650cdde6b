"""The answers of the practice forge: records in, JSON out.

``shapes.json`` contains the fields of each kind of object.  Their form is that of GitHub's OpenAPI description, against
which the tests check every answer.
"""

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import quote

from people import COPY_PR_BOT

from github_server.api import ServedForge
from runbook_lib.practice import ci
from runbook_lib.practice.store import ACCOUNTS, PracticeAccount, Record
from runbook_lib.world.github.models import WorkflowJob

REPOSITORY_ID, _FIRST_ACCOUNT = 480_000_001, 90_000_001
_WORKFLOW_PATH = ".github/workflows/cicd-main.yml"
#: The fields of a commit in git's format.
_COMMIT = {
    "sha": "%H", "tree": "%T", "parents": "%P", "message": "%B", "author": "%an", "author_email": "%ae",
    "authored": "%ad", "committer": "%cn", "committer_email": "%ce", "committed": "%cd",
}  # fmt: skip
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


def api_url(hub: ServedForge) -> str:
    """Return the URL of the repository in the API."""
    return f"{hub.address}/repos/{hub.repository}"


def _node_id(start: str, number: int) -> str:
    return f"{start}_{b64encode(str(number).encode()).decode().rstrip('=')}"


def shape(hub: ServedForge, kind: str, record: object = None, /, **values: object) -> Json:
    """Return an object of this kind, filled with the fields of a record and these values."""
    table = _KINDS[kind]
    names: Json = {"forge": hub.address, "api": api_url(hub), "web": f"{hub.address}/{hub.repository}"}
    names |= {"repository_id": REPOSITORY_ID, "workflow": ci.WORKFLOW, **getattr(record, "__dict__", {}), **values}
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


def account(hub: ServedForge, shown: PracticeAccount, kind: str = "account") -> Json:
    """Return an account; ``GET /user`` shows it as the kind ``own_account``."""
    number = _FIRST_ACCOUNT + [*ACCOUNTS].index(shown.login)
    path = quote(shown.login)
    return shape(hub, kind, shown, id=number, type="Bot" if shown.bot else "User", path=path)


def user(hub: ServedForge, login: str) -> Json:
    """Return the account with this login; any other login is that of an organization."""
    if login in ACCOUNTS:
        return account(hub, ACCOUNTS[login])
    return shape(hub, "account", id=80_000_001, login=login, name=login, type="Organization", path=quote(login))


def repository(hub: ServedForge, owner: str) -> Json:
    """Return the repository, or the fork of another owner."""
    return shape(
        hub, "repository", id=REPOSITORY_ID + list(hub.places).index(owner), name=hub.name,
        full_name=f"{owner}/{hub.name}", owner=user(hub, owner), fork=owner != hub.owner, private=hub.private,
        visibility="private" if hub.private else "public", has_issues=hub.has_issues,
    )  # fmt: skip


def labels(hub: ServedForge, names: Iterable[str]) -> list[Json]:
    """Return the labels with these names, in this order."""
    return [
        shape(
            hub, "label", id=sum(name.encode()), name=name, color="ededed", description="", path=quote(name),
            default=name == "bug",
        )
        for name in names
    ]  # fmt: skip


def _authored(hub: ServedForge, login: str) -> Json:
    """Return an author, and GitHub's name for the relation of the account to the repository."""
    author = ACCOUNTS[login]
    association = "NONE" if author.bot else "MEMBER" if author.may_write else "CONTRIBUTOR"
    return {"user": account(hub, author), "association": association}


def comment(hub: ServedForge, ticket: Record, stored: Record) -> Json:
    """Return a comment of an issue or pull request."""
    values = vars(stored) | {"number": ticket.number, "page": _page(ticket), **_authored(hub, stored.author)}
    return shape(hub, "comment", **values)


def _page(ticket: Record) -> str:
    return "pull" if ticket.base_ref else "issues"


def event(hub: ServedForge, ticket: Record, position: int) -> Json:
    """Return the event of a label that was added or removed."""
    name, on, created = ticket.events[position]
    return shape(
        hub, "event", id=1000 * ticket.number + position, event="labeled" if on else "unlabeled", created=created,
        label=name, color="ededed", actor=user(hub, ticket.author),
    )  # fmt: skip


def _ticket(hub: ServedForge, kind: str, ticket: Record, **values: object) -> Json:
    is_closed, known = ticket.state == "closed", vars(ticket) | {"id": ticket.number, "updated": ticket.created}
    return shape(
        hub, kind, **{
            **known, "page": _page(ticket), "labels": labels(hub, ticket.labels), "assignees": [],
            "assignee": None, "comments": len(ticket.comments), "closed": ticket.created if is_closed else None,
            "state_reason": "completed" if is_closed and not ticket.base_ref else None,
            "merged": ticket.created if ticket.merged else None, **_authored(hub, ticket.author), **values,
        }
    )  # fmt: skip


def issue(hub: ServedForge, ticket: Record) -> Json:
    """Return an issue; GitHub shows pull requests as issues, too."""
    return _ticket(hub, "pull_as_issue" if ticket.base_ref else "issue", ticket)


def _side(hub: ServedForge, owner: str, ref: str, sha: str) -> Json:
    repo = repository(hub, owner) if owner in hub.places else None
    return {"label": f"{owner}:{ref}", "ref": ref, "sha": sha, "user": user(hub, owner), "repo": repo}


def pull(hub: ServedForge, ticket: Record, kind: str = "pull", **values: object) -> Json:
    """Return a pull request as lists show it."""
    head = _side(hub, ticket.head_owner, ticket.head_ref, ticket.head_sha)
    return _ticket(hub, kind, ticket, head=head, base=_side(hub, hub.owner, ticket.base_ref, ticket.base_sha), **values)


def pull_in_full(hub: ServedForge, ticket: Record, mergeable: bool | None = None) -> Json:
    """Return a pull request on its own."""
    patches = hub.files(ticket.number).values()
    return pull(
        hub, ticket, "pull_in_full", is_merged=ticket.merged, mergeable=mergeable,
        mergeable_state=_mergeable_state(ticket, mergeable),
        from_fork=ticket.head_owner != hub.owner, commits=len(hub.home.log(ticket.base_sha, ticket.head_sha)),
        changed_files=len(patches), additions=_lines(patches, "+"), deletions=_lines(patches, "-"),
    )  # fmt: skip


def _lines(patches: Iterable[str], sign: str) -> int:
    """Return the number of lines that begin with a sign."""
    return sum(line.startswith(sign) for patch in patches for line in patch.splitlines())


def _mergeable_state(ticket: Record, mergeable: bool | None) -> str:
    if mergeable is None:
        return "unknown"
    if not mergeable:
        return "dirty"
    return "draft" if ticket.draft else "clean"


def _described(hub: ServedForge, sha: str) -> Json:
    """Return the fields of a commit."""
    dated = "--date=format-local:%Y-%m-%dT%H:%M:%SZ"
    shown = hub.home.git("show", "--no-patch", f"--format={'%x00'.join(_COMMIT.values())}", dated, sha).split("\0")
    return dict(zip(_COMMIT, shown, strict=True))


def commit(hub: ServedForge, sha: str) -> Json:
    """Return a commit."""
    details = _described(hub, sha)
    accounts = {known.email: account(hub, known) for known in ACCOUNTS.values() if known.email}
    return shape(
        hub, "commit", **{
            **details, "id": int(details["sha"][:12], 16), "author_account": accounts.get(details["author_email"]),
            "committer_account": accounts.get(details["committer_email"]),
            "parents": [shape(hub, "parent", sha=sha) for sha in details["parents"].split()],
        }
    )  # fmt: skip


def file_change(hub: ServedForge, path: str, patch: str, commit: str) -> Json:
    """Return a file of a diff."""
    status = "added" if patch.startswith("@@ -0,0 ") else "removed" if " +0,0 @@" in patch[:50] else "modified"
    return shape(
        hub, "file", path=path, address=quote(path), commit=commit, status=status, patch=patch,
        blob=hashlib.sha1(patch.encode()).hexdigest(), additions=_lines([patch], "+"), deletions=_lines([patch], "-"),
        lines=_lines([patch], "+") + _lines([patch], "-"),
    )  # fmt: skip


def run(hub: ServedForge, run: Record) -> Json:
    """Return a run of the workflow, at its latest attempt."""
    head, shown, attempts, previous = _described(hub, run.head_sha), hub.run(run.id), run.attempts, None
    if len(attempts) > 1:
        previous = f"{api_url(hub)}/actions/runs/{run.id}/attempts/{len(attempts) - 1}"
    actor = user(hub, COPY_PR_BOT.login)
    values = head | {"head_author": head["author"]} | vars(run) | {
        "attempt": len(attempts), "started": attempts[-1], "status": shown.status,
        "conclusion": shown.conclusion or None, "updated": attempts[-1],
        "workflow_path": _WORKFLOW_PATH, "suite": run.id + 1, "suite_node": _node_id("CS", run.id + 1),
        "actor": actor, "triggering_actor": actor, "previous_attempt": previous, "run_number": run.id % 1000,
        "repository": repository(hub, hub.owner),
    }  # fmt: skip
    return shape(hub, "run", **values)


def job(hub: ServedForge, shown: WorkflowJob) -> Json:
    """Return a job; one that was skipped had no runner."""
    job = hub.find(shown.id)
    run = hub.record(job.run)
    runner = None if shown.conclusion == "skipped" else f"{shown.runners[0]}-practice"
    assert shown.started
    values: Json = vars(shown) | {
        "run": job.run, "attempt": job.attempt, "labels": [*shown.runners], "steps": [],
        "head_sha": run.head_sha, "head_branch": run.head_branch, "kind": job.kind,
        "conclusion": shown.conclusion or None, "created": shown.started.timestamp(), "runner": runner,
        "started": shown.started.timestamp(), "completed": shown.completed and shown.completed.timestamp(),
        "runner_id": 1 if runner else None, "runner_group": "practice" if runner else None,
    }  # fmt: skip
    return shape(hub, "job", **values | {"steps": [shape(hub, "step", **values)] if runner else []})
