"""The golden values that a bump's branch refreshes, and those that a person has accepted."""

import contextlib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from runbook_lib.golden import acceptance, history
from runbook_lib.golden.acceptance import Acceptance
from runbook_lib.golden.diff import LINT
from runbook_lib.golden.file_names import FOLDER, GoldenFileName, config_path
from runbook_lib.golden.form import STOPPED, Judgement, examine
from runbook_lib.golden.judge import Verdicts, judge_all, without_times
from runbook_lib.records import attachments
from runbook_lib.records.chain import recorded_inputs
from runbook_lib.text.edits import Edit
from runbook_lib.workflow import branch_history
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.run_choice import ChosenRun

#: The line in a commit message after which accepted files and groups are listed.
ACCEPTED = "Accepted although held back:"
_NO_VERDICTS = Verdicts()
#: The end of the line in a commit message that names the runners.
_RUNNERS = re.compile(r", runners ([^\n]{1,500})\.$", re.MULTILINE)
_NO_RUNNERS: Mapping[str, str] = {}


def examine_all(
    texts: Mapping[str, str | None], new: Mapping[str, str | None], *, lint: bool, elsewhere: Collection[str] = ()
) -> list[Judgement]:
    """Examine golden files, by name, against the old ones and the configurations in ``texts``, by path.

    Times are not compared for the paths in ``elsewhere``, which were measured on other runners.
    """
    judgements = []
    for name, text in new.items():
        path = f"{FOLDER}/{name}"
        judgement = examine(name, texts[path], text, texts[config_path(path)], lint=lint)
        judgements.append(without_times(judgement) if path in elsewhere else judgement)
    return judgements


def changed_since_fork(
    branch: BumpBranch, records: Path | None, past: history.GoldenHistory, new: Verdicts = _NO_VERDICTS,
    edits: tuple[Edit, ...] = (), runners: Mapping[str, str] = _NO_RUNNERS,
) -> Verdicts:  # fmt: skip
    """Judge the golden files that the branch, including ``edits``, has changed since it diverged from its base.

    A run's verdicts ``new`` replace these for files that they stop or leave to a group.  ``records`` is the bump's
    folder in the archive, ``runners`` maps paths to the runners that measured the values in ``edits``.
    """
    checkout, fork = branch.checkout, branch.fork
    listed = checkout.git("diff", "--name-only", "--no-renames", "-z", fork, branch.start, "--", FOLDER).split("\0")
    after = {edit.path: edit.after for edit in edits}
    paths = sorted({path for path in listed if GoldenFileName.of_path(path)} | after.keys())
    old, current = checkout.read(paths, fork), branch.texts([*paths, *map(config_path, paths), LINT])
    acceptances = list(accepted_earlier(branch, records))
    for file in new.judgements:
        if file.accepted:
            acceptances.append(Acceptance(file.file, file.file, file.accepted_metrics, file.accepted))
    refreshed = "; ".join(_RUNNERS.findall("\n".join(_own_messages(branch, records))))
    elsewhere = measured_elsewhere(branch, branch.fork, dict.fromkeys(paths, refreshed) | dict(runners))
    written_texts = {path.removeprefix(f"{FOLDER}/"): after.get(path, current[path]) for path in paths}
    examined = examine_all({**current, **old}, written_texts, lint=current[LINT] is not None, elsewhere=elsewhere)
    written = acceptance.apply_all(judge_all(examined, past), acceptances, committed=True)
    stopped = {file.file: file for file in new.judgements if file.verdict in STOPPED or file.file in new.waiting}
    judgements = [stopped.pop(file.file, file) for file in written.judgements]
    groups = {group.id: group for group in (*written.groups, *new.groups)}
    return replace(written, judgements=(*judgements, *stopped.values()), groups=tuple(groups.values()))


def read_history(branch: BumpBranch) -> history.GoldenHistory:
    """Read the history of the golden files up to the commit where the branch diverged from its base."""
    return history.read(branch.checkout, branch.fork, history.default_cache())


