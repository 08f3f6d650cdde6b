"""The GitLab branch that a bump's branch is pushed to.  Pure.

Sources: Megatron-LM's ``tools/trigger_internal_ci.py`` (the destination); GitLab's documentation of protected branches
(``*`` in their names).
"""

import glob
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from runbook_lib.errors import Refused

#: The prefix of pull-request branches on GitLab; branches named with a number are copy-pr-bot's mirrors.
PREFIX = "pull-request/"
#: Branches that many people work on: never a source or a destination.
SHARED = ("main", "master", "dev", "release*", "core_*", "ci-*", "HEAD")


def destination(branch: str) -> str:
    """Return a branch's name on GitLab: ``pull-request/<branch>``.  Raises Refused if it must not be pushed."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/+#=@-]{0,199}", branch) or re.search(
        r"\.\.|//|/\.|@\{|\.lock(?:/|$)|[./]$", branch
    ):
        raise Refused(f"{branch!r} is not a valid branch name, so nothing is pushed to GitLab.")
    reason, shared = "", [pattern for pattern in SHARED if matches(pattern, branch)]
    if shared:
        reason = f"Branch {branch} is shared by many people ({shared[0]}), so it is not pushed to GitLab as a bump."
    elif branch.isdigit() or branch.startswith((PREFIX, "refs/")):
        reason = f"{PREFIX}{branch} would be mistaken for the mirror of a pull request, whose name is a number."
    if reason:
        raise Refused(f"{reason} Run this on the bump's own branch.")
    return f"{PREFIX}{branch}"


def require_replaceable(name: str, protected: Iterable[str], default_branch: str = "") -> None:
    """Raise Refused unless a push may replace this branch on GitLab.

    ``protected`` are the names of GitLab's protected branches, ``default_branch`` is the project's.
    """
    branch = name.removeprefix(PREFIX)
    if branch == name or name == default_branch or destination(branch) != name:
        raise Refused(f"{name} does not begin with {PREFIX}, so nothing is pushed to it.")
    for pattern in protected:
        if matches(pattern, name):
            advice = "Ask a maintainer of the project where the branches of pull requests belong."
            raise Refused(f"GitLab protects {name} (by {pattern!r}), so nothing is pushed to it. {advice}")


def matches(pattern: str, name: str) -> bool:
    """Return True if a protected branch's ``pattern`` matches; ``*`` is any text, no other character is special."""
    return fnmatchcase(name, glob.escape(pattern).replace("[*]", "*"))
