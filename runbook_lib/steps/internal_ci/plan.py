"""The internal pipeline of a bump: where its branch goes on GitLab, what it runs, whether the pin builds.  Pure.

Sources: Megatron-LM's ``tools/trigger_internal_ci.py`` (destination, variables) and ``.gitlab-ci.yml`` (which scopes
there are, that a push alone starts nothing); GitLab's documentation of ``parallel: matrix`` (the names of its jobs) and
of protected branches (``*`` in their names).
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from runbook_lib.clients.gitlab.models import UNDER_WAY, Job, Pipeline
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.images.reference import ImageType
from runbook_lib.pins import gitlab_matrix
from runbook_lib.pins.finders import MatrixRows
from runbook_lib.pins.sites import Sites

#: Below this GitLab keeps the branches of pull requests; numbers there are copy-pr-bot's mirrors.
PREFIX = "pull-request/"
#: Branches that many work on: never a source, never a destination.
SHARED = ("main", "master", "dev", "release*", "core_*", "ci-*", "HEAD")
#: The scopes that the pipeline lets one choose.
SCOPES = ("mr", "nightly", "weekly", "pre-release", "release")
#: Tests of these train long.  Seconds.
_LONG, _LONG_LIMIT = ("release", "weekly"), 4 * 3600
_NO_TESTS = {"UNIT_TEST": "no", "INTEGRATION_TEST": "no"}

_AGAIN = "Run internal-ci again with publish: it starts another pipeline."

State = Literal["none", "waiting", "passed", "failed", "useless"]


@dataclass(frozen=True)
class Place:
    """Where a remote leads: a project's ``path`` (without ``.git``) on a ``host`` (without port), or a folder here."""

    scheme: Literal["https", "http", "ssh", "file"]
    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.path} on {self.host}" if self.host else self.path

    @property
    def key(self) -> tuple[str, str]:
        """What is the same for all addresses of one project; GitLab's paths do not heed case, folders do."""
        return (self.host.lower(), self.path.lower()) if self.host else ("", self.path)


def place(url: str) -> Place:
    """Read the address of a remote.  Raises RunbookError for one that names no project on a server, nor a folder."""
    wrong = RunbookError(
        f"The remote's address {url!r} is none of https://host/group/project.git, ssh://git@host/group/project.git, "
        "git@host:group/project.git and a folder. Set it with `git remote set-url`."
    )
    if re.search(r"[\x00-\x1f\x7f]", url) or url.startswith("-"):
        raise wrong
    if url.startswith("/"):
        return Place("file", "", url.rstrip("/"))
    if " " in url:
        raise wrong
    if "://" not in url:
        scp = re.fullmatch(r"(?:[\w.+-]+@)?([A-Za-z0-9][A-Za-z0-9.-]*):(?!:)(.+)", url)
        if scp is None:
            raise wrong
        url = f"ssh://{scp[1]}/{scp[2].lstrip('/')}"
    parts = urlsplit(url)
    path = unquote(parts.path).rstrip("/")
    if parts.scheme == "file" and not parts.hostname and path:
        return Place("file", "", path)
    host = parts.hostname or ""
    if parts.scheme not in ("https", "http", "ssh") or not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", host) or not path:
        raise wrong
    try:
        _ = parts.port
    except ValueError:
        raise wrong from None
    return Place("https" if parts.scheme == "https" else "http" if parts.scheme == "http" else "ssh", host,
                 path.lstrip("/").removesuffix(".git"))  # fmt: skip


