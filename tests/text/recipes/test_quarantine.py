"""Tests put out of CI's way and back: only scopes and one comment change, and the bytes come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import Refused
from runbook_lib.text.recipes.quarantine import gating, mark, quarantined_rows, unmark
from runbook_lib.text.recipes.rows import FOLDER, Target, rows

HEAD = "spec:\n  model: gpt\nproducts:\n  - test_case: [x]\n    products:\n"
ROW = "      - environment: [dev]\n        scope: [mr, mr-github]\n        platforms: [dgx_h100]\n"
X = Target("x", "dgx_h100", "dev", "gpt", "it hangs")


def row(scope: str, *, environment: str = "dev", platforms: str = "dgx_h100") -> str:
    return f"{HEAD}      - environment: [{environment}]\n        scope: {scope}\n        platforms: [{platforms}]\n"


@pytest.mark.parametrize(
    "text",
    [
        "", HEAD, row("[deprecated]"),
        row("[mr]", environment="lts"), row("[mr]", platforms="dgx_gb200"), row("[mr]").replace("[x]", "[x_y]"),
        row("[mr]").replace("gpt", "moe"), f"{HEAD}#{ROW}",
    ],
)  # fmt: skip
def test_other_tests_stay(text: str) -> None:
    assert mark("r.yaml", text, X, 7) == text
    assert unmark("r.yaml", text, [X]) == text


def tracked(text: str, review: str = "") -> str:
    """The text with the comment on its first row's quarantine."""
    return text.replace("        scope", f"        # Broken: it hangs — see issue #7{review}.\n        scope", 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HEAD + ROW, tracked(row("[mr-broken, mr-github-broken]  # was: [mr, mr-github]"))),
        (row("mr"), tracked(row("mr-broken  # was: [mr]"))),
        (row("[mr, flaky]  # a"), tracked(row("[mr-broken, flaky]  # a  # was: [mr, flaky]"))),
        (row("\n          - 'mr'\n          - nightly"),
         tracked(row("\n          - 'mr-broken'\n          - nightly-broken  # was: [mr, nightly]"))),
        (f"{HEAD}      - scope: [weekly]\n        environment: [dev]\n        platforms: [dgx_h100]",
         f"{HEAD}      # Broken: it hangs — see issue #7.\n      - scope: [weekly-broken]  # was: [weekly]\n"
         "        environment: [dev]\n        platforms: [dgx_h100]"),
        (row("[mr, mr-github-broken]"), tracked(row("[mr-broken, mr-github-broken]  # was: [mr, mr-github-broken]"))),
        (row("[mr]").replace("\n", "\r\n"), tracked(row("[mr-broken]  # was: [mr]")).replace("\n", "\r\n")),
        (f"{HEAD}      - {{environment: [dev], scope: [mr], platforms: [dgx_h100]}}",
         f"{HEAD}      # Broken: it hangs — see issue #7.\n"
         "      - {environment: [dev], scope: [mr-broken], platforms: [dgx_h100]}  # was: [mr]"),
    ],
)  # fmt: skip
def test_mark_and_unmark_are_inverse(before: str, after: str) -> None:
    assert mark("r.yaml", before, X, 7) == after
    assert mark("r.yaml", after, X, 8) == after
    assert unmark("r.yaml", after, [X]) == before


@pytest.mark.parametrize(
    ("off", "on"),
    [
        (row("[mr-github-temp-disabled]"), row("[mr-github]")),
        (row("[mr-broken, nightly-disabled]  # slow"), row("[mr, nightly]  # slow")),
        (row("[mr-broken]").replace("        scope", "        # Broken: see #1\n        scope"), row("[mr]")),
        (row("[mr-broken]").replace("      - env", "      # Disabled (flaky): fails\n      # at times.\n      - env"),
         row("[mr]")),
        (row("[mr-broken]").replace("        scope", "        # The long one.\n        scope"),
         row("[mr]").replace("        scope", "        # The long one.\n        scope")),
        (row("[mr-broken, L2-broken]  # was: [mr, L2-broken]"), row("[mr, L2-broken]")),
    ],
)  # fmt: skip
def test_what_people_switched_off_comes_back_without_their_reason(off: str, on: str) -> None:
    assert unmark("r.yaml", off, [X]) == on


def test_a_row_that_people_switched_off_gets_an_issue_and_returns_without_it() -> None:
    marked = mark("r.yaml", row("[mr-broken]"), X, 7, "2026-03-01")
    assert marked == tracked(row("[mr-broken]"), ", review by 2026-03-01")
    assert unmark("r.yaml", marked, [X]) == row("[mr]")


def test_flaky_does_not_say_what_it_replaced() -> None:
    with pytest.raises(Refused, match=r"-L 7,7:r\.yaml"):
        unmark("r.yaml", row("[flaky]"), [X])


@pytest.mark.parametrize(
    "body",
    [
        "[{environment: [dev], platforms: [dgx_h100]}]",
        "[{X, scope: &s [mr]}, {scope: *s}]", "\n      - {X, scope: [&m mr]}\n      - {scope: [*m]}",
        "\n      - &r {X, scope: [mr]}\n      - *r", "[{X, scope: [mr]}, {X, scope: [nightly]}]",
        '[{X, scope: ["m\\x72"]}]',
    ],
)  # fmt: skip
@pytest.mark.parametrize("issue", [0, 7])
def test_a_row_that_cannot_be_edited_in_place_is_refused(body: str, issue: int) -> None:
    products = body.replace("X", "environment: [dev], platforms: [dgx_h100]")
    text = f"spec: {{model: gpt, scope: [mr]}}\nproducts:\n  - test_case: [x]\n    products: {products}\n"
    with pytest.raises(Refused, match="by hand"):
        mark("r.yaml", text, X, issue)


