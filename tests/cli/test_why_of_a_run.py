"""``runbook why`` with the address of a run, a job or a pull request of the practice forge."""

import json
from collections.abc import Iterator

import pytest
from bumping import World, after_ci, world

from runbook_lib.cli.__main__ import main
from runbook_lib.golden import ci_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A bump whose first CI run has ended, with failed jobs."""
    with world(tmp_path_factory.mktemp("world"), after_ci) as made:
        yield made


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
