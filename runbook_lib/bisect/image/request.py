"""The parameters of a search, checked."""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from runbook_lib.bisect import model, overlays
from runbook_lib.errors import Refused
from runbook_lib.images.families import is_older
from runbook_lib.images.reference import Tag
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import UserOverlay

Where = Literal["local", "slurm", "command"]
_BUDGET = re.compile(r"([0-9]{1,4})(?: runs?)?(?:,? +([0-9]{1,6}(?:\.[0-9]{1,3})?) GPU hours?)?")
#: The prefix of a practice command; the name of a simulated test follows.
PRACTICE = "practice "
#: Metrics whose direction is known.
_LOWER = ("iteration-time", "mem-allocated-bytes", "mem-max-allocated-bytes")


@dataclass(frozen=True)
class SearchOptions:
    """The notebook's parameters that describe a search; without ``good`` there is none."""

    good: str = ""
    bad: str = ""
    test: str = ""
    command: str = ""
    metric: str = "exit"
    where: str = "local"
    image: str = ""
    components: str = ""
    budget: str = "40"
    minutes: str = "30"


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
class Budget:
    """The most that a search may cost: ``gpu_hours`` is None if unlimited, ``minutes`` is the limit of one run."""

    runs: int
    gpu_hours: float | None
    minutes: int


@dataclass(frozen=True)
class BisectRequest:
    """A search from the ``good`` to the ``bad`` tag.

    ``image`` is an image name containing ``{tag}``, or empty for the base image.  ``components`` are swapped in
    addition to those that the images name.
    """

    good: Tag
    bad: Tag
    measure: SearchSubject
    where: Where
    image: str
    budget: Budget
    components: tuple[UserOverlay, ...] = ()

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
        facts = {
            "good": self.good, "bad": self.bad, **vars(self.measure), "where": self.where, "image": self.image,
            **vars(self.budget), "program": "", "components": components,
        }  # fmt: skip
        return {name: str(value) for name, value in facts.items() if value not in ("", None)}


def parse(bump: Bump, given: SearchOptions, *, practice: bool = False) -> BisectRequest | None:
    """Return the search that the parameters describe; None if no image is suspected.  Raises Refused."""
    if not given.good:
        return None
    family = bump.repository.sites.family
    if not (given.bad or bump.tag):
        raise Refused("A search needs two tags: good, the newest that works, and bad (or tag), one that does not.")
    first, last = family.read(given.good), family.read(given.bad or str(bump.tag))
    if not is_older(first, last):
        raise Refused(f"good={first} must be older than bad={last}, and of the same kind. Swap or correct them.")
    if bool(given.test) == bool(given.command):
        raise Refused("Name either test, a recipe's model/case@platform, or command, the command to run in each image.")
    program, where = "", given.where
    if practice and given.command.startswith(PRACTICE):
        name = given.command.removeprefix(PRACTICE)
        where = "command"
        program = f"{shlex.quote(sys.executable)} -m runbook_lib.practice.workload {name} {{tag}} {{restored}}"
    if where not in ("local", "slurm", "command"):
        raise Refused(f"where={where!r} is invalid. Choose local, slurm or command.")
    if given.test and where != "slurm":
        raise Refused("A recipe's test runs on a cluster: choose where=slurm, or set command to the test's command.")
    if where == "command" and not any(name in (program or given.command) for name in ("{image}", "{tag}")):
        raise Refused("With where=command, the command must contain {image} or {tag} and print the value.")
    if given.image and "{tag}" not in given.image:
        raise Refused(f"image={given.image!r} does not contain {{tag}}. Example: registry.example/mcore:{{tag}}")
    measure = SearchSubject(given.test, given.command, *_metric(given.metric, has_golden=bool(given.test)), program)
    components = tuple(_components(given.components))
    return BisectRequest(first, last, measure, cast(Where, where), given.image, _budget(given), components)


def _budget(given: SearchOptions) -> Budget:
    match = _BUDGET.fullmatch(given.budget.strip())
    if match is None or not 4 <= int(match[1]) <= model.MAX_RUNS:
        raise Refused(
            f"budget={given.budget!r} is not 4 to {model.MAX_RUNS} runs. Examples: 40, or 40 runs, 64 GPU hours"
        )  # fmt: skip
    if not re.fullmatch(r"[1-9][0-9]{0,3}", given.minutes):
        raise Refused(f"minutes={given.minutes!r} is not a limit for each run, from 1 to 9999 minutes.")
    return Budget(int(match[1]), float(match[2]) if match[2] else None, int(given.minutes))


def _components(text: str) -> Iterator[UserOverlay]:
    """Yield the components from comma-separated ``name=version`` entries."""
    for word in filter(None, re.split(r"[,\s]+", text)):
        name, _, version = word.partition("=")
        if name not in overlays.known_names() or not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,60}", version):
            known = f"Known names: {', '.join(overlays.known_names())}; a pins file can add others (docs/bisect.md)."
            raise Refused(f"components has {word[:80]!r}. Write name=version, with the good image's version. {known}")
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
