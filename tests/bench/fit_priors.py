"""The script that regenerates ``priors.json`` from the history of a Megatron-LM clone.

    environment/run python tests/bench/fit_priors.py CLONE [--until 2026-01-01] > runbook_lib/golden/priors.json

Changes after ``--until`` are left out, so that later changes can be used for measurement.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles

from runbook_lib.golden import history, noise
from runbook_lib.golden.groups import SHIFT_LIMIT
from runbook_lib.golden.history import GoldenHistory, PastChange
from runbook_lib.golden.measure import PRIORS, is_loss
from runbook_lib.golden.noise import SIGMA
from runbook_lib.world.git.checkout import Checkout

#: Metrics with fewer changes than this get no separate prior.
_LEAST = 100
#: Bounds of the limits of losses: changes below 0.05 % are not worth a look, and no image should move a loss by more
#: than 0.1 %; bumps that did were later found to be wrong.
_LOSS_BOUNDS = (5e-4, 1e-3)
#: A loss that moved by this many limits is a different training, which says nothing about noise.
_OTHER_TRAINING = 20.0


def main() -> None:
    """Print the priors as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("--until", default="2026-01-01", metavar="DATE")
    options = parser.parse_args()
    checkout = Checkout.open(options.clone)
    commit = checkout.git("rev-list", "-1", "--first-parent", f"--before={options.until}", "HEAD")
    past = history.read(checkout, commit, None)
    print(json.dumps(fit(past), indent=1))


def fit(past: GoldenHistory) -> dict[str, object]:
    """Return the priors fitted to a history; priors that it cannot determine keep their values."""
    model = noise.learn(past, {})
    by_metric: dict[str, list[float]] = defaultdict(list)
    for (_, metric), residuals in model.residuals.items():
        by_metric[metric] += residuals
    scales = {metric: _scale(changes) for metric, changes in by_metric.items() if len(changes) >= _LEAST}
    limit = math.log1p(SHIFT_LIMIT)
    moved = {}
    for metric in scales:
        moved[metric] = _rounded(sum(change > limit for change in by_metric[metric]) / len(by_metric[metric]) + 0.02)
    return {
        "scales": {"": 0.06, "throughput": 0.15} | dict(sorted(scales.items())),
        "moved": {"": 0.1} | dict(sorted(moved.items())),
        "shift": {"": 0.05} | _shifts(past, scales),
        "stopped": PRIORS.stopped,
        **_loss_limits(past),
        "window_loss": PRIORS.window_loss,
    }


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _scale(changes: Sequence[float]) -> float:
    # Zeros are left out: most memory values do not change at all, and the others vary more.
    sizes = [abs(change) for change in changes if change]
    return _rounded(max(SIGMA * median(sizes), 0.002)) if sizes else 0.002


def _shifts(past: GoldenHistory, scales: Mapping[str, float]) -> dict[str, float]:
    """Return the standard deviation of a platform's common shift, by metric."""
    commits: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for change in past.changes:
        for metric, cost in change.costs.items():
            if metric in scales and not _is_other_training(change):
                commits[change.order, noise.platform_of(change.file), metric].append(cost)
    sizes: dict[str, list[float]] = defaultdict(list)
    for (_, _, metric), costs in commits.items():
        if len(costs) >= noise.COMMON:
            sizes[metric].append(abs(median(costs)))
    return {metric: _rounded(max(SIGMA * median(values), 0.01)) for metric, values in sorted(sizes.items())}


def _is_other_training(change: PastChange) -> bool:
    return max(change.losses.values(), default=0.0) > _OTHER_TRAINING


def _loss_limits(past: GoldenHistory) -> dict[str, float]:
    """Return the limits, for first and later steps, that most losses kept, ignoring tests that train differently."""
    excesses = []
    for change in past.changes:
        if not _is_other_training(change):
            excesses += [excess for metric, excess in change.losses.items() if excess and is_loss(metric)]
    usual = quantiles(excesses, n=20)[-1] * PRIORS.loss
    limit = _rounded(min(max(usual, _LOSS_BOUNDS[0]), _LOSS_BOUNDS[1]))
    return {"first_loss": limit, "loss": limit}


if __name__ == "__main__":
    main()
