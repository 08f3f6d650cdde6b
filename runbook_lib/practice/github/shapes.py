"""The answers of the practice forge: records in, JSON out.

Their form is that of GitHub's OpenAPI description, against which the tests check every answer.
"""

import json
from base64 import b64encode
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from runbook_lib.practice.accounts import ACCOUNTS, COPY_PR_BOT, PracticeAccount
from runbook_lib.practice.ci import plan
from runbook_lib.practice.git import CommitDetails, FileChange
from runbook_lib.practice.hub import Hub, RunState
from runbook_lib.practice.state import CommentRecord, EventRecord, JobRecord, LabelRecord, RunRecord, TicketRecord

REPOSITORY_ID = 480_000_001
WORKFLOW_ID = 170_000_001
Json = dict[str, Any]

#: Kind of object → start of its node id, fields with the same value in each, and the paths below its address.
_KINDS: dict[str, Json] = json.loads(files(__package__).joinpath("constants.json").read_text(encoding="utf-8"))


def node_id(kind: str, number: int) -> str:
    """Return a node id, which is unique and opaque to clients."""
    return f"{kind}_{b64encode(str(number).encode()).decode().rstrip('=')}"


def timestamp(seconds: float) -> str:
    """Return a time as GitHub writes it; ``seconds`` since 1970."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _timestamp_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else timestamp(seconds)


def _utc(iso: str) -> str:
    return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def api_url(hub: Hub, owner: str = "") -> str:
    """Return the address of a repository in the API."""
    return f"{hub.url}/repos/{owner or hub.owner}/{hub.name}"


def web_url(hub: Hub, owner: str = "") -> str:
    """Return the address of a repository for people."""
    return f"{hub.url}/{owner or hub.owner}/{hub.name}"


def new_object(kind: str, url: str, number: int) -> Json:
    """Return an object with the fields that follow from its kind, its address and its id."""
    table = _KINDS[kind]
    shown = {"id": number, "node_id": node_id(table["node"], number), "url": url, **table.get("fields", {})}
    for name, path in table.get("urls", {}).items():
        shown[f"{name}_url"] = url + path
    return shown


def account(hub: Hub, user: PracticeAccount) -> Json:
    """Return an account as other objects contain it."""
    return new_object("account", f"{hub.url}/users/{quote(user.login)}", user.id) | {
        "login": user.login, "avatar_url": f"{hub.url}/favicon.ico", "html_url": f"{hub.url}/{quote(user.login)}",
        "type": user.kind,
    }  # fmt: skip


def user(hub: Hub, login: str) -> Json:
    """Return the account with this login."""
    return account(hub, ACCOUNTS[login])


def own_account(hub: Hub, user: PracticeAccount) -> Json:
    """Return the account of a token, as ``GET /user`` shows it."""
    fields: Json = _KINDS["own_account"]["fields"]
    return account(hub, user) | fields | {"name": user.name}


def _owner(hub: Hub, owner: str) -> PracticeAccount:
    return ACCOUNTS.get(owner) or PracticeAccount(80_000_001, owner, owner, kind="Organization")


def repository(hub: Hub, owner: str = "") -> Json:
    """Return the repository, or the fork of another owner."""
    owner = owner or hub.owner
    url, html = api_url(hub, owner), web_url(hub, owner)
    number = REPOSITORY_ID + list(hub.places).index(owner)
    private = bool(hub.store.setting("private", False))
    return new_object("repository", url, number) | {
        "name": hub.name, "full_name": f"{owner}/{hub.name}",
        "owner": account(hub, _owner(hub, owner)), "html_url": html, "fork": owner != hub.owner,
        "git_url": f"git://localhost/{owner}/{hub.name}.git", "ssh_url": f"git@localhost:{owner}/{hub.name}.git",
        "clone_url": f"{html}.git", "svn_url": html, "private": private,
        "visibility": "private" if private else "public",
        "has_issues": not hub.store.setting("issues disabled", False),
    }  # fmt: skip


def label(hub: Hub, record: LabelRecord) -> Json:
    """Return a label."""
    return new_object("label", f"{api_url(hub)}/labels/{quote(record.name)}", record.id) | {
        "name": record.name,
        "description": record.description,
        "color": record.color,
        "default": record.name == "bug",
    }


def labels(hub: Hub, names: tuple[str, ...]) -> list[Json]:
    """Return the labels with these names, in this order."""
    records = {record.name: record for record in hub.store.all(LabelRecord)}
    return [label(hub, records[name]) for name in names]


def comment(hub: Hub, record: CommentRecord) -> Json:
    """Return a comment of an issue or pull request."""
    ticket = hub.store.find(TicketRecord, record.number)
    kind = "pull" if ticket and ticket.is_pull else "issues"
    created = timestamp(record.created)
    return new_object("comment", f"{api_url(hub)}/issues/comments/{record.id}", record.id) | {
        "html_url": f"{web_url(hub)}/{kind}/{record.number}#issuecomment-{record.id}", "body": record.body,
        "user": user(hub, record.author), "created_at": created, "updated_at": created,
        "issue_url": f"{api_url(hub)}/issues/{record.number}", "author_association": _association(record.author),
    }  # fmt: skip


def _association(login: str) -> str:
    """Return GitHub's name for the relation of an account to the repository."""
    account = ACCOUNTS[login]
    if account.kind == "Bot":
        return "NONE"
    return "MEMBER" if account.permission == "write" else "CONTRIBUTOR"


