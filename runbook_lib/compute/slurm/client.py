"""The commands of Slurm: submit, query, cancel, and the cluster's partitions.

Each method is one call of one command, with a time limit.  ``sbatch`` passes its environment on to jobs, and tests
print theirs, so secrets and this program's own Python are removed from it.  Variables of Slurm are removed too, since
they override the directives of a batch file ("INPUT ENVIRONMENT VARIABLES" in its man pages): what was shown is what
is submitted.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping

from runbook_lib.compute.slurm.states import FIELDS, ArrayElement, Partition, elements, partitions
from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.system.environment import user_environment
from runbook_lib.text.redact import Redactor

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


class Slurm:
    """Slurm as this machine reaches it.  ``calls`` counts the commands that were run, by name."""

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
        self.calls: Counter[str] = Counter()

    def submit(self, path: str) -> int:
        """Submit a batch file and return the job ID.

        Raises Refused if Slurm rejects it, and Unreachable if it is unknown whether it was accepted.
        """
        output = self._run("sbatch", "--parsable", path)
        match = re.match(r"\s*(\d{1,12})(?:;\S+)?\s*$", output)
        if match is None:
            raise Unreachable(f"sbatch accepted {path} but printed no job ID: {output.strip()[:200]!r}.")
        return int(match[1])

    def queue(self) -> tuple[ArrayElement, ...]:
        """Return all elements of this user's arrays known to the controller, which forgets old ones."""
        return elements(self._run("squeue", "--me", "--states=all", "--array", "--noheader", f"--Format={FIELDS}"))

    def cancel(self, elements: Iterable[tuple[int, int | None]]) -> None:
        """Cancel these array elements, or with None as index complete arrays; ended elements are left alone."""
        names = [f"{job}_{index}".removesuffix("_None") for job, index in elements]
        for start in range(0, len(names), 500):  # a command's length is limited
            try:
                self._run("scancel", *names[start : start + 500])
            except Refused as error:
                if not re.search(r"Invalid job id|already completing or completed", str(error)):
                    raise

    def runs_containers(self) -> bool:
        """Return True if ``srun`` has the options of Pyxis."""
        return "--container-image" in self._run("srun", "--help")

    def has_program(self, name: str) -> bool:
        """Return True if this machine has a program."""
        return shutil.which(name, path=self._env.get("PATH")) is not None

    def partitions(self) -> tuple[Partition, ...]:
        """Return the partitions that this user sees."""
        return partitions(self._run("sinfo", "--noheader", "--format=%P|%l|%D|%G"))

    def _run(self, program: str, *arguments: str) -> str:
        self.calls[program] += 1
        try:
            process = subprocess.run(
                [program, *arguments], capture_output=True, timeout=LIMIT, check=False, env=self._env,
                stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except FileNotFoundError as error:
            raise RunbookError(
                f"{program} is not installed on this machine. Run this where jobs are submitted: on a login node."
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Unreachable(f"{program} did not answer within {LIMIT:.0f} seconds.") from error
        except OSError as error:
            raise RunbookError(f"{program} could not be run ({error.strerror or error}).") from error
        message = " ".join(process.stderr.split())[:500]
        if process.returncode and _DOWN.search(message):
            raise Unreachable(f"Slurm's controller cannot be reached: {program} reports {message!r}.")
        if process.returncode and _NO_CLUSTER.search(message):
            raise RunbookError(
                f"{program} finds no settings of a cluster on this machine ({message!r}). Run this where you can "
                "submit jobs: on a login node of the cluster, or where SLURM_CONF names its slurm.conf."
            )
        if process.returncode:
            command = f"{program} {' '.join(arguments)[:200]}"
            details = f"{message or 'no message'}.{self._hint}"
            raise Refused(f"{command} failed with exit status {process.returncode}: {details}")
        return process.stdout
