import re

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import NGC
from runbook_lib.images.reference import ImageRef

_DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nvcr.io/nvidia/pytorch:26.04-py3", ImageRef("nvcr.io", "nvidia/pytorch", "26.04-py3")),
        ("nvcr.io/nvidia/pytorch", ImageRef("nvcr.io", "nvidia/pytorch")),
        (f"nvcr.io/nvidia/pytorch@{_DIGEST}", ImageRef("nvcr.io", "nvidia/pytorch", None, _DIGEST)),
        (f"nvcr.io/a:b@{_DIGEST}", ImageRef("nvcr.io", "a", "b", _DIGEST)),
        ("localhost/a/b:c", ImageRef("localhost", "a/b", "c")),
        ("127.0.0.1:5001/a__b/c-d.e:F_1", ImageRef("127.0.0.1:5001", "a__b/c-d.e", "F_1")),
        ("Registry.Example:443/a", ImageRef("Registry.Example:443", "a")),
        ("[::1]:5000/a", ImageRef("[::1]:5000", "a")),
        ("nvcr.io/a:" + "x" * 128, ImageRef("nvcr.io", "a", "x" * 128)),
        ("nvcr.io/" + "a" * 247, ImageRef("nvcr.io", "a" * 247)),
    ],
)
def test_a_reference_is_read_into_its_parts_and_printed_again(text, expected):
    assert ImageRef.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "26.04-py3", "python:3.10", "nvidia/pytorch:26.04-py3", "nvcr.io/", "nvcr.io/nvidia/pytorch:",
        "nvcr.io/Nvidia/pytorch:1", "nvcr.io/nvidia/pytorch:26.04-py3\n", " nvcr.io/nvidia/pytorch:1", "nvcr.io//a",
        "nvcr.io/a..b", "nvcr.io/a:b c", "nvcr.io/a:$TAG", "https://nvcr.io/a", "nvcr.io/a:b:c",
        "-nvcr.io/a", "nvcr.io#nvidia/pytorch:1", "nvcr.io/ä",
    ],
)  # fmt: skip
def test_an_incomplete_reference_is_refused(text):
    with pytest.raises(RunbookError, match=f"^{re.escape(repr(text))} is not a full image reference: expected "):
        ImageRef.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nvcr.io/a:" + "x" * 129, "it has 129 characters, but a tag may have at most 128"),
        ("nvcr.io/" + "a" * 248, "more than 255 characters together"),
        ("nvcr.io/a@sha256:12", "its digest has 2 digits, and sha256 has 64"),
        (f"nvcr.io/a:b@{_DIGEST}0", "its digest has 65 digits, and sha256 has 64"),
        (f"nvcr.io/a@sha512:{'0' * 64}", "its digest has 64 digits, and sha512 has 128"),
        ("nvcr.io/a@sha256:" + "0A" * 32, "lowercase"),
        ("nvcr.io/a@md5:" + "0" * 32, "expected registry/repository:tag"),
    ],
)
def test_lengths_and_digests_are_exact(text, said):
    with pytest.raises(RunbookError) as caught:
        ImageRef.parse(text)
    assert said in str(caught.value)


def test_a_new_tag_drops_the_digest_of_the_old_one():
    old = ImageRef.parse(f"nvcr.io/nvidia/pytorch:26.02-py3@{_DIGEST}")
    assert str(old.with_tag(NGC.read("26.04-py3"))) == "nvcr.io/nvidia/pytorch:26.04-py3"
    assert old.name == "nvcr.io/nvidia/pytorch"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("26.4", "a month has two digits. Did you mean '26.04-py3'? Give the complete tag."),
        ("26.1", "Did you mean '26.01-py3' or '26.10-py3'? Give the complete tag."),
        ("26.10", "the variant is missing; did you mean '26.10-py3'?"),
        ("26.13", "expected YY.MM-py3"),
        ("26.00-py3", "expected YY.MM-py3"),
        ("latest", "expected YY.MM-py3, such as 26.04-py3."),
        ("", "expected YY.MM-py3"),
        (" 26.04-PY3", "it has spaces or capitals; did you mean '26.04-py3'?"),
        ("26.04-py3\n", "did you mean '26.04-py3'?"),
        ("nvcr.io/nvidia/pytorch:26.04-py3", "give only the tag"),
        ("26.04-py2", "expected YY.MM-py3"),
        ("٢٦.٠٤-py3", "expected YY.MM-py3"),
    ],
)
def test_a_tag_of_another_format_is_refused_with_the_reason(text, said):
    with pytest.raises(RunbookError) as caught:
        NGC.read(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{text!r} is not a tag of the monthly NGC images: ")
