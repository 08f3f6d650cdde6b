"""Rules for the whole library that import-linter does not know."""

import ast
from collections import defaultdict
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[1] / "runbook_lib"


def test_a_class_name_is_used_once() -> None:
    modules = defaultdict(list)
    for path in sorted(LIBRARY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(path.relative_to(LIBRARY)))
    assert len(modules) > 200
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