def event(hub: Hub, record: EventRecord) -> Json:
    """Return the event of a label that was added or removed."""
    colors = {label.name: label.color for label in hub.store.all(LabelRecord)}
    return new_object("event", f"{api_url(hub)}/issues/events/{record.id}", record.id) | {
        "event": record.event, "actor": user(hub, record.actor), "created_at": timestamp(record.created),
        "label": {"name": record.label, "color": colors.get(record.label, "ededed")},
    }  # fmt: skip


def _ticket(hub: Hub, ticket: TicketRecord) -> Json:
    """Return the fields that issues and pull requests share."""
    assignees = [user(hub, login) for login in ticket.assignees]
    return {
        "number": ticket.number, "title": ticket.title, "body": ticket.body, "state": ticket.state,
        "user": user(hub, ticket.author), "labels": labels(hub, ticket.labels),
        "assignee": next(iter(assignees), None), "assignees": assignees,
        "author_association": _association(ticket.author), "created_at": timestamp(ticket.created),
        "updated_at": timestamp(ticket.updated), "closed_at": _timestamp_or_none(ticket.closed),
    }  # fmt: skip


def issue(hub: Hub, ticket: TicketRecord) -> Json:
    """Return an issue; GitHub shows pull requests as issues, too."""
    html = f"{web_url(hub)}/issues/{ticket.number}"
    shown = new_object("issue", f"{api_url(hub)}/issues/{ticket.number}", ticket.id) | _ticket(hub, ticket)
    if ticket.is_pull:
        html = f"{web_url(hub)}/pull/{ticket.number}"
        shown |= {"node_id": node_id("PR", ticket.id), "draft": ticket.draft, "pull_request": {
            "url": f"{api_url(hub)}/pulls/{ticket.number}", "html_url": html, "diff_url": f"{html}.diff",
            "patch_url": f"{html}.patch", "merged_at": _timestamp_or_none(ticket.merged),
        }}  # fmt: skip
    return shown | {
        "html_url": html, "repository_url": api_url(hub), "state_reason": ticket.state_reason,
        "comments": len(hub.store.all(CommentRecord, ticket.number)),
    }  # fmt: skip


def search_result(hub: Hub, ticket: TicketRecord) -> Json:
    """Return an issue as the search shows it: without a body if that is empty."""
    shown = issue(hub, ticket) | {"score": 1.0}
    if ticket.body is None:
        del shown["body"]
    return shown


def _side(hub: Hub, owner: str, ref: str, sha: str) -> Json:
    return {
        "label": f"{owner}:{ref}", "ref": ref, "sha": sha, "user": account(hub, _owner(hub, owner)),
        "repo": repository(hub, owner) if owner in hub.places else None,
    }  # fmt: skip


