"""Dockerfiles as Docker's reference defines them."""

import pytest

from runbook_lib.text.dockerfile import arguments, instructions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []), ("# only a comment\n", []), ("#escape=`\n", []), ("\\\n", []), (" \t\n", []),
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
    assert [each.line(text) for each in (first, second, third)] == [3, 6, 9]
    assert first.line(text, first.text.index("last")) == 5
    assert (third.keyword, third.rest) == ("USER", "me")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("# ARG A\nRUN echo ARG B\nENV C=1\n", set()),
        ("FROM x\n  arg A\nARG B=1 C='2'\n", {"A", "B", "C"}),
        ("RUN <<E\nARG A\nE\nARG B\n", {"B"}),
        ('ARG A \\\r\n  B="x y"\n', {"A", "B"}),
        ("RUN x\nARG A=1\nRUN <<E\nARG C\n", {"A"}),  # nothing ends the here-document
    ],
)
def test_the_arguments_of_a_dockerfile_and_those_of_every_build(text, names):
    assert arguments(text) - arguments("") == names
    assert {"HTTPS_PROXY", "no_proxy"} <= arguments(text)
