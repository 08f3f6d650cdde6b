"""The golden values of a CI run, collected and judged against those on the bump's branch.  Changes nothing.

Files already refreshed on the branch are not refreshed again.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING

from runbook_lib import display, notebooks
from runbook_lib.golden import acceptance, match_artifacts, plots, summary
from runbook_lib.golden import collect as artifacts
from runbook_lib.golden.collect import CollectedFile, CollectionProblem, GoldenCollection, GoldenSource
from runbook_lib.golden.coverage import Coverage, ScopedTest, scoped_tests
from runbook_lib.golden.coverage import coverage as coverage_of
from runbook_lib.golden.diff import LINT
from runbook_lib.golden.file_names import FOLDER, GoldenFileName, config_path
from runbook_lib.golden.form import STOPPED, Judgement
from runbook_lib.golden.history import GoldenHistory
from runbook_lib.golden.judge import NO_HISTORY, Verdicts, judge_all
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, parse
from runbook_lib.recipes import rows as recipes
from runbook_lib.text.redact import Redactor
from runbook_lib.workflow import golden_refreshes
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.run_choice import ChosenRun

if TYPE_CHECKING:
    import pandas as pd


#: Seconds between two lines of progress.
_PROGRESS_PAUSE = 15.0


@dataclass(frozen=True)
class GoldenComparison:
    """A run's golden values and the verdicts on them.

    ``old`` and ``new`` are keyed by ``<model>/<test case>/golden_values_….json``.  ``undecided`` are the failed
    jobs that these values do not explain; ``covers`` maps each entry of ``accept`` to the files that it accepts, and
    ``unconfirmed`` each dangerous file or group that it does not accept to the reason that would.
    """

    ci_run: ChosenRun
    collection: GoldenCollection = field(default_factory=lambda: GoldenCollection((), ()))
    old: Mapping[str, str | None] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=Verdicts)
    history: GoldenHistory = NO_HISTORY
    coverage: tuple[Coverage, ...] = ()
    undecided: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    covers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unconfirmed: Mapping[str, str] = field(default_factory=dict)

    @property
    def judged(self) -> tuple[Judgement, ...]:
        """The verdict on each file."""
        return self.verdicts.judgements

    @property
    def unavailable(self) -> tuple[CollectionProblem, ...]:
        """The files that a job uploaded, or should have uploaded, but that cannot be used."""
        return tuple(problem for problem in self.collection.problems if not problem.by_job)

    @property
    def ambiguous_jobs(self) -> tuple[str, ...]:
        """The failed jobs with ambiguous values, which need another attempt to decide."""
        ambiguous = {judgement.file for judgement in self.judged if judgement.verdict == "ambiguous"}
        jobs = set()
        for file in self.collection.files:
            if file.failed and _short(file.path) in ambiguous:
                jobs.add((file.job, file.artifact))
        return tuple(sorted(job for job, _ in jobs))

    def show(self) -> display.View:
        """Show the verdict on each file, and the files that cannot be used."""
        if self.ci_run.source is None:
            return display.note("There is nothing to collect.")
        view = display.View("", "")
        if groups := self.verdicts.groups:
            rows = []
            for group in groups:
                row = {"group": group.id, "change": group.sentence, "files": display.count(len(group.files), "file")}
                separate = ", ".join(self.verdicts.exceptions(group))
                rows.append(row | {"decided separately": separate, "accepted": group.accepted})
            view += display.note("One decision for many files:") + display.table(rows)
        empty = "No golden value of this run differs from ours."
        view += display.table(summary.verdict_rows(self.judged), empty=empty)
        if self.covers:
            covered = [{"accept": entry, "files": "; ".join(files) or "none"} for entry, files in self.covers.items()]
            view += display.note("Accepted:") + display.table(covered)
        if self.unconfirmed:
            rows = [{"file": name, "accept": f"{name}: {reason}"} for name, reason in self.unconfirmed.items()]
            view += display.note("Not accepted: the reason does not begin with the word for the danger. Write:")
            view += display.table(rows)
        unavailable = []
        for problem in self.collection.problems:
            unavailable.append({"job": problem.job, "file": problem.file or problem.artifact, "why": problem.sentence})
        if unavailable:
            view += display.note("Unavailable, and therefore not used:") + display.table(unavailable)
        return view + display.notes(self.warnings, title="Warnings")

    def frame(self) -> "pd.DataFrame":
        """Return a row per (file, metric), most urgent first, with the CSV's columns."""
        import pandas as pd

        return pd.DataFrame(summary.rows(summary.in_order(self.judged)), columns=list(summary.CSV_COLUMNS))

    def listed(self) -> display.View:
        """Show the first rows of ``frame``."""
        return display.frame(self.frame()) if self.judged else display.View("", "")

    def shifts(self) -> display.Picture | display.View:
        """Plot the new-to-old ratio of time and memory for each file in a group, with the common shift."""
        return plots.shifts(self.verdicts)

    def calibration(self) -> display.Picture | display.View:
        """Plot how often past changes were as improbable as the judge considers them."""
        return plots.calibration(self.history)

    def worst(self) -> display.Picture | display.View:
        """Plot old against new values, step by step, for the files that a person must review first."""
        return plots.worst(self.judged, parse_all(self.old), parse_all(self.new))

    def covered(self) -> display.View:
        """Show how many golden files of this image type the run covered, why not the rest, and what to do."""
        return display.table(coverage_rows(self.coverage), empty="No run, so nothing is covered.")


