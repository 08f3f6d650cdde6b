import json
import math

import pytest

from runbook_lib.golden.ci_rules import ComparisonConfig, approximately_equal, ci_failures
from runbook_lib.golden.form import examine
from runbook_lib.golden.judge import judge_all
from runbook_lib.golden.measure import measure
from runbook_lib.golden.values import parse

FILE = "gpt/case/golden_values_dev_dgx_h100.json"
N = 50
LOOSE = "METRICS: [lm loss]\nENV_VARS: {NON_DETERMINSTIC_RESULTS: 1}"
INFERENCE, RL = "MODE: inference\nMETRICS: ", "MODE: rl\nMETRICS: "


def judge(file, old, new, **more):
    return judge_all([examine(file, old, new, **more)]).judgements[0]


def series(metric="lm loss", values=None, **more):
    values = values or {step: 10.0 - step / 10 for step in range(1, N + 1)}
    entry = {"start_step": 1, "step_interval": 1, "values": {str(step): value for step, value in values.items()}}
    return {metric: entry} | more


def text(data):
    return json.dumps(data)


def scaled(metric, factor, value=100.0):
    return text(series(metric, dict.fromkeys(range(1, N + 1), value * factor)))


def request(**fields):
    base = {"generated_text": "abc", "generated_tokens": [1, 2, 3], "logprobs": [-0.5, -1.0, -2.0]}
    return text({"0": base | fields})


OLD = text(series())


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("full", "full", "refresh"), ("full", "", "refused"), ("full", "rounded", "refused"), ("", "full", "refresh"),
        ("", "rounded", "refresh"),
    ],
)  # fmt: skip
def test_full_precision_is_kept(old, new, verdict):
    def file(precision, value):
        data = series(values={1: 10.0, 2: round(value, 5) if precision == "rounded" else value})
        data["lm loss"] |= {"value_precision": "full"} if precision else {}
        return text(data)

    assert judge(FILE, file(old, 9.9876543), file(new, 9.9876549)).verdict == verdict


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (OLD, text(series(values={s: 10.0001 - s / 10 for s in range(1, N + 1)})), None),
        (scaled("iteration-time", 1), scaled("iteration-time", 1.15), None),
        (scaled("iteration-time", 1), scaled("iteration-time", 0.2), None),
        (scaled("iteration-time", 1), scaled("iteration-time", 5), "×5.00"),
        (scaled("mem-allocated-bytes", 1), scaled("mem-allocated-bytes", 1.04), None),
        (scaled("mem-allocated-bytes", 1), scaled("mem-allocated-bytes", 1.2), "×1.20"),
        (scaled("num-zeros", 1), scaled("num-zeros", 1.2), None),
        (scaled("num-zeros", 1), scaled("num-zeros", 3), "×2.98"),
        (scaled("num-zeros", 1), scaled("num-zeros", 0), "nothing is left"),
        (scaled("iteration-time", 1), scaled("iteration-time", -1), "nothing is left"),
        (scaled("lm loss", 1), scaled("lm loss", 1.06), "+6.00% at step"),
        (scaled("lm loss", 1), scaled("lm loss", 1.003), "3.0 times the limit"),
        (scaled("lm loss", 1), scaled("lm loss", 0.9995), None),
        (OLD, text(series(values={s: 10.0 - s / 10 for s in range(1, N)})), "1 of 50 steps are missing, from step 50"),
        (OLD, text(series(values={s: 10.0 - s / 10 for s in range(1, N + 51)})), "longer"),
        (OLD, text(series("num-zeros")), "the metric is missing"),
        (OLD, "{}", "the metric is missing"),
        (OLD, request(), "something else"),
        (OLD, None, "missing"),
        ("broken", OLD, "old file cannot be read"),
        (request(), request(logprobs=[-0.6, -1.2, -1.8]), None),
        (request(), request(generated_text="abd"), "position 2"),
        (request(), request(generated_tokens=[1, 2, 4]), "it changed"),
        (request(), request(logprobs=[-0.5]), "1 entries instead of 3"),
        (request(), request(logprobs=[-7.5, -8.0, -9.0]), "changed by 7 on average"),
        (request(), request(logprobs=[-0.5, None, -2.0]), "changed by inf"),
        (request(), request(logprobs=None), "the field is missing"),
        (request(), text({"1": json.loads(request())["0"]}), "requests are missing"),
        (request(), text(json.loads(request()) | {"1": {"logprobs": []}}), "are new"),
        (text({"throughput": [1, 100, 100]}), text({"throughput": [1, 90, 90]}), None),
        (text({"throughput": [1, 100, 100]}), text({"throughput": [1, 40, 40]}), "×2.50"),
        (text({"throughput": [1, 100, 100]}), text({"throughput": [0, 0]}), "fell to 0"),
        (text({"mem-max-allocated-bytes": 100}), text({"mem-max-allocated-bytes": 118}), "×1.18"),
        (text({"throughput": 5}), text({"other": 5}), "the metric is missing"),
        ("", OLD, None),
        (None, OLD, None),
    ],
)
def test_drift_and_changes_that_need_a_person(old, new, why):
    found = judge(FILE, old, new)
    assert found.verdict == ("refresh" if why is None else "held back"), found
    assert (why or "") in "; ".join(reason.sentence for reason in found.reasons)
    assert bool(found.reasons) == (why is not None)


