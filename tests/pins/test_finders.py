import re

import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.pins.finders import (
    BuildArg,
    Counted,
    DockerArg,
    MatrixRows,
    RegexMatches,
    UntrustedRegex,
    WholeFile,
    YamlValue,
)

IMAGE = "registry.example/a/b"


def values(finder, text):
    places = finder.find(text, IMAGE)
    assert [text[place.start : place.end] for place in places] == [place.value for place in places]
    return [(place.line, place.value) for place in places]


@pytest.mark.parametrize("text", ["x:1", "x:1\n", "\n x:1\t\r\n\n"])
def test_a_whole_file_pins_value_has_no_surrounding_space(text):
    assert values(WholeFile(), text) == [(text.count("\n", 0, text.index("x")) + 1, "x:1")]


@pytest.mark.parametrize("text", ["", "\n", "x:1\ny:1\n", "x:1 # comment\n"])
def test_a_whole_file_pin_with_other_content_is_undecided(text):
    with pytest.raises(CannotTell, match="expected one image reference and nothing else, found "):
        WholeFile().find(text, IMAGE)


def test_a_pattern_gives_every_match():
    finder = RegexMatches(re.compile(r"(?m)^image: (?P<image>\S+)"), "image")
    assert values(finder, "") == []
    assert values(finder, "image: x\n# image: y\nimage: z\n") == [(1, "x"), (3, "z")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "FROM $BASE\n",
        "ARG BASE\nFROM $BASE\n",
        'ARG BASE=""\nFROM $BASE\n',
        "# ARG BASE=x\nARG BASE\n",
        "ARG OTHER_BASE=x\nARG BASES=x\nARG base=x\n",
        "FROM a\nARG BASE=x\n",
        "ARG OTHER=1 \\\n# BASE=x\n  MORE=2\n",
    ],
)
def test_a_dockerfile_without_a_default_before_its_first_from_has_no_pin(text):
    assert values(DockerArg("BASE"), text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ARG BASE=x:1\nFROM $BASE\n", 1),
        ("  arg\tBASE=x:1 \t\r\nfrom $BASE\r\n", 1),
        ("ARG BASE\nARG BASE=x:1\nFROM a\nARG BASE=y\n", 2),
        ('# syntax=docker/dockerfile:1\n\nARG BASE="x:1"\nFROM $BASE\n', 3),
        ("ARG A=1 BASE=x:1 C\n", 1),
        ("ARG A=1 \\\n  # comment \\\n\n  BASE=x:1 \\\n  C=2\nFROM $BASE\n", 4),
        ("# escape=`\r\nARG `\r\n  BASE=x:1\r\n", 3),
        ("ARG BASE=x:1 \\\n", 1),
    ],
)
def test_the_default_of_a_build_argument_is_found(text, line):
    assert values(DockerArg("BASE"), text) == [(line, "x:1")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ARG BASE=x:1\nARG BASE=y:1\nFROM $BASE\n",
            "expected at most one default of ARG BASE before FROM, found lines",
        ),
        ("ARG A\nARG BASE=x:${A}\n", "one piece, found 'BASE=x:${A}' in line 2."),
        ("ARG BASE=x:\\\n1\n", "one piece"),
        ('ARG BASE="x:1\n', "one piece"),
        ('ARG BASE="x":1\n', "one piece"),
        ("ARG BASE=x\\:1\n", "one piece"),
        (f"FROM {IMAGE}:1 AS main\n", f"expected FROM to take its image from ARG BASE, found 'FROM {IMAGE}:1 AS main'"),
        (f"ARG A=1\nFROM \\\n  ${{BASE:-{IMAGE}:1}}\n", "in line 2."),
    ],
)
def test_a_dockerfile_of_an_unknown_form_is_undecided(text, said):
    with pytest.raises(CannotTell) as caught:
        DockerArg("BASE").find(text, IMAGE)
    assert said in str(caught.value)


FINDER = MatrixRows(value="NEW", known=frozenset({"NEW", "OLD"}), shapes=({"FILE": ("f",), "IMAGE_TYPE": ()},))


