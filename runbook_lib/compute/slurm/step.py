"""Notebook slurm-verify: recipe tests on a Slurm cluster, submitted, followed and judged.

Submissions are written to the commit's folder in the results folder, so that a later run of the notebook continues
them.  The record has the job IDs and the outcome of each test.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from runbook_lib import display, notebooks
from runbook_lib.compute.slurm import jobs as slurm_jobs
from runbook_lib.compute.slurm import selection
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.jobs import BATCH, TREE, SlurmJob, job_files
from runbook_lib.compute.slurm.outcome import MatrixOutcome, conclude
from runbook_lib.compute.slurm.selection import BUMP, SelectedTest
from runbook_lib.compute.slurm.site import Resources, Site, read_site
from runbook_lib.errors import Refused
from runbook_lib.failures.failed_jobs import show_evidence
from runbook_lib.golden import summary
from runbook_lib.model import Check, Condition, Effect, Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.machine import files
from runbook_lib.world.ports import World

#: Number of failed tests whose evidence is shown; the record has all.
_SHOWN = 20
_INCOMPLETE = (
    "Nothing is planned without a results folder that all nodes see, and an image in which Pyxis runs the tests: set "
    "results and image in the site file."
)
_ADVICE = (
    'Correct the site file: partition (`sinfo -o "%P %l %D %G"` lists them), account, least-gpus or options; or set '
    "gpus: false if Slurm knows no GPUs."
)


@dataclass(frozen=True)
class SlurmFacts:
    """A commit's tests on a cluster.

    ``seen`` are the tests' submitted jobs, the newest of each, ``new`` those to submit now; one whose submission was
    interrupted is planned again.  ``idle``: why nothing is planned.
    """

    branch: BumpBranch
    site: Site
    slurm: Slurm
    tests: tuple[SelectedTest, ...] = ()
    seen: Sequence[SlurmJob] = ()
    new: Sequence[SlurmJob] = ()
    warnings: tuple[str, ...] = ()
    idle: str = ""

    @property
    def folder(self) -> Path:
        """The folder for the results of this commit with this image."""
        bump, image = self.branch.bump, hashlib.sha256(self.site.image.encode()).hexdigest()[:6]
        return Path(self.site.results) / f"{bump.image_type}-{bump.tag or 'none'}-{self.branch.start[:12]}-{image}"

    @property
    def left_out(self) -> dict[str, list[str]]:
        """The names of the tests that cannot run, by reason."""
        names: dict[str, list[str]] = {}
        for entry in self.tests:
            if entry.obstacle:
                names.setdefault(entry.obstacle, []).append(str(entry.test))
        return names

    def attempts(self) -> list[SlurmJob]:
        """Return all attempts of the chosen tests, as the results folder has them now."""
        return [job for entry in self.tests for job in slurm_jobs.attempts(self.folder, entry)]

    def submitted(self) -> list[SlurmJob]:
        """Return the newest submitted attempt of each chosen test."""
        return list({job.entry.test.name: job for job in self.attempts() if job.id is not None}.values())

    def show(self) -> display.View:
        """Show the site, and the new jobs with the files of the first."""
        if self.idle:
            return display.note(self.idle)
        session = self.site.session
        shown = display.mapping({
            "commit": self.branch.start[:10], "results": self.folder, "image": self.site.image,
            "partition": session.partition, "account": session.account,
        })  # fmt: skip
        rows = []
        for job in self.new:
            needs = job.entry.test.needs
            row = {"test": str(job), "job": job.name, "nodes": needs.nodes, "GPUs per node": needs.gpus}
            rows.append({**row, "max. minutes": needs.minutes})
        shown += display.table(rows, empty="Nothing new to submit: all these tests have been submitted already.")
        for job in self.new[:1]:
            for path, text in job_files(job, self.site).items():
                shown += display.code(text, title=str(path))
        return shown


def read_facts(branch: BumpBranch, site: Site, tests: str, again: str, slurm: Slurm | None = None) -> SlurmFacts:
    """Return the tests of the branch's commit, and what the cluster and the results folder know about them.

    ``tests`` are words that select tests; ``again`` is ``failed`` or ``all``, for those of them to submit once more, or
    ``cancel``, which submits none.  Raises Refused for a test that does not exist, and if none can be submitted.
    """
    if again not in ("", "failed", "all", "cancel"):
        raise Refused(f"jobs={again!r} is not failed, all or cancel.", "Name the tests that it is for in tests.")
    bump, facts = branch.bump, SlurmFacts(branch, site, slurm or Slurm())
    idle = "" if bump.repository.tests.recipes else f"{bump.repository.name} has no test recipes."
    if not (site.results and site.image) or idle:
        return replace(facts, idle=idle or _INCOMPLETE)
    selected, unreadable = selection.read_commit_tests(branch, site, tests)
    warnings = [*branch.warnings, *unreadable]
    if bump.tag is not None and branch.tip is None:
        source = f"the tests and golden values are from {bump.base} at {branch.start[:10]}"
        warnings.append(f"Branch {bump.branch} does not exist yet: {source}.")
    facts = replace(facts, tests=selected, warnings=tuple(warnings))
    facts = replace(facts, seen=facts.submitted())
    if again == "cancel":
        return facts
    left = {job.entry.test.name for job in facts.seen}
    if again:  # never one that is waiting or running
        over = [job for job in slurm_jobs.poll(facts.slurm, facts.seen) if job.over]
        left -= {it.entry.test.name for it in over if again == "all" or conclude(it).word in ("failed", "unknown")}
    new = [entry for entry in selected if not entry.obstacle and entry.test.name not in left]
    return _with_jobs(facts, new) if new or (selected and not facts.seen) else facts


def _with_jobs(facts: SlurmFacts, new: Sequence[SelectedTest]) -> SlurmFacts:
    """Add jobs for the new tests, except those that Slurm rejects.  Raises Refused if none can run."""
    if new:
        facts.slurm.require_containers()
    planned: list[SlurmJob] = []
    refusals: dict[Resources, str] = {}
    tests = {entry.test.name: entry for entry in facts.tests}
    for entry in new:
        test = entry.test
        number = 1 + sum(job.id is not None for job in slurm_jobs.attempts(facts.folder, entry))
        job = SlurmJob(entry, facts.folder / test.name / str(number))
        if test.needs not in refusals:
            refusals[test.needs] = facts.slurm.refusal(job_files(job, facts.site)[job.folder / BATCH])
        if refusal := refusals[test.needs]:
            tests[test.name] = replace(entry, obstacle=f"{refusal} {_ADVICE}")
        else:
            planned.append(job)
    used = [facts.site.image, *(mount.partition(":")[0] for mount in facts.site.mounts)]
    missing = [path for path in used if path.startswith("/") and not Path(path).exists()]
    warnings = [f"{path} does not exist on this machine; the nodes need it." for path in missing]
    facts = replace(facts, tests=tuple(tests.values()), new=planned, warnings=(*facts.warnings, *warnings))
    if not planned:
        advice = " To follow those that were submitted before, name only them in tests." if facts.seen else ""
        raise Refused(f"Nothing can be submitted. {' '.join(facts.left_out)}{advice}")
    return facts


@dataclass(frozen=True)
class Submitted:
    """Each planned job was submitted, once, and the results folder has its ID."""

    facts: SlurmFacts
    leaves_machine = False

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        names = list(map(str, self.facts.new))
        return f"submit {display.count(len(names), 'test')} to Slurm: {join_first(names, 3)}"

    def holds(self, world: World) -> Check:
        """Read the results folder."""
        missing = join_first(list(map(str, self._left())), 5)
        detail = f"Not submitted, or its job ID is not written: {missing}." if missing else "Each once."
        return Check.of("the chosen tests were submitted", not missing, detail)

    def make_true(self, world: World) -> Iterator[Effect]:
        """Submit the jobs, except those that another run has submitted in the meantime.

        Raises Refused if Slurm rejects a job; accepted jobs stay.
        """
        facts = self.facts
        files.make_folder(facts.folder)
        with files.locked(facts.folder / "lock"):
            if not (tree := facts.folder / TREE).exists():  # later changes to the checkout have no effect
                facts.branch.checkout.archive(facts.branch.start, tree)
            for job in slurm_jobs.submit(facts.slurm, self._left(), facts.site, world.sleep):
                yield Effect("slurm job", f"{job} ({job.name})", None, job.id)

    def _left(self) -> list[SlurmJob]:
        """Return the planned jobs without an ID."""
        folders = {job.folder for job in self.facts.attempts() if job.id is not None}
        return [job for job in self.facts.new if job.folder not in folders]


@dataclass(frozen=True)
class Cancelled:
    """None of the chosen tests of this commit waits or runs on Slurm."""

    facts: SlurmFacts
    leaves_machine = False
    sentence = "end all of these tests that are unfinished"

    def holds(self, world: World) -> Check:
        """Query the queue."""
        left = join_first(list(map(str, self._unfinished())), 5)
        return Check.of("no chosen test is left on Slurm", not left, left or "None is unfinished, or Slurm ends it.")

    def make_true(self, world: World) -> Iterator[Effect]:
        """Ask Slurm to end the unfinished tests."""
        unfinished = self._unfinished()
        slurm_jobs.cancel(self.facts.slurm, unfinished)
        listed = ", ".join(map(str, unfinished))
        yield Effect("cancel", f"{display.count(len(unfinished), 'test')} on Slurm: {listed}", None, "cancelled")

    def _unfinished(self) -> list[SlurmJob]:
        """Return the jobs that wait or run, with their IDs; not those that Slurm is ending."""
        found = slurm_jobs.poll(self.facts.slurm, self.facts.attempts())
        return [job for job in found if not job.over and job.state != "COMPLETING"]


@dataclass(frozen=True)
class MatrixPassed:
    """Each submitted test passed, or drifted within what a refresh may change.

    As in CI, a failed test needs a person's decision, so the run waits instead of failing.
    """

    facts: SlurmFacts
    wait: bool
    early: bool
    leaves_machine = False
    sentence = "follow the tests until they have ended"

    def holds(self, world: World) -> Check:
        """Query Slurm and read the results of the tests."""
        name, facts = "no test failed or needs a judgement", self.facts
        outcomes = list(map(conclude, slurm_jobs.poll(facts.slurm, facts.submitted(), early=self.early)))
        if not outcomes:
            return Check(name, "waiting", "No test has been submitted yet.", Next.again())
        words = Counter(outcome.word for outcome in outcomes)
        counts = ", ".join(f"{count} {word}" for word, count in words.items())
        sentence, evidence = f"{display.count(len(outcomes), 'test')} on Slurm: {counts}", _evidence(outcomes)
        left = ("failed", "unknown", "to be judged", "not over")
        listed = join_first([str(it.job) for word in left for it in outcomes if it.word == word], 5)
        if not listed:
            return Check(name, "passed", f"{sentence}.", Next.run(notebooks.OPEN_PR), evidence)
        if "not over" in words:
            following = Next.again("To follow the tests:", wait=True)
            detail = f"{sentence}; waiting for Slurm: {listed}"  # although it was followed, unless it was only read
            return Check(name, "failed" if self.wait else "waiting", detail, following, evidence)
        review = Next.again("Review the outcomes above. To submit the failed tests again:", jobs="failed")
        return Check(name, "waiting", f"{sentence}; waiting for a person to judge: {listed}", review, evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Follow the tests if this run waits for them, and print each change of their state."""
        if self.wait:
            slurm_jobs.follow(self.facts.slurm, self.facts.submitted(), world.sleep, early=self.early)
        return ()


