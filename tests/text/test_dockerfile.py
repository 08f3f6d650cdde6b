"""Dockerfiles as Docker's reference defines them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import CannotTell
from runbook_lib.text.dockerfile import Arg, arguments, parse
from runbook_lib.text.dockerfile_syntax import expand, instructions

TWO = """\
ARG BASE=busybox:1
ARG LATE=two
FROM --platform=$BUILDPLATFORM $BASE AS One
ARG A=1 B="b c"
RUN --mount=type=secret,id=TOKEN --mount=type=bind,from=tools,source=/x,target=/x true
FROM ${LATE:-one} as two
ARG BASE
COPY --from=One /a /b
COPY --from=registry.example/tools:1 /t /t
FROM one
COPY --from=0 /a /c
"""


@pytest.mark.parametrize(
    "text",
    ["", "# only a comment\n", "\n\n", "#escape=`\n", "\\\n", " \t\n"],
)
def test_text_without_instructions(text):
    assert list(instructions(text)) == []
    with pytest.raises(CannotTell, match=r"^docker/D has no FROM, so it builds nothing\.$"):
        parse(text, "docker/D")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM a\nRUN x", ["FROM a", "RUN x"]),
        ("RUN a \\\n  b\nRUN c", ["RUN a   b", "RUN c"]),
        ("RUN a \\  \n  b", ["RUN a   b"]),
        ("RUN a \\\n# no\n\n  b", ["RUN a   b"]),
        ("RUN a\\\\\nRUN b", ["RUN a\\\\", "RUN b"]),  # an escaped backslash continues nothing
        ("RUN a \\", ["RUN a "]),
        ("RUN a\r\nRUN \\\r\n b\r\n", ["RUN a", "RUN  b"]),
        ("\ufeffFROM a", ["FROM a"]),
        ("  # a comment\\\nRUN a", ["RUN a"]),
        # The escape character of a directive, which stands first.
        ("#escape=`\nRUN a `\n b\nRUN c\\\nRUN d", ["RUN a  b", "RUN c\\", "RUN d"]),
        ("#syntax=x\n# Escape = `\nRUN a `\n b", ["RUN a  b"]),
        ("# a comment\n#escape=`\nRUN a `\nRUN b", ["RUN a `", "RUN b"]),
        # Here-documents.
        ("RUN <<EOF\nFROM x\nEOF\nRUN b", ["RUN <<EOF", "RUN b"]),
        ("RUN bash -ex <<\"EOF\"\nFROM x\n  EOF\nEOF\nRUN b", ['RUN bash -ex <<"EOF"', "RUN b"]),
        ("RUN <<-EOF\nx\n\tEOF\nRUN b", ["RUN <<-EOF", "RUN b"]),
        ("RUN 3<<'A' <<B\nx\nA\ny\nB\nRUN b", ["RUN 3<<'A' <<B", "RUN b"]),
        ("COPY <<a <<b /x/\n1\na\n2\nb\nRUN b", ["COPY <<a <<b /x/", "RUN b"]),
        ("ONBUILD RUN <<E\nx\nE\nRUN b", ["ONBUILD RUN <<E", "RUN b"]),
        ("RUN --mount=type=cache \\\n bash <<E\nx\nE\nRUN b", ["RUN --mount=type=cache  bash <<E", "RUN b"]),
        # What is none.
        ("RUN cat << EOF\nRUN b", ["RUN cat << EOF", "RUN b"]),
        ("RUN cat <<<word\nRUN b", ["RUN cat <<<word", "RUN b"]),
        ("RUN echo '<<E' \"a <<E\"\nRUN b", ["RUN echo '<<E' \"a <<E\"", "RUN b"]),
        ('RUN ["cat", "<<E"]\nRUN b', ['RUN ["cat", "<<E"]', "RUN b"]),
        ("ENV a <<E\nRUN b", ["ENV a <<E", "RUN b"]),
        ("RUN x$((1<<2))\nRUN b", ["RUN x$((1<<2))", "RUN b"]),
    ],
)  # fmt: skip
def test_instructions_are_read_as_docker_reads_them(text, expected):
    assert [it.text for it in instructions(text)] == expected


def test_an_instruction_knows_its_line_through_comments_and_continuations():
    text = "\n# c\nRUN a \\\n# c\n  last\nRUN <<E\nx\nE\nUSER me\n"
    first, second, third = instructions(text)
    assert (first.line(text), first.line(text, first.text.index("last")), second.line(text), third.line(text)) == (
        3,
        5,
        6,
        9,
    )
    assert (third.keyword, third.rest) == ("USER", "me")


def test_stages_with_their_arguments_bases_and_what_they_use():
    read = parse(TWO)
    assert read.args == (Arg("BASE", "busybox:1", 1), Arg("LATE", "two", 2))
    one, two, last = read.stages
    assert (one.name, one.base, one.platform, one.line) == ("one", "$BASE", "$BUILDPLATFORM", 3)
    assert one.args == (Arg("A", "1", 4), Arg("B", '"b c"', 4))
    assert (one.uses, one.secrets) == (("tools",), ("TOKEN",))
    assert two.args == (Arg("BASE", None, 7),)
    assert two.uses == ("One", "registry.example/tools:1")
    assert (last.name, last.title, last.base) == ("", "2", "one")
    assert read.names == ("one", "two")
    assert read.arguments == {"BASE", "LATE", "A", "B"}


def test_what_a_build_of_a_stage_needs():
    read = parse(TWO)
    assert [it.title for it in read.needed("one", {})] == ["one"]
    assert [it.title for it in read.needed("", {})] == ["one", "2"]
    assert [it.title for it in read.needed("TWO", {"LATE": ""})] == ["one", "two"]
    assert read.images("one", {"BASE": "x:2"}) == ("x:2", "tools")
    assert read.images("two", {"LATE": "y:1"}) == ("busybox:1", "tools", "y:1", "registry.example/tools:1")
    # A stage cannot begin with itself: the name is then that of an image.
    assert read.images("two", {}) == ("busybox:1", "tools", "two", "registry.example/tools:1")
    assert parse("FROM scratch").images("", {}) == ()


@pytest.mark.parametrize(("target", "index"), [("", 2), ("one", 0), ("ONE", 0), ("1", 1), ("two", 1)])
def test_a_stage_is_found_by_name_or_number(target, index):
    assert parse(TWO).stage(target).index == index


@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        (TWO, "tow", r"Dockerfile has no stage 'tow' \(did you mean two\?\); it has one, two\."),
        (TWO, "3", r"Dockerfile has no stage '3'; it has one, two\."),
        ("FROM a", "main", r"Dockerfile has no stage 'main'; none of its stages has a name\."),
    ],
)
def test_a_stage_that_does_not_exist(text, target, says):
    with pytest.raises(CannotTell, match=says):
        parse(text).stage(target)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("RUN a\nFROM b", r"Dockerfile:1: RUN stands before the first FROM; only ARG may\."),
        ("ARG\nFROM b", r"Dockerfile:1: ARG names no argument\."),
        ("FROM", r"Dockerfile:1: expected FROM \[--platform=…\] IMAGE \[AS NAME\], found FROM \."),
        ("FROM a b", "expected FROM .*, found FROM a b"),
        ("FROM a to b", "expected FROM .*, found FROM a to b"),
        ("FROM --pull=yes a", "expected FROM .*, found FROM --pull=yes a"),
        ("FROM a AS 1st", r"Dockerfile:1: '1st' cannot name a stage"),
        ("FROM a\nRUN <<EOF\nx", r"Dockerfile:2: the here-document EOF has no end\."),
    ],
)
def test_what_docker_would_not_take(text, says):
    with pytest.raises(CannotTell, match=says):
        parse(text)


@pytest.mark.parametrize(
    ("text", "given", "says"),
    [
        ("ARG B\nFROM $B", {}, r"Dockerfile:2: FROM \$B names nothing, as B has no default and was not given\."),
        ("FROM $B\nARG B=1", {}, r"Dockerfile:1: FROM \$B .*, as ARG B is not declared before the first FROM\."),
        ("ARG B=x\nFROM $B", {"B": ""}, "names nothing"),
        ("ARG B\nFROM ${B#x}", {}, r"holds a form of variable that is not understood"),
    ],
)  # fmt: skip
def test_a_base_that_cannot_be_told(text, given, says):
    read = parse(text)
    with pytest.raises(CannotTell, match=says):
        read.base(read.stages[0], given)


def test_a_default_may_name_those_before_it():
    read = parse('ARG T=26.04\nARG B="x:$T"\nARG C=${B}-py3\nFROM $C')
    assert read.images("", {}) == ("x:26.04-py3",)
    assert read.images("", {"T": "1"}) == ("x:1-py3",)
    assert read.images("", {"C": "$T"}) == ("$T",)  # what is given is not replaced again


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("", ""), ("plain", "plain"), ("$A", "1"), ("${A}b", "1b"), ("$N", ""), ("a$", "a$"), ("'$A'", "$A"),
        ('"$A b"', "1 b"), (r"\$A", "$A"), (r'"\$A\x"', r"$A\x"), ("${N:-x}", "x"), ("${E:-x}", "x"), ("${E-x}", ""),
        ("${A:+y}", "y"), ("${N:+y}", ""), ("${E+y}", "y"), ("${N:-$A}", "1"),
        ("${A:?no}", "1"), ("a'b'\"c\"", "abc"),
    ],
)  # fmt: skip
def test_words_lose_quotes_and_variables(word, expected):
    assert expand(word, {"A": "1", "E": ""}) == expected


def test_a_value_that_is_asked_for():
    with pytest.raises(CannotTell, match=r"N needs a value: give it\."):
        expand("${N:?give it}", {})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", set()),
        ("# ARG A\nRUN echo ARG B\nENV C=1\n", set()),
        ("FROM x\n  arg A\nARG B=1 C='2'\n", {"A", "B", "C"}),
        ("RUN <<E\nARG A\nE\nARG B\n", {"B"}),
        ('ARG A \\\r\n  B="x y"\n', {"A", "B"}),
    ],
)
def test_the_arguments_of_a_dockerfile_and_those_of_every_build(text, found):
    assert arguments(text) - arguments("") == found
    assert {"HTTPS_PROXY", "no_proxy"} <= arguments(text)


def test_arguments_are_read_from_what_docker_would_not_take_too():
    assert arguments("RUN x\nARG A=1\nRUN <<E\nARG C\n") - arguments("") == {"A"}


PIECES = st.sampled_from(
    ["FROM", "ARG", "RUN", "COPY", "ONBUILD", " ", "\n", "\r\n", "\\", "`", "#", "#escape=`\n", "<<E", "E\n", "\t", "'",
     '"', "$", "${", "}", ":-", "a", "AS", "--from=", "--mount=type=secret", "=", "[", "\ufeff"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60))
def test_any_text_is_read_or_told(text):
    for it in instructions(text):
        assert it.text.strip()
        assert 1 <= it.line(text) <= text.count("\n") + 1
    assert "no_proxy" in arguments(text)
    with contextlib.suppress(CannotTell):
        read = parse(text)
        assert all(stage.base for stage in read.stages)
        read.images("", {})
