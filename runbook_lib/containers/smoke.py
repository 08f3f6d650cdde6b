"""A smoke check of an image: the versions that its own Python finds, against what the registry says of it.  Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from runbook_lib.errors import CannotTell
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, Repository

Verdict = Literal["as claimed", "another version", "not claimed", "not found"]

#: Seconds that the imports may take; an image that has just been built is read from the disk for the first time.
LIMIT = 600.0

#: Before the answer: images greet.
_MARK = "runbook-smoke "
#: What these are in an image is the base image's.  The rest a Dockerfile, or its lock, may replace on purpose.
_OF_THE_BASE = ("Python", "PyTorch", "CUDA")
_CHECKED = ("Python", "PyTorch", "CUDA", "cuDNN", "NCCL", "Transformer Engine")

_PROGRAM = """
import importlib.metadata, json, platform
found, problems = {"Python": platform.python_version()}, {}
def look(name, read):
    try:
        found[name] = str(read())
    except Exception as error:
        problems[name] = f"{type(error).__name__}: {error}"[:300]
def torch():
    import torch
    return torch
def nccl():
    version = torch().cuda.nccl.version()
    return ".".join(map(str, version)) if isinstance(version, tuple) else version
def cudnn():
    number = torch().backends.cudnn.version()
    major = number // (10000 if number >= 90000 else 1000)
    return f"{major}.{number // 100 % (100 if number >= 90000 else 10)}.{number % 100}"
look("PyTorch", lambda: torch().__version__)
look("CUDA", lambda: torch().version.cuda)
look("NCCL", nccl)
look("cuDNN", cudnn)
look("Transformer Engine", lambda: importlib.metadata.version("transformer_engine"))
look("GPUs", lambda: torch().cuda.device_count())
try:
    import transformer_engine.pytorch
except Exception as error:
    problems["import of Transformer Engine"] = f"{type(error).__name__}: {error}"[:300]
print("runbook-smoke " + json.dumps({"found": found, "problems": problems}))
"""
#: What runs in the image, by the Python that its PATH has first.
COMMAND = ("python3", "-c", _PROGRAM)


@dataclass(frozen=True)
class Component:
    """A version as the registry's config claims it and as it was found, either empty where there is none.

    ``note`` is a sentence, empty where nothing is to be said.
    """

    name: str
    claimed: str
    found: str
    verdict: Verdict
    note: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the image is not what it should be."""
        return self.name in _OF_THE_BASE and self.verdict in ("another version", "not found")

    @property
    def row(self) -> dict[str, str]:
        """For a table."""
        return {
            "component": self.name,
            "claimed by the registry": self.claimed or "not named",
            "found in the image": self.found or "none",
            "verdict": self.verdict,
            "note": self.note,
        }


def judge(claims: Mapping[str, str], said: str) -> tuple[Component, ...]:
    """What COMMAND has printed in the image, against ``claims`` as ``compare.versions`` reads them.

    Raises CannotTell for an answer that is none.
    """
    line = next((it for it in reversed(said.splitlines()) if it.startswith(_MARK)), "")
    try:
        told = json.loads(line.removeprefix(_MARK))
        found: Mapping[str, str] = {str(name): str(value) for name, value in told["found"].items()}
        problems: Mapping[str, str] = {str(name): str(value) for name, value in told["problems"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        last = said.strip().splitlines()[-1:] or ["nothing"]
        raise CannotTell(
            f"The smoke check's program gave no answer in the image; its last line is {last[0]!r}."
        ) from error
    made = [_component(name, claims.get(name, ""), found.get(name, ""), problems.get(name, "")) for name in _CHECKED]
    why = problems.get("import of Transformer Engine", "")
    if why and made[-1].found:
        note = f"Its import failed: {why}. Without a GPU and its driver that may be so."
        made[-1] = replace(made[-1], note=f"{made[-1].note} {note}".strip())
    return tuple(made)


def _component(name: str, claimed: str, found: str, problem: str) -> Component:
    if not found:
        return Component(name, claimed, "", "not found", f"{problem}." if problem else "")
    if not claimed:
        return Component(name, "", found, "not claimed")
    if same(claimed, found):
        return Component(name, claimed, found, "as claimed")
    note = "" if name in _OF_THE_BASE else "The Dockerfile, or the lock, may install its own on purpose."
    return Component(name, claimed, found, "another version", note)


def same(claimed: str, found: str) -> bool:
    """Whether two versions are one, as far as both tell.

    CUDA is claimed as ``13.2.0.046`` and PyTorch knows ``13.2``; PyTorch is claimed as ``2.12.0a0+0291f96`` and found
    as ``2.12.0a0+0291f96.nv26.4``.
    """
    one, other = _numbers(claimed), _numbers(found)
    count = min(len(one), len(other))
    build, local = (it.partition("+")[2] for it in (claimed, found))
    commits = not build or not local or local.startswith(build) or build.startswith(local)
    return count > 0 and one[:count] == other[:count] and commits


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d{1,9}(?:\.\d{1,9}){0,8})", version)
    return tuple(map(int, match[1].split("."))) if match else ()


#: Five iterations of training, by the repository's own guides; the number of GPUs that they take.
_SANITY: Mapping[str, tuple[int, tuple[str, ...]]] = {
    # Its five iterations are those of docs/get-started/quickstart.md, on two GPUs (tensor parallelism).
    MEGATRON_LM.name: (2, ("examples/run_simple_mcore_train_loop.py",)),
    MEGATRON_BRIDGE.name: (
        1,
        (
            "scripts/training/run_recipe.py", "--recipe", "vanilla_gpt_pretrain_config", "train.train_iters=5",
            "train.global_batch_size=8", "train.micro_batch_size=4", "scheduler.lr_warmup_iters=1",
            "scheduler.lr_decay_iters=5", "logger.log_interval=1",
        ),
    ),
}  # fmt: skip


def sanity(repository: Repository) -> tuple[str, ...]:
    """The command, inside the image and in the checkout, of the guides' training of five iterations.

    Empty where the repository's guides have none.
    """
    if repository.name not in _SANITY:
        return ()
    gpus, script = _SANITY[repository.name]
    return ("uv", "run", "--no-sync", "python", "-m", "torch.distributed.run", f"--nproc-per-node={gpus}", *script)
