"""YAML, JSON and logs that somebody hostile wrote: read within bounds or refused in a sentence, never run."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import ALL, CANARY

from runbook_lib.clients.github import copy_pr_bot
from runbook_lib.clients.github.models import Comment
from runbook_lib.errors import RunbookError
from runbook_lib.golden.ci_rules import ComparisonConfig
from runbook_lib.golden.values import MAX_BYTES, BadGoldenFile, parse
from runbook_lib.pins import pins_file, sites
from runbook_lib.pins.known_sites import MEGATRON_LM
from runbook_lib.recipes import rows
from runbook_lib.recipes.parallelism import Parallelism
from runbook_lib.records.statement import collect, predicate_of
from runbook_lib.runner.parameters import NotebookSource
from runbook_lib.text import untrusted_regex, yaml_spans
from runbook_lib.text.yaml_spans import Text
from runbook_lib.triage.diagnose import conclude
from runbook_lib.triage.failure import FailedJob
from runbook_lib.triage.log_scanner import Scanner

_ROW = "products:\n  - test_case: [{0}]\n    products:\n      - environment: [dev]\n        scope: [mr]\n"
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
MERGES = "m0: &m0 {a: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: 1}}\n" for n in range(1, 200))
YAML: dict[str, Callable[[], str]] = {
    "aliases": lambda: LAUGHS + "products: *a59\nspec: *a59\n",
    "aliases of settings": lambda: LAUGHS + "METRICS: *a59\nTEST_TYPE: *a59\nMODEL_ARGS: {--num-experts: *a59}\n",
    "merged settings": lambda: MERGES + "ENV_VARS: *m199\nMODEL_ARGS:\n  <<: *m199\n",
    "merges": lambda: MERGES + "spec: *m199\nproducts: [*m199]\n",
    "many merge keys": lambda: "a: &a {b: 1}\nspec:\n" + "  <<: *a\n" * 20_000,
    "itself": lambda: "&a\nspec: *a\nproducts: [*a]\n",
    "merges itself": lambda: "spec: &a\n  <<: *a\n  model: x\nproducts: []\n",
    "list in itself": lambda: "products: &a [*a, *a]\n",
    "unknown alias": lambda: "products: *nothing\n",
    "deep lists": lambda: "products: " + "[" * 100_000,
    "deep closed lists": lambda: "products: " + "[" * 15_000 + "]" * 15_000,
    "deep maps": lambda: "{a: " * 50_000,
    "deep blocks": lambda: "".join(f"{' ' * n}a:\n" for n in range(3000)),
    "deep dashes": lambda: "- " * 50_000,
    "deep keys": lambda: "? " * 50_000,
    "huge scalar": lambda: f"spec: {{model: {'x' * 1_000_000}}}\n",
    "huge key": lambda: f"{'x' * 2000}: 1\n",
    "huge block": lambda: "spec:\n  model: |\n" + "    x\n" * 20_000,
    "many documents": lambda: "---\na: 1\n" * 5_000,
    "many keys": lambda: "spec:\n" + "".join(f"  k{n}: {n}\n" for n in range(30_000)),
    "same key": lambda: "spec:\n" + "  model: a\n" * 5_000,
    "python": lambda: f"products: !!python/object/apply:os.system ['touch {CANARY}']\n",
    "python name": lambda: "products: !!python/name:os.system\nspec: !!python/module:os\n",
    "python in a row": lambda: _ROW.format(f"!!python/object/apply:os.system ['touch {CANARY}']"),
    "own tag": lambda: "%TAG ! tag:yaml.org,2002:python/\n---\nproducts: !object/apply:os.system [x]\n",
    "binary": lambda: "spec: !!binary aGFsbG8=\nproducts: !!set {a, b}\n",
    "numbers": lambda: f"spec: {{model: {'9' * 5000}, n: 0x{'f' * 5000}, f: 1e999999, t: 1:2:3, d: 2001-99-99}}\n",
    "sixty": lambda: f"spec: {{model: {'1:' * 3000}1}}\n",
    "tabs": lambda: "products:\n\t- test_case: [a]\n",
    "line ends": lambda: _ROW.format("a").replace("\n", "\r\n"),
    "old line ends": lambda: _ROW.format("a").replace("\n", "\r"),
    "mark of order": lambda: "\ufeff" + _ROW.format("a") + "\ufeff",
    "nul": lambda: "products: a\0b\n",
    "controls": lambda: "products: a\x1b[2J\x07\n",
    "escapes": lambda: 'spec: {model: "\\x00\\u202e\\ud800\\e[2J"}\n',
    "half of a character": lambda: "products: \ud800\n",
    "bytes": lambda: b"products: \xff\xfe\n".decode("utf-8", "surrogateescape"),
    "other planes": lambda: "products: \U0010ffff\ufffe\n",
    "directives": lambda: "%YAML 9.9\n---\na: 1\n" + "%X\n" * 1000,
    "no end of a quote": lambda: "spec: {model: '" + "x\n" * 10_000,
    "no end of a comment": lambda: "#" * 1_000_000,
    "nothing": lambda: "",
    "a list": lambda: "- a\n- b\n",
    "a number": lambda: "1",
    **{f"case {name}": (lambda value=value: _ROW.format(json.dumps(value[:2000]))) for name, value in ALL.items()},
    **{f"raw {name}": (lambda value=value: _ROW.format(value[:2000])) for name, value in ALL.items()},
}  # fmt: skip
JSON: dict[str, Callable[[], str]] = {
    "depth": lambda: "[" * 100_000,
    "closed depth": lambda: "[" * 100_000 + "]" * 100_000,
    "depth of objects": lambda: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "some depth": lambda: '{"a":' * 500 + "1" + "}" * 500,
    "long integer": lambda: '{"loss": {"values": {"1": ' + "9" * 5000 + "}}}",
    "long integer beside": lambda: '{"throughput": ' + "9" * 5000 + "}",
    "long exponent": lambda: '{"loss": {"values": {"1": 1e' + "9" * 400 + "}}}",
    "large integer": lambda: '{"loss": {"values": {"1": ' + "9" * 400 + "}}}",
    "long step": lambda: '{"loss": {"values": {"' + "9" * 5000 + '": 1}}}',
    "step of another script": lambda: '{"loss": {"values": {"\u0661": 1, "1": 2}}}',
    "not a number": lambda: '{"loss": {"values": {"1": NaN, "2": Infinity, "3": -Infinity}}}',
    "not a number in words": lambda: '{"loss": {"values": {"1": "nan", "2": "-inf", "3": " Infinity "}}}',
    "twice": lambda: '{"a": {"values": {}}, "a": {"values": {"1": 1}}}',
    "twice within": lambda: '{"a": {"values": {"1": 1, "1": 2}}}',
    "same step": lambda: '{"a": {"values": {"1": 1, "01": 2}}}',
    "many keys": lambda: json.dumps({f"k{n}": n for n in range(100_000)}),
    "long list": lambda: '{"a": {"values": [' + "1," * 200_000 + "1]}}",
    "interval": lambda: '{"a": {"values": [1, 2], "start_step": 1, "step_interval": ' + "9" * 4000 + "}}",
    "no interval": lambda: '{"a": {"values": [1, 2], "start_step": 0, "step_interval": 0}}',
    "interval of another kind": lambda: '{"a": {"values": [1, 2], "start_step": true, "step_interval": []}}',
    "half of a character": lambda: '{"\\ud800": {"values": {"1": 1}}}',
    "raw half of a character": lambda: '{"\ud800": 1}',
    "nul": lambda: '{"a\\u0000b": 1}\0',
    "mark of order": lambda: '\ufeff{"a": 1}',
    "text of texts": lambda: json.dumps(json.dumps(json.dumps({"a": 1}))),
    "huge": lambda: '{"a": "' + "x" * (65 * 2**20) + '"}',
    "trailing": lambda: '{"a": 1} {"b": 2}',
    "a list": lambda: "[1]",
    "null": lambda: '{"a": null, "b": {"values": null}}',
    "prototype": lambda: '{"__proto__": {"values": {"1": 1}}, "__class__": 1}',
    **{f"key {name}": (lambda value=value: json.dumps({value: {"values": {"1": 1.5}}})) for name, value in ALL.items()},
    **{
        f"value {name}": (lambda value=value: json.dumps({"a": {"generated_text": value}}))
        for name, value in ALL.items()
    },
    **{f"raw {name}": (lambda value=value: value) for name, value in ALL.items()},
}  # fmt: skip
#: Seconds of the processor, of which ordinary files take a hundredth: that something ends, not how fast.
_ENDS = 30.0


def outcome(read: Callable[[], object]) -> str:
    """What came of it: nothing, or a sentence.  Any other error fails the test."""
    begin = time.process_time()
    try:
        read()
        told = ""
    except RunbookError as error:
        told = str(error)
        assert told.strip()
    assert time.process_time() - begin < _ENDS
    return told


def _lines(parsed: Text) -> list[int]:
    return [parsed.line(it) for it in parsed.documents[:100] if it]


@pytest.mark.parametrize("name", YAML)
def test_yaml(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = YAML[name]()
    outcome(lambda: rows.problems(rows.rows("r.yaml", text)))
    outcome(lambda: _lines(Text(text)))
    outcome(lambda: pins_file.parse(text, "o/r"))
    outcome(lambda: ComparisonConfig.parse(text))
    outcome(lambda: Parallelism.parse(text))
    outcome(lambda: sites.read(dict.fromkeys(MEGATRON_LM.pin_paths, text), MEGATRON_LM))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", JSON)
def test_json(name: str, tmp_path: Path) -> None:
    text = JSON[name]()
    for content in (text, text.encode("utf-8", "surrogatepass")):
        told = outcome(lambda content=content: parse(content))
        assert len(told) < 20_000 or name.startswith("key")
    record = {"kind": "warning", "sentence": text} if len(text) < 200_000 else {}
    assert collect([text, json.dumps(record), text]).state == "incomplete"
    with pytest.raises(ValueError):  # noqa: PT011
        predicate_of(text.encode("utf-8", "surrogatepass"))
    (tmp_path / "a.ipynb").write_text(text, "utf-8", errors="surrogatepass")
    told = outcome(lambda: NotebookSource.read(tmp_path / "a.ipynb"))
    assert "could not be read" in told


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


@pytest.mark.parametrize("name", ALL)
def test_comments_of_anybody(name: str) -> None:
    """What commenters write is no command and no answer of the bot's but where it is one, alone on its line."""
    head = "0123456789abcdef0123456789abcdef01234567"
    comments = [Comment(1, "eve", it, "https://x", None) for it in (ALL[name], f"a{ALL[name]}")]
    if "bot" not in name:
        assert copy_pr_bot.commands(comments, head) == ()
    assert copy_pr_bot.refusals(comments, head) == ()
    assert copy_pr_bot.complaint(comments, head) == ""


