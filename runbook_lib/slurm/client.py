"""The commands of Slurm: submit, ask, cancel, and what the cluster has.

Each method is one call of one command, with a time limit.  Secrets of this environment are not passed on to jobs, nor
is this program's own Python: ``sbatch`` exports what it sees, and tests print their environment.  Variables of Slurm
stay behind too, since they count more than the directives of a batch file ("INPUT ENVIRONMENT VARIABLES" of its man
pages): what was shown is what is submitted.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping

from runbook_lib.containers.work.run import user_environment
from runbook_lib.errors import CannotTell, Refused, RunbookError, Unreachable
from runbook_lib.slurm.states import Element, Partition, elements, partitions
from runbook_lib.text.redact import Redactor

#: Seconds that a command may take; ``sbatch`` waits long for a controller that is busy.
LIMIT = 120.0
#: Variables of this notebook's own Python and kernel, which would lead those of a job astray.
_OWN = re.compile(r"RUNBOOK_|JPY_|(?:VIRTUAL_ENV|PYTHONPATH|PYTHONHOME|MPLBACKEND)$")
#: What would change what Slurm's commands do, without the place of its settings, by which the cluster is reached.
_SLURMS = re.compile(r"(?!SLURM_CONF(?:_SERVER)?$)(?:S(?:LURM|BATCH|RUN|ALLOC|CANCEL|QUEUE|INFO|ACCT|CONTROL)_)")
#: Programs that a cluster without accounts need not have.
_OF_ACCOUNTS = ("sacct", "sacctmgr")
#: What Slurm says while its controller or its accounts are away.
_AWAY = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection (?:refused|timed out|reset)|connect failure|"
    r"Zero Bytes were transmitted|slurm_persist_conn_open|[Tt]emporarily unavailable|Slurm controller not responding|"
    r"in standby mode|Address already in use|Transport endpoint"
)
#: What Slurm's commands say on a machine that belongs to no cluster.
_NO_CLUSTER = re.compile(r"[Cc]ould not establish a configuration source|Unable to (?:open|process) configuration file")
_NO_ACCOUNTS = re.compile(r"accounting storage is disabled|not running a supported accounting_storage|slurmdbd")


class Slurm:
    """Slurm as this machine reaches it.  ``calls`` counts the commands that were run, by name."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        hide = Redactor(env)
        kept = {
            name: value for name, value in user_environment(env).items()
            if not _OWN.match(name) and not _SLURMS.match(name) and hide.text(value) == value
        }  # fmt: skip
        self._env = kept | {"LC_ALL": "C"}
        # A job would see it, as it sees all that sbatch has.
        self._hint = " SLURM_JWT is not passed on to Slurm's commands: reach it by munge." if "SLURM_JWT" in env else ""
        self.calls: Counter[str] = Counter()

    def submit(self, path: str) -> int:
        """The id of the job that this batch file became.

        Raises Refused where Slurm does not take it, and Unreachable where nobody knows whether it did.
        """
        told = self._run("sbatch", "--parsable", path)
        found = re.match(r"\s*(\d{1,12})(?:;\S+)?\s*$", told)
        if found is None:
            raise Unreachable(f"sbatch took {path}, and printed no id of a job, but {told.strip()[:200]!r}.")
        return int(found[1])

    def queue(self) -> tuple[Element, ...]:
        """All elements of this person's arrays that the controller knows; those that ended long ago it forgets."""
        return elements(self._run("squeue", "--me", "--states=all", "--json"), "squeue --json")

    def accounts(self, jobs: Iterable[int]) -> tuple[Element, ...]:
        """What the accounts hold of these jobs.  Raises CannotTell where the cluster keeps none."""
        return elements(self._run("sacct", "--json", f"--jobs={','.join(map(str, jobs))}"), "sacct --json")

    def cancel(self, chosen: Iterable[tuple[int, int | None]]) -> None:
        """End these elements of arrays, or with None whole arrays; those that have ended already are left alone."""
        names = [f"{job}" if index is None else f"{job}_{index}" for job, index in chosen]
        for at in range(0, len(names), 500):  # a command's length is limited
            try:
                self._run("scancel", *names[at : at + 500])
            except Refused as error:
                if not re.search(r"Invalid job id|already completing or completed", str(error)):
                    raise

    def runs_containers(self) -> bool:
        """Whether ``srun`` has the options of Pyxis."""
        return "--container-image" in self._run("srun", "--help")

    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that this person sees."""
        told = self._run("sinfo", "--noheader", "--format=%P|%l|%D|%G")
        return partitions(told)

    def own_accounts(self) -> frozenset[str] | None:
        """The accounts that this person may charge; None where the cluster keeps none."""
        user = self._run("id", "-un").strip()
        try:
            told = self._run("sacctmgr", "-nP", "show", "assoc", f"user={user}", "format=account")
        except (CannotTell, Refused):
            return None
        return frozenset(told.split()) or None

    def _run(self, program: str, *arguments: str) -> str:
        self.calls[program] += 1
        try:
            done = subprocess.run(
                [program, *arguments], capture_output=True, timeout=LIMIT, check=False, env=self._env,
                stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except FileNotFoundError as error:
            if program in _OF_ACCOUNTS:
                raise CannotTell(f"{program} is not on this machine, so this cluster keeps no accounts.") from error
            raise RunbookError(
                f"{program} is not on this machine. Run this where jobs are submitted: on a login node of the cluster."
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Unreachable(f"{program} did not answer within {LIMIT:.0f} seconds.") from error
        except OSError as error:
            raise RunbookError(f"{program} could not be run ({error.strerror or error}).") from error
        said = " ".join(done.stderr.split())[:500]
        if done.returncode and _AWAY.search(said):
            raise Unreachable(f"Slurm's controller cannot be reached: {program} says {said!r}.")
        if _NO_ACCOUNTS.search(said) and not done.stdout.strip():
            raise CannotTell(f"This cluster keeps no accounts: {program} says {said!r}.")
        if done.returncode and _NO_CLUSTER.search(said):
            raise RunbookError(
                f"{program} finds no settings of a cluster on this machine ({said!r}). Run this where jobs are "
                "submitted: on a login node of the cluster, or where SLURM_CONF names its slurm.conf."
            )
        if done.returncode:
            raise Refused(
                f"{program} {' '.join(arguments)[:200]} failed with {done.returncode}: {said or 'no word'}.{self._hint}"
            )
        return done.stdout
