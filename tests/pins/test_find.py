"""The places in texts that name a known image: what is one, what is none and why, in foreign texts too."""

import time
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook_lib.pins import pins_file
from runbook_lib.pins.draft import FoundPin, draft
from runbook_lib.pins.find import Place, Source, distinct_tags, lone_tags, places
from runbook_lib.pins.sites import read

NGC, NEMO, CUDA = "nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/nemo", "docker.io/nvidia/cuda"
MIRROR = "mirror.example.com:5000/x/nvidia/pytorch"
DIGEST = f"sha256:{'ab' * 32}"


def found(text: str, path: str = "a") -> list[Place]:
    """Return all places in a file, in the way of ``pins find``."""
    source = Source(path, text)
    named = places(source)
    return sorted([*named, *lone_tags(source, distinct_tags(named), named)], key=lambda place: place.start)


@pytest.mark.parametrize(
    ("text", "image", "tags"),
    [
        (f"FROM {NGC}:26.04-py3 AS base", NGC, ["26.04-py3"]),
        (f"FROM {NGC}:26.04-py3@{DIGEST}\n", NGC, [f"26.04-py3@{DIGEST}"]),
        (f"docker run {NGC}:26.04-py3.", NGC, ["26.04-py3"]),
        (f"<code>{NGC}:26.04-py3</code>", NGC, ["26.04-py3"]),
        (f'image = "{NGC}:${{TAG:-26.04-py3}}"', NGC, ["26.04-py3"]),
        (f"${{IMAGE:-{NGC}:26.04-py3}}", NGC, ["26.04-py3"]),
        (f"docker://{NGC}:26.04-py3", NGC, ["26.04-py3"]),
        ("docker://nvcr.io#nvidia/pytorch:26.04-py3", NGC, ["26.04-py3"]),
        ("FROM ${HOST}/nvidia/pytorch:26.04-py3", NGC, ["26.04-py3"]),
        ("FROM nvidia/cuda:13.0.2-devel-ubuntu24.04", CUDA, ["13.0.2-devel-ubuntu24.04"]),
        ("FROM ${HOST}/nvidia/cuda:13.0.2-devel", "nvcr.io/nvidia/cuda", ["13.0.2-devel"]),
        (f"{MIRROR}:26.04-py3", MIRROR, ["26.04-py3"]),
        ("nvcr.io/nvidia/cuda-dl-base:26.04-cuda13.2", "nvcr.io/nvidia/cuda-dl-base", ["26.04-cuda13.2"]),
        (f"ARG TAG=26.04-py3\nFROM {NGC}:${{TAG}}", NGC, ["26.04-py3"]),
        (f"TAG ?= 26.04-py3\nx: ; docker run {NGC}:$(TAG)", NGC, ["26.04-py3"]),
        (f"env:\n  TAG: '26.04-py3'\nrun: {NGC}:${{{{ env.TAG }}}}", NGC, ["26.04-py3"]),
        (f'tag = "26.04-py3"\nimage = f"{NGC}:{{tag}}"', NGC, ["26.04-py3"]),
        (f"A=1\nTAG=26.06\nTAG=26.08\nFROM {NEMO}:$TAG", NEMO, ["26.06", "26.08"]),
        (f"repository: {NEMO}\ntag: 26.06\n", NEMO, ["26.06"]),
        (f"image:\n  tag: '26.06'  # x\n  repository: {NEMO}\nother:\n  tag: 25.01\n", NEMO, ["26.06"]),
        (f'{{\n "repository": "{NEMO}",\n "tag": "26.06"\n}}', NEMO, ["26.06"]),
        (f"image: {{repository: {NEMO}, tag: 26.06}}", NEMO, ["26.06"]),
        (f"- name: {NEMO}\n  newTag: 26.06\n- name: x\n  newTag: 1.0\n", NEMO, ["26.06"]),
        (f"ARG IMAGE={NEMO}\nARG IMAGE_TAG=26.06\nFROM ${{IMAGE}}:${{IMAGE_TAG}}", NEMO, ["26.06"]),
        (f"FROM {NGC}:26.04-py3\n# 26.04-py3 has CUDA 13.2, 25.01-py3 had not\n", NGC, ["26.04-py3", "26.04-py3"]),
        (f"{NGC}:26.04-py3 and {NGC}:26.06-py3", NGC, ["26.04-py3", "26.06-py3"]),
    ],
)  # fmt: skip
def test_a_place_is_the_tag_of_a_known_image(text: str, image: str, tags: list[str]) -> None:
    assert [(place.image, text[place.start : place.end], place.skip_reason) for place in found(text)] == [
        (image, tag, "") for tag in tags
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"docker pull {NGC}", "it names no tag"),
        (f"{NGC}@{DIGEST}", "it has a digest and no tag"),
        (f"FROM {NGC}:${{TAG}}", "its tag is a variable"),
        (f"ARG VERSION=26.04\nFROM {NGC}:${{VERSION}}-py3", "its tag is a variable"),
        ("ARG V=13.0.2\nFROM nvcr.io/nvidia/cuda:${V}-devel", "its tag is a variable"),
        (f"FROM {NGC}:26.04-py3@${{DIGEST}}", "its digest is not written out"),
        (f"repository: {NGC}\ntag: 26.04-py3\ndigest: {DIGEST}\n", "its digest stands apart from it"),
        (f"{NGC}:26.04-py3${{MORE}}", "a part of its tag is a variable"),
        (f"{NGC}:YY.MM-py3", "'YY.MM-py3' is not a tag of the monthly NGC images"),
        (f"{NGC}:26.4-py3", "'26.4-py3' is not a tag of the monthly NGC images"),
        (f"{NEMO}:nightly", "nightly is a name whose image changes"),
        (f"{NGC}:26.04-py3 nvcr.io/nvidia/a:26.04-py3\nx 26.04-py3", f"it may be a tag of nvcr.io/nvidia/a or {NGC}"),
        (f"{NGC}:26.04-py3\n${{HOST}}/x/pytorch:26.04-py3", "the name of its image is not written out"),
    ],
)  # fmt: skip
def test_what_is_not_understood_has_a_reason(text: str, reason: str) -> None:
    assert next(place.skip_reason for place in found(text) if place.skip_reason).startswith(reason)