@pytest.mark.parametrize("mark", ["nan", "Infinity", math.nan, math.inf])
def test_a_step_that_turned_nan_is_refused(mark):
    turned = text(series(values={s: mark if s == 3 else 10.0 - s / 10 for s in range(1, N + 1)}))
    for old in (OLD, "", None, "broken"):
        found = judge(FILE, old, turned)
        assert (found.verdict, found.reasons[0].sentence) == ("refused", "NaN or infinity: lm loss at step 3")
    assert len(judge(FILE, OLD, turned).measures) == 1
    assert judge(FILE, request(), request(logprobs=[-0.5, "nan", 0])).verdict == "refused"


def run(**metrics):
    """Return a file of 50 steps; ``metrics`` are the steps at which one has the mark of an unobserved step, or NaN."""
    data = {}
    for metric in ("lm loss", "num-zeros", "mem-allocated-bytes", "iteration-time"):
        mark, steps = metrics.get(metric.replace(" ", "_").replace("-", "_"), ("nan", ()))
        data |= series(metric, {step: mark if step in steps else 10.0 + step % 7 for step in range(1, N + 1)})
    return data


def every(steps, mark="nan"):
    return run(**dict.fromkeys(("lm_loss", "num_zeros", "mem_allocated_bytes", "iteration_time"), (mark, steps)))


@pytest.mark.parametrize(
    ("old", "new", "verdict", "why"),
    [
        # The first iterations are not timed, time may be logged rarely, and a skipped step has no zeros.
        (None, run(iteration_time=("nan", [1])), "refresh", ""),
        (run(), run(iteration_time=("nan", [1])), "refresh", ""),
        (every(range(1, 51)), run(iteration_time=("nan", [1])), "refresh", ""),
        (None, run(iteration_time=("NaN ", [step for step in range(1, 51) if step % 10])), "refresh", ""),
        (None, run(num_zeros=("nan", [1, 2, 3, 18])), "refresh", ""),
        # The second run of a resume test starts in the middle, and a restart leaves a gap.
        (None, every(range(1, 26)), "refresh", ""),
        (None, every(range(20, 25)), "refresh", ""),
        (series(), every(range(20, 25)) | series(), "refresh", ""),
        # A person must know of values that are gone, and of a run that ended early.
        (run(), run(num_zeros=("nan", [1, 2, 3])), "held back", "3 of 50 steps are missing"),
        (run(), run(iteration_time=("nan", [1, 20])), "held back", "1 of 50 steps are missing, from step 20"),
        (run(), run(iteration_time=("nan", range(2, 51))), "held back", "49 of 50 steps are missing"),
        (None, every(range(26, 51)), "held back", "the run ended early: no value after step 25 of 50"),
        (every(range(30, 51)), every(range(26, 51)), "refused", "lm loss at step 26"),
        (every(range(26, 51)), every(range(30, 51)), "refresh", ""),
        # A loss that the other metrics, or the old file, show to be lost.
        (None, run(lm_loss=("nan", range(30, 51))), "refused", "lm loss at step 30"),
        (None, run(lm_loss=("nan", range(1, 51))), "refused", "lm loss at step 1"),
        (run(), every(range(30, 51)), "refused", "lm loss at step 30"),
        (every(range(1, 26)), every(range(1, 27)), "refused", "lm loss at step 26"),
        (series(), series(values={1: 1.0, 2: "nan", 3: 1.0}), "refused", "lm loss at step 2"),
        # A collector writes a value that is NaN as it is, and never as a mark.
        (None, every([7], math.nan), "refused", "NaN or infinity: lm loss at step 7"),
        (run(num_zeros=("nan", [7])), run(num_zeros=(math.nan, [7])), "refused", "num-zeros at step 7"),
    ],
)
def test_an_unobserved_step_is_not_a_nan(old, new, verdict, why):
    old = None if old is None else text(old)
    judgement = judge(FILE, old, text(new))
    assert judgement.verdict == verdict, judgement.reasons
    assert why in "; ".join(reason.sentence for reason in judgement.reasons)
    # The lint makes no difference between marks and values.
    assert judge(FILE, old, text(new), lint=True).verdict == "refused"


