"""YAML, JSON, TOML and Dockerfiles with values beyond measure: read or refused in a sentence, never a traceback."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from bumping import git
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runbook_lib.cli.__main__ import main
from runbook_lib.containers.work import pyproject
from runbook_lib.errors import RunbookError
from runbook_lib.golden import ci_rules, match_artifacts, values
from runbook_lib.pins import finders, known_sites, pins_file
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.repositories import FILE
from runbook_lib.recipes import quarantine, rows, targets, workloads
from runbook_lib.slurm import selection, site_file
from runbook_lib.text import dockerfile, yaml_spans
from runbook_lib.text.redact import Redactor
from runbook_lib.transport import limits
from runbook_lib.triage import failed_jobs

BIG = "9" * 5000
STEPS = 3000
CHAIN = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: *a{i - 1}\n  k{i}: 1\n" for i in range(1, STEPS + 1))


def recipe(value: str) -> str:
    """A recipe with something in the place of each value in turn."""
    return (
        f"type: basic\nspec: {{model: gpt, scope: {value}}}\nproducts:\n  - test_case: [case]\n    products:\n"
        f"      - {{environment: [dev], platforms: [{value}], scope: {value}, nodes: {value}, time_limit: {value}}}\n"
    )


def ci(value: str) -> str:
    """A file of GitLab's."""
    row = "".join(f"        {key}: {value}\n" for key in ("IMAGE", "BASE_IMAGE", "PLATFORM"))
    return f"job:\n  parallel:\n    matrix:\n      -\n{row}"


VALUES = (
    BIG, f"-{BIG}", f"{BIG}.5", f"1e{BIG}", f".{BIG}", f"0x{'f' * 5000}", f"0b{'1' * 15000}", f"0o{'7' * 5000}",
    f"0{'7' * 5000}", ":".join(["59"] * 3000), ":".join(["59"] * 3000) + ".5", f"2020-01-01T00:00:00.{BIG}Z",
    "9999-99-99", "0000-00-00", "2020-01-01 99:99:99", "0001-01-01 00:00:00 +23:59", ".inf", "-.inf", ".nan",
    "!!int x", "!!int ''", "!!float x", "!!float ''", "!!bool x", "!!timestamp x", "!!binary xx=", "!!binary ä",
    "!!null x", "!!set {a, b}", "!!omap [a]", "!!omap [{a: 1, b: 2}]", "!!pairs [a]", "!!pairs {}", "!!str [1]",
    "!!seq {}", "!!map []", "!!int {a: 1}", "!!int [1]", "!!float {a: 1}", "!!bool [x]", "!!timestamp {}",
    "!!python/object/apply:os.system [x]", "!unknown x", "!<tag:yaml.org,2002:int> x", "=", "<<", "~", "''", "&a [*a]",
    "{? [a] : 1}", "{? {a: 1} : 1}", "{<<: 1}", "{<<: [1, 2]}", "{<<: [[]]}", "{<<: {<<: {<<: {}}}}", "{a: 1, a: 2}",
    "[" * 900 + "]" * 900, "[" * 1500 + "]" * 1500, "{a: " * 900 + "1" + "}" * 900, "{a: " * 1500 + "1" + "}" * 1500,
    '"\\ud800"', '"\\0"', '"\\x85"', "|\n  x", "x" * 10_000,
)  # fmt: skip
WHOLE = (
    CHAIN, CHAIN + f"last: {{<<: [*a{STEPS}, *a{STEPS - 1}]}}\n", f"first: &f {{<<: 1}}\n{CHAIN}",
    "a: &a\n  <<: *a\n", "a: &a\n  b: &b {<<: *a}\n  <<: *b\n", f"{BIG}: 1", f"? {'[' * 900}{']' * 900}\n: 1",
    "- " * 5000 + "1", "".join(" " * i + "a:\n" for i in range(2000)), "a: 1\n---\nb: 2", "a: *b", "a: \udc80", "\0",
    "%YAML 9.9\n---\na: 1", "%TAG ! x\n---\n!y z", "\ufeffa: 1", "\t", "a\r\rb: 1", f'{{"a": {BIG}}}', '{"a":' * 5000,
    "x: &x [1]\n" + "".join(f"y{i}: &y{i} [{', '.join([f'*y{i - 1}' if i else '*x'] * 9)}]\n" for i in range(9)),
)  # fmt: skip


def texts_for(name: str) -> Iterator[str]:
    """Every value by itself, as that of a key, and where the reader looks for one."""
    shape = {"matrix": ci, "known sites": ci, "pins file": in_pins, "model_config": model}.get(name, recipe)
    for value in VALUES:
        yield from (value, f"a: {value}", shape(value))
    yield from WHOLE


def in_pins(value: str) -> str:
    return PINS.replace("COUNT", value)


def model(value: str) -> str:
    """A model_config.yaml."""
    return (
        f"MODE: {value}\nMETRICS: [{value}]\nENV_VARS: {{THROUGHPUT_START_STEP: {value}}}\nTEST_TYPE: {value}\n"
        f"MODEL_ARGS: {{--tensor-model-parallel-size: {value}, --train-iters: {value}, --x: {value}}}\n"
    )


PINS = """
version: COUNT
image: nvcr.io/nvidia/pytorch
pins:
  - path: f
    count: COUNT
    find: {yaml: COUNT}
"""


def every_path(text: str) -> None:
    """Each finder of YAML, at paths that exist and that do not."""
    for keys in (("a",), ("a", "x"), (f"a{STEPS}", "x"), ("last", "x"), ("0",), (BIG,), ("a", BIG), ("a", "٣"), ("²",)):
        finders.YamlValue(keys).find(text, "nvcr.io/nvidia/pytorch")