def job(*rows):
    return "build:\n  parallel:\n    matrix:\n" + "".join(f"      - {{{row}}}\n" for row in rows)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: x"], [(4, "x")]),
        (["BASE_IMAGE: x, IMAGE: NEW, FILE: f", "IMAGE: OLD, BASE_IMAGE: y", "IMAGE: NEW"], [(4, "x")]),
        (
            [
                "IMAGE: NEW, FILE: f, BASE_IMAGE: x, PLATFORM: arm64",
                "IMAGE: NEW, FILE: f, BASE_IMAGE: y, PLATFORM: amd64",
            ],
            [(4, "x"), (5, "y")],
        ),
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: x, PLATFORM: [amd64, arm64]"], [(4, "x"), (4, "x")]),
        (["IMAGE: [NEW], FILE: f, BASE_IMAGE: [x]"], [(4, "x")]),
        (
            ["IMAGE: NEW, FILE: f, BASE_IMAGE: x", "IMAGE: UTILITY, BASE_IMAGE: python:3.10", "BASE_IMAGE: y"],
            [(4, "x")],
        ),
    ],
)
def test_rows_are_chosen_by_their_key_and_never_by_their_image(rows, expected):
    assert values(FINDER, job(*rows)) == expected


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "once for each of amd64 and arm64, or once without any PLATFORM; found none."),
        (["IMAGE: NEW"], "found none."),
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: x"] * 2, "found no PLATFORM (line 4), no PLATFORM (line 5)."),
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: x, PLATFORM: amd64"], "found amd64 (line 4)."),
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: x, PLATFORM: amd64"] * 2, "found amd64 (line 4), amd64 (line 5)."),
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: x, PLATFORM: [amd64, arm64, riscv]"], "riscv"),
        (["IMAGE: NEW, FILE: g, BASE_IMAGE: x"], "expected FILE: 'f', IMAGE_TYPE: (absent); found FILE: 'g'"),
        (["IMAGE: NEW, FILE: f, IMAGE_TYPE: new, BASE_IMAGE: x"], "found FILE: 'f', IMAGE_TYPE: 'new'."),
        (["IMAGE: NEW, BASE_IMAGE: x"], "found FILE: (absent), IMAGE_TYPE: (absent)."),
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: x, BASE_IMAGE: y"], "in line 4 (build) has BASE_IMAGE more than once."),
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: [x, y]"], "lists 2 values of BASE_IMAGE; expected one."),
        (["IMAGE: NEW, FILE: f, BASE_IMAGE: {x: y}"], "cannot be used: it is '{x: y}'"),
        (["IMAGE: [NEW, OLD], FILE: f, BASE_IMAGE: x"], "its IMAGE is 'NEW', 'OLD'; expected one of NEW, OLD."),
        (["IMAGE: NEWER, BASE_IMAGE: registry.example/a/b:1"], "its IMAGE is 'NEWER'; expected one of NEW, OLD."),
        (
            ["BASE_IMAGE: other.example/a/b:1"],
            "the row in line 4 (build) sets BASE_IMAGE to 'other.example/a/b:1', but",
        ),
    ],
)
def test_missing_duplicate_and_unknown_rows_are_refused(rows, said):
    with pytest.raises(CannotTell) as caught:
        FINDER.find(job(*rows), IMAGE)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("BASE_IMAGE=$(cat image)\n", []),
        ("BASE_IMAGE=${{ env.IMAGE }}\n", []),
        ("# BASE_IMAGE=x/a:1\n", []),
        ("  run: x # BASE_IMAGE=x/a:1\n", []),
        ("OTHER_BASE_IMAGE=x/a:1\nBASE_IMAGES=x/a:1\nBASE_IMAGE: x/a:1\n", []),
        ("        BASE_IMAGE=x/a:1\n", [(1, "x/a:1")]),
        ("  build-args: BASE_IMAGE=x/a:1\n", [(1, "x/a:1")]),
        ("docker build -f y --build-arg BASE_IMAGE=x/a:1 .\n", [(1, "x/a:1")]),
        ("docker build --build-arg=BASE_IMAGE='x.y:5/a:1' .\n", [(1, "x.y:5/a:1")]),
        ('a\n  --build-arg "BASE_IMAGE=x/a:1@sha256:00" \\\r\n', [(2, "x/a:1@sha256:00")]),
        ("BASE_IMAGE=${{ inputs.base-image || 'x/a:1'}}\n", [(1, "x/a:1")]),
        ("BASE_IMAGE=${{ inputs.image || env.IMAGE || 'x/a:1' }}\nBASE_IMAGE=x/b:2", [(1, "x/a:1"), (2, "x/b:2")]),
    ],
)
def test_a_build_argument_is_found_where_a_build_gets_it(text, found):
    assert values(BuildArg("BASE_IMAGE"), text) == found


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("image", []),
        ("jobs.a.image.x", []),
        ("jobs.list.2", []),
        ("jobs.list.x", []),
        ("jobs.a.image", [(3, "x:1")]),
        ("jobs.b.image", [(3, "x:1")]),
        ("jobs.list.1", [(6, "y:2")]),
        ("jobs.list", [(6, "x:2"), (6, "y:2")]),
        ("jobs.c.image", [(7, "z:3")]),
    ],
)
def test_a_value_of_yaml_is_found_by_its_keys(keys, found):
    text = "jobs:\n  a: &a\n    image: 'x:1'\n  b:\n    <<: *a\n  list: [x:2, \"y:2\"]\n  c: {image: z:3}  # w:4\n"
    assert values(YamlValue(tuple(keys.split("."))), text) == found


@pytest.mark.parametrize(
    ("text", "says"), [("a: |\n  x:1\n", "block of text"), ("a: [b\n", "parse as YAML"), ("a: {b: c}\n", "{b: c}")]
)
def test_a_value_of_yaml_that_cannot_be_replaced_is_refused(text, says):
    with pytest.raises(CannotTell, match=says):
        YamlValue(("a",)).find(text, IMAGE)


def test_another_number_than_declared_is_refused_with_the_lines():
    finder = Counted(UntrustedRegex("^FROM (?P<image>.*)$"), 1, "find: regex", "pins.yaml:4")
    assert values(finder, "FROM a\n# FROM b\n") == [(1, "a")]
    with pytest.raises(CannotTell, match=r"pins\.yaml:4.* 1, 2"):
        finder.find("FROM a\nFROM b\n", IMAGE)
    with pytest.raises(CannotTell, match="found none"):
        finder.find("", IMAGE)
