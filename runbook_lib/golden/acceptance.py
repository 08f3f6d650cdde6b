"""Acceptance of held-back golden files, by name or pattern, for all or some metrics, and of groups."""

import difflib
import fnmatch
import math
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from runbook_lib.errors import Refused
from runbook_lib.golden.form import Judgement
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.shifts import SHIFT_LIMIT, Group
from runbook_lib.recipes.file_names import GoldenFileName
from runbook_lib.text.decisions import confirmed, confirms, entries
from runbook_lib.text.redact import Redactor

#: The verdicts that a person may overrule.
_ACCEPTABLE = ("held back", "ambiguous")
_GROUP_METRICS = ("throughput", "lm-loss", "form")  # beside times and memory


@dataclass(frozen=True)
class Acceptance:
    """One entry of ``accept``, ``name [metric, metric]: reason``; name and metrics may contain ``*`` and ``?``.

    A group must be named by its full ID.  ``ratio`` is the size of the shift that was accepted earlier.
    """

    entry: str
    name: str
    metrics: tuple[str, ...]
    reason: str
    ratio: float | None = None

    @classmethod
    def of(cls, entry: str, reason: str) -> "Acceptance":
        """Parse the part before the colon."""
        match = re.fullmatch(r"(\S+)\s+\[([^\[\]]*)\]", entry)
        if match is None:
            return cls(entry, entry, (), reason)
        metrics = tuple(filter(None, map(str.strip, match[2].split(","))))
        if not metrics:
            raise Refused(
                f"accept has the entry {entry!r} with empty brackets. Leave out the brackets to accept all metrics."
            )
        return cls(entry, match[1], metrics, reason)

    @property
    def is_group(self) -> bool:
        """Return True if the name refers to a group."""
        *folders, metric = self.name.split("/")
        if len(folders) > 2 or not re.fullmatch(r"[\w./-]+", self.name) or metric.endswith(".json"):
            return False
        return "time" in metric or metric.startswith("mem-") or metric in _GROUP_METRICS

    @property
    def is_pattern(self) -> bool:
        """Return True if the name is a pattern for several files."""
        return not {"*", "?"}.isdisjoint(self.name)

    def names(self, file: str) -> bool:
        """Return True if the name refers to this file."""
        return _matches(file, self.name)

    def covers_group(self, group: Group) -> bool:
        """Return True if a group is accepted by its ID, up to the shift of an earlier acceptance."""
        if self.metrics or self.name != group.id:
            return False
        if self.ratio is None or group.ratio is None:
            return True
        before, now = math.log(max(self.ratio, 0.01)), math.log(max(group.ratio, 0.01))
        return before * now >= 0 and abs(now) <= abs(before) + math.log1p(SHIFT_LIMIT)

    def covers(self, file: str, metric: str) -> bool:
        """Return True if the entry accepts a reason about this metric of a file."""
        return self.names(file) and (not self.metrics or any(_matches(metric, pattern) for pattern in self.metrics))


