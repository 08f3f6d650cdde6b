"""Patterns of Renovate in Python's form."""

import re

import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.pins.renovate.expressions import file_pattern, python_pattern
from runbook_lib.text import untrusted_regex


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a.b", "a\nb axb", ["axb"]),
        ("^a", "b\na", []),  # JavaScript without the flag m: the ends of the text alone
        ("a$", "a\nb", []),
        ("(?m)^a$", "b\na\nb", ["a"]),
        ("(?i)AB", "ab", ["ab"]),
        (r"\d+", "٣4", ["4"]),  # ASCII alone
        (r"\w+", "ä", []),
        (r"(?<x>a)(?P<y>b)", "ab", ["ab"]),
        (r"(?:a|b){2}", "ab", ["ab"]),
        ("a{,2}", "aa a{,2}", ["a{,2}"]),  # Python would repeat
        ('{ "a": [[a-c&&~]+ }', '{ "a": c& }', ['{ "a": c& }']),
        (r"[\]\-x]+", "]-x", ["]-x"]),
        (r"\x41\u0042\/", "AB/", ["AB/"]),
        (r"a(?=b)(?!c)", "ab", ["a"]),
        (r"(?<=a)b", "ab", ["b"]),
        (r"[\s\S]+?b", "a\nb", ["a\nb"]),
        (r'ARG \w+="?\$\{(?<x>[^}]+)', 'ARG A="${B}', ['ARG A="${B']),
    ],
)
def test_matches_are_those_of_renovate(pattern: str, text: str, expected: list[str]) -> None:
    written = python_pattern(pattern)
    untrusted_regex.named_groups(written)
    assert [match[0] for match in re.finditer(written, text, re.MULTILINE)] == expected


@pytest.mark.parametrize(
    "pattern",
    [r"\p{L}", r"(a)\1", r"(?<x>a)\k<x>", r"\Qa\E", r"a\z", r"\cA", r"\0", r"\u{41}", "[]a]", "[^]", "[[:alpha:]]",
     "[a", r"[\B]", "a(?i)b", "(?U)a", "(?P=x)", "(?>a)", "(?#a)", "a\\", r"\é"],
)  # fmt: skip
def test_text_that_reads_differently_is_refused(pattern: str) -> None:
    with pytest.raises(CannotTell):
        python_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("/^Dockerfile$/", ["Dockerfile"]),
        ("/(^|/)Dockerfile$/", ["Dockerfile", "a/Dockerfile"]),
        ("/DOCKERFILE/i", ["Dockerfile", "a/Dockerfile"]),
        ("**/Dockerfile", ["Dockerfile", "a/Dockerfile"]),
        ("Dockerfile", ["Dockerfile"]),
        ("*.yml", ["b.yml", ".c.yml"]),
        ("**/*.{yml,yaml}", ["b.yml", ".c.yml", "a/b/c.yaml"]),
        ("a/**", ["a/Dockerfile", "a/b/c.yaml"]),
        ("a/?/c.yaml", ["a/b/c.yaml"]),
        ("/", []),
        ("+x", []),
    ],
)
def test_files_are_those_of_renovate(pattern: str, paths: list[str]) -> None:
    tree = ["Dockerfile", "a/Dockerfile", "b.yml", ".c.yml", "a/b/c.yaml"]
    chosen = untrusted_regex.matching(file_pattern(pattern), tree)
    assert [path for path in tree if path in chosen] == paths


@pytest.mark.parametrize("pattern", ["@(a|b)", "[ab]", "{a,{b,c}}", "{a", "a}", r"a\*"])
def test_globs_of_other_forms_are_refused(pattern: str) -> None:
    with pytest.raises(CannotTell):
        file_pattern(pattern)
