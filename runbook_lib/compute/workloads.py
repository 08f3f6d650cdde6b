"""The tests of the recipes as workloads of a cluster: nodes, GPUs, time, script, and the parallelism of each.  Pure.

``text.recipes.rows`` describes a recipe.  Each value in a row's lists is a separate workload, except that its scopes
only select it (``recipe_parser.py:flatten_products`` of Megatron-LM).  The script is a template with values of the row.

The rules of parallelism are those of Megatron-LM's ``arguments.py``, ``parallel_state.py`` and
``transformer_config.py``; the ``MODEL_ARGS`` of a ``model_config.yaml`` are its options.  Sources of the value of
``CUDA_DEVICE_MAX_CONNECTIONS``: ``skills/mcore-run-on-slurm``, and ``validate_args``: before Blackwell TP > 1 or CP > 1
asserts 1, unless FSDP or overlapped expert communication is on; both kinds of FSDP assert that it is not 1.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runbook_lib.compute.slurm.site import Resources
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.text import yaml_spans

#: Default limit in seconds; a script without ``n_repeat`` runs once (``recipe_parser.py:load_workloads``).
_TIME_LIMIT = 1800
_MAX_COMBINATIONS = 1_000  # of the values of a recipe's row
_NO_DIMENSION = frozenset({"scope", "cadence", "allow_failure", "script_setup"})
_TEMPLATE_FIELD = re.compile(r"\{\{|\}\}|\{(?P<name>\w*)\}|[{}]")
VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
#: The numbers of a test.
_NUMBERS = {
    "tensor": "--tensor-model-parallel-size", "context": "--context-parallel-size",
    "pipeline": "--pipeline-model-parallel-size", "heads": "--num-attention-heads",
    "expert": "--expert-model-parallel-size", "expert_tensor": "--expert-tensor-parallel-size",
    "connections": VARIABLE,
}  # fmt: skip
#: The options of the kinds of FSDP, which exclude each other.
_FSDP = {"--use-torch-fsdp2": "Torch-FSDP2", "--use-megatron-fsdp": "Megatron-FSDP"}
#: The platforms of the recipes, by whether their GPUs are Blackwell's or older.
_BLACKWELL = ("dgx_b200", "dgx_b300", "dgx_gb200", "dgx_gb300")
_OLDER = ("dgx_a100", "dgx_h100", "dgx_h200")
OVERLAPPED = 32


@dataclass(frozen=True)
class Workload:
    """A test in one environment on one platform."""

    recipe: str
    model: str
    case: str
    environment: str
    platform: str
    scopes: tuple[str, ...]
    needs: Resources
    script: str = field(repr=False)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Its test, environment, platform and, if the recipe has one, tag."""
        parts = [self.model, self.case, self.environment, self.platform, self.values.get("tag", "")]
        return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts if part)

    def __str__(self) -> str:
        return f"{self.model}/{self.case}@{self.platform} ({self.environment})"

    def command(self, **values: str) -> str:
        """Return the script with the row's values and these in it.  Raises CannotTell for a field without a value."""
        known = {"n_repeat": "1", "nodes": str(self.needs.nodes), "test_case": self.case, **self.values, **values}

        def fill(match: re.Match[str]) -> str:
            if match[0] in ("{{", "}}"):
                return match[0][0]
            if match["name"] not in known:
                line = self.script.count("\n", 0, match.start()) + 1
                raise CannotTell(f"{self.recipe}: line {line} of the script of {self} has {match[0]}, without a value.")
            return known[match["name"]]

        return _TEMPLATE_FIELD.sub(fill, self.script)


def read(recipe: str, text: str) -> tuple[Workload, ...]:
    """Parse the workloads of one recipe, in order; a build recipe has none.  Raises CannotTell for what is invalid."""
    try:
        data = _mapping(yaml_spans.load(text))
    except CannotTell as error:
        raise CannotTell(f"The recipe {recipe} is not one YAML document: {error}") from error
    workloads: list[Workload] = []
    for product in map(_mapping, _list(data.get("products"))):
        case = next(iter(_list(product.get("test_case"))), None)
        for row in _list(product.get("products")) if case else ():
            if isinstance(row, dict):
                workloads += _workloads(recipe, str(case), {**_mapping(data.get("spec")), **row})
    return tuple(workloads)


def _workloads(recipe: str, case: str, settings: Mapping[str, Any]) -> Iterator[Workload]:
    # A key without a value, such as `n_repeat:`, has no effect.
    given = {key: value for key, value in settings.items() if key not in _NO_DIMENSION and value is not None}
    dimensions = {str(key): _list(value) for key, value in given.items()}
    scopes = tuple(str(scope) for scope in _list(settings.get("scope")) if scope)
    if math.prod(map(len, dimensions.values())) > _MAX_COMBINATIONS:
        raise CannotTell(f"{recipe}: a row of {case} has more than {_MAX_COMBINATIONS} combinations of values.")
    for combination in itertools.product(*dimensions.values()):
        values: dict[str, str] = {}
        for key, value in zip(dimensions, combination, strict=True):
            if not isinstance(value, (dict, list)):
                values[key] = "" if value is None else str(value)
        script = values.pop("script", "")
        model, environment, platform = (values.get(key, "") for key in ("model", "environment", "platforms"))
        nodes, gpus, seconds = (
            _whole_number(values.get(key) or default, f"{recipe}: {case} sets {key}")
            for key, default in (("nodes", 1), ("gpus", 0), ("time_limit", _TIME_LIMIT))
        )
        needs = Resources(nodes, gpus, max(1, math.ceil(seconds / 60)))
        yield Workload(recipe, model, case, environment, platform, scopes, needs, script, values)


