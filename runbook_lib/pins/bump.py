"""The parameters of a bump, checked once when a run starts."""

import re
from dataclasses import dataclass
from typing import Literal, Self, cast, get_args

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageType as ImageType
from runbook_lib.images.reference import Tag
from runbook_lib.pins.repositories import MEGATRON_LM, Repository

#: What a run may change: nothing; the repository of the checkout; also what others see.
Mode = Literal["preview", "local", "publish"]
#: The named exceptions that the parameter ``allow`` may list, and what each permits.
EXCEPTIONS = {
    "older-tag": "bump to a tag that is older than the pin (a rollback)",
    "other-edition": "leave pins of the image's other editions behind, which are bumped to tags of their own",
    "unverified-tag": "publish even though the registry could not confirm the tag",
    "both-types": "move pins of the other image type in the same bump",
    "merge-base": "merge the base branch into the bump's branch when the base has moved",
    "older-run": "take golden values from a run of a commit before the pull request's head",
    "internal-ci": "push the bump's branch to the internal GitLab, to the destination that the dry run shows",
    "push-while-running": "push even though that cancels a CI run in progress and loses its golden values",
    "whole-row": "quarantine a recipe row even if it covers other platforms or environments too",
    "unseen-failure": "quarantine a test that did not fail in the CI run",
    "second-ci-unseen": "call the bump ready to merge although its pipeline on GitLab was not looked at",
    "partial-round": "push refreshed golden values even though other failed tests are still undecided",
}
#: The exception that confirms a commit that the runbook did not make, by its full ID: ``foreign-commit:<id>``.
FOREIGN = "foreign-commit"


@dataclass(frozen=True)
class Bump:
    """A requested bump.  ``tag`` is None if a notebook only shows the current state.

    ``repository`` declares the pins to move, with a tag those of its image only, and the family of image tags.
    ``current_branch`` is where a change without a bump is committed, with ``change_title`` as its title where it has a
    pull request of its own.
    """

    tag: Tag | None
    image_type: ImageType
    base: str
    remote: str
    allow: frozenset[str]
    mode: Mode
    repository: Repository = MEGATRON_LM
    current_branch: str = ""
    change_title: str = ""

    @classmethod
    def parse(
        cls,
        *,
        tag: str = "",
        image_type: str = "dev",
        base: str = "main",
        remote: str = "origin",
        allow: str = "",
        mode: str = "preview",
        repository: Repository = MEGATRON_LM,
    ) -> Self:
        """Check a notebook's common parameters.  Raises RunbookError for an invalid value."""
        texts = {"tag": tag, "image_type": image_type, "base": base, "remote": remote, "allow": allow, "mode": mode}
        for name, value in texts.items():
            _require_type(name, value)
        if mode not in get_args(Mode):
            raise RunbookError(f"The mode {mode!r} is unknown. Choose {', '.join(get_args(Mode))}.")
        if image_type not in ("dev", "lts"):
            raise RunbookError(f"The image type {image_type!r} is unknown. Choose dev or lts.")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/-]*", remote):
            raise RunbookError(f"remote={remote!r} is not a valid git remote name. Examples: origin, fork")
        names = frozenset(filter(None, re.split(r"[,\s]+", allow)))
        _require_known_exceptions(names)
        target = None
        if tag:
            repository, target = repository.of_tag(tag)
            _branch_name("tag", str(target))  # the bump's branch is named after it
        return cls(
            tag=target,
            image_type="lts" if image_type == "lts" else "dev",
            base=_branch_name("base", base),
            remote=remote,
            allow=names,
            mode=cast(Mode, mode),
            repository=repository,
        )

    @property
    def target(self) -> str:
        """The parameter ``tag``: ``name:tag`` where the repository pins several images; empty without a tag."""
        short = self.repository.sites.images[0].short
        return ":".join(filter(None, [short, str(self.tag)])) if self.tag else ""

    @property
    def branch(self) -> str:
        """The branch of this bump, which depends only on its parameters."""
        if self.current_branch:
            return self.current_branch
        return f"bump/{self.base}/{self.image_type}-{self.target.replace(':', '-') or 'none'}"

    @property
    def title(self) -> str:
        """The title of the commit and the pull request, by the repository's convention (Megatron-LM #4611)."""
        if self.change_title:
            return self.change_title
        title = self.repository.title
        if self.image_type == "lts":
            title = self.repository.lts_title or title
        return title.replace("{tag}", self.target)

    @property
    def labels(self) -> tuple[frozenset[str], frozenset[str]]:
        """The labels that the pull request must have before CI starts, and those that it must not have."""
        return self.repository.ci.wanted_labels(self.image_type)

    @property
    def refresh_title(self) -> str:
        """The title of a commit that refreshes golden values."""
        return f"test: refresh golden values for {self.tag}" if self.tag else "test: refresh golden values"

    @property
    def quarantine_title(self) -> str:
        """The title of a commit that quarantines broken tests."""
        return f"test: mark broken tests for {self.tag}"

    @property
    def reenable_title(self) -> str:
        """The title of a commit that re-enables tests."""
        return f"test: re-enable tests for {self.tag}"

    @property
    def apply(self) -> bool:
        """True unless this is a preview."""
        return self.mode != "preview"

    @property
    def publish(self) -> bool:
        """True if changes may leave this machine."""
        return self.mode == "publish"


def default_mode(repo: str) -> Mode:
    """Return the mode of a run that names none: a preview, but in the practice environment everything is done."""
    return "preview" if repo else "publish"


def _require_type(name: str, value: object) -> None:
    # Neither the parameters cell nor papermill checks types: 26.10 arrives as the number 26.1.
    if not isinstance(value, str):
        fix = f'text: use {name} = "…", or -r {name} … with papermill'
        raise RunbookError(f"Parameter {name} is {value!r}, of type {type(value).__name__}; it must be {fix}.")


def _require_known_exceptions(names: frozenset[str]) -> None:
    """Raise RunbookError for an unknown exception, and for a commit without its full ID."""
    for name in sorted(names - EXCEPTIONS.keys()):
        kind, _, commit = name.partition(":")
        if kind != FOREIGN:
            known = ", ".join([*sorted(EXCEPTIONS), f"{FOREIGN}:<commit id>"])
            raise RunbookError(f"allow contains an unknown exception: {name}. Known exceptions: {known}.")
        if not re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", commit):
            raise RunbookError(
                f"allow contains {name!r}, which is not a full commit ID. Give all 40 digits, as "
                f"printed by `git rev-parse {commit or '<commit>'}` and by the step that waits for the confirmation."
            )


def _branch_name(parameter: str, name: str) -> str:
    # git-check-ref-format(1), without rare forms that nobody uses for branches.
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/+#=@-]*", name)
    if not plain or re.search(r"\.\.|//|/\.|@\{|\.lock/|(?:\.|/|\.lock)$", name):
        raise RunbookError(f"{parameter}={name!r} is not a valid branch name.")
    return name
