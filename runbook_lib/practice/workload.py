"""A simulated test in the practice environment, for bisect-image: its value depends on the contents of its image.

``python -m runbook_lib.practice.workload SCENARIO {tag} {restored}`` prints a value.
"""

import argparse
import random
import sys
from collections.abc import Mapping, Sequence

#: Scenario → the first bad tag, the components that together make it bad, and a description.
SCENARIOS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "slow": ("26.05-py3", ("nccl",), "Two of three runs are slower since NCCL changed, as in TensorRT-LLM #17160."),
    "broken": ("26.04-py3", ("cudnn",), "It fails since cuDNN changed."),
    "interaction": ("26.05-py3", ("cublas", "nccl"), "It is slower where the new cuBLAS and NCCL come together."),
    "torch": ("26.06-py3", (), "It is slower because of a change in a part that cannot be swapped."),
}
_GOOD, _SLOW, _LUCKY, _NOISE = 4.07, 2.54, 4.16, 0.018


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulated test once; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m runbook_lib.practice.workload", description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("tag", help="the tag of the image, such as 26.05-py3")
    parser.add_argument("restored", nargs="?", default="", help="old components in it, such as nccl=2.29.7")
    options = parser.parse_args(arguments)
    restored = dict(part.split("=", 1) for part in filter(None, options.restored.split(",")))
    for name, version in restored.items():
        print(f"runbook-overlay: {name} {version}")
    since, culprits, _ = SCENARIOS[options.scenario]
    is_bad = options.tag >= since and not restored.keys() & set(culprits)
    mean = _SLOW if is_bad else _GOOD
    if is_bad and options.scenario == "slow" and random.random() < 1 / 3:
        mean = _LUCKY
    print(f"tokens/s: {random.gauss(mean, mean * _NOISE):.4f}")
    if is_bad and options.scenario == "broken":
        print("CUDNN_STATUS_EXECUTION_FAILED", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
