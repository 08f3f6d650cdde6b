"""The fields of a notebook's form: which there are, what they are called, and what is wrong with what was typed.

Pure: text in, text out.  The widgets are made in ``forms``.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.bump import Bump
from runbook_lib.containers.work.target import TARGETS
from runbook_lib.containers.work.tasks import TASKS
from runbook_lib.errors import RunbookError
from runbook_lib.pins.repositories import MEGATRON_LM, Repository
from runbook_lib.runner.parameters import Parameter
from runbook_lib.text.decisions import entries
from runbook_lib.text.redact import Redactor

#: What people call the parameters; one that is not listed goes by its own name.
LABELS = {
    "tag": "Tag", "repo": "Checkout", "image_type": "Image type", "base": "Base branch", "remote": "Push to",
    "audit": "Archive", "allow": "Exceptions", "pins": "Whose pins", "publish": "Publish", "wait": "Wait for CI",
    "run_id": "CI run", "source": "Source", "only_failing": "Failed jobs only", "accept": "Accept", "broken": "Broken",
    "reenable": "Let run again", "soft": "Soft", "reset": "Reset", "refs": "Branches", "place": "Where",
    "task": "Task", "where": "Runs", "image": "Image", "tests": "Tests", "install": "Extras and groups",
    "package": "Package", "extra": "Into", "cache": "uv's cache", "folder": "Folder", "slurm": "Slurm",
    "how": "How", "engine": "Engine", "target": "Stage", "dockerfile": "Dockerfile", "arguments": "Build arguments",
    "name": "Image's name", "secrets": "Build secrets", "look": "Look into the image", "train": "Train",
    "gitlab": "GitLab's remote", "site": "Cluster's file", "results": "Results in",
    "partition": "Partition", "account": "Account", "mounts": "Mounts", "platform": "Platform", "again": "Once more",
    "early": "End early", "cancel": "Cancel all",
    "nodes": "Nodes", "gpus": "GPUs a node",
}  # fmt: skip
#: Seldom needed, so out of sight at first.
SELDOM = (
    "remote", "audit", "allow", "pins", "source", "only_failing", "reset", "soft", "accept", "broken", "reenable",
    "cache", "folder", "slurm", "target", "dockerfile", "arguments", "name", "secrets", "train", "mounts", "again",
    "early", "cancel", "gitlab", "nodes", "gpus",
)  # fmt: skip
#: Fields with few possible values: the value and how it reads.
CHOICES: Mapping[str, Mapping[str, str]] = {
    "image_type": {"dev": "dev: what CI runs in by default", "lts": "lts: the long-term image"},
    "source": {"github": "GitHub, then GitLab", "gitlab": "GitLab alone"},
    "task": {name: f"{name}: {what}" for name, what in TASKS.items()},
    "where": {"": "(what this machine has)"} | {name: f"{name}: {what}" for name, what in TARGETS.items()},
    "how": {
        "build": "build: the image of this checkout",
        "stack": "stack: fw-base, Megatron-Bridge and fw-final on each other",
        "pull": "pull: the image that internal CI has built",
    },
    "engine": {"": "(the first that works)", "docker": "docker", "podman": "podman", "buildah": "buildah"},
}
#: Never a field: Preview and Apply say it.
_NO_FIELD = ("apply", "confirm")
#: These take ``name: reason; …``, and how an entry reads.
DECIDED = {
    "accept": "model/case/golden_values_….json: reason",
    "broken": "case@platform: reason",
    "reenable": "case@platform: reason",
}
_COMMON = ("tag", "image_type", "base", "remote", "allow")
_LTS = "LTS pins change seldom, and a maintainer decides about them: is it really the LTS image that moves?"


@dataclass(frozen=True)
class Field:
    """A field: ``help`` is the sentence of the parameters cell; ``seldom`` ones are out of sight at first."""

    name: str
    label: str
    help: str
    default: str | bool
    seldom: bool


def fields(parameters: Iterable[Parameter]) -> tuple[Field, ...]:
    """The fields of a notebook with these parameters, in their order."""
    parameters = list(parameters)
    whole = {"broken", "refs"} <= {it.name for it in parameters}  # those of single steps are seldom needed in a bump
    seldom = (*SELDOM, "refs", "run_id") if whole else SELDOM
    return tuple(
        Field(it.name, LABELS.get(it.name, it.name), it.help, it.default, it.name in seldom)
        for it in parameters
        if it.name not in _NO_FIELD
    )


def problem(name: str, value: str | bool, repository: Repository = MEGATRON_LM) -> str:
    """What is wrong with a value, in words, or empty; ``repository`` tells how its tags read."""
    if isinstance(value, bool):
        return ""
    if not value.isprintable():
        return f"{value!r} holds a character that cannot be seen. Type it again."
    try:
        if name in _COMMON:
            Bump.parse(**{name: value}, repository=repository)  # type: ignore[arg-type]
        return _CHECKS[name](value) if name in _CHECKS else ""
    except RunbookError as error:
        return str(error)


def advice(name: str, value: str | bool) -> str:
    """What a person should know who chose this; it stops nothing."""
    return _LTS if (name, value) == ("image_type", "lts") else ""


def _decided(name: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        entries(value, name, DECIDED[name], Redactor(os.environ))
        return ""

    return check


def _run_id(value: str) -> str:
    if not value.strip() or re.fullmatch(
        r"[0-9]{1,18}|https?://\S{1,300}/actions/runs/[0-9]{1,18}(?![0-9])\S{0,300}", value.strip()
    ):
        return ""
    return f"{value!r} is no number and no address of a CI run. Choose one, or leave it empty for the newest."


def _path(value: str) -> str:
    try:
        Path(value).expanduser()
    except RuntimeError:
        return f"{value!r} begins with the home of a person whom this machine does not know."
    return ""


_CHECKS: Mapping[str, Callable[[str], str]] = {
    **{name: _decided(name) for name in DECIDED},
    "run_id": _run_id,
    **dict.fromkeys(("repo", "audit", "pins"), _path),
}


def decided(chosen: Mapping[str, str]) -> str:
    """The parameter that names these things with their reasons; a semicolon would end an entry, so it is a comma."""
    return "; ".join(f"{name}: {' '.join(reason.replace(';', ',').split())}" for name, reason in chosen.items())


def unreasoned(chosen: Mapping[str, str]) -> str:
    """What to say where something is chosen without a reason; empty if nothing is."""
    lacking = [name for name, reason in chosen.items() if not reason.replace(";", " ").split()]
    return f"Say why: {', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no reason yet." if lacking else ""
