"""The issues, labels and comments of the forge's API; a pull request is an issue there, too."""

import re
from collections.abc import Mapping
from typing import Any

from werkzeug.wrappers import Response

from runbook_lib.practice.accounts import ACCOUNTS
from runbook_lib.practice.github import bots, shapes
from runbook_lib.practice.github.api import ApiCall, Route
from runbook_lib.practice.serving import ApiError, invalid, json_response, not_found
from runbook_lib.practice.state import CommentRecord, EventRecord, TicketRecord

_LONGEST_BODY, _LONGEST_TITLE = 65536, 256  # characters


def text_field(fields: dict[str, Any], name: str, resource: str) -> str | None:
    """Return a text in the body, or None if missing.  Raises ApiError 422 for other types or text that is too long."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ApiError(422, f"Invalid request.\n\nFor 'properties/{name}', {value!r} is not a string.")
    longest = _LONGEST_TITLE if name == "title" else _LONGEST_BODY
    if len(value) > longest:
        raise invalid(resource, field=name, message=f"{name} is too long (maximum is {longest} characters)")
    return value


def _names(fields: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of labels' names or of logins."""
    names = fields.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ApiError(422, f"Invalid request.\n\n{key} must be a list of names.")
    return names


def _list_issues(call: ApiCall) -> Response:
    query = call.request.args
    state, creator = query.get("state", "open"), query.get("creator")
    labels = set(filter(None, query.get("labels", "").split(",")))
    matches = []
    for ticket in call.hub.tickets():
        if state in ("all", ticket.state) and creator in (None, ticket.author) and labels <= set(ticket.labels):
            matches.append(ticket)
    return call.page(matches, lambda ticket: shapes.issue(call.hub, ticket))


def common_fields(call: ApiCall, fields: dict[str, Any], resource: str) -> dict[str, Any]:
    """Return the fields that a new issue and a new pull request have in common.  Raises ApiError 422."""
    title, now = text_field(fields, "title", resource), call.hub.clock()
    if not title:
        raise invalid(resource, field="title", code="missing_field")
    body = text_field(fields, "body", resource)
    return {"author": call.require_account().login, "title": title, "body": body, "created": now, "updated": now}


def _create_issue(call: ApiCall) -> Response:
    author, hub, fields = call.require_account(), call.hub, call.fields()
    values = common_fields(call, fields, "Issue")
    issue = hub.store.create(TicketRecord, number=hub.store.next("number"), **values)
    # GitHub silently drops values that an account without write access may not set.
    if author.may_write:
        issue = hub.set_labels(issue, _names(fields, "labels"), author.login)
        assignees = _names(fields, "assignees")
        for login in assignees:
            if not _is_assignable(login):
                error = {"value": login, "resource": "Issue", "field": "assignees", "code": "invalid"}
                raise ApiError(422, "Validation Failed", [error])
        issue = hub.store.change(issue, assignees=list(dict.fromkeys(assignees)))
    return call.created(shapes.issue(hub, issue))


def _is_assignable(login: str) -> bool:
    account = ACCOUNTS.get(login)
    return account is not None and account.type == "User" and account.may_write


def _get_issue(call: ApiCall, issue_number: int) -> Response:
    return json_response(shapes.issue(call.hub, call.hub.ticket(issue_number)))


def _check_assignee(call: ApiCall, assignee: str) -> Response:
    if not _is_assignable(assignee):
        raise not_found()
    return Response(status=204)


def _update_issue(call: ApiCall, issue_number: int) -> Response:
    ticket = change_ticket(call, call.hub.ticket(issue_number), call.fields(), "Issue")
    return json_response(shapes.issue(call.hub, ticket))


def change_ticket(call: ApiCall, ticket: TicketRecord, fields: dict[str, Any], resource: str) -> TicketRecord:
    """Change title, body and state, for the author or an account with write access."""
    if call.require_account().login != ticket.author:
        call.require_write()
    hub = call.hub
    changed = {name: text_field(fields, name, resource) for name in ("title", "body") if name in fields}
    if "title" in changed and not changed["title"]:
        raise invalid(resource, field="title", code="missing_field")
    if changed:
        ticket = hub.store.change(ticket, **changed, updated=hub.clock())
    state = fields.get("state", ticket.state)
    if state == ticket.state:
        return ticket
    if state != "closed":  # the forge reopens nothing
        raise invalid(resource, field="state", code="invalid")
    if ticket.is_pull:
        return hub.close(ticket)
    return hub.close(ticket, fields.get("state_reason") or "completed")


def _list_labels(call: ApiCall, issue_number: int) -> Response:
    labels = shapes.labels(call.hub, call.hub.ticket(issue_number).labels)
    return call.page(labels, lambda label: label)


