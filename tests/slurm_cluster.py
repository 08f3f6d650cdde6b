"""A real Slurm of two nodes on this machine, on loopback alone, ended with the test."""

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from runbook_lib.compute.slurm import jobs

NODES = ("node1", "node2")
_CONF = """\
ClusterName=practice
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer_batch
ReturnToService=2
SlurmdTimeout={lost_after}
SlurmctldTimeout=30
MessageTimeout={patience}
TCPTimeout=2
KillWait=1
MinJobAge={age}
GresTypes=gpu
PartitionName=batch Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP
"""
#: A partition whose jobs take the nodes of others, after a time of grace; and who waits again begins in some seconds.
_URGENT = """\
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=node1,node2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
#: Runs on the node itself what Pyxis would run in a container, with the name of its image.
_SRUN = """\
#!/bin/bash
[ "$1" != --help ] || {{ echo --container-image; exit; }}
for word; do
    case $word in
    --container-image=*) export IMAGE=$word ;;
    --container-* | --no-container-*) ;;
    *) words+=("$word") ;;
    esac
done
exec {srun} "${{words[@]}}"
"""


class Cluster:
    """Its folder and its processes by name.  ``environment`` makes the commands of Slurm talk to it."""

    def __init__(self, folder: Path, age: int, urgent: bool = False, lost_after: int = 60) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin/srun").write_text(_SRUN.format(srun=shutil.which("srun")))
        (folder / "bin/srun").chmod(0o755)
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        controller, *ports = _free_ports(1 + len(NODES))
        conf = _CONF.format(
            host=socket.gethostname(), controller=controller, folder=folder, user=getpass.getuser(), age=age,
            lost_after=lost_after, patience=min(lost_after - 1, 10),
        )  # fmt: skip
        for node, port in zip(NODES, ports, strict=True):
            conf += f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} "
            conf += "CPUs=64 RealMemory=1000 Gres=gpu:8 State=UNKNOWN\n"
            (folder / f"spool-{node}").mkdir()
        (folder / "state").mkdir()
        if urgent:
            conf = conf.replace("munge/socket\nCrypto", "munge/socket,cred_expire=5\nCrypto")
            conf = conf.replace("MaxTime=INFINITE State=UP", "MaxTime=INFINITE State=UP GraceTime=3") + _URGENT
        (folder / "slurm.conf").write_text(conf)
        devices = [folder / f"gpu{number}" for number in range(8)]
        for device in devices:
            device.touch()
        (folder / "gres.conf").write_text("".join(f"NodeName={n} Name=gpu File={d}\n" for n in NODES for d in devices))

    def up(self) -> None:
        """Start everything and wait until both nodes are idle."""
        munge = self.folder / "munge"
        munge.mkdir()
        munge.chmod(0o711)
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o600)
        files = [f"--{name}-file={munge / name}" for name in ("key", "log", "pid", "seed")]
        self._start("munged", "munged", "--foreground", "--force", f"--socket={munge / 'socket'}", *files)
        self.wait(lambda: (munge / "socket").exists(), "munged")
        self.start_controller("-c")
        for node in NODES:
            self._start(node, "slurmd", "-D", "-N", node)
        self.wait(lambda: self.ask("sinfo", "-h", "-o", "%T %D") == "idle 2", "nodes")

    def start_controller(self, *arguments: str) -> None:
        """The controller; with -c it forgets all jobs."""
        self._start("slurmctld", "slurmctld", "-D", *arguments)

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End one of the processes."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def down(self) -> None:
        """End everything."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.ask("scancel", "--full", "--me")
        for name in reversed(list(self.running)):
            self.end(name, signal.SIGKILL)  # nothing of it is needed again
        for pid in _children(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=100, env={**os.environ, **self.environment}
        )
        return done.stdout.strip()

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Until it is so."""
        limit = time.monotonic() + 120
        while not ready():
            dead = [name for name, process in self.running.items() if process.poll() is not None]
            assert not dead, self._logs(dead[0])
            assert time.monotonic() < limit, self._logs(what)
            time.sleep(0.05)

    def _start(self, name: str, *command: str) -> None:
        log = (self.folder / f"{name}.out").open("ab")
        path = os.environ["PATH"] + ":/usr/sbin"
        program = shutil.which(command[0], path=path) or command[0]
        self.running[name] = subprocess.Popen(
            [program, *command[1:]],
            stdout=log,
            stderr=log,
            env={**os.environ, **self.environment, "PATH": path},
        )
        log.close()

    def _logs(self, what: str) -> str:
        told = [f"{what} is not there."]
        for log in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")]):
            told.append(f"{log.name}: {log.read_text(errors='replace')[-1500:]}")
        return "\n".join(told)


@contextlib.contextmanager
def cluster(age: int = 3600, *, urgent: bool = False, lost_after: int = 60) -> Iterator[Cluster]:
    """A cluster that is up.

    ``age``: seconds for which the controller remembers a job that has ended; ``urgent``: has a partition of
    that name, which takes the nodes of the other's jobs; ``lost_after``: seconds of silence after which a node is down
    and its jobs have failed, more than a busy machine ever keeps one waiting.
    """
    # A socket's path may have 107 characters, and pytest's folders are deep.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    made = Cluster(folder, age, urgent, lost_after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "INSIDE", "$HOME/checkout")  # each task has its own home
        try:
            made.up()
            yield made
        finally:
            made.down()
            shutil.rmtree(folder, ignore_errors=True)


def _children(folder: Path) -> list[int]:
    """Processes that name the cluster's folder in their environment: step daemons and the jobs' scripts."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("SLURM_CONF") == str(folder / "slurm.conf"):
                found.append(process.pid)
    return found


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket()) for _ in range(number)]
        for sock in bound:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in bound]