@pytest.mark.parametrize(
    "text",
    [
        "", "FROM python:3.12", "https://nvcr.io/nvidia/pytorch:26.04-py3", "xnvcr.io/nvidia", "nvcr.io/nvidia",
        "see github.com/NVIDIA/pytorch", "nvidia/pytorch", "26.04-py3", "registry.example.com/team/app:1.0",
        "https://github.com/x/nvidia/nemo", "pytorch-26.04-py3.sqsh",
    ],
)  # fmt: skip
def test_other_texts_have_no_places(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("path", "before", "lts"),
    [
        ("docker/.ngc_version.lts", "", True),
        ("docker/.ngc_version.dev", "", False),
        ("results.txt", "", False),
        (".gitlab-ci.yml", "matrix:\n- NAME: CI_LTS_IMAGE\n  FILE: x\n  IMAGE: ", True),
        (".gitlab-ci.yml", "matrix:\n- NAME: CI_LTS_IMAGE\n  FILE: y\n- FILE: x\n  IMAGE: ", False),
        ("a", "LTS_IMAGE=", True),
    ],
)
def test_a_place_is_of_lts_if_its_file_or_its_mapping_says_so(path: str, before: str, lts: bool) -> None:
    (place,) = found(f"{before}{NGC}:26.04-py3\n", path)
    assert place.image_type == ("lts" if lts else "dev")


def drafted(texts: Mapping[str, str], *, lockstep: bool = True) -> tuple[str, list[FoundPin]]:
    sources = {path: Source(path, text) for path, text in texts.items()}
    pins = [
        FoundPin(place, lockstep, [])
        for path, text in texts.items()
        for place in found(text, path)
        if not place.skip_reason
    ]
    text, kept, left_out = draft(pins, sources, "a test")
    assert len(kept) + len(left_out) == len(pins)
    return text, kept


def reread(text: str, texts: Mapping[str, str]) -> set[tuple[str, int, str, str]]:
    readings = read(texts, pins_file.parse(text, "x/y").sites)
    assert [one.problem for one in readings if one.problem] == []
    return {(pin.path, pin.location.end, pin.image.name, str(pin.tag)) for one in readings for pin in one.pins}


@pytest.mark.parametrize(
    ("texts", "lines"),
    [
        ({"Dockerfile": f"FROM {NGC}:26.04-py3\n"}, ["find: {text: 'nvcr.io/nvidia/pytorch:{tag}'}"]),
        ({"v.yaml": f"repository: {NEMO}\ntag: 26.06\n"}, [r"""find: {regex: '^tag: ["'']?(?P<tag>"""]),
        (
            {"a": f"{NGC}:26.04-py3\n{NGC}:26.04-py3\n", "b": f"FROM {NEMO}:26.06"},
            [f"image: {NGC}", f"    image: {NEMO}"],
        ),
        (
            {"a": "FROM nvidia/cuda:13.0.2-base AS run\nFROM nvidia/cuda:13.0.2-devel\n"},
            ["edition: 'base'", "edition: 'devel'"],
        ),
        ({"it's": f"FROM {NGC}:26.04-py3@{DIGEST}"}, ["- path: 'it''s'"]),
    ],
)  # fmt: skip
def test_a_drafted_file_gives_the_same_pins(texts: dict[str, str], lines: list[str]) -> None:
    text, kept = drafted(texts)
    assert all(line in text for line in lines), text
    assert reread(text, texts) == {(pin.place.path, pin.place.end, pin.place.image, pin.place.tag) for pin in kept}


