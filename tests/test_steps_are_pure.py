"""Every step reads in ``look`` and plans in a pure ``plan``, which returns typed outcomes and conditions."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: What a plan must not call methods of: everything outside is read through these.
OUTSIDE = {"world", "checkout", "github", "gitlab", "forge", "registry", "connection", "session"}
#: Functions that read the outside without any of them.
READERS = {"git", "open", "GitHub", "GitLab", "Registry", "run"}
#: Modules that serve steps of the old kind, too, until those are converted.
SHARED = {"runbook_lib.workflow.push_round"}


@dataclass(frozen=True)
class Function:
    """A function or method, its module, and the class that it is a method of."""

    module: str
    node: ast.FunctionDef
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.module}.{self.owner}{'.' * bool(self.owner)}{self.node.name}"


@cache
def module(name: str) -> ast.Module | None:
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return ast.parse(path.read_text()) if path.is_file() else None


@cache
def imported(name: str) -> dict[str, str]:
    """Return what the names that a module imports from the library stand for."""
    tree, found = module(name), dict[str, str]()
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("runbook_lib"):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def functions(name: str) -> Iterator[Function]:
    tree = module(name)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef):
            yield Function(name, node)
        elif isinstance(node, ast.ClassDef):
            yield from (Function(name, each, node.name) for each in node.body if isinstance(each, ast.FunctionDef))


def named(target: str, owner: str = "") -> Iterator[Function]:
    """Return the function of that full name, if the library has it."""
    place, _, name = target.rpartition(".")
    return (each for each in functions(place) if each.node.name == name and each.owner == owner)


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when a function is called: not what a condition calls later."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda | ast.FunctionDef):
            yield child
            yield from evaluated(child)


def called(function: Function) -> Iterator[Function]:
    """Yield the library's functions that a function calls by name, and its own class's methods."""
    names = imported(function.module)
    for node in evaluated(function.node):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            yield from named(names.get(node.func.id, f"{function.module}.{node.func.id}"))
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            value = node.func.value.id
            if value == "self":
                yield from named(f"{function.module}.{node.func.attr}", function.owner)
            elif value in names:
                yield from named(f"{names[value]}.{node.func.attr}")


def readings(function: Function) -> Iterator[str]:
    """Yield the calls by which a function reads or changes something outside."""
    for node in evaluated(function.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS:
            yield node.func.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            value = node.func.value
            name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
            if name in OUTSIDE:
                yield ast.unparse(node.func)


def impurities(plan: Function) -> set[str]:
    """Return the readings of a plan and of everything that it calls, each with the function that it is in."""
    seen: set[str] = set()
    found: set[str] = set()
    waiting = [plan]
    while waiting:
        function = waiting.pop()
        if str(function) in seen:
            continue
        seen.add(str(function))
        found |= {f"{function}: {reading}" for reading in readings(function)}
        waiting += called(function)
    return found


def steps() -> Iterator[tuple[Function, Function]]:
    """Yield ``look`` and ``plan`` of each step in the library."""
    for path in sorted((ROOT / "runbook_lib").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        by_owner: dict[str, dict[str, Function]] = {}
        for function in functions(name):
            by_owner.setdefault(function.owner, {})[function.node.name] = function
        for own in by_owner.values():
            if {"look", "plan"} <= own.keys() and parameters(own["look"]) == ["world", "bump"]:
                yield own["look"], own["plan"]


def parameters(function: Function) -> list[str]:
    return [each.arg for each in function.node.args.args if each.arg != "self"]


STEPS = [(look, plan) for look, plan in steps() if plan.owner != "Step"]  # which is the protocol


def test_the_steps_are_found() -> None:
    assert len(STEPS) >= 8


@pytest.mark.parametrize(("look", "plan"), STEPS, ids=lambda function: str(function))
def test_a_plan_is_pure_and_typed(look: Function, plan: Function) -> None:
    annotated = {each.arg: ast.unparse(each.annotation) for each in plan.node.args.args if each.annotation}
    returned = [ast.unparse(node.returns) if node.returns else "" for node in (look.node, plan.node)]
    assert parameters(plan) == ["facts", "bump"]
    assert annotated["facts"] == returned[0]  # what was looked at, and nothing else
    assert returned[1] == "Plan[World]"  # so that mypy refuses text in place of an outcome or a condition
    assert impurities(plan) == set()


@pytest.mark.parametrize("name", sorted({plan.module for _, plan in STEPS} - SHARED))
def test_a_step_leaves_its_record_to_those_who_carry_out_the_plan(name: str) -> None:
    assert "runbook_lib.records.step_record.StepRecord" not in imported(name).values()


def test_a_reading_in_a_helper_of_a_plan_is_found() -> None:
    (reader,) = named("runbook_lib.workflow.bump_branch.find")
    assert any("checkout" in reading for reading in impurities(reader))
