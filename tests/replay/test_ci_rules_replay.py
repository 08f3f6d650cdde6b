"""The rules of CI against Megatron-LM's own functions, on its golden files with steps, numbers and requests changed."""

import json
import logging
import random
import sys
from collections import Counter
from types import ModuleType, SimpleNamespace

import pytest

from runbook_lib.golden.ci_rules import ComparisonConfig, ci_failures
from runbook_lib.golden.diff import of_revision
from runbook_lib.golden.values import parse
from runbook_lib.text.recipes.file_names import config_path, is_baseline
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay

MAIN, FOLDER = "d98e8a64", "tests/functional_tests/python_test_utils"
MODULES = {"common": "", "test_pretraining_regular_pipeline": "test_regular_pipeline",
           "test_inference_regular_pipeline": "test_inference_pipeline",
           "test_grpo_training_loop": "test_grpo_training_loop"}  # fmt: skip


@pytest.fixture
def upstream(megatron_lm, monkeypatch):
    """CI's modules by name, without TensorBoard, which only reads logs."""
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing", events := ModuleType("events"))
    events.event_accumulator = SimpleNamespace(TENSORS="", SCALARS="", EventAccumulator=object)
    modules = {}
    for name in MODULES:
        source = Checkout.open(megatron_lm).git("show", f"{MAIN}:{FOLDER}/{name}.py")
        modules[name] = ModuleType(name)
        modules[name].__dict__.update(modules)
        exec(source.replace(f"from {FOLDER.replace('/', '.')} import common", ""), modules[name].__dict__)
    logging.getLogger().setLevel(logging.CRITICAL)
    return modules


def change(value, chance):
    """Scale numbers, and leave out some of what has a name; a change is rare enough that many files pass."""
    if isinstance(value, dict):
        kept = {name for name in value if chance.random() > 0.0005 or "step" in name or name == "values"}
        return {name: change(each, chance) for name, each in value.items() if name in kept}
    if isinstance(value, list):
        return [change(each, chance) for each in value]
    if type(value) is float and chance.random() < 0.002:
        return value * chance.choice([0.5, 0.94, 1.0004, 1.04, 1.06, 1.14, 1.16])
    return value


def passes(upstream, config, paths, old, new, text):
    try:
        for path, content in zip(paths, (json.dumps(old), json.dumps(new), text), strict=True):
            path.write_text(content)
        if config.kind == "pretraining":
            sides = [upstream["common"].GoldenValues(**side).root for side in (old, new)]
            module = upstream["test_pretraining_regular_pipeline"]
            module.test_regular_pipeline(not config.deterministic, *sides, paths[2])
        else:
            name = {"inference": "test_inference_regular_pipeline", "rl": "test_grpo_training_loop"}[config.kind]
            getattr(upstream[name], MODULES[name])(*paths)
    except (
        AssertionError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        upstream["common"].MissingTensorboardLogsError,
    ):
        return False
    return True


def test_the_verdicts_are_upstreams(megatron_lm, upstream, tmp_path):
    chance, files, counts = random.Random(1), of_revision(megatron_lm, MAIN), Counter()
    paths = [tmp_path / name for name in ("old.json", "new.json", "config.yaml")]
    for name, content in files.contents.items():
        text = files.texts.get(config_path(name), "")
        config = ComparisonConfig.parse(text)
        is_compared = config.known and config.test_type != "checkpoint-consistency" and not is_baseline(name)
        if not is_compared or "" in parse(content).requests or (config.kind == "pretraining" and chance.random() > 0.2):
            continue
        old = json.loads(content)
        try:
            if config.kind == "pretraining":
                upstream["common"].GoldenValues(**old)
        except ValueError:  # of an old form, which CI no longer reads
            continue
        new = change(old, chance)
        expected = passes(upstream, config, paths, old, new, text)
        assert (not ci_failures(parse(content), parse(json.dumps(new)), config)) is expected, name
        counts[config.kind, expected] += 1
    assert {kind for kind, _ in counts} == {"pretraining", "inference", "rl"}
