"""Rules for the whole library that import-linter does not know, and the ceiling on its size."""

import ast
import io
import json
import re
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "runbook_lib"

#: Tokens of the library, `environment/` and the notebooks' code.
MOST_PRODUCT_TOKENS = 231_000
MOST_TEST_LINES = 32_900

#: Layout, comments and docstrings are free, so denser lines gain nothing.
_UNCOUNTED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def count_tokens(source: str) -> int:
    docstrings = {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    counted = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _UNCOUNTED and not (token.type == tokenize.STRING and token.start in docstrings)
    ]
    return len(counted)


def python_files(folder: str) -> list[Path]:
    """List the modules of a folder, without those of installed environments and components (hidden folders)."""
    paths = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py")]
    return [ROOT / path for path in paths if not any(part.startswith(".") for part in path.parts)]


def test_layout_comments_and_docstrings_are_not_counted() -> None:
    assert count_tokens("") == 0
    assert count_tokens('"""A module."""\n\n# Why.\n') == 0
    assert count_tokens("x = 1\n") == 3
    assert count_tokens('def f():\n    """Do nothing."""\n    return "text"  # why\n') == 7


def test_the_product_is_under_its_ceiling() -> None:
    sources = [path.read_text() for folder in ("runbook_lib", "environment") for path in python_files(folder)]
    for notebook in (ROOT / "runbooks").glob("*.ipynb"):
        cells = json.loads(notebook.read_text())["cells"]
        sources += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(sources) > 100
    assert sum(map(count_tokens, sources)) <= MOST_PRODUCT_TOKENS


def test_the_tests_are_under_their_ceiling() -> None:
    files = python_files("tests")
    assert len(files) > 100
    assert sum(len(path.read_text().splitlines()) for path in files) <= MOST_TEST_LINES


def test_a_class_name_is_used_once() -> None:
    modules = defaultdict(list)
    for path in sorted(LIBRARY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(path.relative_to(LIBRARY)))
    assert len(modules) > 200
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


#: Modules that read JSON from outside, within bounds on its bytes at least.
BOUNDED = (
    "golden/values.py", "world/replies.py", "text/notebook_file.py", "cli/bumps.py",
    "record/run_file.py", "compute/smoke.py",
)  # fmt: skip
#: Modules that read what this library, or the person who runs it, has written.
OWN = (
    "world/github/client.py", "text/user_file.py", "golden/measure.py",
    "golden/history.py", "record/recorder.py", "bisect/step.py", "notebook/form_views.py",
    "practice/forge.py", "practice/values.py", "practice/store.py", "practice/second_ci.py",
)  # fmt: skip


def test_archives_are_opened_by_the_parser_alone() -> None:
    """No module unpacks elsewhere, and JSON of others is read within bounds."""
    unpack = ("zipfile", "tarfile", "gzip", "bz2", "lzma")
    text = {str(path.relative_to(LIBRARY)): path.read_text() for path in LIBRARY.rglob("*.py")}
    unpackers = {name for name, it in text.items() if any(f"import {module}" in it for module in unpack)}
    assert unpackers == {"world/transport/archives.py", "practice/evidence.py"}  # which makes some
    users = {name for name, it in text.items() if re.search(r"\bArchive\(", it)}
    assert users == {"failures/read_logs.py", "golden/collect.py"}
    assert {name for name, it in text.items() if "json.load" in it} <= {*BOUNDED, *OWN}, "is it bounded?"
