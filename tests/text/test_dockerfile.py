"""Dockerfiles as Docker's reference defines them."""

import pytest

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
    with pytest.raises(CannotTell, match=r"^docker/D has no FROM"):
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
    assert [instruction.text for instruction in instructions(text)] == expected


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


def test_stages_have_arguments_bases_and_sources():
    dockerfile = parse(TWO)
    assert dockerfile.args == (Arg("BASE", "busybox:1", 1), Arg("LATE", "two", 2))
    one, two, last = dockerfile.stages
    assert (one.name, one.base, one.platform, one.line) == ("one", "$BASE", "$BUILDPLATFORM", 3)
    assert one.args == (Arg("A", "1", 4), Arg("B", '"b c"', 4))
    assert (one.uses, one.secrets) == (("tools",), ("TOKEN",))
    assert two.args == (Arg("BASE", None, 7),)
    assert two.uses == ("One", "registry.example/tools:1")
    assert (last.name, last.title, last.base) == ("", "2", "one")
    assert dockerfile.names == ("one", "two")
    assert dockerfile.arguments == {"BASE", "LATE", "A", "B"}


def test_a_build_runs_only_the_stages_it_needs():
    dockerfile = parse(TWO)
    assert [stage.title for stage in dockerfile.needed("one", {})] == ["one"]
    assert [stage.title for stage in dockerfile.needed("", {})] == ["one", "2"]
    assert [stage.title for stage in dockerfile.needed("TWO", {"LATE": ""})] == ["one", "two"]
    assert dockerfile.images("one", {"BASE": "x:2"}) == ("x:2", "tools")
    assert dockerfile.images("two", {"LATE": "y:1"}) == ("busybox:1", "tools", "y:1", "registry.example/tools:1")
    # A stage cannot begin with itself: the name is then that of an image.
    assert dockerfile.images("two", {}) == ("busybox:1", "tools", "two", "registry.example/tools:1")
    assert parse("FROM scratch").images("", {}) == ()


@pytest.mark.parametrize(("target", "index"), [("", 2), ("one", 0), ("ONE", 0), ("1", 1), ("two", 1)])
def test_a_stage_is_found_by_name_or_number(target, index):
    assert parse(TWO).stage(target).index == index


@pytest.mark.parametrize(
    ("text", "target", "named"),
    [
        (TWO, "tow", r"'tow' \(did you mean two\?\).*one, two"),
        (TWO, "3", "'3'.*one, two"),
        ("FROM a", "main", "'main'"),
    ],
)
def test_a_missing_stage_is_named_with_the_known_ones(text, target, named):
    with pytest.raises(CannotTell, match=f"Dockerfile.*{named}"):
        parse(text).stage(target)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("RUN a\nFROM b", "Dockerfile:1: RUN"),
        ("ARG\nFROM b", "Dockerfile:1: ARG"),
        ("FROM", r"Dockerfile:1: expected FROM \[--platform=…\] IMAGE \[AS NAME\]"),
        ("FROM a b", "found FROM a b"),
        ("FROM a to b", "found FROM a to b"),
        ("FROM --pull=yes a", "found FROM --pull=yes a"),
        ("FROM a AS 1st", "Dockerfile:1: '1st'"),
        ("FROM a\nRUN <<EOF\nx", "Dockerfile:2: .*EOF"),
    ],
)
def test_syntax_that_docker_refuses_is_refused(text, named):
    with pytest.raises(CannotTell, match=named):
        parse(text)


@pytest.mark.parametrize(
    ("text", "arguments", "named"),
    [
        ("ARG B\nFROM $B", {}, r"Dockerfile:2: FROM \$B .*B has no default"),
        ("FROM $B\nARG B=1", {}, r"Dockerfile:1: FROM \$B .*ARG B is not declared before the first FROM"),
        ("ARG B=x\nFROM $B", {"B": ""}, r"FROM \$B"),
        ("ARG B\nFROM ${B#x}", {}, r"\$\{B#x\}"),
    ],
)  # fmt: skip
def test_a_base_without_a_value_is_refused(text, arguments, named):
    dockerfile = parse(text)
    with pytest.raises(CannotTell, match=named):
        dockerfile.base(dockerfile.stages[0], arguments)


def test_a_default_may_name_those_before_it():
    dockerfile = parse('ARG T=26.04\nARG B="x:$T"\nARG C=${B}-py3\nFROM $C')
    assert dockerfile.images("", {}) == ("x:26.04-py3",)
    assert dockerfile.images("", {"T": "1"}) == ("x:1-py3",)
    assert dockerfile.images("", {"C": "$T"}) == ("$T",)  # what is given is not replaced again


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


def test_a_required_value_is_missing():
    with pytest.raises(CannotTell, match=r"N needs a value: give it\."):
        expand("${N:?give it}", {})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("# ARG A\nRUN echo ARG B\nENV C=1\n", set()),
        ("FROM x\n  arg A\nARG B=1 C='2'\n", {"A", "B", "C"}),
        ("RUN <<E\nARG A\nE\nARG B\n", {"B"}),
        ('ARG A \\\r\n  B="x y"\n', {"A", "B"}),
    ],
)
def test_the_arguments_of_a_dockerfile_and_those_of_every_build(text, names):
    assert arguments(text) - arguments("") == names
    assert {"HTTPS_PROXY", "no_proxy"} <= arguments(text)


def test_arguments_are_read_from_invalid_files_too():
    assert arguments("RUN x\nARG A=1\nRUN <<E\nARG C\n") - arguments("") == {"A"}