def _add_labels(call: ApiCall, issue_number: int) -> Response:
    ticket, actor = call.hub.ticket(issue_number), call.require_write()
    names = _names(call.fields(), "labels")
    ticket = call.hub.set_labels(ticket, [*ticket.labels, *names], actor.login)
    return json_response(shapes.labels(call.hub, ticket.labels))


def _remove_label(call: ApiCall, issue_number: int, name: str) -> Response:
    ticket, actor = call.hub.ticket(issue_number), call.require_write()
    remaining = [label for label in ticket.labels if label.lower() != name.lower()]
    if len(remaining) == len(ticket.labels):
        raise ApiError(404, "Label does not exist")
    ticket = call.hub.set_labels(ticket, remaining, actor.login)
    return json_response(shapes.labels(call.hub, ticket.labels))


def _list_comments(call: ApiCall, issue_number: int) -> Response:
    comments = call.hub.store.all(CommentRecord, call.hub.ticket(issue_number).number)
    return call.page(comments, lambda comment: shapes.comment(call.hub, comment))


def _create_comment(call: ApiCall, issue_number: int) -> Response:
    ticket, author = call.hub.ticket(issue_number), call.require_account()
    body = text_field(call.fields(), "body", "IssueComment")
    if not body or not body.strip():
        raise invalid("IssueComment", field="data", code="unprocessable", message="Body cannot be blank")
    comment = call.hub.add_comment(ticket, author, body)
    bots.comment_created(call.hub, ticket, comment)
    return call.created(shapes.comment(call.hub, comment))


def _find_own_comment(call: ApiCall, comment_id: int) -> CommentRecord:
    """Return a comment that the caller may change."""
    actor = call.require_account()
    comment = call.hub.store.find(CommentRecord, comment_id)
    if comment is None:
        raise not_found()
    if actor.login != comment.author:
        call.require_write()
    return comment


def _show_permission(call: ApiCall, username: str) -> Response:
    call.require_write()
    account = ACCOUNTS.get(username)
    if account is None:
        raise not_found()
    permission = "write" if account.may_write else "read"
    user = shapes.user(call.hub, username) | {"role_name": permission}
    return json_response({"permission": permission, "role_name": permission, "user": user})


def _delete_comment(call: ApiCall, comment_id: int) -> Response:
    call.hub.store.remove(_find_own_comment(call, comment_id))
    return Response(status=204)


def _list_events(call: ApiCall, issue_number: int) -> Response:
    events = call.hub.store.all(EventRecord, call.hub.ticket(issue_number).number)
    return call.page(events, lambda event: shapes.event(call.hub, event))


def _search(call: ApiCall) -> Response:
    """Search for issues with a text in title or body; other queries of GitHub's are refused."""
    query = re.fullmatch(r'repo:(\S+) is:issue is:open "([^"]+)"', call.request.args.get("q", ""))
    if query is None or query[1] != call.hub.repository:
        raise invalid("Search", field="q", code="invalid", message="The query is not one that practice supports.")
    matches = []
    for ticket in call.hub.tickets():
        text = f"{ticket.title}\n{ticket.body or ''}".lower()
        if not ticket.is_pull and ticket.state == "open" and query[2].lower() in text:
            matches.append(ticket)
    return call.page(
        matches, lambda ticket: shapes.search_result(call.hub, ticket), "items",
        incomplete_results=False, search_type="lexical",
    )  # fmt: skip


_REPOSITORY = "/repos/<owner>/<repo>"
_ISSUE = f"{_REPOSITORY}/issues/<number:issue_number>"
ROUTES = (
    Route("GET", f"{_REPOSITORY}/issues", _list_issues),
    Route("POST", f"{_REPOSITORY}/issues", _create_issue),
    Route("GET", _ISSUE, _get_issue),
    Route("PATCH", _ISSUE, _update_issue),
    Route("GET", f"{_REPOSITORY}/assignees/<assignee>", _check_assignee),
    Route("GET", f"{_ISSUE}/labels", _list_labels),
    Route("POST", f"{_ISSUE}/labels", _add_labels),
    Route("DELETE", f"{_ISSUE}/labels/<path:name>", _remove_label),
    Route("GET", f"{_ISSUE}/comments", _list_comments),
    Route("POST", f"{_ISSUE}/comments", _create_comment),
    Route("DELETE", f"{_REPOSITORY}/issues/comments/<number:comment_id>", _delete_comment),
    Route("GET", f"{_REPOSITORY}/collaborators/<username>/permission", _show_permission),
    Route("GET", f"{_ISSUE}/events", _list_events),
    Route("GET", "/search/issues", _search),
)