def collect(
    ci_run: ChosenRun, *, only_failing: bool = True, accepted: str = "", on_branch: bool = False,
    report: Callable[[str], object] = print,
) -> GoldenComparison:  # fmt: skip
    """Read the golden files of the run's jobs and judge each against the branch; ``accepted`` is the ``accept`` text.

    ``on_branch``: only values on the branch count as explaining a failed job.  Reports its progress.
    Raises Refused for an ``accepted`` entry that names no golden file, or covers nothing that is held back.
    """
    branch, source = ci_run.branch, ci_run.source
    if source is None:
        require_known_files(branch, accepted)
        return GoldenComparison(ci_run)
    paths, acceptances = _list_paths(branch), acceptance.parse(accepted, Redactor(os.environ))
    known = _golden_paths(paths)

    reported = monotonic()

    def progress(done: int, total: int, _last: str) -> None:
        nonlocal reported
        if done == total or monotonic() - reported > _PROGRESS_PAUSE:
            reported = monotonic()
            report(f"{done} of {total} artifacts read")

    acceptance.require_known(acceptances, sorted(map(_short, known)))
    with TemporaryDirectory(prefix="runbook-") as folder:
        collection = artifacts.collect(source, Path(folder), only_failing=only_failing, known=known, progress=progress)
        new = {_short(file.path): file.bytes.decode("utf-8", "surrogateescape") for file in collection.files}
    texts = branch.texts(_with_configs(new))
    history = golden_refreshes.read_history(branch)
    attempts = golden_refreshes.read_attempts(ci_run)
    runners = {file.path: file.runner for file in collection.files}
    verdicts = _judge_since_fork(branch, texts, new, history, attempts, runners, lint=LINT in paths)
    before = verdicts
    earlier: tuple[acceptance.Acceptance, ...] = ()
    if acceptances or verdicts.groups:
        earlier = golden_refreshes.accepted_earlier(branch, ci_run.pull_request.records)
    acceptance.require_coverage(acceptances, verdicts, {entry.name for entry in earlier})
    verdicts = acceptance.apply_all(verdicts, acceptances, earlier)
    unconfirmed = acceptance.unconfirmed(acceptances, verdicts)
    covers = acceptance.covered(acceptances, before, unconfirmed)
    tests: list[ScopedTest] = []
    warnings: list[str] = []
    listed = [path for path in paths if path.startswith(f"{recipes.FOLDER}/") and path.endswith((".yaml", ".yml"))]
    for path, text in branch.texts(listed).items():
        of_recipe, problems = scoped_tests(path, text or "")
        tests += of_recipe
        warnings += problems
    used = {test.golden for test in tests}
    for name in new:
        if name.replace("_2nd.json", ".json") not in used:
            warnings.append(f"No recipe uses {name}: CI will not compare anything with it.")
    old = {name: texts[f"{FOLDER}/{name}"] for name in new}
    coverage = _coverage(source, collection, known, tests)
    undecided = undecided_jobs(ci_run, collection.files, verdicts, new, on_branch)
    return GoldenComparison(
        ci_run, collection, old, new, verdicts, history, coverage, undecided, tuple(warnings), covers, unconfirmed
    )


