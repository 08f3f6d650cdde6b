"""The rows of a recipe of functional tests, with the places of their scopes in the text.  Pure.

A recipe (``tests/test_utils/recipes/**.yaml``) lists ``products: [{test_case: [name], products: [{environment, scope,
platforms, …}]}]``.  Only the first entry of ``test_case`` counts; ``spec`` sets defaults for all rows
(``tests/test_utils/python_scripts/recipe_parser.py`` of Megatron-LM).
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.errors import CannotTell
from runbook_lib.text.yaml_spans import Cell, Text, items

FOLDER = "tests/test_utils/recipes"
_KEYS = ("model", "environment", "platforms", "scope", "allow_failure")


@dataclass(frozen=True)
class RecipeRow:
    """An entry of a test case's products.  ``line`` counts from 1; ``scopes`` have their places in the text.

    ``key`` is the position of the row's own key ``scope``, -1 if there is none, and ``end`` the end of its value.
    ``unread`` are further entries of ``test_case``, which CI never reads.
    """

    recipe: str
    line: int
    model: str
    case: str
    environments: tuple[str, ...]
    platforms: tuple[str, ...]
    scopes: tuple[Cell, ...]
    key: int = -1
    allow_failure: bool = False
    unread: tuple[str, ...] = ()
    end: int = -1

    def stands_for(self, environment: str, platform: str) -> bool:
        """Return True if the row runs its test in this environment on this platform."""
        return environment in self.environments and platform in self.platforms


def rows(recipe: str, text: str) -> tuple[RecipeRow, ...]:
    """Parse the rows of one recipe, in order; empty if the file is YAML with a different structure.

    Raises CannotTell, with the recipe's path and the line, if it cannot be parsed.
    """
    try:
        parsed = Text(text)
    except CannotTell as error:
        raise CannotTell(f"The recipe {recipe} cannot be read: {error}") from error
    entries = itertools.chain.from_iterable(_entries(parsed, document) for document in parsed.documents)
    return tuple(_row(recipe, parsed, entry) for entry in entries)


def read_all(texts: Mapping[str, str | None]) -> tuple[list[RecipeRow], list[str]]:
    """Return the rows of the recipes among these texts, and sentences about those that cannot be read."""
    result: list[RecipeRow] = []
    errors: list[str] = []
    for path, text in texts.items():
        if path.startswith(f"{FOLDER}/") and text is not None:
            try:
                result += rows(path, text)
            except CannotTell as error:
                errors.append(str(error))
    return result, errors


def problems(rows: Iterable[RecipeRow]) -> tuple[str, ...]:
    """Return sentences about the parts of rows that CI reads differently than their author intended."""
    sentences: list[str] = []
    for row in rows:
        for name in row.platforms:
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
                sentences.append(f"{row.recipe}:{row.line}: {row.case} names {name!r}, which is not a platform.")
        if row.unread:
            sentences.append(f"{row.recipe}: of one entry CI reads only {row.case}, not {', '.join(row.unread)}.")
    return tuple(dict.fromkeys(sentences))


@dataclass(frozen=True)
class _Entry:
    case: tuple[str, ...]
    node: MappingNode
    spec: dict[str, Node]
    scope: Node | None


def _entries(parsed: Text, document: Node | None) -> Iterator[_Entry]:
    top = parsed.pairs(document)
    spec = parsed.pairs(top.get("spec"))
    for product in items(top.get("products")):
        pairs = parsed.pairs(product)
        case = tuple(cell.value for cell in parsed.cells(pairs.get("test_case")))
        if case and case[0]:
            for node in items(pairs.get("products")):
                if isinstance(node, MappingNode):
                    yield _Entry(case, node, spec, parsed.pairs(node).get("scope", spec.get("scope")))


def _row(recipe: str, parsed: Text, entry: _Entry) -> RecipeRow:
    pairs = {**entry.spec, **parsed.pairs(entry.node)}
    cells: dict[str, tuple[Cell, ...]] = {}
    texts: dict[str, tuple[str, ...]] = {}
    for name in _KEYS:
        cells[name] = tuple(parsed.cells(pairs.get(name)))
        texts[name] = tuple(cell.value for cell in cells[name] if cell.value)
    keys = [parsed.span(key)[0] for key, _ in entry.node.value if isinstance(key, ScalarNode) and key.value == "scope"]
    return RecipeRow(
        recipe, parsed.line(entry.node), next(iter(texts["model"]), ""), entry.case[0], texts["environment"],
        texts["platforms"], cells["scope"], next(iter(keys), -1),
        allow_failure="true" in map(str.lower, texts["allow_failure"]), unread=entry.case[1:],
        end=_end(parsed, entry.scope, cells["scope"]),
    )  # fmt: skip


def _end(parsed: Text, scope: Node | None, scopes: tuple[Cell, ...]) -> int:
    """Return the end of a row's scope; a block list ends with its last item, not with the comments below."""
    if isinstance(scope, SequenceNode) and not scope.flow_style and scopes:
        return scopes[-1].end
    return parsed.span(scope)[1] if scope is not None else -1