@dataclass(frozen=True)
class Parallelism:
    """The distribution of a test's model.  Sizes count GPUs, ``expert`` and ``expert_tensor`` those of its experts.

    ``fsdp`` is its kind, empty without; ``connections`` is its own ``CUDA_DEVICE_MAX_CONNECTIONS``, None without.
    """

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    heads: int = 0
    fsdp: str = ""
    overlap_expert_communication: bool = False
    connections: int | None = None
    expert: int = 1
    expert_tensor: int = 0

    @property
    def model(self) -> int:
        """The number of GPUs of one copy of the model."""
        return self.tensor * self.context * self.pipeline

    @classmethod
    def parse(cls, text: str, path: str = "model_config.yaml") -> "Parallelism":
        """Parse the text of a ``model_config.yaml``.  Raises CannotTell, with the path, if it cannot be read."""
        try:
            data = yaml_spans.load(text)
        except CannotTell as error:
            raise CannotTell(f"{path} is not valid YAML.", "Fix it before the test is submitted.") from error
        if not isinstance(data, dict):
            raise CannotTell(f"{path} has no settings (expected MODEL_ARGS and ENV_VARS).")
        arguments = _mapping(data.get("MODEL_ARGS"))
        settings = {**arguments, VARIABLE: _mapping(data.get("ENV_VARS")).get(VARIABLE)}
        numbers = {
            name: _whole_number(settings[option], f"{path} sets {option}")
            for name, option in _NUMBERS.items() if settings.get(option) is not None
        }  # fmt: skip
        # Its script passes an option for any value except false.
        passed = {name for name, value in arguments.items() if value not in (False, None, "false")}
        fsdp = next((kind for option, kind in _FSDP.items() if option in passed), "")
        return cls(**numbers, fsdp=fsdp, overlap_expert_communication="--overlap-moe-expert-parallel-comm" in passed)

    def problems(self, world_size: int) -> tuple[str, ...]:
        """Return the reasons, as sentences, why it cannot run on this many GPUs; empty if it can."""
        sizes = (("TP", self.tensor), ("CP", self.context), ("PP", self.pipeline), ("EP", self.expert))
        if wrong := [f"{name} is {size}" for name, size in sizes if size < 1]:
            return (f"{' and '.join(wrong)}; expected at least 1.",)
        needed = {f"TP {self.tensor} × CP {self.context} × PP {self.pipeline}": self.model}
        if self.expert > 1 or self.expert_tensor:
            tensor = self.expert_tensor or self.tensor
            factors = f"expert TP {tensor} × EP {self.expert} × PP {self.pipeline}"
            needed[factors] = tensor * self.expert * self.pipeline
        problems = []
        for factors, number in needed.items():
            if world_size < 1 or world_size % number:
                problems.append(f"WORLD_SIZE is {world_size}, which is not a multiple of {number} ({factors}).")
        if self.heads % self.tensor:
            problems.append(f"{self.heads} attention heads cannot be divided by TP {self.tensor}.")
        return tuple(problems)


def choose(platform: str, test: Parallelism) -> int | None:
    """Return the value of CUDA_DEVICE_MAX_CONNECTIONS: the test's own, if it contradicts no rule; None to unset it.

    Blackwell does not need it.  Blanks in the platform's name, a typo of some recipes, are ignored.  Raises CannotTell
    for an unknown platform, and Refused where two settings of the test exclude each other or its own value is wrong.
    """
    name, known = "".join(platform.split()), (*_OLDER, *_BLACKWELL)
    if name not in known:
        reason = f"The GPUs of the platform {platform!r} are unknown, so {VARIABLE} cannot be chosen."
        raise CannotTell(f"{reason} Known: {', '.join(known)}.")
    sizes = (("TP", test.tensor), ("CP", test.context))
    split = "" if test.fsdp else " and ".join(f"{kind} {size}" for kind, size in sizes if size > 1)
    own, rules = test.connections, dict[int, str]()
    if split and name in _OLDER:
        rules[1] = f"Before Blackwell {split} without FSDP requires 1: Megatron-LM asserts it."
    if test.overlap_expert_communication:
        rules[OVERLAPPED] = f"Overlapped MoE expert-parallel communication needs {OVERLAPPED} for its streams."
    if own is None and len(rules) > 1:
        raise Refused(
            f"Two settings of the test exclude each other. {' '.join(rules.values())}",
            f"Leave one of them out, or set {VARIABLE} under ENV_VARS in its model_config.yaml.",
        )
    if own is None:
        return next(iter(rules), None)
    # A test has one configuration for all platforms, so where it overlaps, its choice of 1 applies to Blackwell too.
    is_chosen = own in rules or (own == 1 and split and rules)
    if not is_chosen and (rules or (test.fsdp and own <= 1)):
        rule = " ".join(rules.values()) or f"{test.fsdp} must not run with 1."
        raise Refused(f"The test sets {VARIABLE} to {own}, which contradicts the rule: {rule}")
    return own


def _mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping of a recipe or of settings, empty in place of anything else."""
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _whole_number(value: object, setting: str) -> int:
    """Return a setting's value; ``setting`` is what a message calls it.  Raises CannotTell if it is no whole number."""
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise CannotTell(f"{setting} to {text[:40]!r}; expected a whole number.")
    return int(text)
