"""The evidence of measured values for hypotheses about which values come from the good state and which from the bad.

The good state has one mode.  The bad state has one or two: some runs of a bad image look fine.  A mode is a normal
distribution of unknown mean and noise, which the values of all points of that state determine together, so that a
hypothesis is judged with the uncertainty that few runs leave.  ``docs/bisect.md`` describes the model and its limits.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: Prior probability that the bad state has two modes.  In half of these cases, one mode is the good state's.
TWO_MODES = 0.5
#: Noise expected before any run, as a share of the good values; runs correct it by orders of magnitude.
NOISE = 0.02
_SHAPE = 1.0  # of the inverse gamma prior of a mode's variance: the smaller, the weaker the prior
_MEAN_RUNS = 0.005  # the weight of the prior of a mode's mean, in runs: a mode may be anywhere within about 14 sigma
#: Maximum number of runs in a ledger.
MAX_RUNS = 2_000

_LOG_GAMMA = np.array([math.lgamma(count) for count in range(1, MAX_RUNS + 3)])  # [n] = log n!
_LOG_GAMMA_HALF = np.array([math.lgamma(_SHAPE + count / 2) for count in range(MAX_RUNS + 1)])


def log_evidence(values: Sequence[float], good: Bools, scale: float) -> Floats:
    """Return the logarithm of each hypothesis' marginal likelihood, up to a constant.

    ``values`` (N): one per run, higher is better.  ``good`` (hypotheses x N): whether the run is of the good state.
    ``scale``: a typical good value, not 0, which is the unit of NOISE.
    """
    order = np.argsort(values)
    data = np.asarray(values, float)[order]
    data = (data - np.median(data)) / (NOISE * abs(scale))
    good = good[:, order]
    powers = (np.ones_like(data), data, data**2)  # count, sum and sum of squares determine a mode
    good_mode = np.stack([good @ power for power in powers])
    worse = np.stack([_running(~good, power) for power in powers])
    bad = worse[:, :, -1]
    better = bad[:, :, None] - worse
    single = math.log(1 - TWO_MODES) + _log_mode(*good_mode) + _log_mode(*bad)
    # Two modes: every division of the sorted bad values, once.
    weight = _log_division(worse[0], better[0])
    weight[:, 1:][good] = -np.inf  # the same division as one position to the left
    own = _log_mode(*good_mode)[:, None] + _log_mode(*worse) + _log_mode(*better)
    shared = _log_mode(*worse) + _log_mode(*(good_mode[:, :, None] + better))
    shared = np.where(worse[0] > 0, shared, -np.inf)
    half = math.log(TWO_MODES / 2)
    terms = np.column_stack([single, half + weight + own, half + weight + shared])
    return np.asarray(np.logaddexp.reduce(terms, axis=1))


def _running(chosen: Bools, data: Floats) -> Floats:
    """Return the sums of the chosen values among the first 0, 1, … N (hypotheses x N+1)."""
    sums = np.cumsum(chosen * data, axis=1)
    return np.concatenate([np.zeros((len(chosen), 1)), sums], axis=1)


def _log_mode(count: Floats, total: Floats, squares: Floats) -> Floats:
    """Return the log marginal likelihood of values from one mode: normal, with a normal-inverse-gamma prior."""
    runs = _MEAN_RUNS + count
    spread = 1 + (squares - total**2 / runs) / 2
    number = np.rint(count).astype(int)
    return np.asarray(
        _LOG_GAMMA_HALF[number]
        - _LOG_GAMMA_HALF[0]
        - (_SHAPE + count / 2) * np.log(np.maximum(spread, 1.0))
        + np.log(_MEAN_RUNS / runs) / 2
        - count / 2 * math.log(2 * math.pi)
    )


def _log_division(left: Floats, right: Floats) -> Floats:
    """Return the log probability of dividing the runs so between two modes of unknown, uniformly distributed weight."""
    first, second = np.rint(left).astype(int), np.rint(right).astype(int)
    return np.asarray(_LOG_GAMMA[first] + _LOG_GAMMA[second] - _LOG_GAMMA[first + second + 1])


def posterior(log_prior: Floats, evidence: Floats) -> Floats:
    """Return the probability of each hypothesis."""
    logs = log_prior + evidence
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
