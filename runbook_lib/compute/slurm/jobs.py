"""The jobs of a commit's tests: each is submitted once, and followed to its end.

``<results>/<commit>/<test>/<attempt>`` has a job's files, the ID assigned by Slurm, and how the job ended.  A test's
newest attempt counts: running it again makes another, so nothing is overwritten.  The files are written before the
submission and the ID right afterwards.  The job's name, unique for each folder, finds it in the queue between the two.

A poll costs at most one query of the scheduler, regardless of the number of tests.  What a job wrote needs none: how
it ended, and what Slurm noted in its log.

A job makes its first node the master and starts one task per node, in a container of Pyxis.  Scripts of recipes edit
the files that they read, so each node unpacks the planned commit for itself, and the checkout may change before.
Source: ``skills/mcore-run-on-slurm`` of Megatron-LM; options of Pyxis as printed by ``srun --help`` on such a cluster.
"""

import hashlib
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from runbook_lib.compute.slurm.client import OVER, QueuedJob, Slurm
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.workloads import VARIABLE
from runbook_lib.golden.values import MAX_BYTES, BadGoldenFile, parse
from runbook_lib.world import polling
from runbook_lib.world.machine import files

#: The folder in which the scripts of the recipes expect the checkout.
INSIDE = "/opt/megatron-lm"
#: The names of the batch file, and of the archive of the tested commit, above the folders of the tests.
BATCH, TREE = "job.sbatch", "tree.tar"
#: Options by which a user decides how a node's processors are shared.
_SHARING = re.compile(r"--(?:exclusive|oversubscribe|cpus-per-(?:gpu|task)|mincpus|cores-per-socket)(?:=|$)")

#: Seconds without a sign of a job that the queue does not list: new jobs and files appear late.
SILENCE = 120.0
#: Queries of the queue for a job whose submission got no reply, before it is submitted again.
_QUERIES = 3
#: The state of a test if neither Slurm nor its own files show how it ended.
GONE = "GONE"
#: Messages that Slurm writes to a job's log when it ends the job, the most reliable first.
_LOG_SIGNS = (
    ("TIMEOUT", "DUE TO TIME LIMIT"), ("PREEMPTED", "DUE TO PREEMPTION"), ("NODE_FAIL", "DUE TO NODE FAILURE"),
    ("NODE_FAIL", "Node failure on"), ("NODE_FAIL", "srun: error: Task launch for"),
    ("OUT_OF_MEMORY", "oom_kill"), ("OUT_OF_MEMORY", "oom-kill"), ("CANCELLED", " CANCELLED AT "),
)  # fmt: skip
_LOG_TAIL = 16384  # bytes


@dataclass(frozen=True)
class SlurmJob:
    """An attempt of a test, with the folder of its results and its state at the last poll.

    ``id`` is None before it is submitted.  ``state`` is Slurm's word, GONE, or empty if the queue does not list it yet.
    """

    entry: SelectedTest
    folder: Path
    id: int | None = None
    state: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return str(self.entry.test)

    @property
    def name(self) -> str:
        """Its name in Slurm, unique among all folders: Slurm reuses job IDs."""
        digits = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        return f"runbook-{self.folder.parent.name[:100]}-{digits}"

    @property
    def code(self) -> int | None:
        """The exit status, written by the job itself at its end."""
        return number_in(self.folder / "ended")

    @property
    def over(self) -> bool:
        """True if the state no longer changes."""
        return self.state in OVER or self.state == GONE

    @property
    def word(self) -> str:
        """The state in plain words."""
        return self.state.lower().replace("_", " ") or "submitted"


def attempts(results: Path, entry: SelectedTest) -> tuple[SlurmJob, ...]:
    """Return the attempts of a test, the oldest first; only the newest may have no ID."""
    folder = results / entry.test.name
    numbers = sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal())
    return tuple(of_folder(entry, folder / str(number)) for number in numbers)


