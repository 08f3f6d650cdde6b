"""The outside of a run: what the steps need of it, as protocols (the ports), and the world that a step is given.

Practice implements the protocols, and so do the real clients.
"""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Image, ImageRef
from runbook_lib.model import Round
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.remote_url import RemoteUrl
from runbook_lib.world.github.models import (
    Artifact,
    Comment,
    GitHubRepository,
    Issue,
    LabelEvent,
    Pull,
    WorkflowJob,
    WorkflowRun,
)
from runbook_lib.world.gitlab.models import Bridge, Pipeline, PipelineJob
from runbook_lib.world.transport.archives import FileInParts

T = TypeVar("T")


class Forge(Protocol):
    """One repository on a forge, as one account sees it.

    A method that changes something never does so twice; callers ask first.  All raise RunbookError, and its subclasses
    NotAllowed for what does not exist or may not be seen, Unreachable where it is unknown whether it was done.
    """

    @property
    def repository(self) -> str:
        """``owner/name``."""

    @property
    def scopes(self) -> str | None:
        """The scopes of a classic token, as listed by the forge; None for other tokens, and before any reply."""

    def public(self, value: T) -> T:
        """Return text or data as it would be published: without secrets and characters that UTF-8 cannot encode."""

    def me(self) -> str:
        """Return the login of the account.  Raises NotAllowed for an account without one."""

    def repo(self) -> GitHubRepository:
        """Return the repository and the permissions of the account."""

    def may_read(self, area: str) -> bool:
        """Return False if a token lacks the permission to read ``area``, such as actions or pull_requests."""

    def may_write(self, login: str) -> bool:
        """Return True if an account may write to the repository; False also if this is unknown."""

    def pulls(self, head: str | None = None, base: str | None = None, state: str = "open") -> tuple[Pull, ...]:
        """Return pull requests, newest first; ``head`` is ``owner:branch``."""

    def pull(self, number: int) -> Pull:
        """Return one pull request."""

    def labellings(self, number: int) -> tuple[LabelEvent, ...]:
        """Return when labels were added to a pull request and removed, oldest first."""

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the conversation of a pull request, oldest first."""

    def files(self, number: int) -> Mapping[str, str]:
        """Return the files that a pull request changes, by path, with their patches; empty where none can be shown."""

    def last_author(self, path: str, ref: str) -> str:
        """Return the login of whoever last committed to a path; empty where no account is known."""

    def behind(self, base: str, head: str) -> int:
        """Return the number of commits of a branch that are missing from another branch or a fork's commit."""

    def runs(
        self, branch: str | None = None, head_sha: str | None = None, event: str | None = None,
        status: str | None = None, since: datetime | None = None,
    ) -> tuple[WorkflowRun, ...]:  # fmt: skip
        """Return workflow runs, newest first.

        ``event`` is what started them, such as ``merge_group``, and ``status`` also a conclusion, such as ``failure``.
        """

    def run(self, run_id: int) -> WorkflowRun:
        """Return one workflow run."""

    def jobs(self, run_id: int) -> tuple[WorkflowJob, ...]:
        """Return the jobs of a run's latest attempt."""

    def job(self, job_id: int) -> WorkflowJob:
        """Return one job."""

    def artifacts(self, run_id: int) -> tuple[Artifact, ...]:
        """Return the artifacts that the jobs of all attempts of a run have uploaded."""

    def artifact(self, artifact_id: int) -> FileInParts:
        """Return an artifact's zip, for reading."""

    def log(self, job_id: int) -> FileInParts:
        """Return the log of a job, for reading."""

    def deployment_failed(self, sha: str) -> bool:
        """Return True if the newest deployment of a commit failed."""

    def open_pull(self, title: str, head: str, base: str, body: str) -> Pull:
        """Open a pull request as a draft; ``head`` is ``owner:branch``."""

    def update_pull(self, number: int, body: str) -> Pull:
        """Change the body of a pull request."""

    def comment(self, number: int, body: str) -> Comment:
        """Write a comment."""

    def remove_comment(self, comment: Comment) -> None:
        """Delete a comment of the account."""

    def rerun_failed(self, run_id: int) -> None:
        """Run the failed jobs of a run once more, as its next attempt."""

    def add_label(self, number: int, name: str) -> None:
        """Add a label.  Adding it twice has no further effect."""

    def remove_label(self, number: int, name: str) -> None:
        """Remove a label.  Raises NotAllowed also if it is not set."""

    def search_issues(self, words: str) -> tuple[Issue, ...]:
        """Return the open issues whose text contains exactly these words, oldest first.

        The index may lag a few seconds behind new issues; `list_issues` does not.
        """

    def list_issues(self, creator: str = "") -> tuple[Issue, ...]:
        """Return the open issues, optionally of one author, without pull requests, oldest first."""

    def issue(self, number: int) -> Issue:
        """Return one issue."""

    def is_assignable(self, login: str) -> bool:
        """Return True if issues may be assigned to this account."""

    def file_issue(self, title: str, body: str, labels: Collection[str] = (), assignee: str = "") -> Issue:
        """File an issue.  Labels that the account may not set are dropped."""

    def withdraw_issue(self, issue: Issue) -> None:
        """Close an issue that somebody else has just filed as well."""


class Registry(Protocol):
    """One repository of a registry.  Its methods raise Unreachable without a reply, CannotTell if it is invalid."""

    @property
    def name(self) -> str:
        """Host and repository, for messages."""

    def image(self, reference: str) -> Image | None:
        """Return the image of a tag or a digest, or None if the registry does not have it."""

    def tags(self) -> list[str]:
        """Return every tag; empty if there is no such repository."""


