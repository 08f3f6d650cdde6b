"""Checks of a new test against the project's guide, for ``runbook add-test``.  Pure.

Source: ``skills/mcore-testing/SKILL.md`` of Megatron-LM.  A functional test is a folder with ``model_config.yaml``, a
row in the recipe of each platform, and the label `Run functional tests`; its first golden values come from a clean
run.  A unit test is a file that a bucket includes, with markers that CI's filters know.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping

from runbook_lib import display, notebooks
from runbook_lib.checks import Check
from runbook_lib.errors import CannotTell
from runbook_lib.golden.file_names import FOLDER
from runbook_lib.pins.repositories import FUNCTIONAL, LIGHTWEIGHT
from runbook_lib.recipes import quarantine, rows
from runbook_lib.recipes.targets import Target
from runbook_lib.text import yaml_spans

UNIT_TESTS = "tests/unit_tests"
#: The required keys of `model_config.yaml`.
KEYS = ("MODEL_ARGS", "ENV_VARS", "TEST_TYPE")
#: The fields of a row, set in the row or in the recipe's ``spec``; CI has defaults for missing ones.
FIELDS = ("scope", "environment", "platforms", "n_repeat", "time_limit")
#: The markers that CI's filters know, and their effects.
MARKERS = {
    "internal": "skipped on the tag legacy",
    "flaky": "skipped in lts",
    "flaky_in_dev": "skipped in dev",
    "experimental": "runs only on the tag latest",
}
_BUILT_IN = frozenset({"parametrize", "skip", "skipif", "xfail", "usefixtures", "filterwarnings"})


def functional(test: Target, texts: Mapping[str, str | None]) -> tuple[Check, ...]:
    """Return the checks of a functional test on its platform; ``texts`` are the files in its folder and the recipes.

    A failed check says what to do.  Missing golden values are not a failure.
    """
    folder = f"{FOLDER}/{test.model}/{test.case}"
    files = {path: text for path, text in texts.items() if path.startswith(f"{folder}/") and text is not None}
    golden = f"{folder}/golden_values_{test.environment}_{test.platform}.json"
    golden_check = Check("golden values", "passed", golden)
    if golden not in files:
        advice = f"as in every new test: {notebooks.GOLDEN_VALUES} with -r run_id '#<pull request>' adds it."
        golden_check = Check("golden values", "skipped", f"{golden} is missing, {advice}")
    advice = f"Set {FUNCTIONAL!r} on the pull request: its golden values come from a run with that label."
    return (
        Check.of("the folder exists", bool(files), folder if files else f"{folder}/ does not exist. Create it."),
        _check_config(f"{folder}/model_config.yaml", files),
        *_check_rows(test, texts),
        Check("the label", "skipped", advice),
        golden_check,
    )


def _check_config(path: str, files: Mapping[str, str | None]) -> Check:
    name = f"model_config.yaml has {', '.join(KEYS)}"
    text = files.get(path)
    if text is None:
        return Check.of(name, False, f"{path} does not exist. Create it.")
    try:
        data = yaml_spans.load(text)
    except CannotTell as error:
        return Check.of(name, False, f"{path} cannot be read: {error}")
    if not isinstance(data, dict):
        return Check.of(name, False, f"{path} is not a mapping of {', '.join(KEYS)}.")
    if missing := [key for key in KEYS if key not in data or (key == "TEST_TYPE" and not data[key])]:
        return Check.of(name, False, f"{path} has no {', '.join(missing)}.")
    for key in ("MODEL_ARGS", "ENV_VARS"):
        if not isinstance(data[key], dict):
            return Check.of(name, False, f"{path}: {key} is not a mapping.")
    return Check.of(name, True, f"{path}: {data['TEST_TYPE']}")


def _check_rows(test: Target, texts: Mapping[str, str | None]) -> Iterator[Check]:
    all_rows, problems = rows.read_all(texts)
    own_rows = [row for row in all_rows if test.is_of(row)]
    name = f"a recipe runs it on {test.platform}"
    if not own_rows:
        advice = "Add the row above with --apply, or write one if none could be drafted."
        yield Check.of(name, False, " ".join([f"No recipe runs {test}.", *problems, advice]))
        return
    places = ", ".join(f"{row.recipe}:{row.line}" for row in own_rows)
    scopes = sorted(set().union(*map(quarantine.gating_scopes, own_rows)))
    if not scopes:
        advice = "Add one, such as mr-github."
        yield Check.of(name, False, f"{places}: no scope of this row makes CI run it. {advice}")
    else:
        yield Check.of(name, True, f"{places}, scopes {', '.join(scopes)}.")
        if not any(scope.startswith("mr-github") or scope in ("L0", "L1") for scope in scopes):
            source = f"GitLab: {notebooks.GOLDEN_VALUES} with -r run_id <address of the pipeline>"
            detail = f"GitHub never runs {', '.join(scopes)}, so the first golden values come from {source}."
            yield Check("GitHub runs it", "skipped", detail)
    for row in own_rows:
        if missing := [field for field in FIELDS if field not in row.settings]:
            detail = f"{row.recipe}:{row.line} leaves {', '.join(missing)} to CI. Set those whose defaults do not fit."
            yield Check("the row is complete", "skipped", detail)


def unit(
    path: str, text: str | None, recipes: Mapping[str, str | None], registered: frozenset[str]
) -> tuple[Check, ...]:
    """Return the checks of a unit test; ``registered`` are the markers of ``pyproject.toml``."""
    is_named = re.fullmatch(r"test_.*\.py", path.rpartition("/")[2]) is not None
    name_detail = path if is_named else f"{path} must be named test_….py, below {UNIT_TESTS}/."
    buckets = sorted({row.case for row in rows.read_all(recipes)[0] if _takes(row.case, path)})
    missing = f"No bucket includes {path}. Add a row to {rows.FOLDER}/h100/unit-tests.yaml"
    bucket_detail = f"{', '.join(buckets) or missing}."
    advice = f"Set {LIGHTWEIGHT!r} on the pull request, or {FUNCTIONAL!r} if other changes need it (runbook labels)."
    return (
        Check.of("pytest finds the file by its name", is_named, name_detail),
        *_check_markers(path, text, registered),
        Check.of("a CI bucket includes it", bool(buckets), bucket_detail),
        Check("the label", "skipped", advice),
    )


def _takes(bucket: str, path: str) -> bool:
    """Return True if a unit-test bucket, a path with wildcards, includes a file."""
    form = re.escape(bucket).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    if bucket.endswith("/"):
        form += "[^/]*"
    return bucket.startswith(UNIT_TESTS) and re.fullmatch(form, path) is not None


def _check_markers(path: str, text: str | None, registered: frozenset[str]) -> Iterator[Check]:
    if text is None:
        yield Check.of("the file exists", False, f"{path} does not exist. Create it.")
        return
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield Check.of("it parses as Python", False, f"{path}: {error}.")
        return
    tests = 0
    markers = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            tests += 1
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("pytest.mark", "mark"):
            markers.add(node.attr)
    yield Check.of("it has tests", tests > 0, f"{display.count(tests, 'test function')}.")
    used = sorted(markers - _BUILT_IN)
    unknown = [marker for marker in used if marker not in MARKERS and marker not in registered]
    effects = [f"{marker}: {MARKERS.get(marker, 'registered in pyproject.toml')}" for marker in used]
    detail = f"{'; '.join(effects) or 'none'}."
    if unknown:
        detail = f"Neither CI's filters nor pyproject.toml know {', '.join(unknown)}. Known: {', '.join(MARKERS)}."
    yield Check.of("its markers are known", not unknown, detail)


def registered_in(pyproject: str | None) -> frozenset[str]:
    """Return the pytest markers that ``pyproject.toml`` registers; none if it cannot be read."""
    try:
        markers = tomllib.loads(pyproject or "")["tool"]["pytest"]["ini_options"]["markers"]
        return frozenset(str(marker).partition(":")[0].partition("(")[0].strip() for marker in markers)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, RecursionError):
        return frozenset()
