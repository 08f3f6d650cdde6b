"""Which pull request is a bump's, and the markers in a description that say so.

Our parts of a description are between markers, invisible on GitHub.  An update replaces only the text between them.
"""

import re
from typing import Literal

from runbook_lib.errors import Refused
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import LTS
from runbook_lib.world.git.checkout import Checkout, slug_of
from runbook_lib.world.github.models import Pull
from runbook_lib.world.ports import Forge

_BEGIN = re.compile(r"<!-- base-image-runbook:begin(?: (?P<bump>[^\s<>]+))? -->")
#: Our parts of a description, in the order in which they are created: the pins, the golden values, the quarantined
#: tests.
Section = Literal["", "golden-values", "broken-tests"]


def name_of(bump: Bump) -> str:
    """Return the name of a bump for use in a marker."""
    return f"{bump.base}/{bump.image_type}-{bump.target or 'none'}"


def named_in(body: str) -> str:
    """Return the bump named by the marker in a body; empty without a marker."""
    match = _BEGIN.search(body)
    return (match["bump"] or "") if match else ""


def marked(text: str, bump: Bump, section: Section) -> str:
    """Return a part enclosed in its section's markers."""
    name = f"base-image-runbook:{section}{':' * bool(section)}"
    return f"<!-- {name}begin {name_of(bump)} -->\n{text.strip()}\n<!-- {name}end -->"


def head_of(checkout: Checkout, bump: Bump) -> str:
    """Return the pull request's head as ``owner:branch``, with the fork's owner if the remote is a fork."""
    repository = checkout.repository()
    url = checkout.remote_url(bump.remote, push=True) or ""
    # The folders of a remote on this machine do not name owners.
    local = re.match(r"(?:file:|[./~])", url) is not None and bump.remote == checkout.base_remote()
    slug = repository if local or not url else slug_of(url)
    return f"{slug.split('/')[0]}:{bump.branch}"


def is_mine(pull: Pull, head: str) -> bool:
    """Return whether a pull request comes from this branch.  Owner names on GitHub are case-insensitive."""
    owner, _, branch = head.partition(":")
    return (pull.head_owner.lower(), pull.head_ref) == (owner.lower(), branch)


def require_mine(pull: Pull, head: str) -> None:
    """Raise Refused if the pull request comes from somebody else's branch."""
    if not is_mine(pull, head):
        raise Refused(
            f"#{pull.number} is {pull.author}'s, on {pull.head_owner}:{pull.head_ref}: only they should "
            f"commit to it. Nothing was changed. Notify them, or open a pull request against that branch: {pull.url}"
        )


def find_pull(github: Forge, bump: Bump, head: str) -> Pull | None:
    """Return the open pull request for the bump: our own, else the oldest by somebody who may write to the repository.

    Anybody can open one with our branch name, title or marker, so those of strangers do not count.
    """
    if own := github.pulls(head=head, base=bump.base):
        return own[-1]
    return next((pull for pull in open_for(github, bump) if pull.author and github.may_write(pull.author)), None)


def open_for(github: Forge, bump: Bump) -> tuple[Pull, ...]:
    """Return the open pull requests that look like the bump, whoever opened them, oldest first."""
    candidates = (pull for pull in github.pulls(base=bump.base) if is_for(pull, bump))
    return tuple(sorted(candidates, key=lambda pull: pull.number))


def is_for(pull: Pull, bump: Bump) -> bool:
    """Return whether a pull request into the same base is for this bump, judged by its marker, branch or title."""
    if name := named_in(pull.body):
        return name == name_of(bump)
    if pull.head_ref.startswith("bump/"):
        return pull.head_ref == bump.branch
    same_title = pull.title.strip().lower() == bump.title.lower()
    return same_title and (LTS in pull.labels) == (bump.image_type == "lts")