class SecondCi(Protocol):
    """One project on a second CI, as one token sees it.

    Only ``start`` changes something.  All raise RunbookError for what does not exist or may not be seen, Unreachable
    without a reply.
    """

    def is_protected(self, branch: str) -> bool:
        """Return True for a branch that exists and is protected."""

    def start(self, ref: str, variables: Mapping[str, str]) -> Pipeline:
        """Start a pipeline for a branch's newest commit.  A branch is known some seconds after its push."""

    def pipeline(self, number: int) -> Pipeline:
        """Return one pipeline."""

    def pipelines(self, sha: str) -> tuple[Pipeline, ...]:
        """Return the pipelines of a commit, newest first, without child pipelines."""

    def variables(self, pipeline: int) -> dict[str, str]:
        """Return the variables that a pipeline was started with, without those of its configuration."""

    def bridges(self, pipeline: int) -> tuple[Bridge, ...]:
        """Return the bridges of a pipeline that start functional tests of an image type."""

    def jobs(self, pipeline: int) -> tuple[PipelineJob, ...]:
        """Return the jobs of a pipeline itself, or of one that a bridge started, the last attempt of each."""

    def artifact(self, job: int) -> FileInParts:
        """Return the zip of a job's artifacts, for reading."""

    def log(self, job: int) -> FileInParts:
        """Return the log of a job, for reading."""


class Services(Protocol):
    """The services of a run, each connected when it is first needed.  Only `notebook` and `cli` choose which."""

    def forge(self, repository: str, *, required: bool) -> Forge | None:
        """Return the forge of ``owner/name``; None if there is no usable token and it is not ``required``."""

    def registry(self, ref: ImageRef) -> Registry:
        """Return the repository of an image in its registry.  Sends nothing yet."""

    def second_ci(self, remote: RemoteUrl | None = None) -> SecondCi | None:
        """Return the second CI: a remote's project, or that of the settings; None if neither names a server.

        Sends nothing yet.  Raises RunbookError for bad settings.
        """

    def sleep(self, seconds: float) -> None:
        """Wait until the clock of the services has moved on."""

    def monotonic(self) -> float:
        """Return the time of that clock, in seconds."""


@dataclass(frozen=True)
class OnlineServices:
    """GitHub, OCI registries and GitLab, with the settings in ``env``.  Each client is imported when it is needed."""

    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def forge(self, repository: str, *, required: bool) -> Forge | None:
        """Return GitHub; None if there is no usable token and it is not ``required``.  Raises RunbookError."""
        from runbook_lib.world.github.client import GitHub

        try:
            return GitHub(repository, self.env)
        except RunbookError:
            if required:
                raise
            return None

    def registry(self, ref: ImageRef) -> Registry:
        """Return the repository of an image in its registry, or at RUNBOOK_REGISTRY.  Sends nothing yet."""
        from runbook_lib.world.registry import OciRegistry

        return OciRegistry(ref, self.env)

    def second_ci(self, remote: RemoteUrl | None = None) -> SecondCi | None:
        """Return GitLab; GITLAB_URL overrides the server of a remote, but nothing its project.  Raises RunbookError."""
        from runbook_lib.world.gitlab.client import GitLab

        settings = dict(self.env)
        if remote and remote.host:
            settings["GITLAB_URL"] = settings.get("GITLAB_URL") or remote.server
            settings["GITLAB_PROJECT"] = remote.path
        return GitLab(settings) if settings.get("GITLAB_URL") else None

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def monotonic(self) -> float:
        """Return the time, in seconds."""
        return time.monotonic()


ONLINE = OnlineServices()


class Journal(Protocol):
    """Notes of a run that must be on disk before the change that they announce."""

    @property
    def is_bump(self) -> bool:
        """True for a run of all steps of a bump."""

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The steps of this run so far, as the record has them."""

    def planned_commit(self, parent: str, tree: str, kind: str) -> None:
        """Note a commit of a tree on ``parent``, both by their IDs, before a branch has it."""


@dataclass
class Changes:
    """The changes of this run so far: the IDs of its ``commits``, and the ``pushed`` ones by branch.

    ``refused`` are GitHub's refusals of texts, by the part of the description (``Described``).
    """

    commits: set[str] = field(default_factory=set)
    pushed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass
class World:
    """``github`` is None if there is no usable token, ``records`` is the bump's folder in the archive.

    ``folder`` is this run's record, for the logs of long processes; None if nothing is recorded.
    ``branches`` are the bump's branches that were read (``BumpBranch.look``), so that each is read once.
    ``round`` is what the step before leaves of the newest CI run; None if it does not respond to it.
    """

    checkout: Checkout
    github: Forge | None
    journal: Journal
    services: Services = ONLINE
    records: Path | None = None
    changes: Changes = field(default_factory=Changes)
    branches: dict[str, Any] = field(default_factory=dict)
    round: Round | None = None
    folder: Path | None = None

    @property
    def forge(self) -> Forge:
        """GitHub.  Raises RunbookError without a token."""
        if self.github is None:
            raise RunbookError("GitHub cannot be queried without a token.", "Set GITHUB_TOKEN, then run again.")
        return self.github

    def sleep(self, seconds: float) -> None:
        """Wait until the clock of the services has moved on."""
        self.services.sleep(seconds)
