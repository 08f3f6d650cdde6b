"""Names of golden files: ``<folder>/<model>/<test case>/golden_values_<environment>[_<platform>][_2nd].json``."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

#: Megatron-LM's folder of functional tests: a folder for each model, and in it a folder for each test.
FOLDER = "tests/functional_tests/test_cases"

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