def pull(hub: Hub, ticket: TicketRecord) -> Json:
    """Return a pull request as lists show it."""
    api, html = api_url(hub), f"{web_url(hub)}/pull/{ticket.number}"
    shown = new_object("pull", f"{api}/pulls/{ticket.number}", ticket.id) | _ticket(hub, ticket) | {
        "html_url": html, "diff_url": f"{html}.diff", "patch_url": f"{html}.patch", "draft": ticket.draft,
        "issue_url": f"{api}/issues/{ticket.number}", "comments_url": f"{api}/issues/{ticket.number}/comments",
        "review_comment_url": f"{api}/pulls/comments{{/number}}", "statuses_url": f"{api}/statuses/{ticket.head_sha}",
        "head": _side(hub, ticket.head_owner, ticket.head_ref, ticket.head_sha),
        "base": _side(hub, hub.owner, ticket.base_ref, ticket.base_sha),
        "merged_at": _timestamp_or_none(ticket.merged), "merge_commit_sha": ticket.merge_sha,
    }  # fmt: skip
    links = {"self": {"href": shown["url"]}}
    for name in ("html", "issue", "comments", "review_comments", "review_comment", "commits", "statuses"):
        links[name] = {"href": shown[f"{name}_url"]}
    return shown | {"_links": links}


def pull_in_full(hub: Hub, ticket: TicketRecord) -> Json:
    """Return a pull request on its own."""
    _, _, fork_point = hub.home.compare(ticket.base_sha, ticket.head_sha)
    changes = hub.home.changes(fork_point, ticket.head_sha) if fork_point else ()
    fields: Json = _KINDS["pull_in_full"]["fields"]
    return pull(hub, ticket) | fields | {
        "merged": ticket.merged is not None, "mergeable": ticket.mergeable, "rebaseable": ticket.mergeable,
        "mergeable_state": _mergeable_state(ticket), "comments": len(hub.store.all(CommentRecord, ticket.number)),
        "maintainer_can_modify": ticket.head_owner != hub.owner,
        "commits": len(hub.home.log(ticket.base_sha, ticket.head_sha)), "changed_files": len(changes),
        "additions": sum(file.additions for file in changes), "deletions": sum(file.deletions for file in changes),
    }  # fmt: skip


def _mergeable_state(ticket: TicketRecord) -> str:
    if ticket.mergeable is None:
        return "unknown"
    if not ticket.mergeable:
        return "dirty"
    return "draft" if ticket.draft else "clean"


def _account_of_email(hub: Hub, email: str) -> Json | None:
    """Return the account that an e-mail address of a commit belongs to, if any."""
    for user in ACCOUNTS.values():
        if email and user.email == email:
            return account(hub, user)
    return None


def commit(hub: Hub, details: CommitDetails) -> Json:
    """Return a commit."""
    url, html = api_url(hub), web_url(hub)
    shown = new_object("commit", f"{url}/commits/{details.sha}", int(details.sha[:12], 16))
    del shown["id"]
    return shown | {
        "sha": details.sha, "html_url": f"{html}/commit/{details.sha}",
        "author": _account_of_email(hub, details.author_email),
        "committer": _account_of_email(hub, details.committer_email),
        "parents": [
            {"sha": sha, "url": f"{url}/commits/{sha}", "html_url": f"{html}/commit/{sha}"} for sha in details.parents
        ],
        "commit": {
            "author": {"name": details.author, "email": details.author_email, "date": _utc(details.authored)},
            "committer": {"name": details.committer, "email": details.committer_email, "date": _utc(details.committed)},
            "message": details.message, "tree": {"sha": details.tree, "url": f"{url}/git/trees/{details.tree}"},
            "url": f"{url}/git/commits/{details.sha}", "comment_count": 0,
            "verification": {
                "verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None
            },
        },
    }  # fmt: skip


def file_change(hub: Hub, file: FileChange, sha: str) -> Json:
    """Return a file of a diff."""
    path = quote(file.path)
    return {
        "sha": file.blob, "filename": file.path, "status": file.status, "additions": file.additions,
        "deletions": file.deletions, "changes": file.additions + file.deletions,
        "blob_url": f"{web_url(hub)}/blob/{sha}/{path}", "raw_url": f"{web_url(hub)}/raw/{sha}/{path}",
        "contents_url": f"{api_url(hub)}/contents/{path}?ref={sha}",
    }  # fmt: skip


