"""Searches carried out by a command, and in containers of this machine; never a run twice."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from bisect_world import PYTHON, TEST, World, kill_search

from runbook_lib.bisect import step
from runbook_lib.bisect.search import Conclusion, Trial
from runbook_lib.errors import CannotTell
from runbook_lib.practice.registry import PracticeRegistry


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_preview_writes_and_runs_nothing(world: World) -> None:
    plan = world.plan(apply=False)
    text = plan.show().text
    assert "26.03-py3" in text
    assert "40" in text
    assert "test.sh 26.06-py3" in text
    _, told = world.go(plan)
    assert not (world.folder / "results").exists()
    assert told["effects"] == []


def test_the_ends_are_asked_for_even_if_they_are_not_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Release candidates are left out in between alone."""
    monkeypatch.setattr(PracticeRegistry, "tags", lambda _: ["26.05-py3"])
    assert list(world.plan().ledger.images) == ["26.03-py3", "26.05-py3", "26.06-py3"]


def test_a_search_names_the_component_and_is_not_repeated(world: World) -> None:
    site = replace(world.site, components={"flash-attn": "2.7.4.post1"})
    result, told = world.go(world.plan(site=site))
    assert result.swappable("26.05-py3")[0]["flash-attn"].requirement == "flash-attn==2.7.4.post1"
    conclusion = result.next()
    assert isinstance(conclusion, Conclusion)
    assert (conclusion.verdict, conclusion.culprits) == ("culprit", ("nccl",))
    assert conclusion.step == ("26.04-py3", "26.05-py3")
    assert len(world.starts) == len(result.ledger.runs) <= 40
    assert {check["status"] for check in told["checks"]} == {"passed"}
    found = step._evidence(result, conclusion)
    assert "Probability: 99." in str(found.inputs["bisect_result"])
    assert "PyTorch" in " ".join(found.warnings)
    assert "nvidia-nccl-cu13==2.29.7" in found.shown[-1].text  # type: ignore[attr-defined]
    assert "| `26.05-py3` | `nccl` | 4.1, 4.1" in str(found.files["upstream-issue.md"])
    assert "with old nccl" in step.plot(result).text
    for index, run in enumerate(result.ledger.runs):  # each prefix of the ledger continues in the same way
        ledger = replace(result.ledger, runs=result.ledger.runs[:index])
        assert replace(result, ledger=ledger).next() == Trial(run.point, number=run.number, image=run.image)
    again, told = world.go(world.plan(budget="60", site=site))
    assert again.next() == conclusion
    assert len(world.starts) == len(result.ledger.runs)
    assert told["effects"] == []


def test_a_run_is_started_once(world: World) -> None:
    """A search that is killed while its test runs waits for that test and goes on; nothing is run twice."""
    (world.folder / "test.sh").write_text("echo x >>../starts; sleep 0.5; echo 4\n")
    assert kill_search(lambda: world.go(world.plan(budget="4")), until=lambda: len(world.starts) == 2)
    result, _ = world.go(world.plan(budget="4"))
    assert [run.outcome for run in result.ledger.runs] == ["value"] * 4
    first = result.ledger.runs[0]
    # As if it was killed before its end was written.
    result.ledger.write(Trial(first.point, number=1, image=first.image))
    again, _ = world.go(world.plan(budget="4"))
    assert again.ledger.runs[0] == first
    assert len(world.starts) == 4


def test_runs_without_a_value_count_for_the_budget(tmp_path: Path) -> None:
    fails = "[ $(($(wc -l <{folder}/starts) % 2)) = 1 ] && exit 3; case"
    world = World(tmp_path, test=TEST.replace("case", fails, 1))
    result, told = world.go(world.plan(budget="9"))
    assert len(world.starts) == len(result.ledger.runs) == 9
    assert {run.outcome for run in result.ledger.runs} == {"value", "lost"}
    assert {check["status"] for check in told["checks"]} == {"waiting"}  # without a result it is not done


def test_a_damaged_ledger_stops_the_search(world: World) -> None:
    plan = world.plan()
    plan.place.folder.mkdir(parents=True)
    plan.ledger.path.write_text('{"runs": []}')
    with pytest.raises(CannotTell, match="restore it"):
        world.plan()


#: Executes the words after the image, and knows its name.
DOCKER = """\
#!/bin/bash
while [ $# -gt 0 ]; do case $1 in bash) break ;; registry.example/*) export IMAGE=$1 ;; esac; shift; done
exec "$@"
"""


def test_a_container_that_was_not_started_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that sources the overlay's script says so from inside the container."""
    world, folder = World(tmp_path), tmp_path / "bin"
    folder.mkdir()
    starts = "[ $(wc -l <../starts) = 2 ] && exit 125"
    for name, text in {
        "docker": DOCKER.replace("exec", f"echo x >>../starts; {starts}; exec"),
        "python3": PYTHON,
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    command = "case $IMAGE$LD_LIBRARY_PATH in *26.0[56]*nccl-*) ;; *26.0[56]*) exit 1 ;; esac"
    site = replace(world.site, results="", search_image="registry.example/a:{tag}")
    result, _ = world.go(
        world.plan(test=f"docker {{image}} bash -c '. {{overlay}}; {command}'", metric="exit", site=site)
    )
    conclusion = result.next()
    assert isinstance(conclusion, Conclusion)
    assert conclusion.culprits == ("nccl",)
    assert [run.outcome for run in result.ledger.runs if run.point.restored == "cudnn"] == ["invalid"]
    assert "(exit status 125)" in result.ledger.runs[1].reason