def _matches(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def parse(text: str, redactor: Redactor) -> tuple[Acceptance, ...]:
    """Parse ``file: reason; pattern [metric]: reason``.  Raises Refused for a malformed entry."""
    reasons = entries(text, "accept", "file: reason", redactor)
    return tuple(Acceptance.of(entry, reason) for entry, reason in reasons.items())


def apply(judgement: Judgement, acceptances: Iterable[Acceptance], *, committed: bool = False) -> Judgement:
    """Change the verdict on a held-back file to refresh if all of its reasons are accepted, and its danger is named.

    ``committed``: a commit of the bump accepted it, for which the danger had to be named.
    """
    used = _used(judgement, acceptances)
    if not used:
        return judgement
    reasons = "; ".join(dict.fromkeys(acceptance.reason for acceptance in used.values()))
    if not committed and not _is_confirmed(judgement, used):
        entry = f"{judgement.file}: {confirmed(reasons, judgement.danger)}"
        note = f"not accepted, because the reason does not name the {judgement.danger}; write “{entry}”"
        return replace(judgement, notes=(*judgement.notes, note))
    metrics = [reason.metric for reason in judgement.reasons] or [""]
    if not used.keys() >= set(metrics):
        note = f"accepted for {', '.join(sorted(used))} only: {reasons}"
        return replace(judgement, notes=(*judgement.notes, note))
    limited = any(acceptance.metrics for acceptance in used.values())
    accepted_metrics = tuple(sorted(used)) if limited else ()
    return replace(judgement, verdict="refresh", accepted=reasons, accepted_metrics=accepted_metrics)


def _used(judgement: Judgement, acceptances: Iterable[Acceptance]) -> dict[str, Acceptance]:
    """Return the first acceptance of each reason of a held-back file, by metric."""
    used: dict[str, Acceptance] = {}
    if judgement.verdict in _ACCEPTABLE:
        metrics = [reason.metric for reason in judgement.reasons] or [""]
        for acceptance in acceptances:
            for metric in metrics:
                if acceptance.covers(judgement.file, metric):
                    used.setdefault(metric, acceptance)
    return used


def _is_confirmed(judgement: Judgement, used: Mapping[str, Acceptance]) -> bool:
    return any(confirms(acceptance.reason, judgement.danger) for acceptance in used.values())


def apply_all(
    verdicts: Verdicts, acceptances: Sequence[Acceptance], earlier: Sequence[Acceptance] = (), *,
    committed: bool = False,
) -> Verdicts:  # fmt: skip
    """Apply all acceptances to the files; groups are also accepted by those of ``earlier`` refreshes.

    A reason must name the danger, unless it comes from a commit of the bump (``committed``).
    """
    groups = []
    for group in verdicts.groups:
        danger, reasons = verdicts.danger(group), []
        for entry in (*acceptances, *earlier):
            if entry.covers_group(group) and (committed or confirms(entry.reason, danger)):
                reasons.append(entry.reason)
        groups.append(replace(group, accepted=reasons[0]) if reasons else group)
    judgements = tuple(apply(judgement, acceptances, committed=committed) for judgement in verdicts.judgements)
    return replace(verdicts, judgements=judgements, groups=tuple(groups))


def unconfirmed(acceptances: Sequence[Acceptance], verdicts: Verdicts) -> dict[str, str]:
    """Return by name the reason that would accept a dangerous file or group whose given reason does not.

    ``verdicts`` are those to which the acceptances have been applied.
    """
    result = {}
    for group in verdicts.groups:
        for entry in acceptances:
            if entry.covers_group(group) and not group.accepted:
                result[group.id] = confirmed(entry.reason, verdicts.danger(group))
    for judgement in verdicts.judgements:
        used = _used(judgement, acceptances)
        if used and not _is_confirmed(judgement, used):
            reasons = dict.fromkeys(acceptance.reason for acceptance in used.values())
            result[judgement.file] = confirmed(", ".join(reasons), judgement.danger)
    return result


def covered(
    acceptances: Iterable[Acceptance], verdicts: Verdicts, without: Container[str] = ()
) -> dict[str, list[str]]:
    """Return for each entry the files and metrics, and the groups, that it would accept, ``without`` some by name."""
    held_back = [judgement for judgement in verdicts.judgements if judgement.verdict in _ACCEPTABLE]
    result: dict[str, list[str]] = {}
    for acceptance in acceptances:
        names = result.setdefault(acceptance.entry, [])
        for group in verdicts.groups:
            if acceptance.covers_group(group) and group.id not in without:
                names.append(group.sentence)
        for judgement in held_back:
            if judgement.file in without:
                continue
            metrics = [reason.metric for reason in judgement.reasons] or [""]
            accepted = [metric for metric in metrics if acceptance.covers(judgement.file, metric)]
            if accepted:
                names.append(_with_metrics(judgement.file, accepted))
    return result


def require_coverage(acceptances: Sequence[Acceptance], verdicts: Verdicts, earlier: Iterable[str] = ()) -> None:
    """Raise Refused for a refused file, and for a pattern that covers nothing, now or ``earlier``.

    A named file that is not (or no longer) held back is ignored, so that a second run may repeat the text.
    """
    names = covered(acceptances, verdicts)
    earlier = list(earlier)
    for acceptance in acceptances:
        is_held_back = False
        for judgement in verdicts.judgements:
            if acceptance.names(judgement.file):
                is_held_back |= judgement.verdict in _ACCEPTABLE
                if judgement.verdict == "refused" and not acceptance.is_pattern:
                    why = "; ".join(reason.sentence for reason in judgement.reasons)
                    raise Refused(f"{judgement.file} cannot be accepted: {why}.")
        if names[acceptance.entry] or any(map(acceptance.names, earlier)):
            continue
        if acceptance.is_pattern or acceptance.is_group or is_held_back:
            near = _near(acceptance, verdicts)
            raise Refused(f"accept names {acceptance.entry!r}, which matches nothing that is held back. {near}")


def _near(acceptance: Acceptance, verdicts: Verdicts) -> str:
    """Return the held-back groups, files and metrics that are most similar to the entry."""
    stopped = [group.id for group in verdicts.groups]
    for judgement in verdicts.judgements:
        if judgement.verdict in _ACCEPTABLE:
            stopped.append(_with_metrics(judgement.file, [reason.metric for reason in judgement.reasons]))
    near = difflib.get_close_matches(acceptance.entry, stopped, n=5, cutoff=0)
    return f"Held back: {', '.join(near)}." if near else "Nothing is held back."


def _with_metrics(file: str, metrics: Iterable[str]) -> str:
    listed = ", ".join(sorted(set(filter(None, metrics))))
    return f"{file} [{listed}]" if listed else file


def require_known(acceptances: Iterable[Acceptance], known: Collection[str]) -> None:
    """Raise Refused for a pattern or name that matches none of the ``known`` golden files."""
    tests = {name.rpartition("/")[0] for name in known}
    for acceptance in acceptances:
        name = acceptance.name
        if acceptance.is_group:  # groups are known only from the values of a run
            continue
        if acceptance.is_pattern:
            exists = any(map(acceptance.names, known))
        else:
            exists = GoldenFileName.parse(name.rpartition("/")[2]) is not None and name.rpartition("/")[0] in tests
        if not exists:
            near = difflib.get_close_matches(name, known, n=3 if acceptance.is_pattern else 1, cutoff=0.5)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            kind = "matches no golden file" if acceptance.is_pattern else "is not a golden file of a test"
            raise Refused(f"accept names {name!r}, which {kind}.{hint} Nothing was changed.")
