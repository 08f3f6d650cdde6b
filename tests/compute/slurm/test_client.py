"""Jobs submitted to a real Slurm of two nodes, and followed, also while it fails."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, cluster
from slurm_runs import SITE, CountingSlurm, plan, run
from stand_ins import stand_in
from waiting import wait_until

from runbook_lib.compute.slurm import jobs
from runbook_lib.compute.slurm.client import QueuedJob, Slurm, queued_jobs
from runbook_lib.compute.slurm.jobs import GONE, SlurmJob
from runbook_lib.errors import CannotTell, Refused, RunbookError, Unreachable

GOLDEN = '{"lm loss": {"start_step": 1, "end_step": 1, "step_interval": 1, "values": {"1": 10.5}}}'
needs_slurm = pytest.mark.component("slurm")


@pytest.fixture
def slurm(real: Cluster) -> CountingSlurm:
    return CountingSlurm({**os.environ, **real.environment})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n", ()),
        ("7   |FAILED |NonZeroExitCode |a|b \n", (QueuedJob("a|b", 7, "FAILED", "NonZeroExitCode"),)),
        ("7 |A_NEW_STATE |None |n\n8|PENDING|Priority|", (
            QueuedJob("n", 7, "A_NEW_STATE"), QueuedJob("", 8, "PENDING", "Priority"),
        )),
    ],
)  # fmt: skip
def test_the_queue_is_read(text: str, expected: tuple[QueuedJob, ...]) -> None:
    assert queued_jobs(text) == expected
    with pytest.raises(CannotTell, match="not the fields"):
        queued_jobs("Invalid field requested\n")


# -- without a cluster -------------------------------------------------------------------------------------------


def test_a_machine_without_slurm_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunbookError, match="Run this where jobs are submitted"):
        Slurm({"PATH": str(tmp_path)}).queue()


@pytest.mark.parametrize(
    "said",
    [
        "sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host sinfo: error: fetch_config: DNS SRV "
        "lookup failed sinfo: fatal: Could not establish a configuration source",
        "sinfo: error: ClusterName needs to be specified sinfo: fatal: Unable to process configuration file",
    ],
)
def test_a_machine_outside_a_cluster_is_reported(tmp_path: Path, said: str) -> None:
    stand_in(tmp_path, "squeue", f"echo '{said}' >&2; exit 1")
    with pytest.raises(
        RunbookError, match=r"no settings of a cluster on this machine .* on a login node of the cluster"
    ):
        Slurm({"PATH": f"{tmp_path}:/bin:/usr/bin"}).queue()


def test_a_token_that_is_not_passed_on_is_reported(tmp_path: Path) -> None:
    stand_in(tmp_path, "squeue", 'echo "authentication failure${SLURM_JWT}" >&2; exit 1')
    for given, told in (({}, "failure."), ({"SLURM_JWT": "e30.e30.c2ln"}, "failure. SLURM_JWT is not passed on")):
        with pytest.raises(Refused) as error:
            Slurm({"PATH": f"{tmp_path}:/bin:/usr/bin", **given}).queue()
        assert told in str(error.value)
        assert "e30" not in str(error.value)


def test_secrets_and_variables_of_slurm_and_of_this_program_stay_behind(tmp_path: Path) -> None:
    """Jobs would see them, and Slurm's would override what was shown."""
    stand_in(tmp_path, "squeue", f"/usr/bin/env >{tmp_path}/told\nexit 1")
    kept = {"SLURM_CONF": "/c", "SLURM_CONF_SERVER": "h", "SLURMX": "1", "MY_SBATCH_X": "1"}
    lost = {f"{it}_X": "1" for it in ("SBATCH", "SLURM", "SCANCEL", "SQUEUE", "SINFO", "SACCT", "SRUN", "JPY")}
    lost |= {"GITHUB_TOKEN": "ghp_" + "a" * 36, "PROXY": "http://me:secret@proxy", "VIRTUAL_ENV": sys.prefix}
    ours = {"PATH": f"{sys.prefix}/bin:{Path(sys.prefix).parent}/bin:{tmp_path}"}
    with pytest.raises(Refused):
        Slurm({**kept, **lost, **ours}).queue()
    told = dict(it.partition("=")[::2] for it in (tmp_path / "told").read_text().splitlines())
    assert kept.items() <= told.items()
    assert told["PATH"] == str(tmp_path)
    assert not lost.keys() & told.keys()


