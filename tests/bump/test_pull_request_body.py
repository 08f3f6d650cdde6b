"""The text of a pull request: what is outside of the markers stays, what comes from outside does no harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.bump.open_pr import describe, fill_in
from runbook_lib.errors import CannotTell
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.plan import PinChange, PinPlan
from runbook_lib.text.markdown import code, compose_body, prose

BEGIN, END = "<!-- base-image-runbook:begin main/dev-26.04-py3 -->", "<!-- base-image-runbook:end -->"
OURS = f"{BEGIN}\nours\n{END}"
BUMP = Bump.parse(tag="26.04-py3")
CHANGE = PinChange("docker/.ngc_version.dev", 1, "whole file", "i:26.02-py3", "i:26.04-py3", "github")

texts = st.text().filter(lambda text: "base-image-runbook:" not in text)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (OURS, OURS),
        (f"before\r\n{OURS.replace(chr(10), chr(13) + chr(10))}\r\nafter", None),
        ("", f"{OURS}\n"),
        (" \n", f"{OURS}\n"),
        ("# Template\n\n- [ ] read\n", f"# Template\n\n- [ ] read\n\n{OURS}\n"),
        (f"before\n{BEGIN}old\n\n{END} after", f"before\n{OURS} after"),
        (f"{BEGIN.replace(' main/dev-26.04-py3', '')}old{END}", OURS),
    ],
)
def test_the_position_of_our_part(text: str, body: str | None) -> None:
    assert compose_body(text, OURS) == (text if body is None else body)


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}{BEGIN}", f"{OURS}{OURS}", f"{BEGIN}{OURS}", f"{OURS}{END}"])
def test_damaged_markers_are_refused(text: str) -> None:
    with pytest.raises(CannotTell, match="damaged or duplicated"):
        compose_body(text, OURS)


@given(before=texts, after=texts, old=texts, new=texts)
def test_text_outside_the_markers_stays(before: str, after: str, old: str, new: str) -> None:
    renewed = compose_body(f"{before}{BEGIN}{old}{END}{after}", f"{BEGIN}{new}{END}")
    assert renewed.startswith(before)
    assert renewed.endswith(after)
    assert compose_body(renewed, f"{BEGIN}{new}{END}") == renewed


@given(st.text())
def test_text_from_outside_does_no_harm(text: str) -> None:
    hostile = f"{text}{END} @team fixes #1 GH-2 https://x.test/o/r/issues/3 |`{text}"
    change = PinChange(hostile, 1, hostile, hostile, hostile, "github")
    made = describe(PinPlan((change,), (), (hostile,), ()), BUMP, digests={hostile: hostile}, record=hostile)
    assert compose_body("", made) == compose_body(compose_body("", made), made)
    outside_code = prose(hostile)
    for linked in ("@team", "#1", "GH-2", "://", "<!--", "-->"):
        assert linked not in outside_code
    row = next(line for line in made.split("\n") if line.startswith("| `"))
    assert row.replace("\\|", "").count("|") == 6


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("a`b", "`` a`b ``"),
        ("a|b\nc", "`a\\|b c`"),
        ("", "` `"),
        ("@x", "`@\u200bx`"),
    ],
)
def test_code(text: str, shown: str) -> None:
    assert code(text) == shown


def test_our_part() -> None:
    plan = PinPlan((CHANGE,), (), ("docker/x:3 fixes NCCL.",), ("amd64",))
    made = describe(plan, BUMP, digests={"amd64": "sha256:1"}, record="o-r/main/dev-26.04-py3")
    assert made.split("\n") == [
        BEGIN,
        "### Base image 26.04-py3 (dev) on `main`",
        "",
        "| file | line | pin | old | new |",
        "| --- | --- | --- | --- | --- |",
        "| `docker/.ngc_version.dev` | `1` | `whole file` | `i:26.02-py3` | `i:26.04-py3` |",
        "",
        "No lts pins are touched: they were read before and after, and are unchanged.",
        "",
        "- `amd64`: `sha256:1`",
        "",
        "Worth checking:",
        "",
        "- docker/x:3 fixes NCCL.",
        "",
        "Record: `o-r/main/dev-26.04-py3`",
        END,
    ]


MINE = "- [ ] I have read every line."


@pytest.mark.parametrize(
    "template",
    [
        "",
        "No heading\n<!-- comment -->\n",
        f"# Heading\n\nText\n{MINE}\n",
        "Linked issue: #12\n",
        "- [ ] Tests pass.\n",
    ],
)
def test_unknown_parts_stay_in_a_bump(template: str) -> None:
    assert fill_in(template, "Bump.") == template


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("# What?\n<!-- One line. -->\nmore <!-- x -->", "# What?\nBump.\nmore <!-- x -->"),
        ("# What?\r\n<!-- One line. -->\r\n", "# What?\r\nBump.\r\n"),
        ("# A\n<!-- a -->\n# B\n<!-- b -->\n", "# A\nBump.\n# B\n<!-- b -->\n"),
        ("Linked issue: <!-- Fixes #12, or: none -->\n", "Linked issue: none\n"),
        (f"# A\n{MINE}\n## B\n <!-- b --> \n", f"# A\n{MINE}\n## B\nBump.\n"),
    ],
)
def test_parts_that_are_the_same_for_every_bump_are_filled_in(template: str, filled: str) -> None:
    assert fill_in(template, "Bump.") == filled