def test_steps_that_were_never_observed():
    old = text(series(values={1: "nan"} | dict.fromkeys(range(2, N + 1), 2.0)))
    kept = text(series(values={1: "nan"} | dict.fromkeys(range(2, N + 1), 2.0001)))
    dropped = text(series(values=dict.fromkeys(range(2, N + 1), 2.0)))
    filled = text(series(values=dict.fromkeys(range(1, N + 1), 2.0)))
    assert judge(FILE, old, dropped, lint=True).verdict == "refresh"
    assert judge(FILE, old, filled, lint=True).verdict == "refresh"
    judgement = judge(FILE, old, kept)
    assert (judgement.verdict, judgement.notes[-1]) == ("refresh", "lm loss was not observed at 1 of 50 steps")
    assert judge(FILE, old, kept, lint=True).verdict == "refused"


@pytest.mark.parametrize("content", ["{", "", "[1]", '{"a": {"values": {"x": 1}}}'])
def test_a_new_file_that_does_not_parse_is_refused(content):
    assert judge(FILE, OLD, content).verdict == "refused"


def test_measures():
    old, new = {1: 1.0, 2: 2.0, 3: 0.0, 4: math.inf, 5: 4.0}, {1: 1.1, 2: 1.8, 3: 5.0, 4: 1.0, 5: 3.0, 6: 1.0}
    found = measure(FILE, "x", old, new)
    assert found.n_steps == 3
    assert (found.avg_rel_diff, found.max_abs) == (pytest.approx(0.25 / 3), 0.25)
    assert measure(FILE, "x", {1: 0.0}, {1: 1.0}).avg_rel_diff is None


@pytest.mark.parametrize(
    ("text", "kind", "metrics", "deterministic"),
    [
        ("TEST_TYPE: regular", "pretraining", ("lm loss", "num-zeros"), True),
        ("METRICS: [a]\nENV_VARS: {NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1}", "pretraining", ("a",), False),
        ('MODE: rl\nMETRICS: []\nENV_VARS: {NON_DETERMINSTIC_RESULTS: "1"}', "rl", (), False),
        (INFERENCE + "[x]\nENV_VARS: {NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0}", "inference", ("x",), True),
    ],
)
def test_configurations(text, kind, metrics, deterministic):
    found = ComparisonConfig.parse(text)
    assert (found.kind, found.metrics, found.deterministic, found.known) == (kind, metrics, deterministic, True)


@pytest.mark.parametrize("text", [None, "", "a: [", "- a", "\x00", "{" * 5000])
def test_without_a_readable_configuration_the_form_decides(text):
    assert not ComparisonConfig.parse(text).known
    assert ComparisonConfig.parse(text, parse(request())).kind == "inference"


