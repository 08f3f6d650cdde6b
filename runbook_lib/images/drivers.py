"""The verdict on an NVIDIA driver for an image, and its reason, by the rules of ``driver_rules``.

Three rules are kept apart: the driver that a CUDA release needs, the compatibility package (forward compatibility,
data-center GPUs only), and CUDA minor-version compatibility.  The last is told and decides nothing: it promises a
limited set of features, and nobody promises that an image keeps to them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from runbook_lib.errors import RunbookError
from runbook_lib.images.driver_rules import GUIDE, MINOR, MINORS, PACKAGES, RULES, Rule, Source

#: By the compatibility package means: on data-center GPUs, and on no others.
Verdict = Literal["runs", "runs by the compatibility package", "does not run", "unknown"]

#: A driver's version: its branch and one or two numbers more.
DRIVER = r"[1-9]\d{2}\.\d{1,4}(?:\.\d{1,4})?"
_PACKAGED: Verdict = "runs by the compatibility package"


@dataclass(frozen=True)
class Answer:
    """``reason`` names the rule and where it stands, in whole sentences; ``sources`` are their public addresses."""

    verdict: Verdict
    reason: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Needed:
    """The requirements of an image: its CUDA release, such as ``12.9``, and the driver that it is built with.

    Each is empty where the image's config does not name it.
    """

    cuda: str = ""
    built: str = ""

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Self:
        """Read CUDA_VERSION and CUDA_DRIVER_VERSION of an image's environment."""
        cuda = re.match(r"\d{1,3}\.\d{1,3}(?!\d)", env.get("CUDA_VERSION", ""), re.ASCII)
        built = re.fullmatch(DRIVER, env.get("CUDA_DRIVER_VERSION", "").strip(), re.ASCII)
        return cls(cuda[0] if cuda else "", built[0] if built else "")

    @property
    def driver(self) -> str:
        """The driver from which on it runs everywhere: ``575``; empty where that is unknown."""
        return self._rule.needs if self._rule else self.built

    @property
    def told(self) -> Answer:
        """The requirement in complete sentences; ``unknown`` where the image names no CUDA."""
        rule = self._rule
        if rule is None and self.built:
            return Answer(
                "runs", f"Driver {self.built} or later is needed, which the image is built with: {self._lost}."
            )
        if rule is None:
            return Answer("unknown", f"Which driver the image needs is unknown: {self._lost}.")
        others = [f"{lowest}+" for lowest in rule.forward] + [f"R{branch}" for branch in self._by_guide]
        package = f"; on data-center GPUs {_or(others)} will do, by the compatibility package" if others else ""
        sources = (rule.source, *([GUIDE] if self._by_guide else []))
        return _answer("runs", f"CUDA {self.cuda} {_asks(rule)}{package}", *sources)

    def judge(self, driver: str, *, data_center: bool = True) -> Answer:
        """Judge a driver such as ``535.104.05``.  Raises RunbookError for a text that is no such version."""
        version, rule = numbers(driver), self._rule
        if rule and version >= _key(rule.needs):
            return _answer("runs", f"Driver {driver} runs CUDA {self.cuda}, which {_asks(rule)}", rule.source)
        if self.built and version >= _key(self.built):
            told = f"Driver {driver} runs the image, which is built with {self.built}: a driver runs all that is older"
            return _answer("runs", told, MINOR)
        if rule is None:
            older = f", and {driver} is older than {self.built}, which the image is built with" if self.built else ""
            return Answer("unknown", f"Nothing tells whether driver {driver} runs the image: {self._lost}{older}.")
        found = self._by_package(driver, rule) or self._unnamed(driver, rule)
        if found.verdict == _PACKAGED and not data_center:
            found = self._elsewhere(driver, rule)
        return found if found.verdict == _PACKAGED else self._with_minor(found, version)

    @property
    def _rule(self) -> Rule | None:
        return RULES.get(self.cuda)

    @property
    def _by_guide(self) -> tuple[str, ...]:
        """Branches that NVIDIA's guide says the package takes, and of which the rule itself says nothing."""
        rule = self._rule
        said = {*map(_branch, rule.forward), *rule.refused} if rule else set()
        return tuple(branch for branch in PACKAGES.get(self.cuda, ()) if branch not in said)

    @property
    def _lost(self) -> str:
        return f"no rule for CUDA {self.cuda} is known" if self.cuda else "its config does not name its CUDA release"

    @property
    def _starts(self) -> str:
        return MINORS[_branch(self.cuda)]

    def _by_package(self, driver: str, rule: Rule) -> Answer | None:
        """Return the verdict with the compatibility package; None where no source names the driver's branch."""
        branch, no = _branch(driver), f"Driver {driver} does not run CUDA {self.cuda}, which {_asks(rule)}"
        by = f"Driver {driver} runs CUDA {self.cuda} on data-center GPUs by the compatibility package, which takes"
        lowest = next((it for it in rule.forward if _branch(it) == branch), None)
        if lowest and numbers(driver) >= _key(lowest):
            found = _answer(_PACKAGED, f"{by} {lowest} or later of branch R{branch}", rule.source)
            both = f" The same source calls R{branch} not forward compatible. {rule.note}".rstrip()
            return Answer(found.verdict, found.reason + both, found.sources) if branch in rule.refused else found
        if lowest:
            return _answer("does not run", f"{no}: of R{branch} the compatibility package takes {lowest}+", rule.source)
        if branch in rule.refused:
            found = _answer("does not run", f"{no}: R{branch} is not forward compatible", rule.source)
            return Answer(found.verdict, f"{found.reason} {rule.note}".rstrip(), found.sources)
        return _answer(_PACKAGED, f"{by} branch R{branch}", GUIDE) if branch in self._by_guide else None

    def _unnamed(self, driver: str, rule: Rule) -> Answer:
        """A branch that no source names: unknown where minor-version compatibility reaches, else too old."""
        names = f"CUDA {self.cuda} {_asks(rule)}, and R{_branch(driver)} is not named for the compatibility package"
        if numbers(driver) >= _key(self._starts):
            return _answer("unknown", f"Nothing tells whether driver {driver} will do: {names}", rule.source, GUIDE)
        return _answer("does not run", f"Driver {driver} is too old: {names}", rule.source, GUIDE)

    def _elsewhere(self, driver: str, rule: Rule) -> Answer:
        """A driver that the package would help, on other GPUs than those of data centers."""
        only = f"CUDA {self.cuda} {_asks(rule)}, and the compatibility package is for data-center GPUs only"
        if rule.required or numbers(driver) < _key(self._starts):
            return _answer("does not run", f"Driver {driver} is too old: {only}", rule.source, GUIDE)
        return _answer("unknown", f"Nothing tells whether driver {driver} will do: {only}", rule.source, GUIDE)

    def _with_minor(self, found: Answer, version: tuple[int, ...]) -> Answer:
        if version < _key(self._starts):
            return found
        minor = _answer(
            found.verdict,
            f"CUDA minor-version compatibility is a rule of its own: programs of CUDA {_branch(self.cuda)}.x start on "
            f"driver {self._starts} or later with a limited set of features, and whether an image keeps to them "
            "is not said",
            MINOR,
        )
        return Answer(found.verdict, f"{found.reason} {minor.reason}", found.sources + minor.sources)


def numbers(driver: str) -> tuple[int, ...]:
    """A driver's version as numbers.  Raises RunbookError where it is none."""
    if not re.fullmatch(DRIVER, driver, re.ASCII):
        raise RunbookError(
            f"{driver[:60]!r} is not the version of a driver. Give the whole version as nvidia-smi shows it, such as "
            "535.104.05: the branch alone does not tell whether it is new enough."
        )
    return _key(driver)


def _answer(verdict: Verdict, sentence: str, *sources: Source) -> Answer:
    named = "; ".join(dict.fromkeys(f"{it.name}, {it.dated}" for it in sources))
    return Answer(verdict, f"{sentence} ({named}).", tuple(dict.fromkeys(it.address for it in sources)))


def _asks(rule: Rule) -> str:
    return f"needs driver {rule.needs} or later" if rule.required else f"comes with driver {rule.needs}"


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _branch(version: str) -> str:
    return version.partition(".")[0]


def _or(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
