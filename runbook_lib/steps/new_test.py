"""Whether a new test has all that the project's guide asks for, and the recipe row that it lacks: ``runbook add-test``.

Source: ``skills/mcore-testing/SKILL.md`` of Megatron-LM.  A functional test is a folder with ``model_config.yaml``, a
row in the recipe of each platform, and the label `Run functional tests`; its first golden values come from a clean
run, by step 5.  A unit test is a file that a bucket takes in, with the markers that CI's filters know.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from runbook_lib import display
from runbook_lib.checks import Check
from runbook_lib.clients.github.ci_status import FUNCTIONAL, LIGHTWEIGHT
from runbook_lib.errors import CannotTell
from runbook_lib.golden.file_names import FOLDER
from runbook_lib.recipes import draft, rows
from runbook_lib.recipes.quarantine import gating
from runbook_lib.recipes.rows import RecipeRow
from runbook_lib.recipes.targets import Target
from runbook_lib.text import yaml_spans

UNIT_TESTS = "tests/unit_tests"
#: What `model_config.yaml` must hold.
KEYS = ("MODEL_ARGS", "ENV_VARS", "TEST_TYPE")
#: What a row must say, itself or by the recipe's ``spec``; without the latter CI takes its own.
FIELDS = ("scope", "environment", "platforms", "n_repeat", "time_limit")
#: The markers that CI's filters know, and what each does.
MARKERS = {
    "internal": "skipped on the tag legacy",
    "flaky": "skipped in lts",
    "flaky_in_dev": "skipped in dev",
    "experimental": "runs on the tag latest only",
}
_BUILT_IN = frozenset({"parametrize", "skip", "skipif", "xfail", "usefixtures", "filterwarnings"})


def functional(test: Target, texts: Mapping[str, str | None]) -> tuple[Check, ...]:
    """What the guide asks for a functional test on its platform; ``texts`` are the files of its folder, and recipes.

    A check that failed says what to do.  Golden values that are not there yet are no failure.
    """
    folder = f"{FOLDER}/{test.model}/{test.case}"
    mine = {path: text for path, text in texts.items() if path.startswith(f"{folder}/") and text is not None}
    found, odd = rows.read_all(texts)
    golden = f"{folder}/golden_values_{test.environment}_{test.platform}.json"
    return (
        Check.of("the folder exists", bool(mine), folder if mine else f"There is no {folder}/. Make it."),
        _config(f"{folder}/model_config.yaml", mine),
        *_rows_of(test, found, texts, odd),
        Check("the label", "skipped", f"Set {FUNCTIONAL!r} on the pull request: its golden values need such a run."),
        Check("golden values", "passed", golden) if golden in mine else
        Check("golden values", "skipped", f"{golden} is missing, as for every new test: 05-golden-values brings it "
              "after the first clean run."),
    )  # fmt: skip


def _config(path: str, mine: Mapping[str, str | None]) -> Check:
    name = f"model_config.yaml has {', '.join(KEYS)}"
    text = mine.get(path)
    if text is None:
        return Check.of(name, False, f"There is no {path}. Write it.")
    try:
        data = yaml_spans.load(text)
    except CannotTell as error:
        return Check.of(name, False, f"{path} cannot be read: {error}")
    if not isinstance(data, dict):
        return Check.of(name, False, f"{path} is no mapping of {', '.join(KEYS)}.")
    lacking = [key for key in KEYS if key not in data or (key == "TEST_TYPE" and not data[key])]
    odd = [key for key in ("MODEL_ARGS", "ENV_VARS") if key in data and not isinstance(data[key], dict)]
    told = [f"It lacks {', '.join(lacking)}."] * bool(lacking) + [f"No mapping: {', '.join(odd)}."] * bool(odd)
    return Check.of(name, not told, f"{path}: {' '.join(told) or data['TEST_TYPE']}")


def _rows_of(
    test: Target, found: Sequence[RecipeRow], texts: Mapping[str, str | None], odd: Sequence[str]
) -> Iterator[Check]:
    mine = [row for row in found if test.is_of(row)]
    name = f"a recipe runs it on {test.platform}"
    if not mine:
        told = f"No recipe runs {test}. {' '.join(odd)}".strip()
        yield Check.of(name, False, f"{told} Add the row above with --apply; where none could be drafted, write one.")
        return
    places = ", ".join(f"{row.recipe}:{row.line}" for row in mine)
    live = sorted({cell.value for row in mine for cell in row.scopes if gating(cell.value)})
    idle = f"{places}: none of its scopes lets it run by itself. Give it one, such as mr-github."
    yield Check.of(name, bool(live), f"{places}, scopes {', '.join(live)}." if live else idle)
    if live and not any(scope.startswith("mr-github") or scope in ("L0", "L1") for scope in live):
        yield Check("GitHub runs it", "skipped", f"It never runs {', '.join(live)}: the first golden values of this "
                    "test come from the internal GitLab (05-golden-values with -r source gitlab).")  # fmt: skip
    for row in mine:
        said = draft.fields(row, texts[row.recipe] or "")
        if lacking := [field for field in FIELDS if field not in said]:
            told = (
                f"{row.recipe}:{row.line} leaves {', '.join(lacking)} to CI. Say it, if that is too short or too few."
            )
            yield Check("the row says all", "skipped", told)


# -- unit tests ------------------------------------------------------------------------------------------------------


def unit(
    path: str, text: str | None, recipes_: Mapping[str, str | None], registered: frozenset[str]
) -> tuple[Check, ...]:
    """What the guide asks for a unit test; ``registered`` are the markers of ``pyproject.toml``."""
    name = path.rpartition("/")[2]
    named = re.fullmatch(r"test_.*\.py", name) is not None
    where = f"{path} must be named test_….py, below {UNIT_TESTS}/."
    taken = [row for row in rows.read_all(recipes_)[0] if _takes(row.case, path)]
    buckets = ", ".join(sorted({row.case for row in taken}))
    nowhere = f"No bucket takes {path} in. Add a row to {rows.FOLDER}/h100/unit-tests.yaml."
    return (
        Check.of("the file is named so that pytest finds it", named, path if named else where),
        *_markers(path, text, registered),
        Check.of("a bucket of CI takes it in", bool(taken), f"{buckets}." if taken else nowhere),
        Check("the label", "skipped", f"Set {LIGHTWEIGHT!r} on the pull request, or {FUNCTIONAL!r} where its other "
              "changes ask for it (runbook labels)."),
    )  # fmt: skip


def _takes(bucket: str, path: str) -> bool:
    form = re.escape(bucket).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return (
        bucket.startswith(UNIT_TESTS)
        and re.fullmatch(form + ("[^/]*" if bucket.endswith("/") else ""), path) is not None
    )


def _markers(path: str, text: str | None, registered: frozenset[str]) -> Iterator[Check]:
    if text is None:
        yield Check.of("the file exists", False, f"There is no {path}. Write it.")
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield Check.of("it parses as Python", False, f"{path}: {error}.")
        return
    tests = sum(
        isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef) and it.name.startswith("test") for it in ast.walk(tree)
    )
    yield Check.of("it has tests", tests > 0, f"{display.count(tests, 'test function')}.")
    used = sorted({
        it.attr for it in ast.walk(tree)
        if isinstance(it, ast.Attribute) and ast.unparse(it.value) in ("pytest.mark", "mark")
    } - _BUILT_IN)  # fmt: skip
    unknown = [it for it in used if it not in MARKERS and it not in registered]
    told = "; ".join(f"{it}: {MARKERS.get(it, 'registered in pyproject.toml')}" for it in used) or "none"
    known = ", ".join(MARKERS)
    wrong = f"Neither CI's filters nor pyproject.toml know {', '.join(unknown)}. Known: {known}."
    yield Check.of("its markers are known", not unknown, wrong if unknown else f"{told}.")


def registered_in(pyproject: str | None) -> frozenset[str]:
    """The markers that ``pyproject.toml`` registers with pytest; none where it cannot be read."""
    import tomllib

    try:
        listed = tomllib.loads(pyproject or "")["tool"]["pytest"]["ini_options"]["markers"]
        return frozenset(str(it).partition(":")[0].partition("(")[0].strip() for it in listed)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, RecursionError):
        return frozenset()
