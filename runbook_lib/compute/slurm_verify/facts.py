"""What a run on a Slurm cluster needs to know: its tests, their jobs, and what prevents them.  Writes nothing."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.compute.slurm import jobs, selection
from runbook_lib.compute.slurm.batch_files import job_files
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.cluster import site_problems, unmounted
from runbook_lib.compute.slurm.jobs import SlurmJob
from runbook_lib.compute.slurm.outcome import conclude
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.tasks import TABLE
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.text.lists import join_first
from runbook_lib.world.bump_branch import BumpBranch

_NO_RESULTS = "Nothing is planned without a results folder that all nodes see: set results in the site file."
_ADVICE = (
    'Correct the site file: partition (`sinfo -o "%P %l %D %G"` lists them), account, least-gpus or options; or set '
    "gpus: false if Slurm knows no GPUs."
)


@dataclass(frozen=True)
class SlurmFacts:
    """A commit's tests on a cluster.

    ``seen`` are the tests' earlier jobs.  ``new`` are those to submit now, with their files; one whose submission was
    interrupted is planned again.  ``texts`` are settings and golden files by path.  ``problems`` prevent every
    submission; ``idle``: why nothing is planned.
    """

    branch: BumpBranch
    site: Site
    slurm: Slurm
    tests: tuple[SelectedTest, ...] = ()
    texts: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    seen: Sequence[SlurmJob] = ()
    new: Sequence[tuple[SlurmJob, Mapping[Path, str]]] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    idle: str = ""

    @property
    def folder(self) -> Path:
        """The folder for the results of this commit with this image."""
        bump, image = self.branch.bump, self.site.image
        name = f"{bump.image_type}-{bump.tag or 'none'}-{self.branch.start[:12]}"
        if image:  # each has its own results
            name += f"-{hashlib.sha256(image.encode()).hexdigest()[:6]}"
        return Path(self.site.results or "/") / name

    @property
    def tree(self) -> Path:
        """The archive of the commit, which containers unpack."""
        return self.folder / "tree.tar"

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
        names = {entry.test.name: entry.test for entry in self.tests}
        return [job for test in names.values() for job in jobs.attempts(self.folder, test)]

    def submitted(self) -> list[SlurmJob]:
        """Return the newest submitted attempt of each chosen test."""
        return list({job.test.name: job for job in self.attempts() if job.id is not None}.values())

    def show(self) -> display.View:
        """Show the site, the problems, the new jobs with the files of the first, and the omitted tests."""
        if self.idle:
            return display.note(self.idle)
        shown = display.facts(
            commit=self.branch.start[:10], results=self.folder, image=self.site.image or "none: in the checkout itself",
            partition=self.site.partition, account=self.site.account,
        )  # fmt: skip
        shown += display.notes(self.problems, title="Nothing can be submitted")
        shown += display.notes(self.warnings, title="Warnings")
        if self.new or not self.problems:
            rows = [
                {
                    "test": str(job.test), "job": job.name, "nodes": job.test.nodes,
                    "GPUs per node": self.site.gpus_for(job.test), "max. minutes": -(-job.test.time_limit // 60),
                }
                for job, _ in self.new
            ]  # fmt: skip
            shown += display.table(rows, empty="Nothing new to submit: all these tests have been submitted already.")
        for path, text in self.new[0][1].items() if self.new else ():
            shown += display.code(text, title=str(path))
        rows = [{"tests": join_first(names, 3), "omitted because": reason} for reason, names in self.left_out.items()]
        return shown + (display.note("Left out:") + display.table(rows) if rows else display.View("", ""))


def read_facts(branch: BumpBranch, site: Site, tests: str, again: str, slurm: Slurm | None = None) -> SlurmFacts:
    """Return the tests of the branch's commit, and what the cluster and the results folder know about them.

    ``tests`` and ``again`` are words that select tests: all, and those to submit once more.  Raises Refused for a test
    that does not exist or is still running.
    """
    bump, facts = branch.bump, SlurmFacts(branch, site, slurm or Slurm())
    idle = "" if bump.repository.tests.recipes else f"{bump.repository.name} has no test recipes."
    if not site.results or idle:
        return replace(facts, idle=idle or _NO_RESULTS)
    selected, texts, unreadable = selection.read_commit_tests(branch, site, tests)
    warnings = [*branch.warnings, *unreadable]
    if bump.tag is not None and branch.tip is None:
        source = f"the tests and golden values are from {bump.base} at {branch.start[:10]}"
        warnings.append(f"Branch {bump.branch} does not exist yet: {source}.")
    facts = replace(facts, tests=selected, texts=texts, warnings=tuple(warnings))
    facts = replace(facts, seen=facts.attempts())
    new = _to_submit(facts, again)
    return _with_jobs(facts, new) if new else facts


def _to_submit(facts: SlurmFacts, again: str) -> list[SelectedTest]:
    """Return the tests not submitted yet, and those that ``again`` names.

    Raises Refused for a word that matches no test, and for a test that is still waiting or running.
    """
    words = set(again.replace(",", " ").split())
    runnable = {entry.test.name: entry for entry in facts.tests if not entry.obstacle}
    names = {name: {name, entry.test.case, f"{entry.test.model}/{entry.test.case}"} for name, entry in runnable.items()}
    if unknown := words - {"failed"}.union(*names.values()):
        raise Refused(f"jobs names {', '.join(sorted(unknown))}, not among the chosen tests.")
    newest = {job.test.name: job for job in facts.seen}
    submitted = [job for name, job in newest.items() if name in runnable and job.id is not None]
    new = runnable.keys() - {job.test.name for job in submitted}
    unfinished = []
    for observed in jobs.poll(facts.slurm, submitted, {}) if words else ():
        job, word = observed.job, conclude(observed, facts.texts).word
        is_named = bool(names[job.test.name] & words)
        if is_named and not observed.over:
            unfinished.append(f"{job.test} (job {job.id})")
        elif is_named or ("failed" in words and word in ("failed", "unknown")):
            new.add(job.test.name)
    if unfinished:
        advice = "Wait until they finish, or end them with `-r jobs cancel`; then run again."
        raise Refused(f"jobs names unfinished tests: {', '.join(unfinished)}. {advice}")
    return [entry for name, entry in runnable.items() if name in new]


def _with_jobs(facts: SlurmFacts, new: Sequence[SelectedTest]) -> SlurmFacts:
    """Add jobs for the new tests, except those that cannot run on the cluster.  If none can, that is a problem."""
    problems, warnings = site_problems(facts.site)
    warnings += _work_tree_warnings(facts.branch, facts.site)
    planned, obstacles = [], {}
    refusals: dict[tuple[int, int, int], str] = {}  # by what is requested of Slurm
    try:
        if facts.site.image and not facts.slurm.runs_containers():
            problems.append(f"{facts.site.image} cannot be run. {TABLE['missing']['pyxis']}")
        for entry in new:
            test = entry.test
            missing = unmounted(facts.site, test, facts.texts.get(selection.config_of(test)) or "")
            job, texts = _plan_job(facts, entry)
            needed = (test.nodes, test.gpus, test.time_limit)
            if not missing and needed not in refusals:
                refusal = facts.slurm.refusal(next(iter(texts.values())))
                refusals[needed] = f"{refusal} {_ADVICE}" if refusal else ""
            if obstacle := missing or refusals[needed]:
                obstacles[test.name] = obstacle
            else:
                planned.append((job, texts))
    except RunbookError as error:
        problems.append(str(error))
    if len(obstacles) == len(new):
        problems[:0] = dict.fromkeys(obstacles.values())
    tests = tuple(replace(it, obstacle=it.obstacle or obstacles.get(it.test.name, "")) for it in facts.tests)
    return replace(facts, tests=tests, new=planned, problems=tuple(problems), warnings=(*facts.warnings, *warnings))


def _plan_job(facts: SlurmFacts, entry: SelectedTest) -> tuple[SlurmJob, Mapping[Path, str]]:
    """Return a test's next attempt with its files; one that was not submitted is planned again."""
    earlier = jobs.attempts(facts.folder, entry.test)
    number = 1 + sum(job.id is not None for job in earlier)
    folder = facts.folder / entry.test.name / str(number)
    return SlurmJob(entry.test, folder), job_files(entry.test, entry.connections, facts.site, folder, facts.tree)


def _work_tree_warnings(branch: BumpBranch, site: Site) -> list[str]:
    if site.image or branch.checkout.bare:
        return []
    head = branch.checkout.resolve("HEAD")
    if head == branch.start and not branch.checkout.uncommitted(["."]):
        return []
    state = f"currently at {head[:10]} with its uncommitted changes, not at {branch.start[:10]}"
    return [f"Without an image the tests run in {site.checkout} as it is when they start: {state}."]
