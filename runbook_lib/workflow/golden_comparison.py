"""Step 5, first half: the run whose golden values are asked for, collected and judged.  Changes nothing.

Old values are those of the bump's branch: what a refresh before this one has brought is not refreshed again.
"""

import difflib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runbook_lib import display, notebooks
from runbook_lib.display import Picture, View
from runbook_lib.errors import Refused
from runbook_lib.golden import collect as artifacts
from runbook_lib.golden import coverage as golden_coverage
from runbook_lib.golden import match_artifacts, plots, summary
from runbook_lib.golden.collect import CollectedFile, CollectionProblem, GoldenCollection, GoldenSource
from runbook_lib.golden.coverage import Coverage
from runbook_lib.golden.diff import LINT
from runbook_lib.golden.file_names import FOLDER, GoldenFileName, config_path
from runbook_lib.golden.judge import Judgement, accept, judge
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, parse
from runbook_lib.recipes import rows as recipes
from runbook_lib.system.temporary import TemporaryFolder
from runbook_lib.text.decisions import entries
from runbook_lib.text.edits import Edit
from runbook_lib.text.redact import Redactor
from runbook_lib.workflow import branch_history
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.run_choice import ChosenRun

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Found:
    """What a run gives.  ``old``, ``new`` and ``judged`` are by ``<model>/<test case>/golden_values_….json``.

    ``unused`` are collected files that no recipe uses, ``undecided`` the failed jobs that these values do not explain.
    """

    asked: ChosenRun
    collection: GoldenCollection = field(default_factory=lambda: GoldenCollection((), ()))
    old: Mapping[str, str | None] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    judged: tuple[Judgement, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    unused: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    accepted: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[CollectionProblem, ...]:
        """What a job gave, or should have given, and is not to be had."""
        return tuple(it for it in self.collection.problems if not it.by_job)

    @property
    def none_given(self) -> tuple[CollectionProblem, ...]:
        """The jobs that gave no values by themselves: that is step 6's."""
        return tuple(it for it in self.collection.problems if it.by_job)

    def show(self) -> View:
        """The verdict on each file, and what is missing."""
        if self.asked.source is None:
            return display.note("There is nothing to collect.")
        shown = display.table(summary.verdict_rows(self.judged), empty="No golden value of this run differs from ours.")
        rows = ({"job": it.job, "file": it.file or it.artifact, "why": it.sentence} for it in self.collection.problems)
        if self.collection.problems:
            shown += display.note("Not to be had, and so not used:") + display.table(rows)
        return shown + display.notes(self.warnings, title="Warnings")

    def frame(self) -> "pd.DataFrame":
        """A row a (file, metric), what must be seen first, with the columns of the CSV."""
        import pandas as pd

        return pd.DataFrame(summary.rows(summary.in_order(self.judged)), columns=list(summary.CSV_COLUMNS))

    def listed(self) -> View:
        """The first rows of that."""
        return display.frame(self.frame()) if self.judged else display.View("", "")

    def worst(self) -> Picture | View:
        """Old against new, step by step, for the files that a person must see first."""
        return plots.worst(self.judged, _parsed(self.old), _parsed(self.new))

    def covered(self) -> View:
        """How many golden files of this image type the run covered, and why not the others, with what to do."""
        return display.table(coverage_rows(self.coverage), empty="No run, so nothing is covered.")


def collect(
    asked: ChosenRun, *, only_failing: bool = True, accepted: str = "", on_branch: bool = False,
    say: Callable[[str], object] = print,
) -> Found:  # fmt: skip
    """Read the golden files of the run's jobs and judge each against the branch; ``accepted`` as ``accept`` takes it.

    ``on_branch``: a failed job counts as explained only by values that the branch holds.  Prints how far it is.
    Raises Refused for an ``accepted`` that names something else.
    """
    branch, source = asked.branch, asked.source
    if source is None:
        require(branch, accepted)
        return Found(asked)
    reasons, listed = entries(accepted, "accept", "file: reason", Redactor(os.environ)), _listed(branch)
    known = _golden(listed)
    with TemporaryFolder() as folder:
        collection = artifacts.collect(source, folder, only_failing=only_failing, known=known, progress=_Progress(say))
        new = {_short(file.path): file.bytes.decode("utf-8", "surrogateescape") for file in collection.files}
    texts = branch.texts([*(f"{FOLDER}/{name}" for name in new), *{f"{FOLDER}/{config_path(name)}" for name in new}])
    old = {name: texts[f"{FOLDER}/{name}"] for name in new}
    lint = LINT in listed
    judged = tuple(
        judge(name, old[name], text, texts[f"{FOLDER}/{config_path(name)}"], lint=lint) for name, text in new.items()
    )
    judged = accept(judged, accepted, Redactor(os.environ), {_short(path) for path in known})
    rows, odd = _recipes(branch.texts(path for path in listed if path.startswith(f"{recipes.FOLDER}/")))
    used = {row.golden for row in rows}
    unused = tuple(name for name in new if name.replace("_2nd.json", ".json") not in used)
    warnings = [*odd, *(f"No recipe uses {name}: nothing in CI will compare with it." for name in unused)]
    return Found(
        asked, collection, old, new, judged, _coverage(source, collection, known, rows), unused,
        _undecided(asked, collection.files, judged, new, on_branch), tuple(warnings), reasons,
    )  # fmt: skip


def require(branch: BumpBranch, accepted: str) -> None:
    """Raise Refused for an ``accepted`` of another form, and for a file of no test that the branch has."""
    reasons = entries(accepted, "accept", "file: reason", Redactor(os.environ))
    known = _golden(_listed(branch)) if reasons else ()
    tests = {_short(path).rpartition("/")[0] for path in known}
    for name in reasons:
        if GoldenFileName.of_path(f"{FOLDER}/{name}") is None or name.rpartition("/")[0] not in tests:
            near = difflib.get_close_matches(name, [_short(path) for path in known], n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise Refused(f"accept names {name!r}, which is no golden file of a test.{hint} Nothing was changed.")


def _listed(branch: BumpBranch) -> list[str]:
    return branch.checkout.git(
        "ls-tree", "-r", "-z", "--name-only", "--full-tree", branch.start, "--", *_LISTED
    ).split("\0")  # fmt: skip


def _golden(listed: Iterable[str]) -> frozenset[str]:
    return frozenset(path for path in listed if path.startswith(f"{FOLDER}/") and GoldenFileName.of_path(path))


_STOPPED = ("held back", "refused")
_LISTED = (FOLDER, recipes.FOLDER, LINT)


class _Progress:
    """Says how many artifacts are read, some ten times in all."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self.say, self.told = say, 0

    def __call__(self, done: int, total: int, _last: str) -> None:
        if done * 10 // total > self.told or done == total:
            self.told = done * 10 // total
            self.say(f"{done} of {total} artifacts read")


def _short(path: str) -> str:
    return path.removeprefix(f"{FOLDER}/")


def _parsed(texts: Mapping[str, str | None]) -> dict[str, GoldenValues]:
    found = {}
    for name, text in texts.items():
        try:
            found[name] = parse(text or "")
        except BadGoldenFile:
            continue  # its judgement says so
    return found


def _recipes(texts: Mapping[str, str | None]) -> tuple[list[golden_coverage.ScopedTest], list[str]]:
    rows: list[golden_coverage.ScopedTest] = []
    odd: list[str] = []
    for path, text in texts.items():
        if path.endswith((".yaml", ".yml")):
            more, problems = golden_coverage.scoped_tests(path, text or "")
            rows += more
            odd += problems
    return rows, odd


def _coverage(
    source: GoldenSource,
    collection: GoldenCollection,
    known: AbstractSet[str],
    rows: Sequence[golden_coverage.ScopedTest],
) -> tuple[Coverage, ...]:
    """What the run covered: files that it gave, and those of jobs that passed with the values that we have."""
    given = {file.path for file in collection.files}
    unsure: set[str] = set()
    ran = Counter((job.model, job.test_case) for job in source.jobs if job.state in ("passed", "failed"))
    for job in source.jobs:
        if job.state != "passed":
            continue
        files = match_artifacts.expected_files(known, job, source.environment, {job.platform} if job.platform else ())
        platforms = {name.platform for path in files if (name := GoldenFileName.of_path(path))}
        certain = job.platform or ran[job.model, job.test_case] >= len(platforms)
        (given if certain else unsure).update(files)
    found = golden_coverage.coverage(
        [_short(path) for path in known], rows, {_short(path) for path in given}, source.environment
    )
    told = "it ran on one of its platforms, and on which the run does not tell"
    return tuple(replace(it, reason=told) if not it.covered and f"{FOLDER}/{it.file}" in unsure else it for it in found)


def _undecided(
    asked: ChosenRun,
    files: Sequence[CollectedFile],
    judged: Sequence[Judgement],
    new: Mapping[str, str],
    on_branch: bool,
) -> tuple[str, ...]:
    """The failed jobs whose failure no golden value explains.

    A job is explained when CI fails its values against those of the tested commit, and none of them is held back.
    """
    checkout, files = asked.branch.checkout, [it for it in files if it.failed]
    stops = (*_STOPPED, "refresh") if on_branch else _STOPPED
    stopped = {one.file for one in judged if one.verdict in stops}
    tested = asked.tested if checkout.has(asked.tested) else asked.branch.start
    texts = checkout.read(
        [*(f"{FOLDER}/{name}" for name in new), *{f"{FOLDER}/{config_path(name)}" for name in new}], tested
    )
    drifted = {
        name
        for name, text in new.items()
        if judge(name, texts[f"{FOLDER}/{name}"], text, texts[f"{FOLDER}/{config_path(name)}"]).ci
    } - stopped
    explained = Counter(
        job
        for job, _ in {(it.job, it.artifact) for it in files if _short(it.path) in drifted}
        - {(it.job, it.artifact) for it in files if _short(it.path) in stopped}
    )
    return tuple(sorted((Counter(asked.wrong) - explained).elements()))


#: What refreshes a golden file that the run did not cover, by the beginning of the reason.
_COMMANDS = (
    ("runs nightly", "05-golden-values with -r source gitlab, once the internal pipeline of this commit has ended"),
    ("runs weekly", "05-golden-values with -r source gitlab, once the internal pipeline of this commit has ended"),
    (
        "GitHub never runs",
        "05-golden-values with -r source gitlab, once the internal pipeline of this commit has ended",
    ),
    ("GB200", "a maintainer comments /ok to test for the commit; then run this step again"),
    ("quarantined", "none: fix the test and re-enable it first"),
    ("no recipe", "none: nothing runs it"),
    ("it ran on one", "-p only_failing False"),
)


def coverage_rows(found: Iterable[Coverage]) -> list[dict[str, object]]:
    """How many golden files were covered, and by reason and scope how many were not, with what to do for them."""
    listed = list(found)
    if not listed:
        return []
    counted = Counter((it.reason, ", ".join(it.scopes), it.platform) for it in listed if not it.covered)
    rows: list[dict[str, object]] = [
        {"golden files": sum(it.covered for it in listed), "scopes": "", "platform": "", "why": "covered", "next": ""}
    ]
    for (reason, scopes, platform), count in sorted(counted.items()):
        command = next((text for start, text in _COMMANDS if reason.startswith(start)), notebooks.BROKEN_TESTS)
        rows.append({"golden files": count, "scopes": scopes, "platform": platform, "why": reason, "next": command})
    return rows


def changed_since_fork(
    branch: BumpBranch, records: Path | None, new: tuple[Judgement, ...] = (), made: tuple[Edit, ...] = ()
) -> tuple[Judgement, ...]:
    """The golden files that the branch changes since it left its base, and those that a run's ``new`` hold back.

    ``records`` is the bump's folder in the archive.
    """
    checkout = branch.checkout
    fork = checkout.merge_base(branch.start, branch.base_commit) or branch.base_commit
    listed = checkout.git("diff", "--name-only", "--no-renames", "-z", fork, branch.start, "--", FOLDER).split("\0")
    after = {edit.path: edit.after for edit in made}
    paths = sorted({path for path in listed if GoldenFileName.of_path(path)} | after.keys())
    configs = [config_path(path) for path in paths]
    before, now = checkout.read(paths, fork), branch.texts([*paths, *configs, LINT])
    reasons = accepted(branch, records)
    stopped = {one.file: one for one in new if one.verdict in ("held back", "refused")}
    judged = []
    for path, config in zip(paths, configs, strict=True):
        name = path.removeprefix(f"{FOLDER}/")
        one = judge(name, before[path], after.get(path, now[path]), now[config], lint=now[LINT] is not None)
        reason = reasons.get(name) or next((it.accepted for it in new if it.file == name), "")
        if one.verdict == "held back" and reason:
            one = replace(one, verdict="refresh", accepted=reason)
        judged.append(stopped.pop(name, one))
    return (*judged, *stopped.values())


def accepted(branch: BumpBranch, records: Path | None) -> dict[str, str]:
    """The files that earlier refreshes of this bump accepted, with the reasons, from the commits' messages.

    Only from commits that the runbook made or a person confirmed: anybody may write such a message.
    """
    reviewed = branch_history.review(branch, branch.start, records)
    ids = [commit.id for commit in reviewed.commits if commit.id in reviewed.made]
    log = branch.checkout.git("log", "-z", "--no-walk=unsorted", "--format=%B", *ids, "--") if ids else ""
    messages = [text.partition(ACCEPTED)[2] for text in log.split("\0") if text.startswith(branch.bump.refresh_title)]
    return dict(found.groups() for text in messages for found in re.finditer(r"^- (\S+\.json): (.+)$", text, re.M))  # type: ignore[misc]


ACCEPTED = "Accepted although held back:"
