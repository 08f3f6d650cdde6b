"""The recipe row for a test that has none yet, drafted as text in the style of the recipe.  Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from yaml.nodes import MappingNode, ScalarNode

from runbook_lib.errors import Refused
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import gating
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.text.edits import Edit, splice
from runbook_lib.text.yaml_spans import Text, items


@dataclass(frozen=True)
class DraftedRow:
    """A new row as text in the style of its recipe; ``like`` is the test that it is modelled on."""

    edit: Edit
    like: str
    scopes: tuple[str, ...]


def recipe_for(test: Target, texts: Mapping[str, str | None]) -> str:
    """Return the recipe that a test's row belongs to.  Raises Refused if there are none or several candidates."""
    folder = f"{recipes.FOLDER}/{test.platform.rpartition('_')[2]}/"
    rows, _ = recipes.read_all(texts)
    used = {row.recipe for row in rows if row.model == test.model and row.recipe.startswith(folder)}
    of_model = f"{folder}{test.model}.yaml"
    if of_model in used:
        return of_model
    if len(used) == 1:
        return used.pop()
    problem = f"{folder} has no recipe for the model {test.model}"
    if used:
        problem = f"{folder} has several: {', '.join(sorted(used))}"
    raise Refused(f"Which recipe {test} belongs to is not clear: {problem}. Name one with --recipe.")


def draft(recipe: str, text: str, test: Target) -> DraftedRow:
    """Draft the row for a test, modelled on the recipe's usual entry for that platform, below the last one like it.

    A model is an entry with one row, only for this environment and platform, without comments;
    if GitHub runs some, one of those.  Raises Refused where no entry can be a model.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", test.case):
        raise Refused(f"{test.case!r} cannot be the name of a test.")
    before = recipes.rows(recipe, text)
    model = _choose_model(Text(text), before, test)
    if model is None:
        raise Refused(
            f"No entry in {recipe} can be a model for {test}: none is only for that environment and platform, "
            "without comments in it. Write the row by hand, with scope, environment and platforms."
        )
    edit = Edit(recipe, text, _insert_copy(text, model, test.case))
    after = recipes.rows(recipe, edit.after)
    new = [row for row in after if test.is_of(row)]
    if len(after) != len(before) + 1 or len(new) != 1:
        raise Refused(
            f"The row of {test} would not be read from {recipe} as intended. Write it by hand, like {model.case}."
        )
    return DraftedRow(edit, model.case, model.scopes)


@dataclass(frozen=True)
class _Model:
    """An entry whose text can be copied: from ``start`` to ``end``, with its test's name at ``name``."""

    case: str
    scopes: tuple[str, ...]
    keys: tuple[str, ...]
    start: int
    end: int
    name: tuple[int, int]


def _choose_model(parsed: Text, rows: Sequence[RecipeRow], test: Target) -> _Model | None:
    """Return the last model of the most frequent form."""
    models = list(filter(None, (_model(parsed, node, rows, test) for node in _products(parsed))))
    on_github = [model for model in models if "mr-github" in model.scopes and "mr-github-slim" not in model.scopes]
    models = on_github or models
    if not models:
        return None
    ((usual, _),) = Counter(model.keys for model in models).most_common(1)
    return [model for model in models if model.keys == usual][-1]


def _insert_copy(text: str, model: _Model, case: str) -> str:
    """Return the text with a copy of the entry, for another test case, inserted below it."""
    entry = text[model.start : model.name[0]] + case + text[model.name[1] : model.end]
    newline = "\r\n" if "\r\n" in text else "\n"
    blank_line = newline if re.search(r"\n[ \t]*\r?\n\Z", text[: model.start]) else ""
    position = _below(text, model)
    if text[:position].endswith("\n"):
        return splice(text, [(position, position, f"{blank_line}{entry}{newline}")])
    return splice(text, [(position, position, f"{newline}{blank_line}{entry}")])


def _model(parsed: Text, node: MappingNode, rows: Sequence[RecipeRow], test: Target) -> _Model | None:
    pairs = parsed.pairs(node)
    products = items(pairs.get("products"))
    cases = list(parsed.cells(pairs.get("test_case")))
    if len(products) != 1 or len(cases) != 1 or cases[0].problem:
        return None
    product = products[0]
    position = (parsed.line(product), cases[0].value)
    row = next((row for row in rows if (row.line, row.case) == position), None)
    fitting = (test.model, (test.environment,), (test.platform,))
    if row is None or (row.model, row.environments, row.platforms) != fitting:
        return None
    scopes = tuple(cell.value for cell in row.scopes)
    if not all(map(gating, scopes)):
        return None
    text, begin = parsed.text, parsed.span(node)[0]
    start = text.rfind("\n", 0, begin) + 1
    end = text.find("\n", parsed.end(node))
    if end == -1:
        end = len(text)
    elif text[end - 1] == "\r":
        end -= 1
    if not re.fullmatch(r"[ \t]*-[ \t]+", text[start:begin]) or re.search(r"[#&*]", text[start:end]):
        return None
    keys = tuple(key.value for key, _ in product.value if isinstance(key, ScalarNode))
    return _Model(row.case, scopes, keys, start, end, (cases[0].start, cases[0].end))


def _below(text: str, model: _Model) -> int:
    """Return the start of the line below an entry and the comments that belong to it, which are indented deeper."""
    dash = text.index("-", model.start) - model.start
    position = text.find("\n", model.end) + 1 or len(text)
    while comment := re.compile(r"([ \t]*)#[^\n]*\n").match(text, position):
        if len(comment[1]) <= dash:
            break
        position = comment.end()
    return position


def _products(parsed: Text) -> Iterator[MappingNode]:
    """Yield the entries of a recipe."""
    for document in parsed.documents:
        for node in items(parsed.pairs(document).get("products")):
            if isinstance(node, MappingNode):
                yield node