# -- with one ----------------------------------------------------------------------------------------------------


@needs_slurm
def test_tests_run_over_two_nodes_and_each_poll_is_one_request(slurm: CountingSlurm, tmp_path: Path) -> None:
    scripts = {
        "good": 'echo "$SLURMD_NODENAME of $NNODES, $MASTER_ADDR" > "$LOGS/$NODE_RANK"; echo hello',
        "bad": 'echo "it broke" >&2; exit 3',
        "empty": "true",
    }
    found = run(slurm, plan(tmp_path, scripts, nodes=2))
    states = {name: job.state for name, job in found.items()}
    assert states == {"good": "COMPLETED", "bad": "FAILED", "empty": "COMPLETED"}
    assert found["bad"].code  # 3, or that of the node that was ended for it
    logs = found["good"].folder / "assets/logs/1"
    assert [(logs / rank).read_text() for rank in "01"] == ["node1 of 2, node1\n", "node2 of 2, node1\n"]
    assert (found["good"].folder / "node-0.out.log").read_text() == "hello\n"
    # The node that broke first ends the other, which may not have come to say so.
    assert "it broke\n" in {(found["bad"].folder / f"node-{rank}.err.log").read_text() for rank in "01"}
    assert (slurm.calls.count("sbatch"), slurm.calls.count("scancel")) == (3, 0)
    started, before = list(found.values()), len(slurm.calls)
    jobs.poll(slurm, started)  # what the jobs wrote needs no query
    assert len(slurm.calls) == before
    for job in started:
        (job.folder / "ended").unlink()
    jobs.poll(slurm, started)
    assert len(slurm.calls) == before + 1


