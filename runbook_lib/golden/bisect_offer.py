"""The offer to search for the image change behind a test's failure, and the result of an earlier search."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runbook_lib import notebooks
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import check_pins
from runbook_lib.record.archive import inputs_of
from runbook_lib.world import commands
from runbook_lib.world.bump_branch import BumpBranch

#: The beginning of an offer, before its command.
PREFIX = "To find the change in the image: "


@dataclass(frozen=True)
class ImageSearches:
    """The tag on the base branch, from which a search would start, and the results of earlier searches by test.

    ``tag`` is empty if there is nothing to search.
    """

    tag: str = ""
    results: Mapping[str, str] = field(default_factory=dict)

    def offer(self, bump: Bump, test: str, metric: str = "exit") -> str:
        """Return the command that previews a search; empty if there is nothing to search.

        ``test`` is ``model/case@platform``.
        """
        if not self.tag:
            return ""
        command = commands.command(
            notebooks.BISECT_IMAGE, bump, good=self.tag, test=test, metric=metric, mode="preview"
        )
        return f"{command} -r site SITE.yaml"


def look_searches(branch: BumpBranch, records: Path | None) -> ImageSearches:
    """Read the base branch's tag, and the results of completed searches from a bump's records."""
    bump, sites = branch.bump, branch.bump.repository.sites
    tags: set[str] = set()
    if bump.tag is not None:
        verdicts = check_pins(branch.checkout.read(sites.pin_paths, branch.base_commit), sites)
        tags = {pin.image.rpartition(":")[2] for pin in verdicts if pin.role == f"lockstep {bump.image_type}"}
    is_older = len(tags) == 1 and tags != {str(bump.tag)}
    return ImageSearches(tags.pop() if is_older else "", completed(records))


def completed(records: Path | None) -> dict[str, str]:
    """Return the result of each test's newest completed search, by test."""
    results: dict[str, str] = {}
    for inputs in inputs_of(records, notebooks.BISECT_IMAGE):  # the newest first
        if inputs.get("bisect_result"):
            results.setdefault(str(inputs.get("test")), str(inputs["bisect_result"]))
    return results
