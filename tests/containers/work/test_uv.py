"""What uv is asked to do: names of extras and groups, and the sequences of steps, all without uv."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.containers.work import pyproject, uv, uv_git
from runbook_lib.containers.work.pyproject import Project
from runbook_lib.containers.work.uv import Tree
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
[tool.uv.sources]
nemo-run = { git = "https://github.com/x/y" }
mcore = { path = "3rdparty/Megatron-LM/", editable = true }
many = [{ git = "https://github.com/x/z" }]
"""
BRIDGED = """
[project]
name = "bridge"
optional-dependencies = { recipes = ["nemo-run"], te = [] }
[dependency-groups]
dev = ["pre-commit>=3.6", "ruff>=0.9.9"]
test = ["pytest"]
"""
core, bridged = Project.read(CORE), Project.read(BRIDGED)


def lm(**changed: object) -> Tree:
    return Tree(LM, core, **{"branch": "main", **changed})  # type: ignore[arg-type]


def bridge(**changed: object) -> Tree:
    return Tree(BRIDGE, bridged, **{"branch": "main", **changed})  # type: ignore[arg-type]


def lines(work: uv.Work) -> list[str]:
    return [" ".join(it.command) for it in work.steps]


# -- the project -------------------------------------------------------------------------------------------------


def test_extras_and_groups_as_the_file_has_them() -> None:
    assert core.extras == ("training", "dev", "lts", "both")
    assert core.groups == ("test", "linting", "build", "batch_invariant", "both")
    assert core.paths == {"mcore": "3rdparty/Megatron-LM/"}
    assert (core.kinds("dev"), core.kinds("both"), core.kinds("no")) == (("extra",), ("extra", "group"), ())
    assert core.where("nvidia-resiliency-ext") == ("extra dev",)
    assert core.where("numpy") == ("the project's dependencies",)
    assert core.where("nothing") == ()


@pytest.mark.parametrize("text", ["", "[tool.x]", "project = 3", "[project", "<<<<<<< ours\n[project]\n", "a = " * 9])
def test_no_project_of_uvs(text: str) -> None:
    with pytest.raises(CannotTell, match=r"pyproject\.toml"):
        Project.read(text)


def test_uvs_older_form_of_a_group() -> None:
    project = Project.read('[project]\nname = "x"\n[tool.uv]\ndev-dependencies = ["ruff"]\n')
    assert project.groups == ("dev",)


@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        ("", ""),
        ("dev", "--extra dev"),
        ("training dev test", "--extra training --extra dev --group test"),
        ("training,dev", "--extra training --extra dev"),
        ("--extra dev --group test", "--extra dev --group test"),
        ("--group=both --extra=both", "--group both --extra both"),
        ("batch-invariant", "--group batch_invariant"),
        ("--only-group linting", "--only-group linting"),
        ("dev --no-group build", "--extra dev --no-group build"),
        ("--all-extras --all-groups", "--all-extras --all-groups"),
    ],
)
def test_what_is_named_becomes_options(wanted: str, options: str) -> None:
    assert " ".join(pyproject.options(core, wanted)) == options


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("--group dev", "core has no group 'dev': here it is an extra. Write --extra dev."),
        ("--extra test", "core has no extra 'test': here it is a group. Write --group test."),
        ("--only-group dev", "here it is an extra"),
        ("tset", "Did you mean --group test?"),
        ("trainning", "Did you mean --extra training"),
        ("both", "is an extra and a group"),
        ("zzz", "Its extras are training, dev, lts, both; its groups are test"),
        ("--group", "followed by no name"),
        ("--index-url=https://x", "does not choose what is installed"),
        ("--only-extra dev", "no option --only-extra"),
        ("--only-group linting dev", "installs nothing else"),
        ("'dev", "quotation mark"),
        ("--extra ../x", "no extra '../x'"),
    ],
)
def test_a_wrong_name_is_explained(wanted: str, says: str) -> None:
    with pytest.raises(RunbookError) as caught:
        pyproject.options(core, wanted)
    assert says in str(caught.value)


@given(st.text(max_size=60))
def test_no_word_but_known_options_and_names_gets_through(wanted: str) -> None:
    known = {"--extra", "--group", "--only-group", "--no-group", "--no-extra", "--all-extras", "--all-groups"}
    known |= {"--no-default-groups", *core.extras, *core.groups}
    with suppress(RunbookError):
        assert set(pyproject.options(core, wanted)) <= known


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
def test_a_package(text: str, name: str) -> None:
    assert pyproject.package_name(pyproject.requirement(text)) == name


@pytest.mark.parametrize(
    "text", ["", "-e .", "--index=x", "./here", "a b", "x;", "a\nb", "einops==1 --pre", "x@y z", "x==1 @ y"]
)
def test_no_package(text: str) -> None:
    with pytest.raises(RunbookError, match="name of a package"):
        pyproject.requirement(text)