def destination(branch: str) -> str:
    """Where a branch goes on GitLab: ``pull-request/<branch>``.  Raises Refused for a branch that must not go there."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/+#=@-]{0,199}", branch) or re.search(
        r"\.\.|//|/\.|@\{|\.lock(?:/|$)|[./]$", branch
    ):
        raise Refused(f"{branch!r} cannot be the name of a branch, so nothing is pushed to GitLab.")
    if shared := next((it for it in SHARED if matches(it, branch)), None):
        raise Refused(
            f"The branch {branch} is one that many work on ({shared}), so it is not pushed to GitLab as a bump's. "
            "Run this on the bump's own branch."
        )
    if branch.isdigit() or branch.startswith((PREFIX, "refs/")):
        raise Refused(
            f"{PREFIX}{branch} would be taken for another branch: numbers there are the mirrors of pull requests. "
            "Run this on the bump's own branch."
        )
    return f"{PREFIX}{branch}"


def guard(name: str, protected: Iterable[str], default: str = "") -> None:
    """Raise Refused unless a push may replace this branch of GitLab's.

    ``protected`` are the names by GitLab's own word, ``default`` is its project's branch of reference.
    """
    inner = name.removeprefix(PREFIX)
    if inner == name or name == default or destination(inner) != name:
        raise Refused(f"{name} is no branch below {PREFIX}, so nothing is pushed to it.")
    if pattern := next((it for it in protected if matches(it, name)), None):
        raise Refused(
            f"GitLab protects {name} (by {pattern!r}), so nothing is pushed to it. Ask a maintainer of the project "
            "where the branches of pull requests go."
        )


def matches(pattern: str, name: str) -> bool:
    """Whether a name is that of a protected branch; ``*`` stands for any text, nothing else is special."""
    first, *parts = pattern.split("*")
    if not parts:
        return name == pattern
    *middle, last = parts
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:  # each as early as it can be: so none is missed, without trying twice
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def variables(tests: str) -> dict[str, str]:
    """The variables of the pipeline: it builds the images, and runs the functional tests of a scope if one is named.

    Raises RunbookError for a scope that the pipeline does not offer.
    """
    if not tests:
        return {"BUILD": "yes", **_NO_TESTS, "FUNCTIONAL_TEST": "no"}
    if tests not in SCOPES:
        raise RunbookError(f"tests={tests!r} is no scope of the internal pipeline: choose one of {', '.join(SCOPES)}.")
    asked = {
        "BUILD": "yes", **_NO_TESTS, "FUNCTIONAL_TEST": "yes", "FUNCTIONAL_TEST_SCOPE": tests,
        "FUNCTIONAL_TEST_REPEAT": "5", "FUNCTIONAL_TEST_CASES": "all",
    }  # fmt: skip
    return asked | ({"FUNCTIONAL_TEST_TIME_LIMIT": str(_LONG_LIMIT)} if tests in _LONG else {})


@dataclass(frozen=True)
class Build:
    """A job that builds the image of a pin: that of one row of a matrix, with its values in their order."""

    job: str
    values: tuple[str, ...]
    image: str
    platform: str

    @property
    def name(self) -> str:
        """The job's name on GitLab."""
        return f"{self.job}: [{', '.join(self.values)}]"

    def is_(self, job: Job) -> bool:
        """Whether a job of a pipeline is this one."""
        name, _, rest = job.name.partition(": [")
        values = re.split(", ?", rest.removesuffix("]"))
        return name == self.job and rest.endswith("]") and sorted(values) == sorted(self.values)


def builds(texts: Mapping[str, str | None], sites: Sites, image_type: ImageType) -> tuple[Build, ...]:
    """The jobs that build the images of a type's GitLab pins, as the files of a commit tell.

    None where the pins do not stand in rows of a matrix.  Raises CannotTell for a file that is no YAML.
    """
    found: list[Build] = []
    for site in sites.pins:
        finder, text = site.finder, texts.get(site.path)
        if site.ci != "gitlab" or site.image_type != image_type or not isinstance(finder, MatrixRows) or not text:
            continue
        for row in gitlab_matrix.rows(text):
            if finder.value not in row.texts(finder.key) or not row.texts(finder.pin):
                continue
            for values in itertools.product(*(row.texts(key) for key in row.cells)):
                named = dict(zip(row.cells, values, strict=True))
                if named[finder.key] == finder.value:
                    found.append(Build(row.job, values, named[finder.pin], named.get(finder.platform_key, "")))
    return tuple(found)


