"""The simulation: its interface, its refusals, and the measures that the search must reach."""

import json
from pathlib import Path

import pytest
from simulate_bisect import Scenario, main, simulate

#: The values of TensorRT-LLM's case: https://github.com/NVIDIA/TensorRT-LLM/pull/17160
TENSORRT_LLM = """
tags = ["26.04-py3", "26.05-py3"]
components = ["nccl", "cublas", "cudnn", "transformer-engine"]
culprits = ["nccl"]
changed_at = "26.05-py3"
higher_is_better = true
good = {mean = 4.07, cv = 0.018}
bad = {modes = [[2.54, 0.03, 0.6], [4.16, 0.02, 0.4]]}
budget = 40
colour = "ignored"
"""


def command(folder: Path, text: str, *options: str) -> int:
    """Run the command on a scenario of this text."""
    path = folder / "scenario.toml"
    path.write_text(text)
    return main([str(path), *options])


def test_the_bimodal_case_names_nccl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, TENSORRT_LLM, "--seeds", "40", "--first-seed", "500", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result) == ["version", "seeds", "right", "wrong", "undecided", "median_runs", "most_runs"]
    assert (result["version"], result["seeds"]) == (1, 40)
    assert result["right"] + result["wrong"] + result["undecided"] == 40
    assert result["right"] >= 38
    assert result["median_runs"] <= 30
    assert result["most_runs"] <= 40


def test_a_break_without_noise_between_twelve_tags_takes_few_runs() -> None:
    tags = [f"25.{month:02}-py3" for month in range(1, 13)]
    for changed in tags[1:]:
        case = {"tags": tags, "changed_at": changed, "good": {"mean": 1, "cv": 0}, "bad": {"modes": [[0, 0, 1]]}}
        result = simulate(Scenario.read(case), range(3))
        assert (result["right"], result["wrong"]) == (3, 0)
        assert result["most_runs"] <= 4 + 10


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('culprits = ["nccl"]', 'culprits = ["driver"]'),
        ('tags = ["26.04-py3", "26.05-py3"]', "tags = ["),
        ("[4.16, 0.02, 0.4]", "[4.16, 0.02]"),
        ('changed_at = "26.05-py3"', 'changed_at = "26.04-py3"'),
        ('changed_at = "26.05-py3"', ""),
    ],
)
def test_an_invalid_scenario_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    assert command(tmp_path, TENSORRT_LLM.replace(old, new)) == 2
    shown = capsys.readouterr()
    assert "scenario.toml is not a scenario" in shown.err
    assert shown.out == ""
