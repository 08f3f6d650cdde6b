"""``runbook why``: exit status, JSON, rules; of a log, and of a run, a job or a pull request by its address."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bumping import World, after_ci, world

from runbook_lib.cli.__main__ import main
from runbook_lib.golden import ci_runs

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


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A bump whose first CI run has ended, with failed jobs."""
    with world(tmp_path_factory.mktemp("world"), after_ci) as made:
        yield made


@pytest.mark.slow
def test_the_causes_of_a_run_a_job_and_a_pull_request(
    at: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "practice-token")
    monkeypatch.setenv("GITHUB_API_URL", at.served.url)
    github = at.online()
    run = ci_runs.find_run(github, "#10").run
    failed = ci_runs.failed(github.jobs(run.id))

    def why(place: str) -> tuple[int, dict[str, object]]:
        capsys.readouterr()
        status = main(["why", place, "--json"])
        return status, json.loads(capsys.readouterr().out)

    status, of_run = why(run.url)
    jobs = of_run["jobs"]
    assert isinstance(jobs, list)
    assert (status, of_run["version"], len(jobs)) == (0, 1, len(failed))
    assert why(github.pull(10).url) == (status, of_run)
    for job in failed:
        status, of_job = why(job.url)
        assert status == (2 if of_job["class"] == "unknown" else 0)
        assert of_job["cause"]
        assert of_job.pop("version") == 1
        assert of_job in jobs
    passed = next(job for job in github.jobs(run.id) if job.conclusion == "success")
    assert why(passed.url)[0] == 2
    assert main(["why", f"{run.url}9"]) == 2
    assert "https://" not in capsys.readouterr().out
