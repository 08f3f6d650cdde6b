"""The checks of a new test, and the row drafted for it in the style of its recipe."""

import re
from pathlib import Path

import pytest
from bumping import git
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.checks import Check
from runbook_lib.cli.__main__ import main
from runbook_lib.errors import Refused
from runbook_lib.practice import seed
from runbook_lib.recipes.draft import draft, recipe_for
from runbook_lib.recipes.rows import rows
from runbook_lib.recipes.targets import Target
from runbook_lib.steps.new_test import MARKERS, functional, registered_in, unit

FOLDER = "tests/functional_tests/test_cases/gpt/new"
CONFIG, GOLDEN = f"{FOLDER}/model_config.yaml", f"{FOLDER}/golden_values_dev_dgx_h100.json"
GPT = "tests/test_utils/recipes/h100/gpt.yaml"
NEW = Target("new", "dgx_h100", "dev", "gpt")
GOOD = "MODEL_ARGS: {--a: 1}\nENV_VARS: {}\nTEST_TYPE: regular\n"


def recipe(*entries: str, spec: str = "model: gpt, n_repeat: 5, time_limit: 1800") -> str:
    return f"spec: {{{spec}}}\nproducts:\n" + "".join(entries)


def entry(case: str, scope: str = "[mr, mr-github]", *, platform: str = "dgx_h100", environment: str = "dev") -> str:
    return (
        f"  - test_case: [{case}]\n    products:\n      - environment: [{environment}]\n        scope: {scope}\n"
        f"        platforms: [{platform}]\n"
    )


def statuses(checks: tuple[Check, ...]) -> list[str]:
    return [check.status for check in checks]


# -- a functional test ---------------------------------------------------------------------------------------------


def test_a_complete_test_passes() -> None:
    texts = {CONFIG: GOOD, GOLDEN: "{}", GPT: recipe(entry("new"))}
    assert statuses(functional(NEW, texts)) == ["passed", "passed", "passed", "skipped", "passed"]


def test_its_golden_values_may_be_missing_at_first() -> None:
    checks = functional(NEW, {CONFIG: GOOD, GPT: recipe(entry("new"))})
    assert statuses(checks) == ["passed", "passed", "passed", "skipped", "skipped"]
    assert "05-golden-values" in checks[-1].detail
    assert "Run functional tests" in checks[-2].detail


@pytest.mark.parametrize(
    ("texts", "failed", "named"),
    [
        ({}, {"the folder exists", "model_config.yaml", "a recipe runs it"}, "Create it"),
        ({CONFIG: None}, {"the folder exists", "model_config.yaml"}, "Create it"),
        ({CONFIG: "MODEL_ARGS: {}\n"}, {"model_config.yaml"}, "ENV_VARS, TEST_TYPE"),
        ({CONFIG: GOOD.replace("regular", "")}, {"model_config.yaml"}, "TEST_TYPE"),
        ({CONFIG: GOOD.replace("{--a: 1}", "[a]")}, {"model_config.yaml"}, "MODEL_ARGS"),
        ({CONFIG: "a: ["}, {"model_config.yaml"}, "does not parse as YAML"),
        ({CONFIG: "text"}, {"model_config.yaml"}, "not a mapping"),
        ({GPT: recipe(entry("other"))}, {"a recipe runs it"}, "No recipe runs gpt/new@dgx_h100 (dev)"),
        ({GPT: recipe(entry("new", platform="dgx_gb200"))}, {"a recipe runs it"}, "No recipe runs"),
        ({GPT: recipe(entry("new", environment="lts"))}, {"a recipe runs it"}, "No recipe runs"),
        ({GPT: "a: ["}, {"a recipe runs it"}, "cannot be read"),
        ({GPT: recipe(entry("new", "[mr-broken]"))}, {"a recipe runs it"}, "no scope"),
    ],
)  # fmt: skip
def test_an_incomplete_test_fails(texts: dict[str, str | None], failed: set[str], named: str) -> None:
    complete = {CONFIG: GOOD, GPT: recipe(entry("new"))} if texts else {}
    checks = [check for check in functional(NEW, {**complete, **texts}) if check.status == "failed"]
    assert len(checks) == len(failed)
    assert all(any(check.name.startswith(name) for name in failed) for check in checks)
    assert named in " ".join(check.detail for check in checks)


def test_scopes_of_gitlab_and_missing_fields_are_reported() -> None:
    checks = functional(NEW, {CONFIG: GOOD, GPT: recipe(entry("new", "[nightly]"), spec="model: gpt")})
    by_name = {check.name: check for check in checks}
    assert "-r run_id" in by_name["GitHub runs it"].detail
    assert "n_repeat, time_limit" in by_name["the row is complete"].detail
    assert "failed" not in statuses(checks)