def every_pair(text: str) -> None:
    parsed = yaml_spans.Text(text)
    for document in parsed.documents:
        for _, value in reversed(document.value if isinstance(document, yaml_spans.MappingNode) else []):
            if isinstance(value, yaml_spans.MappingNode):
                parsed.pairs(value)


def quarantined(text: str) -> None:
    found = rows.rows("tests/test_utils/recipes/x.yaml", text)
    rows.problems(found)
    targets.parse_targets("gpt/case@dgx_h100", "dev", Redactor({}))
    for target in targets.parse_targets("gpt/case@dgx_h100", "dev", Redactor({})):
        quarantine.mark("tests/test_utils/recipes/x.yaml", text, {target: (1, "why")})  # type: ignore[arg-type]


def judged(text: str) -> None:
    assert ci_rules.ComparisonConfig.parse(text).start_step >= 0


def every_site(text: str) -> None:
    for known in (known_sites.MEGATRON_LM,):
        check_pins(dict.fromkeys(known.paths, text), known)


READERS: Mapping[str, Callable[[str], object]] = {
    "values": yaml_spans.load,
    "pairs": every_pair,
    "paths": every_path,
    "pins file": lambda text: pins_file.parse(text, "o/r"),
    "site file": lambda text: site_file.parse(text, "s", "/x"),
    "recipe": lambda text: rows.rows("r", text),
    "workloads": lambda text: workloads.read("r", text),
    "tests": lambda text: selection.read_tests({"tests/test_utils/recipes/h100/x.yaml": text}),
    "rows of all files": lambda text: rows.read_all({"tests/test_utils/recipes/h100/x.yaml": text}),
    "matrix": finders.matrix_rows,
    "known sites": every_site,
    "golden values": values.parse,
    "model_config": judged,
    "project": pyproject.PythonProject.parse,
    "Dockerfile": lambda text: dockerfile.parse(f"FROM a AS {text[:50]}\nCOPY --from={text} a b\n", "D").stage(text),
}


@pytest.mark.parametrize("name", READERS)
def test_values_without_measure(name: str) -> None:
    for text in texts_for(name):
        with contextlib.suppress(RunbookError, values.BadGoldenFile):
            READERS[name](text)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=25)
@given(text=st.recursive(
    st.sampled_from(VALUES) | st.text(max_size=20) | st.integers().map(str) | st.floats().map(str),
    lambda inner: st.lists(inner, max_size=4).map(lambda it: f"[{', '.join(it)}]")
    | st.lists(st.tuples(inner, inner), max_size=4).map(lambda it: f"{{{', '.join(f'? {k} : {v}' for k, v in it)}}}"),
    max_leaves=8,
))  # fmt: skip
def test_any_text(name: str, text: str) -> None:
    for whole in (text, f"a: {text}", recipe(text), ci(text), model(text)):
        with contextlib.suppress(RunbookError, values.BadGoldenFile):
            READERS[name](whole)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(10**300, 10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
))  # fmt: skip
@example(10**4000)
@example([10**400, -(10**400), 10**401])
def test_any_json_for_golden_values(value: object) -> None:
    assert ci_rules.typical(value) is None or isinstance(ci_rules.typical(value), float)
    for document in (value, {"lm loss": value}, {"lm loss": {"values": value}}, {"lm loss": {"values": {"1": value}}}):
        with contextlib.suppress(RunbookError, values.BadGoldenFile):
            values.parse(json.dumps(document))


def test_names_with_numbers_without_measure() -> None:
    assert match_artifacts.golden_members(
        [f"results/iteration=1/{BIG}/assets/basic/a/golden_values_dev.json"], gitlab=True
    )
    assert not failed_jobs.ADDRESS.fullmatch(f"https://forge.example/o/r/actions/runs/{BIG}")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (f"a{STEPS}.x", CHAIN), (f"a.{BIG}", "a: [x]"), (f'["a", {BIG}]', "a: [x]"),
        (f'["a", 0x{"f" * 5000}]', "a: []"),
        ("a", "a: " + "[" * 1500 + "]" * 1500),
    ],
    ids=["merge chain", "index", "list with an index", "hexadecimal index", "depth"],
)  # fmt: skip
def test_the_command_reports_it(tmp_path: Path, keys: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    git(tmp_path, "init", "-q", str(tmp_path / "clone"))
    (tmp_path / "clone" / "f").write_text(text)
    (tmp_path / "clone" / FILE).write_text(
        f"version: 1\nimage: nvcr.io/nvidia/pytorch\npins:\n  - path: f\n    find: {{yaml: {keys}}}\n"
    )
    assert main(["check", str(tmp_path / "clone")]) == 2
    shown = "".join(capsys.readouterr())
    assert "Traceback" not in shown
    assert len(shown) < 20_000


def test_a_merge_chain_takes_no_memory_without_measure() -> None:
    """Each of these merges all that the ones before it made."""
    text = "a0: &a0 {x: 1}\n" + "".join(
        f"a{i}: &a{i}\n  <<: *a{i - 1}\n" + "".join(f"  k{i}_{j}: 1\n" for j in range(10)) for i in range(1, 3000)
    )
    with pytest.raises(RunbookError, match="merge keys"):
        every_pair_forward(text)


def every_pair_forward(text: str) -> None:
    parsed = yaml_spans.Text(text)
    for _, value in parsed.documents[0].value:  # type: ignore[union-attr]
        parsed.pairs(value)


def test_strict_json() -> None:
    for text in (BIG, f"1e{BIG}", "[" * 100_000, "NaN"):
        with contextlib.suppress(ValueError, RecursionError):
            limits.parse_json(text.encode())
