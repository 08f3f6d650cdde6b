"""The issues, labels and comments of the forge's API; a pull request is an issue there, too."""

import re

from local_server import json_response, not_found
from people import InvalidRequest
from werkzeug.wrappers import Response

from github_server import shapes
from github_server.api import ApiCall, Route
from runbook_lib.practice.store import ACCOUNTS


def _list_issues(call: ApiCall) -> Response:
    query = call.request.args
    state, creator = query.get("state", "open"), query.get("creator")
    matches = [each for each in call.hub.tickets() if state in ("all", each.state) and creator in (None, each.author)]
    return call.page(matches, lambda ticket: shapes.issue(call.hub, ticket))


def _create_issue(call: ApiCall) -> Response:
    fields = call.fields()
    assignee = next(iter(fields.get("assignees") or ()), "")
    filed = call.forge.file_issue(fields["title"], fields.get("body") or "", fields.get("labels") or (), assignee)
    return call.created(shapes.issue(call.hub, call.hub.ticket(filed.number)))


def _get_issue(call: ApiCall, issue_number: int) -> Response:
    return json_response(shapes.issue(call.hub, call.hub.ticket(issue_number)))


def _check_assignee(call: ApiCall, assignee: str) -> Response:
    if not call.forge.is_assignable(assignee):
        raise not_found()
    return Response(status=204)


def _close_issue(call: ApiCall, issue_number: int) -> Response:
    ticket = call.hub.ticket(issue_number)
    call.forge.require_write(ticket.author)
    if set(call.fields()) - {"state_reason"} != {"state"} or call.fields()["state"] != "closed":
        raise InvalidRequest("an issue is only closed here")
    call.hub.close_ticket(ticket)
    return json_response(shapes.issue(call.hub, call.hub.ticket(issue_number)))


def _add_labels(call: ApiCall, issue_number: int) -> Response:
    for name in call.fields()["labels"]:
        call.forge.add_label(issue_number, name)
    return json_response(shapes.labels(call.hub, call.hub.ticket(issue_number).labels))


def _remove_label(call: ApiCall, issue_number: int, name: str) -> Response:
    call.forge.remove_label(issue_number, name)
    return json_response(shapes.labels(call.hub, call.hub.ticket(issue_number).labels))


def _list_comments(call: ApiCall, issue_number: int) -> Response:
    ticket = call.hub.ticket(issue_number)
    return call.page(ticket.comments, lambda comment: shapes.comment(call.hub, ticket, comment))


def _create_comment(call: ApiCall, issue_number: int) -> Response:
    written = call.forge.comment(issue_number, call.fields()["body"])
    ticket = call.hub.ticket(issue_number)
    stored = next(each for each in ticket.comments if each.id == written.id)
    return call.created(shapes.comment(call.hub, ticket, stored))


def _show_permission(call: ApiCall, username: str) -> Response:
    call.forge.require_write()
    account = ACCOUNTS.get(username)
    if account is None:
        raise not_found()
    permission = "write" if account.may_write else "read"
    user = shapes.user(call.hub, username) | {"role_name": permission}
    return json_response({"permission": permission, "role_name": permission, "user": user})


def _delete_comment(call: ApiCall, comment_id: int) -> Response:
    for ticket in call.hub.tickets():
        for comment in call.forge.comments(ticket.number):
            if comment.id == comment_id:
                call.forge.remove_comment(comment)
                return Response(status=204)
    raise not_found()


def _list_events(call: ApiCall, issue_number: int) -> Response:
    ticket = call.hub.ticket(issue_number)
    return call.page(range(len(ticket.events)), lambda position: shapes.event(call.hub, ticket, position))


def _search(call: ApiCall) -> Response:
    """Search for issues with a text in title or body; other queries of GitHub's are refused."""
    query = re.fullmatch(r'repo:(\S+) is:issue is:open "([^"]+)"', call.request.args.get("q", ""))
    if query is None or query[1] != call.hub.repository:
        raise InvalidRequest("practice does not support this search")
    matches = [call.hub.ticket(issue.number) for issue in call.hub.search_issues(query[2])[::-1]]
    return call.page(
        matches, lambda ticket: shapes.issue(call.hub, ticket) | {"score": 1.0}, "items",
        incomplete_results=False, search_type="lexical",
    )  # fmt: skip


_REPOSITORY = "/repos/<owner>/<repo>"
_ISSUE = f"{_REPOSITORY}/issues/<number:issue_number>"
ROUTES = (
    Route("GET", f"{_REPOSITORY}/issues", _list_issues),
    Route("POST", f"{_REPOSITORY}/issues", _create_issue),
    Route("GET", _ISSUE, _get_issue),
    Route("PATCH", _ISSUE, _close_issue),
    Route("GET", f"{_REPOSITORY}/assignees/<assignee>", _check_assignee),
    Route("POST", f"{_ISSUE}/labels", _add_labels),
    Route("DELETE", f"{_ISSUE}/labels/<path:name>", _remove_label),
    Route("GET", f"{_ISSUE}/comments", _list_comments),
    Route("POST", f"{_ISSUE}/comments", _create_comment),
    Route("DELETE", f"{_REPOSITORY}/issues/comments/<number:comment_id>", _delete_comment),
    Route("GET", f"{_REPOSITORY}/collaborators/<username>/permission", _show_permission),
    Route("GET", f"{_ISSUE}/events", _list_events),
    Route("GET", "/search/issues", _search),
)