# -- the row -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "row"),
    [
        (recipe(entry("a")), entry("new")),
        (recipe(entry("a"), entry("b", "[nightly]")), entry("new")),  # one that GitHub runs
        (recipe(entry("a", "[mr, mr-github, mr-github-slim]"), entry("b")), entry("new")),
        (recipe(entry("a", "[nightly]")), entry("new", "[nightly]")),
        (recipe(entry("a"), entry("b", "[mr-broken]")), entry("new")),
        (recipe(entry("a"), entry("b", platform="dgx_a100"), entry("c", environment="lts")), entry("new")),
        (recipe(entry("a").replace("[mr", "  [mr")), entry("new").replace("[mr", "  [mr")),
        (recipe(entry("a", "\n          - mr\n          - mr-github")),
         entry("new", "\n          - mr\n          - mr-github")),
        (recipe(entry("a").replace("    products:", "    products: # why")
                .replace("a]", "x]"), entry("b")), entry("new")),  # no comment is copied
        (recipe("  - {test_case: [a], products: [{environment: [dev], scope: [mr], platforms: [dgx_h100]}]}\n"),
         "  - {test_case: [new], products: [{environment: [dev], scope: [mr], platforms: [dgx_h100]}]}\n"),
        (recipe(entry("a")).replace("\n", "\r\n"), entry("new").replace("\n", "\r\n")),
        (recipe(entry("a")).rstrip("\n"), "\n" + entry("new").rstrip("\n")),
        (recipe(entry("a"), "\n", entry("b")), "\n" + entry("new")),
    ],
)  # fmt: skip
def test_the_row_is_written_like_its_neighbours(before: str, row: str) -> None:
    after = draft(GPT, before, NEW).edit.after
    assert row in after
    assert after.replace(row, "", 1) == before


def test_the_usual_form_is_taken_and_the_keys_keep_their_order() -> None:
    odd = entry("odd").replace("        scope", "        gpus: [1]\n        scope")
    swapped = "  - test_case: [s]\n    products:\n      - scope: [mr-github]\n        platforms: [dgx_h100]\n"
    swapped += "        environment: [dev]\n"
    made = draft(GPT, recipe(swapped, swapped.replace("[s]", "[t]"), odd), NEW)
    assert made.like == "t"
    assert swapped.replace("[s]", "[new]") in made.edit.after


def test_the_row_stands_below_the_comments_that_belong_to_its_neighbour() -> None:
    theirs = "      # - environment: [lts]\n      #   scope: [nightly]\n"
    title = "  # Weekly tests\n"
    after = draft(GPT, recipe(entry("a"), theirs, title, entry("w", "[weekly]")), NEW).edit.after
    assert after == recipe(entry("a"), theirs, entry("new"), title, entry("w", "[weekly]"))


@pytest.mark.parametrize(
    "before",
    [
        recipe(), recipe(entry("a", "[mr-broken]")), recipe(entry("a"), spec="model: moe"),
        recipe(entry("a", platform="dgx_h100, dgx_a100")), recipe(entry("a").replace("scope", "# why\n        scope")),
        recipe(entry("a").replace("[a]", "[a, b]")), recipe(entry("a").replace("[mr,", "&s [mr,")),
        recipe(entry("a") + entry("a").partition("products:\n")[2]), "", "products: 3\n",
    ],
)  # fmt: skip
def test_without_a_neighbour_to_follow_nothing_is_drafted(before: str) -> None:
    with pytest.raises(Refused, match="can be a model"):
        draft(GPT, before, NEW)


