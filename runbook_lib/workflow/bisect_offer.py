"""The offer to search for the image change behind a test's failure, and the result of an earlier search."""

from pathlib import Path

from runbook_lib import notebooks
from runbook_lib.pins.check import check_pins
from runbook_lib.records.chain import recorded_inputs
from runbook_lib.runner import command_line
from runbook_lib.workflow.bump_branch import BumpBranch

#: The beginning of an offer, before its command.
PREFIX = "To find the change in the image: "


def offer(branch: BumpBranch, test: str, metric: str = "exit") -> str:
    """Return a sentence with the command that previews a search; empty if the base branch does not name an older tag.

    ``test`` is ``model/case@platform``.
    """
    bump, sites = branch.bump, branch.bump.repository.sites
    verdicts = check_pins(branch.checkout.read(sites.pin_paths, branch.base_commit), sites)
    tags = {pin.image.rpartition(":")[2] for pin in verdicts if pin.role == f"lockstep {bump.image_type}"}
    if bump.tag is None or len(tags) != 1 or tags == {str(bump.tag)}:
        return ""
    command = command_line.command(
        notebooks.BISECT_IMAGE, bump, good=tags.pop(), test=test, metric=metric, where="slurm", apply=False
    )
    return f"{PREFIX}{command} -r site SITE.yaml -r results FOLDER"


def result_of(records: Path | None, test: str) -> str:
    """Return the result of the newest completed search for a test in the bump's records; empty if there is none."""
    for inputs in recorded_inputs(records, notebooks.BISECT_IMAGE):
        if inputs.get("test") == test and inputs.get("bisect_result"):
            return str(inputs["bisect_result"])
    return ""
