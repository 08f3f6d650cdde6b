"""Parameters: what a notebook declares, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.notebook.begin import passed
from runbook_lib.text.notebook_file import BadParameter, Parameter, is_ours, read_parameters, resolve

CELL = """\
# The parameters.
tag: str = ""  # monthly tag, such as 26.04-py3
run_id: str = ""
apply: bool = False
wait: bool = True
text: str = "a = b"
"""


def notebook(path: Path, cell: str = CELL, **metadata: object) -> Path:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# Title"},
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": cell.splitlines(keepends=True)},
    ]
    path.write_text(json.dumps({"metadata": metadata, "cells": cells, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Parameter, ...] | None:
    return read_parameters(notebook(tmp_path_factory.mktemp("runbooks") / "01-pin.ipynb", runbook={"step": "01-pin"}))


def test_uses_the_declared_defaults(source: tuple[Parameter, ...]) -> None:
    defaults = {each.name: each.default for each in source}
    assert defaults == {"tag": "", "run_id": "", "apply": False, "wait": True, "text": "a = b"}


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ({"tag": "26.04-py3", "wait": False}, {"tag": "26.04-py3", "wait": False}),
        ({"run_id": 123}, {"run_id": "123"}),
    ],
)
def test_values_of_the_declared_type_are_taken(
    source: tuple[Parameter, ...], given: dict[str, Any], resolved: dict[str, Any]
) -> None:
    found = resolve("01-pin", source, given)
    assert found == resolved
    assert [type(found[name]) for name in resolved] == [type(value) for value in resolved.values()]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tga": "26.04-py3"}, ["'tga'", "did you mean tag?"]),
        ({"Apply": True}, ["'Apply'", "did you mean apply?"]),
        ({"zzz": 1}, ["'zzz'", "tag, run_id"]),
        ({"wait": 1}, ["wait is 1", "-p wait True"]),
        (
            {"tag": 26.1},
            ["number 26.1:", "papermill's -p, and YAML without quotes", "-r tag '26.10', or", "tag: '26.10'"],
        ),
        ({"tag": 26.4}, ["26.4", "-r tag '26.04', or"]),
        ({"tag": 2604}, ["2604", "-r tag '2604', or"]),
        ({"text": 12345678}, ["12345678", "-r text '…'"]),
        ({"tag": True}, ["tag is True", "-r tag True, or in YAML tag: 'True'"]),
        ({"tag": ["26.04-py3"]}, ["must be text"]),
    ],
)
def test_anything_else_is_refused_with_the_form_to_use(
    source: tuple[Parameter, ...], given: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(BadParameter) as refused:
        resolve("01-pin", source, given)
    assert all(word in str(refused.value) for word in words), refused.value
    assert "Nothing was run." in str(refused.value)


def test_a_notebook_without_parameters_takes_none(tmp_path: Path) -> None:
    plain = read_parameters(notebook(tmp_path / "a.ipynb", "", runbook={"step": "a"}))
    assert plain == ()
    with pytest.raises(BadParameter, match="takes no parameters"):
        resolve("a", plain, {"tag": "x"})


@pytest.mark.parametrize(
    ("cell", "words"), [("tag: str = = 1", "invalid syntax"), ("tag: str = make()", "not only plain values")]
)
def test_a_parameters_cell_that_cannot_be_read_is_an_error(tmp_path: Path, cell: str, words: str) -> None:
    with pytest.raises(RunbookError, match=words):
        read_parameters(notebook(tmp_path / "a.ipynb", cell, runbook={"step": "a"}))


def test_only_notebooks_that_say_so_are_ours(tmp_path: Path) -> None:
    assert is_ours(notebook(tmp_path / "a.ipynb", runbook={"step": "a"}))
    assert not is_ours(notebook(tmp_path / "b.ipynb", "x = make("))
    assert not is_ours(notebook(tmp_path / "c.ipynb", runbook=None))
    assert not is_ours(tmp_path / "none.ipynb")
    (tmp_path / "d.ipynb").write_text("no JSON")
    assert not is_ours(tmp_path / "d.ipynb")


def given(*cells: str) -> dict[str, Any]:
    """Return what was passed to a notebook of which these cells have run."""
    variables: dict[str, Any] = {}
    for cell in cells:
        exec(cell, variables)
    return passed("01-pin", cells, variables)


def test_a_kernel_knows_what_was_passed_to_its_notebook() -> None:
    """papermill's cell follows the one with the parameters, and is not the last one that has run."""
    assert given("", CELL, '# Parameters\ntag = "26.04-py3"\nrun_id = 7\n', "wait = 1") == {
        "tag": "26.04-py3", "run_id": "7",
    }  # fmt: skip
    assert given(CELL, "apply = False") == {}
    paths = given("site: str = ''\nrepo: str = ''\n", "# Parameters\nsite = '~/x.yaml'\nrepo = ''\n")
    assert paths == {"site": str(Path.home() / "x.yaml"), "repo": ""}
    secret = f'"{"ghp"}_{"a1B2" * 9}"'
    for value, words in {"26.1": "'26.10'", 'float("nan")': "number nan", secret: "tag has a secret in it"}.items():
        with pytest.raises(BadParameter, match=words):
            given(CELL, f"# Parameters\ntag = {value}\n")
