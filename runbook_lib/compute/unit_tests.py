"""Unit tests inside the image: a bucket as CI runs it, a file, one test, or the tests with a name.  Pure.

A bucket is a row of a recipe ``unit-tests.yaml``; ``tests/unit_tests/run_ci_test.sh`` decides which tests it leaves to
smaller buckets and which markers count.  Sources: Megatron-LM's ``skills/mcore-testing`` and that script;
Megatron-Bridge's ``tests/unit_tests/Launch_Unit_Tests_*.sh``.
"""

import re
from collections.abc import Collection, Iterable, Sequence

from runbook_lib.compute.tasks import Values
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageType
from runbook_lib.pins.repositories import MEGATRON_BRIDGE
from runbook_lib.recipes.workloads import Workload
from runbook_lib.text.suggestions import did_you_mean

FOLDER = "tests/unit_tests"
RECIPE = re.compile(r"tests/test_utils/recipes/\w+/unit-tests\.yaml")
_USUAL_PLATFORM = "dgx_h100"
_BRIDGE_SCRIPT = re.compile(rf"{FOLDER}/Launch_Unit_Tests_(\w+)\.sh")


def read_selection(
    tests: str, repository: str, workloads: Iterable[Workload], files: Collection[str], image_type: ImageType,
    gpus: int,
) -> Values:  # fmt: skip
    """Return the facts about the named tests, for the table of tasks.

    ``tests`` is a bucket, a path below tests/unit_tests with or without ``::Class::test``, or an expression on names;
    empty for all.  ``workloads`` are those of the recipes, ``files`` those of the checkout.  Raises RunbookError for a
    path or bucket that does not exist.
    """
    tests = tests.strip()
    if tests.startswith("-") or re.search(r"[\x00-\x1f\x7f]", tests):
        raise RunbookError(f"{tests!r} matches no tests: give a bucket, a file, file::test, or a part of a name.")
    if repository == MEGATRON_BRIDGE.name:
        scripts = {match[1].lower(): match[0] for match in filter(None, map(_BRIDGE_SCRIPT.fullmatch, files))}
        if tests.lower() in scripts:
            return {"bucket": tests, "script": scripts[tests.lower()]}
        return {"subject": tests or "all unit tests", "selection": _selection(tests, files, list(scripts))}
    buckets = [workload for workload in workloads if workload.model == "unit-tests"]
    rows = [bucket for bucket in buckets if bucket.case == tests]
    if not rows:
        selection = _selection(tests, files, [bucket.case for bucket in buckets])
        subject = f"the tests whose names match {tests}" if "-k" in selection else tests or "all unit tests"
        return {"subject": subject, "test_gpus": str(gpus), "selection": selection}
    environments = sorted({bucket.environment for bucket in rows})
    if image_type not in environments:
        raise RunbookError(f"CI does not run the bucket {tests} for {image_type}, only for {environments[0]}.")
    row = min(rows, key=lambda bucket: bucket.platform != _USUAL_PLATFORM)
    usual = row.platform == _USUAL_PLATFORM
    platform = () if usual else ("--platform", row.platform.removeprefix("dgx_"))
    return {"bucket": tests, "image_type": image_type, "platform": platform, "bucket_gpus": str(row.gpus)}


def _selection(tests: str, files: Collection[str], buckets: Sequence[str]) -> tuple[str, ...]:
    """Return pytest's arguments.  Raises RunbookError for a path that does not exist, with similar ones."""
    path = tests.partition("::")[0]
    if tests and "/" not in tests and not path.endswith(".py"):
        return (FOLDER, "-k", tests)
    path = path or FOLDER
    folder = f"{path.rstrip('/')}/"
    if path not in files and not any(file.startswith(folder) for file in files):
        known = [file for file in files if file.startswith(FOLDER) and file.endswith(".py")]
        hint = did_you_mean(path, [*buckets, *known], 3)
        problem = f"This checkout has no test file, folder or bucket {path[:200]!r}{hint}."
        raise RunbookError(f"{problem} Name a file below {FOLDER}, or a bucket.")
    return (tests or FOLDER,)
