"""No regular expression of the library takes longer than its text is long, whatever the text.

The one place where the time that something takes is asserted: as a ratio, of a text to one four times as long.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from expressions import FLAGGED, USES, Expression, attacks, exponent, expressions
from regexes import uses

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.pins.finders import BuildArg
from runbook_lib.recipes.targets import Target
from runbook_lib.steps.broken_tests import issue
from runbook_lib.text import markdown, sanitize
from runbook_lib.text.redact import Redactor
from runbook_lib.triage.failed_jobs import DiagnosedJob
from runbook_lib.triage.failure import Failure

EXPRESSIONS = expressions()
#: Patterns that a person wrote, which nothing here can know, and what bounds them.
GIVEN = {
    "text.untrusted_regex.named_groups: pattern": "compiled alone",
    "text.untrusted_regex.spans: import regex": "matches the pattern of a pins file, with a limit",
    "workflow.ci_triggers._full_match: import regex": "matches the filter of a workflow, with a limit",
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_text_is_too_long_for_a_pattern(name: str) -> None:
    it = EXPRESSIONS[name]
    for attack in attacks(it.pattern):
        grows = exponent(it, attack, 8_000)
        assert grows <= FLAGGED, f"{it.place}, {it.pattern.pattern!r}: n to the power {grows:.1f} for {attack!r}"


def test_expressions_are_complete() -> None:
    assert len(EXPRESSIONS) > 400


def test_every_expression_is_known() -> None:
    assert {use.key: use.problem for use in USES if use.problem}.keys() == GIVEN.keys()
    assert all(use.patterns for use in USES if use.key not in GIVEN)


@pytest.mark.parametrize(
    ("source", "patterns"),
    [
        ("import re\nA = re.compile('a+')", ["a+"]),
        ("import re\nA = {re.compile(k): 1 for k in ('a', 'b')}", ["a", "b"]),
        ("import re\nclass A:\n    B = (re.compile('a'), [re.compile('b')])", ["a", "b"]),
        ("import re\nB = 'x'\ndef f(t):\n    return re.sub(rf'{B}+', '', t)", ["x+"]),
        ("import re\nB = ('a', 'b')\ndef f(t):\n    return re.match('|'.join(B), t)", ["a|b"]),
        ("import re\ndef f(t, p=re.compile('a')):\n    return p.match(t)", ["a"]),
        ("import re\ndef f(t):\n    return (lambda: re.split('a', t))()", ["a"]),
        ("import re\nF = '{}+'\ndef f(t):\n    return re.findall(F.format('b'), t)", ["b+"]),
        ("import re\ndef f(t):\n    return re.fullmatch(pattern='a', string=t)", ["a"]),
        ("def f(frame):\n    return frame.x.str.contains('a+')", ["a+"]),
        ("def f(frame):\n    return frame.replace('b', '', regex=True)", ["b"]),
        ("def f(frame):\n    return frame.x.str.replace('b', '', regex=False)", []),
        ("import re\ndef f(t):\n    return re.escape(t)", []),
    ],
)
def test_expressions_are_found(source: str, patterns: list[str], tmp_path: Path) -> None:
    found = _uses_of(source, tmp_path)
    assert [use.problem for use in found if use.problem] == []
    assert [text for use in found for text, _ in use.patterns] == patterns


@pytest.mark.parametrize(
    "source",
    [
        "import re\ndef f(t):\n    p = '(a+)+$'\n    return re.match(p, t)",
        "import re\ndef f(t, p):\n    return re.compile(p)",
        "import re\ndef f(t, p):\n    return re.sub(f'{p}+', '', t)",
        "import re\ndef f(t):\n    return [re.search(p, t) for p in ('a', 'b')]",
        "import re\ndef f(t, *p):\n    return re.search(*p)",
        "import re\ndef f(t, **p):\n    return re.search(**p)",
        "import re as r\nA = r.compile('a')",
        "import sre_compile\ndef f(t):\n    return sre_compile.compile(t)",
        "from re import compile as c\nA = c('a')",
        "import re\ndef f(t):\n    return map(re.compile, t)",
        "import re\ndef f(t):\n    return getattr(re, 'compile')(t)",
        "import re\nr = re\nA = r.compile('a')",
        "import re\ndef f(t):\n    return re.Scanner(t)",
        "import importlib\nA = importlib.import_module('re').compile('a')",
        "def f(frame, p):\n    return frame.x.str.extract(p)",
        "def f(frame, p):\n    return frame.filter(regex=p)",
    ],
)
def test_an_unknown_state_is_a_problem(source: str, tmp_path: Path) -> None:
    assert any(use.problem for use in _uses_of(source, tmp_path))


def _uses_of(source: str, folder: Path) -> Any:
    package = folder / "a_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a_module.py").write_text(source)
    return uses(package)


BUMP = Bump.parse(tag="26.04-py3")
_BROKEN = Target("case", "platform", "dev", "model", "reason")
_REDACTOR = Redactor({"A_TOKEN": "a-value-that-is-known"})


def _issue(text: str) -> object:
    failure = Failure(text, "", "hang", text, (text, text))
    return issue.body(
        _BROKEN, BUMP, DiagnosedJob(failure), recipe="r.yaml", scopes=(), old=text, new=text, run=text, pull=text
    )


def _judged(text: str) -> object:
    """What step 05 does with the name of a metric."""
    return [_REDACTOR.data({text: [text]}), markdown.code(text), markdown.prose(text), sanitize.visible(text)]


#: All that is done with a text from outside, as one.
WHOLE: dict[str, Callable[[str], object]] = {
    "redact": _REDACTOR.text,
    "clean_html": sanitize.clean_html,
    "visible": sanitize.visible,
    "inert": sanitize.inert,
    "issue": _issue,
    "metric": _judged,
    "note": lambda text: display.note(text).html,
    "diff": lambda text: display.diff(f"+{text}").html,
    "build argument": lambda text: BuildArg("NAME").find(text, "image"),
}
REPEATED = [
    "a", " ", "\n", "/", "@", "-", "`", "*", "<", "<a ", "<!--", "<!-- >", "<![CDATA[", "<![if ]>", "</a ",
    "<a b='", "<script>", "</", "<a>", "<?", "&", "\x1b[31m", "\x1b]", "\u200b", "eyJ",
    "eyJaaaaaaaaaaa.",
    "-----BEGIN PRIVATE KEY-----", "-----END ", "password=", '"token": "a', "curl -u a", "Cookie: a=", "://a",
    "postgres://",
    "AKIA", "NAME=${{", "NAME=${{||", "M" * 24 + ".", "A" * 64 + "\n", "aGk6", "sig=", "/ok to ", "[skip",
    "http://", "0", "\\",
]  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_no_text_is_too_long_for_a_function(name: str) -> None:
    WHOLE[name]("warm up")
    for part in REPEATED:
        grows = _growth(WHOLE[name], part)
        assert grows < 10, f"{name}: four times the text takes {grows:.1f} times as long, {part!r} repeated"


def _growth(function: Callable[[str], object], part: str, size: int = 2_000) -> float:
    """How many times as long a text takes that is four times as long: the least of some, as others only add to it."""
    least = float("inf")
    for _ in range(4):
        few, many = (_seconds(function, (part * (length // len(part) + 1))[:length]) for length in (size, 4 * size))
        least = min(least, max(many, 0.01) / max(few, 0.0025))
        if least < 7:
            break
    return least


def _seconds(function: Callable[[str], object], text: str) -> float:
    begin = time.thread_time()
    function(text)
    return time.thread_time() - begin


@pytest.mark.parametrize(
    ("pattern", "how"),
    [
        (r"(a+)+$", "match"), (r"(a|a)*b", "match"), (r"\s+$", "search"), (r"x*y", "search"), (r".*a.*b", "search"),
        (r"(\w+\s?)*!", "fullmatch"), (r"<[^>]*>", "search"),
    ],
)  # fmt: skip
def test_slow_patterns_are_recognized(pattern: str, how: str) -> None:
    it = Expression("here", re.compile(pattern), how)
    assert any(exponent(it, attack) > FLAGGED for attack in attacks(it.pattern))


@pytest.mark.parametrize("pattern", ["a", r"\ba{2,9}\b", r"(?<!\w)\w+=", r"a[^b]{0,300}b", r"\d+(?:\.\d+)*"])
def test_quick_patterns_are_left_alone(pattern: str) -> None:
    it = Expression("here", re.compile(pattern), "match")
    assert all(exponent(it, attack) <= FLAGGED for attack in attacks(it.pattern))
