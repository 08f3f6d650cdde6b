"""The parameters of a bump, checked once when a run starts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Self, cast, get_args

from runbook_lib.decisions import Decision, Decisions, Seen, digest
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageType as ImageType
from runbook_lib.images.reference import Tag
from runbook_lib.pins.repositories import MEGATRON_LM, Repository

#: What a run may change: nothing; the repository of the checkout; also what others see.
Mode = Literal["preview", "local", "publish"]


@dataclass(frozen=True)
class Bump:
    """A requested bump.  ``tag`` is None if a notebook only shows the current state.

    ``repository`` declares the pins to move, with a tag those of its image only, and the family of image tags.
    ``decisions`` are those of people.  ``current_branch`` is where a change without a bump is committed, with
    ``change_title`` as its title where it has a pull request of its own.  ``given`` are the parameters that were passed
    to the notebook, for the next command.
    """

    tag: Tag | None
    image_type: ImageType
    base: str
    remote: str
    mode: Mode
    repository: Repository = MEGATRON_LM
    decisions: Decisions = field(default_factory=Decisions)
    current_branch: str = ""
    change_title: str = ""
    given: Mapping[str, object] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(
        cls,
        *,
        tag: str = "",
        image_type: str = "dev",
        base: str = "main",
        remote: str = "origin",
        mode: str = "preview",
        repository: Repository = MEGATRON_LM,
        decisions: Decisions | None = None,
        given: Mapping[str, object] = MappingProxyType({}),
    ) -> Self:
        """Check a notebook's common parameters.  Raises RunbookError for an invalid value."""
        texts: dict[str, object] = {"tag": tag, "image_type": image_type, "base": base, "remote": remote, "mode": mode}
        for name, value in texts.items():
            # Neither the parameters cell nor papermill checks types: 26.10 arrives as the number 26.1.
            if not isinstance(value, str):
                fix = f'text: use {name} = "…", or -r {name} … with papermill'
                raise RunbookError(f"Parameter {name} is {value!r}, of type {type(value).__name__}; it must be {fix}.")
        for name, value, choices in (("mode", mode, get_args(Mode)), ("image type", image_type, get_args(ImageType))):
            if value not in choices:
                raise RunbookError(f"The {name} {value!r} is unknown.", f"Choose {' or '.join(choices)}.")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/-]*", remote):
            raise RunbookError(f"remote={remote!r} is not a valid git remote name. Examples: origin, fork")
        target = None
        if tag:
            repository, target = repository.of_tag(tag)
            _branch_name("tag", str(target))  # the bump's branch is named after it
        return cls(
            tag=target,
            image_type=cast(ImageType, image_type),
            base=_branch_name("base", base),
            remote=remote,
            mode=cast(Mode, mode),
            repository=repository,
            decisions=decisions or Decisions(),
            given=given,
        )

    def allowed(self, what: str, *evidence: object) -> Decision | None:
        """Return a person's decision to make this exception of the bump for this evidence; None without one."""
        return self.decisions.decided("allow", what, Seen(digest(self.target, *evidence)))

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
    def apply(self) -> bool:
        """True unless this is a preview."""
        return self.mode != "preview"

    @property
    def publish(self) -> bool:
        """True if changes may leave this machine."""
        return self.mode == "publish"


def _branch_name(parameter: str, name: str) -> str:
    # git-check-ref-format(1), without rare forms that nobody uses for branches.
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/+#=@-]*", name)
    if not plain or re.search(r"\.\.|//|/\.|@\{|\.lock/|(?:\.|/|\.lock)$", name):
        raise RunbookError(f"{parameter}={name!r} is not a valid branch name.")
    return name
