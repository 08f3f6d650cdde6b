"""The verdict on an NVIDIA driver for an image, and its reason, by the rules in ``driver_rules.toml``.

The drivers of the runners are compared for preflight's check and table, and for ``runbook image driver``.

There are three rules: the driver that a CUDA release needs, the compatibility package (forward compatibility, only for
data-center GPUs), and CUDA minor-version compatibility. The last is mentioned but decides nothing: it covers a limited
set of features, and no image documents that it uses only these.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, Self

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import Image
from runbook_lib.model import Check

#: "By the compatibility package" means: on data-center GPUs, and on no others.
Verdict = Literal["runs", "runs by the compatibility package", "does not run", "unknown"]

#: The version of a driver: its branch and one or two more numbers.
DRIVER = r"[1-9]\d{2}\.\d{1,4}(?:\.\d{1,4})?"
_PACKAGED: Verdict = "runs by the compatibility package"
#: The exit status for each verdict, from the worst to the best.
EXIT_STATUS: Mapping[Verdict, int] = {"does not run": 1, "unknown": 2, _PACKAGED: 0, "runs": 0}
#: The environment variable with the drivers of the runners.
DRIVERS_VARIABLE = "RUNBOOK_DRIVERS"
_DATA = tomllib.loads((files("runbook_lib.images") / "driver_rules.toml").read_text("utf-8"))
_NOTES = {"PyTorch": "frameworks/pytorch-release-notes", "Triton": "triton-inference-server/release-notes"}


@dataclass(frozen=True)
class RuleSource:
    """The source of a rule: its title, public URL and date (a month for the notes on a month's image)."""

    name: str
    address: str
    dated: str


@dataclass(frozen=True)
class DriverRule:
    """The requirements of one CUDA release for a driver; ``driver_rules.toml`` describes the fields."""

    needs: str
    source: RuleSource
    required: bool = True
    forward: Sequence[str] = ()
    refused: Sequence[str] = ()
    package: Sequence[str] = ()
    note: str = ""

    @property
    def packaged(self) -> dict[str, tuple[str, RuleSource]]:
        """By branch, the lowest driver that the compatibility package takes, empty for any, and the source."""
        taken = {_branch(lowest): (lowest, self.source) for lowest in self.forward}
        for branch in self.package:
            if branch not in self.refused:
                taken.setdefault(branch, ("", GUIDE))
        return taken


def image_notes(image: str, month: str) -> RuleSource:
    """Return the release notes on an NGC image, ``PyTorch`` or ``Triton``, of a month such as ``25.04``."""
    dated = f"20{month.replace('.', '-')}"
    address = f"https://docs.nvidia.com/deeplearning/{_NOTES[image]}/rel-{dated[2:]}.html"
    return RuleSource(f"NVIDIA's notes on the {image} image {month}", address, dated)


def _rule(fields: Mapping[str, Any]) -> DriverRule:
    name = fields["source"]
    return DriverRule(**{**fields, "source": _SOURCES.get(name) or image_notes(*name.split())})


_SOURCES = {name: RuleSource(**fields) for name, fields in _DATA["sources"].items()}
GUIDE, MINOR = _SOURCES["guide"], _SOURCES["minor"]
#: CUDA release → its rule.
RULES: Mapping[str, DriverRule] = {cuda: _rule(fields) for cuda, fields in _DATA["cuda"].items()}
#: Major CUDA release → the lowest driver on which programs of all its minor releases start, by MINOR.
MINORS: Mapping[str, str] = _DATA["minors"]


@dataclass(frozen=True)
class DriverJudgement:
    """``reason`` gives the rule and its source in complete sentences; ``sources`` are the public URLs."""

    verdict: Verdict
    reason: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverRequirement:
    """The CUDA release of an image, such as ``12.9``, and the driver that it is built with.

    Each is empty if the image's config does not name it.
    """

    cuda: str = ""
    built: str = ""

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Self:
        """Read CUDA_VERSION and CUDA_DRIVER_VERSION from an image's environment."""
        cuda = re.match(r"\d{1,3}\.\d{1,3}(?!\d)", env.get("CUDA_VERSION", ""), re.ASCII)
        built = re.fullmatch(DRIVER, env.get("CUDA_DRIVER_VERSION", "").strip(), re.ASCII)
        return cls(cuda[0] if cuda else "", built[0] if built else "")

    @property
    def driver(self) -> str:
        """The lowest driver that runs it on any GPU, such as ``575``; empty if that is unknown."""
        rule = RULES.get(self.cuda)
        return rule.needs if rule else self.built

    @property
    def summary(self) -> DriverJudgement:
        """The requirement in complete sentences; ``unknown`` if the image declares no CUDA release."""
        rule = RULES.get(self.cuda)
        if rule is None and self.built:
            reason = f"Driver {self.built} or later is needed, which the image is built with: {self._no_rule}."
            return DriverJudgement("runs", reason)
        if rule is None:
            return DriverJudgement("unknown", f"The driver that the image needs is unknown: {self._no_rule}.")
        sentence, packaged = f"CUDA {self.cuda} {_needs(rule)}", rule.packaged
        if packaged:
            alternatives = [f"{lowest}+" if lowest else f"R{branch}" for branch, (lowest, _) in packaged.items()]
            listed = re.sub(r", ([^,]*)$", r" or \1", ", ".join(alternatives))
            sentence += f"; on data-center GPUs {listed} will do, by the compatibility package"
        return _judgement("runs", sentence, rule.source, *(source for _, source in packaged.values()))

    def judge(self, driver: str) -> DriverJudgement:
        """Judge a driver such as ``535.104.05``. Raises RunbookError if it is not such a version."""
        version, rule = numbers(driver), RULES.get(self.cuda)
        if rule and version >= _key(rule.needs):
            return _judgement("runs", f"Driver {driver} runs CUDA {self.cuda}, which {_needs(rule)}", rule.source)
        if self.built and version >= _key(self.built):
            sentence = f"Driver {driver} runs the image, which is built with {self.built}: newer drivers run it too"
            return _judgement("runs", sentence, MINOR)
        if rule is None:
            older = ""
            if self.built:
                older = f", and {driver} is older than {self.built}, which the image is built with"
            reason = f"It is unknown if driver {driver} runs the image: {self._no_rule}{older}."
            return DriverJudgement("unknown", reason)
        judgement = self._by_package(driver, rule)
        if judgement is None:
            judgement = self._without_package(driver, rule)
        if judgement.verdict == _PACKAGED or version < _key(self._starts):
            return judgement
        minor = _judgement(
            judgement.verdict,
            f"By CUDA minor-version compatibility, a separate rule, programs of CUDA {_branch(self.cuda)}.x start on "
            f"driver {self._starts} or later with a limited set of features; images do not document if they use others",
            MINOR,
        )
        reason, sources = f"{judgement.reason} {minor.reason}", judgement.sources + minor.sources
        return DriverJudgement(judgement.verdict, reason, sources)

    @property
    def _no_rule(self) -> str:
        if not self.cuda:
            return "its config does not name its CUDA release"
        return f"no rule for CUDA {self.cuda} is known"

    @property
    def _starts(self) -> str:
        """The driver from which on minor-version compatibility applies."""
        return MINORS[_branch(self.cuda)]

    def _by_package(self, driver: str, rule: DriverRule) -> DriverJudgement | None:
        """Return the verdict with the compatibility package; None if no source mentions the driver's branch."""
        branch = _branch(driver)
        refusal = f"Driver {driver} does not run CUDA {self.cuda}, which {_needs(rule)}"
        if branch in rule.packaged:
            lowest, source = rule.packaged[branch]
            if lowest and numbers(driver) < _key(lowest):
                sentence = f"{refusal}: of R{branch} the compatibility package takes {lowest}+"
                return _judgement("does not run", sentence, source)
            taken = f"{lowest} or later of branch R{branch}" if lowest else f"branch R{branch}"
            support = f"Driver {driver} runs CUDA {self.cuda} on data-center GPUs by the compatibility package"
            remark = ""
            if branch in rule.refused:
                remark = f"The same source calls R{branch} not forward compatible. {rule.note}"
            return _judgement(_PACKAGED, f"{support}, which takes {taken}", source, remark=remark)
        if branch in rule.refused:
            sentence = f"{refusal}: R{branch} is not forward compatible"
            return _judgement("does not run", sentence, rule.source, remark=rule.note)
        return None

    def _without_package(self, driver: str, rule: DriverRule) -> DriverJudgement:
        """Return ``unknown`` if minor-version compatibility may apply, else the verdict that the driver is too old."""
        reason = f"CUDA {self.cuda} {_needs(rule)}, and R{_branch(driver)} is not named for the compatibility package"
        if numbers(driver) >= _key(self._starts):
            return _judgement("unknown", f"It is unknown if driver {driver} is enough: {reason}", rule.source, GUIDE)
        return _judgement("does not run", f"Driver {driver} is too old: {reason}", rule.source, GUIDE)


def numbers(driver: str) -> tuple[int, ...]:
    """Return the numbers in a driver's version.  Raises RunbookError if the text is not a version."""
    if not re.fullmatch(DRIVER, driver, re.ASCII):
        raise RunbookError(
            f"{driver[:60]!r} is not a driver version.",
            "Give the complete version shown by nvidia-smi, such as 535.104.05: the branch alone does not show if it "
            "is new enough.",
        )
    return _key(driver)


def _judgement(verdict: Verdict, sentence: str, *sources: RuleSource, remark: str = "") -> DriverJudgement:
    cited = "; ".join(dict.fromkeys(f"{source.name}, {source.dated}" for source in sources))
    reason = f"{sentence} ({cited}). {remark}".rstrip()
    return DriverJudgement(verdict, reason, tuple(dict.fromkeys(source.address for source in sources)))


def _needs(rule: DriverRule) -> str:
    if rule.required:
        return f"needs driver {rule.needs} or later"
    return f"comes with driver {rule.needs}"


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _branch(version: str) -> str:
    return version.partition(".")[0]


@dataclass(frozen=True)
class DriverNeeds:
    """The requirement that platforms have in common, and the judgement on each driver."""

    platforms: str
    requirement: DriverRequirement
    judged: Mapping[str, DriverJudgement]


def listed_drivers(text: str, origin: str = DRIVERS_VARIABLE) -> list[str]:
    """Parse a list such as ``535.104.05, 550.54``.  Raises RunbookError, which mentions its ``origin``."""
    drivers = re.findall(r"[^\s,]+", text)
    for driver in drivers:
        try:
            numbers(driver)
        except RunbookError as error:
            raise RunbookError(f"{origin} must be a list of driver versions. {error}") from None
    return sorted(set(drivers))


def judge(image: Image | None, drivers: Sequence[str]) -> tuple[DriverNeeds, ...]:
    """Judge each driver for each group of platforms with the same requirement; nothing without an image."""
    groups: dict[DriverRequirement, list[str]] = {}
    for name, platform in sorted(image.platforms.items()) if image else ():
        groups.setdefault(DriverRequirement.of(platform.env), []).append(name)
    return tuple(
        DriverNeeds(", ".join(names), requirement, {driver: requirement.judge(driver) for driver in drivers})
        for requirement, names in groups.items()
    )


def worst(needs: Sequence[DriverNeeds]) -> Verdict:
    """Return the worst verdict: ``does not run``, then ``unknown``, then the rest; ``unknown`` without any driver."""
    verdicts = [judgement.verdict for each in needs for judgement in each.judged.values()]
    return min(verdicts, key=list(EXIT_STATUS).index, default="unknown")


def driver_rows(needs: Sequence[DriverNeeds]) -> list[dict[str, str]]:
    """Return one row per group of platforms and driver; without any driver, one per group with its requirement."""
    rows = []
    for each in needs:
        row = {"platform": each.platforms, "CUDA": each.requirement.cuda, "needs": each.requirement.driver}
        if not each.judged:
            rows.append(row | {"driver": "", "verdict": "", "why": each.requirement.summary.reason})
        for driver, judgement in each.judged.items():
            rows.append(row | {"driver": driver, "verdict": judgement.verdict, "why": judgement.reason})
    return rows


def check_drivers(needs: Sequence[DriverNeeds]) -> Check:
    """Return preflight's check of the runners' drivers.

    It is skipped if the verdict is unknown, and without drivers, when it shows the requirement.
    """
    name = "the driver of the runners"
    if not needs:
        return Check(name, "skipped", "There is no image to compare with.")
    judged = [judgement for each in needs for judgement in each.judged.values()]
    reasons = [judgement.reason for judgement in judged or (each.requirement.summary for each in needs)]
    detail, verdict = " ".join(dict.fromkeys(reasons)), worst(needs)
    if not judged:
        detail += f" Name the drivers of the runners in {DRIVERS_VARIABLE} to have them compared."
    if verdict == "unknown":
        return Check(name, "skipped", detail)
    return Check.of(name, EXIT_STATUS[verdict] == 0, detail)
