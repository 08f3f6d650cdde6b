"""Puts a broken test out of CI's way where a repository keeps a launch script for each test, and back again.  Pure.

In Megatron-Bridge the folder of a script tells whether CI waits for it: below ``launch_scripts/<platform>`` those in
``active`` gate, those in ``flaky`` run when somebody asks for all tests, and hold nothing back (its
``.github/workflows/cicd-main.yml``).  Up to 2026-04 there were no folders for platforms.  A script is moved, its
content and mode untouched; nothing in it says why, so the commit and the pull request must, with the issue.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

from runbook_lib.errors import Refused


@dataclass(frozen=True)
class LaunchScripts:
    """The folders of a repository's launch scripts; the names of the two folders are the last but one of a path."""

    folder: str
    gating: str
    idle: str

    def find(self, known: Collection[str]) -> tuple["Script", ...]:
        """The scripts among the repository's paths, in order of path."""
        form = re.compile(
            rf"{re.escape(self.folder)}/(?:(?P<platform>[\w-]+)/)?"
            rf"(?P<state>{re.escape(self.gating)}|{re.escape(self.idle)})/(?P<case>[\w.+-]+)\.sh"
        )
        matches = [match for path in sorted(known) if (match := form.fullmatch(path))]
        return tuple(Script(it[0], it["case"], it["platform"] or "", it["state"] == self.gating) for it in matches)

    def path(self, script: "Script", gating: bool) -> str:
        """Return the script's path when it gates, or when it does not."""
        parts = [self.folder, script.platform, self.gating if gating else self.idle, f"{script.case}.sh"]
        return "/".join(filter(None, parts))


@dataclass(frozen=True)
class Script:
    """A launch script; ``platform`` is empty in a layout that has none."""

    path: str
    case: str
    platform: str
    gating: bool


@dataclass(frozen=True)
class Move:
    """A file that changes its path and nothing else; paths are relative to the repository's root."""

    old: str
    new: str


MEGATRON_BRIDGE = LaunchScripts("tests/functional_tests/launch_scripts", "active", "flaky")


def mark(known: Collection[str], sites: LaunchScripts, case: str, platform: str = "") -> Move | None:
    """Move a test's script out of the way; None where it is so already.  ``known`` are the repository's paths.

    The case is the script's name, with or without ``.sh``.  The platform may be left out where the test has one.
    Raises Refused for a test without a script, with several that fit, and for one that stands in both folders.
    """
    return _move(known, sites, case, platform, gating=False)


def unmark(known: Collection[str], sites: LaunchScripts, case: str, platform: str = "") -> Move | None:
    """Let a test gate again: the way back of ``mark``, with the same errors."""
    return _move(known, sites, case, platform, gating=True)


def _move(known: Collection[str], sites: LaunchScripts, case: str, platform: str, *, gating: bool) -> Move | None:
    name, scripts = case.removesuffix(".sh"), sites.find(known)
    named = [it for it in scripts if it.case == name]
    mine = [it for it in named if platform in ("", it.platform)]
    if not mine:
        near = get_close_matches(name, {it.case for it in scripts}, 3)
        have = f"It has one for {', '.join(sorted({it.platform or 'all platforms' for it in named}))}." if named else ""
        hint = have or f"Did you mean {' or '.join(near) or 'another'}?"
        where = f"{name}@{platform}" if platform else name
        raise Refused(f"{sites.folder} has no launch script {where}. {hint} Nothing was changed.")
    if len(mine) > 1:
        paths = ", ".join(it.path for it in mine)
        advice = "Say which platform." if len({it.platform for it in mine}) > 1 else "Remove one of them first."
        raise Refused(f"{name} has several launch scripts: {paths}. {advice} Nothing was changed.")
    (script,) = mine
    return None if script.gating == gating else Move(script.path, sites.path(script, gating))
