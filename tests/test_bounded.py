import pytest

from runbook_lib import bounded
from runbook_lib.errors import CannotTell


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("x", "", "group"),
        ("(?P<image>a)", "", []),
        ("^(?P<image>a+)$", "aa\nb\na", ["aa", "a"]),
        ("(?P<image>ä|\\ud83d\\ude00)?b", "äb b", ["ä"]),
        ("(?P<image>[^x]+)", "\udce4 \U0001f600", ["\udce4 \U0001f600"]),
    ],
)
def test_spans_of_the_group_are_found(pattern: str, text: str, found: list[str] | str) -> None:
    if isinstance(found, str):
        with pytest.raises(CannotTell, match=found):
            assert bounded.spans(pattern, text + "x")
    else:
        assert [text[start:end] for start, end in bounded.spans(pattern, text)] == found


def test_a_pattern_that_backtracks_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT", 1.0)
    with pytest.raises(CannotTell, match=r"did not end within 1 seconds on this file: it backtracks"):
        bounded.spans("(?P<image>(a+)+)b", "a" * 60)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [("(", "cannot be used: missing ), unterminated"), ("a" * 1001, "has 1001 characters; expected at most 1000")],
)
def test_a_pattern_that_is_none_is_told(pattern: str, says: str) -> None:
    with pytest.raises(CannotTell, match=says.replace(")", r"\)")):
        bounded.spans(pattern, "a")