@pytest.mark.parametrize(
    ("old", "new", "config", "failed"),
    [
        (OLD, OLD, "METRICS: [lm loss]", {}),
        (OLD, OLD, "METRICS: [lm loss, num-zeros]", {"num-zeros"}),
        (OLD, scaled("lm loss", 1), "METRICS: [iteration-time]", {"iteration-time"}),
        (scaled("lm loss", 1), scaled("lm loss", 1.0001), "METRICS: [lm loss]", {"lm loss"}),
        (scaled("lm loss", 1), scaled("lm loss", 1.0001), LOOSE, set()),
        (scaled("lm loss", 1), scaled("lm loss", 1.06), LOOSE, {"lm loss"}),
        (scaled("iteration-time", 1), scaled("iteration-time", 1.04), "METRICS: [iteration-time]", set()),
        (scaled("iteration-time", 1), scaled("iteration-time", 1.06), "METRICS: [iteration-time]", {"iteration-time"}),
        (scaled("iteration-time", 1), scaled("iteration-time", 9), "TEST_TYPE: checkpoint-consistency", set()),
        (scaled("iteration-time", 1), scaled("iteration-time", 1.1), RL + "[iteration-time]", set()),
        (scaled("iteration-time", 1), scaled("iteration-time", 1.2), RL + "[iteration-time]", {"iteration-time"}),
        (scaled("mem-allocated-bytes", 1), scaled("mem-allocated-bytes", 0.5), RL + "[mem-allocated-bytes]", set()),
        (request(), request(generated_text="abcdef"), INFERENCE + "[generated_text]", set()),
        (request(), request(generated_text="x"), INFERENCE + "[generated_text]", {"generated_text"}),
        (request(), request(logprobs=[-0.5005, -1.0, -2.0]), INFERENCE + "[logprobs]", set()),
        (request(), request(logprobs=[-0.502, -1.0, -2.0]), INFERENCE + "[logprobs]", {"logprobs"}),
        (request(), request(logprobs=[9.0], generated_tokens=[]), INFERENCE + "[]", set()),
        (request(logprobs=[None]), request(logprobs=[None]), INFERENCE + "[logprobs]", {"logprobs"}),
        (request(), request(logprobs=[9.0]), INFERENCE + "[throughput]", {"requests"}),
        (OLD, text(series() | series("iteration-time")), RL + "[iteration-time]", {"iteration-time"}),
        (text({"throughput": [0, 100]}), text({"throughput": [0, 89]}), INFERENCE + "[throughput]", {"throughput"}),
        (text({"throughput": [0, 100]}), text({"throughput": [0, 119]}), INFERENCE + "[throughput]", set()),
    ],
)  # fmt: skip
def test_ci_failures_are_those_of_megatron_lm(old, new, config, failed):
    assert set(ci_failures(parse(old), parse(new), ComparisonConfig.parse(config))) == set(failed)


def test_routing_is_compared_for_the_kept_tokens_in_any_order():
    config = ComparisonConfig.parse(INFERENCE + "[routing_indices]")
    old = parse(request(routing_indices=[[[1, 2]], [[3, 4]]], routing_indices_token_indices=[0, 2]))
    same = parse(request(routing_indices=[[[2, 1]], [[9, 9]], [[4, 3]]]))
    other = parse(request(routing_indices=[[[2, 1]], [[4, 3]], [[9, 9]]]))
    assert not ci_failures(old, same, config)
    assert "routing_indices" in ci_failures(old, other, config)
    unnamed = parse(request(routing_indices=[[[1, 2]]]))
    assert "routing_indices" in ci_failures(unnamed, unnamed, config)


@pytest.mark.parametrize(
    ("steps", "missed", "passes"),
    [(1, 1, False), (3, 1, False), (50, 1, True), (50, 2, False), (300, 3, True), (300, 4, False)],
)
def test_one_step_in_a_hundred_may_miss(steps, missed, passes):
    old = dict.fromkeys(range(steps), 1.0)
    assert approximately_equal(old, old | dict.fromkeys(range(missed), 2.0), 0.05) is passes
