"""Golden values against the real history of Megatron-LM."""

import json
import math
from collections import Counter

import pytest

from runbook_lib.golden import baselines, history, summary
from runbook_lib.golden.coverage import GITHUB, coverage, golden_files
from runbook_lib.golden.diff import GoldenFiles, compare, of_revision
from runbook_lib.golden.form import examine
from runbook_lib.golden.judge import judge_all
from runbook_lib.golden.values import parse
from runbook_lib.text.recipes.file_names import has_values, is_baseline, path_of
from runbook_lib.text.recipes.rows import problems, read_all
from runbook_lib.world.git.blobs import read_objects
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay

MAIN, RENAMES = "d98e8a64", "50c501c946"
SLOW = "moe/deepseek_proxy_fsdp_ep2_fsdp2_1node/golden_values_dev_dgx_gb200.json"


@pytest.fixture(scope="module")
def bump(megatron_lm):
    return verdicts(megatron_lm, "5fe3f06658")


def verdicts(clone, commit):
    past = history.read(Checkout.open(clone), f"{commit}^")
    assert past.missing == ""
    return compare(of_revision(clone, f"{commit}^"), of_revision(clone, commit), past)


def changed(judged):
    return [one for one in judged if one.verdict != "unchanged"]


def independent(old, new):
    """(n_steps, avg_rel_diff) by metric, straight from the definition, in exact order of the old file."""
    found = {}
    for metric, entry in old.items():
        if not isinstance(entry, dict) or "values" not in entry or metric not in new:
            continue
        terms = []
        for step, before in entry["values"].items():
            after = new[metric]["values"].get(step)
            numbers = all(isinstance(x, int | float) and math.isfinite(x) for x in (before, after))
            if numbers and abs(before) >= 1e-12:
                terms.append((before - after) / before)
        found[metric] = (len(terms), math.fsum(terms) / len(terms))
    return found


def test_every_file_of_expected_values_is_read_and_equals_itself(megatron_lm):
    listed = Checkout.open(megatron_lm).git("ls-tree", "-r", "--name-only", MAIN, "tests").splitlines()
    files = [path for path in listed if path.endswith(".json") and not path.endswith("prompts.json")]
    assert [path for path in files if not has_values(path)] == []
    read = of_revision(megatron_lm, MAIN)
    assert sorted(map(path_of, read.contents)) == sorted(files)
    found = {name: (baselines.parse if is_baseline(name) else parse)(text) for name, text in read.contents.items()}
    assert Counter(map(is_baseline, found)) == {True: 9, False: 915}
    assert {one.verdict for one in compare(read, read).judgements} == {"unchanged"}
    assert found["common/moe_perf/baseline.json"]["mixtral_a2a_tp1ep8_fp8/forward_ms"] == 3.7876319885253906
    slower = {name: text.replace('"throughput_tok_per_sec": 8.730727052335947', '"throughput_tok_per_sec": 7.07')
              for name, text in read.contents.items()}  # fmt: skip
    (group,) = compare(read, GoldenFiles(slower, lint=True)).groups
    assert (group.id, len(group.files)) == ("gb200/baselines/worse", 1)


def test_the_measures_of_4611_equal_an_independent_computation(megatron_lm, bump):
    old, new = of_revision(megatron_lm, "5fe3f06658^"), of_revision(megatron_lm, "5fe3f06658")
    files = [one.file for one in changed(bump.judgements)]
    expected = {
        (file, metric): found
        for file in files
        for metric, found in independent(json.loads(old.contents[file]), json.loads(new.contents[file])).items()
    }
    rows = {(m.file, m.metric): m for one in changed(bump.judgements) for m in one.measures}
    assert len(files) == 78
    assert len(rows) == 385
    assert rows.keys() == expected.keys()
    for key, (n, mean) in expected.items():
        assert rows[key].n_steps == n
        assert rows[key].avg_rel_diff == pytest.approx(mean, abs=1e-12, rel=0)


