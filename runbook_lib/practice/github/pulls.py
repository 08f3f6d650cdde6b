"""Pull requests, as the forge's API shows and changes them."""

from dataclasses import replace

from runbook_lib.practice.github import bots, shapes
from runbook_lib.practice.github.protocol import Account, Answer, Problem, invalid, page
from runbook_lib.practice.github.routing import Call, Route
from runbook_lib.practice.github.tickets import change_ticket, text_of
from runbook_lib.practice.state import Ticket


def _pulls(call: Call) -> Answer:
    query = call.request.query
    state, head, base = query.get("state", "open"), query.get("head", ""), query.get("base", "")
    found = [
        each
        for each in call.hub.tickets()
        if each.is_pull
        and state in ("all", each.state)
        # GitHub takes no notice of a head without an owner.
        and (":" not in head or head.lower() == f"{each.head_owner}:{each.head_ref}".lower())
        and (not base or base == each.base_ref)
    ]
    if query.get("sort") == "updated":
        found.sort(key=lambda it: it.updated, reverse=True)
    if query.get("direction") == "asc":
        found.reverse()
    return page(call.request, call.url, found, lambda it: shapes.pull(call.hub, it))


def _create(call: Call) -> Answer:
    author, hub, fields = call.caller.known(), call.hub, call.request.fields()
    if missing := [f'"{name}"' for name in ("base", "head") if not isinstance(fields.get(name), str)]:
        raise Problem(
            422, f"Invalid request.\n\n{', '.join(missing)} {'was' if len(missing) == 1 else 'were'}n't supplied."
        )
    title = text_of(fields, "title", "PullRequest")
    if not title:
        raise invalid("PullRequest", field="title", code="missing_field")
    body = text_of(fields, "body", "PullRequest")
    owner, branch, head, base = _branches(call, author, fields["head"], fields["base"])
    now = hub.clock()
    ticket = Ticket(
        hub.store.next("number"), hub.store.next(), author.login, title, body, now, now,
        draft=bool(fields.get("draft")), head_owner=owner, head_ref=branch, head_sha=head, base_ref=fields["base"],
        base_sha=base,
    )  # fmt: skip
    hub.store.save(ticket)
    hub.home.point(f"refs/pull/{ticket.number}/head", head)
    # The answer shows the pull request as it was asked for; the bots come right after.
    shown = shapes.pull_in_full(hub, ticket)
    bots.opened(hub, ticket)
    return Answer(201, shown, {"Location": shown["url"]})


def _branches(call: Call, author: Account, head_name: str, base_name: str) -> tuple[str, str, str, str]:
    """Owner, name and tip of the head, and the tip of the base; 422 as GitHub for what makes no pull request."""
    hub = call.hub
    owner, _, branch = head_name.rpartition(":")
    owner = {name.lower(): name for name in hub.places}.get((owner or hub.owner).lower(), "")
    base = hub.home.tips(base_name).get(base_name)
    if base is None:
        raise invalid("PullRequest", field="base", code="invalid")
    head = hub.places[owner].tips(branch).get(branch) if owner else None
    if head is None:
        raise invalid("PullRequest", field="head", code="invalid")
    if owner == hub.owner and author.permission != "write":
        raise invalid("PullRequest", field="head", message="must be a collaborator")
    hub.home.bring(hub.places[owner], head)
    if any((it.head_owner, it.head_ref, it.base_ref) == (owner, branch, base_name) for it in _open(call)):
        raise invalid("PullRequest", message=f"A pull request already exists for {owner}:{branch}.")
    ahead, _, fork_point = hub.home.compare(base, head)
    if not fork_point:
        message = f"The {branch} branch has no history in common with {base_name}"
        raise invalid("PullRequest", message=message)
    if not ahead:
        shown = head_name if owner != hub.owner else branch
        raise invalid("PullRequest", message=f"No commits between {base_name} and {shown}")
    return owner, branch, head, base


def _open(call: Call) -> list[Ticket]:
    return [it for it in call.hub.tickets() if it.is_pull and it.state == "open"]


def _pull(call: Call) -> Answer:
    return Answer(200, _in_full(call, call.pull()))


def _in_full(call: Call, ticket: Ticket) -> shapes.Json:
    """The pull request.  GitHub works its merge out when somebody looks, and tells those who look again."""
    if ticket.state == "open":
        known = call.hub.merged_now(ticket)
        ticket = known if known.merge_of == ticket.merge_of else replace(ticket, mergeable=None)
    return shapes.pull_in_full(call.hub, ticket)


def _update(call: Call) -> Answer:
    ticket, fields = call.pull(), call.request.fields()
    ticket = change_ticket(call, ticket, fields, "PullRequest")
    base = fields.get("base", ticket.base_ref)
    if base != ticket.base_ref:
        tip = call.hub.home.tips(str(base)).get(str(base))
        if tip is None:
            raise invalid("PullRequest", field="base", code="invalid")
        ticket = call.hub.store.change(ticket, base_ref=base, base_sha=tip)
    return Answer(200, _in_full(call, ticket))


def _files(call: Call) -> Answer:
    ticket, hub = call.pull(), call.hub
    _, _, fork_point = hub.home.compare(ticket.base_sha, ticket.head_sha)
    found = hub.home.changes(fork_point, ticket.head_sha)
    return page(call.request, call.url, found, lambda it: shapes.change(hub, it, ticket.head_sha))


def _commits(call: Call) -> Answer:
    ticket, hub = call.pull(), call.hub
    found = hub.home.log(ticket.base_sha, ticket.head_sha)
    return page(call.request, call.url, found, lambda sha: shapes.commit(hub, hub.home.commit(sha)))


_HERE = "/repos/{owner}/{repo}/pulls"
_PULL = f"{_HERE}/{{pull_number}}"
_READ, _WRITE = ("pull_requests=read",), ("pull_requests=write",)
ROUTES = (
    Route("GET", _HERE, _pulls, _READ),
    Route("POST", _HERE, _create, _WRITE),
    Route("GET", _PULL, _pull, ("contents=read", *_READ)),
    Route("PATCH", _PULL, _update, _WRITE),
    Route("GET", f"{_PULL}/files", _files, _READ),
    Route("GET", f"{_PULL}/commits", _commits, _READ),
)
