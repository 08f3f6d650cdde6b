"""The commands of Slurm and their answers: submit, query, cancel, and what it would reject.

Each method is one call of one command, with a time limit.  ``sbatch`` passes its environment on to jobs, and tests
print theirs, so secrets and this program's own Python are removed from it.  Variables of Slurm are removed too, since
they override the directives of a batch file ("INPUT ENVIRONMENT VARIABLES" in its man pages): what was shown is what
is submitted.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runbook_lib.compute.tasks import TABLE
from runbook_lib.errors import CannotTell, Refused, RunbookError, Unreachable
from runbook_lib.text.redact import Redactor
from runbook_lib.world.machine.subprocess_lines import user_environment

#: Final states of a job; all other states change.
OVER = frozenset({
    "COMPLETED", "FAILED", "TIMEOUT", "DEADLINE", "CANCELLED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED",
})  # fmt: skip
#: What ``squeue --Format`` prints of a job; the name comes last, because it may contain anything.
FIELDS = "JobID:20|,State:40|,Reason:200|,Name:300"


@dataclass(frozen=True)
class QueuedJob:
    """A job as the queue lists it: ``state`` is Slurm's word."""

    name: str
    id: int
    state: str
    reason: str = ""


def queued_jobs(text: str) -> tuple[QueuedJob, ...]:
    """Return the jobs in an answer of ``squeue`` with FIELDS.  Raises CannotTell for an answer of another form."""
    jobs = []
    for line in filter(str.strip, text.splitlines()):
        number, *fields = [field.strip() for field in line.split("|", 3)]
        if len(fields) != 3 or not re.fullmatch(r"[0-9]{1,18}", number):
            raise CannotTell(f"squeue printed {line[:200]!r}, not the fields that it was asked for.")
        state, reason, name = fields
        jobs.append(QueuedJob(name, int(number), state, "" if reason == "None" else reason))
    return tuple(jobs)


#: Time limits of commands in seconds; ``sbatch`` waits long for a busy controller.
LIMIT = 120.0
#: Variables of this notebook's Python and kernel, which would mislead a job's Python.
_KERNEL = re.compile(r"RUNBOOK_|JPY_|(?:VIRTUAL_ENV|PYTHONPATH|PYTHONHOME|MPLBACKEND)$")
#: Variables that change the behaviour of Slurm's commands, except those that locate its settings.
_SLURM = re.compile(r"(?!SLURM_CONF(?:_SERVER)?$)(?:S(?:LURM|BATCH|RUN|ALLOC|CANCEL|QUEUE|INFO|ACCT|CONTROL)_)")
#: Messages of Slurm while its controller is down.
_DOWN = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection (?:refused|timed out|reset)|connect failure|"
    r"Zero Bytes were transmitted|slurm_persist_conn_open|[Tt]emporarily unavailable|Slurm controller not responding|"
    r"in standby mode|Address already in use|Transport endpoint"
)
#: Messages of Slurm's commands on a machine that belongs to no cluster.
_NO_CLUSTER = re.compile(r"[Cc]ould not establish a configuration source|Unable to (?:open|process) configuration file")
_RETRY = "Run the same command again once Slurm responds: the jobs keep running, and the run will pick them up."


class Slurm:
    """Slurm as this machine reaches it."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        redactor = Redactor(env)
        self._env = {"LC_ALL": "C"}
        for name, value in user_environment(env).items():
            is_secret = redactor.text(value) != value
            if not (is_secret or _KERNEL.match(name) or _SLURM.match(name)):
                self._env.setdefault(name, value)
        self._hint = ""
        if "SLURM_JWT" in env:  # a job would see it, like every variable of sbatch
            self._hint = " SLURM_JWT is not passed on to Slurm's commands: authenticate with munge."

    def submit(self, path: str) -> int:
        """Submit a batch file and return the job ID.

        Raises Refused if Slurm rejects it, and Unreachable if it is unknown whether it was accepted.
        """
        output = self._run("sbatch", "--parsable", path)
        match = re.match(r"\s*(\d{1,12})(?:;\S+)?\s*$", output)
        if match is None:
            raise Unreachable(f"sbatch accepted {path} but printed no job ID: {output.strip()[:200]!r}.")
        return int(match[1])

    def queue(self) -> tuple[QueuedJob, ...]:
        """Return all jobs of this user known to the controller, which forgets old ones."""
        return queued_jobs(self._run("squeue", "--me", "--states=all", "--noheader", f"--Format={FIELDS}"))

    def cancel(self, ids: Iterable[int]) -> None:
        """Cancel these jobs; ended ones are left alone."""
        try:
            self._run("scancel", *map(str, ids))
        except Refused as error:
            if not re.search(r"Invalid job id|already completing or completed", str(error)):
                raise

    def require_containers(self) -> None:
        """Raise Refused unless ``srun`` has the options of Pyxis."""
        if "--container-image" not in self._run("srun", "--help"):
            raise Refused(TABLE["missing"]["pyxis"])

    def refusal(self, batch: str) -> str:
        """Return why Slurm would reject a batch file with this text; empty if it would accept it."""
        try:
            self._run("sbatch", "--test-only", text=batch)
        except Refused as error:
            return str(error)
        return ""

    def _run(self, program: str, *arguments: str, text: str = "") -> str:
        try:
            process = subprocess.run(
                [program, *arguments], capture_output=True, timeout=LIMIT, check=False, env=self._env, input=text,
                encoding="utf-8", errors="replace",
            )  # fmt: skip
        except FileNotFoundError as error:
            raise RunbookError(
                f"{program} is not installed on this machine.", "Run this where jobs are submitted: on a login node."
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Unreachable(f"{program} did not answer within {LIMIT:.0f} seconds.", _RETRY) from error
        except OSError as error:
            raise RunbookError(f"{program} could not be run ({error.strerror or error}).") from error
        message = " ".join(process.stderr.split())[:500]
        if process.returncode and _DOWN.search(message):
            raise Unreachable(f"Slurm's controller cannot be reached: {program} reports {message!r}.", _RETRY)
        if process.returncode and _NO_CLUSTER.search(message):
            raise RunbookError(
                f"{program} finds no settings of a cluster on this machine ({message!r}).",
                "Run this where you can submit jobs: on a login node of the cluster, or where SLURM_CONF names its "
                "slurm.conf.",
            )
        if process.returncode:
            command = f"{program} {' '.join(arguments)[:200]}"
            details = f"{message or 'no message'}.{self._hint}"
            raise Refused(f"{command} failed with exit status {process.returncode}: {details}")
        return process.stdout
