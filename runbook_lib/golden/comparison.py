"""The golden values of a CI run, collected and judged against those on the bump's branch.  Changes nothing.

Files already refreshed on the branch are not refreshed again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runbook_lib.decisions import Decisions
from runbook_lib.golden import baselines, history, judge
from runbook_lib.golden import collect as artifacts
from runbook_lib.golden.bisect_offer import ImageSearches, look_searches
from runbook_lib.golden.ci_runs import ChosenRun
from runbook_lib.golden.collect import CollectionProblem, GoldenCollection, GoldenSource
from runbook_lib.golden.coverage import Coverage, golden_files
from runbook_lib.golden.coverage import coverage as coverage_of
from runbook_lib.golden.diff import LINT
from runbook_lib.golden.form import examine
from runbook_lib.golden.judge import GoldenTable, Verdicts
from runbook_lib.record import archive
from runbook_lib.text.edits import Edit
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.text.recipes.file_names import (
    FOLDER,
    PERFORMANCE,
    baseline_of,
    config_path,
    has_values,
    path_of,
    short_name,
)  # fmt: skip
from runbook_lib.text.recipes.rows import RecipeRow
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.checkout import Checkout

#: Artifacts between two lines of progress.
_REPORTED = 20


@dataclass(frozen=True)
class GoldenComparison:
    """A run's golden values, those of the branch, and the verdicts on them.

    ``rejected`` are the measured files that fail CI's comparison with those in the tested commit, ``image`` the digest
    of the bump's image if a record has it.
    """

    ci_run: ChosenRun
    source: GoldenSource
    collection: GoldenCollection
    table: GoldenTable
    verdicts: Verdicts
    rejected: frozenset[str]
    coverage: tuple[Coverage, ...]
    warnings: tuple[str, ...]
    image: str
    searches: ImageSearches

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """The measured values that are written."""
        return self.table.edits(self.verdicts)

    @property
    def unavailable(self) -> tuple[CollectionProblem, ...]:
        """The files that a job uploaded, or should have uploaded, but that cannot be used."""
        return tuple(problem for problem in self.collection.problems if not problem.by_job)

    @property
    def ambiguous_jobs(self) -> tuple[str, ...]:
        """The failed jobs with ambiguous values, which need another attempt to decide."""
        files = {file.file for file in self.verdicts.judgements if file.verdict == "ambiguous"}
        return tuple(sorted(job for job, _ in self._jobs_of(files)))

    def undecided(self, *, on_branch: bool = False) -> tuple[str, ...]:
        """Return the failed jobs whose failure golden values do not explain.

        A job is explained if its values fail CI's comparison with those in the tested commit, and none is held back.
        ``on_branch``: only values that the branch has explain it.
        """
        blocked = set(self.verdicts.blocked)
        if on_branch:
            blocked |= {short_name(edit.path) for edit in self.edits}
        explained = self._jobs_of(self.rejected) - self._jobs_of(blocked)
        jobs = Counter(job for job, _ in explained)
        return tuple(sorted((Counter(self.ci_run.failed) - jobs).elements()))

    def _jobs_of(self, files: AbstractSet[str]) -> set[tuple[str, str]]:
        """Return the failed jobs that measured these files, with their artifacts: jobs may have the same name."""
        measured = self.collection.files
        return {(file.job, file.artifact) for file in measured if short_name(file.path) in files}


def read(
    ci_run: ChosenRun, source: GoldenSource, records: Path | None, *, report: Callable[[str], object] = print
) -> GoldenComparison:
    """Read the golden files of the run's failed jobs, and judge them by those of the branch.

    ``records`` is the bump's folder in the archive, and ``report`` is called with lines about the progress.
    """
    branch = ci_run.branch
    paths = _list_paths(branch)
    known = _golden_paths(paths)

    def progress(done: int, total: int, _last: str) -> None:
        if done == total or done % _REPORTED == 0:
            report(f"{done} of {total} artifacts read")

    collection = artifacts.collect(source, known, progress=progress)
    new = _measured(branch, collection)
    listed = [path for path in paths if path.startswith(f"{recipes.FOLDER}/") and path.endswith((".yaml", ".yml"))]
    rows, warnings = recipes.read_all(branch.texts(listed))
    warnings += recipes.problems(rows)
    used = {file for row in rows for file in (*golden_files(row), baseline_of(row.model, row.case))}
    for name in new:
        if name.replace("_2nd.json", ".json") not in used:
            warnings.append(f"No recipe uses {name}: CI will not compare anything with it.")
    table = read_table(branch, new)
    verdicts = _judge(branch, table, ci_run.number, ci_run.attempt)
    return GoldenComparison(
        ci_run, source, collection, table, verdicts, _rejected(ci_run, new),
        _coverage(source, collection, known, rows), tuple(warnings),
        next((str(inputs["digest"]) for inputs in archive.inputs_of(records) if inputs.get("digest")), ""),
        look_searches(branch, records),
    )  # fmt: skip


def _measured(branch: BumpBranch, collection: GoldenCollection) -> dict[str, str]:
    """Return the measured files; what a performance test measured is put into its baseline, for its platform."""
    new: dict[str, str] = {}
    ours = branch.texts([file.path for file in collection.files if file.platform])
    for file in collection.files:
        name, text = short_name(file.path), file.bytes.decode("utf-8", "surrogateescape")
        new[name] = (
            baselines.with_results(new.get(name, ours[file.path]), file.platform, text) if file.platform else text
        )
    return new


def read_table(branch: BumpBranch, measured: Mapping[str, str]) -> GoldenTable:
    """Read the measured files and those that the branch has changed, in all versions."""
    diff = ("diff", "--name-only", "--no-renames", "-z", branch.fork, branch.start, "--", FOLDER, PERFORMANCE)
    changed = _golden_paths(branch.checkout.git(*diff).split("\0"))
    names = sorted({*map(short_name, changed), *measured})
    before, texts = (_texts(branch.checkout, names, commit) for commit in (branch.fork, branch.start))
    return GoldenTable({name: before[name] for name in names}, texts, measured, texts[LINT] is not None)


def _texts(checkout: Checkout, names: Iterable[str], commit: str) -> dict[str, str | None]:
    """Return the golden files with these names at a commit, the configurations of their tests, and the lint."""
    paths = list(map(path_of, names))
    texts = checkout.read([*paths, *dict.fromkeys(map(config_path, paths)), LINT], commit)
    return {short_name(path): text for path, text in texts.items()}


def judge_branch(branch: BumpBranch) -> Verdicts:
    """Judge the golden files that the branch has changed since it diverged from its base."""
    return _judge(branch, read_table(branch, {}))


def _judge(branch: BumpBranch, table: GoldenTable, run: int = 0, attempt: int = 1) -> Verdicts:
    """Judge each file once, and apply the bump's decisions."""
    verdicts = table.judge(history.read(branch.checkout, branch.fork), attempt)
    return judge.decide(verdicts, table, branch.bump.decisions, run, attempt)


