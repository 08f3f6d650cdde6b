"""The drivers that run an image: the decision tables of the rules, and the content of each judgement."""

import re

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.images.drivers import GUIDE, MINOR, MINORS, RULES, DriverRequirement, numbers

RUNS, PACKAGE, NO, UNKNOWN = "runs", "runs by the compatibility package", "does not run", "unknown"
CUDA_12_9 = DriverRequirement("12.9", "575.51.03")
CUDA_13_2 = DriverRequirement("13.2", "595.45.04")


#: For each image the drivers with the same verdict.
DRIVERS = {
    CUDA_12_9: {
        RUNS: "575.51.02 575.57.08 580.65.06 615.31",
        # By the package, from the named driver of each branch on; of R570 only NVIDIA's guide says so.
        PACKAGE: "470.57.02 525.85.12 535.86.10 545.23.08 570.124.06",
        # Older ones of these branches, branches that are not forward compatible, and those too old for the package.
        NO: "470.56.99 470.42.01 525.84 535.85.99 545.22 418.226.00 440.118.02 510.108.03 530.41.03 545.0 "
        "555.58.02 560.35.03 515.105.01 495.29.05 390.157",
        # Of these no source says anything.
        UNKNOWN: "550.163.01 565.57.01",
    },
    CUDA_13_2: {
        RUNS: "595.45.04 610.43.02",
        PACKAGE: "590.48.01 580.65.06 570.86.15 535.54.03",
        # Minor-version compatibility reaches down to 580; what an image then lacks nobody says.
        UNKNOWN: "585.1",
        NO: "575.57.08 550.54.14 470.57.02",
    },
}


@pytest.mark.parametrize("needed", DRIVERS)
def test_the_verdict_on_each_driver(needed: DriverRequirement) -> None:
    for expected, drivers in DRIVERS[needed].items():
        assert {driver: needed.judge(driver).verdict for driver in drivers.split()} == dict.fromkeys(
            drivers.split(), expected
        )


#: Release → the lowest driver that runs it, and one that is too old.
LOWEST = """
11.8 520.61.05 460.32.03, 12.0 525.60.13 520.61.05, 12.1 530.30.02 520.61.05, 12.2 535.54.03 520.61.05,
12.3 545.23.06 450.80.02, 12.4 545.23.06 450.80.02, 12.5 545.23.06 450.80.02, 12.6 560.28.03 555.42.02,
12.8 570.26 560.35.05, 13.0 580.65.06 575.57.08, 13.1 590.44.01 565.57.01, 13.3 610.43.02 560.35.05,
13.4 615.31 525.147.05
"""


def test_other_releases() -> None:
    for row in LOWEST.split(","):
        cuda, lowest, too_old = row.split()
        assert DriverRequirement(cuda).judge(lowest).verdict == RUNS, cuda
        assert DriverRequirement(cuda).judge(too_old).verdict == NO, cuda


def test_a_judgement_names_its_rule_and_source() -> None:
    runs = CUDA_12_9.judge("535.104.05")
    for part in ("535.104.05", "CUDA 12.9", "535.86", "R535", "(NVIDIA's notes on the PyTorch image 25.04, 2025-04)."):
        assert part in runs.reason
    assert runs.sources == (RULES["12.9"].source.address,)
    assert CUDA_12_9.judge("570.124.06").sources == (GUIDE.address,)
    assert RULES["12.9"].note in CUDA_12_9.judge("545.23.08").reason  # a driver in both lists of its source


def test_minor_version_compatibility_is_mentioned_as_a_separate_rule() -> None:
    for driver, mentioned in {"560.35.03": True, "550.163.01": True, "470.42.01": False, "575.57.08": False}.items():
        judgement = CUDA_12_9.judge(driver)
        assert ("minor-version compatibility" in judgement.reason, MINOR.address in judgement.sources) == (
            mentioned, mentioned,
        )  # fmt: skip


def test_the_requirement_of_an_image_is_read_from_its_environment() -> None:
    for cuda, driver, requirement in (
        ("13.2.0.046", "595.45.04", CUDA_13_2), ("12.9.1", "", DriverRequirement("12.9")),
        ("12.9", "575.51.03+cuda", DriverRequirement("12.9")), ("12", "", DriverRequirement()),
        ("twelve", "new", DriverRequirement()), ("12.9999", "", DriverRequirement()), ("٣.٢", "", DriverRequirement()),
    ):  # fmt: skip
        assert DriverRequirement.of({"CUDA_VERSION": cuda, "CUDA_DRIVER_VERSION": driver}) == requirement
    assert DriverRequirement.of({}) == DriverRequirement()


def test_a_release_without_a_rule_is_not_guessed() -> None:
    future = DriverRequirement("14.0", "700.10.01")
    assert future.judge("700.10.01").verdict == RUNS
    assert future.judge("710.1").verdict == RUNS
    older = future.judge("695.1")
    assert older.verdict == UNKNOWN
    for part in ("695.1", "CUDA 14.0", "700.10.01"):
        assert part in older.reason
    assert DriverRequirement("14.0").judge("999.9").verdict == UNKNOWN
    assert DriverRequirement().judge("999.9").verdict == UNKNOWN
    assert (DriverRequirement().summary.verdict, DriverRequirement().driver) == (UNKNOWN, "")
    assert (future.summary.verdict, future.driver) == (RUNS, "700.10.01")


def test_the_summary_names_drivers_and_sources() -> None:
    summary = CUDA_12_9.summary
    for part in ("driver 575 or later", "470.57+, 525.85+, 535.86+, 545.23+ or R570", "PyTorch image 25.04"):
        assert part in summary.reason
    assert len(summary.sources) == 2
    assert "R535, R570, R580 or R590" in CUDA_13_2.summary.reason


@pytest.mark.parametrize("text", ["", "535", "R535", "535.", "53.1", "535.104.05.1", "535.104-1", "v535.1", "５３５.1"])
def test_an_invalid_version_is_refused(text: str) -> None:
    with pytest.raises(RunbookError, match=re.escape(repr(text))):
        numbers(text)


# The data


def test_every_rule_has_a_public_source_with_a_date() -> None:
    for source in [GUIDE, MINOR, *(rule.source for rule in RULES.values())]:
        assert source.address.startswith("https://docs.nvidia.com/")
        assert re.fullmatch(r"20\d\d(-\d\d){0,2}", source.dated)


def test_rules_are_well_formed() -> None:
    for cuda, rule in RULES.items():
        assert cuda.partition(".")[0] in MINORS
        assert list(rule.forward) == sorted(rule.forward)
        assert all(re.fullmatch(r"\d{3}\.\d\d", lowest) for lowest in rule.forward)
        assert all(re.fullmatch(r"\d{3}", branch) for branch in (rule.needs, *rule.refused, *rule.package))
        assert all(branch < rule.needs for branch in (*rule.refused, *rule.package))
