"""References found in texts, and the paths of YAML values."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.images.families import FAMILIES
from runbook_lib.pins.discover.references import references
from runbook_lib.pins.discover.yaml_path import YamlPaths
from runbook_lib.pins.tag_parts import compose

LONG = "bc8c66e-nccl-cuda13.2.1-ubuntu24.04-nccl2.30.4-1-torch2.11.0-vision0.26.0-audio2.11.0-abi1"


def found(text):
    return [(one.image, one.tag) for one in references(text)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "nvidia/pytorch",  # a path alone says nothing without a tag of the family
        "see nvidia/pytorch:yours",
        "NVIDIA/PyTorch:26.04-py3",
        "registry.local/nvidia/nemo-automodel:26.04",
        "registry.local/nvidia/nemo/curator:26.04",
        "xnvcr.io/nvidia/tensorrt:13.0.2-devel",
        "other/nvidia/cuda:13.0.2-devel-ubuntu24.04",
        "the image nvidia/cuda",
        "nvcr.io/nvidia/cuda",
        "hf.co/nvidia/nemotron:26.04",
        "huggingface.co/nvidia/nemo",
        "github.com/nvidia/nemo",
        "git@github.com:nvidia/nemo.git",
        "https://github.com/nvidia/nemo",
        "https://catalog.example.com/orgs/nvidia/nemo",
        "https://opensource.example.com/teams/nvidia/nemo/${DATE}:x",
        "https://ghcr.io/v2/coreweave/ml-containers%2Ftorch/tags/list",
        "rg 'nvcr\\.io/nvidia/pytorch:' .",
        "some/nvidia/pytorch:26.04-py3",
    ],
)
def test_nothing_is_found(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "image", "tag"),
    [
        ("FROM nvcr.io/nvidia/pytorch:26.04-py3 AS x", "nvcr.io/nvidia/pytorch", "26.04-py3"),
        ("`nvcr.io/nvidia/pytorch`", "nvcr.io/nvidia/pytorch", ""),
        ("nvcr.io/nvidia/nemo.", "nvcr.io/nvidia/nemo", ""),
        ("as in nvcr.io/nvidia/nemo:26.04.", "nvcr.io/nvidia/nemo", "26.04"),
        ("nvcr.io/nvidia/nemo:26.02.nemotron_3_super", "nvcr.io/nvidia/nemo", "26.02.nemotron_3_super"),
        ("nvcr.io/nvidia/nemo:dev'", "nvcr.io/nvidia/nemo", "dev"),
        ("nvcr.io/nvidia/nemo-automodel:26.04,", "nvcr.io/nvidia/nemo-automodel", "26.04"),
        ("nvcr.io/nvidia/nemo.sub:26.04.", "nvcr.io/nvidia/nemo.sub", "26.04"),
        ("nvcr.io/nvidia/nemo/curator:26.04", "nvcr.io/nvidia/nemo/curator", "26.04"),
        ("'nvcr.io#nvidia/cuda:13.0.2-devel-ubuntu24.04'", "nvcr.io/nvidia/cuda", "13.0.2-devel-ubuntu24.04"),
        (
            "FROM nvcr.io/nvidia/cuda-dl-base:26.04-cuda13.2-devel-ubuntu24.04",
            "nvcr.io/nvidia/cuda-dl-base",
            "26.04-cuda13.2-devel-ubuntu24.04",
        ),
        ("nvcr.io/nvidia/merlin/merlin-hugectr:latest", "nvcr.io/nvidia/merlin/merlin-hugectr", "latest"),
        ("nvcr.io/nvstaging/tensorrt-llm/release:1.2.0rc5", "nvcr.io/nvstaging/tensorrt-llm/release", "1.2.0rc5"),
        ("docker://nvcr.io/nvidia/nemo:26.06 x", "nvcr.io/nvidia/nemo", "26.06"),
        ("https://nvcr.io/nvidia/nemo", "nvcr.io/nvidia/nemo", ""),
        ('--container-image "nvcr.io#nvidia/pytorch:20.12-py3"', "nvcr.io/nvidia/pytorch", "20.12-py3"),
        ("(nvcr.io/nvidia/pytorch:21.12-py3)", "nvcr.io/nvidia/pytorch", "21.12-py3"),
        ("sed s/nvcr.io/nvidia/pytorch/", "nvcr.io/nvidia/pytorch", ""),
        (
            f"'ghcr.io/coreweave/ml-containers/torch-extras:{LONG}'",
            "ghcr.io/coreweave/ml-containers/torch-extras",
            LONG,
        ),
        ("registry.local:5000/nvidia/pytorch:26.04-py3", "registry.local:5000/nvidia/pytorch", "26.04-py3"),
        ("registry.local/cache/nvidia/pytorch", "registry.local/cache/nvidia/pytorch", ""),
        ("a.b/proxy/nvcr.io/nvidia/pytorch:26.04-py3", "a.b/proxy/nvcr.io/nvidia/pytorch", "26.04-py3"),
        ("localhost/nvidia/pytorch:26.04-py3", "localhost/nvidia/pytorch", "26.04-py3"),
        ("$CI_REGISTRY/nvidia/pytorch:26.04-py3", "$CI_REGISTRY/nvidia/pytorch", "26.04-py3"),
        ("${REG:-x.y}/mirror/nvidia/pytorch:26.04-py3", "${REG:-x.y}/mirror/nvidia/pytorch", "26.04-py3"),
        ("${{ vars.REG }}/nvidia/nemo:26.06", "${{ vars.REG }}/nvidia/nemo", "26.06"),
        ('f"{registry}/nvidia/nemo:26.06"', "{registry}/nvidia/nemo", "26.06"),
        ("<registry>/nvidia/nemo:26.06", "<registry>/nvidia/nemo", "26.06"),
        ("image: nvidia/pytorch:26.04-py3", "nvidia/pytorch", "26.04-py3"),
        (
            "acs-registry-vpc.cn-beijing.cr.aliyuncs.com/egslingjun/training-nv-pytorch:25.05-serverless",
            "acs-registry-vpc.cn-beijing.cr.aliyuncs.com/egslingjun/training-nv-pytorch",
            "25.05-serverless",
        ),
        *(
            (
                f"acs-registry-vpc.{region}.cr.aliyuncs.com/egslingjun/training-nv-pytorch:25.05",
                f"acs-registry-vpc.{region}.cr.aliyuncs.com/egslingjun/training-nv-pytorch",
                "25.05",
            )
            for region in ("${REGION}", "{region-id}", "<region-id>", "$REGION", "${{ vars.REGION }}")
        ),
    ],
)
def test_a_reference_is_found(text, image, tag):
    assert found(text) == [(image, tag)]


@pytest.mark.parametrize("tag", ["${TAG}", "$TAG", "${{ matrix.tag }}", "<YY.MM>-py3", "{tag}", "%s", "26.${M}", "\\0"])
def test_a_tag_in_a_variable_is_not_a_tag(tag):
    (one,) = references(f"x: nvcr.io/nvidia/nemo:{tag}")
    assert one.variable
    assert one.read_tag is None


def test_a_digest_is_kept():
    digest = "sha256:" + "0a" * 32
    with_tag, alone = references(f"nvcr.io/nvidia/nemo:26.06@{digest} nvcr.io/nvidia/nemo@{digest}")
    assert (with_tag.tag, with_tag.digest) == ("26.06", digest)
    assert (alone.tag, alone.digest) == ("", digest)


def test_places_are_counted_as_git_counts_them():
    text = "\r\nx\x0c\x85\u2028 nvcr.io/nvidia/nemo:26.06\nnvcr.io/nvidia/nemo, nvidia/pytorch:26.04-py3"
    assert [(one.line, one.column) for one in references(text)] == [(2, 5), (3, 0), (3, 21)]
    assert [text[one.start : one.end] for one in references(text)] == [
        "nvcr.io/nvidia/nemo:26.06",
        "nvcr.io/nvidia/nemo",
        "nvidia/pytorch:26.04-py3",
    ]


def test_a_part_of_one_reference_is_not_the_registry_of_the_next():
    assert found("s#nvcr.io/nvidia/pytorch#nvcr.io/nvidia/nemo:26.06#") == [
        ("nvcr.io/nvidia/pytorch", ""),
        ("nvcr.io/nvidia/nemo", "26.06"),
    ]


IMAGES = [image for family in FAMILIES for image in family.images]
PIECES = st.one_of(
    st.sampled_from([*IMAGES, *(image.partition("/")[2] for image in IMAGES), "nvcr.io", "26.04-py3", "${X}", LONG]),
    st.sampled_from([*"/:#@ \n-.\"'`<>{}$=", "://", "sha256:", "\udcff"]),
    st.text(max_size=5),
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_text_has_references_in_order_where_they_say(text):
    end = 0
    for one in references(text):
        assert end <= one.start < one.end
        end = one.end
        named = text[one.start : one.end]
        if one.form:
            named = f"{one.image}:{compose(one.form, named)}"
        assert named.replace("#", "/") == str(one)
        assert text.split("\n")[one.line - 1][one.column :].startswith(text[one.start : one.end])


@given(
    st.sampled_from(IMAGES),
    st.sampled_from(
        ["", " ", "\n", '"', "'", "`", "=", "(", "[", ">", ":- ", "//", "://", "->", "\udcff", "x/", "{", "|"]
    ),
    st.sampled_from(["", " ", "\n", '"', ".", ",", ")", "`", ";", ":", "\\", "}", "|", "\udcff", "/"]),
)
def test_a_published_name_is_found_whatever_surrounds_it(image, before, after):
    assert [one.image.endswith(image) for one in references(f"{before}{image}{after}")] == [True]


def test_long_lines_are_read():
    text = ("x" * 300 + " nvcr.io/nvidia/nemo:26.06 ") * 3000 + "nvidia/pytorch" * 20000
    assert len(list(references(text))) == 3000


# -- paths of YAML values --------------------------------------------------------------------------------------------

WORKFLOW = """\
on:
  workflow_dispatch:
    inputs:
      image:
        default: HERE
