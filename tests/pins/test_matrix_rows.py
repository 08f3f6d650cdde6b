import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.pins.finders import matrix_rows as rows


def job(matrix: str, before: str = "") -> str:
    return f"{before}build:\n  parallel:\n    matrix:\n{matrix}"


def spliced(text: str, key: str, new: str) -> str:
    """The text with every value of a key replaced by its span."""
    cells = [cell for row in rows(text) for cell in row.cells[key]]
    assert [cell.problem for cell in cells] == [""] * len(cells)
    for cell in sorted(set(cells), key=lambda cell: cell.start, reverse=True):
        assert text[cell.start : cell.end] == cell.value
        text = text[: cell.start] + new + text[cell.end :]
    return text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: b\n",
        "- a\n- b\n",
        "a:\n  parallel: 5\n",
        "a:\n  parallel: {matrix: 1}\n",
        "a:\n  parallel:\n    matrix:\n",
        "a:\n  parallel: {matrix: [x, [y]]}\n",
        "a:\n  parallel: !reference [.b, parallel]\n",
        "a:\n  parallel:\n    matrix: !reference [.b, rows]\n",
        "parallel:\n  matrix:\n    - A: 1\n",
        "---\n---\n",
        "\ufeff",
        "a: &a\n  <<: *a\n",
    ],
)
def test_a_text_without_a_matrix_has_no_rows(text):
    assert rows(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        job("    - B: old\n"),
        job("    - B: old"),
        job("      - {A: x, B: old, C: y}\n"),
        job("      [{B: old}, {B: 'old'}]\n"),
        job('    - {"B":"old"}\n'),
        job("    - B: 'old' # x\n"),
        job('    - "B" : "old"\r\n      A: x\r\n'),
        job("    - B: old\n").replace("\n", "\r\n"),
        job("    - B: old\n").replace("\n", "\r"),
        job("    - B:   old   \t# c\n\n\n"),
        job("    - B:\told\n"),
        job("    - B:\n        old\n"),
        job("    - B: &b old\n"),
        job("    - B: !!str &b 'old'\n"),
        job("    - B: &b old\n    - B: *b\n"),
        job("    - B: *b\n", ".b: &b old\n"),
        job("    - <<: *r\n      A: x\n", ".r: &r {B: old}\n"),
        job("    - <<: [*r, *s]\n", ".r: &r {B: old}\n.s: &s {B: z}\n"),
        job("    - B: old\n      <<: *r\n", ".r: &r {B: z}\n"),
        job("    - B: [old, old]\n"),
        job("    - ? B\n      : old\n"),
        "\ufeff" + job("    - B: old\n"),
        job("    - B: old\n", "# ä 🚀 \u2028\n'é': \"🚀\"\n"),
        job("    - B: old\n", "a: x\u2028b: y\n"),
        "spec:\n  inputs: {}\n---\n" + job("    - B: old\n"),
        job("    - B: old\n") + "other:\n  parallel: {matrix: [{B: old}]}\n",
    ],
)
def test_a_value_is_found_where_it_stands_in_the_text(text):
    assert spliced(text, "B", "new") == text.replace("old", "new")


@pytest.mark.parametrize(
    "text",
    [
        ".m: &m\n  parallel:\n    matrix: [{B: old}]\none:\n  <<: *m\ntwo:\n  <<: *m\n",
        ".m: {parallel: &p {matrix: [{B: old}]}}\none:\n  parallel: *p\n",
        ".m: {parallel: {matrix: &m [{B: old}]}}\none:\n  parallel:\n    matrix: *m\n",
        ".m: {parallel: {matrix: [&r {B: old}]}}\none:\n  parallel:\n    matrix: [*r]\n",
    ],
)
def test_a_row_that_is_aliased_or_merged_elsewhere_is_one_row(text):
    assert [row.texts("B") for row in rows(text)] == [("old",)]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("|\n        old\n", "block of text"),
        (">-\n        old\n", "block of text"),
        ("old\n        er\n", "cannot be replaced in place"),
        ('"o\\x6cd"\n', "without escapes"),
        ('"old\\\n        er"\n', "without escapes"),
        ("'o''ld'\n", "without escapes"),
        ("{C: old}\n", "'{C: old}'"),
        ("!reference [.a, b]\n", "'!reference [.a, b]'"),
        ("[[old]]\n", "'[old]'"),
        ("&b # comment\n        old\n", "cannot be replaced in place"),
    ],
)
def test_a_value_that_cannot_be_replaced_in_place_has_a_reason(value, part):
    (row,) = rows(job(f"    - B: {value}"))
    (cell,) = row.cells["B"]
    assert part in cell.problem


def test_a_row_has_its_job_line_and_duplicate_keys():
    text = job("    - A: x\n      B: old\n      B: new\n      A: y\n      <<: {C: z}\n", "a: b\r\n\n")
    (row,) = rows(text)
    assert (row.job, row.line, row.duplicates) == ("build", 6, ("A", "B"))
    assert row.texts("C") == ("z",)
    assert row.texts("D") == ()
    assert row.cells["B"][0].line == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [b\n", "it does not parse as YAML: did not find expected ',' or ']' in line 2."),
        ("a: b\n\tc: d\n", "it does not parse as YAML: "),
        ("a: *b\n", "found undefined alias"),
        ("a: \x00\n", "control characters are not allowed"),
        ("a: b\nc: \udce4\n", "line 2 is not UTF-8"),
        ("[" * 5_000, "it does not parse as YAML: "),
        ("a: " + "{a: " * 50_000, "it is nested too deeply"),
        ("- " * 50_000, "it is nested too deeply"),
    ],
)
def test_invalid_yaml_is_refused(text, said):
    with pytest.raises(CannotTell) as caught:
        rows(text)
    assert said in str(caught.value)


def test_merges_that_double_at_every_step_are_read_in_time():
    chain = ".m0: &m0 {B: old}\n" + "".join(f".m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 60))
    assert [row.texts("B") for row in rows(job("    - <<: *m59\n", chain))] == [("old",)]
