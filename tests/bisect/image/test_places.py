"""What a run that has ended counts for: a value, an invalid point, or no evidence."""

import json
from pathlib import Path

import pytest

from runbook_lib.bisect.image.ledger import LedgerRun
from runbook_lib.bisect.image.places import RunEnd, judge
from runbook_lib.bisect.image.request import SearchOptions, parse
from runbook_lib.bisect.overlays import Overlay
from runbook_lib.bisect.search import Point
from runbook_lib.compute.slurm.site import Site
from runbook_lib.pins.bump import Bump

NCCL = Overlay("nccl", "2.29.7", "2.30.4", "nvidia-nccl-cu13==2.29.7", 3, "report")
REPORT = "runbook-overlay: nccl 2.29.7"


@pytest.mark.parametrize(
    ("metric", "end", "restored", "expected"),
    [
        ("exit", RunEnd(0, 1, "n", []), (), ("value", 1.0)),
        ("exit", RunEnd(1, 1, "n", []), (), ("value", 0.0)),
        ("exit", RunEnd(1, 1, "n", [], "the node failed"), (), ("lost", None)),
        ("exit", RunEnd(None, 0, "", [], "killed"), (), ("lost", None)),
        ("value lower", RunEnd(0, 1, "n", ["1.5 s", "took 2.5e1"]), (), ("value", 25.0)),
        ("value lower", RunEnd(0, 1, "n", ["12", REPORT, "done"]), (), ("value", 12.0)),
        ("value lower", RunEnd(0, 1, "n", ["nothing"]), (), ("lost", None)),
        ("value lower", RunEnd(1, 1, "n", ["12"]), (), ("lost", None)),
        ("value lower", RunEnd(0, 1, "n", ["1" + "9" * 400]), (), ("lost", None)),
        ("exit", RunEnd(0, 1, "n", [REPORT]), (NCCL,), ("value", 1.0)),
        ("exit", RunEnd(0, 1, "n", []), (NCCL,), ("invalid", None)),
        ("exit", RunEnd(86, 1, "n", ["runbook-invalid: nccl: pip"]), (NCCL,), ("invalid", None)),
        ("exit", RunEnd(1, 1, "n", [], "no container"), (NCCL,), ("lost", None)),
        ("iteration-time", RunEnd(1, 1, "n", []), (), ("value", 3.5)),
    ],
)
def test_an_ended_run(
    tmp_path: Path, metric: str, end: RunEnd, restored: tuple[Overlay, ...], expected: tuple[str, float | None]
) -> None:
    test = "gpt/a@dgx_h100" if metric == "iteration-time" else "true"
    request = parse(Bump.parse(tag="26.05-py3"), SearchOptions("26.04-py3", test, metric), Site("/c", ""))
    assert request is not None
    folder = tmp_path / "1/assets"
    folder.mkdir(parents=True)
    steps = {"start_step": 1, "end_step": 4, "step_interval": 1}
    values = {"iteration-time": {**steps, "values": {"1": 9, "2": 4, "3": 3, "4": 4}}}
    (folder / "golden_values_dev_dgx_h100.json").write_text(json.dumps(values))
    run = judge(request, LedgerRun(1, Point("26.05-py3"), "i"), restored, end, tmp_path)
    assert (run.outcome, run.value) == expected
