"""The rules of ``rules.toml``: each has a line that it matches, one that it does not, a class, and literals."""

import tomllib
from importlib import resources
from pathlib import Path

import pytest
from add_fixture import cut
from labelled_failures import diagnosed

from runbook_lib.failures import patterns
from runbook_lib.failures.patterns import ADVICE, BY_ID, LINES, literals_of

TABLE = tomllib.loads(resources.files("runbook_lib.failures").joinpath("rules.toml").read_text("utf-8"))


def test_a_rule_matches_its_fixture_and_not_the_other() -> None:
    for rule in TABLE["rule"]:
        pattern = BY_ID[rule["id"]]
        assert pattern.regex.search(rule["match"]), rule["id"]
        assert not pattern.regex.search(rule["other"]), rule["id"]
        assert rule["class"] in ADVICE, rule["id"]
        assert rule["source"].startswith("https://"), rule["id"]
        assert pattern in patterns.possible_rules(rule["match"].encode()), rule["id"]
    assert len(BY_ID) == len(LINES)
    for pattern in LINES:
        assert set(pattern.consequence_of) <= {*ADVICE, "*"}


#: What these lines say depends on lines before them, or is said better by another rule.
_NOT_ALONE = {"build-dependency", "compiler-killed", "file-missing", "index-unreachable", "error-line"}


def test_the_line_of_a_rule_decides_the_class_of_a_log() -> None:
    for rule in TABLE["rule"]:
        found = diagnosed("training\n" * 50 + f"{rule['match']}\n")
        assert found.kind == rule["class"] or rule["id"] in _NOT_ALONE, rule["id"]
        assert found.retry == (found.kind in ("flaky infrastructure", "rate limit"))
        assert found.evidence, rule["id"]
        assert found.next, rule["id"]


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("abcd", {b"abcd"}),
        ("abcd|efgh", {b"abcd", b"efgh"}),
        ("[Aa]bcd", {b"Abcd", b"abcd"}),
        ("ab(?:cd)? ef", {b"ab ef", b"abcd ef"}),
        (r"ab\d{1,3}cdef", {b"cdef"}),
        ("(?:abcd)+", {b"abcd"}),
        ("x (?:status|state): 4[01]", {b"x status: 40", b"x status: 41", b"x state: 40", b"x state: 41"}),
    ],
)
def test_literals_of_a_pattern(pattern: str, literals: set[bytes]) -> None:
    assert set(literals_of(pattern)) == literals


@pytest.mark.parametrize("pattern", ["abc", "abcd|e", r"\d{4}", "(?:abcd)?", "(?:abcd)*"])
def test_a_pattern_without_literals_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="literal characters"):
        literals_of(pattern)


def test_the_context_of_a_rule_stands_before_the_error() -> None:
    before = "  x Getting requirements to build wheel did not run successfully."
    for context, kind in (((before,), "dependency"), ((), "import error")):
        pattern = patterns.explain("ModuleNotFoundError: No module named 'torch'", context)
        assert pattern
        assert pattern.kind == kind


def test_a_fixture_is_cut_and_has_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    secret = "ghp_" + "a" * 36
    log.write_text(
        "fine\n" * 500 + f"login {secret} at 10.9.8.7 in /home/somebody/x\nOSError: No space left on device\n"
    )
    entry = cut(log, "full")
    assert entry.startswith("=== full | disk full | - | OSError: No space left on device | -\n")
    assert not [word for word in (secret, "10.9.8.7", "somebody") if word in entry]
    assert entry.count("fine") < 20