def actor(run: RunRecord) -> str:
    """Return the login that started a run."""
    return COPY_PR_BOT.login if run.pull else run.author


def run(hub: Hub, state: RunState) -> Json:
    """Return a run of the workflow, at the attempt of the state."""
    record, attempt, api = state.run, state.attempt, api_url(hub)
    head = hub.home.commit(record.head_sha)
    number, suite = attempt.attempt, record.id + 1
    changed = plan.changed_at((job.planned for job in state.jobs), attempt.started, hub.clock())
    repo = repository(hub)
    shown = new_object("run", f"{api}/actions/runs/{record.id}", record.id) | {
        "name": plan.WORKFLOW, "path": plan.WORKFLOW_PATH, "head_branch": record.head_branch,
        "head_sha": record.head_sha,
        "display_title": record.title, "run_number": record.run_number, "run_attempt": number, "event": record.event,
        "status": state.status.status, "conclusion": state.status.conclusion, "workflow_id": WORKFLOW_ID,
        "check_suite_id": suite, "check_suite_node_id": node_id("CS", suite),
        "html_url": f"{web_url(hub)}/actions/runs/{record.id}",
        "created_at": timestamp(record.created), "updated_at": timestamp(state.status.completed or changed),
        "actor": user(hub, actor(record)), "triggering_actor": user(hub, attempt.actor),
        "run_started_at": timestamp(attempt.started), "check_suite_url": f"{api}/check-suites/{suite}",
        "previous_attempt_url": None, "workflow_url": f"{api}/actions/workflows/{WORKFLOW_ID}",
        "head_commit": {
            "id": head.sha, "tree_id": head.tree, "message": head.message, "timestamp": _utc(head.committed),
            "author": {"name": head.author, "email": head.author_email},
            "committer": {"name": head.committer, "email": head.committer_email},
        },
        "repository": repo, "head_repository": repo, "head_repository_id": repo["id"],
    }  # fmt: skip
    if number > 1:
        shown["previous_attempt_url"] = f"{shown['url']}/attempts/{number - 1}"
    return shown


_RUNNERS = {"dgx_h100": "nvidia-ci-aws-gpu-x8", "dgx_gb200": "nvidia-ci-aws-use2-gpu-x4"}


def job(hub: Hub, state: RunState, record: JobRecord, status: plan.GitHubStatus) -> Json:
    """Return a job.  GitHub gives a start even to a job that waits: the time when it was listed."""
    listed = state.attempt.started + max(record.planned.appears, 0.0)
    has_started = status.started is not None and status.conclusion != "skipped"
    started = timestamp(listed if status.started is None else status.started)
    completed = _timestamp_or_none(status.completed)
    step = {
        "name": record.planned.kind, "status": "in_progress" if status.status == "waiting" else status.status,
        "conclusion": status.conclusion, "number": 1, "started_at": started, "completed_at": completed,
    }  # fmt: skip
    label = _RUNNERS.get(record.planned.platform, "ubuntu-latest")
    runner: Json = {"runner_id": None, "runner_name": None, "runner_group_id": None, "runner_group_name": None}
    if has_started:
        runner = {
            "runner_id": 1, "runner_name": f"{label}-practice", "runner_group_id": 1, "runner_group_name": "practice"
        }  # fmt: skip
    return new_object("job", f"{api_url(hub)}/actions/jobs/{record.id}", record.id) | {
        "run_id": state.run.id, "run_attempt": record.attempt,
        "head_sha": state.run.head_sha, "head_branch": state.run.head_branch, "workflow_name": plan.WORKFLOW,
        "name": record.planned.name, "status": status.status, "conclusion": status.conclusion,
        "created_at": timestamp(listed), "started_at": started, "completed_at": completed,
        "run_url": f"{api_url(hub)}/actions/runs/{state.run.id}",
        "html_url": f"{web_url(hub)}/actions/runs/{state.run.id}/job/{record.id}",
        "check_run_url": f"{api_url(hub)}/check-runs/{record.id}", "steps": [step] if has_started else [],
        "labels": [label], **runner,
    }  # fmt: skip