# -- nothing to do -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (uv.add(lm(), "einops", "dev"), "einops stands in extra dev already."),
        (uv.add(lm(), "einops ~=0.8", "dev"), "einops stands in extra dev already."),
        (uv.add(lm(), "torch>=2"), "torch stands in the project's dependencies already."),
        (uv_git.conflict(lm()), "not in conflict"),
        (uv_git.conflict(lm(joining="merge", unmerged=("a.py",))), "not in conflict"),
    ],
)
def test_nothing_to_do(work: uv.Work, says: str) -> None:
    assert work.steps == ()
    assert says in work.idle


# -- install -----------------------------------------------------------------------------------------------------


def test_the_usual_ones_are_what_the_guides_install() -> None:
    assert uv.install(lm(), "").sync == ("--extra", "training", "--extra", "dev", "--group", "test")
    assert uv.install(bridge(), "").sync == ("--all-extras", "--all-groups")
    assert uv.install(bridge(), "dev test").sync == ("--group", "dev", "--group", "test")
    assert uv.install(lm(), "").locked
    with pytest.raises(Refused, match=r"docker/lts/requirements\.txt"):
        uv.install(lm(), "", "lts")


def test_a_lock_that_cannot_fit_is_not_asked_for() -> None:
    assert not uv.install(lm(lock=False), "").locked
    dev = uv.install(bridge(mcore="dev"), "")
    assert not dev.locked
    assert "stands on dev" in " ".join(dev.warnings)
    assert uv.install(bridge(mcore="main"), "").locked


def test_a_submodule_comes_first() -> None:
    tree = bridge(missing=("3rdparty/Megatron-LM",))
    first = "git submodule update --init 3rdparty/Megatron-LM"
    assert lines(uv.install(tree, "")) == [first]
    assert lines(uv.lock(tree)) == [first, "uv lock"]
    assert uv.lock(tree).steps[0].where == "host"
    assert uv.lock(tree).steps[1].where == "container"


# -- add ---------------------------------------------------------------------------------------------------------


def test_a_dependency_is_added_on_a_branch_of_its_own_and_committed_as_the_repository_asks() -> None:
    assert lines(uv.add(lm(), "humanize~=4", "dev")) == [
        "git switch --no-track -c build/add-humanize origin/main",
        "uv add --no-sync --optional dev humanize~=4",
        "uv lock --check",
        "git add -- pyproject.toml uv.lock",
        "git commit -S -s -m build: add humanize dependency -- pyproject.toml uv.lock",
    ]
    other = lines(uv.add(bridge(), "humanize", "recipes"))
    assert other[-1] == "git commit -s -m build: add humanize -- pyproject.toml uv.lock"
    assert "uv add --no-sync --group linting humanize" in lines(uv.add(lm(), "humanize", "linting"))


def test_a_required_dependency_is_warned_of() -> None:
    work = uv.add(lm(), "humanize")
    assert "uv add --no-sync humanize" in lines(work)
    assert "Preferred is an optional extra: training" in " ".join(work.warnings)
    assert "Push build/add-humanize" in work.after
    assert not uv.add(lm(), "humanize", "dev").warnings


def test_adding_goes_on_where_it_was_cut_off() -> None:
    both = frozenset({"pyproject.toml", "uv.lock"})
    head = CORE.replace('"einops~=0.8", ', "")
    work = uv.add(lm(branch="build/add-einops", changed=both, head=head), "einops", "dev")
    assert [it.split()[:2] for it in lines(work)] == [["uv", "lock"], ["git", "add"], ["git", "commit"]]
    again = uv.add(lm(branches=frozenset({"build/add-humanize"})), "humanize", "dev")
    assert lines(again)[0] == "git switch build/add-humanize"


def test_another_version_of_what_is_listed_is_added() -> None:
    assert lines(uv.add(lm(), "einops~=0.9", "dev"))[1] == "uv add --no-sync --optional dev einops~=0.9"
    assert "uv add --no-sync numpy>=2" in lines(uv.add(lm(), "numpy>=2"))


@pytest.mark.parametrize(
    ("branch", "changed", "head"),
    [
        ("feature", {"pyproject.toml", "uv.lock"}, CORE.replace('"einops~=0.8", ', "")),
        ("build/add-einops", {"pyproject.toml"}, CORE.replace('"einops~=0.8", ', "").replace("torch>=2", "torch>=1")),
        ("build/add-einops", {"pyproject.toml", "uv.lock"}, ""),
        ("build/add-einops", {"pyproject.toml"}, CORE.replace('"einops~=0.8", ', "").replace("build = ", "mcore = ")),
        ("build/add-einops", {"pyproject.toml"}, "[project"),
        ("build/add-einops", {"uv.lock"}, CORE),
    ],
)
def test_changes_of_ones_own_get_into_no_commit(branch: str, changed: set[str], head: str) -> None:
    with pytest.raises(Refused, match="uncommitted changes, which would get into the commit"):
        uv.add(lm(branch=branch, changed=frozenset(changed), head=head), "einops", "dev")