def candidates(pipelines: Sequence[Pipeline], commit: str, name: str) -> list[Pipeline]:
    """The pipelines of a commit that may tell something, best first: of its destination, then of any branch; newest.

    One that was cancelled or skipped tells nothing.
    """
    of_it = (it for it in pipelines if it.sha == commit and it.status not in ("canceled", "canceling", "skipped"))
    return sorted(of_it, key=lambda it: (it.ref == name, it.id), reverse=True)


@dataclass(frozen=True)
class Progress:
    """Where the internal pipeline stands: ``jobs`` are those that build the pin's images.

    ``sentence`` says it in words, and ``next`` what to do.  ``passed`` is said only where the job of each of the
    pin's rows has succeeded, in a pipeline of that very commit.
    """

    state: State
    sentence: str
    next: str = ""
    pipeline: Pipeline | None = None
    jobs: tuple[Job, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether waiting for it changes nothing any more."""
        return self.state in ("passed", "failed", "useless")

    @property
    def bad(self) -> tuple[Job, ...]:
        """The build jobs that failed."""
        return tuple(it for it in self.jobs if it.status == "failed")


def judge(pipeline: Pipeline, jobs: Sequence[Job], expected: Sequence[Build], commit: str) -> Progress:
    """Whether the pin of ``commit`` builds, by the jobs of a pipeline."""
    name = f"pipeline {pipeline.id} of {pipeline.sha[:10]}"
    if pipeline.sha != commit:
        return Progress("useless", f"{name} tells nothing of {commit[:10]}", _AGAIN, pipeline)
    found = {build: next((it for it in jobs if build.is_(it)), None) for build in expected}
    mine = tuple(it for it in found.values() if it is not None)

    def told(state: State, sentence: str, next: str = "") -> Progress:
        return Progress(state, sentence, next, pipeline, mine)

    if not expected:
        return told("useless", f"cannot tell from {name} whether the GitLab pin builds: no row of a matrix names it")
    if bad := [it for it in mine if it.status == "failed"]:
        which = "; ".join(f"{it.name}{_because(it)}" for it in bad)
        return told("failed", f"the GitLab pin does not build: {which} failed in {name}",
                    f"Look at the log and mend the cause, or retry the job there: {bad[0].url}")  # fmt: skip
    if len(mine) == len(expected) and all(it.status == "success" for it in mine):
        images = " and ".join(dict.fromkeys(it.image for it in expected))
        platforms = " and ".join(it.platform for it in expected if it.platform)
        return told("passed", f"The GitLab pin builds: {images}{f' for {platforms}' * bool(platforms)}, in {name}.")
    if pressed := [it for it in mine if it.status == "manual"]:
        return told("waiting", f"waiting for a person: {pressed[0].name} of {name} must be started by hand",
                    f"Press play there: {pressed[0].url}")  # fmt: skip
    if pipeline.status in UNDER_WAY or any(it.status in UNDER_WAY for it in mine):
        states = ", ".join(f"{_short(build)} {it.status if it else 'not listed yet'}" for build, it in found.items())
        return told("waiting", f"waiting for {name}: {states}", f"Run internal-ci again; it goes on at {pipeline.url}")
    lacking = ", ".join(build.name for build, it in found.items() if it is None)
    states = ", ".join(f"{it.name} {it.status}" for it in mine if it.status != "success")
    why = f"it has no job {lacking}" if lacking else states
    return told("useless", f"{name} ended ({pipeline.status}) without building the GitLab pin: {why}", _AGAIN)


def _because(job: Job) -> str:
    return f" ({job.reason.replace('_', ' ')})" if job.reason else ""


def _short(build: Build) -> str:
    return build.platform or build.job
