"""A bump: the parameters of a run, read and checked once at the border."""

import re
from dataclasses import dataclass
from typing import Self

from runbook_lib.errors import Refused, RunbookError
from runbook_lib.images.reference import ImageType as ImageType
from runbook_lib.images.reference import Tag
from runbook_lib.pins.repositories import MEGATRON_LM, Repository

#: The named exceptions that the parameter ``allow`` may list, and what each permits.
EXCEPTIONS = {
    "older-tag": "bump to a tag that is older than the pin (a roll-back)",
    "unverified-tag": "publish although the registry could not confirm the tag",
    "both-types": "move pins of the other image type in the same bump",
    "merge-base": "merge the base branch into the bump's branch when the base has moved",
    "older-run": "take golden values from a run of an earlier commit than the pull request's head",
    "push-while-running": "push although that cancels a CI run in progress, with its golden values",
    "whole-row": "mark a recipe's row broken although it stands for other platforms or environments as well",
    "unseen-failure": "mark a test broken that did not fail in the run that is looked at",
    "partial-round": "push refreshed golden values although other tests that failed are not decided yet",
}
#: The exception that confirms a commit which the runbook did not make, with its full id: ``foreign-commit:<id>``.
FOREIGN = "foreign-commit"


@dataclass(frozen=True)
class Bump:
    """What is asked for.  ``tag`` is None when a notebook is only to show where things stand.

    ``repository`` says whose pins move, and how a tag of its images reads.
    """

    tag: Tag | None
    image_type: ImageType
    base: str
    remote: str
    allow: frozenset[str]
    apply: bool
    publish: bool
    repository: Repository = MEGATRON_LM

    @classmethod
    def parse(
        cls,
        *,
        tag: str = "",
        image_type: str = "dev",
        base: str = "main",
        remote: str = "origin",
        allow: str = "",
        apply: bool = False,
        publish: bool = False,
        practice: bool = False,
        repository: Repository = MEGATRON_LM,
    ) -> Self:
        """Check the common parameters of a notebook.  The practice world publishes whenever it applies.

        Raises RunbookError for a value that cannot be used, and for ``publish`` without ``apply``.
        """
        for name, value in {
            "tag": tag,
            "image_type": image_type,
            "base": base,
            "remote": remote,
            "allow": allow,
        }.items():
            _require(str, name, value)
        for name, flag in {"apply": apply, "publish": publish}.items():
            _require(bool, name, flag)
        if publish and not apply:
            raise Refused(
                "publish=True was given without apply=True: what leaves the machine must first be made here. "
                "Give both, or neither for a preview."
            )
        if image_type not in ("dev", "lts"):
            raise RunbookError(f"The image type {image_type!r} is unknown: choose dev or lts.")
        names = frozenset(name for name in re.split(r"[,\s]+", allow) if name)
        _require_known(names)
        target = repository.sites.family.read(tag) if tag else None
        if target is not None:
            _branch_name("tag", tag)  # the bump's branch is named after it
        return cls(
            tag=target,
            image_type="lts" if image_type == "lts" else "dev",
            base=_branch_name("base", base),
            remote=_remote_name(remote),
            allow=names,
            apply=apply,
            publish=apply and (publish or practice),
            repository=repository,
        )

    @property
    def branch(self) -> str:
        """The branch of this bump; the same parameters always name the same one."""
        return f"bump/{self.base}/{self.image_type}-{self.tag}"

    @property
    def title(self) -> str:
        """Title of commit and pull request, by the repository's convention (Megatron-LM's: #4611)."""
        return self.repository.title.replace("{tag}", str(self.tag))

    @property
    def labels(self) -> tuple[frozenset[str], frozenset[str]]:
        """The labels that must be on the pull request before CI starts, and those that must be off."""
        return self.repository.wanted_labels(self.image_type)

    @property
    def refresh_title(self) -> str:
        """Title of a commit that refreshes golden values."""
        return f"test: refresh golden values for {self.tag}"

    @property
    def quarantine_title(self) -> str:
        """Title of a commit that puts broken tests out of the way."""
        return f"test: mark broken tests for {self.tag}"

    @property
    def round_titles(self) -> frozenset[str]:
        """Titles of the commits that answer a CI run; all those of one round are pushed at once."""
        return frozenset({self.refresh_title, self.quarantine_title})

    @property
    def mode(self) -> str:
        """What this run may do, in a word."""
        return "publish" if self.publish else "apply" if self.apply else "preview"


def _require(kind: type, name: str, value: object) -> None:
    # Whoever sets parameters (a parameter cell, papermill) checks no types: 26.10 arrives as the number 26.1, and the
    # text "False" would count as true.
    if not isinstance(value, kind):
        wanted = f'text: write {name} = "…", or -r {name} … for papermill' if kind is str else "True or False"
        raise RunbookError(
            f"The parameter {name} is {value!r}, of the type {type(value).__name__}; it must be {wanted}."
        )


def _require_known(names: frozenset[str]) -> None:
    """Raise RunbookError for an exception that there is none of, and for a commit without its full id."""
    for name in sorted(names - EXCEPTIONS.keys()):
        kind, _, commit = name.partition(":")
        if kind != FOREIGN:
            known = ", ".join([*sorted(EXCEPTIONS), f"{FOREIGN}:<commit id>"])
            raise RunbookError(f"allow names no known exception: {name}. Known are {known}.")
        if not re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", commit):
            raise RunbookError(
                f"allow has {name!r}, which is no full commit id: one commit alone is confirmed, by all its 40 digits. "
                f"`git rev-parse {commit or '<commit>'}` prints them, and so does the step that waits for it."
            )


def _branch_name(parameter: str, name: str) -> str:
    # git-check-ref-format(1), without the rare forms that nobody uses for a branch.
    bad = not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/+#=@-]*", name) or any(
        part in name for part in ("..", "//", "/.", "@{")
    )
    if bad or name.endswith((".", "/", ".lock")) or ".lock/" in name:
        raise RunbookError(f"{parameter}={name!r} cannot be the name of a branch.")
    return name


def _remote_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/-]*", name):
        raise RunbookError(f"remote={name!r} cannot be the name of a git remote: give a name such as origin or fork.")
    return name
