"""The families of tags: real ones of each, what is refused, and that printing, reading and order agree."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import (
    ALIBABA,
    COREWEAVE,
    CUDA,
    FAMILIES,
    NEMO,
    NGC,
    NUMBERED,
    OTHER,
    built_on,
    family_of,
    named_image,
    vpc_address,
)
from runbook_lib.images.reference import ImageRef

#: Tags as the publishers' documents, workflows and their history write them.
REAL = {
    NGC: ["24.01-py3", "25.04-py3", "25.09-py3", "26.06-py3", "26.04-py3-igpu"],
    NEMO: [
        "nightly", "dev", "25.09.nemotron_nano_v2_vl", "25.09", "25.09.00", "25.11.nemotron_3_nano", "25.11",
        "26.02.nemotron_3_super", "26.02", "26.04", "26.04.00", "26.06", "26.06.01", "26.08.rc2", "26.08.rc5", "26.08",
    ],
    COREWEAVE: [
        "afecfe9-base-cuda11.8.0-torch2.0.0-vision0.15.1",
        "afecfe9-nccl-cuda11.8.0-nccl2.16.2-1-torch2.0.0-vision0.15.1",
        "es-22.04-58a49a2-base-cuda12.1.1-torch2.1.2-vision0.16.2-audio2.1.2-flash_attn2.4.2",
        "696032c-base-cuda12.2.2-ubuntu22.04-torch2.3.0-vision0.18.0-audio2.3.0",
        "es-cuda-12.9.1-74755e9-nccl-cuda12.9.1-ubuntu22.04-nccl2.27.5-1-torch2.7.1-vision0.22.1-audio2.7.1-abi1",
        "8c5de3e-nccl-cuda13.2.1-ubuntu24.04-nccl2.30.4-1-torch2.13.0-vision0.28.0-audio2.11.0-abi1",
        "1234567-base-cuda12.0.1-torch2.0.0-rc1-vision0.15.1-rc1",
        "1234567-base-cuda13.2.1-ubuntu24.04-torch2.13.0-abi1",
        "8552fbc-nccl-25080505-cuda12.9.1-ubuntu22.04-nccl2.27.6-1-torch2.9.0a0-vision0.24.0a0-audio2.8.0a0",
        "base-25080505-cuda12.9.1-ubuntu22.04-torch2.9.0a0-vision0.24.0a0-audio2.8.0a0",
    ],
    ALIBABA: ["25.05", "25.05-serverless"],
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.parse.__name__)
def test_every_real_tag_is_read_printed_and_sorted(family):
    texts = REAL[family]
    assert [str(family.read(text)) for text in texts] == texts
    assert sorted(map(str, family.listed(texts))) == sorted(texts)


@pytest.mark.parametrize(
    ("family", "texts"),
    [
        (NGC, ["", "26.04", "25.05-serverless", REAL[COREWEAVE][0], "2" * 129]),
        (
            NEMO,
            ["", "2" * 129, " 26.06", "26.13", "26.1", "26.06.", "26.06-py3", "v26.06", "26.04.rc05", "26.04.rc"],
        ),
        (COREWEAVE, ["", "latest", "26.06", "1234567", "1234567-base-", "17ad6db-nccl-cuda12", "a-" * 20_000]),
        (ALIBABA, ["", "25.13", "25.5", "25.05-", "25.05-dedicated", "25.04-py3", "25.05.rc1", "x" * 40_000]),
    ],
    ids=["ngc", "nemo", "coreweave", "alibaba"],
)
def test_a_tag_of_another_family_is_refused(family, texts):
    for text in texts:
        with pytest.raises(RunbookError, match="is not a tag of" if len(text) <= 128 else "at most 128"):
            family.read(text)


def test_tags_are_listed_newest_first_each_of_a_kind():
    tags = "26.08.rc10 26.04 26.06 nightly 26.08.rc5 26.02.nemotron_3_super 26.06.01 26.8 26.04.00"
    listed = NEMO.listed(tags.split())
    assert [str(tag) for tag in listed if tag.kind == "release"] == ["26.06.01", "26.06", "26.04.00", "26.04"]
    assert [str(tag) for tag in listed if tag.kind == "candidate"] == ["26.08.rc10", "26.08.rc5"]
    assert [str(tag) for tag in listed if tag.kind == "special"] == ["26.02.nemotron_3_super", "nightly"]


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("nvcr.io/nvidia/pytorch:26.04-py3", NGC),
        ("mirror.example.com:5000/nvidia/pytorch:26.04-py3", NGC),
        ("mirror.example.com/cache/nvidia/pytorch", NGC),
        ("nvcr.io/nvidian/nemo:nightly", NEMO),
        ("ghcr.io/coreweave/ml-containers/nightly-torch-extras", COREWEAVE),
        ("acs-registry-vpc.cn-beijing.cr.aliyuncs.com/egslingjun/training-nv-pytorch:25.05", ALIBABA),
        ("nvcr.io/nvidia/pytorch-extra", NUMBERED),
        ("nvcr.io/other-nvidia/pytorch", NUMBERED),
        ("docker.io/nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04", CUDA),
        ("nvcr.io/nvidia/cuda", CUDA),
        ("docker.io/pytorch/pytorch", None),
        ("ghcr.io/coreweave/nccl-tests:1", None),
    ],
)
def test_the_family_is_known_by_the_path(text, family):
    assert family_of(ImageRef.parse(text)) is family


def test_the_flavour_of_a_cuda_image_has_no_version_but_that_of_the_system():
    assert CUDA.read("12.3.2-cudnn9-devel-ubuntu22.04").edition == "cudnn-devel-ubuntu22.04"
    assert CUDA.read("12.8.1-cudnn-devel-ubuntu24.04").edition == "cudnn-devel-ubuntu24.04"
    assert CUDA.read("12.8.1-runtime-ubi9").edition == "runtime-ubi9"
    for month in ("26.04-py3", "25.10-cuda13.0-devel-ubuntu24.04"):
        assert CUDA.listed([month]) == []
        with pytest.raises(RunbookError, match="a tag of a month"):
            CUDA.read(month)


# Alibaba


def test_the_address_of_alibabas_image_is_in_the_public_registry_or_that_of_a_region():
    path = "egslingjun/training-nv-pytorch:25.05-serverless"
    assert str(named_image("alibaba:25.05-serverless")) == f"egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/{path}"
    address = vpc_address(ALIBABA.read("25.05-serverless"), "cn-beijing")
    assert str(address) == f"acs-registry-vpc.cn-beijing.cr.aliyuncs.com/{path}"
    assert family_of(address) is ALIBABA
    assert built_on(ALIBABA.read("26.01")) == NGC.read("25.12-py3")
    for region in ("Beijing", "cn-beijing/x", "cn_beijing", "cn-", "cn-beijing\n"):
        with pytest.raises(RunbookError, match="region"):
            vpc_address(ALIBABA.read("25.05"), region)


# CoreWeave


def test_the_parts_of_an_old_tag_with_dashes_in_a_version():
    tag = COREWEAVE.read("afecfe9-nccl-cuda11.8.0-nccl2.16.2-1-torch2.0.0-rc1-vision0.15.1")
    torch, date, cuda, nccl, vision, audio = tag.versions
    assert [str(part[0]) for part in (torch, cuda, nccl, vision)] == ["2.0.0rc1", "11.8.0", "2.16.2.post1", "0.15.1"]
    assert (date, audio, tag.kind) == ("", (), "candidate")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base-cuda12.9.1-torch2.10.0", "does not begin with a commit"),
        ("17ad6db-nccl-cuda12.9.1-torch2.10.0", "contradicts itself"),
        ("17ad6db-base-cuda12.9.1-nccl2.29.2-1-torch2.10.0", "contradicts itself"),
    ],
)
def test_a_tag_that_contradicts_itself_is_refused(text, said):
    with pytest.raises(RunbookError, match=said):
        COREWEAVE.read(text)


# Properties


@given(st.text("0123456789.-_abcdefpy rc"))
def test_any_text_is_a_tag_that_prints_as_itself_or_is_refused(text):
    for family in FAMILIES:
        with contextlib.suppress(RunbookError):
            assert str(family.read(text)) == text


def test_tags_of_no_known_family_are_ordered_part_by_part():
    texts = ["dev", "v1", "v2-rc1", "v2", "v10", "1.9", "1.9-a", "1.10", "2"]
    assert list(map(str, OTHER.listed(["1.10", "1.9", "a b", "", "x" * 129, "1.9-a"]))) == ["1.10", "1.9-a", "1.9"]
    assert sorted(map(str, OTHER.listed(texts))) == sorted(texts)


_NIGHTLY = "base-25080505-cuda12.9.1-ubuntu22.04-torch2.9.0a0-vision0.24.0a0-audio2.8.0a0"
_RELEASE = "17ad6db-base-cuda12.9.1-ubuntu22.04-torch{}-vision0.25.0-audio2.10.0"


#: Family → pairs of an older tag and a newer one of the same edition.
OLDER = {
    NGC: [("26.02-py3", "26.04-py3"), ("26.04-py3-igpu", "26.05-py3-igpu")],
    NEMO: [("24.03.01.framework", "24.05"), ("26.08.rc5", "26.08")],
    ALIBABA: [("25.04-serverless", "25.05-serverless")],
    COREWEAVE: [
        (_NIGHTLY, _RELEASE.format("2.10.0")), (_NIGHTLY, _RELEASE.format("2.9.0")),
        (_RELEASE.format("2.8.0"), _NIGHTLY), (_NIGHTLY, _NIGHTLY.replace("25080505", "25080605")),
        ("fffffff-base-cuda12.0.1-torch2.0.0", "0000000-base-cuda12.0.1-torch2.0.1"),
    ],
    NUMBERED: [
        ("26.03-cuda13.1-devel-ubuntu22.04", "26.04-cuda13.2-devel-ubuntu24.04"), ("25.12-tf2-py3", "26.01-tf2-py3"),
        ("12.9.1-devel-ubuntu22.04", "12.10.0-devel-ubuntu22.04"), ("v1.2.0rc5", "v1.2.0rc10"),
        ("1.2.0rc5", "1.2.0"), ("25.02.rc2", "25.02"), ("2.0.0", "2.0.0.post1"),
        ("1.1.0rc2.post2", "1.1.0rc2.post10"), ("1.1.0rc2.post2", "1.1.0rc3"),
    ],
}  # fmt: skip
#: Family → pairs of which neither tag is older: equal ones, and other editions.
NEITHER = {
    NGC: [("26.04-py3", "26.04-py3"), ("26.04-py3", "26.04-py3-igpu")],
    NEMO: [("26.02.nemotron_3_super", "26.04"), ("nightly", "26.04")],
    ALIBABA: [("25.05", "25.05-serverless"), ("25.04", "25.05-serverless")],
    COREWEAVE: [  # the age of a commit is unknown
        ("0000000-base-cuda12.0.1-torch2.0.0", "fffffff-base-cuda12.0.1-torch2.0.0"),
        ("fffffff-base-cuda12.0.1-torch2.0.0", "0000000-base-cuda12.0.1-torch2.0.0-vision0.15.1"),
        ("17ad6db-base-cuda13.0.0-torch2.9.0", "17ad6db-nccl-cuda13.0.0-nccl2.29.2-1-torch2.10.0"),
    ],
    NUMBERED: [
        ("25.12-tf1-py3", "26.01-tf2-py3"), ("26.04-py3-igpu", "26.05-py3"),
        ("24.04-trtllm-python-py3", "24.05-vllm-python-py3"),
        ("13.0.2-cudnn-devel-ubuntu24.04", "13.1.0-devel-ubuntu24.04"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("family", OLDER, ids=lambda family: family.parse.__name__)
def test_which_tag_is_older(family):
    for pairs, expected in ((OLDER, True), (NEITHER, False)):
        for one, two in pairs[family]:
            older, newer = family.read(one), family.read(two)
            assert (older.is_older(newer), newer.is_older(older)) == (expected, False), (one, two)
            assert older < newer or not expected


@pytest.mark.parametrize(
    "text", ["", "latest", "26", "v", "devel-12.0", "1.2_", "1..2", "1.2--x", "x" * 40_000, "1." * 60]
)
def test_a_tag_without_a_version_in_front_is_none_of_ngc(text):
    with pytest.raises(RunbookError):
        NUMBERED.read(text)
