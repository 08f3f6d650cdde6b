"""The practice forge's answers in GitHub's form: records in, JSON out.

The form is that of GitHub's OpenAPI description; the tests hold every answer against it.
"""

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from runbook_lib.practice.ci import plan
from runbook_lib.practice.git import Change, Commit
from runbook_lib.practice.github.protocol import ACCOUNTS, COPY_PR_BOT, Account
from runbook_lib.practice.hub import Hub, RunState
from runbook_lib.practice.state import Comment, Event, Job, Label, Run, Ticket

REPOSITORY_ID = 480_000_001
WORKFLOW_ID = 170_000_001
Json = dict[str, Any]

#: Addresses below a repository, as GitHub lists them.
_REPOSITORY_URLS = {
    "archive": "/{archive_format}{/ref}", "assignees": "/assignees{/user}", "blobs": "/git/blobs{/sha}",
    "branches": "/branches{/branch}", "collaborators": "/collaborators{/collaborator}",
    "comments": "/comments{/number}", "commits": "/commits{/sha}", "compare": "/compare/{base}...{head}",
    "contents": "/contents/{+path}", "contributors": "/contributors", "deployments": "/deployments",
    "downloads": "/downloads", "events": "/events", "forks": "/forks", "git_commits": "/git/commits{/sha}",
    "git_refs": "/git/refs{/sha}", "git_tags": "/git/tags{/sha}", "hooks": "/hooks",
    "issue_comment": "/issues/comments{/number}", "issue_events": "/issues/events{/number}",
    "issues": "/issues{/number}", "keys": "/keys{/key_id}", "labels": "/labels{/name}", "languages": "/languages",
    "merges": "/merges", "milestones": "/milestones{/number}",
    "notifications": "/notifications{?since,all,participating}", "pulls": "/pulls{/number}",
    "releases": "/releases{/id}", "stargazers": "/stargazers", "statuses": "/statuses/{sha}",
    "subscribers": "/subscribers", "subscription": "/subscription", "tags": "/tags", "teams": "/teams",
    "trees": "/git/trees{/sha}",
}  # fmt: skip
_USER_URLS = {
    "followers": "/followers", "following": "/following{/other_user}", "gists": "/gists{/gist_id}",
    "starred": "/starred{/owner}{/repo}", "subscriptions": "/subscriptions", "organizations": "/orgs",
    "repos": "/repos", "events": "/events{/privacy}", "received_events": "/received_events",
}  # fmt: skip


def node(kind: str, number: int) -> str:
    """A node id: opaque to clients, unique."""
    return f"{kind}_{b64encode(str(number).encode()).decode().rstrip('=')}"


def moment(seconds: float) -> str:
    """A time as GitHub writes it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utc(iso: str) -> str:
    return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def api(hub: Hub, owner: str = "") -> str:
    """The address of a repository in the API."""
    return f"{hub.url}/repos/{owner or hub.owner}/{hub.name}"


def web(hub: Hub, owner: str = "") -> str:
    """The address of a repository for people."""
    return f"{hub.url}/{owner or hub.owner}/{hub.name}"


def account(hub: Hub, who: Account) -> Json:
    url = f"{hub.url}/users/{quote(who.login)}"
    return {
        "login": who.login, "id": who.id, "node_id": node("U", who.id), "avatar_url": f"{hub.url}/favicon.ico",
        "gravatar_id": "", "url": url, "html_url": f"{hub.url}/{quote(who.login)}", "type": who.kind,
        "user_view_type": "public", "site_admin": False,
        **{f"{name}_url": url + rest for name, rest in _USER_URLS.items()},
    }  # fmt: skip


def user(hub: Hub, login: str) -> Json:
    return account(hub, ACCOUNTS[login])


def me(hub: Hub, who: Account) -> Json:
    """The account of a token, as ``GET /user`` gives it."""
    since = moment(0)
    counts = ("public_repos", "public_gists", "followers", "following")
    return account(hub, who) | {
        "name": who.name, "company": None, "blog": "", "location": None, "email": None, "hireable": None,
        "bio": None, "created_at": since, "updated_at": since, **dict.fromkeys(counts, 0),
    }  # fmt: skip


def _owner(hub: Hub, owner: str) -> Account:
    return ACCOUNTS.get(owner) or Account(80_000_001, owner, owner, kind="Organization")


def repository(hub: Hub, owner: str = "", *, may_write: bool | None = None) -> Json:
    """A repository; with ``may_write`` it tells the caller's permissions, and for a fork also its parent."""
    owner = owner or hub.owner
    url, html = api(hub, owner), web(hub, owner)
    number = REPOSITORY_ID + list(hub.places).index(owner)
    zero = ("forks", "forks_count", "stargazers_count", "watchers", "watchers_count", "open_issues",
            "open_issues_count", "size")  # fmt: skip
    private = bool(hub.store.setting("private", False))
    no = ("archived", "disabled", "has_projects", "has_wiki", "has_pages", "has_discussions", "is_template")
    shown: Json = {
        "id": number, "node_id": node("R", number), "name": hub.name, "full_name": f"{owner}/{hub.name}",
        "owner": account(hub, _owner(hub, owner)), "html_url": html, "url": url, "description": "Practice only",
        "fork": owner != hub.owner, **{f"{name}_url": url + rest for name, rest in _REPOSITORY_URLS.items()},
        "git_url": f"git://localhost/{owner}/{hub.name}.git", "ssh_url": f"git@localhost:{owner}/{hub.name}.git",
        "clone_url": f"{html}.git", "svn_url": html, "mirror_url": None, "homepage": None, "language": "Python",
        "default_branch": "main", "private": private, "visibility": "private" if private else "public",
        "license": None, "topics": [],
        "has_issues": not hub.store.setting("issues disabled", False),
        "has_downloads": True, **dict.fromkeys(no, False), **dict.fromkeys(zero, 0), "allow_forking": True,
        "web_commit_signoff_required": False, "pushed_at": moment(0), "created_at": moment(0),
        "updated_at": moment(0),
    }  # fmt: skip
    if may_write is not None:
        shown["permissions"] = {"admin": False, "maintain": False, "push": may_write, "triage": may_write, "pull": True}
        shown |= {"network_count": 0, "subscribers_count": 0}
        if owner != hub.owner:
            shown |= {"parent": repository(hub), "source": repository(hub)}
    return shown