jobs:
  "a b":   # a comment: with a colon
    container: HERE
    steps:
    - name: x
      run: |
        # a: comment
        image: HERE
        if a: then
            HERE
    - with:
        build-args: |
          A=1
          B=HERE
      uses: x
    -   env: {IMAGE: HERE}
  test:build:
    parallel:
      matrix:
        - IMAGE: x
          BASE: y
        - BASE: HERE
          PLATFORM:
            - 'amd64'
            - HERE
        - - z
          - HERE
---
other: HERE
---
- x
- HERE
"""


def test_the_path_of_a_value():
    places = [match.start() for match in re.finditer("HERE", WORKFLOW)]
    paths = [YamlPaths(WORKFLOW).at(place) for place in places]
    matrix = "jobs", "test:build", "parallel", "matrix", "1"
    assert [(path.keys, path.block) for path in paths] == [
        (("on", "workflow_dispatch", "inputs", "image", "default"), False),
        (("jobs", "a b", "container"), False),
        (("jobs", "a b", "steps", "0", "run"), True),
        (("jobs", "a b", "steps", "0", "run"), True),
        (("jobs", "a b", "steps", "1", "with", "build-args"), True),
        (("jobs", "a b", "steps", "2", "env", "IMAGE"), False),
        ((*matrix, "BASE"), False),
        ((*matrix, "PLATFORM", "1"), False),
        ((*matrix[:-1], "2", "1"), False),
        (("other",), False),
        (("1",), False),
    ]


def test_siblings_are_those_of_the_same_mapping():
    text = "rows:\n- IMAGE: a\n  BASE: HERE\n# LTS\n- IMAGE: lts\n  BASE: x\n"
    start, end = YamlPaths(text).at(text.index("HERE")).siblings
    assert text[start:end] == "IMAGE: a\n  BASE: HERE"


def test_the_text_under_a_key_beside_a_value():
    paths = YamlPaths("with:\n  file: docker/Dockerfile\n  build-args: |\n    A=HERE\n")
    assert paths.sibling(paths.at(55), ("dockerfile", "file")) == "docker/Dockerfile"
    assert paths.sibling(paths.at(55), ("other",)) == ""


KEYS = st.sampled_from(["a", "image", "b c", "x-y", "on", "1", "true", "a:b", "~", "", "#x", "- x", "é"])
TREES = st.recursive(
    st.sampled_from(["plain", "with: colon", "# hash", "two\nlines\n", "- dash", "", "1"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3), st.dictionaries(KEYS, inner, min_size=1, max_size=3)
    ),
    max_leaves=10,
)


def places(tree, keys=()):
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(value, (*keys, str(key)))
    else:
        yield keys


def planted(tree, keys):
    if not keys:
        return "HERE"
    if isinstance(tree, list):
        return [planted(value, keys[1:]) if str(at) == keys[0] else value for at, value in enumerate(tree)]
    return {key: planted(value, keys[1:]) if key == keys[0] else value for key, value in tree.items()}


@given(TREES, st.data(), st.booleans())
def test_the_path_agrees_with_a_parser(tree, data, sort):
    keys = data.draw(st.sampled_from(sorted(places(tree))))
    text = yaml.safe_dump(planted(tree, keys), sort_keys=sort, allow_unicode=True, default_style=None, width=10_000)
    assert YamlPaths(text).at(text.index("HERE")).keys == keys


@given(st.text(alphabet="ab:-#'\"|>{}[]&* \t\n\udcff", max_size=60), st.integers(0, 80))
def test_any_text_has_some_path(text, place):
    path = YamlPaths(text).at(place)
    assert path.siblings[0] <= path.siblings[1] <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        "ARG VER=26.04\nFROM example.com/team/pytorch:${VER}-py3\n",  # no image that we know
        "FROM nvcr.io/nvidia/pytorch:${VER}-py3\nRUN VER 26.04\n",
        "ARG VER=latest\nFROM nvcr.io/nvidia/pytorch:${VER}\n",
        "image: nvcr.io/nvidia/pytorch\n",
        "image: nvcr.io/nvidia/pytorch\nother:\n  tag: 26.04\n",
        "a:\n  image: nvcr.io/nvidia/tritonserver\nb:\n  tag: 26.04-py3-sdk\n",
        "- name: nvcr.io/nvidia/tritonserver\n- newTag: 26.04-py3\n",
        "see nvcr.io/nvidia/tritonserver\ntag: 26.04-py3\n",
        "$" * 5000 + ":",
    ],
)
def test_a_number_that_is_not_an_images_tag_is_not_a_reference(text):
    assert not [one for one in references(text) if one.form]


@pytest.mark.parametrize(
    ("text", "value", "image", "form"),
    [
        ("ARG TAG=26.04-py3\nFROM nvcr.io/nvidia/pytorch:${TAG}\n", "26.04-py3", "pytorch", "{tag}"),
        ("ARG VER=26.04\nFROM nvcr.io/nvidia/pytorch:$VER-py3\n", "26.04", "pytorch", "{month}-py3"),
        ("REG=nvcr.io/nvidia\nVER='26.04'\nrun ${REG}/pytorch:${VER}-py3\n", "26.04", "pytorch", "{month}-py3"),
        ("CUDA=${CUDA:-13.0.2}\nrun nvcr.io/nvidia/cuda:${CUDA}-devel-ubuntu24.04\n", "13.0.2", "cuda",
         "{version}-devel-ubuntu24.04"),
        ("env:\n  VER: 26.04\nimage: nvcr.io/nvidia/tritonserver:${{ env.VER }}-py3\n", "26.04", "tritonserver",
         "{month}-py3"),
        ("a:\n  repository: nvcr.io/nvidia/triton\n  tag: '26.04-py3'\n", "26.04-py3", "triton", "{tag}"),
        ("image:\n  tag: 26.04-py3-sdk # the SDK\n  pullPolicy: Always\n  repository: nvcr.io/nvidia/tritonserver\n",
         "26.04-py3-sdk", "tritonserver", "{tag}"),
        ("images:\n- name: x\n  newName: nvcr.io/nvidia/cuda\n  newTag: 13.0.2-base\n", "13.0.2-base", "cuda", "{tag}"),
        ("- name: nvcr.io/nvidia/cuda\n  newTag: 13.0.2-base\n", "13.0.2-base", "cuda", "{tag}"),
        ('{\n  "repository": "nvcr.io/nvidia/cuda",\n  "tag": "13.0.2-base"\n}\n', "13.0.2-base", "cuda", "{tag}"),
        ("image: nvcr.io/nvidia/acme:${TAG:-2.6.0}\n", "2.6.0", "acme", "{tag}"),
        ("image: ${IMAGE:-nvcr.io/nvidia/acme}:${ACME_TAG:-2.6.0}\n", "2.6.0", "acme", "{tag}"),
        ("docker run nvcr.io/nvidia/cuda:${V-13.0.2}-devel-ubuntu24.04\n", "13.0.2", "cuda",
         "{version}-devel-ubuntu24.04"),
    ],
)  # fmt: skip
def test_a_tag_apart_from_its_image_is_found(text, value, image, form):
    (one,) = [one for one in references(text) if one.form]
    assert (text[one.start : one.end], one.image, one.form) == (value, f"nvcr.io/nvidia/{image}", form)
    assert one.tag == compose(form, value)
