"""A pyproject.toml as uv reads it: names of extras and groups, and options."""

import pytest

from runbook_lib.compute.project import PythonProject
from runbook_lib.errors import CannotTell, RunbookError

CORE = """
[project]
name = "core"
dependencies = ["torch>=2", "numpy"]
[project.optional-dependencies]
training = ["tiktoken"]
dev = ["einops~=0.8", "Nvidia_Resiliency.Ext"]
lts = []
[dependency-groups]
test = ["pytest", {include-group = "build"}]
linting = ["ruff~=0.9"]
build = ["setuptools"]
batch_invariant = []
[tool.uv]
default-groups = ["linting", "build", "test"]
[tool.uv.sources]
nemo-run = { git = "https://github.com/x/y" }
mcore = { path = "3rdparty/Megatron-LM/", editable = true }
many = [{ git = "https://github.com/x/z" }]
"""
core = PythonProject.parse(CORE)


def test_extras_and_groups_are_read() -> None:
    assert tuple(core.extras) == ("training", "dev", "lts")
    assert tuple(core.groups) == ("test", "linting", "build", "batch_invariant")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[tool.x]",
        "project = 3",
        "[project",
        "<<<<<<< ours\n[project]\n",
        "a = " * 9,
        "[project]\noptional-dependencies = 3",
    ],
)
def test_a_file_that_uv_does_not_manage_is_refused(text: str) -> None:
    with pytest.raises(CannotTell, match=r"pyproject\.toml"):
        PythonProject.parse(text)


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ("", ""),
        ("dev", "--extra dev"),
        ("training dev test", "--extra training --extra dev --group test"),
        ("linting", "--only-group linting"),
        ("--extra dev --group test", "--extra dev --group test"),
        ("--all-extras --all-groups", "--all-extras --all-groups"),
    ],
)
def test_names_become_options(names: str, options: str) -> None:
    assert " ".join(core.options(tuple(names.split()))) == options


def test_an_unknown_name_is_explained() -> None:
    with pytest.raises(RunbookError, match="Its extras are training, dev, lts; its groups are test"):
        core.options(("dev", "zzz"))
