"""The recipe row of a test that has none yet, drafted as text in the style of the recipe at hand.  Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.errors import CannotTell, Refused
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import Target, gating
from runbook_lib.recipes.rows import Row
from runbook_lib.text.edits import Edit, splice
from runbook_lib.text.yaml_spans import Text


@dataclass(frozen=True)
class Draft:
    """A row that a recipe lacks, as text in the style of that recipe; ``like`` is the test that it is modelled on."""

    edit: Edit
    like: str
    scopes: tuple[str, ...]


def rows_in(texts: Mapping[str, str | None]) -> tuple[list[Row], list[str]]:
    """The rows of the recipes among these texts, and sentences about those that cannot be read."""
    found: list[Row] = []
    odd: list[str] = []
    for path, text in texts.items():
        if path.startswith(f"{recipes.FOLDER}/") and text is not None:
            try:
                found += recipes.rows(path, text)
            except CannotTell as error:
                odd.append(str(error))
    return found, odd


def recipe_for(test: Target, texts: Mapping[str, str | None]) -> str:
    """The recipe that a test's row belongs to.  Raises Refused where none or several could be meant."""
    folder = f"{recipes.FOLDER}/{test.platform.rpartition('_')[2]}/"
    used = {row.recipe for row in rows_in(texts)[0] if row.model == test.model and row.recipe.startswith(folder)}
    if (named := f"{folder}{test.model}.yaml") in used or len(used) == 1:
        return named if named in used else used.pop()
    told = (
        f"{folder} has several: {', '.join(sorted(used))}" if used else f"{folder} has none of the model {test.model}"
    )
    raise Refused(f"Which recipe {test} belongs to is not clear: {told}. Name one with --recipe.")


def draft(recipe: str, text: str, test: Target) -> Draft:
    """The row for a test, modelled on the recipe's usual entry for that platform, right below the last of that form.

    A model is an entry of one row that stands for this environment and platform alone, without comments of its own;
    where there are some that GitHub runs, one of those.  Raises Refused where no entry can be a model.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", test.case):
        raise Refused(f"{test.case!r} cannot be the name of a test.")
    before = recipes.rows(recipe, text)
    parsed = Text(text)
    found = [it for _, node in _products(parsed) if (it := _model(parsed, node, before, test)) is not None]
    tiers = [[it for it in found if "mr-github" in it.scopes and "mr-github-slim" not in it.scopes], found]
    models = next((tier for tier in tiers if tier), [])
    if not models:
        raise Refused(
            f"No entry of {recipe} can be the model for {test}: none stands for that environment and platform alone, "
            "without comments in it. Write the row by hand, with scope, environment and platforms."
        )
    ((usual, _),) = Counter(it.keys for it in models).most_common(1)
    model = [it for it in models if it.keys == usual][-1]
    entry = splice(text[model.start : model.end], [(model.at - model.start, model.to - model.start, test.case)])
    newline = "\r\n" if "\r\n" in text else "\n"
    spaced = newline if re.search(r"\n[ \t]*\r?\n\Z", text[: model.start]) else ""
    place = _below(text, model)
    added = f"{newline}{spaced}{entry}" if not text[:place].endswith("\n") else f"{spaced}{entry}{newline}"
    edit = Edit(recipe, text, splice(text, [(place, place, added)]))
    after = recipes.rows(recipe, edit.after)
    new = [row for row in after if test.is_of(row)]
    if len(after) != len(before) + 1 or len(new) != 1:
        raise Refused(
            f"The row of {test} would not be read from {recipe} as meant. Write it by hand, like {model.case}."
        )
    return Draft(edit, model.case, model.scopes)


@dataclass(frozen=True)
class _Model:
    """An entry whose text can be copied: ``start`` to ``end``, with its test's name from ``at`` to ``to``."""

    case: str
    scopes: tuple[str, ...]
    keys: tuple[str, ...]
    start: int
    end: int
    at: int
    to: int


def _model(parsed: Text, node: MappingNode, rows: Sequence[Row], test: Target) -> _Model | None:
    pairs = parsed.pairs(node)
    listed, cases = pairs.get("products"), list(parsed.cells(pairs["test_case"])) if "test_case" in pairs else []
    if not isinstance(listed, SequenceNode) or len(listed.value) != 1 or len(cases) != 1 or cases[0].problem:
        return None
    (only,) = listed.value
    line = parsed.line(only)
    row = next((row for row in rows if row.line == line and row.case == cases[0].value), None)
    if row is None or row.model != test.model:
        return None
    scopes = tuple(cell.value for cell in row.scopes)
    if (row.environments, row.platforms) != ((test.environment,), (test.platform,)) or not all(map(gating, scopes)):
        return None
    text, begin = parsed.text, parsed.span(node)[0]
    start = text.rfind("\n", 0, begin) + 1
    last = text.find("\n", _end(parsed, node))
    end = len(text) if last == -1 else last - (text[last - 1] == "\r")
    if not re.fullmatch(r"[ \t]*-[ \t]+", text[start:begin]) or re.search(r"[#&*]", text[start:end]):
        return None
    keys = tuple(key.value for key, _ in only.value if isinstance(key, ScalarNode))
    return _Model(row.case, scopes, keys, start, end, cases[0].start, cases[0].end)


def _end(parsed: Text, node: Node) -> int:
    """Where the last value in a node ends; libyaml counts the lines below to a block."""
    if isinstance(node, MappingNode) and not node.flow_style and node.value:
        return _end(parsed, node.value[-1][1])
    if isinstance(node, SequenceNode) and not node.flow_style and node.value:
        return _end(parsed, node.value[-1])
    return parsed.span(node)[1]


def _below(text: str, model: _Model) -> int:
    """The start of the line below an entry and the comments that belong to it, which are indented deeper."""
    dash = len(re.match(r"[ \t]*", text[model.start :])[0])  # type: ignore[index]
    place = text.find("\n", model.end) + 1 or len(text)
    while comment := re.compile(r"([ \t]*)#[^\n]*\n").match(text, place):
        if len(comment[1]) <= dash:
            break
        place = comment.end()
    return place


def fields(row: Row, text: str) -> frozenset[str]:
    """The keys of a row and of its recipe's ``spec``."""
    parsed = Text(text)
    for spec, product in _products(parsed):
        rows = parsed.pairs(product).get("products")
        for node in rows.value if isinstance(rows, SequenceNode) else ():
            if parsed.line(node) == row.line and isinstance(node, MappingNode):
                return frozenset(parsed.pairs(node)) | spec
    return frozenset()


def _products(parsed: Text) -> Iterator[tuple[frozenset[str], MappingNode]]:
    """The entries of a recipe, each with the keys that hold for all."""
    for document in parsed.documents:
        top = parsed.pairs(document) if isinstance(document, MappingNode) else {}
        spec, listed = top.get("spec"), top.get("products")
        said = frozenset(parsed.pairs(spec)) if isinstance(spec, MappingNode) else frozenset()
        for node in listed.value if isinstance(listed, SequenceNode) else ():
            if isinstance(node, MappingNode):
                yield said, node
