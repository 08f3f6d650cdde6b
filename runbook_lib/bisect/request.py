"""What a search is asked for: two tags, what is measured, where, and how often at most."""

import hashlib
import json
import re
import shlex
import sys
from dataclasses import dataclass

from runbook_lib.bisect.search import MAX_RUNS
from runbook_lib.compute.slurm.site import Site
from runbook_lib.errors import Refused
from runbook_lib.images.reference import Tag
from runbook_lib.pins.bump import Bump

_RECIPE_TEST = re.compile(r"[\w.-]+/[\w.-]+@[\w.-]+")
#: The prefix of a simulated test in practice; its name follows.
_PRACTICE = "practice "
#: Minutes of a run, unless the site file has a time limit.
_MINUTES = 30
_NO_PLACE = (
    "A test or a command runs on the cluster of the site file, which has no results: a folder visible to all nodes. A "
    'command that runs here names its image, such as: docker run --rm --gpus all -v "$PWD:$PWD" -w "$PWD" {image} '
    "bash -c '. {overlay} && pytest tests/unit_tests'"
)


@dataclass(frozen=True)
class BisectRequest:
    """A search from the ``good`` to the ``bad`` tag, of at most ``runs`` runs.

    ``subject`` is what is measured: a recipe's test, or a command.  ``metric`` is ``exit``, ``value`` (the last number
    that the command prints), or a metric of the test's golden values.  ``site`` has the time limit, GPUs and images.
    """

    good: Tag
    bad: Tag
    subject: str
    metric: str
    higher_is_better: bool
    runs: int
    site: Site

    @property
    def is_test(self) -> bool:
        """True for a recipe's test, which has golden values."""
        return _RECIPE_TEST.fullmatch(self.subject) is not None

    @property
    def here(self) -> bool:
        """True for a command that takes the image, and runs on this machine; all else runs on the cluster."""
        return "{image}" in self.subject or "{tag}" in self.subject

    @property
    def minutes(self) -> int:
        """The time limit of a run."""
        return self.site.session.minutes or _MINUTES

    @property
    def direction(self) -> str:
        """The direction of the metric, in words."""
        if self.metric == "exit":
            return "0 is good"
        return "higher is better" if self.higher_is_better else "lower is better"

    @property
    def key(self) -> str:
        """A name for this search, whatever its budget: the same parameters continue it."""
        facts = [str(self.good), str(self.bad), self.subject, self.metric, self.site.search_image]
        facts += [f"{name}={version}" for name, version in self.site.components.items()]
        return hashlib.sha256(json.dumps([*facts, self.higher_is_better]).encode()).hexdigest()[:12]


def parse(
    bump: Bump, site: Site, good: str, test: str, metric: str = "exit", budget: str = "40", *, practice: bool = False
) -> BisectRequest | None:
    """Return the search that the parameters describe; None without a good image.  Raises Refused."""
    if not good:
        return None
    family = bump.repository.sites.family
    if not bump.tag:
        raise Refused("A search needs two tags: good, the newest that works, and tag, one that does not.")
    first, last = family.read(good), family.read(str(bump.tag))
    if not first.is_older(last):
        raise Refused(f"good={first} must be older than tag={last}, and of the same kind. Swap or correct them.")
    subject = test.strip()
    if not subject:
        raise Refused("Name a recipe's test as model/case@platform, or the command to run in each image.")
    if practice and subject.startswith(_PRACTICE):
        program = f"{shlex.quote(sys.executable)} -m runbook_lib.practice.workload"
        subject = f"{program} {subject.removeprefix(_PRACTICE)} {{tag}} {{restored}}"
    is_test = _RECIPE_TEST.fullmatch(subject) is not None
    if not re.fullmatch(r"[0-9]{1,4}", budget) or not 4 <= int(budget) <= MAX_RUNS:
        raise Refused(f"budget={budget!r} is not a number of runs from 4 to {MAX_RUNS}, such as 40.")
    named, is_higher = _metric(metric, is_test=is_test)
    request = BisectRequest(first, last, subject, named, is_higher, int(budget), site)
    if not (request.here or site.results):
        raise Refused(_NO_PLACE)
    return request


def _metric(text: str, *, is_test: bool) -> tuple[str, bool]:
    """Return the metric and True if higher is better."""
    if text.strip() in ("", "exit"):
        return "exit", True
    match = re.fullmatch(r"(\S+) (higher|lower)", text.strip())
    if match is None or not (is_test or match[1] == "value"):
        raise Refused(
            f"metric={text!r} is not exit, value lower or value higher; nor, for a recipe's test, a golden metric and "
            "which of its values are better, such as iteration-time lower."
        )
    return match[1], match[2] == "higher"
