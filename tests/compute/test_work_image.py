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
        ("nvcr.io/a/b:1-py3", "nvcr.io/a/b:1-py3", "other", "nvcr.io#a/b:1-py3"),
        ("/shared/a-1.sqsh", "/shared/a-1.sqsh", "file", "/shared/a-1.sqsh"),
    ],
)
def test_names_of_an_image(text: str, name: str, kind: str, enroot: str) -> None:
    image = WorkImage.parse(text)
    assert (image.name, image.kind, image.enroot_address) == (name, kind, enroot)


@pytest.mark.parametrize("text", ["megatron-lm:local", "localhost/megatron-lm:local-lts"])
def test_an_image_built_on_this_machine_has_no_address_for_enroot(text: str) -> None:
    image = WorkImage.parse(text)
    assert (image.name, image.kind) == (text, "built")
    with pytest.raises(RunbookError, match="task import"):
        _ = image.enroot_address


@pytest.mark.parametrize(
    "text",
    ["", "nemo:26.13", "nemo:yesterday", "alibaba:25.05-py3", "-v", "a b", "x;rm -rf", "/shared/a,b.sqsh", "UPPER:x"],
)
def test_invalid_names_are_refused(text: str) -> None:
    with pytest.raises(RunbookError):
        WorkImage.parse(text)


def test_enroot_accepts_no_digest() -> None:
    with pytest.raises(RunbookError, match="digest"):
        _ = WorkImage.parse("nvcr.io/nvidia/nemo:26.06@sha256:" + "0" * 64).enroot_address


def test_alibabas_image_has_warnings() -> None:
    image = WorkImage.parse("alibaba:25.05-serverless")
    warnings = " ".join(image.warnings)
    assert all(word in warnings for word in ("PyTorch", "stage3_prefetch", "CHECKPOINT_OPTIMIZATION=true"))


@given(st.text(max_size=60))
def test_an_accepted_name_is_one_word_and_no_option(text: str) -> None:
    try:
        image = WorkImage.parse(text)
    except RunbookError:
        return
    assert not image.name.startswith("-")
    assert shlex.split(shlex.quote(image.name)) == [image.name]
    assert not any(character.isspace() for character in image.name)
