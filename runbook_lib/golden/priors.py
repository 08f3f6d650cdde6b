"""The usual noise of golden values in Megatron-LM's history: ``priors.json``, which a bench generates.

The priors decide if a test has too few versions.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Priors:
    """``scales``: the usual standard deviation of a test's change, by metric.

    ``shift`` is the standard deviation of a platform's common shift, by metric.  ``moved``: the share of changes beyond
    the limit of a group, by metric.  ``stopped``: the share of files held back individually, by the kind of the reason.
    ``first_loss``, ``loss``, ``window_loss``: limits of relative changes.
    """

    scales: Mapping[str, float]
    moved: Mapping[str, float]
    shift: Mapping[str, float]
    stopped: Mapping[str, float]
    first_loss: float
    loss: float
    window_loss: float


PRIORS = Priors(**json.loads(resources.files("runbook_lib.golden").joinpath("priors.json").read_text("utf-8")))