def label(hub: Hub, it: Label) -> Json:
    return {
        "id": it.id, "node_id": node("LA", it.id), "url": f"{api(hub)}/labels/{quote(it.name)}", "name": it.name,
        "description": it.description, "color": it.color, "default": it.name == "bug",
    }  # fmt: skip


def labels(hub: Hub, names: tuple[str, ...]) -> list[Json]:
    known = {each.name: each for each in hub.store.all(Label)}
    return [label(hub, known[name]) for name in names]


def comment(hub: Hub, it: Comment) -> Json:
    kind = "pull" if (ticket := hub.store.find(Ticket, it.number)) and ticket.is_pull else "issues"
    return {
        "id": it.id, "node_id": node("IC", it.id), "url": f"{api(hub)}/issues/comments/{it.id}",
        "html_url": f"{web(hub)}/{kind}/{it.number}#issuecomment-{it.id}", "body": it.body,
        "user": user(hub, it.author), "created_at": moment(it.created), "updated_at": moment(it.created),
        "issue_url": f"{api(hub)}/issues/{it.number}", "author_association": association(it.author),
        "performed_via_github_app": None,
    }  # fmt: skip


def association(login: str) -> str:
    """How GitHub calls somebody's relation to the repository."""
    who = ACCOUNTS[login]
    return "NONE" if who.kind == "Bot" else "MEMBER" if who.permission == "write" else "CONTRIBUTOR"


def event(hub: Hub, it: Event) -> Json:
    color = {each.name: each.color for each in hub.store.all(Label)}.get(it.label, "ededed")
    return {
        "id": it.id, "node_id": node("LE", it.id), "url": f"{api(hub)}/issues/events/{it.id}", "event": it.event,
        "actor": user(hub, it.actor), "commit_id": None, "commit_url": None, "created_at": moment(it.created),
        "performed_via_github_app": None, "label": {"name": it.label, "color": color},
    }  # fmt: skip


def _ticket(hub: Hub, it: Ticket) -> Json:
    """What issues and pull requests have in common."""
    return {
        "id": it.id, "number": it.number, "title": it.title, "body": it.body, "state": it.state, "locked": False,
        "user": user(hub, it.author), "labels": labels(hub, it.labels), "milestone": None,
        "assignee": user(hub, it.assignees[0]) if it.assignees else None,
        "assignees": [user(hub, login) for login in it.assignees], "author_association": association(it.author),
        "active_lock_reason": None, "created_at": moment(it.created), "updated_at": moment(it.updated),
        "closed_at": None if it.closed is None else moment(it.closed),
        "comments_url": f"{api(hub)}/issues/{it.number}/comments",
    }  # fmt: skip


