"""Every step reads in ``look`` and plans in a pure ``plan``, which returns typed outcomes and conditions."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What a plan must not call methods of, and what it must not call: everything outside is read through these.
OUTSIDE = {"world", "checkout", "github", "gitlab", "forge", "registry", "connection", "session"}
READERS = {"git", "open", "GitHub", "GitLab", "Registry", "run"}


#: What the names that each module imports from the library stand for.
IMPORTED: dict[str, dict[str, str]] = {}
#: Every function and method by its full name.
FUNCTIONS: dict[str, ast.FunctionDef] = {}


@cache
def steps() -> list[str]:
    """Read the library, and return the full names of modules and classes with a step, except for the protocol."""
    for path in (ROOT / "runbook_lib").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        names = IMPORTED.setdefault(module, {})
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("runbook_lib"):
                names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
            prefix = f"{module}.{owner.name}" if isinstance(owner, ast.ClassDef) else module
            FUNCTIONS.update(
                {f"{prefix}.{node.name}": node for node in owner.body if isinstance(node, ast.FunctionDef)}
            )
    places = [name.rpartition(".")[0] for name in sorted(FUNCTIONS) if name.endswith(".plan")]
    return [
        place
        for place in places
        if f"{place}.look" in FUNCTIONS
        and parameters(f"{place}.look") == ["world", "bump"]
        and not place.endswith(".Step")
    ]


def parameters(name: str) -> list[str]:
    return [each.arg for each in FUNCTIONS[name].args.args if each.arg != "self"]


def module_of(name: str) -> str:
    place = name.rpartition(".")[0]
    return place if place in IMPORTED else place.rpartition(".")[0]


def calls(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what a function calls, as the name before the last dot and the one after it; not what runs later."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Lambda | ast.FunctionDef):
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name | ast.Attribute):
            place, _, name = ast.unparse(child.func).rpartition(".")
            yield place, name
        yield from calls(child)


def impurities(name: str, seen: set[str]) -> Iterator[str]:
    """Yield the readings of a function and of everything in the library that it calls by name."""
    if name not in FUNCTIONS or name in seen:
        return
    seen.add(name)
    module = module_of(name)
    for place, called in calls(FUNCTIONS[name]):
        if place.rpartition(".")[2] in OUTSIDE or (not place and called in READERS):
            yield f"{name}: {place}.{called}"
        owners = {"": module, "self": name.rpartition(".")[0]} | IMPORTED[module]
        target = f"{owners.get(place)}.{called}"
        yield from impurities(target if place else IMPORTED[module].get(called, target), seen)


def test_the_steps_and_the_readings_of_helpers_are_found() -> None:
    assert len(steps()) >= 17
    assert any("checkout" in reading for reading in impurities("runbook_lib.bump.pins_step.check_other_type", set()))


def test_a_plan_is_pure_and_typed() -> None:
    for step in steps():
        look, plan = FUNCTIONS[f"{step}.look"], FUNCTIONS[f"{step}.plan"]
        annotated = {each.arg: ast.unparse(each.annotation) for each in plan.args.args if each.annotation}
        assert parameters(f"{step}.plan") == ["facts", "bump"], step
        assert look.returns, step
        assert annotated["facts"] == ast.unparse(look.returns), step  # what was looked at, and nothing else
        assert plan.returns, step
        assert ast.unparse(plan.returns) == "Plan[World]", step  # so mypy refuses text in place of a condition
        assert list(impurities(f"{step}.plan", set())) == []


def test_a_step_leaves_its_record_to_those_who_carry_out_the_plan() -> None:
    for step in steps():
        assert "runbook_lib.record.recorder.Recorder" not in IMPORTED[module_of(f"{step}.plan")].values(), step