@pytest.mark.parametrize("name", ["", "a b", "a]", "../x", "a\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(Refused, match=re.escape(repr(name))):
        draft(GPT, recipe(entry("a")), Target(name, "dgx_h100", "dev", "gpt"))


@given(
    st.lists(st.sampled_from([entry("a"), entry("b", "[nightly]"), entry("c", "[mr-broken]"), "  # note\n", "\n"])),
    st.from_regex(r"new[A-Za-z0-9_.+-]{0,20}", fullmatch=True),
)
def test_a_draft_adds_one_row_and_keeps_all_others(parts: list[str], name: str) -> None:
    before = recipe(entry("first"), *parts)
    made = draft(GPT, before, Target(name, "dgx_h100", "dev", "gpt"))
    old, new = rows(GPT, before), rows(GPT, made.edit.after)
    assert len(new) == len(old) + 1
    assert sorted([*(row.case for row in old), name]) == sorted(row.case for row in new)
    assert set(before.splitlines()) <= set(made.edit.after.splitlines())


def test_which_recipe_is_meant() -> None:
    other = GPT.replace("gpt.yaml", "gpt-perf.yaml")
    assert recipe_for(NEW, {GPT: recipe(entry("a")), other: recipe(entry("b"))}) == GPT
    assert recipe_for(NEW, {other: recipe(entry("b"))}) == other
    with pytest.raises(Refused, match="no recipe for the model gpt"):
        recipe_for(NEW, {GPT.replace("h100", "gb200"): recipe(entry("a"))})
    with pytest.raises(Refused, match="has several"):
        recipe_for(NEW, {other: recipe(entry("a")), other.replace("perf", "nemo"): recipe(entry("b"))})


# -- a unit test ---------------------------------------------------------------------------------------------------

UNIT = "tests/unit_tests/models/test_new.py"
BUCKETS = "tests/test_utils/recipes/h100/unit-tests.yaml"
CODE = "import pytest\n\n\n@pytest.mark.internal\n@pytest.mark.parametrize('a', [1])\ndef test_a(a):\n    pass\n"


def bucket(name: str) -> dict[str, str | None]:
    return {BUCKETS: recipe(entry(name, "[unit-tests]"), spec="model: unit-tests")}


@pytest.mark.parametrize("name", [UNIT, "tests/unit_tests/models/**/*.py", "tests/unit_tests/**/*.py",
                                  "tests/unit_tests/models/", "tests/unit_tests/models/*.py"])  # fmt: skip
def test_a_unit_test_that_a_bucket_includes(name: str) -> None:
    checks = unit(UNIT, CODE, bucket(name), frozenset())
    assert statuses(checks) == ["passed", "passed", "passed", "passed", "skipped"]
    assert MARKERS["internal"] in checks[2].detail


@pytest.mark.parametrize(
    ("path", "text", "bucket_", "named"),
    [
        (UNIT, CODE, "tests/unit_tests/data/**/*.py", "No bucket"),
        (UNIT, CODE, "tests/unit_tests/*.py", "No bucket"),
        (UNIT, CODE.replace("internal", "slow"), UNIT, "know slow"),
        (UNIT, "x = 1\n", UNIT, "0 test functions"),
        (UNIT, "def test_(:\n", UNIT, "invalid syntax"),
        (UNIT, None, UNIT, "Create it"),
        ("tests/unit_tests/new.py", CODE, "tests/unit_tests/*.py", "must be named test_"),
    ],
)  # fmt: skip
def test_a_unit_test_fails(path: str, text: str | None, bucket_: str, named: str) -> None:
    checks = unit(path, text, bucket(bucket_), frozenset())
    (failed,) = [check for check in checks if check.status == "failed"]
    assert named in failed.detail


def test_markers_that_the_project_registers_are_known() -> None:
    known = registered_in('[tool.pytest.ini_options]\nmarkers = ["slow: takes long", "on_gb(n)"]\n')
    assert known == {"slow", "on_gb"}
    assert statuses(unit(UNIT, CODE.replace("internal", "slow"), bucket(UNIT), known))[2] == "passed"
    for text in (None, "", "[tool", "tool = 3", "[tool.pytest.ini_options]\nmarkers = 3"):
        assert registered_in(text) == frozenset()


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    seed.create(tmp_path / "remote.git", tmp_path / "checkout")
    return tmp_path / "checkout"


def test_the_command_drafts_the_row_and_writes_it_once(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clone / FOLDER).mkdir(parents=True)
    (clone / CONFIG).write_text(GOOD)
    command = ["add-test", "--repo", str(clone), "gpt/new"]
    assert main(command) == 1
    drafted = capsys.readouterr().out
    assert "+  - test_case: [new]\n" in drafted
    assert git(clone, "diff", "--name-only") == ""
    assert main([*command, "--apply"]) == 0
    assert f"Written to {GPT}." in capsys.readouterr().out
    assert git(clone, "diff", "--name-only") == GPT
    written = (clone / GPT).read_text()
    assert main([*command, "--apply"]) == 0
    assert (clone / GPT).read_text() == written
    assert "+" not in capsys.readouterr().out


def test_each_platform_has_its_recipe(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "add-test",
        "--repo",
        str(clone),
        "gpt/new",
        "--apply",
        "--platform",
        "dgx_gb200",
        "--platform",
        "dgx_h100",
    ]
    assert main(command) == 1  # the folder is missing
    assert git(clone, "diff", "--name-only").split() == [GPT.replace("h100", "gb200"), GPT]
    assert "golden_values_dev_dgx_gb200.json is missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["gpt"], 1, "'gpt'"), (["gpt/../x"], 1, "'gpt/../x'"), (["gpt/a b"], 1, "'gpt/a b'"),
        (["t5/new"], 1, "has no recipe for the model t5"),
        (["gpt/new", "--recipe", "no.yaml"], 1, "There is no recipe no.yaml"),
        (["tests/unit_tests/test_x.py"], 1, "tests/unit_tests/test_x.py does not exist"),
    ],
)  # fmt: skip
def test_impossible_requests_are_reported(
    clone: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, named: str
) -> None:
    assert main(["add-test", "--repo", str(clone), *arguments, "--apply"]) == status
    captured = capsys.readouterr()
    assert named in captured.out + captured.err
    assert git(clone, "status", "--porcelain") == ""


def test_a_bare_clone_is_read_and_not_written(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["add-test", "--repo", str(clone.parent / "remote.git"), "gpt/new"]
    assert main(command) == 1
    assert "+  - test_case: [new]\n" in capsys.readouterr().out
    assert main([*command, "--apply"]) == 1
    assert "bare repository" in capsys.readouterr().err + capsys.readouterr().out
