"""The commands of Slurm and their answers: submit, query, cancel, and the cluster's partitions.

Each method is one call of one command, with a time limit.  ``sbatch`` passes its environment on to jobs, and tests
print theirs, so secrets and this program's own Python are removed from it.  Variables of Slurm are removed too, since
they override the directives of a batch file ("INPUT ENVIRONMENT VARIABLES" in its man pages): what was shown is what
is submitted.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runbook_lib.errors import CannotTell, Refused, RunbookError, Unreachable
from runbook_lib.system.environment import user_environment
from runbook_lib.text.redact import Redactor

#: Final states of an element; all other states change.
OVER = frozenset({
    "COMPLETED", "FAILED", "TIMEOUT", "DEADLINE", "CANCELLED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED",
})  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,18}")
#: What ``squeue --Format`` prints of an element; the name comes last, because it may contain anything.
FIELDS = "ArrayJobID:20|,ArrayTaskID:20|,State:40|,exit_code:20|,Reason:200|,Name:300"


@dataclass(frozen=True)
class ArrayElement:
    """An element of an array.

    ``state`` is Slurm's word, ``code`` the exit status of an element that is over.
    """

    name: str
    job: int
    index: int
    state: str
    reason: str = ""
    code: int | None = None

    @property
    def over(self) -> bool:
        """True if the state no longer changes by itself."""
        return self.state in OVER


@dataclass(frozen=True)
class Partition:
    """A partition; ``seconds`` is its maximum time limit, None for none; ``gpus`` are per node, 0 if unknown."""

    name: str
    seconds: int | None
    nodes: int
    gpus: int
    default: bool = False


def elements(text: str) -> tuple[ArrayElement, ...]:
    """Return the elements of arrays in an answer of ``squeue --array`` with FIELDS, without other jobs.

    Raises CannotTell for an answer of another form.
    """
    result = []
    for line in filter(str.strip, text.splitlines()):
        fields = [field.strip() for field in line.split("|", 5)]
        if len(fields) != 6:
            raise CannotTell(f"squeue printed {line[:200]!r}, not the fields that it was asked for.")
        job, index, state, code, reason, name = fields
        if not (_NUMBER.fullmatch(job) and _NUMBER.fullmatch(index)):
            continue
        result.append(ArrayElement(
            name, int(job), int(index), state, reason if reason != "None" else "",
            _code(code) if state in OVER else None,
        ))  # fmt: skip
    return tuple(result)


def _code(text: str) -> int | None:
    """Return the exit status in a wait status, or in ``status:signal``; for a signal add 128, like shells."""
    status, _, signal = text.partition(":")
    if not _NUMBER.fullmatch(status):
        return None
    if signal:
        return 128 + int(signal) if _NUMBER.fullmatch(signal) and int(signal) else int(status)
    number = int(status)
    return 128 + (number & 127) if number & 127 else number >> 8


def partitions(text: str) -> tuple[Partition, ...]:
    """Return the partitions in ``sinfo --noheader --format=%P|%l|%D|%G``, which prints one line per kind of node."""
    result: dict[str, Partition] = {}
    for line in text.splitlines():
        if line.count("|") != 3:
            continue
        name, limit, nodes, gres = line.strip().split("|")
        bare = name.rstrip("*")
        previous = result.get(bare, Partition(bare, None, 0, 0))
        gpus = sum(map(int, re.findall(r"\bgpu(?::[\w.-]{1,60})?:(\d{1,4})\b", gres)))
        count = previous.nodes + int(re.sub(r"\D", "", nodes) or 0)
        result[bare] = Partition(bare, seconds(limit), count, max(previous.gpus, gpus), name.endswith("*"))
    return tuple(result.values())


def seconds(limit: str) -> int | None:
    """Return the seconds of a time limit ``[days-]hours:minutes:seconds``; None for ``infinite`` and other texts."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})", limit.strip())
    if match is None:
        return None
    days, hours, minutes, rest = map(int, match.groups("0"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


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
