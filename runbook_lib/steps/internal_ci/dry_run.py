"""The dry run of a bump's internal pipeline: what would be pushed where on GitLab, and what stands there now."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, urlsplit

from runbook_lib import display, notebooks
from runbook_lib.clients.gitlab.client import GitLab
from runbook_lib.clients.gitlab.models import UNDER_WAY, Branch, Pipeline, Project
from runbook_lib.display import View
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.steps.internal_ci import plan
from runbook_lib.steps.internal_ci.plan import Build, Place
from runbook_lib.transport import urls
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.bump_plan import finished

#: Pipelines of one commit that are looked into, the best first.
_MOST = 5
#: Asks the environment when git asks for it: so the token stands in no address, setting, file or command line.
_HELPER = """!f() { test "$1" = get && printf 'username=oauth2\\npassword=%s\\n' "$GITLAB_TOKEN"; }; f"""


@dataclass(frozen=True)
class Ahead:
    """The dry run: what would be pushed where, what stands there now, and which pipeline is started or followed.

    ``problem`` is why there is nothing to do, or why GitLab could not be asked; ``held`` what is waited for, and
    ``next`` what to do about it.  ``seen`` is the commit that the destination holds now.
    """

    branch: BumpBranch
    remote: str
    commit: str = ""
    destination: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    builds: tuple[Build, ...] = ()
    gitlab: GitLab | None = None
    place: Place | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    seen: str | None = None
    destination_branch: Branch | None = None
    pipeline: Pipeline | None = None
    busy: Pipeline | None = None
    problem: str = ""
    held: str = ""
    next: str = ""

    @property
    def pushes(self) -> bool:
        """Whether the commit is not there yet, nor tested elsewhere."""
        return self.pipeline is None and self.seen != self.commit

    @property
    def replaces(self) -> str:
        """What the push does to the branch that stands there, in words."""
        if self.seen is None:
            return "nothing: the branch will be new"
        if self.seen == self.commit:
            return "this very commit: nothing is pushed"
        it, checkout = self.destination_branch, self.branch.checkout
        named = f"{self.seen[:10]} ({it.title!r}, by {it.author}, {it.when})" if it else self.seen[:10]
        if not checkout.has(self.seen):
            return f"{named}, which this clone does not know: it would be replaced (force)"
        if checkout.is_ancestor(self.seen, self.commit):
            return f"{named}: the branch goes forward"
        lost = checkout.git("rev-list", "--count", f"{self.commit}..{self.seen}")
        return f"{named}: replaced (force), with {display.count(int(lost), 'commit')} that the bump lacks"

    def show(self) -> View:
        """The dry run, to be read before it is confirmed."""
        if self.problem or not self.commit:
            return display.note(self.problem or self.held)
        asked = ", ".join(f"{name}={value}" for name, value in self.variables.items())
        rows = {
            "from": f"{self.branch.bump.branch} at {self.commit}",
            "remote": f"{self.remote}: {self.place}",
            "destination": self.destination,
            "stands there now": self.replaces,
            "pipeline": f"found: {self.pipeline.url} ({self.pipeline.ref}, {self.pipeline.status})"
            if self.pipeline
            else f"to be started with {asked}",
            "must succeed": "\n".join(it.name for it in self.builds),
        }
        shown = display.table({"what": name, "value": value} for name, value in rows.items())
        if self.held:
            return shown + display.note(f"{self.held[:1].upper()}{self.held[1:]}. {self.next}")
        return shown if self.pipeline else shown + display.note(f"To confirm: confirm={self.destination}")


def look(branch: BumpBranch, *, remote: str = "gitlab", tests: str = "", env: Mapping[str, str] = os.environ) -> Ahead:
    """The dry run, always made first: changes nothing.

    ``remote`` is the git remote that is the internal GitLab, ``tests`` a scope of functional tests to run as well.
    Raises Refused for a destination that is protected or shared.  A run that publishes nothing goes on without GitLab,
    where that cannot be asked.
    """
    bump, ahead = branch.bump, Ahead(branch, remote)
    if bump.tag is None or (why := bump.repository.idle(notebooks.GITLAB_PIN)):
        return replace(ahead, problem="No tag was given." if bump.tag is None else why)
    wanted = plan.variables(tests)
    if branch.tip is None:
        if finished(branch):
            return replace(ahead, problem=f"{bump.base} already names {bump.tag}: there is nothing to build for it.")
        return replace(ahead, held=f"waiting for the branch {bump.branch}", next="03-open-pr, with apply, makes it.")
    sites = bump.repository.sites
    builds = plan.builds(branch.texts(sites.pin_paths), sites, bump.image_type)
    ahead = replace(
        ahead, commit=branch.start, destination=plan.destination(bump.branch), variables=wanted, builds=builds
    )
    if wrong := [it for it in builds if ImageRef.parse(it.image).tag != str(bump.tag)]:
        return replace(
            ahead, held=f"waiting for the pin: {branch.start[:10]} builds {wrong[0].image} in {wrong[0].name}",
            next="02-gitlab-pin moves it, 03-open-pr commits it.",
        )  # fmt: skip
    if not builds:
        return replace(
            ahead, held="waiting for a person: no row of a GitLab matrix names this pin, so no job would prove it",
            next="Build it by hand.",
        )  # fmt: skip
    try:
        return _asked(ahead, env)
    except Refused:
        raise
    except RunbookError as error:
        if bump.publish:
            raise
        return replace(ahead, problem=f"The dry run could not be made. {error}")


def _asked(ahead: Ahead, env: Mapping[str, str]) -> Ahead:
    """What GitLab and its git remote say."""
    checkout, name = ahead.branch.checkout, ahead.destination
    url = checkout.remote_url(ahead.remote)
    if url is None:
        raise RunbookError(
            f"{checkout.path} has no remote named {ahead.remote!r}; it has {', '.join(checkout.remotes()) or 'none'}. "
            "Add the internal GitLab with `git remote add`, or give its name as gitlab."
        )
    place = plan.place(url)
    pushed = checkout.git("remote", "get-url", "--push", "--all", ahead.remote).splitlines()
    if len(pushed) != 1 or plan.place(checkout.remote_url(ahead.remote, push=True) or "").key != place.key:
        raise RunbookError(
            f"The remote {ahead.remote!r} pushes to another place than it fetches from, or to several, so it cannot be "
            "told what a push would replace. Look at `git remote -v`."
        )
    port = urlsplit(url).port if place.scheme == "https" else None
    known = {
        "GITLAB_URL": f"https://{place.host}{f':{port}' if port else ''}", "GITLAB_PROJECT": place.path,
    }  # fmt: skip
    gitlab = GitLab.connect({**env, **{key: env.get(key) or value for key, value in known.items()}})
    project = gitlab.project()
    _require_same(gitlab, project, place, ahead.remote)
    plan.guard(name, gitlab.protected(), project.default_branch)
    settings = _credentials(url, gitlab.url)
    seen = checkout.remote_tip(ahead.remote, name, settings)
    branch = gitlab.branch(name) if seen else None
    if branch and branch.protected:
        raise Refused(f"GitLab protects {name}, so nothing is pushed to it.")
    others = gitlab.pipelines(seen) if seen and seen != ahead.commit else ()
    return replace(
        ahead, gitlab=gitlab, place=place, settings=settings, seen=seen, destination_branch=branch,
        pipeline=telling(gitlab, ahead), busy=next((it for it in others if it.status in UNDER_WAY), None),
    )  # fmt: skip


def _require_same(gitlab: GitLab, project: Project, place: Place, remote: str) -> None:
    """Refuse where git and the API lead to two projects."""
    own = Place("https", urlsplit(gitlab.url).hostname or "", project.path)
    known = {own.key, *(plan.place(it).key for it in project.addresses)}
    if place.key not in known:
        raise Refused(
            f"The remote {remote!r} is {place}, and GITLAB_URL with GITLAB_PROJECT leads to {own}: the pipeline would "
            "start elsewhere than the branch is pushed. Give the remote of that project as gitlab, or correct them."
        )


def _credentials(url: str, gitlab: str) -> dict[str, str]:
    """The setting by which git gets the token for this server alone, where it asks for one and would find none.

    Another port of the same host may be another's server.
    """
    parts, home = urlsplit(url), urlsplit(gitlab)
    if not urls.is_private(parts.scheme, parts.hostname) or _server(parts) != _server(home):
        return {}
    return {f"credential.{parts.scheme}://{parts.netloc.rpartition('@')[2]}.helper": _HELPER}


def _server(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Scheme, host and port."""
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def telling(gitlab: GitLab, ahead: Ahead) -> Pipeline | None:
    """The pipeline of the commit that tells, or will tell, whether the pin builds."""
    for it in plan.candidates(gitlab.pipelines(ahead.commit), ahead.commit, ahead.destination)[:_MOST]:
        if plan.judge(it, gitlab.pipeline_jobs(it.id), ahead.builds, ahead.commit).state != "useless":
            return it
    return None