def test_a_reason_stays_in_its_comment() -> None:
    told = Target("x", "dgx_h100", "dev", "gpt", "it hangs:\n- [ é\u2028 — \tsince Monday")
    marked = mark("r.yaml", row("[mr]"), told, 7)
    assert "# Broken: it hangs: - [ é — since Monday — see issue #7.\n" in marked
    assert unmark("r.yaml", marked, [X]) == row("[mr]")
    with pytest.raises(Refused, match=r"it rings \\x07"):
        mark("r.yaml", row("[mr]"), Target("x", "dgx_h100", "dev", "gpt", "it rings \x07"), 7)


def test_which_scopes_gate() -> None:
    assert all(map(gating, ["nightly", "mr", "mr-github-slim", "L0-smoke", "weekly", "unit-tests"]))
    assert not any(map(gating, ["", "deprecated", "flaky", "cleanup", "mr-github-temp-disabled", "mr-broken"]))


scopes = st.lists(st.sampled_from(["mr", "mr-github", "nightly", "flaky", "mr-broken", "L2"]), min_size=1, unique=True)


@given(
    st.lists(scopes, min_size=1, max_size=3).filter(lambda rows: any(gating(name) for names in rows for name in names)),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_any_row_comes_back_byte_for_byte(lists: list[list[str]], block: bool, newline: str, final: bool) -> None:
    text = HEAD
    for names in lists:
        scope = "".join(f"\n          - {name}" for name in names) if block else f"[{', '.join(names)}]"
        text += f"      - environment: [dev]\n        platforms: [dgx_h100]\n        scope: {scope}\n"
    text = (text if final else text.rstrip("\n")).replace("\n", newline)
    marked = mark("r.yaml", text, X, 7)
    after = rows("r.yaml", marked)
    assert [row.case for row in after] == ["x"] * len(lists)
    assert not any(gating(it.value) for row in after for it in row.scopes)
    assert unmark("r.yaml", marked, [X]) == text


def quarantined(body: str) -> list[tuple[str, int | None]]:
    text = f"spec: {{model: gpt}}\nproducts:\n{body}"
    found, odd = quarantined_rows({f"{FOLDER}/h100/gpt.yaml": text}, "owner/name")
    assert odd == ()
    return [(it.test, issue) for it, issue in found.items()]


def entry(scope: str, *, above: str = "", before: str = "", case: str = "a") -> str:
    return (
        f"{before}  - test_case: [{case}]\n    products:\n      - environment: [dev]\n{above}        scope: {scope}\n"
        "        platforms: [dgx_h100]\n"
    )


COMMENTED_OUT = "  # - test_case: [a]\n  #   products:\n  #     - scope: [mr-broken]\n"


@pytest.mark.parametrize("body", ["", entry("[mr]"), entry("[mr, flaky]"), entry("[deprecated]"), COMMENTED_OUT])
def test_tests_that_ci_runs_are_not_listed(body: str) -> None:
    assert quarantined(body) == []


@pytest.mark.parametrize(
    ("body", "issue"),
    [
        (entry("[flaky]"), None),
        (entry("[mr-github-temp-disabled]"), None),
        (entry("[mr-broken] # hangs"), None), (entry("[mr-broken] # a#1"), None),
        (entry("[mr-broken] # https://github.com/other/repo/issues/7"), None),
        (entry("[mr-broken] # hangs: #12"), 12),
        (entry("[mr-broken]", above="        # Broken: it hangs — see issue #12.\n"), 12),
        (entry("[mr-broken]", above="        # Broken: it hangs\n        # #12\n"), 12),
        (entry("[mr-broken] # see the WAR to #12"), None), (entry("[mr-broken] # hangs since PR #12"), None),
        (entry("[mr-broken] # see owner/name#12"), 12),
        (entry("[mr-broken] # see other/name#12"), None),
        (entry("[mr-broken] # https://github.com/owner/name/issues/12"), 12),
        (entry("[mr-broken]", before="  # Broken, see #12\n"), 12),
        (entry("[mr-broken]", before="  #######\n  # - test_case: [x]\n  #   products: # hang: #12\n"), None),
        (entry("[mr]", case="b").rstrip("\n") + " # is fine: #12\n" + entry("[mr-broken]"), None),
        (entry("\n          - mr-broken # hangs: #12"), 12),
        (entry("[mr-broken]").rstrip("\n") + " # hang: #12\n", 12),
        (entry("[mr-broken]") + entry("[mr]", case="b", before="  # hang: #12\n"), None),
        (entry("[mr-broken]") + "        # - environment: [lts] # hang: #12\n", None),
    ],
)  # fmt: skip
def test_the_issue_that_a_comment_names(body: str, issue: int | None) -> None:
    assert [found for test, found in quarantined(body) if test == "gpt/a"] == [issue]


def test_an_unreadable_recipe_is_reported() -> None:
    found, odd = quarantined_rows({f"{FOLDER}/h100/gpt.yaml": "a: [", "other.yaml": None}, "owner/name")
    assert found == {}
    assert f"{FOLDER}/h100/gpt.yaml" in odd[0]
