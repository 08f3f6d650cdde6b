"""The content of the practice checkout: the structure of Megatron-LM in our own words, and a short history.

``template/`` is the tip of ``main`` without its golden values, which are computed here, and so are the older states and
the other branches.  Nothing depends on the clock, the machine or a locale: the commit ids are the same everywhere.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from runbook_lib.golden import file_names

#: Incremented whenever a commit of the template changes; a world records the version that it was created from.
VERSION = 4

CASES = file_names.FOLDER
_BUILD = ".gitlab/stages/01.build.yml"
_DEV_PIN = "docker/.ngc_version.dev"
_DEV_FILE = "docker/Dockerfile.ci.dev"
_AUTHOR = "Practice Maintainers <maintainers@practice.invalid>"
#: Two authors of tests: the first has an account on the forge, the second no longer has one.
_MARA, _JON = "Mara Lindqvist <mara@practice.invalid>", "Jon Ferrer <jon.ferrer@elsewhere.invalid>"
_MEMORY_TEST = f"{CASES}/moe/gpt3_moe_mcore_tp2_ep4_memory/model_config.yaml"
_LONG_TEST = f"{CASES}/gpt/gpt3_mcore_te_tp4_pp1_long/model_config.yaml"
_GPT_RECIPE = "tests/test_utils/recipes/h100/gpt.yaml"
_QUARANTINE = "scope: [mr-broken] # loss jumps at step 20, see practice/Megatron-LM#8"
_STEPS = 50

Tree = Mapping[str, str]

#: Functional test → its golden files, as <environment>_<platform>[_2nd].
FUNCTIONAL_TESTS = {
    "gpt/gpt3_mcore_te_tp1_pp1": "dev_dgx_h100 dev_dgx_gb200 lts_dgx_a100",
    "gpt/gpt3_mcore_te_tp2_pp2_resume": "dev_dgx_h100 dev_dgx_h100_2nd",
    "gpt/gpt3_mcore_te_tp4_pp1_long": "dev_dgx_h100",
    "gpt/gpt3_mcore_te_tp8_pp1_fp8": "dev_dgx_h100",
    "gpt/gpt3_mcore_tp1_pp4": "dev_dgx_h100 lts_dgx_a100",
    "gpt/gpt3_mcore_tp4_pp2_bf16": "dev_dgx_h100 lts_dgx_h100",
    "gpt/gpt_dynamic_inference_tp1_583m": "dev_dgx_h100",
    "moe/gpt3_moe_mcore_te_ep8": "dev_dgx_h100 dev_dgx_gb200",
    "moe/gpt3_moe_mcore_tp2_ep4_memory": "dev_dgx_h100",
    "hybrid/hybrid_mr_tp2_cp2": "dev_dgx_h100",
    "mimo/mimo_vlm_tp1": "dev_dgx_h100",
}


def training_values(seed: str, *, first: int = 1) -> dict[str, object]:
    """Return golden values in the training form: per metric start_step, end_step, step_interval and values.

    ``lm loss`` has no unit, ``iteration-time`` is in seconds, the memory metrics are in bytes.
    """
    # Only random() gives the same numbers in every version of Python, and only + - * / do on every machine.
    draw = random.Random(seed).random
    level, zeros, pace, memory = draw() * 0.1, 1500 + 900 * draw(), 0.08 + 0.1 * draw(), int(2e9 + 6e9 * draw())
    steps = range(first, first + _STEPS)
    values: dict[str, list[float]] = {name: [] for name in ("lm loss", "num-zeros", "iteration-time")}
    for step in steps:
        values["lm loss"].append(round(10.85 + level - 1.4 * step / (step + 60) + 0.02 * draw(), 5))
        values["num-zeros"].append(float(round(zeros + 14 * step + 120 * draw())))
        values["iteration-time"].append(round((3.1 if step == first else pace) * (1 + 0.03 * draw()), 5))
    values["mem-allocated-bytes"] = [float(memory)] * _STEPS
    values["mem-max-allocated-bytes"] = [float(memory * 4)] + [float(memory * 4 + 96616448)] * (_STEPS - 1)
    metrics: dict[str, object] = {}
    for name, numbers in values.items():
        by_step = dict(zip(map(str, steps), numbers, strict=True))
        metrics[name] = {"start_step": first, "end_step": steps[-1], "step_interval": 1, "values": by_step}
    return metrics


def inference_values(seed: str) -> dict[str, object]:
    """Return golden values in the inference form: requests by number, then scalars (seconds, bytes, tokens/s)."""
    draw = random.Random(seed).random
    answers: dict[str, object] = {}
    for number, prompt in enumerate(("Name three uses of a spare server.", "Why does a queue need an end?")):
        tokens = [int(1000 + 30000 * draw()) for _ in range(16)]
        answers[str(number * 32)] = {
            "input_prompt": prompt,
            "generated_text": " " + " ".join(f"word{token % 97}" for token in tokens),
            "generated_tokens": tokens,
            "latency": round(4 + 2 * draw(), 6),
            "step_count": 384,
            "logprobs": [round(-3 * draw() * draw(), 9) for _ in tokens],
        }
    return answers | {
        "throughput": [round(105 + 5 * draw(), 6)] * 2,
        "mem-max-allocated-bytes": 21474836480 + int(1e8 * draw()),
    }


def main() -> dict[str, str]:
    """Return the tip of ``main``: path → text, sorted."""
    template = Path(__file__).with_name("template")
    tree = {}
    for file in filter(Path.is_file, template.rglob("*")):
        tree[file.relative_to(template).as_posix()] = file.read_text(encoding="utf-8")
    for test, golden_files in FUNCTIONAL_TESTS.items():
        for golden in golden_files.split():
            path = f"{CASES}/{test}/golden_values_{golden}.json"
            if "inference" in test:
                values = inference_values(path)
            else:
                values = training_values(path, first=1 + _STEPS * golden.endswith("_2nd"))
            # Like the real ones: four spaces, no newline at the end.
            tree[path] = json.dumps(values, indent=4)
    return dict(sorted(tree.items()))


@dataclass(frozen=True)
class HistoryCommit:
    """One commit of the history; ``parent`` is the index of an earlier one, None for the first."""

    branch: str
    parent: int | None
    day: int  # days after the first commit
    message: str
    tree: Tree
    author: str = _AUTHOR


def history() -> list[HistoryCommit]:
    """Return all commits of the practice repository: ``main``, ``dev`` (its pins differ), ``core_r0.1.0`` (older)."""
    tip = main()
    before_quarantine = _changed(tip, {_GPT_RECIPE: [(_QUARANTINE, "scope: [mr, mr-github]")]})
    before_long = _changed(before_quarantine, {_LONG_TEST: [("--seq-length: 1024", "--seq-length: 512")]})
    old_pin = [("26.02-py3", "26.01-py3")]
    before_bump = _changed(before_long, dict.fromkeys((_DEV_PIN, _DEV_FILE, _BUILD), old_pin))
    before_moe = _changed(before_bump, {_MEMORY_TEST: [("--micro-batch-size: 4", "--micro-batch-size: 2")]})
    # The layout of the build matrix up to 2026-05: both lanes build from one Dockerfile, which has no default base.
    first = _changed(
        before_moe,
        {
            _BUILD: [("FILE: Dockerfile.ci.lts\n", "FILE: Dockerfile.ci.dev\n        IMAGE_TYPE: lts\n")],
            _DEV_FILE: [("ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.01-py3\n", "ARG FROM_IMAGE_NAME\n")],
            _DEV_PIN: [("py3\n", "py3")],
        },
    )
    first = {path: text for path, text in first.items() if path != "docker/Dockerfile.ci.lts"}
    release = {**first, "CHANGELOG.md": "# Changelog\n\n## 0.1.0\n\nFirst practice release.\n"}
    drifted = _changed(before_quarantine, {_DEV_PIN: [("26.02-py3", "26.01-py3")]})
    return [
        HistoryCommit("main", None, 0, "Set up the practice repository", first),
        HistoryCommit("core_r0.1.0", 0, 2, "chore: Prepare release 0.1.0", release),
        HistoryCommit("main", 0, 9, "ci: Build the LTS image from a Dockerfile of its own (#4)", before_moe),
        HistoryCommit("main", 2, 20, "test: Let the experts work on larger batches (#5)", before_bump, _MARA),
        HistoryCommit("main", 3, 30, "chore: Update Docker image version to 26.02-py3 (#6)", before_long),
        HistoryCommit("main", 4, 35, "test: Train on longer sequences (#7)", before_quarantine, _JON),
        HistoryCommit("main", 5, 41, "ci: Quarantine gpt3_mcore_te_tp8_pp1_fp8 (#9)", tip),
        HistoryCommit("dev", 5, 43, "chore: Sync main into dev", drifted),
    ]


def _changed(tree: Tree, replacements: Mapping[str, list[tuple[str, str]]]) -> Tree:
    changed = dict(tree)
    for path, pairs in replacements.items():
        for old, new in pairs:
            if old not in changed[path]:
                raise ValueError(f"template/{path} no longer contains {old!r}, which an older commit replaces")
            changed[path] = changed[path].replace(old, new)
    return changed


def fast_import() -> bytes:
    """Return the history as a stream for ``git fast-import``: one process writes all commits."""
    return b"".join(_stream(history()))


def _stream(commits: list[HistoryCommit]) -> Iterator[bytes]:
    for number, commit in enumerate(commits):
        # 2026-03-02 10:00 UTC, a Monday, and the given number of days after it.
        moment = f"{1772445600 + commit.day * 86400} +0000"
        yield f"commit refs/heads/{commit.branch}\nmark :{number + 1}\nauthor {commit.author} {moment}\n".encode()
        yield f"committer {_AUTHOR} {moment}\ndata {len(commit.message)}\n{commit.message}\n".encode()
        parent: Tree = {}
        if commit.parent is not None:
            yield f"from :{commit.parent + 1}\n".encode()
            parent = commits[commit.parent].tree
        for path in sorted(parent.keys() - commit.tree.keys()):
            yield f"D {path}\n".encode()
        for path, text in commit.tree.items():
            if parent.get(path) != text:
                data = text.encode()
                yield f"M 100644 inline {path}\ndata {len(data)}\n".encode() + data + b"\n"
    yield b"done\n"
