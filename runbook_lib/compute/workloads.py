"""The resources that the rows of a recipe need on a cluster: nodes, GPUs, time and the script of each test.  Pure.

A recipe lists ``products: [{test_case: [name], products: [{environment, scope, platforms, …}]}]``, and ``spec`` sets
defaults for all rows.  Each value in a row's lists is a separate workload, except that its scopes only select it
(``recipe_parser.py:flatten_products`` of Megatron-LM).  The script is a template: ``{name}`` represents a value of the
row, ``{{`` and ``}}`` represent braces.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runbook_lib.errors import CannotTell
from runbook_lib.text import yaml_spans

#: Default limit in seconds; a script without ``n_repeat`` runs once (``recipe_parser.py:load_workloads``).
TIME_LIMIT = 1800
_NO_DIMENSION = frozenset({"scope", "cadence", "allow_failure"})
_TEMPLATE_FIELD = re.compile(r"\{\{|\}\}|\{(?P<name>\w*)\}|[{}]")


@dataclass(frozen=True)
class Workload:
    """A test in one environment on one platform.  ``gpus`` are per node, ``time_limit`` is in seconds."""

    recipe: str
    model: str
    case: str
    environment: str
    platform: str
    scopes: tuple[str, ...]
    nodes: int
    gpus: int
    time_limit: int
    script: str = field(repr=False)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Return its test, environment, platform and, if the recipe has one, tag."""
        parts = [self.model, self.case, self.environment, self.platform, self.values.get("tag", "")]
        return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts if part)

    def __str__(self) -> str:
        return f"{self.model}/{self.case}@{self.platform} ({self.environment})"

    def command(self, **values: str) -> str:
        """Return the script with the row's values and these in it.  Raises CannotTell for a field without a value."""
        known = {
            "n_repeat": "1", **self.values, "model": self.model, "test_case": self.case, "nodes": str(self.nodes),
            "environment": self.environment, "platforms": self.platform, "gpus": str(self.gpus), **values,
        }  # fmt: skip

        def fill(match: re.Match[str]) -> str:
            if match[0] in ("{{", "}}"):
                return match[0][0]
            if match["name"] not in known:
                line = self.script.count("\n", 0, match.start()) + 1
                raise CannotTell(f"{self.recipe}: line {line} of the script of {self} has {match[0]}, without a value.")
            return known[match["name"]]

        return _TEMPLATE_FIELD.sub(fill, self.script)


def read(recipe: str, text: str) -> tuple[Workload, ...]:
    """Parse the workloads of one recipe, in order; empty for a recipe without tests, such as a build recipe.

    Raises CannotTell, with the recipe's path, for invalid YAML and for an invalid number.
    """
    try:
        data = mapping(yaml_spans.load(text))
    except CannotTell as error:
        raise CannotTell(f"The recipe {recipe} is not one YAML document: {error}") from error
    workloads: list[Workload] = []
    for product in map(mapping, _list(data.get("products"))):
        case = next(iter(_list(product.get("test_case"))), None)
        for row in _list(product.get("products")) if case else ():
            if isinstance(row, dict):
                workloads += _workloads(recipe, str(case), {**mapping(data.get("spec")), **row})
    return tuple(workloads)


def _workloads(recipe: str, case: str, settings: Mapping[str, Any]) -> Iterator[Workload]:
    # A key without a value, such as `n_repeat:`, has no effect.
    keys = [key for key, value in settings.items() if key not in _NO_DIMENSION and value is not None]
    scopes = tuple(str(scope) for scope in _list(settings.get("scope")) if scope)
    for combination in itertools.product(*(_list(settings[key]) for key in keys)):
        values: dict[str, str] = {}
        for key, value in zip(map(str, keys), combination, strict=True):
            if key != "script_setup" and not isinstance(value, (dict, list)):
                values[key] = "" if value is None else str(value)
        script = values.pop("script", "")
        nodes, gpus, limit = (
            whole_number(values.get(key) or default, f"{recipe}: {case} sets {key}")
            for key, default in (("nodes", 1), ("gpus", 0), ("time_limit", TIME_LIMIT))
        )
        yield Workload(
            recipe, values.get("model", ""), case, values.get("environment", ""), values.get("platforms", ""), scopes,
            nodes, gpus, limit, script, values,
        )  # fmt: skip


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping of a recipe or of settings, empty in place of anything else."""
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def whole_number(value: object, setting: str) -> int:
    """Return a setting's value; ``setting`` is what a message calls it.  Raises CannotTell if it is no whole number."""
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise CannotTell(f"{setting} to {text[:40]!r}; expected a whole number.")
    return int(text)
