"""A smoke check of an image: the versions that its own Python imports, compared with the registry's claims.  Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from runbook_lib.errors import CannotTell
from runbook_lib.images.compare import version_numbers

#: Seconds for the imports, because a new image is read from disk for the first time.
LIMIT = 600.0

#: Marks the answer among the image's other output.
_MARK = "runbook-smoke "
#: Components that must come from the base image.  A Dockerfile, or its lock, may replace the others on purpose.
_FROM_BASE = ("Python", "PyTorch", "CUDA")
_CHECKED = (*_FROM_BASE, "cuDNN", "NCCL", "Transformer Engine")

#: The command to run in the image, with the first Python of its PATH.
COMMAND = ("python3", "-c", (files("runbook_lib.compute") / "smoke_program.txt").read_text("utf-8"))


@dataclass(frozen=True)
class CheckedVersion:
    """A component's version in the registry's config and in the image, empty if there is none.

    ``problem`` is what the image's Python reported about it.
    """

    name: str
    claimed: str
    imported: str
    problem: str = ""

    @property
    def verdict(self) -> str:
        """The result of the comparison."""
        if not self.imported:
            return "not found"
        if not self.claimed:
            return "not claimed"
        return "as claimed" if same_version(self.claimed, self.imported) else "another version"

    @property
    def wrong(self) -> bool:
        """True if the image's version is wrong."""
        return self.name in _FROM_BASE and self.verdict in ("another version", "not found")

    @property
    def difference(self) -> str:
        """The difference, without a full stop."""
        return f"{self.name} {self.imported or 'is missing'} ({self.claimed or 'no version'} is claimed)"

    @property
    def row(self) -> dict[str, str]:
        """The version as a row of a table."""
        note = self.problem
        if self.verdict == "another version" and not self.wrong:
            note = f"The Dockerfile, or the lock, may install a different version on purpose. {note}".strip()
        return {
            "component": self.name, "claimed by the registry": self.claimed or "not named",
            "found in the image": self.imported or "none", "verdict": self.verdict, "note": note,
        }  # fmt: skip


Versions = tuple[CheckedVersion, ...]


def judge(claims: Mapping[str, str], output: str) -> Versions:
    """Compare the output of COMMAND in the image with ``claims`` as ``compare.versions`` reads them.

    Raises CannotTell if the output has no answer.
    """
    lines = [line for line in output.splitlines() if line.startswith(_MARK)] or [""]
    try:
        answer = json.loads(lines[-1].removeprefix(_MARK))
        versions = {str(name): str(value) for name, value in answer["found"].items()}
        problems = {str(name): f"{value}." for name, value in answer["problems"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        last = output.strip().splitlines()[-1:] or ["nothing"]
        raise CannotTell(
            f"The smoke check's program printed no result in the image; its last line is {last[0]!r}."
        ) from error
    return tuple(
        CheckedVersion(name, claims.get(name, ""), versions.get(name, ""), problems.get(name, "")) for name in _CHECKED
    )


def of_base(versions: Versions, verdict: str) -> str:
    """Return the names of the components of the base image with a verdict, with commas; empty if there are none."""
    return ", ".join(version.name for version in versions if version.name in _FROM_BASE and version.verdict == verdict)


def same_version(claimed: str, imported: str) -> bool:
    """Return True if two versions agree in the parts that both have.

    CUDA is claimed as ``13.2.0.046``, but PyTorch reports ``13.2``; PyTorch is claimed as ``2.12.0a0+0291f96`` and
    reports ``2.12.0a0+0291f96.nv26.4``.
    """
    claimed_numbers, imported_numbers = version_numbers(claimed), version_numbers(imported)
    count = min(len(claimed_numbers), len(imported_numbers))
    claimed_build, imported_build = claimed.partition("+")[2], imported.partition("+")[2]
    same_build = claimed_build.startswith(imported_build) or imported_build.startswith(claimed_build)
    return count > 0 and claimed_numbers[:count] == imported_numbers[:count] and same_build
