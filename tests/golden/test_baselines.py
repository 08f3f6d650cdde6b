"""Performance baselines: read, judged by CI's rules, and refreshed from what a test measured."""

import json
from typing import Any

import pytest

from runbook_lib.golden import baselines
from runbook_lib.golden.diff import GoldenFiles, compare
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.values import BadGoldenFile
from runbook_lib.text.recipes.file_names import PERFORMANCE, has_values, path_of, short_name

A, B = (f"{PERFORMANCE}/gpt/{case}/baseline_values.json" for case in "ab")
MOE = "common/moe_perf/baseline.json"


def perf(throughput: float = 1.0, latency: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"batch_8": {"batch_size": 8, "dataset": "gsm8k", "throughput_tok_per_sec": 80 * throughput,
                        "p50_latency_ms": 20 * latency} | more}  # fmt: skip


def moe(forward: float = 1.0, memory: float = 1.0, limit: float = 1.02) -> dict[str, Any]:
    return {"a2a": {"forward_ms": 7.1 * forward, "max_allocated_bytes": 3e9 * memory, "max_regression_ratio": limit}}


def judged(old: dict[str, Any], new: dict[str, Any], config: str = "") -> Verdicts:
    files = [{name: json.dumps(data) for name, data in side.items()} for side in (old, new)]
    configs = {f"{name.rpartition('/')[0]}/model_config.yaml": config for name in old}
    return compare(*(GoldenFiles({**contents, **configs}, lint=True) for contents in files))


@pytest.mark.parametrize(
    ("name", "old", "new", "config", "asked"),
    [
        (A, {"h100": perf()}, {"h100": perf(0.91)}, "", ""),
        (A, {"h100": perf()}, {"h100": perf(0.81)}, "", "h100/baselines/worse"),
        (A, {"h100": perf()}, {"h100": perf(1.19)}, "", ""),
        (A, {"h100": perf()}, {"h100": perf(1.21)}, "", "h100/baselines/better"),
        (A, {"h100": perf()}, {"h100": perf(latency=1.11)}, "", "h100/baselines/worse"),
        (A, {"h100": perf()}, {"h100": perf(latency=0.5)}, "", ""),
        (A, {"h100": perf()}, {"h100": perf(0.81)}, "TOLERANCE_PCT: 20", ""),
        (A, {"h100": perf()}, {"h100": perf(1.25)}, "UPPER_TOLERANCE_PCT: 30", ""),
        (A, {"h100": perf()}, {"h100": perf(0.81)}, "METRICS: [p50_latency_ms]", ""),
        (A, {"h100": perf()}, {"h100": perf(0.81)}, "TOLERANCE_PCT: [", "h100/baselines/worse"),
        (A, {"h100": perf()}, {"h100": perf(0.81)}, f"TOLERANCE_PCT: 1{'0' * 400}", "h100/baselines/worse"),
        (MOE, moe(), moe(1.01), "", ""),
        (MOE, moe(), moe(0.5), "", ""),
        (MOE, moe(), moe(1.03), "", "baselines/worse"),
        (MOE, moe(), moe(memory=1.03), "", "baselines/worse"),
        (MOE, moe(limit=1.05), moe(1.04, limit=1.05), "", ""),
    ],
)  # fmt: skip
def test_a_change_beyond_cis_rules_asks_one_question(
    name: str, old: dict[str, Any], new: dict[str, Any], config: str, asked: str
) -> None:
    verdicts = judged({name: old}, {name: new}, config)
    assert [group.id for group in verdicts.groups] == ([asked] if asked else [])
    assert [it.verdict for it in verdicts.judgements] == ["refresh"]
    assert bool(verdicts.blocked) is bool(asked)
    assert bool(verdicts.judgements[0].notes) is bool(asked)
    if asked:
        assert verdicts.danger(verdicts.groups[0]) == ("slower" if asked.endswith("worse") else "")


def test_the_files_of_a_platform_are_one_decision() -> None:
    both = {"h100": perf(), "gb200": perf()}
    slower = {"h100": perf(), "gb200": perf(0.8)}
    groups = judged({A: both, B: both}, {A: slower, B: slower}).groups
    assert [(group.id, group.files, group.moved, group.compared) for group in groups] == [
        ("gb200/baselines/worse", (A, B), 2, 2),
    ]  # fmt: skip
    assert groups[0].ratio == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("name", "old", "new", "verdict"),
    [
        (A, {"h100": perf(), "gb200": perf()}, {"h100": perf()}, "held back"),
        (A, {"h100": perf()}, {"h100": perf(), "gb200": perf()}, "refresh"),
        (A, {"h100": perf()}, {"h100": perf(dataset="synthetic")}, "held back"),
        (A, {"h100": perf()}, {"h100": perf(0.0)}, "refused"),
        (A, {"h100": perf()}, {"h100": perf(float("nan"))}, "refused"),
        (A, {"h100": perf()}, {"h100": perf(p50_latency_ms=10**400)}, "refused"),
        (A, {"h100": perf()}, {"h100": perf(p50_latency_ms=5e-324)}, "refused"),
        (A, {"h100": perf()}, {"h100": perf(tpot_ms_per_tok="slow")}, "refused"),
        (A, {"h100": perf(0.0)}, {"h100": perf()}, "held back"),
        (MOE, moe(), moe(limit=1.5), "held back"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(name: str, old: dict[str, Any], new: dict[str, Any], verdict: str) -> None:
    (found,) = judged({name: old}, {name: new}).judgements
    assert found.verdict == verdict
    assert found.danger == ("lost" if "gb200" in old else "")


@pytest.mark.parametrize("text", ["", "[]", '{"h100": null}', '{"h100": {"a": {"p50_latency_ms": true}}}'])
def test_unreadable(text: str) -> None:
    with pytest.raises(BadGoldenFile):
        baselines.parse(text)


def test_results_take_the_place_of_their_platform() -> None:
    old = json.dumps({"h100": perf(), "gb200": perf()})
    text = baselines.with_results(old, "gb200", json.dumps(perf(0.5)))
    assert json.loads(text) == {"h100": perf(), "gb200": perf(0.5)}
    assert text.endswith("}\n")
    assert baselines.with_results(old, "gb200", "broken") == "broken"
    assert json.loads(baselines.with_results(None, "h100", json.dumps(perf()))) == {"h100": perf()}


def test_names() -> None:
    for path in (A, path_of(MOE)):
        assert has_values(path)
        assert path_of(short_name(path)) == path
    assert not any(map(has_values, ("baseline.json", f"{PERFORMANCE}/../x/baseline.json", f"docs/{MOE}")))
