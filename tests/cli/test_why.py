"""``runbook why``: exit status, JSON, rules."""

import json
from pathlib import Path

import pytest

from runbook_lib.cli.__main__ import main

OOM = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "x.py", line 3, in forward
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.
srun: error: n1: task 3: Exited with exit code 1
"""


@pytest.mark.parametrize(
    ("log", "status", "kind", "rank"),
    [
        (OOM, 0, "out of memory", 3),
        ("srun: error: n1: task 0: Exited with exit code 1\n", 2, "unknown", None),
        ("", 2, "unknown", None),
    ],
)
def test_a_log(
    log: str, status: int, kind: str, rank: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.log"
    path.write_text(log)
    assert main(["why", str(path), "--json"]) == status
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["class"], document["rank"]) == (1, kind, rank)
    assert document["cause"]
    assert set(document) >= {"advice", "confidence"}
    for clue in [*document["evidence"], *document["consequences"]]:
        assert set(clue) == {"file", "line", "text", "rule"}
    assert main(["why", str(path)]) == status
    assert kind in capsys.readouterr().out


def test_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(tmp_path)]) == 2
    assert "has no log" in capsys.readouterr().err
    assert main(["why", str(tmp_path / "missing.log")]) == 2
    assert main(["why"]) == 2


def test_the_classes_are_documented() -> None:
    from runbook_lib.failures.patterns import ADVICE

    text = (Path(__file__).parents[2] / "docs" / "root-causes.md").read_text()
    assert not [name for name in ADVICE if f"| {name} |" not in text]
