"""The pull requests of the forge's API."""

from local_server import json_response
from werkzeug.wrappers import Response

from github_server import shapes
from github_server.api import ApiCall, Route
from github_server.diff import file_changes
from runbook_lib.practice.store import Record


def _list_pulls(call: ApiCall) -> Response:
    query, hub = call.request.args, call.hub
    head = query.get("head") if ":" in query.get("head", "") else None  # GitHub ignores a head without an owner
    pulls = hub.pulls(head, query.get("base"), query.get("state", "open"))
    return call.page(pulls, lambda pull: shapes.pull(hub, hub.ticket(pull.number)))


def _create_pull(call: ApiCall) -> Response:
    fields = call.fields()
    hub = call.hub
    opened = call.forge.open_pull(
        fields["title"], fields["head"], fields["base"], fields.get("body") or "", draft=bool(fields.get("draft"))
    )
    # The reply shows the pull request as requested; the bots have acted right afterwards.
    shown = shapes.pull_in_full(hub, Record(**vars(hub.ticket(opened.number)) | {"draft": opened.draft}))
    return call.created(shown)


def _get_pull(call: ApiCall, pull_number: int) -> Response:
    return json_response(_in_full(call, call.hub.ticket(pull_number, is_pull=True)))


def _in_full(call: ApiCall, pull: Record) -> shapes.Json:
    """Return the pull request; GitHub computes its merge on the first request, and shows it from the second on."""
    before = Record(**vars(pull) | {"mergeable": None})
    is_new = pull.state == "open" and call.hub.merge(pull)
    return shapes.pull_in_full(call.hub, before if is_new else pull)


def _update_pull(call: ApiCall, pull_number: int) -> Response:
    call.forge.update_pull(pull_number, call.fields()["body"])
    return json_response(_in_full(call, call.hub.ticket(pull_number, is_pull=True)))


def _list_files(call: ApiCall, pull_number: int) -> Response:
    pull, hub = call.hub.ticket(pull_number, is_pull=True), call.hub
    files, patches = file_changes(hub.home, f"{pull.base_sha}...{pull.head_sha}"), hub.files(pull_number)
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
