"""The account of the caller, the repository and its commits, in the forge's API."""

from local_server import ApiError, json_response, not_found
from werkzeug.wrappers import Response

from github_server import shapes
from github_server.api import ApiCall, Route
from github_server.diff import file_changes


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


def _compare(call: ApiCall, basehead: str) -> Response:
    base_name, dots, head_name = basehead.partition("...")
    if not dots:
        raise not_found()
    hub, base, head = call.hub, call.hub.resolve(base_name), call.hub.resolve(head_name)
    ahead, behind = len(hub.home.log(base, head)), len(hub.home.log(head, base))
    fork_point = hub.home.tried("merge-base", base, head)
    if not fork_point:
        raise ApiError(404, f"No common ancestor between {base_name} and {head_name}.")
    commits, headers = call.select_page(hub.home.log(base, head))
    files = file_changes(hub.home, f"{base}...{head}")
    status = {(False, False): "identical", (True, False): "ahead", (False, True): "behind", (True, True): "diverged"}
    content = shapes.shape(
        hub, "compare", address=basehead, base=base, head=head, status=status[ahead > 0, behind > 0], ahead=ahead,
        behind=behind, base_commit=shapes.commit(hub, base), merge_base_commit=shapes.commit(hub, fork_point),
        commits=[shapes.commit(hub, sha) for sha in commits],
        files=[shapes.file_change(hub, file, head) for file in files[:300]],
    )  # fmt: skip
    return json_response(content, headers=headers)


_REPOSITORY = "/repos/<owner>/<repo>"
ROUTES = (
    Route("GET", "/user", _get_user),
    Route("GET", _REPOSITORY, _get_repository),
    Route("GET", f"{_REPOSITORY}/commits", _list_commits),
    Route("GET", f"{_REPOSITORY}/compare/<path:basehead>", _compare),
)