def of_folder(entry: SelectedTest, folder: Path) -> SlurmJob:
    """Return a test's job with its ID, written after its submission or by the job itself at its start."""
    number = number_in(folder / "job")
    return SlurmJob(entry, folder, number_in(folder / "started") if number is None else number)


def number_in(path: Path) -> int | None:
    """Return the number that a job or its submission wrote to a file; None if there is none."""
    text = "\n".join(last_lines(path, 200)).strip()
    return int(text) if text.isdecimal() else None


def job_files(job: SlurmJob, site: Site) -> dict[Path, str]:
    """Return the files of a test's job, by path, the batch file first.

    Raises CannotTell for a field of the recipe's script without a value.
    """
    test, connections, session = job.entry.test, job.entry.connections, site.session
    folder, results = job.folder, job.folder.parents[1]
    directives = {
        "job-name": job.name, "nodes": str(test.needs.nodes), "ntasks-per-node": "1",
        "gpus-per-node": str(test.needs.gpus) if site.gpus else "", "time": str(test.needs.minutes),
        "partition": session.partition, "account": session.account, "output": f"{folder}/job.log",
        "signal": "USR1@60",  # each Python process prints its stacks before the time limit (task.sh)
    }  # fmt: skip
    options = [f"--{option}={value}" for option, value in directives.items() if value]
    if not any(_SHARING.match(option) for option in site.options):
        options.append("--exclusive")  # else Slurm gives the processes of a node one processor together
    options.append("--no-requeue")  # a test that Slurm ended is submitted again by name
    lines = "\n".join(f"#SBATCH {option}" for option in (*options, *site.options))
    srun = shlex.join([*_container(site, results), "bash"])
    batch = _fill("job.sh", DIRECTIVES=lines, GPUS=str(test.needs.gpus), FOLDER=shlex.quote(str(folder)), SRUN=srun)
    variable = f"unset {VARIABLE}" if connections is None else f"export {VARIABLE}={connections}"
    task = _fill(
        "task.sh", TEST=" ".join(f"{test}, from {test.recipe}".split()),
        CONNECTIONS=variable, FOLDER=shlex.quote(str(folder)), TREE=shlex.quote(f"{results}/{TREE}"), INSIDE=INSIDE,
    )  # fmt: skip
    script = test.command(assets_dir=f"{folder}/assets", artifacts_dir=f"{folder}/artifacts", name=test.name)
    return {folder / BATCH: batch, folder / "task.sh": task, folder / "script.sh": f"{script.rstrip()}\n"}


def _container(site: Site, results: Path) -> list[str]:
    """Return the options of Pyxis.  Recipes' scripts delete files of the home, so it is not mounted."""
    mounts = ",".join([f"{results}:{results}", *site.mounts])
    return [
        f"--container-image={site.image}", f"--container-mounts={mounts}", "--container-writable",
        "--no-container-mount-home",
    ]  # fmt: skip


def _fill(name: str, **values: str) -> str:
    """Return a shell template of this package with its placeholders ``@NAME@`` replaced."""
    template = resources.files("runbook_lib.compute.slurm").joinpath(name).read_text("utf-8")
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], template)


def submit(
    slurm: Slurm, jobs: Iterable[SlurmJob], site: Site, sleep: Callable[[float], None] = time.sleep
) -> Iterator[SlurmJob]:
    """Write the files of each job, submit it unless the queue has it already, and yield it with its ID.

    An earlier submission may have been interrupted before the ID was written.  Raises Refused if Slurm rejects a job,
    and Unreachable if its controller stays down.
    """
    known = polling.patiently(lambda: _ids(slurm), sleep)
    for job in jobs:
        number = known.get(job.name)
        if number is None:
            for path, text in job_files(job, site).items():
                files.make_folder(path.parent)
                files.write(path, text)
            number = _submit(slurm, job, sleep)
        files.write(job.folder / "job", f"{number}\n")
        yield replace(job, id=number)


