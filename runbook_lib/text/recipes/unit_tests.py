"""Unit tests that CI leaves out: a decorator of pytest below a comment with the reason and the issue.  Pure.

The lines are spliced in, every other byte stays, and parsing proves it: without them, both texts are the same program.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence

from runbook_lib.errors import Refused
from runbook_lib.text.recipes.quarantine import note
from runbook_lib.text.recipes.rows import Target

_LINE = 100  # characters of a line that Megatron-LM's formatter accepts
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def mark(path: str, text: str, test: Target, issue: int, review: str, *, marker: str) -> str:
    """Return the text of a file in which CI leaves the test out, if it is the test's, with all its parameters.

    Without a ``marker`` of the repository the test is skipped.  ``issue`` 0 stands for one that is not filed yet, for
    previews.  Raises Refused for a test that is not found, or a file that cannot be edited.
    """
    node, reason = test.case, test.reason
    if test.path != path:
        return text
    before, chain = _parsed(text, node)
    if _is_skipped(before, chain, marker):
        return text
    lines = text.split("\n")
    at = _begin(chain[-1])
    indent, end = " " * chain[-1].col_offset, "\r" if lines[at].endswith("\r") else ""
    comment = f"{indent}# Broken: {note(reason, issue, review)}"
    if len(comment) > _LINE:
        comment = f"{indent}# Broken: {note(f'{reason[: _LINE - 70 - len(indent)]}…', issue, review)}"
    tracker = f"broken, see issue #{issue or '(new)'}"
    decorator = f"{indent}@pytest.mark.{marker}" if marker else f'{indent}@pytest.mark.skip(reason="{tracker}")'
    lines[at:at] = [comment + end, decorator + end]
    imported = not any(map(_imports_pytest, before.body))
    if imported:
        first = next(each for each in before.body if not _must_be_first(each))
        lines.insert(_begin(first), f"import pytest{end}")
    after = "\n".join(lines)
    _prove(text, after, node, imported=imported)
    return after


def unmark(path: str, text: str, tests: Iterable[Target], *, marker: str) -> str:
    """Return the text of a file without the comments and markers that ``mark`` added for its tests among these.

    An import of pytest stays, since other lines may need it by now.  Raises Refused if it did not add them.
    """
    for test in tests:
        if test.path == path:
            text = _unmarked(text, test.case, marker)
    return text


def _unmarked(text: str, node: str, marker: str) -> str:
    tree, chain = _parsed(text, node)
    lines = text.split("\n")
    for decorator in chain[-1].decorator_list:
        at = decorator.lineno - 1
        ours = _name(decorator) == f"pytest.mark.{marker or 'skip'}"
        if ours and at and lines[at - 1].lstrip().startswith("# Broken: "):
            del lines[at - 1 : at + 1]
            after = "\n".join(lines)
            _prove(after, text, node, imported=False)
            return after
    if _is_skipped(tree, chain, marker):
        raise Refused(f"{node} is left out by something else than a comment `# Broken: …`.", "Re-enable it by hand.")
    return text


def is_skipped(texts: Mapping[str, str], node: str, marker: str) -> bool:
    """Return True if CI leaves out the test, given the texts of files."""
    text = texts.get(node.partition("::")[0])
    if text is None:
        return False
    try:
        return _is_skipped(*_parsed(text, node), marker)
    except Refused:
        return False


def _parsed(text: str, node: str) -> tuple[ast.Module, list[Definition]]:
    """Return a file's tree, and the definitions in it that a node ID names, the outermost first.

    Raises Refused for a file that cannot be parsed, and unless there is one of each definition.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"The file of {node} cannot be parsed ({error}).", "Mark the test by hand.") from error
    body, chain = tree.body, list[Definition]()
    for name in node.partition("[")[0].split("::")[1:]:
        found = [each for each in body if isinstance(each, Definition) and each.name == name]
        if len(found) != 1:
            times = "twice or more" if found else "nowhere"
            raise Refused(f"{node}: the file defines {name} {times} at this place.", "Mark the test by hand.")
        chain.append(found[0])
        body = found[0].body
    if not chain:
        raise Refused(f"{node} names no test: write `path/of/test_file.py::test_name`.")
    return tree, chain


def _is_skipped(tree: ast.Module, chain: Sequence[Definition], marker: str) -> bool:
    marks = [decorator for each in chain for decorator in each.decorator_list]
    for each in tree.body:
        if isinstance(each, ast.Assign) and _name(each.targets[0]) == "pytestmark":
            marks += each.value.elts if isinstance(each.value, ast.List | ast.Tuple) else [each.value]
    return not {"pytest.mark.skip", f"pytest.mark.{marker}"}.isdisjoint(map(_name, marks))


def _name(expression: ast.expr) -> str:
    """Return a dotted name, or that of what is called; empty for anything else."""
    target, parts = expression.func if isinstance(expression, ast.Call) else expression, list[str]()
    while isinstance(target, ast.Attribute):
        parts.insert(0, target.attr)
        target = target.value
    return ".".join([target.id, *parts]) if isinstance(target, ast.Name) else ""


def _begin(statement: ast.stmt) -> int:
    """Return the index of a statement's first line, which may be that of a decorator."""
    decorators = statement.decorator_list if isinstance(statement, Definition) else []
    return min([statement.lineno, *(each.lineno for each in decorators)]) - 1


def _prove(without: str, marked: str, node: str, *, imported: bool) -> None:
    """Raise Refused unless the test's first decorator, and an import, are all that a program has beyond another."""
    tree, chain = _parsed(marked, node)
    chain[-1].decorator_list.pop(0)
    in_place = True
    if imported:
        at = next(index for index, each in enumerate(tree.body) if _imports_pytest(each))
        del tree.body[at]
        in_place = not _must_be_first(tree.body[at])
    try:
        same = in_place and ast.dump(tree) == ast.dump(_parsed(without, node)[0])
    except RecursionError:
        same = False
    if not same:
        raise Refused(f"{node} cannot be marked without changing more of its file.", "Mark it by hand.")


def _imports_pytest(statement: ast.stmt) -> bool:
    names = statement.names if isinstance(statement, ast.Import) else []
    return any(alias.name == "pytest" and alias.asname is None for alias in names)


def _must_be_first(statement: ast.stmt) -> bool:
    """Return True for a docstring, and for an import from the future."""
    return isinstance(statement, ast.Expr) or (
        isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    )