def attempt_rows(verdicts: Verdicts, run: ChosenRun) -> list[dict[str, object]]:
    """Return the record's rows of ambiguous files, to be judged together with another attempt of the run."""
    rows: list[dict[str, object]] = []
    for judgement in verdicts.judgements:
        if judgement.verdict == "ambiguous":
            row = {"run": run.number, "attempt": run.attempt, "file": judgement.file}
            values = dict(judgement.measured) | {metric: loss.excess for metric, loss in judgement.losses.items()}
            rows += [row | {"metric": metric, "value": repr(value)} for metric, value in values.items()]
    return rows


def read_attempts(run: ChosenRun) -> dict[tuple[str, str], list[float]]:
    """Return the values from a run's earlier attempts for ambiguous files, from the bump's records."""
    records, values = run.pull_request.records, dict[tuple[str, str], dict[str, float]]()
    for table in sorted(records.glob("*/attempts.csv")) if records else ():
        for row in attachments.rows(table):
            with contextlib.suppress(ValueError):
                value, attempt = float(row.get("value", "")), row.get("attempt", "")
                if row.get("run") == str(run.number) and attempt != str(run.attempt) and math.isfinite(value):
                    values.setdefault((row.get("file", ""), row.get("metric", "")), {})[attempt] = value
    return {key: list(by_attempt.values()) for key, by_attempt in values.items()}


def image_digest(records: Path | None) -> str:
    """Return the digest of the bump's image from the newest record that has it; empty if none does."""
    return next((str(inputs["digest"]) for inputs in recorded_inputs(records) if inputs.get("digest")), "")


def accepted_earlier(branch: BumpBranch, records: Path | None) -> tuple[Acceptance, ...]:
    """Return the files and groups that earlier refreshes of this bump accepted, with reasons, from commit messages.

    Only commits that the runbook made or a person confirmed count: anybody could write such a message.
    """
    acceptances: dict[str, Acceptance] = {}
    for message in _own_messages(branch, records):
        listed = message.partition(ACCEPTED)[2]
        for match in re.finditer(r"^- (\S+\.json(?: \[[^\]]+\])?): (.+)$", listed, re.MULTILINE):
            acceptances[match[1]] = Acceptance.of(match[1], match[2])
        for match in re.finditer(r"^- (\S+) ×([0-9]{1,9}\.[0-9]{2}): (.+)$", listed, re.MULTILINE):
            acceptances[match[1]] = Acceptance(match[1], match[1], (), match[3], float(match[2]))
    return tuple(acceptances.values())


def _own_messages(branch: BumpBranch, records: Path | None) -> list[str]:
    """Return the messages of the branch's refreshes that the runbook wrote or a person confirmed."""
    review = branch_history.review(branch, branch.start, records)
    ids = [commit.id for commit in review.commits if commit.id in review.trusted_messages]
    if not ids:
        return []
    messages = branch.checkout.git("log", "-z", "--no-walk=unsorted", "--format=%B", *ids, "--").split("\0")
    return [message for message in messages if message.startswith(branch.bump.refresh_title)]


def measured_elsewhere(branch: BumpBranch, revision: str, runners: Mapping[str, str]) -> set[str]:
    """Return the files known to come from different runners than their versions at a revision.

    ``runners`` are those of the new values, by path; those of the old values are in the last commit's message.
    """
    known = {path for path, names in runners.items() if names}
    if not known:
        return set()
    log = branch.checkout.git(
        "log", "--first-parent", "-m", "--name-only", "-z", "--format=%x01%B%x02", revision, "--", *sorted(known)
    )
    elsewhere = set()
    for entry in log.split("\1")[1:]:
        message, _, paths = entry.partition("\2")
        before = set("; ".join(_RUNNERS.findall(message)).split("; ")) - {"", "unknown"}
        for path in known.intersection(paths.strip("\n\0").split("\0")):
            known.remove(path)
            if before and before.isdisjoint(runners[path].split("; ")):
                elsewhere.add(path)
    return elsewhere
