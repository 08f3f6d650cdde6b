"""Acceptance of held-back golden files, and of groups, by people's decisions on exactly these values."""

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial

from runbook_lib.decisions import Decision, Decisions, Seen
from runbook_lib.errors import Refused
from runbook_lib.golden.judge import Verdicts
from runbook_lib.recipes.file_names import GoldenFileName, is_baseline

#: The verdicts that a person may overrule.
_ACCEPTABLE = ("held back", "ambiguous")
#: Return the decision on a file or group for the values with this digest; None without one.
Decide = Callable[[str, str], Decision | None]


def decide_by(decisions: Decisions, run: int = 0, attempt: int = 0) -> Decide:
    """Return how these decisions apply to the values of a run."""
    return partial(_decided, decisions, run, attempt)


def _decided(decisions: Decisions, run: int, attempt: int, subject: str, values: str) -> Decision | None:
    return decisions.decided("accept", subject, Seen(values, run, attempt))


def held_back(verdicts: Verdicts, values: Callable[[str], str]) -> Iterator[tuple[str, str, str]]:
    """Yield each group and file that a person may accept: its name, its danger, and the digest of its values."""
    for group in verdicts.groups:
        if not group.accepted:
            yield group.id, verdicts.danger(group), group.digest
    for file in verdicts.judgements:
        if file.verdict in _ACCEPTABLE:
            yield file.file, file.danger, values(file.file)


def accept(verdicts: Verdicts, reasons: Mapping[str, str]) -> Verdicts:
    """Return the verdicts with the files and groups of these names accepted, each for a reason."""
    judgements = tuple(
        replace(file, verdict="refresh", accepted=reasons[file.file])
        if file.verdict in _ACCEPTABLE and file.file in reasons
        else file
        for file in verdicts.judgements
    )
    groups = tuple(replace(group, accepted=reasons.get(group.id, "")) for group in verdicts.groups)
    return replace(verdicts, judgements=judgements, groups=groups)


def require_met(decisions: Decisions, verdicts: Verdicts) -> None:
    """Raise Refused for an entry written by hand that names a refused file, or a group that is not held back."""
    groups = [group.id for group in verdicts.groups]
    refused = {file.file: file for file in verdicts.judgements if file.verdict == "refused"}
    for entry in decisions.of("accept"):
        if entry.seen is not None:
            continue
        if file := refused.get(entry.subject):
            why = "; ".join(reason.sentence for reason in file.reasons)
            raise Refused(f"{entry.subject} cannot be accepted: {why}.")
        if not entry.subject.endswith(".json") and entry.subject not in groups:
            hint = f"Held back: {', '.join(groups)}." if groups else "No group is held back."
            raise Refused(f"Line {entry.line} of {decisions.file} accepts {entry.subject}, which is no group. {hint}")


def require_known(decisions: Decisions, known: Collection[str]) -> None:
    """Raise Refused for an entry written by hand that names no golden file of a test."""
    tests = {name.rpartition("/")[0] for name in known}
    for entry in decisions.of("accept"):
        test, _, name = entry.subject.rpartition("/")
        if entry.seen is not None or not name.endswith(".json"):  # groups are known only from the values of a run
            continue
        if test not in tests or (GoldenFileName.parse(name) is None and not is_baseline(entry.subject)):
            near = difflib.get_close_matches(entry.subject, known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]}?" if near else ""
            place = f"Line {entry.line} of {decisions.file} accepts {entry.subject!r}"
            raise Refused(f"{place}, which is not a golden file of a test.{hint} Nothing was changed.")
