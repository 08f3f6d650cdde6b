"""What a run that has ended counts for: a value, an invalid point, or no evidence."""

import json
from pathlib import Path

import pytest

from runbook_lib.bisect.overlays import Overlay
from runbook_lib.bisect.places import LocalPlace, SlurmPlace, judge, parse
from runbook_lib.bisect.search import Point, Trial
from runbook_lib.compute.slurm.client import QueuedJob, Slurm
from runbook_lib.compute.slurm.jobs import SlurmJob
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Resources, Site
from runbook_lib.compute.workloads import Workload
from runbook_lib.pins.bump import Bump

NCCL = Overlay("nccl", "2.29.7", "2.30.4", "nvidia-nccl-cu13==2.29.7", "report", "2.29.7")
REPORT = "runbook-overlay: nccl 2.29.7"


@pytest.mark.parametrize(
    ("metric", "status", "lines", "problem", "overlay", "expected"),
    [
        ("exit", 0, [], "", None, ("value", 1.0)),
        ("exit", 1, [], "", None, ("value", 0.0)),
        ("exit", 1, [], "the node failed", None, ("lost", None)),
        ("exit", 125, [], "", None, ("lost", None)),
        ("value lower", 0, ["1.5 s", "took 2.5e1"], "", None, ("value", 25.0)),
        ("value lower", 0, ["12", REPORT, "done"], "", None, ("value", 12.0)),
        ("value lower", 0, ["nothing"], "", None, ("lost", None)),
        ("value lower", 1, ["12"], "", None, ("lost", None)),
        ("value lower", 0, ["1" + "9" * 400], "", None, ("lost", None)),
        ("exit", 0, [REPORT], "", NCCL, ("value", 1.0)),
        ("exit", 0, [], "", NCCL, ("invalid", None)),
        ("exit", 86, ["runbook-invalid: nccl: pip"], "it failed", NCCL, ("invalid", None)),
        ("exit", 1, [], "no container", NCCL, ("lost", None)),
        ("exit", 125, [], "", NCCL, ("lost", None)),
        ("iteration-time lower", 1, [], "", None, ("value", 3.5)),
    ],
)
def test_an_ended_run(
    tmp_path: Path, metric: str, status: int, lines: list[str], problem: str, overlay: Overlay | None,
    expected: tuple[str, float | None],
) -> None:  # fmt: skip
    test = "gpt/a@dgx_h100" if metric.startswith("iteration-time") else "true"
    request = parse(Bump.parse(tag="26.05-py3"), Site("/r"), "26.04-py3", test, metric)
    (tmp_path / "assets").mkdir()
    steps = {"start_step": 1, "end_step": 4, "step_interval": 1}
    values = {"iteration-time": {**steps, "values": {"1": 9, "2": 4, "3": 3, "4": 4}}}
    (tmp_path / "assets/golden_values_dev_dgx_h100.json").write_text(json.dumps(values))
    (tmp_path / "ended").write_text(f"{status}\n")
    (tmp_path / "node-0.out.log").write_text("\n".join(["runbook-started: n1", *lines]))
    run = judge(request, Trial(Point("26.05-py3"), number=1), overlay, tmp_path, problem)
    assert (run.outcome, run.value, run.node) == (*expected, "n1")


def test_the_time_limit_of_a_run_is_not_that_of_its_command(tmp_path: Path) -> None:
    request = parse(Bump.parse(tag="26.05-py3"), Site(str(tmp_path)), "26.04-py3", "exit 124 # {tag}")
    place, run = LocalPlace(request, tmp_path, tmp_path), Trial(Point("26.05-py3"), number=1)
    assert place.finish(run, None).value == 0.0
    (tmp_path / "runs/1/timeout").touch()
    assert place.finish(run, None).reason == "it took longer than 30 minutes"


JOB = SelectedTest(Workload("r", "bisect", "a", "dev", "any", (), Resources(1, 2, 1), "true"))


class OneJob(Slurm):
    """Slurm whose only job is in a state."""

    def __init__(self, place_of: Path, state: str) -> None:
        super().__init__({})
        self.folder, self.state, self.submitted = place_of, state, 0

    def submit(self, path: str) -> int:
        self.submitted += 1
        return 7

    def queue(self) -> tuple[QueuedJob, ...]:
        return (QueuedJob(SlurmJob(JOB, self.folder).name, 7, self.state),) if self.submitted else ()


@pytest.mark.parametrize(
    ("state", "log", "ended", "problem"),
    [
        ("COMPLETED", "runbook-started: n1\n", "0", ""),
        ("FAILED", "runbook-started: n1\n", "3", ""),
        ("FAILED", "", "125", "the container was not started (exit status 125): "),
        ("FAILED", "runbook-started: n1\n", "", "it was killed before it could report its exit status"),
        ("TIMEOUT", "runbook-started: n1\n", "", "it took longer than 30 minutes"),
        ("NODE_FAIL", "runbook-started: n1\n", "", "Slurm reports node fail for job 7"),
    ],
)
def test_the_end_of_a_job(tmp_path: Path, state: str, log: str, ended: str, problem: str) -> None:
    request = parse(Bump.parse(tag="26.05-py3"), Site(str(tmp_path)), "26.04-py3", "true")
    folder = tmp_path / "runs/1"
    folder.mkdir(parents=True)
    for name, text in {"node-0.out.log": log, "ended": ended}.items():
        (folder / name).write_text(text)
    slurm = OneJob(folder, state)
    place = SlurmPlace(request, tmp_path, slurm, JOB)
    run = Trial(Point("26.05-py3"), number=1, image="registry.example/a:26.05-py3")
    for _ in range(2):
        assert place.finish(run, None).reason == problem
        (folder / "job").unlink()  # as if it was killed before it noted the ID: known by its name
    assert slurm.submitted == 1