def test_equal_lines_of_different_roles_are_told_apart_by_the_lines_above() -> None:
    text = f"- NAME: one\n  IMAGE: {NGC}:26.04-py3\n- NAME: two\n  IMAGE: {NGC}:26.04-py3\n"
    source = Source("ci.yml", text)
    pins = [FoundPin(place, not number, []) for number, place in enumerate(places(source))]
    file, kept, left_out = draft(pins, {"ci.yml": source}, "a test")
    assert ([pin.place.line for pin in kept], left_out) == ([2, 4], [])
    roles = [
        (pin.line, pin.site.kind)
        for one in read({"ci.yml": text}, pins_file.parse(file, "x/y").sites)
        for pin in one.pins
    ]
    assert roles == [(2, "lockstep"), (4, "informational")]


def test_what_no_pins_file_can_have_is_left_out_with_the_reason() -> None:
    line = f"FROM {NGC}:26.04-py3\n"
    sources = {path: Source(path, line * 6) for path in ("a", "b*")}
    pins = [FoundPin(place, place.line == 6, []) for source in sources.values() for place in places(source)]
    text, kept, left_out = draft(pins, sources, "a test")
    assert (text, kept) == ("", [])
    reasons = {(place.path, place.line): place.skip_reason for place in left_out}
    assert reasons["b*", 1] == "no finder of a pins file tells it from others"
    assert reasons["a", 6] == f"{reasons['b*', 1]}: add it by hand, as bumps moved it"
    assert len(left_out) == 12
    text, kept = drafted({"a": line}, lockstep=False)
    assert (text, kept) == ("", [])


_PIECES = st.sampled_from([
    NGC, NEMO, "nvidia/cuda", "nvcr.io/nvidia/cuda", "nvcr.io/", "nvidia/pytorch", ":", ":26.04-py3", "26.04-py3",
    ":26.06", ":13.0.2-devel", "@" + DIGEST, "${TAG}", "TAG=", "tag: ", "repository: ", "ARG ", "- ", "  ", "\n",
    "\r\n", " ", "'", '"', "{", "}", "#", "lts", "é", "\udc80", "\0", "(", "[", "*", "\\", ".", "/", "x",
    "://u:p@", "=", "\t", "|", "$", "^",
])  # fmt: skip


@given(st.lists(_PIECES, max_size=40).map("".join), st.sampled_from(["a", "v.yaml", "Dockerfile", "README.md"]))
@settings(deadline=None, max_examples=300)
def test_in_any_text_a_place_holds_its_tag_and_a_drafted_file_reads_it(text: str, path: str) -> None:
    for place in found(text, path):
        assert text[place.start :].startswith(place.tag)
        assert text.count("\n", 0, place.start) + 1 == place.line
        assert place.skip_reason or (place.tag and place.image)
    file, kept = drafted({path: text})
    if file:
        assert reread(file, {path: text}) == {(path, pin.place.end, pin.place.image, pin.place.tag) for pin in kept}


@pytest.mark.parametrize(
    "piece",
    [
        "nvcr.io/", "nvcr.io/nvidia/pytorch:", "a.", "a-", "a/", "nvidia/pytorch:26.04-py3", f"{NGC}:26.04-py3 ",
        f"{NGC} ", f"{NGC}:${{A}}", "TAG=26.04-py3 ", "26.04-py3", "26.04-py3 ", "tag: ", "$", "{", " ", "A.1",
        f"{NGC}:26.04-py3\n", f"TAG=26.04-py3\n{NGC}:$TAG\n", f"repository: {NEMO}\ntag: 26.06\n",
    ],
)  # fmt: skip
@pytest.mark.slow
def test_long_texts_are_read_in_linear_time(piece: str) -> None:
    text = f"{NGC}:26.04-py3 " + piece * (30_000 // len(piece))
    start = time.process_time()
    places_of_text = found(text)
    assert time.process_time() - start < 2
    pins = [
        FoundPin(place, number % 2 == 0, []) for number, place in enumerate(places_of_text) if not place.skip_reason
    ]
    draft(pins, {"a": Source("a", text)}, "a test")
    assert time.process_time() - start < 5