def test_the_test_of_4611_that_became_five_times_slower_is_named_first(bump):
    first = summary.in_order(bump.judgements)[0]
    assert (first.file, first.verdict) == (SLOW, "ambiguous")  # it had changed as far once before
    assert first.reasons[0].metric == "iteration-time"
    assert next(m.avg_rel_diff for m in first.measures if m.metric == "iteration-time") == pytest.approx(
        -4.10, abs=0.01
    )
    assert Counter(one.verdict for one in changed(bump.judgements)) == {"refresh": 77, "ambiguous": 1}


def test_the_slowdown_of_4611_is_one_decision_for_each_platform(bump):
    slower = {group.id: (len(group.files), round(group.ratio, 2)) for group in bump.groups}
    assert slower == {"dgx_h100/iteration-time": (36, 1.48), "dgx_gb200/iteration-time": (41, 1.09)}
    text = summary.markdown(bump)
    assert text.index("dgx_h100: 36 of 36 tests slower") < text.index(SLOW) < text.index("| metric")


def test_only_real_nan_is_refused_over_the_whole_history(megatron_lm):
    """Some 520 other files have marks of steps that were not observed."""
    log = ["log", "--first-parent", "-m", "--raw", "--no-abbrev", "--no-renames", "--format=%h", MAIN, "--"]
    listed = Checkout.open(megatron_lm).git(*log, "tests/functional_tests/")
    refused, marked = set(), 0
    commit = ""
    pairs = []
    for line in filter(None, listed.splitlines()):
        if not line.startswith(":"):
            commit = line
        elif "golden_values" in line and line.endswith(".json"):
            (_, _, old, new, _), path = line.split("\t")[0].split(), line.split("\t")[1]
            if set(new) != {"0"}:
                pairs.append((commit, path, old, new))
    contents = read_objects(megatron_lm, sorted({name for pair in pairs for name in pair[2:]} - {"0" * 40}), 2**23)
    for commit, path, old, new in pairs:
        (judgement,) = judge_all([examine(path, contents.get(old), contents[new])]).judgements
        marked += any("was not observed" in note for note in judgement.notes)
        if judgement.verdict == "refused" and "NaN" in judgement.reasons[0].sentence:
            refused.add((commit[:10], path.split("/")[-2]))
    assert refused == {
        ("64bee49c96", "bert_mcore_tp1_pp2"),
        ("64bee49c96", "bert_mcore_tp1_pp4_vp2"),
        ("d3528a2130", "gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading"),
        ("f5b2ec0130", "gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading"),
        ("0ae1d14646", "mixtral_8x7b_alltoall_tp2pp4ep4_release"),
        ("2a9793d19e", "gpt3_345m_nightly_dgx_a100_1N8G_tp1_pp4_resume_torch"),
    }
    assert marked > 500


def test_renamed_files_are_paired(megatron_lm):
    judged = verdicts(megatron_lm, RENAMES).judgements
    assert [judgement.verdict for judgement in judged].count("renamed") == 39


def test_the_rows_of_all_recipes_of_main(megatron_lm):
    checkout = Checkout.open(megatron_lm)
    listed = checkout.git("ls-tree", "-r", "--name-only", "--full-tree", MAIN, "tests/test_utils/recipes").splitlines()
    texts = checkout.read([path for path in listed if path.endswith(".yaml")], MAIN)
    used, errors = read_all(texts)
    scoped = [(scope.value, file) for row in used for scope in row.scopes for file in golden_files(row)]
    dev = Counter(
        (GITHUB.get(scope, scope), file.rpartition("_dev_")[2].removesuffix(".json"))
        for scope, file in scoped if "_dev_" in file
    )  # fmt: skip
    assert (dev["L1", "dgx_h100"], dev["L1", "dgx_gb200"]) == (77, 31)
    assert dev["L0", "dgx_h100"] + dev["L0", "dgx_gb200"] == 12
    assert Counter(scope for scope, _ in scoped)["mr"] == 152
    # The one typo of a platform, and two entries that name a second test.
    assert (errors, len(problems(used))) == ([], 3)
    found = coverage(of_revision(megatron_lm, MAIN).contents, used, [], "dev")
    assert all(one.kind != "covered" for one in found)
