"""The pull requests of the forge's API."""

from werkzeug.wrappers import Response

from runbook_lib.practice.accounts import PracticeAccount
from runbook_lib.practice.github import bots, shapes
from runbook_lib.practice.github.api import ApiCall, Route
from runbook_lib.practice.github.tickets import change_ticket, common_fields
from runbook_lib.practice.serving import ApiError, invalid, json_response, not_found
from runbook_lib.practice.state import TicketRecord


def _list_pulls(call: ApiCall) -> Response:
    query = call.request.args
    state, head, base = query.get("state", "open"), query.get("head", "").lower(), query.get("base", "")
    pulls = []
    for ticket in call.hub.tickets():
        # GitHub ignores a head without an owner.
        is_head = ":" not in head or f"{ticket.head_owner}:{ticket.head_ref}".lower() == head
        if ticket.is_pull and state in ("all", ticket.state) and is_head and base in ("", ticket.base_ref):
            pulls.append(ticket)
    return call.page(pulls, lambda pull: shapes.pull(call.hub, pull))


def _create_pull(call: ApiCall) -> Response:
    author, hub, fields = call.require_account(), call.hub, call.fields()
    missing = [f'"{name}"' for name in ("base", "head") if not isinstance(fields.get(name), str)]
    if missing:
        verb = "was" if len(missing) == 1 else "were"
        raise ApiError(422, f"Invalid request.\n\n{', '.join(missing)} {verb}n't supplied.")
    values = common_fields(call, fields, "PullRequest")
    owner, branch, head, base = _resolve_branches(call, author, fields["head"], fields["base"])
    pull = hub.store.create(
        TicketRecord, number=hub.store.next("number"), **values, draft=bool(fields.get("draft")), head_owner=owner,
        head_ref=branch, head_sha=head, base_ref=fields["base"], base_sha=base,
    )  # fmt: skip
    hub.home.set_ref(f"refs/pull/{pull.number}/head", head)
    # The reply shows the pull request as requested; the bots act right afterwards.
    shown = shapes.pull_in_full(hub, pull)
    bots.pull_opened(hub, pull)
    return call.created(shown)


def _resolve_branches(
    call: ApiCall, author: PracticeAccount, head_name: str, base_name: str
) -> tuple[str, str, str, str]:
    """Return owner, name and tip of the head, and the tip of the base.

    Raises ApiError 422, as GitHub does, for branches between which there can be no new pull request.
    """
    hub = call.hub
    owner, _, branch = head_name.rpartition(":")
    owners = {name.lower(): name for name in hub.places}
    owner = owners.get((owner or hub.owner).lower(), "")
    base = hub.home.tips().get(base_name)
    if base is None:
        raise invalid("PullRequest", field="base", code="invalid")
    head = hub.places[owner].tips().get(branch) if owner else None
    if head is None:
        raise invalid("PullRequest", field="head", code="invalid")
    if owner == hub.owner and not author.may_write:
        raise invalid("PullRequest", field="head", message="must be a collaborator")
    hub.home.fetch(hub.places[owner], head)
    for ticket in hub.tickets():
        branches = (ticket.head_owner, ticket.head_ref, ticket.base_ref)
        if ticket.state == "open" and branches == (owner, branch, base_name):
            raise invalid("PullRequest", message=f"A pull request already exists for {owner}:{branch}.")
    ahead, _, fork_point = hub.home.compare(base, head)
    if not fork_point:
        raise invalid("PullRequest", message=f"The {branch} branch has no history in common with {base_name}")
    if not ahead:
        name = head_name if owner != hub.owner else branch
        raise invalid("PullRequest", message=f"No commits between {base_name} and {name}")
    return owner, branch, head, base


def _find(call: ApiCall, number: int) -> TicketRecord:
    pull = call.hub.ticket(number)
    if not pull.is_pull:
        raise not_found()
    return pull


def _get_pull(call: ApiCall, pull_number: int) -> Response:
    return json_response(_in_full(call, _find(call, pull_number)))


def _in_full(call: ApiCall, pull: TicketRecord) -> shapes.Json:
    """Return the pull request; GitHub computes its merge on the first request, and shows it from the second on."""
    if pull.state == "open":
        merged = call.hub.with_merge_commit(pull)
        if merged.merge_of != pull.merge_of:
            pull.mergeable = None  # shown, not stored
        else:
            pull = merged
    return shapes.pull_in_full(call.hub, pull)


def _update_pull(call: ApiCall, pull_number: int) -> Response:
    pull = change_ticket(call, _find(call, pull_number), call.fields(), "PullRequest")
    return json_response(_in_full(call, pull))


def _list_files(call: ApiCall, pull_number: int) -> Response:
    pull, hub = _find(call, pull_number), call.hub
    _, _, fork_point = hub.home.compare(pull.base_sha, pull.head_sha)
    files = hub.home.changes(fork_point, pull.head_sha)
    return call.page(files, lambda file: shapes.file_change(hub, file, pull.head_sha))


_PULLS = "/repos/<owner>/<repo>/pulls"
_PULL = f"{_PULLS}/<number:pull_number>"
ROUTES = (
    Route("GET", _PULLS, _list_pulls),
    Route("POST", _PULLS, _create_pull),
    Route("GET", _PULL, _get_pull),
    Route("PATCH", _PULL, _update_pull),
    Route("GET", f"{_PULL}/files", _list_files),
)
