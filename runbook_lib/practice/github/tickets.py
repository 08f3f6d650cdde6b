"""Issues, labels and comments, as the forge's API shows and changes them."""

import re
from collections.abc import Iterable
from typing import Any

from runbook_lib.practice.github import bots, shapes
from runbook_lib.practice.github.protocol import ACCOUNTS, Answer, Problem, invalid, not_found, page
from runbook_lib.practice.github.routing import Call, Route
from runbook_lib.practice.state import Comment, Event, Label, Ticket

_LONGEST_BODY, _LONGEST_TITLE = 65536, 256


def text_of(fields: dict[str, Any], name: str, resource: str) -> str | None:
    """A text of the body, None when it is not there; 422 for another type or one that is too long."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise Problem(422, f"Invalid request.\n\nFor 'properties/{name}', {value!r} is not a string.")
    longest = _LONGEST_TITLE if name == "title" else _LONGEST_BODY
    if value is not None and len(value) > longest:
        raise invalid(resource, field=name, message=f"{name} is too long (maximum is {longest} characters)")
    return value


def _names(value: Any) -> list[str]:
    """Label names: texts, or objects with a name."""
    if isinstance(value, list):
        names = [each.get("name") if isinstance(each, dict) else each for each in value]
        texts = [name for name in names if isinstance(name, str) and name]
        if len(texts) == len(names):
            return texts
    raise Problem(422, "Invalid request.\n\nlabels must be a list of names.")


def _need_issues(call: Call, ticket: Ticket | None = None) -> None:
    """410 where the repository has no issues; pull requests are shown all the same."""
    if call.hub.store.setting("issues disabled", False) and not (ticket and ticket.is_pull):
        raise Problem(410, "Issues are disabled for this repo")


def _issues(call: Call) -> Answer:
    _need_issues(call)
    found = list(_filtered(call, call.hub.tickets()))
    if wanted := call.request.query.get("labels"):
        found = [each for each in found if set(wanted.split(",")) <= set(each.labels)]
    if creator := call.request.query.get("creator"):
        found = [each for each in found if each.author == creator]
    return page(call.request, call.url, found, lambda it: shapes.issue(call.hub, it))


def _filtered(call: Call, tickets: Iterable[Ticket]) -> Iterable[Ticket]:
    state = call.request.query.get("state", "open")
    return (each for each in tickets if state in ("all", each.state))


def _create_issue(call: Call) -> Answer:
    author = call.caller.known()
    _need_issues(call)
    fields = call.request.fields()
    title = text_of(fields, "title", "Issue")
    if not title:
        raise invalid("Issue", field="title", code="missing_field")
    hub, now = call.hub, call.hub.clock()
    body = text_of(fields, "body", "Issue")
    ticket = hub.store.save(Ticket(hub.store.next("number"), hub.store.next(), author.login, title, body, now, now))
    # GitHub drops what a person without write access may not set, and says nothing.
    if author.permission == "write":
        ticket = hub.labelled(ticket, _names(fields.get("labels") or []), author.login)
        ticket = hub.store.change(ticket, assignees=_assignees(fields.get("assignees") or []))
    shown = shapes.issue(hub, ticket)
    return Answer(201, shown, {"Location": shown["url"]})


def assignable(login: str) -> bool:
    """Whether somebody may be asked to see to an issue: people who may write."""
    who = ACCOUNTS.get(login)
    return who is not None and who.kind == "User" and who.permission == "write"


def _assignees(logins: Any) -> tuple[str, ...]:
    if not isinstance(logins, list) or not all(isinstance(login, str) for login in logins):
        raise Problem(422, "Invalid request.\n\nassignees must be a list of logins.")
    if unknown := [login for login in logins if not assignable(login)]:
        raise Problem(422, "Validation Failed", [
            {"value": unknown[0], "resource": "Issue", "field": "assignees", "code": "invalid"}
        ])  # fmt: skip
    return tuple(dict.fromkeys(logins))


def _issue(call: Call) -> Answer:
    ticket = call.ticket()
    _need_issues(call, ticket)
    return Answer(200, shapes.issue(call.hub, ticket))


def _can_be_assigned(call: Call) -> Answer:
    if not assignable(call.parts["assignee"]):
        raise not_found()
    return Answer(204, b"")


def _update_issue(call: Call) -> Answer:
    _need_issues(call, call.ticket())
    fields = call.request.fields()
    ticket = change_ticket(call, call.ticket(), fields, "Issue")
    if call.caller.may_write:
        if "labels" in fields:
            ticket = call.hub.labelled(ticket, _names(fields["labels"]), call.caller.known().login)
        if "assignees" in fields:
            ticket = call.hub.store.change(ticket, assignees=_assignees(fields["assignees"]))
    return Answer(200, shapes.issue(call.hub, ticket))


def change_ticket(call: Call, ticket: Ticket, fields: dict[str, Any], resource: str) -> Ticket:
    """Title, body and state, by the author or by who may write."""
    actor = call.caller.known()
    if actor.login != ticket.author and not call.caller.may_write:
        raise Problem(403, "Must have admin rights to Repository.")
    hub, changed = call.hub, {}
    for name in ("title", "body"):
        if name in fields:
            changed[name] = text_of(fields, name, resource)
    if "title" in changed and not changed["title"]:
        raise invalid(resource, field="title", code="missing_field")
    if changed:
        ticket = hub.store.change(ticket, **changed, updated=hub.clock())
    state = fields.get("state", ticket.state)
    if state not in ("open", "closed"):
        raise invalid(resource, field="state", code="invalid")
    if (ticket.state, state) == ("open", "closed"):
        return hub.close(ticket, None if ticket.is_pull else fields.get("state_reason") or "completed")
    if (ticket.state, state) == ("closed", "open"):
        if ticket.merged is not None:
            raise invalid(resource, field="state", code="invalid")
        reason = None if ticket.is_pull else "reopened"
        return hub.store.change(ticket, state="open", state_reason=reason, closed=None, updated=hub.clock())
    return ticket


def _labels_of_repository(call: Call) -> Answer:
    found = sorted(call.hub.store.all(Label), key=lambda it: it.name.lower())
    return page(call.request, call.url, found, lambda it: shapes.label(call.hub, it))


def _labels(call: Call) -> Answer:
    return page(call.request, call.url, shapes.labels(call.hub, call.ticket().labels), lambda it: it)


def _add_labels(call: Call) -> Answer:
    ticket, actor = call.ticket(), call.caller.maintaining()
    names = _names(call.request.fields().get("labels"))
    ticket = call.hub.labelled(ticket, [*ticket.labels, *names], actor.login)
    return Answer(200, shapes.labels(call.hub, ticket.labels))


def _remove_label(call: Call) -> Answer:
    ticket, actor = call.ticket(), call.caller.maintaining()
    kept = [name for name in ticket.labels if name.lower() != call.parts["name"].lower()]
    if len(kept) == len(ticket.labels):
        raise Problem(404, "Label does not exist")
    ticket = call.hub.labelled(ticket, kept, actor.login)
    return Answer(200, shapes.labels(call.hub, ticket.labels))


def _comments(call: Call) -> Answer:
    found = call.hub.store.all(Comment, call.ticket().number)
    return page(call.request, call.url, found, lambda it: shapes.comment(call.hub, it))


def _create_comment(call: Call) -> Answer:
    ticket, author = call.ticket(), call.caller.known()
    body = text_of(call.request.fields(), "body", "IssueComment")
    if not body or not body.strip():
        raise invalid("IssueComment", field="data", code="unprocessable", message="Body cannot be blank")
    comment = call.hub.say(ticket, author, body)
    bots.commented(call.hub, ticket, comment)
    shown = shapes.comment(call.hub, comment)
    return Answer(201, shown, {"Location": shown["url"]})


def _comment(call: Call) -> Answer:
    comment = call.hub.store.find(Comment, call.number("comment_id"))
    if comment is None:
        raise not_found()
    return Answer(200, shapes.comment(call.hub, comment))


def _remove_comment(call: Call) -> Answer:
    actor = call.caller.known()
    comment = call.hub.store.find(Comment, call.number("comment_id"))
    if comment is None:
        raise not_found()
    if actor.login != comment.author and not call.caller.may_write:
        raise Problem(403, "Must have admin rights to Repository.")
    call.hub.store.remove(comment)
    return Answer(204, b"")


def _events(call: Call) -> Answer:
    found = call.hub.store.all(Event, call.ticket().number)
    return page(call.request, call.url, found, lambda it: shapes.event(call.hub, it))


def _search(call: Call) -> Answer:
    asked = call.request.query.get("q", "").strip()
    if not asked:
        raise invalid("Search", field="q", code="missing")
    found = [ticket for ticket in call.hub.tickets() if _matches(call, ticket, asked)]
    if call.hub.store.setting("issues disabled", False):
        found = [ticket for ticket in found if ticket.is_pull]
    shown = page(
        call.request, call.url, found, lambda it: shapes.found(call.hub, it), "items",
        incomplete_results=False, search_type="lexical",
    )  # fmt: skip
    return shown


def _matches(call: Call, ticket: Ticket, asked: str) -> bool:
    """The part of GitHub's search language that is of use here; words must all occur in title or body.

    Case does not count; ``in:title`` keeps to the titles.
    """
    kind = "pr" if ticket.is_pull else "issue"
    places = re.findall(r"\bin:([\w,]+)", asked)
    where = ",".join(places).split(",") if places else ["title", "body"]
    texts = {"title": ticket.title, "body": ticket.body or ""}
    text = "\n".join(texts.get(place, "") for place in where).lower()
    for name, quoted, plain in re.findall(r'(?:(\w+):)?(?:"([^"]*)"|(\S+))', asked):
        value = quoted or plain
        if name == "repo":
            if value.lower() != call.hub.repository.lower():
                raise invalid("Search", field="q", code="invalid", message=(
                    "The listed users and repositories cannot be searched either because the resources do not "
                    "exist or you do not have permission to view them."
                ))  # fmt: skip
            continue
        is_so = {
            "is": value in (kind, {"pr": "pull-request"}.get(kind), ticket.state, "draft" if ticket.draft else ""),
            "type": value == kind, "state": value == ticket.state, "author": value == ticket.author,
            "label": value.lower() in (label.lower() for label in ticket.labels), "in": True,
            "assignee": value in ticket.assignees,
            "head": value == ticket.head_ref, "base": value == ticket.base_ref,
        }.get(name, (f"{name}:{value}" if name else value).lower() in text)  # fmt: skip
        if not is_so:
            return False
    return True


_HERE = "/repos/{owner}/{repo}"
_ISSUE = f"{_HERE}/issues/{{issue_number}}"
#: Of issues and pull requests alike: either permission will do.
_READ, _WRITE = ("issues=read", "pull_requests=read"), ("issues=write", "pull_requests=write")
ROUTES = (
    Route("GET", f"{_HERE}/issues", _issues, ("issues=read",)),
    Route("POST", f"{_HERE}/issues", _create_issue, ("issues=write",)),
    Route("GET", _ISSUE, _issue, ("issues=read",)),
    Route("PATCH", _ISSUE, _update_issue, _WRITE),
    Route("GET", f"{_HERE}/assignees/{{assignee}}", _can_be_assigned, _READ),
    Route("GET", f"{_HERE}/labels", _labels_of_repository, _READ),
    Route("GET", f"{_ISSUE}/labels", _labels, _READ),
    Route("POST", f"{_ISSUE}/labels", _add_labels, _WRITE),
    Route("DELETE", f"{_ISSUE}/labels/{{name}}", _remove_label, _WRITE),
    Route("GET", f"{_ISSUE}/comments", _comments, _READ),
    Route("POST", f"{_ISSUE}/comments", _create_comment, _WRITE),
    Route("GET", f"{_HERE}/issues/comments/{{comment_id}}", _comment, _READ),
    Route("DELETE", f"{_HERE}/issues/comments/{{comment_id}}", _remove_comment, _WRITE),
    Route("GET", f"{_ISSUE}/events", _events, _READ),
    Route("GET", "/search/issues", _search),
)
