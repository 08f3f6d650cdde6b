"""The image to work in: its names, and its address for Enroot."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.work_image import WorkImage
from runbook_lib.errors import RunbookError


@pytest.mark.parametrize(
    ("text", "name", "kind", "enroot"),
    [
        ("nemo:26.06", "nvcr.io/nvidia/nemo:26.06", "other", "nvcr.io#nvidia/nemo:26.06"),
        ("nvcr.io/nvidia/nemo:26.08.rc5", "nvcr.io/nvidia/nemo:26.08.rc5", "other", "nvcr.io#nvidia/nemo:26.08.rc5"),
        ("/shared/a-1.sqsh", "/shared/a-1.sqsh", "file", "/shared/a-1.sqsh"),
        ("megatron-lm:local", "megatron-lm:local", "built", "task import"),
        ("localhost/megatron-lm:local-lts", "localhost/megatron-lm:local-lts", "built", "task import"),
        ("nvcr.io/a/b@sha256:" + "0" * 64, "nvcr.io/a/b@sha256:" + "0" * 64, "other", "does not accept digests"),
    ],
)
def test_names_of_an_image(text: str, name: str, kind: str, enroot: str) -> None:
    image = WorkImage.parse(text)
    assert (image.name, image.kind) == (name, kind)
    if " " in enroot:
        with pytest.raises(RunbookError, match=enroot):
            _ = image.enroot_address
    else:
        assert image.enroot_address == enroot


@pytest.mark.parametrize(
    "text",
    ["", "nemo:26.13", "nemo:yesterday", "alibaba:25.05-py3", "-v", "a b", "x;rm -rf", "/shared/a,b.sqsh", "UPPER:x"],
)
def test_invalid_names_are_refused(text: str) -> None:
    with pytest.raises(RunbookError):
        WorkImage.parse(text)


@given(st.text(max_size=60))
def test_an_accepted_name_is_one_word_and_no_option(text: str) -> None:
    try:
        image = WorkImage.parse(text)
    except RunbookError:
        return
    assert not image.name.startswith("-")
    assert shlex.split(image.name) == [image.name]
