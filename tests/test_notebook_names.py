import ast
import re
from functools import cache
from pathlib import Path

import runbook_lib
from runbook_lib import notebooks

LIBRARY = Path(runbook_lib.__file__).parent
SHIPPED = {path.stem for path in (LIBRARY.parent / "runbooks").glob("*.ipynb")}
NAMES = {value for name, value in vars(notebooks).items() if name.isupper() and isinstance(value, str)}


@cache
def strings(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_every_name_is_that_of_a_shipped_notebook() -> None:
    assert NAMES - {notebooks.READY, notebooks.REVIEW} <= SHIPPED
    assert set(notebooks.STEPS) <= NAMES


def test_a_bump_runs_its_steps_in_the_order_of_their_numbers() -> None:
    assert list(notebooks.STEPS) == sorted(notebooks.STEPS)


def test_no_module_repeats_the_name_of_a_numbered_notebook() -> None:
    numbered = {name for name in SHIPPED if name[0].isdigit()}
    modules = set(LIBRARY.rglob("*.py")) - {LIBRARY / "notebooks.py"}
    assert [path for path in sorted(modules) if numbered & set(strings(path))] == []


def test_messages_name_only_shipped_notebooks() -> None:
    for path in LIBRARY.rglob("*.py"):
        for text in strings(path):
            assert set(re.findall(r"(?<![.\w])0[0-9]-[a-z][a-z-]*[a-z]\b", text)) <= SHIPPED, path
