"""One repository on GitHub: its pull requests, issues, labels, comments and workflow runs."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from runbook_lib.world.github import models
from runbook_lib.world.github.connection import GitHubConnection
from runbook_lib.world.github.errors import NotAllowed
from runbook_lib.world.github.models import Artifact, Comment, Issue, LabelEvent, Pull, WorkflowJob, WorkflowRun
from runbook_lib.world.replies import items_of, whole_number
from runbook_lib.world.transport.downloads import FileInParts

#: Where each permission to read shows: its name → a path.
_PROBES = {
    "actions": "/actions/runs", "contents": "/commits", "deployments": "/deployments", "issues": "/issues",
    "pull_requests": "/pulls",
}  # fmt: skip


class GitHub(GitHubConnection):
    """One repository on GitHub, as one token sees it.  For use by one thread.

    ``world.ports.Forge`` says what the methods return.
    """

    def me(self) -> str:
        return self.get("read the account of the token", "/user", lambda user: str(user["login"]))

    def repo(self) -> models.GitHubRepository:
        return self.get("read the repository", "", models.GitHubRepository.of)

    def may_read(self, area: str) -> bool:
        try:
            self.get(f"check whether the token may read {area}", _PROBES[area], lambda _: None, {"per_page": 1})
        except NotAllowed as error:
            return "not accessible" not in str(error)  # it is not, for example, issues that the repository disabled
        return True

    def may_write(self, login: str) -> bool:
        path = f"/collaborators/{quote(login, safe='')}/permission"
        try:
            permission = self.get(f"read the permission of {login}", path, lambda access: str(access["permission"]))
        except NotAllowed:
            return False
        return permission in ("admin", "write")

    def pulls(self, head: str | None = None, base: str | None = None, state: str = "open") -> tuple[Pull, ...]:
        query = {"state": state, "head": head, "base": base}
        return self.pages("list the pull requests", "/pulls", Pull.of, params=query)

    def pull(self, number: int) -> Pull:
        return self.get(f"read pull request #{number}", f"/pulls/{number}", Pull.of)

    def labellings(self, number: int) -> tuple[LabelEvent, ...]:
        events = self.pages(f"read the events of #{number}", f"/issues/{number}/events", LabelEvent.of)
        return tuple(event for event in events if event is not None)

    def comments(self, number: int) -> tuple[Comment, ...]:
        return self.pages(f"read the comments of #{number}", f"/issues/{number}/comments", Comment.of)

    def files(self, number: int) -> Mapping[str, str]:
        def file(item: Any) -> tuple[str, str]:
            return str(item["filename"]), str(item.get("patch") or "")

        return dict(self.pages(f"list the files of #{number}", f"/pulls/{number}/files", file))

    def last_author(self, path: str, ref: str) -> str:
        params: dict[str, str | int] = {"path": path, "sha": ref, "per_page": 1}

        def author(commits: Any) -> str:
            listed = items_of(commits)
            return models.login(listed[0]["author"]) if listed else ""

        return self.get(f"find who last changed {path}", "/commits", author, params)

    def behind(self, base: str, head: str) -> int:
        path = f"/compare/{quote(base)}...{quote(head)}"
        action, params = f"compare {base} with {head[:10]}", {"per_page": 1}
        return self.get(action, path, lambda comparison: whole_number(comparison["behind_by"]), params)

    def runs(
        self, branch: str | None = None, head_sha: str | None = None, event: str | None = None,
        status: str | None = None, since: datetime | None = None,
    ) -> tuple[WorkflowRun, ...]:  # fmt: skip
        created = f">={since:%Y-%m-%dT%H:%M:%SZ}" if since else None
        query = {"branch": branch, "head_sha": head_sha, "event": event, "status": status, "created": created}
        return self.pages("list the CI runs", "/actions/runs", WorkflowRun.of, key="workflow_runs", params=query)

    def run(self, run_id: int) -> WorkflowRun:
        return self.get(f"read CI run {run_id}", f"/actions/runs/{run_id}", WorkflowRun.of)

    def jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        path = f"/actions/runs/{run_id}/jobs"
        action = f"list the jobs of CI run {run_id}"
        return self.pages(action, path, WorkflowJob.of, key="jobs", params={"filter": "latest"})

    def job(self, job_id: int) -> WorkflowJob:
        return self.get(f"read job {job_id}", f"/actions/jobs/{job_id}", WorkflowJob.of)

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        path = f"/actions/runs/{run_id}/artifacts"
        return self.pages(f"list the artifacts of CI run {run_id}", path, Artifact.of, key="artifacts")

    def artifact(self, artifact_id: int) -> FileInParts:
        return self.file(f"/actions/artifacts/{artifact_id}/zip")

    def log(self, job_id: int) -> FileInParts:
        return self.file(f"/actions/jobs/{job_id}/logs")

    def deployment_failed(self, sha: str) -> bool:
        """Return True if the newest deployment of a commit failed ("had a problem deploying" on the pull request)."""
        query = {"sha": sha, "environment": "test"}
        action = f"check whether {sha[:10]} was deployed"
        ids = self.pages(action, "/deployments", lambda deployment: int(deployment["id"]), params=query)
        if not ids:
            return False
        path = f"/deployments/{max(ids)}/statuses"
        states = self.pages(action, path, lambda status: (int(status["id"]), str(status["state"])))
        return bool(states) and max(states)[1] in ("failure", "error")

    def open_pull(self, title: str, head: str, base: str, body: str) -> Pull:
        fields = {"title": title, "head": head, "base": base, "body": body, "draft": True}
        return self.send(f"open a pull request from {head} into {base}", "POST", "/pulls", fields, Pull.of)

    def update_pull(self, number: int, body: str) -> Pull:
        return self.send(f"edit pull request #{number}", "PATCH", f"/pulls/{number}", {"body": body}, Pull.of)

    def comment(self, number: int, body: str) -> Comment:
        return self.send(f"comment on #{number}", "POST", f"/issues/{number}/comments", {"body": body}, Comment.of)

    def remove_comment(self, comment: Comment) -> None:
        self.send("remove the comment", "DELETE", f"/issues/comments/{comment.id}", None, bool)

    def rerun_failed(self, run_id: int) -> None:
        path = f"/actions/runs/{run_id}/rerun-failed-jobs"
        self.send(f"run the failed jobs of CI run {run_id} again", "POST", path, {}, lambda _: None)

    def add_label(self, number: int, name: str) -> None:
        path = f"/issues/{number}/labels"
        self.send(f"add the label {name!r} to #{number}", "POST", path, {"labels": [name]}, lambda _: None)

    def remove_label(self, number: int, name: str) -> None:
        path = f"/issues/{number}/labels/{quote(name, safe='')}"
        self.send(f"remove the label {name!r} from #{number}", "DELETE", path, None, lambda _: None)

    def search_issues(self, words: str) -> tuple[Issue, ...]:
        plain = words.replace('"', " ")
        query = f'repo:{self.repository} is:issue is:open "{plain}"'
        issues = self.pages(f"search the issues for {plain!r}", "/search/issues", Issue.of, "items", {"q": query})
        return tuple(sorted(issues, key=lambda issue: issue.number))

    def list_issues(self, creator: str = "") -> tuple[Issue, ...]:
        params = {"state": "open", "creator": creator or None}
        issues = self.pages("list the issues", "/issues", _unless_pull, params=params)
        return tuple(sorted((issue for issue in issues if issue), key=lambda issue: issue.number))

    def issue(self, number: int) -> Issue:
        return self.get(f"read issue #{number}", f"/issues/{number}", Issue.of)

    def is_assignable(self, login: str) -> bool:
        try:
            return self.get(f"see whether {login} can be assigned", f"/assignees/{login}", lambda _: True)
        except NotAllowed:
            return False

    def file_issue(self, title: str, body: str, labels: Collection[str] = (), assignee: str = "") -> Issue:
        fields: dict[str, Any] = {"title": title, "body": body, "labels": sorted(labels)}  # ignored without permission
        if assignee:
            fields["assignees"] = [assignee]
        return self.send(f"file the issue {title!r}", "POST", "/issues", fields, Issue.of)

    def withdraw_issue(self, issue: Issue) -> None:
        fields = {"state": "closed", "state_reason": "not_planned"}
        self.send(f"close issue #{issue.number}", "PATCH", f"/issues/{issue.number}", fields, Issue.of)


def _unless_pull(data: Any) -> Issue | None:
    return None if "pull_request" in data else Issue.of(data)
