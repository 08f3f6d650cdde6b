"""Arrays submitted to a real Slurm of two nodes, and followed."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_cluster import Cluster, cluster
from slurm_runs import nap, plan, run

from runbook_lib.compute.slurm import rounds
from runbook_lib.compute.slurm.client import ArrayElement, Slurm
from runbook_lib.compute.slurm.follow import GONE, Follower, ObservedTest, cancel, follow, saved_state, submit
from runbook_lib.errors import Refused, RunbookError, Unreachable

GOLDEN = '{"lm loss": {"start_step": 1, "end_step": 1, "step_interval": 1, "values": {"1": 10.5}}}'
needs_slurm = pytest.mark.component("slurm")


@pytest.fixture(scope="module")
def real() -> Iterator[Cluster]:
    """A cluster for all tests here, which forgets ended jobs after an hour."""
    with cluster() as made:
        yield made


@pytest.fixture
def slurm(real: Cluster) -> Slurm:
    return Slurm({**os.environ, **real.environment})


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
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho '{said}' >&2; exit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    with pytest.raises(
        RunbookError, match=r"no settings of a cluster on this machine .* on a login node of the cluster"
    ):
        Slurm({"PATH": f"{tmp_path}:/bin:/usr/bin"}).partitions()


def test_a_token_that_is_not_passed_on_is_reported(tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text('#!/bin/sh\necho "authentication failure${SLURM_JWT}" >&2; exit 1\n')
    (tmp_path / "squeue").chmod(0o755)
    for given, told in (({}, "failure."), ({"SLURM_JWT": "e30.e30.c2ln"}, "failure. SLURM_JWT is not passed on")):
        with pytest.raises(Refused) as error:
            Slurm({"PATH": f"{tmp_path}:/bin:/usr/bin", **given}).queue()
        assert told in str(error.value)
        assert "e30" not in str(error.value)


def test_variables_of_slurm_and_of_this_program_stay_behind(tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n/usr/bin/env >{tmp_path}/told\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    kept = {"SLURM_CONF": "/c", "SLURM_CONF_SERVER": "h", "SLURMX": "1", "MY_SBATCH_X": "1"}
    lost = {f"{it}_X": "1" for it in ("SBATCH", "SLURM", "SCANCEL", "SQUEUE", "SINFO", "SACCT", "SRUN")}
    ours = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{Path(sys.prefix).parent}/bin:{tmp_path}"}
    with pytest.raises(Refused):
        Slurm({**kept, **lost, **ours}).queue()
    told = dict(it.partition("=")[::2] for it in (tmp_path / "told").read_text().splitlines())
    assert kept.items() <= told.items()
    assert told["PATH"] == str(tmp_path)
    assert not {*lost, "VIRTUAL_ENV"} & told.keys()


def test_an_empty_plan_makes_no_request(tmp_path: Path) -> None:
    slurm = Slurm({"PATH": str(tmp_path)})
    assert rounds.read(tmp_path) == ()
    assert follow(Follower(slurm, ()), wait=True) == ()
    assert slurm.calls.total() == 0


# -- with one ----------------------------------------------------------------------------------------------------


@needs_slurm
def test_a_matrix_runs_over_two_nodes(slurm: Slurm, tmp_path: Path) -> None:
    plan(tmp_path, {
        "good": 'echo "$SLURMD_NODENAME of $NNODES, $MASTER_ADDR" > "$LOGS/$NODE_RANK"; echo hello',
        "bad": 'echo "it broke" >&2; exit 3',
        "empty": "true",
    }, nodes=2)  # fmt: skip
    found = run(slurm, tmp_path)
    assert {name: it.state for name, it in found.items()} == {
        "good": "COMPLETED",
        "bad": "FAILED",
        "empty": "COMPLETED",
    }
    assert found["bad"].code  # 3, or that of the node that was ended for it
    logs = found["good"].entry.folder / "assets/logs/1"
    assert [(logs / rank).read_text() for rank in "01"] == ["node1 of 2, node1\n", "node2 of 2, node1\n"]
    assert (found["good"].entry.folder / "node-0.out.log").read_text() == "hello\n"
    # The node that broke first ends the other, which may not have come to say so.
    assert "it broke\n" in {(found["bad"].entry.folder / f"node-{rank}.err.log").read_text() for rank in "01"}
    assert (slurm.calls["sbatch"], slurm.calls["scancel"]) == (1, 0)


@needs_slurm
def test_each_poll_is_one_request_for_any_number_of_tests(slurm: Slurm, tmp_path: Path) -> None:
    plan(tmp_path, {f"t{i}": "true" for i in range(20)})
    (planned,) = rounds.read(tmp_path)
    done = submit(slurm, planned)
    assert len(done.entries) == 20
    follower = Follower(slurm, done.entries)
    while not all(it.over for it in follower.tests):
        before = slurm.calls.total()
        follower.poll()
        assert slurm.calls.total() - before <= 1
        nap(0)
    assert all(it.state == "COMPLETED" for it in follower.tests)


@needs_slurm
def test_a_submitted_job_is_never_submitted_again(slurm: Slurm, tmp_path: Path) -> None:
    (planned,) = plan(tmp_path, {"a": "sleep 60"})
    first = submit(slurm, planned)
    assert rounds.read(tmp_path) == (first,)
    assert submit(slurm, first) == first
    (first.folder / "job").unlink()  # as if we had been killed before noting the id
    assert submit(slurm, planned) == first
    slurm.cancel([(first.job or 0, None)])
    assert run(slurm, tmp_path)["a"].state == "CANCELLED"
    assert slurm.calls["sbatch"] == 1
    (first.folder / "job").unlink()
    assert submit(slurm, planned) == first  # ended, and known by its name
    assert slurm.calls["sbatch"] == 1


@needs_slurm
def test_a_test_ends_as_soon_as_its_values_are_complete(slurm: Slurm, tmp_path: Path) -> None:
    script = "f=$LOGS/../../golden.json; printf '%s' '" + GOLDEN[:30] + '\' > "$f"'
    go = tmp_path / "go"
    whole = f"while [ ! -e {go} ]; do sleep 0.1; done; printf '%s' '{GOLDEN}' > \"$f\"; sleep 60"
    plan(tmp_path, {"a": f"{script}; {whole}"})
    found = run(
        slurm, tmp_path, early=True, until=lambda tests: (tests[0].entry.folder / "assets/golden.json").exists()
    )
    assert found["a"].state == "RUNNING"
    go.touch()
    found = run(slurm, tmp_path, early=True)
    assert (found["a"].state, found["a"].early) == ("COMPLETED", True)
    assert run(slurm, tmp_path)["a"].early  # and it is known after a restart
    settle(slurm, found["a"])


def settle(slurm: Slurm, now: ObservedTest) -> None:
    """Wait until its job has left the node."""
    limit = time.monotonic() + 120
    while not all(it.over for it in slurm.queue() if it.job == now.entry.job):
        assert time.monotonic() < limit
        nap(0)


def test_a_controller_that_stays_away_is_an_error(tmp_path: Path) -> None:
    for name in ("squeue", "sbatch"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho 'Unable to contact slurm controller (connect failure)' >&2; exit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    slurm, said = Slurm({"PATH": f"{tmp_path}:/usr/bin:/bin"}), list[str]()
    (planned,) = plan(tmp_path, {"a": "true"})
    with pytest.raises(Unreachable, match="controller cannot be reached"):
        submit(slurm, planned, sleep=lambda _: None, say=lambda text: said.append(str(text)))
    assert len(said) > 5
    assert rounds.read(tmp_path)[0].job is None
    with pytest.raises(Unreachable):
        follow(Follower(slurm, replace(planned, job=3).entries), wait=True, sleep=lambda _: None, say=lambda _: None)


class Scripted(Slurm):
    """Slurm whose answers are written here; ``done`` is what it was told to do, in order."""

    def __init__(self, *answers: object) -> None:
        super().__init__({})
        self.answers, self.done, self.shown = list(answers), list[str](), tuple[ArrayElement, ...]()

    def submit(self, path: str) -> int:
        self.done.append("submit")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, int)
        return answer

    def queue(self) -> tuple[ArrayElement, ...]:
        self.done.append("queue")
        answer = self.answers.pop(0) if self.answers else self.shown
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, tuple)
        return answer

    def cancel(self, chosen: Iterable[tuple[int, int | None]]) -> None:
        self.done.append(f"cancel {list(chosen)}")
        if self.answers:
            raise Unreachable("away")


AWAY = Unreachable("no answer")


def test_an_array_with_a_lost_answer_is_searched_for_before_resubmission(tmp_path: Path) -> None:
    (planned,) = plan(tmp_path, {"a": "true"})
    listed = (ArrayElement(planned.name, 7, 0, "PENDING"),)
    slurm = Scripted((), AWAY, AWAY, (), listed)  # it is listed late
    assert submit(slurm, planned, sleep=lambda _: None, say=lambda _: None).job == 7
    assert slurm.done == ["queue", "submit", "queue", "queue", "queue"]
    (tmp_path / "1" / planned.name / "job").unlink()
    never = Scripted((), AWAY, (), (), (), 8)
    assert submit(never, planned, sleep=lambda _: None, say=lambda _: None).job == 8


def test_a_number_that_slurm_gave_to_another_job_is_not_the_test(tmp_path: Path) -> None:
    (planned,) = plan(tmp_path, {"a": "true"})
    slurm = Scripted()
    slurm.shown = (ArrayElement("another", 7, 0, "RUNNING"), ArrayElement("another", 7, None, "RUNNING"))
    follower = Follower(slurm, replace(planned, job=7).entries)
    for _ in range(20):
        follower.poll()
    assert [it.state for it in follower.tests] == [GONE]


def test_a_test_that_was_cancelled_before_it_began_is_known_by_its_mark(tmp_path: Path) -> None:
    (planned,) = plan(tmp_path, {"a": "true"})
    (entry,) = replace(planned, job=7).entries
    cancel(Scripted(), [entry])
    assert saved_state(entry).state == "CANCELLED"


def test_a_test_is_noted_as_over_after_it_was_ended(tmp_path: Path) -> None:
    (planned,) = plan(tmp_path, {"a": "true"})
    (entry,) = replace(planned, job=7).entries
    (entry.folder / "assets").mkdir()
    (entry.folder / "assets/golden.json").write_text(GOLDEN)
    running, ended = (ArrayElement(planned.name, 7, 0, it) for it in ("RUNNING", "CANCELLED"))
    slurm = Scripted((running,), "scancel is not answered")
    expected = {entry.test.name: ("golden.json",)}
    follower = Follower(slurm, [entry], expected, early=True)
    with pytest.raises(Unreachable):
        follower.poll()
    slurm.answers, slurm.shown = [], (ended,)  # it was heard all the same
    (now,) = follower.poll()
    assert (now.state, now.early) == ("COMPLETED", True)
    assert Follower(slurm, [entry], expected).poll()[0].early


@needs_slurm
def test_the_cluster_is_queried_for_partitions(slurm: Slurm) -> None:
    (partition,) = slurm.partitions()
    assert (partition.name, partition.seconds, partition.nodes, partition.gpus, partition.default) == (
        "batch", None, 2, 8, True,
    )  # fmt: skip


@needs_slurm
def test_exactly_the_shown_plan_is_submitted_in_any_environment(real: Cluster, tmp_path: Path) -> None:
    more = {"SBATCH_JOB_NAME": "x", "SBATCH_ARRAY_INX": "0-3", "SBATCH_PARTITION": "y", "SQUEUE_STATES": "FAILED"}
    slurm = Slurm({**os.environ, **real.environment, **more})
    (planned,) = plan(tmp_path, {"a": "true"})
    assert run(slurm, tmp_path)["a"].state == "COMPLETED"
    (job,) = {it.job for it in slurm.queue() if it.name == planned.name}
    assert [it.index for it in slurm.queue() if it.job == job] == [0]


@needs_slurm
def test_secrets_do_not_reach_a_job(real: Cluster, tmp_path: Path) -> None:
    env = {"GITHUB_TOKEN": "ghp_" + "a" * 36, "PROXY": "http://me:secret@proxy", "KEPT": "yes", "JPY_SESSION_NAME": "x"}
    plan(tmp_path, {"a": "env"})
    found = run(Slurm({**os.environ, **real.environment, **env}), tmp_path)
    told = (found["a"].entry.folder / "node-0.out.log").read_text()
    assert "KEPT=yes" in told
    assert not [name for name in ("GITHUB_TOKEN", "PROXY", "JPY_SESSION_NAME") if f"\n{name}=" in told]