def issue(hub: Hub, it: Ticket) -> Json:
    """A ticket as the issues' routes show it; GitHub shows pull requests there too."""
    kind, url = ("pull" if it.is_pull else "issues"), f"{api(hub)}/issues/{it.number}"
    shown = _ticket(hub, it) | {
        "url": url, "node_id": node("PR" if it.is_pull else "I", it.id), "repository_url": api(hub),
        "html_url": f"{web(hub)}/{kind}/{it.number}", "labels_url": url + "/labels{/name}",
        "events_url": f"{url}/events", "timeline_url": f"{url}/timeline", "state_reason": it.state_reason,
        "comments": len(hub.store.all(Comment, it.number)), "performed_via_github_app": None,
    }  # fmt: skip
    if it.is_pull:
        pull, html = f"{api(hub)}/pulls/{it.number}", f"{web(hub)}/pull/{it.number}"
        merged = None if it.merged is None else moment(it.merged)
        shown["draft"] = it.draft
        shown["pull_request"] = {
            "url": pull, "html_url": html, "diff_url": f"{html}.diff", "patch_url": f"{html}.patch", "merged_at": merged
        }  # fmt: skip
    return shown


def found(hub: Hub, it: Ticket) -> Json:
    """A ticket as the search shows it."""
    return {name: value for name, value in issue(hub, it).items() if (name, value) != ("body", None)} | {"score": 1.0}


def _side(hub: Hub, owner: str, ref: str, sha: str) -> Json:
    return {
        "label": f"{owner}:{ref}", "ref": ref, "sha": sha, "user": account(hub, _owner(hub, owner)),
        "repo": repository(hub, owner) if owner in hub.places else None,
    }  # fmt: skip


def pull(hub: Hub, it: Ticket) -> Json:
    """A pull request in a list."""
    url, html = f"{api(hub)}/pulls/{it.number}", f"{web(hub)}/pull/{it.number}"
    links = {
        "self": url, "html": html, "issue": f"{api(hub)}/issues/{it.number}",
        "comments": f"{api(hub)}/issues/{it.number}/comments", "review_comments": f"{url}/comments",
        "review_comment": f"{api(hub)}/pulls/comments" + "{/number}", "commits": f"{url}/commits",
        "statuses": f"{api(hub)}/statuses/{it.head_sha}",
    }  # fmt: skip
    return _ticket(hub, it) | {
        "url": url, "node_id": node("PR", it.id), "html_url": html, "diff_url": f"{html}.diff",
        "patch_url": f"{html}.patch", "draft": it.draft,
        **{f"{name}_url": at for name, at in links.items() if name not in ("self", "html")},
        "_links": {name: {"href": at} for name, at in links.items()},
        "head": _side(hub, it.head_owner, it.head_ref, it.head_sha),
        "base": _side(hub, hub.owner, it.base_ref, it.base_sha), "auto_merge": None, "requested_reviewers": [],
        "requested_teams": [], "merged_at": None if it.merged is None else moment(it.merged),
        "merge_commit_sha": it.merge_sha,
    }  # fmt: skip


def pull_in_full(hub: Hub, it: Ticket) -> Json:
    """A pull request on its own."""
    _, _, fork_point = hub.home.compare(it.base_sha, it.head_sha)
    changes = hub.home.changes(fork_point, it.head_sha) if fork_point else ()
    state = "unknown" if it.mergeable is None else "draft" if it.draft else "clean" if it.mergeable else "dirty"
    return pull(hub, it) | {
        "merged": it.merged is not None, "mergeable": it.mergeable, "rebaseable": it.mergeable,
        "mergeable_state": "dirty" if it.mergeable is False else state, "merged_by": None,
        "comments": len(hub.store.all(Comment, it.number)), "review_comments": 0,
        "maintainer_can_modify": it.head_owner != hub.owner, "commits": len(hub.home.log(it.base_sha, it.head_sha)),
        "additions": sum(each.additions for each in changes), "deletions": sum(each.deletions for each in changes),
        "changed_files": len(changes),
    }  # fmt: skip


def _known(hub: Hub, email: str) -> Json | None:
    """The account that an e-mail address of a commit belongs to, if any."""
    who = next((each for each in ACCOUNTS.values() if email and each.email == email), None)
    return account(hub, who) if who else None


def commit(hub: Hub, it: Commit, owner: str = "") -> Json:
    url, html = api(hub, owner), web(hub, owner)
    return {
        "sha": it.sha, "node_id": node("C", int(it.sha[:12], 16)), "url": f"{url}/commits/{it.sha}",
        "html_url": f"{html}/commit/{it.sha}", "comments_url": f"{url}/commits/{it.sha}/comments",
        "author": _known(hub, it.author_email), "committer": _known(hub, it.committer_email),
        "parents": [
            {"sha": sha, "url": f"{url}/commits/{sha}", "html_url": f"{html}/commit/{sha}"} for sha in it.parents
        ],
        "commit": {
            "author": {"name": it.author, "email": it.author_email, "date": _utc(it.authored)},
            "committer": {"name": it.committer, "email": it.committer_email, "date": _utc(it.committed)},
            "message": it.message, "tree": {"sha": it.tree, "url": f"{url}/git/trees/{it.tree}"},
            "url": f"{url}/git/commits/{it.sha}", "comment_count": 0,
            "verification": {
                "verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None
            },
        },
    }  # fmt: skip