def _evidence(outcomes: Sequence[MatrixOutcome]) -> Evidence:
    """Return each test with its outcome, why the failed ones failed, and the golden files that differ."""
    rows = [outcome.row for outcome in outcomes]
    judgements = list(chain.from_iterable(outcome.judgements for outcome in outcomes))
    shown = display.table(rows)
    failed = [(it.failure, it.job.folder) for it in outcomes if it.failure and it.word in ("failed", "unknown")]
    for failure, folder in failed[:_SHOWN]:
        shown += show_evidence(failure) + display.note(f"Results: {folder}")
    if len(failed) > _SHOWN:
        shown += display.note(f"… and {len(failed) - _SHOWN} more that failed; the record has all.")
    values = display.table(summary.verdict_rows(judgements), empty="No golden value differs from the commit's.")
    tables = {"slurm tests": rows, "golden": summary.rows(summary.in_order(judgements))}
    return Evidence(tables=tables, shown=(shown, values))


@dataclass(frozen=True)
class SlurmVerify:
    """The step; ``site`` is a file that describes the cluster, ``tests`` are words that select tests.

    ``jobs`` is ``failed`` or ``all`` for those to submit once more, or ``cancel`` to end all.
    """

    site: str
    tests: str = BUMP
    jobs: str = ""
    wait: bool = False

    def look(self, world: World, bump: Bump) -> SlurmFacts:
        """Read the commit's tests, the results folder and the cluster.  Raises RunbookError like ``read_facts``."""
        return read_facts(BumpBranch.look(world, bump), read_site(self.site), self.tests, self.jobs.strip())

    def plan(self, facts: SlurmFacts, bump: Bump) -> Plan[World]:
        """Plan the submission, or the end of all tests, and what the tests have to show."""
        shown, idle = (facts.show(),), facts.idle or ("" if bump.tag else "No tag was given, so nothing is submitted.")
        if idle:
            return Plan(Outcome(idle), shown, on_branch=False)
        conditions: list[Condition[World]] = []
        if self.jobs.strip() == "cancel":
            conditions.append(Cancelled(facts))
        elif facts.new:
            conditions.append(Submitted(facts))
        if conditions or facts.seen:
            conditions.append(MatrixPassed(facts, self.wait, bump.apply and facts.site.early))
        done = Outcome("" if conditions else "No test has been submitted yet.")
        omitted = [f"Omitted: {join_first(names, 3)}. {reason}" for reason, names in facts.left_out.items()]
        inputs = {
            "head_commit": facts.branch.start, "results": str(facts.folder), "image_under_test": facts.site.image,
        }  # fmt: skip
        evidence = Evidence(inputs=inputs, warnings=(*facts.warnings, *omitted))
        return Plan(done, shown, tuple(conditions), evidence=evidence, on_branch=False)