@pytest.mark.parametrize(
    "pattern",
    ["(?P<image>(a+)+)$", "(?P<image>a{1,999}){1,999}", "(?P<image>" + "a?" * 300 + "a" * 300 + ")", "(?P<image>",
     "(?P<image>x)(?{system('a')})", "a" * 1001, "(" * 500, r"(?P<image>\w*\w*\w*\w*\w*!)", "(?<=a+)b"],
)  # fmt: skip
def test_patterns_of_a_pins_file(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_regex, "LIMIT", 1.0)
    assert outcome(lambda: untrusted_regex.spans(pattern, "a" * 5000 + "b")) or pattern.startswith(
        ("(?P<image>a?", "(?P<image>a{", r"(?P<image>\w")  # these end in time
    )


def test_a_bad_golden_file_is_described_in_a_clause() -> None:
    with pytest.raises(BadGoldenFile, match="nested deeper"):
        parse(JSON["closed depth"]())


BEYOND: dict[str, Callable[[], object]] = {
    "values that aliases make": lambda: yaml_spans.load(LAUGHS),
    "bytes of a golden file": lambda: parse(b" " * (MAX_BYTES + 1)),
    "digits of a golden value": lambda: parse('{"throughput": ' + "9" * 5000 + "}"),
    "depth of a golden file": lambda: parse('{"a":' * 100 + "1" + "}" * 100),
    "characters of a pattern": lambda: untrusted_regex.spans("(?P<image>a)" + "b?" * 1000, "a"),
}


@pytest.mark.parametrize("what", BEYOND)
def test_input_beyond_its_bounds_is_refused(what: str) -> None:
    with pytest.raises((RunbookError, BadGoldenFile)):
        BEYOND[what]()
