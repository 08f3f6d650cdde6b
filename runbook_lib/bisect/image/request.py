"""What a search is asked for: two tags, what is measured, where, and how often at most."""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from runbook_lib.bisect import model, overlays
from runbook_lib.compute.slurm.site import Site
from runbook_lib.errors import Refused
from runbook_lib.images.families import is_older
from runbook_lib.images.reference import Tag
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import UserOverlay

Where = Literal["local", "slurm", "command"]
_RECIPE_TEST = re.compile(r"[\w.-]+/[\w.-]+@[\w.-]+")
#: The prefix of a practice command; the name of a simulated test follows.
PRACTICE = "practice "
#: Metrics whose direction is known.
_LOWER = ("iteration-time", "mem-allocated-bytes", "mem-max-allocated-bytes")
#: Minutes of a run, unless the site file has a time limit.
_MINUTES = 30


@dataclass(frozen=True)
class SearchOptions:
    """The notebook's parameters that describe a search; without ``good`` there is none."""

    good: str = ""
    test: str = ""
    metric: str = "exit"
    budget: str = "40"


@dataclass(frozen=True)
class SearchSubject:
    """What is measured: a recipe's ``test``, or a ``command``.

    ``metric`` is ``exit``, ``value`` (the last number that the command prints), or a metric of the test's golden
    values.  ``program`` is the program behind a practice ``command``.
    """

    test: str
    command: str
    metric: str
    higher_is_better: bool
    program: str = ""


@dataclass(frozen=True)
class BisectRequest:
    """A search from the ``good`` to the ``bad`` tag, of at most ``runs`` runs of so many ``minutes`` each.

    ``where`` is ``local`` (in a container here), ``slurm``, or ``command`` for a command that takes the image.
    ``image`` is an image name containing ``{tag}``, or empty for the base image.  ``components`` are swapped in
    addition to those that the images name.
    """

    good: Tag
    bad: Tag
    measure: SearchSubject
    where: Where
    image: str
    runs: int
    minutes: int
    components: tuple[UserOverlay, ...] = ()

    @property
    def subject(self) -> str:
        """What is measured, as it was given."""
        return self.measure.test or self.measure.command

    @property
    def key(self) -> str:
        """A name for this search, whatever its budget: the same parameters continue it."""
        measure = self.measure
        facts = [str(self.good), str(self.bad), measure.test, measure.command, measure.metric, self.where, self.image]
        facts += [f"{component.name}={component.old}" for component in self.components]
        return hashlib.sha256(json.dumps([*facts, measure.higher_is_better]).encode()).hexdigest()[:12]

    @property
    def inputs(self) -> dict[str, Any]:
        """The parameters as stored in the record and the ledger."""
        components = ", ".join(f"{each.name}={each.old}" for each in self.components)
        facts = {**vars(self), **vars(self.measure), "measure": "", "program": "", "components": components}
        return {name: str(value) for name, value in facts.items() if value != ""}


def parse(bump: Bump, given: SearchOptions, site: Site, *, practice: bool = False) -> BisectRequest | None:
    """Return the search that the parameters describe; None if no image is suspected.  Raises Refused."""
    if not given.good:
        return None
    family = bump.repository.sites.family
    if not bump.tag:
        raise Refused("A search needs two tags: good, the newest that works, and tag, one that does not.")
    first, last = family.read(given.good), family.read(str(bump.tag))
    if not is_older(first, last):
        raise Refused(f"good={first} must be older than tag={last}, and of the same kind. Swap or correct them.")
    subject = given.test.strip()
    if not subject:
        raise Refused("Name a recipe's test as model/case@platform, or the command to run in each image.")
    has_golden, program = _RECIPE_TEST.fullmatch(subject) is not None, ""
    where: Where = "slurm" if has_golden or site.results else "local"
    if practice and subject.startswith(PRACTICE):
        name = subject.removeprefix(PRACTICE)
        program = f"{shlex.quote(sys.executable)} -m runbook_lib.practice.workload {name} {{tag}} {{restored}}"
    if program or any(name in subject for name in ("{image}", "{tag}")):
        where = "command"
    if site.search_image and "{tag}" not in site.search_image:
        raise Refused("search-image in the site file has no {tag}. Example: registry.example/mcore:{tag}")
    if not re.fullmatch(r"[0-9]{1,4}", given.budget) or not 4 <= int(given.budget) <= model.MAX_RUNS:
        raise Refused(f"budget={given.budget!r} is not a number of runs from 4 to {model.MAX_RUNS}, such as 40.")
    names = (subject, "") if has_golden else ("", subject)
    measure = SearchSubject(*names, *_metric(given.metric, has_golden=has_golden), program)
    minutes = site.session.allocation.minutes or _MINUTES
    components = tuple(_components(site.components))
    return BisectRequest(first, last, measure, where, site.search_image, int(given.budget), minutes, components)


def _components(versions: Mapping[str, str]) -> Iterator[UserOverlay]:
    """Yield the components with their versions in the good image."""
    for name, version in versions.items():
        if name not in overlays.known_names() or not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,60}", version):
            known = f"Known names: {', '.join(overlays.known_names())}; a pins file can add others (docs/bisect.md)."
            raise Refused(f"components in the site file has {name[:80]!r}: {version[:80]!r}. {known}")
        yield UserOverlay(name, version)


def _metric(text: str, *, has_golden: bool) -> tuple[str, bool]:
    """Return the metric and True if higher is better."""
    name, _, direction = text.strip().rpartition(" ")
    if direction not in ("higher", "lower"):
        name, direction = text.strip(), ""
    if name in ("", "exit"):
        return "exit", True
    if name != "value" and not has_golden:
        advice = "For a command use exit, value higher or value lower."
        raise Refused(f"metric={text!r} is a golden metric, which only a test has. {advice}")
    if not direction and name in _LOWER:
        direction = "lower"
    if not direction:
        raise Refused(f"metric={text!r} does not say which values are better. Use {name} higher or {name} lower.")
    return name, direction == "higher"
