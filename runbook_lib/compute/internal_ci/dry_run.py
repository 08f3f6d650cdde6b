"""The dry run of a bump's internal pipeline: the planned push, and the current state of its destination on GitLab."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, urlsplit

from runbook_lib import display, notebooks
from runbook_lib.checks import Next
from runbook_lib.clients.gitlab.models import UNDER_WAY, Branch, Pipeline
from runbook_lib.compute.internal_ci import destination, plan
from runbook_lib.compute.known_builds import GITLAB_REMOTE, RemoteProject, parse_remote
from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.reference import ImageRef
from runbook_lib.model import Outcome
from runbook_lib.text.lists import capitalized
from runbook_lib.transport import urls
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.ports import SecondCi, Services

#: Number of a commit's pipelines whose jobs are read, best first.
_MOST = 5
#: Reads the environment when git requests credentials, so no URL, setting, file or command line has the token.
_HELPER = """!f() { test "$1" = get && printf 'username=oauth2\\npassword=%s\\n' "$GITLAB_TOKEN"; }; f"""


@dataclass(frozen=True)
class Server:
    """What GitLab and its git remote say about the destination.

    ``current`` is its commit now, and ``replaces`` the effect of the push on it, in words; ``pipeline`` is an existing
    one for the bump's commit, and ``warning`` what is unknown about it; ``busy`` is one still running there.
    """

    gitlab: SecondCi
    project: RemoteProject
    settings: Mapping[str, str]
    current: str | None
    replaces: str
    pipeline: Pipeline | None = None
    busy: Pipeline | None = None
    warning: str = ""


@dataclass(frozen=True)
class DryRun:
    """The planned push and pipeline of a bump's commit.

    ``problem`` says why there is nothing to do, or why GitLab could not be queried; ``waiting`` what must happen first.
    """

    branch: BumpBranch
    commit: str = ""
    destination: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    builds: tuple[plan.BuildJob, ...] = ()
    server: Server | None = None
    problem: str = ""
    waiting: Outcome | None = None

    def wait(self, waiting: str, next_action: Next) -> "DryRun":
        """Return the dry run with what must happen first, and how."""
        return replace(self, waiting=Outcome(waiting, next_action))

    def show(self) -> display.View:
        """Show the push and pipeline to be confirmed."""
        if self.server is None:
            return display.note(self.problem or (capitalized(self.waiting.sentence) if self.waiting else ""))
        pipeline = f"to be started with {', '.join(map('='.join, self.variables.items()))}"
        if existing := self.server.pipeline:
            pipeline = f"exists: {existing.url} ({existing.ref}, {existing.status})"
        rows = {
            "from": f"{self.branch.bump.branch} at {self.commit}",
            "remote": f"{GITLAB_REMOTE}: {self.server.project}",
        }
        rows |= {"destination": self.destination, "now there": self.server.replaces, "pipeline": pipeline}
        rows["must succeed"] = "\n".join(build.name for build in self.builds)
        shown = display.mapping(rows)
        return shown if existing else shown + display.note("To confirm this destination: allow internal-ci.")


def read_dry_run(branch: BumpBranch, *, tests: str = "") -> DryRun:
    """Return the dry run.  Changes nothing.

    ``tests`` is a scope of functional tests to run as well.  A run that publishes nothing continues without GitLab if
    that is unavailable.
    Raises Refused for a destination that is protected or shared.
    """
    bump, dry_run = branch.bump, DryRun(branch)
    if bump.tag is None:
        return replace(dry_run, problem="No tag was given.")
    if reason := bump.repository.inapplicable(notebooks.GITLAB_PIN):
        return replace(dry_run, problem=reason)
    variables = plan.variables(tests)
    if branch.tip is None:
        create = Next.run(notebooks.OPEN_PR, "Create it:", mode="publish")
        return dry_run.wait(f"waiting for branch {bump.branch}", create)
    sites = bump.repository.sites
    dry_run = replace(
        dry_run, commit=branch.start, destination=destination.destination(bump.branch), variables=variables,
        builds=plan.builds(branch.texts(sites.pin_paths), sites, bump.image_type),
    )  # fmt: skip
    for build in dry_run.builds:
        if ImageRef.parse(build.image).tag != str(bump.tag):
            waiting = f"waiting for the pin: {branch.start[:10]} builds {build.image} in {build.name}"
            return dry_run.wait(waiting, Next.run(notebooks.GITLAB_PIN, "Move it:"))
    if not dry_run.builds:
        problem = "no GitLab matrix row names this pin, so no job would build it"
        return dry_run.wait(f"waiting for a person: {problem}", Next("Build it by hand."))
    try:
        return replace(dry_run, server=_query_gitlab(dry_run))
    except RunbookError as error:
        if bump.publish or isinstance(error, Refused):
            raise
        return replace(dry_run, problem=f"The dry run is not possible. {error}")


def _query_gitlab(dry_run: DryRun) -> Server:
    """Return the destination's state, from GitLab and its git remote."""
    checkout, name = dry_run.branch.checkout, dry_run.destination
    url = checkout.remote_url(GITLAB_REMOTE)
    if url is None:
        raise RunbookError(
            f"{checkout.path} has no remote named {GITLAB_REMOTE!r}, which is the internal GitLab; it has "
            f"{', '.join(checkout.remotes()) or 'none'}. Add it with `git remote add {GITLAB_REMOTE} ADDRESS`."
        )
    project = parse_remote(url)
    push_urls = checkout.git("remote", "get-url", "--push", "--all", GITLAB_REMOTE).splitlines()
    push_url = checkout.remote_url(GITLAB_REMOTE, push=True) or ""
    if len(push_urls) != 1 or parse_remote(push_url).key != project.key:
        raise RunbookError(
            f"The remote {GITLAB_REMOTE!r} pushes to a URL it does not fetch from, or to several, so the effect of a "
            "push is unknown. See `git remote -v`."
        )
    gitlab = _connect(dry_run.branch.services, project, url)
    gitlab_project = gitlab.project()
    api_project = RemoteProject(urlsplit(gitlab.url).hostname or "", gitlab_project.path)
    keys = {api_project.key, *(parse_remote(address).key for address in gitlab_project.addresses)}
    if project.key not in keys:
        raise Refused(
            f"The remote {GITLAB_REMOTE!r} is {project}, but GITLAB_URL and GITLAB_PROJECT name {api_project}: it "
            "would be pushed to one, and the pipeline started in the other. Correct them."
        )
    destination.require_replaceable(name, gitlab.protected(), gitlab_project.default_branch)
    settings = _credentials(url, gitlab.url)
    current = checkout.remote_tip(GITLAB_REMOTE, name, settings)
    branch = gitlab.branch(name) if current else None
    if branch and branch.protected:
        raise Refused(f"GitLab protects {name}, so nothing is pushed to it.")
    busy = None
    if current and current != dry_run.commit:
        busy = next((pipeline for pipeline in gitlab.pipelines(current) if pipeline.status in UNDER_WAY), None)
    replaces = _replaces(checkout, dry_run.commit, current, branch)
    server = Server(gitlab, project, settings, current, replaces, find_pipeline(gitlab, dry_run), busy)
    if server.pipeline and plan.runs_tests(variables(gitlab, server.pipeline), dry_run.variables) is None:
        scope = dry_run.variables["FUNCTIONAL_TEST_SCOPE"]
        sentence = f"Following pipeline {server.pipeline.id}, which exists for this commit. GitLab does not show"
        warning = f"{sentence} whether it runs the tests of tests={scope}: see {server.pipeline.url}"
        return replace(server, warning=warning)
    return server


