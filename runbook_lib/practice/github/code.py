"""Accounts, the repository, branches and commits, as the forge's API shows them."""

import re
from zlib import crc32

from runbook_lib.practice.git import Bare
from runbook_lib.practice.github import shapes
from runbook_lib.practice.github.protocol import ACCOUNTS, Answer, Problem, not_found, page
from runbook_lib.practice.github.routing import Call, Route


def _user(call: Call) -> Answer:
    return Answer(200, shapes.me(call.hub, call.caller.known()))


def _repository(call: Call) -> Answer:
    may_write = call.caller.may_write or (call.caller.account is not None and call.caller.account.login == call.owner)
    return Answer(200, shapes.repository(call.hub, call.owner, may_write=may_write))


def _permission(call: Call) -> Answer:
    call.caller.known()
    if not call.caller.may_write:
        raise Problem(403, "Must have push access to view collaborator permission.")
    account = ACCOUNTS.get(call.parts["username"])
    if account is None:
        raise not_found()
    roles = ("pull", "triage", "push", "maintain", "admin")
    may = {role: role == "pull" or (account.permission == "write" and role in ("triage", "push")) for role in roles}
    user = shapes.account(call.hub, account) | {"permissions": may, "role_name": account.permission}
    return Answer(200, {"permission": account.permission, "role_name": account.permission, "user": user})


def _place(call: Call) -> Bare:
    return call.hub.places[call.owner]


def _branch(call: Call) -> Answer:
    name = call.parts["branch"]
    sha = _place(call).tips(name).get(name)
    if sha is None:
        raise Problem(404, "Branch not found")
    url = f"{shapes.api(call.hub, call.owner)}/branches/{name}"
    checks = {"enforcement_level": "off", "contexts": [], "checks": []}
    return Answer(
        200,
        {
            "name": name,
            "commit": shapes.commit(call.hub, _place(call).commit(sha), call.owner),
            "_links": {"self": url, "html": f"{shapes.web(call.hub, call.owner)}/tree/{name}"},
            "protected": False,
            "protection": {"enabled": False, "required_status_checks": checks},
            "protection_url": f"{url}/protection",
        },
    )


def _ref(call: Call) -> Answer:
    ref = f"refs/{call.parts['ref']}"
    if pull := re.fullmatch(r"refs/pull/([0-9]{1,9})/merge", ref):
        call.hub.merged_now(call.hub.ticket(int(pull[1])))
    found = _place(call).object_of(ref)
    if found is None:
        raise not_found()
    kind, sha = found
    url = f"{shapes.api(call.hub, call.owner)}/git"
    target = {"type": kind, "sha": sha, "url": f"{url}/{kind}s/{sha}"}
    return Answer(
        200, {"ref": ref, "node_id": shapes.node("REF", crc32(ref.encode())), "url": f"{url}/{ref}", "object": target}
    )


def _resolved(call: Call, revision: str) -> str:
    """A commit by branch, tag, id or abbreviated id; ``owner:branch`` names one of a fork."""
    owner, _, name = revision.rpartition(":")
    place = call.hub.places.get(owner or call.owner)
    # Of git's many ways to name a commit GitHub takes these.
    usable = place is not None and re.fullmatch(r"[\w./+#@=-]+", name) and ".." not in name and "@{" not in name
    for full in (f"refs/heads/{name}", f"refs/tags/{name}", name if re.fullmatch("[0-9a-f]{7,40}", name) else ""):
        if usable and place is not None and full and (sha := place.resolve(full)):
            if place is not call.hub.home:
                call.hub.home.bring(place, sha)
            return sha
    raise not_found()


def _commit(call: Call) -> Answer:
    try:
        sha = _resolved(call, call.parts["ref"])
    except Problem as error:
        raise Problem(422, f"No commit found for SHA: {call.parts['ref']}") from error
    commit = call.hub.home.commit(sha)
    parent = commit.parents[0] if commit.parents else None
    files = call.hub.home.changes(parent, sha) if parent else ()
    added, removed = sum(each.additions for each in files), sum(each.deletions for each in files)
    shown = shapes.commit(call.hub, commit, call.owner)
    shown["stats"] = {"additions": added, "deletions": removed, "total": added + removed}
    shown["files"] = [shapes.change(call.hub, each, sha) for each in files[:300]]
    return Answer(200, shown)


def _commits(call: Call) -> Answer:
    query = call.request.query
    try:
        tip = _resolved(call, query.get("sha") or "main")
    except Problem as error:
        raise not_found() from error
    found = call.hub.home.history(tip, query.get("path", ""))
    if author := query.get("author"):
        mail = {ACCOUNTS[author].email} if author in ACCOUNTS else {author}
        found = [sha for sha in found if call.hub.home.commit(sha).author_email in mail]
    return page(
        call.request, call.url, found, lambda sha: shapes.commit(call.hub, call.hub.home.commit(sha), call.owner)
    )


def _compare(call: Call) -> Answer:
    base_name, dots, head_name = call.parts["basehead"].partition("...")
    if not dots:
        raise not_found()
    hub, base, head = call.hub, _resolved(call, base_name), _resolved(call, head_name)
    ahead, behind, fork_point = hub.home.compare(base, head)
    if not fork_point:
        raise Problem(404, f"No common ancestor between {base_name} and {head_name}.")
    commits = page(
        call.request, call.url, hub.home.log(base, head), lambda sha: shapes.commit(hub, hub.home.commit(sha))
    )
    files = hub.home.changes(fork_point, head)
    state = "diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical"
    html = f"{shapes.web(hub)}/compare"
    return Answer(
        200,
        {
            "url": call.url,
            "html_url": f"{html}/{call.parts['basehead']}",
            "permalink_url": f"{html}/{base}...{head}",
            "diff_url": f"{html}/{call.parts['basehead']}.diff",
            "patch_url": f"{html}/{call.parts['basehead']}.patch",
            "base_commit": shapes.commit(hub, hub.home.commit(base)),
            "merge_base_commit": shapes.commit(hub, hub.home.commit(fork_point)),
            "status": state,
            "ahead_by": ahead,
            "behind_by": behind,
            "total_commits": ahead,
            "commits": commits.content,
            "files": [shapes.change(hub, each, head) for each in files[:300]],
        },
        commits.headers,
    )


_HERE = "/repos/{owner}/{repo}"
_METADATA, _CONTENTS = ("metadata=read",), ("contents=read",)
ROUTES = (
    Route("GET", "/user", _user),
    Route("GET", _HERE, _repository, _METADATA, forks=True),
    Route("GET", f"{_HERE}/collaborators/{{username}}/permission", _permission, _METADATA),
    Route("GET", f"{_HERE}/branches/{{branch}}", _branch, _CONTENTS, forks=True),
    Route("GET", f"{_HERE}/git/ref/{{ref}}", _ref, _CONTENTS, forks=True),
    Route("GET", f"{_HERE}/commits", _commits, _CONTENTS, forks=True),
    Route("GET", f"{_HERE}/commits/{{ref}}", _commit, _CONTENTS, forks=True),
    Route("GET", f"{_HERE}/compare/{{basehead}}", _compare, _CONTENTS),
)