def _with_configs(names: Iterable[str]) -> list[str]:
    """Return the paths of golden files, and of the configurations for comparing them."""
    paths = [f"{FOLDER}/{name}" for name in names]
    return list(dict.fromkeys([*paths, *map(config_path, paths)]))


def _judge_since_fork(
    branch: BumpBranch, texts: Mapping[str, str | None], new: Mapping[str, str], history: GoldenHistory,
    attempts: Mapping[tuple[str, str], Sequence[float]], runners: Mapping[str, str], *, lint: bool,
) -> Verdicts:  # fmt: skip
    """Judge the values against the branch, and by their accumulated drift since the branch was created."""
    elsewhere = golden_refreshes.measured_elsewhere(branch, branch.start, runners)
    verdicts = judge_all(golden_refreshes.examine_all(texts, new, lint=lint, elsewhere=elsewhere), history, attempts)
    drifted = {file.file: new[file.file] for file in verdicts.judgements if file.verdict == "refresh"}
    before = branch.checkout.read([f"{FOLDER}/{name}" for name in drifted], branch.fork)
    if all(texts[path] == text for path, text in before.items()):
        return verdicts
    existing = {name: text for name, text in drifted.items() if before[f"{FOLDER}/{name}"] is not None}
    unchanged = {name for name in existing if before[f"{FOLDER}/{name}"] == texts[f"{FOLDER}/{name}"]}
    pooled = {key: values for key, values in attempts.items() if key[0] in unchanged}  # same old values
    elsewhere = golden_refreshes.measured_elsewhere(branch, branch.fork, runners)
    examined = golden_refreshes.examine_all({**texts, **before}, existing, lint=False, elsewhere=elsewhere)
    totals = judge_all(examined, history, pooled)
    stopped = {}
    for total in totals.judgements:
        if total.verdict == "ambiguous" and total.file not in unchanged:  # attempts cannot decide accumulated drift
            total = replace(total, verdict="held back")
        if total.verdict in ("held back", "ambiguous"):
            stopped[total.file] = total
    groups = {group.id: group for group in (*totals.groups, *verdicts.groups)}
    judgements = tuple(stopped.get(file.file, file) for file in verdicts.judgements)
    return replace(verdicts, judgements=judgements, groups=tuple(groups.values()))


def require_known_files(branch: BumpBranch, accepted: str) -> None:
    """Raise Refused for a malformed ``accepted``, and for files that are not on the branch."""
    if acceptances := acceptance.parse(accepted, Redactor(os.environ)):
        acceptance.require_known(acceptances, sorted(map(_short, _golden_paths(_list_paths(branch)))))


def _list_paths(branch: BumpBranch) -> list[str]:
    folders = (FOLDER, recipes.FOLDER, LINT)
    listed = branch.checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", branch.start, "--", *folders)
    return listed.split("\0")


def _golden_paths(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path for path in paths if path.startswith(f"{FOLDER}/") and GoldenFileName.of_path(path))


def _short(path: str) -> str:
    return path.removeprefix(f"{FOLDER}/")


