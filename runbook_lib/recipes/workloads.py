"""What the rows of a recipe ask of a cluster: nodes, GPUs, time and the script of each test.  Pure.

What a row does not say, ``spec`` says for all rows; each value of a row's lists is a workload of its own, but its
scopes only select it (``recipe_parser.py:flatten_products`` of Megatron-LM).  The script is a template: ``{name}``
stands for a value of the row, ``{{`` and ``}}`` for braces.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runbook_lib.errors import CannotTell
from runbook_lib.recipes import rows
from runbook_lib.text import yaml_spans

#: Seconds where a recipe sets no limit; a script without ``n_repeat`` runs once (``recipe_parser.py:load_workloads``).
TIME_LIMIT = 1800
_NO_DIMENSION = frozenset({"scope", "cadence", "allow_failure"})
_PLACE = re.compile(r"\{\{|\}\}|\{(?P<name>\w*)\}|[{}]")


@dataclass(frozen=True)
class Workload:
    """A test in one environment on one platform.  ``gpus`` are those of each node, ``time_limit`` is in seconds."""

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
    def world_size(self) -> int:
        """The processes that run it, one a GPU."""
        return self.nodes * self.gpus

    @property
    def name(self) -> str:
        """Its test, environment, platform and, where the recipe has one, tag."""
        parts = [self.model, self.case, self.environment, self.platform, self.values.get("tag", "")]
        return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts if part)

    def __str__(self) -> str:
        return f"{self.model}/{self.case}@{self.platform} ({self.environment})"

    def command(self, **values: str) -> str:
        """The script with the row's values and these in it.  Raises CannotTell for a place that has no value."""
        known = {
            "n_repeat": "1", **self.values, "model": self.model, "test_case": self.case,
            "environment": self.environment, "platforms": self.platform, "nodes": str(self.nodes),
            "gpus": str(self.gpus), **values,
        }  # fmt: skip

        def fill(found: re.Match[str]) -> str:
            if found[0] in ("{{", "}}"):
                return found[0][0]
            if (name := found["name"]) not in known:
                line = self.script.count("\n", 0, found.start()) + 1
                raise CannotTell(f"{self.recipe}: line {line} of the script of {self} has {found[0]}, without a value.")
            return known[name]

        return _PLACE.sub(fill, self.script)


def read(recipe: str, text: str) -> tuple[Workload, ...]:
    """The workloads of one recipe, in their order; none for a recipe without tests, such as one that builds.

    Raises CannotTell, with the recipe's path, for what does not parse and for a number that is none.
    """
    if not (listed := rows.rows(recipe, text)):
        return ()
    try:
        data = yaml_spans.load(text)
    except CannotTell as error:
        raise CannotTell(f"The recipe {recipe} does not hold one YAML document.") from error
    spec = data.get("spec") if isinstance(data, dict) else None
    spec = spec if isinstance(spec, dict) else {}
    return tuple(it for row, own in zip(listed, _rows(data), strict=True) for it in _workloads(row, {**spec, **own}))


def _rows(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The rows as ``recipes.rows`` counts them: an entry without a test's name has none."""
    for product in _list(data.get("products")):
        case = _list(product.get("test_case")) if isinstance(product, dict) else []
        if case and case[0]:
            yield from (row for row in _list(product.get("products")) if isinstance(row, dict))


def _workloads(row: rows.Row, said: Mapping[str, Any]) -> Iterator[Workload]:
    # A key without a value, as `n_repeat:`, says nothing.
    keys = [key for key in said if key not in _NO_DIMENSION and said[key] is not None]
    scopes = tuple(cell.value for cell in row.scopes if cell.value)
    for chosen in itertools.product(*(_list(said[key]) for key in keys)):
        own = dict(zip(keys, chosen, strict=True))
        values = {key: _text(value) for key, value in own.items() if not isinstance(value, (dict, list))}
        template = own.get("script")
        yield Workload(
            row.recipe, row.model, row.case, values.get("environment", ""), values.get("platforms", ""), scopes,
            _count(row, values, "nodes", 1), _count(row, values, "gpus", 0),
            _count(row, values, "time_limit", TIME_LIMIT), template if isinstance(template, str) else "",
            {key: value for key, value in values.items() if key not in ("script", "script_setup")},
        )  # fmt: skip


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _count(row: rows.Row, values: Mapping[str, str], key: str, default: int) -> int:
    text = values.get(key) or str(default)
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise CannotTell(f"{row.recipe}:{row.line}: {row.case} sets {key} to {text[:40]!r}; expected a whole number.")
    return int(text)
