"""No regular expression of the library takes longer than its text is long, whatever the text.

The one place where the time that something takes is asserted: by how it grows with the text.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from expressions import FLAGGED, ROOT, attacks, exponent, expressions

from runbook_lib import display
from runbook_lib.failures import tracking_issue as issue
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.finders import BuildArg
from runbook_lib.text import markdown, sanitize
from runbook_lib.text.recipes.rows import Target
from runbook_lib.text.redact import Redactor

PACKAGES = sorted(it.stem for it in ROOT.iterdir() if it.suffix == ".py" or (it / "__init__.py").exists())


@pytest.mark.parametrize("package", PACKAGES)
def test_no_text_is_too_long_for_a_pattern(package: str) -> None:
    slow = [
        f"{it.place}, {it.pattern.pattern!r}: {attack!r} repeated"
        for it in expressions(package) for attack in attacks(it.pattern) if exponent(it.use, attack) > FLAGGED
    ]  # fmt: skip
    assert slow == []


def test_every_expression_is_known() -> None:
    assert sum(len(expressions(package)) for package in PACKAGES) > 450
    others = re.compile(r"(?m)^ *(?:from re import|import re as)|\.str\.(?:contains|extract|match|replace)\(")
    assert [it.name for it in ROOT.rglob("*.py") if others.search(it.read_text())] == []


BUMP = Bump.parse(tag="26.04-py3")
_BROKEN = Target("case", "platform", "dev", "model", "reason")
_REDACTOR = Redactor({"A_TOKEN": "a-value-that-is-known"})


def _issue(text: str) -> object:
    job = DiagnosedJob(Failure(text, "", "hang", text, (text, text)))
    state = SimpleNamespace(pull=SimpleNamespace(url=text))
    run: Any = SimpleNamespace(bump=BUMP, pull_request=state, url=text, tested=text, source=None)
    forge: Any = SimpleNamespace(last_author=lambda *_: "")
    return issue.of_failure(forge, _BROKEN, job, run, None, 0, Image=text)


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
    "<a b='", "<script>", "</", "<a>", "<?", "&", "\x1b[31m", "\x1b]", "\u200b", "eyJ", "eyJaaaaaaaaaaa.", "0", "[skip",
    "-----BEGIN PRIVATE KEY-----", "-----END ", "password=", '"token": "a', "curl -u a", "Cookie: a=", "://a", "http://",
    "postgres://", "AKIA", "NAME=${{", "NAME=${{||", "M" * 24 + ".", "A" * 64 + "\n", "aGk6", "sig=", "/ok to ", "\\",
]  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_no_text_is_too_long_for_a_function(name: str) -> None:
    WHOLE[name]("warm up")
    for part in REPEATED:
        assert exponent(WHOLE[name], ("", part, "")) < FLAGGED, part
