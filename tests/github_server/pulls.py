"""The pull requests of the forge's API."""

from local_server import json_response, not_found
from werkzeug.wrappers import Response

from github_server import shapes
from github_server.api import ApiCall, Route
from github_server.diff import file_changes
from runbook_lib.practice.store import Ticket


def _list_pulls(call: ApiCall) -> Response:
    query = call.request.args
    state, head, base = query.get("state", "open"), query.get("head", "").lower(), query.get("base", "")
    pulls = []
    for ticket in call.hub.tickets():
        # GitHub ignores a head without an owner.
        is_head = ":" not in head or f"{ticket.head_owner}:{ticket.head_ref}".lower() == head
        if ticket.base_ref and state in ("all", ticket.state) and is_head and base in ("", ticket.base_ref):
            pulls.append(ticket)
    return call.page(pulls, lambda pull: shapes.pull(call.hub, pull))


def _create_pull(call: ApiCall) -> Response:
    fields = call.fields()
    hub = call.hub
    opened = call.forge.open_pull(
        fields["title"], fields["head"], fields["base"], fields.get("body") or "", draft=bool(fields.get("draft"))
    )
    pull = hub.store.find(Ticket, opened.number)
    assert pull is not None
    # The reply shows the pull request as requested; the bots have acted right afterwards.
    shown = shapes.pull_in_full(hub, Ticket(**vars(pull) | {"draft": opened.draft}))
    return call.created(shown)


def _find(call: ApiCall, number: int) -> Ticket:
    pull = call.hub.ticket(number)
    if not pull.base_ref:
        raise not_found()
    return pull


def _get_pull(call: ApiCall, pull_number: int) -> Response:
    return json_response(_in_full(call, _find(call, pull_number)))


def _in_full(call: ApiCall, pull: Ticket) -> shapes.Json:
    """Return the pull request; GitHub computes its merge on the first request, and shows it from the second on."""
    if pull.state == "open":
        merged = call.hub.with_merge_commit(pull)
        if merged.merge_of != pull.merge_of:
            pull.mergeable = None  # shown, not stored
        else:
            pull = merged
    return shapes.pull_in_full(call.hub, pull)


def _update_pull(call: ApiCall, pull_number: int) -> Response:
    call.forge.update_pull(pull_number, call.fields()["body"])
    return json_response(_in_full(call, _find(call, pull_number)))


def _list_files(call: ApiCall, pull_number: int) -> Response:
    pull, hub = _find(call, pull_number), call.hub
    _, _, fork_point = hub.home.compare(pull.base_sha, pull.head_sha)
    files = file_changes(hub.home, fork_point, pull.head_sha)
    patches = call.forge.files(pull_number)
    return call.page(files, lambda file: shapes.file_change(hub, file, pull.head_sha) | {"patch": patches[file.path]})


_PULLS = "/repos/<owner>/<repo>/pulls"
_PULL = f"{_PULLS}/<number:pull_number>"
ROUTES = (
    Route("GET", _PULLS, _list_pulls),
    Route("POST", _PULLS, _create_pull),
    Route("GET", _PULL, _get_pull),
    Route("PATCH", _PULL, _update_pull),
    Route("GET", f"{_PULL}/files", _list_files),
)
