"""YAML, JSON, Dockerfiles and logs that somebody hostile wrote: read within bounds or refused in a sentence, never run.

Any other error than those that are shown as a sentence fails a test.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hostile import ALL, CANARY

from runbook_lib.compute import tasks, workloads
from runbook_lib.compute.slurm import selection, site
from runbook_lib.decisions import Decision
from runbook_lib.errors import RunbookError
from runbook_lib.failures.diagnose import conclude
from runbook_lib.failures.evidence import FailedJob
from runbook_lib.failures.log_scanner import Scanner
from runbook_lib.golden import ci_rules
from runbook_lib.golden.values import BadGoldenFile, parse
from runbook_lib.pins import finders, pins_file
from runbook_lib.pins.check import check_pins
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.record import run_file
from runbook_lib.text import dockerfile, yaml_spans
from runbook_lib.text.notebook_file import read_parameters
from runbook_lib.text.recipes import quarantine, rows

#: Seconds of the processor, of which ordinary files take a hundredth: that something ends, not how fast.
_ENDS = 15.0
BIG = "9" * 5000
STEPS = 3000
CHAIN = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: *a{i - 1}\n  k{i}: 1\n" for i in range(1, STEPS + 1))
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
MERGES = "m0: &m0 {a: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: 1}}\n" for n in range(1, 200))
#: What may stand in the place of a value of YAML.
VALUES = (
    BIG, f"{BIG}.5", f"1e{BIG}", f"0x{'f' * 5000}", f"0{'7' * 5000}", ":".join(["59"] * 3000),
    f"2020-01-01T00:00:00.{BIG}Z", "9999-99-99", "0001-01-01 00:00:00 +23:59", ".inf", ".nan", "!!int x", "!!float ''",
    "!!timestamp x", "!!binary xx=", "!!set {a, b}", "!!omap [a]", "!!pairs {}", "!!str [1]", "!!map []",
    "!!int {a: 1}", "!!bool [x]", f"!!python/object/apply:os.system ['touch {CANARY}']", "!unknown x", "=", "<<", "~",
    "&a [*a]", "{? [a] : 1}", "{<<: 1}", "{<<: [[]]}", "{<<: {<<: {<<: {}}}}", "{a: 1, a: 2}",
    "[" * 1500 + "]" * 1500, "{a: " * 1500 + "1" + "}" * 1500, '"\\ud800"', '"\\0"', "|\n  x", "x" * 10_000,
)  # fmt: skip
#: Whole files.
YAML: Mapping[str, str] = {
    "aliases": LAUGHS + "products: *a59\nspec: *a59\nMETRICS: *a59\nMODEL_ARGS: {--num-experts: *a59}\n",
    "merges": MERGES + "spec: *m199\nproducts: [*m199]\nENV_VARS: *m199\n",
    "merge chain": CHAIN,
    "merges itself": "spec: &a\n  <<: *a\n  model: x\nproducts: []\n",
    "deep lists": "products: " + "[" * 20_000,
    "deep blocks": "".join(f"{' ' * n}a:\n" for n in range(3000)),
    "huge scalar": f"spec: {{model: {'x' * 300_000}}}\n",
    "many keys": "spec:\n" + "".join(f"  k{n}: {n}\n" for n in range(10_000)),
    "own tag": "%TAG ! tag:yaml.org,2002:python/\n---\nproducts: !object/apply:os.system [x]\n",
    "half of a character": "products: \ud800\n",
    "bytes": b"products: \xff\xfe\n".decode("utf-8", "surrogateescape"),
}
JSON: Mapping[str, str] = {
    "depth": "[" * 100_000,
    "depth of objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "long integer": '{"loss": {"values": {"1": ' + BIG + "}}}",
    "long step": '{"loss": {"values": {"' + BIG + '": 1}}}',
    "not a number": '{"loss": {"values": {"1": NaN, "2": Infinity, "3": "-inf"}}}',
    "twice": '{"a": {"values": {}}, "a": {"values": {"1": 1, "01": 2}}}',
    "many keys": json.dumps({f"k{n}": n for n in range(100_000)}),
    "interval": '{"a": {"values": [1, 2], "start_step": true, "step_interval": ' + "9" * 4000 + "}}",
    "half of a character": '{"\\ud800": {"values": {"1": 1}}}',
    "huge": '{"a": "' + "x" * (65 * 2**20) + '"}',
    "prototype": '{"__proto__": {"values": {"1": 1}}, "__class__": 1}',
}


# -- YAML ------------------------------------------------------------------------------------------------------------


def recipe(value: str) -> str:
    """A recipe with something in the place of each value."""
    return (
        f"type: basic\nspec: {{model: gpt, scope: {value}}}\nproducts:\n  - test_case: [case]\n    products:\n"
        f"      - {{environment: [dev], platforms: [{value}], scope: {value}, nodes: {value}, time_limit: {value}}}\n"
    )


def ci(value: str) -> str:
    """A file of GitLab's."""
    row = "".join(f"        {key}: {value}\n" for key in ("IMAGE", "BASE_IMAGE", "PLATFORM"))
    return f"job:\n  parallel:\n    matrix:\n      -\n{row}"


def in_pins(value: str) -> str:
    pin = f"  - path: f\n    count: {value}\n    find: {{yaml: {value}}}\n"
    return f"version: {value}\nimage: nvcr.io/nvidia/pytorch\npins:\n{pin}"


