"""Plans of work with uv: the commands for each state of a checkout, without uv itself."""

import pytest

from runbook_lib.compute.work import uv
from runbook_lib.compute.work.project_state import ProjectState
from runbook_lib.compute.work.pyproject import PythonProject
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM

LM, BRIDGE = MEGATRON_LM.name, MEGATRON_BRIDGE.name
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
"""
BRIDGED = """
[project]
name = "bridge"
optional-dependencies = { recipes = ["nemo-run"], te = [] }
[dependency-groups]
dev = ["pre-commit>=3.6", "ruff>=0.9.9"]
test = ["pytest"]
"""
core, bridged = PythonProject.parse(CORE), PythonProject.parse(BRIDGED)


def lm(**changed: object) -> ProjectState:
    return ProjectState(LM, **{"project": core, **changed})  # type: ignore[arg-type]


def bridge(**changed: object) -> ProjectState:
    return ProjectState(BRIDGE, bridged, **changed)  # type: ignore[arg-type]


def lines(plan: uv.WorkPlan) -> list[str]:
    return [" ".join(step.command) for step in plan.steps]


# -- nothing to do -----------------------------------------------------------------------------------------------


def test_nothing_to_do() -> None:
    for tree in (lm(), lm(unmerged=("a.py",))):
        plan = uv.resolve_conflict(tree)
        assert (plan.steps, "not in conflict" in plan.no_change) == ((), True)


# -- install -----------------------------------------------------------------------------------------------------


def test_without_names_the_guides_choice_is_installed() -> None:
    assert uv.install(lm(), "").sync == ("--extra", "training", "--extra", "dev", "--group", "test")
    assert uv.install(bridge(), "").sync == ("--all-extras", "--all-groups")
    assert uv.install(bridge(), "dev test").sync == ("--group", "dev", "--group", "test")
    assert uv.install(lm(), "").locked


FILLED = CORE.replace("lts = []", 'lts = ["einops~=0.8", "tqdm"]')
LTS_FILLED = PythonProject.parse(FILLED)
PINNED = frozenset({"docker/lts/requirements.txt"})


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        (lm(files=PINNED), "docker/lts/requirements.txt"),
        (lm(files=PINNED, project=LTS_FILLED), "docker/lts/requirements.txt"),
        (lm(), "extra lts"),
    ],
)
def test_the_checkout_determines_the_location_of_the_lts_packages(tree: ProjectState, says: str) -> None:
    with pytest.raises(Refused, match=says):
        uv.install(tree, "", "lts")
    with pytest.raises(Refused, match=says):
        uv.add(tree, "--optional lts humanize")


def test_an_extra_lts_with_packages_is_installed_and_added_to() -> None:
    tree = lm(project=LTS_FILLED)
    assert uv.install(tree, "", "lts").sync == ("--extra", "training", "--extra", "lts", "--group", "test")
    assert any("--optional lts" in line for line in lines(uv.add(tree, "--optional lts humanize")))
    older = FILLED.replace('training = ["tiktoken"]', 'mlm = ["tiktoken"]')
    assert uv.install(lm(project=PythonProject.parse(older)), "", "lts").sync[:2] == ("--extra", "mlm")


def test_the_linters_are_installed_alone() -> None:
    assert uv.install(lm(), "linting").sync == ("--only-group", "linting")
    assert uv.install(lm(), "linting test").sync == ("--group", "linting", "--group", "test")


def test_a_lock_that_cannot_match_is_not_required() -> None:
    assert not uv.install(lm(has_lock=False), "").locked
    dev = uv.install(bridge(mcore_branch="dev"), "")
    assert not dev.locked
    assert "on dev" in " ".join(dev.warnings)
    assert uv.install(bridge(mcore_branch="main"), "").locked


def test_a_missing_submodule_is_initialized_first() -> None:
    tree = bridge(missing_submodules=("3rdparty/Megatron-LM",))
    first = "git submodule update --init 3rdparty/Megatron-LM"
    assert lines(uv.install(tree, "")) == [first]
    assert lines(uv.lock(tree)) == [first, "uv lock"]
    assert uv.lock(tree).steps[0].place == "host"
    assert uv.lock(tree).steps[1].place == "container"


# -- add ---------------------------------------------------------------------------------------------------------


def test_a_dependency_is_added_and_its_commit_follows_the_repositorys_rules() -> None:
    plan = uv.add(lm(), "--optional dev humanize~=4.0")
    assert lines(plan) == ["uv add --no-sync --optional dev humanize~=4.0", "uv lock --check"]
    assert "git switch -c build/add-humanize && " in plan.next_action
    assert "git commit -S -s -m 'build: add humanize dependency' -- pyproject.toml uv.lock" in plan.next_action
    assert "git commit -s -m 'build: add humanize' --" in uv.add(bridge(), "--extra recipes humanize").next_action
    assert "uv add --no-sync --group linting humanize" in lines(uv.add(lm(), "--group linting humanize"))


def test_a_required_dependency_has_a_warning() -> None:
    plan = uv.add(lm(), "humanize")
    assert "uv add --no-sync humanize" in lines(plan)
    assert "optional extra is preferred: training" in " ".join(plan.warnings)
    assert not uv.add(lm(), "--optional dev humanize").warnings


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--optional mlm humanize", "in favour of training"),
        ("--optional devv humanize", "Did you mean --extra dev"),
        ("-r requirements.txt", "not a package name"),
        ("", "not a package name"),
    ],
)
def test_an_addition_that_is_refused(arguments: str, says: str) -> None:
    with pytest.raises(RunbookError) as caught:
        uv.add(lm(), arguments)
    assert says in str(caught.value)


# -- conflicts and branches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [{"unmerged": ("uv.lock", "a.py")}, {"conflict_marks": True}])
def test_a_conflict_is_resolved_by_locking_again(state: dict[str, object]) -> None:
    plan = uv.resolve_conflict(lm(**state))
    assert lines(plan) == ["git checkout origin/main -- uv.lock", "uv lock", "git add -- uv.lock"]
    assert ("a.py" in plan.next_action) == ("a.py" in str(state))


def test_a_conflict_that_only_the_user_can_resolve() -> None:
    with pytest.raises(Refused, match="by hand"):
        uv.resolve_conflict(lm(unmerged=("uv.lock", "pyproject.toml"), conflict_marks=True))
    with pytest.raises(Refused, match="`git fetch` it first"):
        uv.resolve_conflict(lm(unmerged=("uv.lock",), base=""))
    with pytest.raises(Refused, match="choose the task conflict"):
        uv.lock(lm(conflict_marks=True))


def test_switching_megatron_core() -> None:
    tree = {"files": frozenset({uv.SWITCH_MCORE})}
    dev = uv.switch_mcore(bridge(**tree, missing_submodules=("3rdparty/Megatron-LM",)), "dev")
    assert lines(dev) == [
        "git submodule update --init 3rdparty/Megatron-LM", "bash scripts/switch_mcore.sh dev",
    ]  # fmt: skip
    assert (dev.sync, dev.locked) == (("--all-extras", "--all-groups"), False)
    main = uv.switch_mcore(bridge(**tree, uncommitted=frozenset({"uv.lock"})), "main")
    assert lines(main)[-1] == "git stash push -- uv.lock"
    assert main.locked
    with pytest.raises(Refused, match="only Megatron-Bridge"):
        uv.switch_mcore(lm(), "dev")


# -- style -------------------------------------------------------------------------------------------------------


def test_linters_come_from_the_projects_group() -> None:
    alone = "uv run --isolated --locked --only-group"
    tree = lm(files=frozenset({uv.AUTOFORMAT}), base="upstream/core_r0.16.0")
    (check,) = lines(uv.lint(tree, fix=False))
    assert check == (
        f"{alone} linting env BASE_REF=core_r0.16.0 CHECK_ONLY=true SKIP_DOCS=false bash tools/autoformat.sh"
    )
    assert "CHECK_ONLY=false" in lines(uv.lint(tree, fix=True))[0]
    assert "isort" in uv.lint(tree, fix=True).next_action
    assert lines(uv.lint(bridge(), fix=True)) == [f"{alone} dev ruff check --fix .", f"{alone} dev ruff format ."]
    assert lines(uv.lint(bridge(), fix=False))[1] == f"{alone} dev ruff format --check ."
    with pytest.raises(CannotTell):
        uv.lint(ProjectState(LM, PythonProject("x")), fix=False)


def test_hooks_are_run_as_the_guides_do() -> None:
    assert lines(uv.hooks(bridge(), run=False)) == ["uv run --group dev pre-commit install"]
    assert lines(uv.hooks(lm(), run=True)) == ["uvx pre-commit run --all-files"]
