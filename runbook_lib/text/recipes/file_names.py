"""Names of the files of expected values: golden files and performance baselines.

A golden file is ``<folder>/<model>/<test case>/golden_values_<environment>[_<platform>][_2nd].json``.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

#: Megatron-LM's folder of functional tests: a folder for each model, and in it a folder for each test.
FOLDER = "tests/functional_tests/test_cases"
#: The same for performance tests.
PERFORMANCE = "tests/performance_tests/test_cases"
#: The names of performance baselines: of tests in PERFORMANCE, and of ``common/moe_perf``.
BASELINE, MOE_BASELINE = "baseline_values.json", "baseline.json"

_GOLDEN_FILE = re.compile(
    r"golden_values_(?P<environment>dev|lts)(?:_(?P<platform>[a-z0-9]+(?:[_-][a-z0-9]+)*?))??(?:_2nd)?\.json"
)


@dataclass(frozen=True)
class GoldenFileName:
    """The name of a golden file in the repository; ``platform`` is empty if the name has none."""

    file: str
    environment: str
    platform: str

    @classmethod
    def parse(cls, name: str) -> "GoldenFileName | None":
        """Parse a name without folders.  Return None for any other file."""
        match = _GOLDEN_FILE.fullmatch(name)
        if match is None:
            return None
        return cls(name, match["environment"], match["platform"] or "")

    @classmethod
    def of_path(cls, path: str) -> "GoldenFileName | None":
        """Parse the end of a path ``…/<model>/<test case>/<name>``.  Return None for any other path."""
        parts = PurePosixPath(path).parts
        if len(parts) < 3 or ".." in parts:
            return None
        return cls.parse(parts[-1])

    @classmethod
    def of_artifact(cls, name: str) -> "GoldenFileName | None":
        """Parse the name of a file that a test wrote: inference tests write ``generations_…`` instead."""
        return cls.parse(re.sub(r"^generations_", "golden_values_", name))


def config_path(golden_file: str) -> str:
    """Return the path of the ``model_config.yaml`` of a golden file's test."""
    return f"{golden_file.rpartition('/')[0]}/model_config.yaml"


def is_baseline(path: str) -> bool:
    """Return True for the path of a performance baseline, ``…/<model>/<test case>/<name>``."""
    parts = PurePosixPath(path).parts
    return len(parts) >= 3 and ".." not in parts and parts[-1] in (BASELINE, MOE_BASELINE)


def has_values(path: str) -> bool:
    """Return True for a file of the repository with expected values."""
    is_known = GoldenFileName.of_path(path) is not None or is_baseline(path)
    return is_known and path.startswith((f"{FOLDER}/", f"{PERFORMANCE}/"))


def short_name(path: str) -> str:
    """Return the name of a file of expected values: its path below FOLDER, or its path if it is elsewhere."""
    return path.removeprefix(f"{FOLDER}/")


def path_of(name: str) -> str:
    """Return the path of a file with this short name."""
    return name if name.startswith(f"{PERFORMANCE}/") else f"{FOLDER}/{name}"


def baseline_of(model: str, test_case: str) -> str:
    """Return the path of a performance test's baseline."""
    return f"{PERFORMANCE}/{model}/{test_case}/{BASELINE}"
