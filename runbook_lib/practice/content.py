"""The content of the practice checkout: the structure of Megatron-LM in our own words, and a short history.

``template/`` is the tip of ``main`` without its golden values, which are computed here, and so are the older states and
the other branches.  Nothing depends on the clock, the machine or a locale: the commit ids are the same everywhere.
"""

import json
import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runbook_lib.recipes import file_names

#: Incremented whenever a commit of the template changes; a world records the version that it was created from.
VERSION = 6

CASES = file_names.FOLDER
_AUTHOR = "Practice Maintainers <maintainers@practice.invalid>"
_STEPS = 50

Tree = Mapping[str, str]


@cache
def document() -> dict[str, Any]:
    """Return ``history.toml``: states of the tree, commits, golden files, and the forge's first labels and issue."""
    return tomllib.loads(Path(__file__).with_name("history.toml").read_text(encoding="utf-8"))


def training_values(seed: str, *, first: int = 1) -> dict[str, object]:
    """Return golden values in the training format: per metric start_step, end_step, step_interval and values.

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
    """Return golden values in the inference format: requests by number, then scalars (seconds, bytes, tokens/s)."""
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
    for test, golden_files in document()["golden-files"].items():
        for golden in golden_files:
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
    """One commit of the history; ``day`` counts from the first, and ``parent`` is the index of an earlier one."""

    branch: str
    day: int
    message: str
    tree: Tree
    parent: int | None = None
    author: str = _AUTHOR


def history() -> list[HistoryCommit]:
    """Return all commits of the practice repository, as ``history.toml`` describes them."""
    trees = {"tip": main()}
    for name, state in document()["states"].items():
        tree = trees[name] = dict(trees[state["of"]])
        for path, old, new in state.get("replace", ()):
            if old not in tree[path]:
                raise ValueError(f"template/{path} no longer contains {old!r}, which an older commit replaces")
            tree[path] = tree[path].replace(old, new)
        for path in state.get("remove", ()):
            del tree[path]
        tree |= state.get("add", {})
    return [HistoryCommit(**commit | {"tree": trees[commit["tree"]]}) for commit in document()["commits"]]


def fast_import() -> bytes:
    """Return the history as a stream for ``git fast-import``: one process writes all commits."""
    commits = history()
    stream = bytearray()
    for number, commit in enumerate(commits):
        # 2026-03-02 10:00 UTC, a Monday, and the given number of days after it.
        moment = f"{1772445600 + commit.day * 86400} +0000"
        stream += f"commit refs/heads/{commit.branch}\nmark :{number + 1}\nauthor {commit.author} {moment}\n".encode()
        stream += f"committer {_AUTHOR} {moment}\ndata {len(commit.message)}\n{commit.message}\n".encode()
        parent: Tree = {}
        if commit.parent is not None:
            stream += f"from :{commit.parent + 1}\n".encode()
            parent = commits[commit.parent].tree
        for path in sorted(parent.keys() - commit.tree.keys()):
            stream += f"D {path}\n".encode()
        for path, text in commit.tree.items():
            if parent.get(path) != text:
                data = text.encode()
                stream += b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data)
    return bytes(stream + b"done\n")