def model(value: str) -> str:
    """A model_config.yaml."""
    return (
        f"MODE: {value}\nMETRICS: [{value}]\nENV_VARS: {{THROUGHPUT_START_STEP: {value}}}\nTEST_TYPE: {value}\n"
        f"MODEL_ARGS: {{--tensor-model-parallel-size: {value}, --train-iters: {value}, --x: {value}}}\n"
    )


def every_path(text: str) -> None:
    """The finder of YAML, at paths that exist and that do not."""
    for keys in (("a",), (f"a{STEPS}", "x"), ("a", BIG), ("a", "²")):
        with contextlib.suppress(RunbookError):
            finders.YamlValue(keys).find(text, "nvcr.io/nvidia/pytorch")


def every_pair(text: str) -> None:
    parsed = yaml_spans.Text(text)
    for document in parsed.documents:
        for _, value in document.value if isinstance(document, yaml_spans.MappingNode) else ():
            if isinstance(value, yaml_spans.MappingNode):
                parsed.pairs(value)


def quarantined(text: str) -> None:
    rows.problems(rows.rows("tests/test_utils/recipes/x.yaml", text))
    target = rows.target_of(Decision("broken", "gpt/case@dgx_h100", "why"), "dev")
    quarantine.mark("tests/test_utils/recipes/x.yaml", text, target, 1)


#: What reads the text, and where it looks for a value.
READERS: Mapping[str, tuple[Callable[[str], object], Callable[[str], str]]] = {
    "pairs": (every_pair, "a: {{b: {}}}".format),
    "paths": (every_path, "a: {}".format),
    "pins file": (lambda text: pins_file.parse(text, "o/r"), in_pins),
    "site file": (lambda text: site.parse(text, "s"), "a: {}".format),
    "recipe": (quarantined, recipe),
    "workloads": (lambda text: workloads.read("r", text), recipe),
    "tests": (lambda text: selection.read_tests({"tests/test_utils/recipes/h100/x.yaml": text}), recipe),
    "parallelism": (workloads.Parallelism.parse, model),
    "matrix": (finders.matrix_rows, ci),
    "known sites": (
        lambda text: check_pins(dict.fromkeys(MEGATRON_LM.sites.paths, text), MEGATRON_LM.sites), ci,
    ),
    "golden values": (parse, '{{"a": {}}}'.format),
    "model_config": (ci_rules.ComparisonConfig.parse, model),
    "project": (tasks.PythonProject.parse, "[project]\nname = {}".format),
    "Dockerfile": (
        lambda text: list(dockerfile.instructions(f"FROM a AS {text[:50]}\nCOPY --from={text} a b\n")), str,
    ),
}  # fmt: skip


def outcome(read: Callable[[], object]) -> str:
    """What came of it: nothing, or a sentence.  Any other error fails the test."""
    begin, told = time.process_time(), ""
    try:
        read()
    except (RunbookError, BadGoldenFile) as error:
        told = str(error)
        assert told.strip()
    assert time.process_time() - begin < _ENDS
    return told


@pytest.mark.parametrize("name", READERS)
def test_yaml(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read, shape = READERS[name]
    quoted = (json.dumps(value[:2000]) for value in ALL.values())
    for text in (*YAML.values(), *(it for value in (*VALUES, *quoted) for it in (value, shape(value)))):
        outcome(lambda text=text: read(text))  # type: ignore[misc]
    assert not list(tmp_path.iterdir())


# -- JSON ------------------------------------------------------------------------------------------------------------


def documents() -> Iterator[str]:
    yield from JSON.values()
    for value in ALL.values():
        yield from (value, json.dumps({value: {"values": {"1": 1.5}}}), json.dumps({"a": {"generated_text": value}}))


def test_json(tmp_path: Path) -> None:
    for text in documents():
        outcome(lambda text=text: parse(text))  # type: ignore[misc]
        (tmp_path / "run.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        assert "cannot be read" in outcome(lambda: run_file.read(tmp_path))
        (tmp_path / "a.ipynb").write_text(text, "utf-8", errors="surrogatepass")
        assert "could not be read" in outcome(lambda: read_parameters(tmp_path / "a.ipynb"))


# -- logs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_log(name: str) -> None:
    """A log that is nothing but hostile lines, in every place that a log's lines may have."""
    value = ALL[name].encode("utf-8", "surrogatepass")
    frame = b'Traceback (most recent call last):\n  File "' + value + b'", line 1, in ' + value + b"\n"
    pieces = [
        value, frame + b"ValueError: " + value + b"\n" + value, b"ERROR: " + value + b"\n" + value,
        b"E   " + value + b"\nFAILED tests/" + value, b"2026-07-01T12:00:00Z " + value + b"/0 [0]: Error",
        (b"error " + value[:2000]) * 500, b"\r".join([b" iteration 1/ 2 " + value[:500]] * 300), value + b"\xff\x80",
    ]  # fmt: skip
    for piece in pieces:
        scanner = Scanner("a.log", 0)
        for start in range(0, len(piece), 4096):
            scanner.feed(piece[start : start + 4096])
        found = conclude(FailedJob("gpt/a - latest"), [scanner.summary()])
        assert found.cause
        assert len(found.evidence) <= 30
        shown = "".join(found.evidence)
        assert not any(
            (letter < " " and letter != "\t") or "\x7f" <= letter < "\xa0" or "\u202a" <= letter <= "\u202e"
            for letter in shown
        )
