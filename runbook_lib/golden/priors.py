"""The usual noise of golden values, from the history of Megatron-LM: ``priors.json``, by ``fit_priors.py``.

They decide where a test and its family have too few versions of their own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Priors:
    """``scales``: the usual standard deviation of a test's change by metric; ``families``: by metric and model.

    ``shift`` is the standard deviation of a platform's common shift, by metric.  ``degrees`` are those of Student's t
    that decides.  ``tails``: by metric the share of past changes beyond each half standard deviation, one way, from
    which the stated error rates follow.  ``moved``: the share of changes beyond the limit of a group, by metric.
    ``stopped``: the share of files that are held back alone, by the kind of the reason.  ``first_loss``, ``loss``,
    ``window_loss``: limits of relative changes.
    """

    scales: Mapping[str, float]
    families: Mapping[str, Mapping[str, float]]
    degrees: int
    tails: Mapping[str, Sequence[float]]
    moved: Mapping[str, float]
    shift: Mapping[str, float]
    stopped: Mapping[str, float]
    first_loss: float
    loss: float
    window_loss: float
    until: str


def _load() -> Priors:
    data = json.loads(resources.files("runbook_lib.golden").joinpath("priors.json").read_text("utf-8"))
    return Priors(**data)


PRIORS = _load()
