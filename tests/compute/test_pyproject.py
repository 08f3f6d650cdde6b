"""A pyproject.toml as uv reads it: names of extras and groups, options, requirements."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.project import PythonProject, parse_requirement
from runbook_lib.errors import CannotTell, RunbookError

CORE = """
[project]
name = "core"
dependencies = ["torch>=2", "numpy"]
[project.optional-dependencies]
training = ["tiktoken"]
dev = ["einops~=0.8", "Nvidia_Resiliency.Ext"]
lts = []
both = []
[dependency-groups]
test = ["pytest", {include-group = "build"}]
linting = ["ruff~=0.9"]
build = ["setuptools"]
batch_invariant = []
both = []
[tool.uv]
default-groups = ["linting", "build", "test"]
[tool.uv.sources]
nemo-run = { git = "https://github.com/x/y" }
mcore = { path = "3rdparty/Megatron-LM/", editable = true }
many = [{ git = "https://github.com/x/z" }]
"""
core = PythonProject.parse(CORE)


def test_extras_groups_and_packages_are_read() -> None:
    assert tuple(core.extras) == ("training", "dev", "lts", "both")
    assert tuple(core.groups) == ("test", "linting", "build", "batch_invariant", "both")
    assert (core.kinds("DEV"), core.kinds("no")) == ({"extra": "dev"}, {})
    assert core.extras["dev"] == ("einops", "nvidia-resiliency-ext")


@pytest.mark.parametrize("text", ["", "[tool.x]", "project = 3", "[project", "<<<<<<< ours\n[project]\n", "a = " * 9])
def test_a_file_that_uv_does_not_manage_is_refused(text: str) -> None:
    with pytest.raises(CannotTell, match=r"pyproject\.toml"):
        PythonProject.parse(text)


def test_dev_dependencies_of_uv_are_a_group() -> None:
    project = PythonProject.parse('[project]\nname = "x"\n[tool.uv]\ndev-dependencies = ["ruff"]\n')
    assert project.groups == {"dev": ("ruff",)}


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ("", ""),
        ("dev", "--extra dev"),
        ("training dev test", "--extra training --extra dev --group test"),
        ("training,dev", "--extra training --extra dev"),
        ("--extra dev --group test", "--extra dev --group test"),
        ("batch-invariant", "--group batch_invariant"),
        ("--all-extras --all-groups", "--all-extras --all-groups"),
    ],
)
def test_names_become_options(names: str, options: str) -> None:
    assert " ".join(core.options(names)) == options


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("--group dev", "Write --extra dev."),
        ("--extra test", "Write --group test."),
        ("both", "Write --extra both or --group both."),
        ("zzz", "Its extras are training, dev, lts, both; its groups are test"),
        ("--group", "no group ''"),
        ("--only-group linting", "--all-extras --all-groups"),
        ("--index-url=https://x", "--all-extras --all-groups"),
        ("--extra ../x", "no extra '../x'"),
    ],
)
def test_a_wrong_name_is_explained(names: str, says: str) -> None:
    with pytest.raises(RunbookError) as caught:
        core.options(names)
    assert says in str(caught.value)


@given(st.text(max_size=60))
def test_only_known_options_and_names_are_returned(names: str) -> None:
    known = {"--extra", "--group", "--all-extras", "--all-groups", *core.extras, *core.groups}
    with suppress(RunbookError):
        assert set(core.options(names)) <= known


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("einops", "einops"),
        ("einops~=0.8", "einops"),
        (" Pillow >=10,<12 ", "Pillow"),
        ("nvidia-modelopt[torch]>=0.44; sys_platform != 'darwin'", "nvidia-modelopt"),
        ("x @ git+https://github.com/a/b@v1", "x"),
    ],
)
def test_a_requirement_has_a_name(text: str, name: str) -> None:
    assert parse_requirement(text).name == name


@pytest.mark.parametrize(
    "text", ["", "-e .", "--index=x", "./here", "a b", "x;", "a\nb", "einops==1 --pre", "x@y z", "x==1 @ y"]
)
def test_an_invalid_requirement_is_refused(text: str) -> None:
    with pytest.raises(RunbookError, match="a package name"):
        parse_requirement(text)
