"""A simulated test in the practice environment, for bisect-image: its value depends on the contents of its image.

``python -m runbook_lib.practice.workload SCENARIO {tag} {restored}`` prints a value; ``{restored}`` is a component.
"""

import random
import sys

#: Scenario → the first bad tag, and the components that together make it bad.
SCENARIOS = {
    "slow": ("26.05-py3", {"nccl"}),  # in two of three runs, as in TensorRT-LLM #17160
    "broken": ("26.04-py3", {"cudnn"}),
    "interaction": ("26.05-py3", {"cublas", "nccl"}),
    "torch": ("26.06-py3", set[str]()),  # a part that cannot be swapped
}
_GOOD, _SLOW, _LUCKY, _NOISE = 4.07, 2.54, 4.16, 0.018


def main(scenario: str, tag: str, restored: str = "") -> int:
    """Run the simulated test once; return its exit status."""
    if scenario not in SCENARIOS:
        print(f"There is no simulated test {scenario!r}: choose from {', '.join(SCENARIOS)}.", file=sys.stderr)
        return 2
    name, _, version = restored.partition("=")
    if name:
        print(f"runbook-overlay: {name} {version}")
    since, culprits = SCENARIOS[scenario]
    is_bad = tag >= since and name not in culprits
    is_lucky = scenario == "slow" and random.random() < 1 / 3
    mean = (_LUCKY if is_lucky else _SLOW) if is_bad else _GOOD
    print(f"tokens/s: {random.gauss(mean, mean * _NOISE):.4f}")
    if is_bad and scenario == "broken":
        print("CUDNN_STATUS_EXECUTION_FAILED", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