@needs_slurm
def test_a_test_ends_as_soon_as_its_values_are_complete(slurm: CountingSlurm, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = (
        f"f=$LOGS/../../golden.json; printf '%s' '{GOLDEN[:30]}' > \"$f\"; "
        f"while [ ! -e {go} ]; do sleep 0.1; done; printf '%s' '{GOLDEN}' > \"$f\"; sleep 60"
    )
    planned = plan(tmp_path, {"a": script})
    is_written = (planned[0].folder / "assets/golden.json").exists
    assert run(slurm, planned, early=True, until=lambda _: is_written())["a"].state == "RUNNING"
    go.touch()
    found = run(slurm, planned, early=True)
    assert (found["a"].state, found["a"].code) == ("COMPLETED", None)
    assert run(slurm, planned)["a"].state == "COMPLETED"  # and it is known after a restart


def test_a_controller_that_stays_away_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("squeue", "sbatch"):
        stand_in(tmp_path, name, "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    slurm = Slurm({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    planned = plan(tmp_path, {"a": "true"})
    job = planned[0]
    with pytest.raises(Unreachable, match="controller cannot be reached"):
        list(jobs.submit(slurm, planned, SITE, lambda _: None))
    assert capsys.readouterr().out.count("Trying again") > 5
    assert jobs.attempts(tmp_path, job.entry) == ()
    with pytest.raises(Unreachable):
        jobs.follow(slurm, [replace(job, id=3)], sleep=lambda _: None)


class Scripted(Slurm):
    """Slurm whose answers are written here."""

    def __init__(self, *answers: object) -> None:
        super().__init__({})
        self.answers, self.submissions = list(answers), 0

    def submit(self, path: str) -> int:
        self.submissions += 1
        return self._answer()  # type: ignore[no-any-return]

    def queue(self) -> tuple[QueuedJob, ...]:
        return self._answer()  # type: ignore[no-any-return]

    def _answer(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("listed", [True, False])
def test_a_job_with_a_lost_answer_is_searched_for_before_resubmission(tmp_path: Path, listed: bool) -> None:
    planned, away = plan(tmp_path, {"a": "true"}), Unreachable("no answer")
    answers = [away, (), (QueuedJob(planned[0].name, 7, "PENDING"),)] if listed else [(), (), (), 7]
    slurm = Scripted((), away, *answers)
    (job,) = jobs.submit(slurm, planned, SITE, lambda _: None)
    assert (job.id, slurm.submissions) == (7, 1 if listed else 2)


def test_a_job_that_nothing_is_known_of_is_gone_after_a_while(tmp_path: Path) -> None:
    """Slurm gave its number to another job, so the name decides."""
    (job,) = plan(tmp_path, {"a": "true"})
    slurm = Scripted(*[(QueuedJob("another", 7, "RUNNING"),)] * 2)
    job.folder.mkdir(parents=True)
    (job.folder / "job").write_text("7\n")
    (now,) = jobs.poll(slurm, [replace(job, id=7)])
    assert (now.state, now.word, now.over) == ("", "submitted", False)
    os.utime(job.folder / "job", (0, 0))
    assert [test.state for test in jobs.poll(slurm, [replace(job, id=7)])] == [GONE]


# -- a Slurm that fails: its controller away, a node lost, and what has ended forgotten ---------------------------


@needs_slurm
def test_a_controller_that_is_away_for_a_while(
    real: Cluster, slurm: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = plan(tmp_path, {"a": "sleep 1", "b": "true"})
    started = list(jobs.submit(slurm, planned[:1], SITE))
    real.end("slurmctld")

    def sleep(_: float) -> None:
        if "slurmctld" not in real.running:
            real.start_controller()
        time.sleep(0.2)

    with pytest.raises(Unreachable, match="controller cannot be reached"):
        slurm.queue()
    started += jobs.submit(slurm, planned[1:], SITE, sleep)
    assert len({job.id for job in started}) == 2
    assert "Trying again" in capsys.readouterr().out
    tests = jobs.follow(slurm, started, sleep=sleep)
    assert [test.state for test in tests] == ["COMPLETED", "COMPLETED"]


def begun(slurm: Slurm, base: Path) -> list[SlurmJob]:
    """Submit a test that runs on both nodes, and wait until it does."""
    planned = plan(base, {"a": 'touch "$LOGS/$NODE_RANK"; sleep 60'}, nodes=2)
    logs = [planned[0].folder / "assets/logs/1" / rank for rank in "01"]
    run(slurm, planned, until=lambda _: all(log.exists() for log in logs))
    return planned


@needs_slurm
def test_a_preempted_test_is_not_started_again(tmp_path: Path) -> None:
    with cluster(urgent=True) as made:
        slurm = Slurm({**os.environ, **made.environment})
        planned = begun(slurm, tmp_path)
        made.ask("sbatch", "-p", "urgent", "-N2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")
        for _ in range(2):  # it is known after a restart too
            assert run(slurm, planned)["a"].state == "PREEMPTED"


@needs_slurm
def test_a_lost_node(tmp_path: Path) -> None:
    with cluster(lost_after=3) as real:
        slurm = Slurm({**os.environ, **real.environment})
        planned = begun(slurm, tmp_path)
        real.end("node2", signal.SIGKILL)
        for _ in range(2):
            found = run(slurm, planned)
            assert (found["a"].state, found["a"].word) == ("NODE_FAIL", "node fail")


@needs_slurm
def test_a_controller_that_forgets_finished_jobs_immediately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SILENCE", 3.0)
    with cluster(age=2) as short:
        slurm = Slurm({**os.environ, **short.environment})
        planned = plan(tmp_path, {"a": "true", "b": "sleep 60", "c": "kill -9 $PPID"})
        found = run(slurm, planned, until=lambda tests: tests[1].state == "RUNNING" and tests[0].over)
        slurm.cancel([found["b"].id or 0])
        wait_until(lambda: not slurm.queue())
        found = run(slurm, planned)
        assert found["a"].state == "COMPLETED"
        assert found["b"].state == "CANCELLED"  # Slurm wrote so into its log
        assert found["c"].state in ("FAILED", GONE)