def require_known(branch: BumpBranch, decisions: Decisions) -> None:
    """Raise Refused for an entry of the decisions that names no golden file on the branch."""
    if decisions.of("accept"):
        judge.require_known(decisions, sorted(map(short_name, _golden_paths(_list_paths(branch)))))


def _rejected(ci_run: ChosenRun, new: Mapping[str, str]) -> frozenset[str]:
    """Return the measured files that fail CI's comparison with those in the tested commit."""
    checkout = ci_run.branch.checkout
    texts = _texts(checkout, new, ci_run.tested if checkout.has(ci_run.tested) else ci_run.branch.start)
    return frozenset(
        name for name, text in new.items() if examine(name, texts[name], text, texts[config_path(name)]).ci
    )


def _list_paths(branch: BumpBranch) -> list[str]:
    folders = (FOLDER, PERFORMANCE, recipes.FOLDER)
    listed = branch.checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", branch.start, "--", *folders)
    return listed.split("\0")


def _golden_paths(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(has_values, paths))


def _coverage(
    source: GoldenSource, collection: GoldenCollection, known: AbstractSet[str], rows: Sequence[RecipeRow]
) -> tuple[Coverage, ...]:
    """Return the coverage: files that the run uploaded, and those with which a test that passed compared its values."""
    covered = {short_name(file.path) for file in collection.files}
    for job in source.jobs:
        if job.state == "passed":
            file = f"{job.model}/{job.test_case}/golden_values_{source.environment}_{job.platform}"
            covered |= {f"{file}.json", f"{file}_2nd.json"}
    return tuple(coverage_of(map(short_name, known), rows, covered, source.environment))