def _replaces(checkout: Checkout, commit: str, current: str | None, head: Branch | None) -> str:
    """Return the effect of pushing ``commit`` on the branch at the destination, which ``head`` describes."""
    if current is None:
        return "nothing: the branch will be new"
    if current == commit:
        return "this same commit: nothing is pushed"
    name = current[:10]
    if head:
        name += f" ({head.title!r}, by {head.author}, {head.when})"
    if not checkout.has(current):
        return f"{name}, which is not in this clone: it would be replaced (force)"
    if checkout.is_ancestor(current, commit):
        return f"{name}: the branch is fast-forwarded"
    dropped = int(checkout.git("rev-list", "--count", f"{commit}..{current}"))
    return f"{name}: replaced (force), with {display.count(dropped, 'commit')} that the bump does not contain"


def _connect(services: Services, project: RemoteProject, url: str) -> SecondCi:
    """Connect to the GitLab in the settings, else to the remote's."""
    parts = urlsplit(url)
    server = f"https://{parts.netloc.rpartition('@')[2] if parts.scheme == 'https' else project.host}"
    gitlab = services.second_ci(server, project.path)
    assert gitlab is not None, "it has an address"
    return gitlab


def _credentials(url: str, gitlab: str) -> dict[str, str]:
    """Return the git setting that uses the token for this server alone: another port may belong to somebody else."""
    remote, server = urlsplit(url), urlsplit(gitlab)
    if not urls.is_private(remote.scheme, remote.hostname) or _origin(remote) != _origin(server):
        return {}
    return {f"credential.{remote.scheme}://{remote.netloc.rpartition('@')[2]}.helper": _HELPER}


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port."""
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def find_pipeline(gitlab: SecondCi, dry_run: DryRun) -> Pipeline | None:
    """Return the commit's pipeline that shows, or will show, whether the pin builds, and that runs the requested tests.

    A pipeline whose test scope is unknown counts if it runs tests at all.
    """
    commit = dry_run.commit
    for pipeline in plan.candidates(gitlab.pipelines(commit), commit, dry_run.destination)[:_MOST]:
        progress = plan.judge(pipeline, gitlab.pipeline_jobs(pipeline.id), dry_run.builds, commit)
        if progress.state == "useless":
            continue
        runs_tests = plan.runs_tests(variables(gitlab, pipeline), dry_run.variables)
        if runs_tests is None:
            runs_tests = bool(gitlab.bridges(pipeline.id))
        if runs_tests:
            return pipeline
    return None


def newest_pipeline(gitlab: SecondCi, dry_run: DryRun) -> Pipeline | None:
    """Return the pipeline that ``find_pipeline`` finds, else the newest of the commit, which may be of no use."""
    found = find_pipeline(gitlab, dry_run)
    others = plan.candidates(gitlab.pipelines(dry_run.commit), dry_run.commit, dry_run.destination)
    return found or next(iter(others), None)


def variables(gitlab: SecondCi, pipeline: Pipeline) -> dict[str, str]:
    """Return the variables that a pipeline was started with; none if this token may not read them."""
    try:
        return gitlab.variables(pipeline.id)
    except Unreachable:
        raise
    except RunbookError:
        return {}
