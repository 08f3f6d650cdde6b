"""What a run on a Slurm cluster needs to know: its tests, their jobs, and what prevents them.  Writes nothing."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.compute.slurm import jobs, selection
from runbook_lib.compute.slurm.batch_files import BATCH, job_files
from runbook_lib.compute.slurm.client import Slurm
from runbook_lib.compute.slurm.jobs import SlurmJob
from runbook_lib.compute.slurm.outcome import conclude
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.tasks import TABLE
from runbook_lib.errors import Refused
from runbook_lib.world.bump_branch import BumpBranch

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
        return [job for entry in self.tests for job in jobs.attempts(self.folder, entry)]

    def submitted(self) -> list[SlurmJob]:
        """Return the newest submitted attempt of each chosen test."""
        return list({job.entry.test.name: job for job in self.attempts() if job.id is not None}.values())

    def texts(self, job: SlurmJob) -> Mapping[Path, str]:
        """Return the texts of a job's files."""
        return job_files(job.entry, self.site, job.folder, self.tree)

    def show(self) -> display.View:
        """Show the site, and the new jobs with the files of the first."""
        if self.idle:
            return display.note(self.idle)
        session = self.site.session
        shown = display.facts(
            commit=self.branch.start[:10], results=self.folder, image=self.site.image,
            partition=session.partition, account=session.account,
        )  # fmt: skip
        rows = []
        for job in self.new:
            test, gpus = job.entry.test, self.site.gpus_for(job.entry.test)
            row = {"test": str(job), "job": job.name, "nodes": test.nodes, "GPUs per node": gpus}
            rows.append({**row, "max. minutes": -(-test.time_limit // 60)})
        shown += display.table(rows, empty="Nothing new to submit: all these tests have been submitted already.")
        for job in self.new[:1]:
            for path, text in self.texts(job).items():
                shown += display.code(text, title=str(path))
        return shown


def read_facts(branch: BumpBranch, site: Site, tests: str, again: str, slurm: Slurm | None = None) -> SlurmFacts:
    """Return the tests of the branch's commit, and what the cluster and the results folder know about them.

    ``tests`` are words that select tests; ``again`` is ``failed`` or ``all``, for those of them to submit once more, or
    ``cancel``, which submits none.  Raises Refused for a test that does not exist, and if none can be submitted.
    """
    if again not in ("", "failed", "all", "cancel"):
        raise Refused(f"jobs={again!r} is not failed, all or cancel. Name the tests that it is for in tests.")
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
        over = [job for job in jobs.poll(facts.slurm, facts.seen) if job.over]
        left -= {it.entry.test.name for it in over if again == "all" or conclude(it).word in ("failed", "unknown")}
    new = [entry for entry in selected if not entry.obstacle and entry.test.name not in left]
    return _with_jobs(facts, new) if new or (selected and not facts.seen) else facts


def _with_jobs(facts: SlurmFacts, new: Sequence[SelectedTest]) -> SlurmFacts:
    """Add jobs for the new tests, except those that Slurm rejects.  Raises Refused if none can run."""
    planned, obstacles = [], {}
    refusals: dict[tuple[int, int, int], str] = {}  # by what is requested of Slurm
    if new and not facts.slurm.runs_containers():
        raise Refused(f"{facts.site.image} cannot be run. {TABLE['missing']['pyxis']}")
    for entry in new:
        test = entry.test
        number = 1 + sum(job.id is not None for job in jobs.attempts(facts.folder, entry))
        job = SlurmJob(entry, facts.folder / test.name / str(number))
        needed = (test.nodes, test.gpus, test.time_limit)
        if needed not in refusals:
            refusal = facts.slurm.refusal(facts.texts(job)[job.folder / BATCH])
            refusals[needed] = f"{refusal} {_ADVICE}" if refusal else ""
        if refusals[needed]:
            obstacles[test.name] = refusals[needed]
        else:
            planned.append(job)
    tests = tuple(replace(it, obstacle=it.obstacle or obstacles.get(it.test.name, "")) for it in facts.tests)
    used = [path for path in (facts.site.image, *(mount[0] for mount in facts.site.mounts)) if path.startswith("/")]
    missing = [path for path in used if not Path(path).exists()]
    warnings = [f"{path} does not exist on this machine; the nodes need it." for path in missing]
    facts = replace(facts, tests=tests, new=planned, warnings=(*facts.warnings, *warnings))
    if not planned:
        advice = " To follow those that were submitted before, name only them in tests." if facts.seen else ""
        raise Refused(f"Nothing can be submitted. {' '.join(facts.left_out)}{advice}")
    return facts