def change(hub: Hub, it: Change, sha: str) -> Json:
    """A file of a diff."""
    path = quote(it.path)
    return {
        "sha": it.blob, "filename": it.path, "status": it.status, "additions": it.additions,
        "deletions": it.deletions, "changes": it.additions + it.deletions,
        "blob_url": f"{web(hub)}/blob/{sha}/{path}", "raw_url": f"{web(hub)}/raw/{sha}/{path}",
        "contents_url": f"{api(hub)}/contents/{path}?ref={sha}",
    }  # fmt: skip


def actor(it: Run) -> str:
    """Who started a run."""
    return COPY_PR_BOT.login if it.pull else it.author


def run(hub: Hub, it: RunState) -> Json:
    """A run of the workflow, at the attempt of the state."""
    of, url = it.run, f"{api(hub)}/actions/runs/{it.run.id}"
    head = hub.home.commit(of.head_sha)
    number = it.attempt.attempt
    changed = plan.changed_at((job.planned for job in it.jobs), it.attempt.started, hub.clock())
    repo = repository(hub)
    return {
        "id": of.id, "name": plan.WORKFLOW, "node_id": node("WFR", of.id), "head_branch": of.head_branch,
        "head_sha": of.head_sha, "path": plan.WORKFLOW_PATH, "display_title": of.title, "run_number": of.run_number,
        "run_attempt": number, "event": of.event, "status": it.seen.status, "conclusion": it.seen.conclusion,
        "workflow_id": WORKFLOW_ID, "check_suite_id": of.id + 1, "check_suite_node_id": node("CS", of.id + 1),
        "url": url, "html_url": f"{web(hub)}/actions/runs/{of.id}", "pull_requests": [],
        "created_at": moment(of.created),
        "updated_at": moment(it.seen.completed or changed), "actor": user(hub, actor(of)),
        "triggering_actor": user(hub, it.attempt.actor), "run_started_at": moment(it.attempt.started),
        "jobs_url": f"{url}/jobs", "logs_url": f"{url}/logs", "check_suite_url": f"{api(hub)}/check-suites/{of.id + 1}",
        "artifacts_url": f"{url}/artifacts", "cancel_url": f"{url}/cancel", "rerun_url": f"{url}/rerun",
        "previous_attempt_url": f"{url}/attempts/{number - 1}" if number > 1 else None,
        "workflow_url": f"{api(hub)}/actions/workflows/{WORKFLOW_ID}", "referenced_workflows": [],
        "head_commit": {
            "id": head.sha, "tree_id": head.tree, "message": head.message, "timestamp": _utc(head.committed),
            "author": {"name": head.author, "email": head.author_email},
            "committer": {"name": head.committer, "email": head.committer_email},
        },
        "repository": repo, "head_repository": repo, "head_repository_id": repo["id"],
    }  # fmt: skip


def job(hub: Hub, it: RunState, which: Job, seen: plan.Seen) -> Json:
    """A job.  GitHub gives a start even to one that waits: when it was listed."""
    listed = it.attempt.started + max(which.planned.appears, 0.0)
    runner = {"dgx_h100": "nvidia-ci-aws-gpu-x8", "dgx_gb200": "nvidia-ci-aws-use2-gpu-x4"}.get(
        which.planned.platform, "ubuntu-latest"
    )
    begun = seen.started is not None and seen.conclusion != "skipped"
    started = listed if seen.started is None else seen.started
    completed = None if seen.completed is None else moment(seen.completed)
    main = {
        "name": which.planned.kind, "status": "in_progress" if seen.status == "waiting" else seen.status,
        "conclusion": seen.conclusion, "number": 1, "started_at": moment(started), "completed_at": completed,
    }  # fmt: skip
    return {
        "id": which.id, "run_id": it.run.id, "run_attempt": which.attempt, "node_id": node("CR", which.id),
        "head_sha": it.run.head_sha, "head_branch": it.run.head_branch, "workflow_name": plan.WORKFLOW,
        "name": which.planned.name, "status": seen.status, "conclusion": seen.conclusion,
        "created_at": moment(listed), "started_at": moment(started), "completed_at": completed,
        "url": f"{api(hub)}/actions/jobs/{which.id}", "run_url": f"{api(hub)}/actions/runs/{it.run.id}",
        "html_url": f"{web(hub)}/actions/runs/{it.run.id}/job/{which.id}",
        "check_run_url": f"{api(hub)}/check-runs/{which.id}", "steps": [main] if begun else [], "labels": [runner],
        "runner_id": 1 if begun else None, "runner_name": f"{runner}-practice" if begun else None,
        "runner_group_id": 1 if begun else None, "runner_group_name": "practice" if begun else None,
    }  # fmt: skip
