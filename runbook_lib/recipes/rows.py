"""The rows of a recipe of functional tests, with the places of their scopes in the text.  Pure.

A recipe (``tests/test_utils/recipes/**.yaml``) lists ``products: [{test_case: [name], products: [{environment, scope,
platforms, …}]}]``.  Only the first entry of ``test_case`` counts; what a row does not say, ``spec`` says for all rows
(``tests/test_utils/python_scripts/recipe_parser.py`` of Megatron-LM).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.errors import CannotTell
from runbook_lib.text.yaml_spans import Cell, Text

FOLDER = "tests/test_utils/recipes"


@dataclass(frozen=True)
class Row:
    """An entry of a test case's products.  ``line`` counts from 1; ``scopes`` have their places in the text.

    ``key`` is where the row's own key ``scope`` begins, -1 where the row has none, and ``end`` where its value ends;
    ``fixed`` says why its scopes cannot be edited, and is empty where they can.  ``unread`` are further entries of
    ``test_case``, which CI never reads.
    """

    recipe: str
    line: int
    model: str
    case: str
    environments: tuple[str, ...]
    platforms: tuple[str, ...]
    scopes: tuple[Cell, ...]
    key: int = -1
    fixed: str = ""
    block: bool = True
    allow_failure: bool = False
    sets_allow_failure: bool = False
    unread: tuple[str, ...] = ()
    end: int = -1

    def stands_for(self, environment: str, platform: str) -> bool:
        """Whether the test runs in this environment on this platform by this row."""
        return environment in self.environments and platform in self.platforms


def rows(recipe: str, text: str) -> tuple[Row, ...]:
    """The rows of one recipe, in their order; none where the file is YAML of another form.

    Raises CannotTell, with the recipe's path and the line, for what does not parse.
    """
    try:
        parsed = Text(text)
    except CannotTell as error:
        raise CannotTell(f"The recipe {recipe} cannot be read: {error}") from error
    found = [it for document in parsed.documents for it in _entries(parsed, document)]
    # An alias is the very node that it stands for: the list of scopes as well as a single one.
    shared = Counter(id(node) for it in found if it.scope is not None for node in (it.scope, *_items(it.scope)))
    return tuple(_row(recipe, parsed, it, shared) for it in found)


def problems(found: tuple[Row, ...]) -> tuple[str, ...]:
    """What in the rows CI does not read as its author meant it."""
    told = []
    for row in found:
        odd = [name for name in row.platforms if not re.fullmatch(r"[A-Za-z0-9_-]+", name)]
        told += [f"{row.recipe}:{row.line}: {row.case} names the platform {name!r}, which is none." for name in odd]
        if row.unread:
            told.append(f"{row.recipe}: of one entry CI reads only {row.case}, not {', '.join(row.unread)}.")
    return tuple(dict.fromkeys(told))


@dataclass(frozen=True)
class _Entry:
    case: tuple[str, ...]
    node: MappingNode
    spec: dict[str, Node]
    scope: Node | None


def _entries(parsed: Text, document: Node | None) -> Iterator[_Entry]:
    if not isinstance(document, MappingNode):
        return
    top = parsed.pairs(document)
    spec = parsed.pairs(top["spec"]) if isinstance(top.get("spec"), MappingNode) else {}  # type: ignore[arg-type]
    for product in _items(top.get("products")):
        inner = parsed.pairs(product) if isinstance(product, MappingNode) else {}
        case = tuple(cell.value for cell in parsed.cells(inner["test_case"])) if "test_case" in inner else ()
        for node in _items(inner.get("products")) if case and case[0] else ():
            if isinstance(node, MappingNode):
                yield _Entry(case, node, spec, parsed.pairs(node).get("scope", spec.get("scope")))


def _items(node: Node | None) -> list[Node]:
    return node.value if isinstance(node, SequenceNode) else []


def _row(recipe: str, parsed: Text, entry: _Entry, shared: Counter[int]) -> Row:
    pairs = {**entry.spec, **parsed.pairs(entry.node)}
    cells = {
        name: tuple(parsed.cells(pairs[name])) if name in pairs else ()
        for name in ("model", "environment", "platforms", "scope", "allow_failure")
    }
    texts = {name: tuple(cell.value for cell in values if cell.value) for name, values in cells.items()}
    keys = [key for key, value in entry.node.value if isinstance(key, ScalarNode) and key.value == "scope"]
    return Row(
        recipe, parsed.line(entry.node), next(iter(texts["model"]), ""), entry.case[0], texts["environment"],
        texts["platforms"], cells["scope"], parsed.span(keys[0])[0] if keys else -1,
        _fixed(parsed, entry, keys, cells["scope"], shared),
        block=not entry.node.flow_style, allow_failure="true" in (it.lower() for it in texts["allow_failure"]),
        sets_allow_failure="allow_failure" in pairs, unread=entry.case[1:],
        end=_end(parsed, entry.scope, cells["scope"]),
    )  # fmt: skip


def _fixed(
    parsed: Text, entry: _Entry, keys: Sequence[Node], scopes: tuple[Cell, ...], shared: Mapping[int, int]
) -> str:
    """Why the scopes cannot be edited in their place, with a comment in a line of its own above."""
    if not keys:
        return "it has no scope of its own, but that of all rows of the recipe"
    if len(keys) > 1:
        return "it gives its scope twice"
    start, end = parsed.span(entry.node)
    aliased = max(shared[id(node)] for node in (entry.scope, *_items(entry.scope))) > 1
    if aliased or not all(start <= cell.start < end for cell in scopes):
        return "its scope is an alias and stands for other rows as well"
    if problem := next((cell.problem for cell in scopes if cell.problem), ""):
        return problem
    key = parsed.span(keys[0])[0]
    line = parsed.text.rfind("\n", 0, key) + 1
    # Of a row on one line all before the key may be the row's own.
    if not re.fullmatch(r"[ \t?-]*", parsed.text[line : start if line <= start else key]):
        return "it shares its line with something else"
    return ""


def _end(parsed: Text, scope: Node | None, scopes: tuple[Cell, ...]) -> int:
    """Where the value of a row's scope ends; a block list ends with its last item, not with the comments below."""
    if isinstance(scope, SequenceNode) and not scope.flow_style and scopes:
        return scopes[-1].end
    return parsed.span(scope)[1] if scope is not None else -1
