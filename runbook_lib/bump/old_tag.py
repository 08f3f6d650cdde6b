"""Lines outside the pins that still name the tag from which a bump moves."""

from collections.abc import Sequence
from itertools import chain

from runbook_lib.git.command import GitFailed, git
from runbook_lib.pins.check import PinVerdict, check_pins, lockstep_tags
from runbook_lib.text.lists import shorten
from runbook_lib.world.bump_branch import BumpBranch


def find(branch: BumpBranch, pins: Sequence[PinVerdict]) -> dict[str, str]:
    """Return place → text of each line that names the old tag where the bump's branch starts, except for ``pins``.

    What a partial clone lacks is not fetched.  Raises GitFailed if git cannot search.
    """
    sites, checkout = branch.bump.repository.sites, branch.checkout
    before = lockstep_tags(check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites))
    tags = set(chain(*before.values())) - set(chain(*lockstep_tags(pins).values()))
    if not tags:
        return {}
    options = ["-n", "-I", "-z", "--fixed-strings", "--full-name", "--no-recurse-submodules", "--no-color"]
    try:
        listed = git(checkout.path, "grep", *options, *(f"-e{tag}" for tag in tags), branch.start, "--", offline=True)
    except GitFailed as error:
        if error.status == 1:  # no line names it
            return {}
        raise
    known = {(pin.path, pin.line) for pin in pins}
    lines = {}
    for line in listed.split("\n"):
        path, _, rest = line.removeprefix(f"{branch.start}:").partition("\0")
        number, _, text = rest.partition("\0")
        if number.isdecimal() and (path, int(number)) not in known:  # a file's name may hold a line feed
            lines[f"{path}:{number}"] = shorten(text.strip(), 120)
    return lines
