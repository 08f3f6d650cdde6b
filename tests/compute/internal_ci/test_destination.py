"""The branch on GitLab for a bump's branch, and the project behind a remote: tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.internal_ci import destination
from runbook_lib.errors import Refused

BRANCH = "bump/main/dev-26.04-py3"
TO = f"pull-request/{BRANCH}"


# -- destinations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("branch", [BRANCH, "feature", "a/b.c", "dev-26.04", "mainly", "x" * 200])
def test_a_branch_goes_below_pull_request(branch: str) -> None:
    assert destination.destination(branch) == f"pull-request/{branch}"
    destination.require_replaceable(f"pull-request/{branch}", ["main", "core_*"], "main")


@pytest.mark.parametrize(
    "branch",
    [
        "main", "master", "dev", "release/1.0", "release_notes", "core_r0.16.0", "ci-nightly", "HEAD", "1234",
        "pull-request/1234", "refs/heads/x", "", " ", "-f", "--mirror", "a b", "a\nb", "a..b", "a//b", "a/.b", "a.lock",
        "a.lock/b", "a/", "a.", "a@{0}", "a:b", "+a", "a~1", "a^", "a?", "a*", "a[b", "a\\b", ".a", "/a", "\u202ea",
        "x;id", "$(id)", "`id`", "x" * 300, "a\x00b", "é",
    ],
)  # fmt: skip
def test_a_branch_that_must_not_go_there(branch: str) -> None:
    with pytest.raises(Refused, match=r"pushed|mistaken for"):
        destination.destination(branch)


@pytest.mark.parametrize("protected", [["pull-request/*"], ["*"], [TO], ["main", "*/dev-*"], ["pull-request/bump/**"]])
def test_a_protected_branch_is_not_replaced(protected: list[str]) -> None:
    with pytest.raises(Refused, match="GitLab protects"):
        destination.require_replaceable(TO, protected, "main")


@pytest.mark.parametrize("name", ["main", BRANCH, "pull-request/", "pull-request/12", "pull-request/main"])
def test_no_other_branch_is_ever_replaced(name: str) -> None:
    with pytest.raises(Refused):
        destination.require_replaceable(name, [], "main")
    with pytest.raises(Refused):
        destination.require_replaceable(TO, [], TO)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("", "", True), ("main", "main", True), ("main", "mainly", False), ("*", "", True), ("a*", "a", True),
        ("a*a", "a", False), ("a*b*a", "aba", True), ("*b*b*", "ab", False), ("a?", "ab", False), ("[a]", "a", False),
        ("core_*", "core_r0.1", True), ("*-stable", "x-stable", True), ("a**b", "ab", True), ("Main", "main", False),
    ],
)  # fmt: skip
def test_wildcards(pattern: str, name: str, expected: bool) -> None:
    assert destination.matches(pattern, name) is expected


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_wildcards_agree_with_trying_every_match(pattern: str, name: str) -> None:
    def matches_by_trying(p: str, n: str) -> bool:
        if not p:
            return not n
        if p[0] == "*":
            return matches_by_trying(p[1:], n) or (bool(n) and matches_by_trying(p, n[1:]))
        return bool(n) and p[0] == n[0] and matches_by_trying(p[1:], n[1:])

    assert destination.matches(pattern, name) == matches_by_trying(pattern, name)


def test_a_hostile_wildcard_takes_no_time() -> None:
    assert not destination.matches("a*" * 3000 + "b", "a" * 6000)  # trying every match would take forever
