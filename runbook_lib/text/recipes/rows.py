"""The rows of a recipe of functional tests, with the places of their scopes in the text, and the tests that they run.

A recipe (``tests/test_utils/recipes/**.yaml``) lists ``products: [{test_case: [name], products: [{environment, scope,
platforms, …}]}]``.  Only the first entry of ``test_case`` counts; ``spec`` sets defaults for all rows
(``tests/test_utils/python_scripts/recipe_parser.py`` of Megatron-LM).  Pure.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.decisions import Decision
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.text.lists import did_you_mean
from runbook_lib.text.recipes import file_names
from runbook_lib.text.yaml_spans import Cell, Text, items

FOLDER = "tests/test_utils/recipes"
_KEYS = ("model", "environment", "platforms", "scope", "allow_failure")


@dataclass(frozen=True)
class RecipeRow:
    """An entry of a test case's products.  ``line`` counts from 1; ``scopes`` have their places in the text.

    ``key`` is the position of the row's own key ``scope``, -1 if there is none, and ``end`` the end of its value.
    Of ``cases`` CI reads only the first.
    """

    recipe: str
    line: int
    model: str
    cases: tuple[str, ...]
    environments: tuple[str, ...]
    platforms: tuple[str, ...]
    scopes: tuple[Cell, ...]
    key: int = -1
    end: int = -1
    allow_failure: bool = False

    @property
    def case(self) -> str:
        """The test case that the row runs."""
        return self.cases[0]

    @property
    def test(self) -> str:
        """The test: ``model/case``."""
        return f"{self.model}/{self.case}"


def rows(recipe: str, text: str) -> tuple[RecipeRow, ...]:
    """Parse the rows of one recipe, in order; empty if the file is YAML with a different structure.

    Raises CannotTell, with the recipe's path and the line, if it cannot be parsed.
    """
    try:
        parsed = Text(text)
    except CannotTell as error:
        raise CannotTell(f"The recipe {recipe} cannot be read: {error}") from error
    return tuple(itertools.chain.from_iterable(_rows(recipe, parsed, document) for document in parsed.documents))


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
        case, *unread = row.cases
        if unread:
            sentences.append(f"{row.recipe}: of one entry CI reads only {case}, not {', '.join(unread)}.")
    return tuple(dict.fromkeys(sentences))


def _rows(recipe: str, parsed: Text, document: Node | None) -> Iterator[RecipeRow]:
    top = parsed.pairs(document)
    spec = parsed.pairs(top.get("spec"))
    for product in items(top.get("products")):
        pairs = parsed.pairs(product)
        cases = tuple(cell.value for cell in parsed.cells(pairs.get("test_case")))
        if cases and cases[0]:
            for node in items(pairs.get("products")):
                if isinstance(node, MappingNode):
                    yield _row(recipe, parsed, cases, node, spec)


def _row(recipe: str, parsed: Text, cases: tuple[str, ...], node: MappingNode, spec: Mapping[str, Node]) -> RecipeRow:
    pairs = {**spec, **parsed.pairs(node)}
    cells = {name: tuple(parsed.cells(pairs.get(name))) for name in _KEYS}
    texts = {name: tuple(cell.value for cell in values if cell.value) for name, values in cells.items()}
    keys = (parsed.span(key)[0] for key, _ in node.value if isinstance(key, ScalarNode) and key.value == "scope")
    return RecipeRow(
        recipe, parsed.line(node), next(iter(texts["model"]), ""), cases, texts["environment"], texts["platforms"],
        cells["scope"], next(keys, -1), _end(parsed, pairs.get("scope"), cells["scope"]),
        allow_failure="true" in map(str.lower, texts["allow_failure"]),
    )  # fmt: skip


def _end(parsed: Text, scope: Node | None, scopes: tuple[Cell, ...]) -> int:
    """Return the end of a row's scope; a block list ends with its last item, not with the comments below."""
    if isinstance(scope, SequenceNode) and not scope.flow_style and scopes:
        return scopes[-1].end
    return parsed.span(scope)[1] if scope is not None else -1


@dataclass(frozen=True)
class Target:
    """A test case on a platform, in an environment; ``model`` is empty if the user did not give it.

    A unit test has the node ID of pytest as its ``case``, and runs on all platforms.  A test with a launch script has
    the name of its job, the path of its ``script``, and ``shelf``, the one to which a quarantine moves it.  ``issue``
    is the one that tracks the test, if the user named one.
    """

    case: str
    platform: str
    environment: str
    model: str = ""
    reason: str = ""
    issue: int = 0
    script: str = ""
    shelf: str = ""

    def __str__(self) -> str:
        platform = f"@{self.platform or '?'}" if self.has_rows else ""
        return f"{self.name}{platform} ({self.environment})"

    @property
    def name(self) -> str:
        """The test without its platform: ``model/case``, or a node ID."""
        return f"{self.model}/{self.case}" if self.model else self.case

    @property
    def subject(self) -> str:
        """The test as a decision names it."""
        return f"{self.name}@{self.platform}" if self.has_rows else self.name

    @property
    def is_unit_test(self) -> bool:
        """True for a node ID of pytest."""
        return "::" in self.case

    @property
    def has_rows(self) -> bool:
        """True for a functional test, which rows of recipes run."""
        return not (self.is_unit_test or self.script)

    @property
    def path(self) -> str:
        """The file or folder of the test."""
        if self.script:
            return self.script
        return self.case.partition("::")[0] if self.is_unit_test else f"{file_names.FOLDER}/{self.model}/{self.case}"

    def is_of(self, row: RecipeRow) -> bool:
        """Return True if a row runs the test; without a platform, on any."""
        named = row.case == self.case and self.model in ("", row.model)
        return named and self.environment in row.environments and self.platform in ("", *row.platforms)


def target_of(decision: Decision, environment: str) -> Target:
    """Return the test of a decision, ``case@platform``; the case may be preceded by its model.

    The platform may be left out, and is then empty.
    """
    if "::" in decision.subject:
        return Target(decision.subject, "", environment, "", decision.reason, decision.issue)
    path, _, platform = decision.subject.partition("@")
    model, _, case = path.rpartition("/")
    return Target(case, platform, environment, model, decision.reason, decision.issue)


def resolve(target: Target, rows: Iterable[RecipeRow]) -> Target:
    """Complete a test with its model and platform.  Raises Refused if no recipe has it, or it is ambiguous."""
    rows = list(rows)
    rows_of_case = [row for row in rows if row.case == target.case and target.model in ("", row.model)]
    variants: set[tuple[str, str]] = set()
    for row in rows_of_case:
        if target.environment in row.environments:
            variants.update(itertools.product([row.model], row.platforms))
    fitting = {(model, platform) for model, platform in variants if target.platform in ("", platform)}
    if not fitting:
        if rows_of_case:
            platforms = sorted({platform for _, platform in variants})
            hint = f". Its platforms there: {', '.join(platforms) or 'none'}"
        else:
            hint = did_you_mean(target.case, {row.case for row in rows}, 3)
        raise Refused(f"No recipe runs {target}{hint}. Nothing was changed.")
    if len(fitting) > 1:
        choices = ", ".join(f"{model}/{target.case}@{platform}" for model, platform in sorted(variants))
        raise Refused(f"{target} is ambiguous: {choices}. Nothing was changed.", "Name one of these.")
    ((model, platform),) = fitting
    return replace(target, platform=platform, model=model)
