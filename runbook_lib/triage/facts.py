"""Facts that a failure's report names: numbers, phase, memory, parallelism.  Pure."""

import math
import re
from collections.abc import Sequence

from runbook_lib.triage.log_summary import Comparison, Reading

#: A loss so far off, relatively, is no drift: ten times what CI's comparison allows.
FAR = 0.5
#: A loss that ends so much above where it began has diverged.
_DIVERGED = 1.1


def wrong_numbers(compared: Sequence[Comparison], readings: Sequence[Reading]) -> str:
    """Why numbers are wrong rather than different, as the beginning of a sentence; empty where they are not."""
    for it in compared:
        if it.metric.startswith(("iteration-time", "mem-", "throughput")):
            continue
        pairs = [(new, old) for new, old in zip(it.actual, it.golden, strict=False) if math.isfinite(old)]
        if any(not math.isfinite(new) for new, _ in pairs):
            return f"{it.metric} is not finite"
        if "loss" in it.metric and any(abs(new - old) > FAR * abs(old) for new, old in pairs):
            return f"{it.metric} is more than {FAR:.0%} off"
    if any(it.not_finite for it in readings):
        return "The loss is not finite"
    if any(it.losses and it.losses[1] > _DIVERGED * it.losses[0] > 0 for it in readings):
        return "The loss diverges"
    return ""


def compared_worst(compared: Sequence[Comparison]) -> dict[str, str]:
    """Expected and found, where they differ most."""
    worst, told = -1.0, {}
    for it in compared:
        for step, (new, old) in enumerate(zip(it.actual, it.golden, strict=False), 1):
            off = abs(new - old) / abs(old) if old and math.isfinite(new - old) else math.inf if new != old else 0.0
            if off > worst and not (math.isnan(new) and math.isnan(old)):
                worst = off
                told = {"metric": it.metric, "expected": f"{old:g}", "found": f"{new:g}", "value number": str(step)}
    return told


def losses(readings: Sequence[Reading]) -> dict[str, str]:
    told = next((it.losses for it in readings if it.losses), None)
    return {"lm loss": f"{told[0]:g} at first, {told[1]:g} at last"} if told else {}


def phase_of(frames: Sequence[tuple[str, str]]) -> str:
    """What a rank was doing, by the functions and files of its traceback; empty where they do not tell.

    ``checkpoint`` is saving and loading: the recomputation of activations has the same word in its names.
    """
    files, functions = " ".join(it[0] for it in frames), {it[1] for it in frames}
    if "dist_checkpointing" in files or functions & {"save_checkpoint", "load_checkpoint", "save_checkpoint_and_time"}:
        return "checkpoint"
    if functions & {"setup_model_and_optimizer", "get_model", "initialize_megatron", "get_megatron_optimizer"}:
        return "initialization"
    if "/optimizer/" in files or "/optim/" in files:
        return "optimizer"
    if any("backward" in it and "forward" not in it for it in functions):
        return "backward"
    if any(it.startswith("forward") and "backward" not in it for it in functions):
        return "forward"
    return "initialization" if "__init__" in functions else ""


def peak_of(message: str) -> str:
    """The memory that a process had in use when no more was to be had, as PyTorch words it."""
    found = re.search(r"(\d[\d.]{0,12} [KMGT]iB) memory in use", message)
    if found is None:
        found = re.search(r"allocated memory (\d[\d.]{0,12} [KMGT]iB) is allocated", message)
    return found[1] if found else ""


def parallelism(readings: Sequence[Reading]) -> str:
    """``TP 2, PP 4, …`` from the arguments that rank 0 prints."""
    told = {name: size for it in reversed(readings) for name, size in it.parallelism.items()}
    return ", ".join(f"{name} {told[name]}" for name in ("TP", "PP", "EP", "CP") if name in told)