def _submit(slurm: Slurm, job: SlurmJob, sleep: Callable[[float], None]) -> int:
    queries = 0

    def attempt() -> int:
        nonlocal queries
        for _ in range(queries):  # after a call without a reply Slurm may have accepted the job
            if number := _ids(slurm).get(job.name):
                return number
            sleep(polling.PAUSE)
        queries = _QUERIES
        return slurm.submit(str(job.folder / BATCH))

    return polling.patiently(attempt, sleep)


def _ids(slurm: Slurm) -> dict[str, int]:
    return {job.name: job.id for job in slurm.queue()}


def cancel(slurm: Slurm, jobs: Sequence[SlurmJob]) -> None:
    """Ask Slurm to end jobs, and write their IDs down, which only the queue may have had."""
    for job in jobs:
        files.write(job.folder / "job", f"{job.id}\n")
    slurm.cancel(job.id for job in jobs if job.id is not None)


def poll(slurm: Slurm, jobs: Iterable[SlurmJob], *, early: bool = False) -> tuple[SlurmJob, ...]:
    """Return the jobs in their state, found by their names.  Raises Unreachable if Slurm's controller is down.

    With ``early`` a test is cancelled as soon as all of its golden files are complete.
    """
    found = list(map(saved_state, jobs))
    if not all(job.over for job in found):
        listed = {queued.name: queued for queued in slurm.queue()}
        found = [job if job.over else _updated(job, listed.get(job.name)) for job in found]
    if early and (complete := [job for job in found if job.state == "RUNNING" and _has_values(job)]):
        cancel(slurm, complete)
    for number, job in enumerate(found):
        if job.state == "CANCELLED" and _has_values(job):  # after it had written its golden values
            found[number] = replace(job, state="COMPLETED", reason="")
    return tuple(found)


def saved_state(job: SlurmJob) -> SlurmJob:
    """Return a job in the final state that it wrote itself, or in none."""
    code = job.code
    state = (_state_in_log(job.folder) or "FAILED") if code else "COMPLETED"
    return replace(job, state="" if code is None else state)


def _updated(job: SlurmJob, found: QueuedJob | None) -> SlurmJob:
    if found:
        state = found.state if found.state in (*OVER, "PENDING", "COMPLETING") else "RUNNING"
        return replace(job, id=found.id, state=state, reason=found.reason)
    paths = [job.folder / name for name in ("job", "started", "job.log")]
    if time.time() - max((path.stat().st_mtime for path in paths if path.exists()), default=0) < SILENCE:
        return job
    return replace(job, state=_state_in_log(job.folder) or GONE)


def _has_values(job: SlurmJob) -> bool:
    """Return True if all golden files that a test should write are written to their last byte."""
    try:
        for name in job.entry.golden:
            with (job.folder / "assets" / name).open("rb") as file:
                if parse(file.read(MAX_BYTES + 1)).blank:
                    return False
    except (OSError, BadGoldenFile):
        return False
    return bool(job.entry.golden)


def follow(
    slurm: Slurm, jobs: Sequence[SlurmJob], sleep: Callable[[float], None] = time.sleep, *, early: bool = False
) -> tuple[SlurmJob, ...]:
    """Return the jobs in their final state, after printing each change.  Raises Unreachable if Slurm stays away."""
    return polling.follow(
        lambda: poll(slurm, jobs, early=early),
        lambda found: polling.Observation(_counts(found), over=all(job.over for job in found)),
        sleep,
    )


def _counts(jobs: Iterable[SlurmJob]) -> str:
    """Return for example ``3 completed, 2 running``."""
    words = Counter(job.word for job in jobs)
    return ", ".join(f"{count} {word}" for word, count in sorted(words.items()))


def _state_in_log(folder: Path) -> str:
    """Return the state that Slurm wrote at the end of a job's log; empty if there is none."""
    tail = "\n".join(last_lines(folder / "job.log"))
    return next((state for state, sign in _LOG_SIGNS if sign in tail), "")


def last_lines(path: Path, size: int = _LOG_TAIL) -> list[str]:
    """Return the lines in the last bytes of a log; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