def parse_all(texts: Mapping[str, str | None]) -> dict[str, GoldenValues]:
    """Return the golden values that can be parsed, by name; the judgement reports the others."""
    values = {}
    for name, text in texts.items():
        with contextlib.suppress(BadGoldenFile):
            values[name] = parse(text or "")
    return values


def _coverage(
    source: GoldenSource, collection: GoldenCollection, known: AbstractSet[str], tests: Sequence[ScopedTest]
) -> tuple[Coverage, ...]:
    """Return the coverage: files that the run uploaded, and those of jobs that passed with our values."""
    measured = {file.path for file in collection.files}
    unsure: set[str] = set()
    finished = Counter((job.model, job.test_case) for job in source.jobs if job.state in ("passed", "failed"))
    for job in source.jobs:
        if job.state != "passed":
            continue
        files = match_artifacts.expected_files(known, job, source.environment, {job.platform} if job.platform else ())
        platforms = {name.platform for path in files if (name := GoldenFileName.of_path(path))}
        certain = job.platform or finished[job.model, job.test_case] >= len(platforms)
        (measured if certain else unsure).update(files)
    rows = []
    for row in coverage_of(map(_short, known), tests, set(map(_short, measured)), source.environment):
        if not row.covered and f"{FOLDER}/{row.file}" in unsure:
            row = replace(row, reason="it ran on one of its platforms, but the run does not report which")
        rows.append(row)
    return tuple(rows)


def undecided_jobs(
    ci_run: ChosenRun, files: Sequence[CollectedFile], verdicts: Verdicts, new: Mapping[str, str], on_branch: bool
) -> tuple[str, ...]:
    """Return the failed jobs whose failure golden values do not explain.

    A job is explained if its values fail CI's comparison with those in the tested commit, and none is held back.
    """
    checkout = ci_run.branch.checkout
    stopping = (*STOPPED, "refresh") if on_branch else STOPPED
    stopped = {judgement.file for judgement in verdicts.judgements if judgement.verdict in stopping}
    stopped |= verdicts.waiting.keys()
    tested = ci_run.tested if checkout.has(ci_run.tested) else ci_run.branch.start
    texts = checkout.read(_with_configs(new), tested)
    drifted = {judgement.file for judgement in golden_refreshes.examine_all(texts, new, lint=False) if judgement.ci}
    explained, unexplained = set(), set()
    for file in files:
        if file.failed and _short(file.path) in stopped:
            unexplained.add((file.job, file.artifact))
        elif file.failed and _short(file.path) in drifted:
            explained.add((file.job, file.artifact))
    jobs = Counter(job for job, _ in explained - unexplained)
    return tuple(sorted((Counter(ci_run.failed) - jobs).elements()))


#: The command that refreshes a golden file not covered by the run, by the beginning of the reason.
_COMMANDS = dict.fromkeys(
    ("runs nightly", "runs weekly", "GitHub never runs"),
    f"{notebooks.GOLDEN_VALUES} with -r source gitlab, once the internal pipeline for this commit has finished",
) | {
    "GB200": "have a maintainer comment /ok to test for the commit, then run this step again",
    "quarantined": "none: fix the test and re-enable it first",
    "no recipe": "none: no recipe runs it",
    "it ran on one": "-p only_failing False",
}


def coverage_rows(coverage: Iterable[Coverage]) -> list[dict[str, object]]:
    """Return the number of golden files covered, and those not covered by reason and scope, with what to do."""
    files = list(coverage)
    if not files:
        return []
    counts = Counter((file.reason, ", ".join(file.scopes), file.platform) for file in files if not file.covered)
    covered = len(files) - counts.total()
    rows: list[dict[str, object]] = [
        {"golden files": covered, "scopes": "", "platform": "", "why": "covered", "next": ""}
    ]
    for (reason, scopes, platform), count in sorted(counts.items()):
        command = next((text for start, text in _COMMANDS.items() if reason.startswith(start)), notebooks.BROKEN_TESTS)
        rows.append({"golden files": count, "scopes": scopes, "platform": platform, "why": reason, "next": command})
    return rows
