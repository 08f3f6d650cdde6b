"""The account of the caller, the repository, its commits and its pull requests, in the forge's API."""

from local_server import ApiError, json_response
from werkzeug.wrappers import Response

from github_server import shapes
from github_server.api import ApiCall, Route


def _get_user(call: ApiCall) -> Response:
    return json_response(shapes.account(call.hub, call.require_account(), "own_account"))


def _get_repository(call: ApiCall) -> Response:
    may_write = call.caller is not None and call.caller.may_write
    permissions = {"admin": False, "maintain": False, "push": may_write, "triage": may_write, "pull": True}
    more = {"permissions": permissions, "network_count": 0, "subscribers_count": 0}
    return json_response(shapes.repository(call.hub, call.hub.owner) | more)


def _list_commits(call: ApiCall) -> Response:
    query = call.request.args
    paths = filter(None, [query.get("path")])
    tip = call.hub.resolve(query.get("sha") or "main")
    commits = call.hub.home.git("--literal-pathspecs", "log", "--format=%H", tip, "--", *paths).split()
    return call.page(commits, lambda sha: shapes.commit(call.hub, sha))


def _compare(call: ApiCall, base: str, head: str) -> Response:
    hub, old, new = call.hub, call.hub.resolve(base), call.hub.resolve(head)
    ahead, behind = hub.home.log(old, new), hub.home.log(new, old)
    fork_point = hub.home.merge_base(old, new)
    if not fork_point:
        raise ApiError(404, f"No common ancestor between {base} and {head}.")
    commits, headers = call.select_page(ahead)
    content = shapes.shape(
        hub, "compare", address=f"{base}...{head}", base=old, head=new, ahead=len(ahead), behind=len(behind),
        status="diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical",
        base_commit=shapes.commit(hub, old), merge_base_commit=shapes.commit(hub, fork_point),
        commits=[shapes.commit(hub, sha) for sha in commits],
    )  # fmt: skip
    return json_response(content, headers=headers)


def _list_pulls(call: ApiCall) -> Response:
    query, hub = call.request.args, call.hub
    head = query.get("head") if ":" in query.get("head", "") else None  # GitHub ignores a head without an owner
    pulls = hub.pulls(head, query.get("base"), query.get("state", "open"))
    return call.page(pulls, lambda pull: shapes.pull(hub, hub.ticket(pull.number)))


def _create_pull(call: ApiCall) -> Response:
    fields = call.fields()
    hub = call.hub
    assert fields["draft"]
    opened = call.forge.open_pull(fields["title"], fields["head"], fields["base"], fields["body"])
    return call.created(shapes.pull_in_full(hub, hub.ticket(opened.number)))


def _get_pull(call: ApiCall, pull_number: int) -> Response:
    """Show a pull request; GitHub computes its merge on the first request, and shows it from the second on."""
    shown = call.hub.pull(pull_number)
    ticket = call.hub.ticket(pull_number)
    return json_response(shapes.pull_in_full(call.hub, ticket, shown.mergeable))


def _update_pull(call: ApiCall, pull_number: int) -> Response:
    call.forge.update_pull(pull_number, call.fields()["body"])
    return _get_pull(call, pull_number)


def _list_files(call: ApiCall, pull_number: int) -> Response:
    head = call.hub.ticket(pull_number, is_pull=True).head_sha
    files = list(call.hub.files(pull_number).items())
    return call.page(files, lambda file: shapes.file_change(call.hub, *file, head))


_REPOSITORY = "/repos/<owner>/<repo>"
_PULLS = f"{_REPOSITORY}/pulls"
_PULL = f"{_PULLS}/<number:pull_number>"
ROUTES = (
    Route("GET", "/user", _get_user),
    Route("GET", _REPOSITORY, _get_repository),
    Route("GET", f"{_REPOSITORY}/commits", _list_commits),
    Route("GET", f"{_REPOSITORY}/compare/<path:base>...<path:head>", _compare),
    Route("GET", _PULLS, _list_pulls),
    Route("POST", _PULLS, _create_pull),
    Route("GET", _PULL, _get_pull),
    Route("PATCH", _PULL, _update_pull),
    Route("GET", f"{_PULL}/files", _list_files),
)