@pytest.mark.parametrize(
    ("tree", "package", "extra", "says"),
    [
        (lm(changed=frozenset({"uv.lock"})), "humanize", "dev", "uv.lock have uncommitted changes"),
        (lm(), "humanize", "lts", "docker/lts/requirements.txt"),
        (lm(), "humanize", "mlm", "in favour of training"),
        (lm(), "humanize", "devv", "Did you mean --extra dev"),
        (lm(), "-r requirements.txt", "dev", "not the name of a package"),
        (lm(base=""), "humanize", "dev", "`git fetch` it first"),
    ],
)
def test_what_is_not_added(tree: Tree, package: str, extra: str, says: str) -> None:
    with pytest.raises(RunbookError) as caught:
        uv.add(tree, package, extra)
    assert says in str(caught.value)


# -- conflicts and branches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (
            {"joining": "merge", "unmerged": ("uv.lock",), "marks": True, "theirs": "abc"},
            ["git checkout abc -- uv.lock", "uv lock", "git add -- uv.lock", "git commit --no-edit -S -s"],
        ),
        (
            {"joining": "rebase", "unmerged": ("uv.lock",)},
            ["git checkout origin/main -- uv.lock", "uv lock", "git add -- uv.lock",
             "git -c core.editor=true rebase --continue"],
        ),
        (
            {"joining": "merge", "unmerged": ("uv.lock", "a.py")},
            ["git checkout origin/main -- uv.lock", "uv lock", "git add -- uv.lock"],
        ),
        (
            {"joining": "merge", "was_conflict": True},
            ["uv lock", "git add -- uv.lock", "git commit --no-edit -S -s"],
        ),
        (
            {"marks": True},
            ["git checkout origin/main -- uv.lock", "uv lock", "git add -- uv.lock",
             "git commit -S -s -m build: lock again -- uv.lock"],
        ),
    ],
    ids=["merge", "rebase", "others in conflict", "cut off", "committed marks"],
)  # fmt: skip
def test_a_conflict_is_never_joined_by_hand(state: dict[str, object], steps: list[str]) -> None:
    work = uv_git.conflict(lm(**state))
    assert lines(work) == steps
    assert [it.keeps for it in work.steps if it.command[1] == "checkout"] in ([], [("uv.lock",)])
    assert ("a.py" in work.after) == ("a.py" in str(state))


def test_what_stops_a_conflict() -> None:
    with pytest.raises(Refused, match="Join it by hand"):
        uv_git.conflict(lm(joining="merge", unmerged=("uv.lock", "pyproject.toml"), marks=True))
    with pytest.raises(Refused, match="`git fetch` it first"):
        uv_git.conflict(lm(joining="merge", unmerged=("uv.lock",), base=""))
    with pytest.raises(Refused, match="choose the task conflict"):
        uv.lock(lm(marks=True))


def test_branches_of_megatron_core() -> None:
    tree = {"files": frozenset({uv_git.SWITCH})}
    dev = uv_git.switch(bridge(**tree, missing=("3rdparty/Megatron-LM",)), "dev")
    assert lines(dev) == [
        "git submodule update --init 3rdparty/Megatron-LM", "bash scripts/switch_mcore.sh dev",
    ]  # fmt: skip
    assert (dev.sync, dev.locked) == (("--all-extras", "--all-groups"), False)
    main = uv_git.switch(bridge(**tree, changed=frozenset({"uv.lock"})), "main")
    assert lines(main)[-1] == "git restore --staged --worktree -- uv.lock"
    assert main.steps[-1].keeps == ("uv.lock",)
    assert main.locked
    with pytest.raises(Refused, match="Commit or stash"):
        uv_git.switch(bridge(**tree, changed=frozenset({"uv.lock", "pyproject.toml"})), "main")
    with pytest.raises(Refused, match="in Megatron-Bridge alone"):
        uv_git.switch(lm(), "dev")


# -- style -------------------------------------------------------------------------------------------------------


def test_the_linters_are_those_of_the_project_in_an_environment_of_their_own() -> None:
    alone = "uv run --isolated --locked --only-group"
    tree = lm(files=frozenset({uv.AUTOFORMAT}), base="upstream/core_r0.16.0")
    (check,) = lines(uv.lint(tree, fix=False))
    assert check == (
        f"{alone} linting env BASE_REF=core_r0.16.0 CHECK_ONLY=true SKIP_DOCS=false bash tools/autoformat.sh"
    )
    assert "CHECK_ONLY=false" in lines(uv.lint(tree, fix=True))[0]
    assert "isort" in uv.lint(tree, fix=True).after
    assert lines(uv.lint(bridge(), fix=True)) == [f"{alone} dev ruff check --fix .", f"{alone} dev ruff format ."]
    assert lines(uv.lint(bridge(), fix=False))[1] == f"{alone} dev ruff format --check ."
    for lacking in (Tree(LM, bridged, files=tree.files), Tree(LM, Project("x", (), ()))):
        with pytest.raises(CannotTell):
            uv.lint(lacking, fix=False)


def test_hooks_come_from_the_group_that_has_pre_commit_or_from_uvx() -> None:
    files = {"files": frozenset({".pre-commit-config.yaml"})}
    assert lines(uv.hooks(bridge(**files), run=False)) == ["uv run --group dev pre-commit install"]
    assert lines(uv.hooks(lm(**files), run=True)) == ["uvx pre-commit run --all-files"]
    with pytest.raises(Refused, match="no hooks"):
        uv.hooks(lm(), run=True)
