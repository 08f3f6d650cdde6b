"""Unit tests inside the image: a bucket as CI runs it, a file, one test, or those of a name.  Pure.

A bucket is a row of a recipe ``unit-tests.yaml``; what it leaves to smaller buckets and which markers count is the
business of ``tests/unit_tests/run_ci_test.sh``.  Sources: Megatron-LM's ``skills/mcore-testing`` and that script;
Megatron-Bridge's ``tests/unit_tests/Launch_Unit_Tests_*.sh``.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from runbook_lib.containers.work.task import Step
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageType
from runbook_lib.pins.repositories import MEGATRON_BRIDGE
from runbook_lib.recipes.workloads import Workload

SCRIPT = "tests/unit_tests/run_ci_test.sh"
FOLDER = "tests/unit_tests"
RECIPES = "tests/test_utils/recipes"
_LAUNCH = re.compile(rf"{FOLDER}/Launch_Unit_Tests_(\w+)\.sh")
_CLEAN = re.compile(r"[^\x00-\x1f\x7f]+")
#: All ranks' output in files of their own; the first and the fourth are shown as well, as in CI.
_LOGS = "logs/unit-tests"


@dataclass(frozen=True)
class Bucket:
    """A set of tests that CI runs as one job.  ``platform`` is as ``dgx_h100``, ``gpus`` those of its node."""

    name: str
    platform: str
    gpus: int
    environments: tuple[str, ...]

    def holds(self, path: str) -> bool:
        """Whether a file is in it, before smaller buckets take theirs."""
        return path == self.base or path.startswith(f"{self.base}/")

    @property
    def base(self) -> str:
        """The file or folder that it stands for."""
        return self.name.partition("/**")[0].rstrip("/")


def buckets(workloads: Iterable[Workload]) -> tuple[Bucket, ...]:
    """The buckets of the unit-tests recipes; of each one per platform."""
    found: dict[tuple[str, str], Bucket] = {}
    for it in workloads:
        if it.model == "unit-tests":
            before = found.get((it.case, it.platform))
            known = (*(before.environments if before else ()), it.environment)
            found[it.case, it.platform] = Bucket(it.case, it.platform, it.gpus, tuple(dict.fromkeys(known)))
    return tuple(found.values())


def bucket_of(path: str, known: Iterable[Bucket]) -> str:
    """The bucket in which CI runs a file: the smallest that holds it.  Empty where none does."""
    holding = [it for it in known if it.holds(path)]
    return max(holding, key=lambda it: len(it.base)).name if holding else ""


def plan(
    tests: str, repository: str, known: Sequence[Bucket], files: Collection[str], image_type: ImageType, gpus: int = 8,
    platform: str = "",
) -> tuple[Step, ...]:  # fmt: skip
    """The step that runs what ``tests`` names.

    ``tests`` is a bucket, a path below tests/unit_tests with or without ``::Class::test``, or a part of names.  Empty:
    all of them.  ``files`` are those of the checkout.  ``platform`` chooses among the recipes, "" for dgx_h100.  Raises
    RunbookError for a path or bucket that does not exist, with those that are near.
    """
    wanted = tests.strip()
    if wanted and (not _CLEAN.fullmatch(wanted) or wanted.startswith("-")):
        raise RunbookError(f"tests={tests!r} names no tests: give a bucket, a file, file::test, or a part of a name.")
    if repository == MEGATRON_BRIDGE.name:
        return (_bridge(wanted, files),)
    select: tuple[str, ...]
    found = [it for it in known if it.name == wanted and it.platform == (platform or it.platform)]
    if found:
        return (_bucket(next((it for it in found if it.platform == "dgx_h100"), found[0]), image_type),)
    path = wanted.partition("::")[0]
    if not wanted or "/" in wanted or path.endswith(".py"):
        _require(path or FOLDER, files, [it.name for it in known])
        select, what = (wanted or FOLDER,), wanted or "all unit tests"
    else:
        select, what = (FOLDER, "-k", wanted), f"the tests whose names hold {wanted}"
    where = bucket_of(path, known) if path.endswith(".py") else ""
    ci = f" CI runs this file in the bucket {where}." if where else ""
    return (
        Step(
            f"Run {what}",
            ("uv", "run", "--no-sync", "python", "-m", "torch.distributed.run", f"--nproc-per-node={gpus}",
             "-m", "pytest", "-q", *select),
            "container",
            "Every unit test belongs to a group of processes, one a GPU, so it is started by torch.distributed.run of "
            f"the environment, never by a bare torchrun.{ci}",
            gpus=True,
        ),
    )  # fmt: skip


def _bucket(bucket: Bucket, image_type: ImageType) -> Step:
    if image_type not in bucket.environments:
        others = ", ".join(bucket.environments)
        raise RunbookError(f"The bucket {bucket.name} is not run for {image_type}, only for {others}.")
    gpu = bucket.platform.removeprefix("dgx_")
    chosen = ("--platform", gpu) if gpu != "h100" else ()
    return Step(
        f"Run the bucket {bucket.name}",
        ("bash", SCRIPT, "--tag", "latest", "--environment", image_type, "--bucket", bucket.name, *chosen,
         "--log-dir", _LOGS),
        "container",
        "The script of CI itself: it leaves to smaller buckets what is theirs, skips what is marked flaky in this "
        "environment, and runs the experimental tests after the others. It reads the buckets by yq, which the image "
        "has.",
        gpus=True,
        env=(("GPUS_PER_NODE", str(bucket.gpus)),),
    )  # fmt: skip


def _bridge(wanted: str, files: Collection[str]) -> Step:
    scripts = {match[1].lower(): match[0] for it in files if (match := _LAUNCH.fullmatch(it))}
    if wanted.lower() in scripts:
        return Step(
            f"Run the bucket {wanted}", ("bash", scripts[wanted.lower()]), "container",
            "The script of CI itself, not divided into shards.", gpus=True,
            env=(("SHARD_ID", "0"), ("NUM_SHARDS", "1")),
        )  # fmt: skip
    path = wanted.partition("::")[0]
    if not wanted or "/" in wanted or path.endswith(".py"):
        _require(path or FOLDER, files, list(scripts))
        select: tuple[str, ...] = (wanted or FOLDER,)
    else:
        select = (FOLDER, "-k", wanted)
    return Step(
        f"Run {wanted or 'all unit tests'}",
        ("uv", "run", "--no-sync", "python", "-m", "pytest", "-vs", "-m", "not pleasefixme", *select), "container",
        "What is marked pleasefixme is known to be broken, and CI leaves it out too.", gpus=True,
    )  # fmt: skip


def _require(path: str, files: Collection[str], known: Sequence[str]) -> None:
    folder = f"{path.rstrip('/')}/"
    if path in files or any(it.startswith(folder) for it in files):
        return
    near = get_close_matches(path, [*known, *(it for it in files if it.startswith(FOLDER) and it.endswith(".py"))], 3)
    advice = f" Did you mean {' or '.join(near)}?" if near else f" Name a file below {FOLDER}, or a bucket."
    raise RunbookError(f"This checkout has neither a file, a folder nor a bucket {path[:200]!r} of tests.{advice}")
