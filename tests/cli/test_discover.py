"""``runbook pins discover``: what references seem to be, what a pins file should call them, and the draft of one."""

import errno
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from elsewhere import bridge, ml_containers
from hypothesis import example, given
from hypothesis import strategies as st
from layouts import layout

from runbook_lib.cli import discover
from runbook_lib.cli.__main__ import main
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins import pins_file, repositories, sites
from runbook_lib.pins.discover.draft import draft
from runbook_lib.pins.discover.roles import discover as sorted_out
from runbook_lib.pins.finders import RegexMatches, UntrustedRegex
from runbook_lib.pins.plan import plan
from runbook_lib.system import atomic_files

NGC = "nvcr.io/nvidia/pytorch"
NEW, OLD = f"{NGC}:26.06-py3", f"{NGC}:25.09-py3"
DOCKERFILE = f"# syntax=x\nARG BASE={NEW}\nFROM ${{BASE}} AS main\n"
MATRIX = f"""\
build:
  parallel:
    matrix:
      - IMAGE: LTS_IMAGE
        BASE_IMAGE: {OLD}
      - IMAGE: DEV_IMAGE
        BASE_IMAGE: {NEW}
      - IMAGE: TOOLS
        BASE_IMAGE: python:3.10
nemo:
  variables:
    BASE_IMAGE: nvcr.io/nvidian/nemo:nightly
"""
WORKFLOW = f"""\
on:
  workflow_dispatch:
    inputs:
      image:
        default: {NEW}
jobs:
  test:
    container:
      image: {OLD}
    steps:
      - uses: docker/build-push-action@v6
        with:
          file: ./docker/Dockerfile
          build-args: |
            BASE=${{{{ inputs.image || '{NEW}' }}}}
            OTHER={OLD}
      - run: |
          docker pull {OLD}
          docker build --build-arg BASE={OLD} .
  reused:
    uses: ./x.yml
    with:
      custom-container: {OLD}
    env:
      IMAGE: {OLD}
"""


def called(texts):
    """Place, kind and role of everything that is found."""
    return [(f"{one.path}:{one.reference.line}", one.nature.kind, one.full_role) for one in sorted_out(texts.items())]


# -- kinds and roles -------------------------------------------------------------------------------------------------


def test_nothing_is_found_in_nothing():
    assert sorted_out([]) == ()
    assert sorted_out([("Dockerfile", "FROM python:3.12\n"), ("x", "")]) == ()
    assert draft((), {}).text == ""


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("docker/.version.dev", f"{OLD}\n", "whole-file"),
        ("docker/version.txt", f"\n {OLD}", "whole-file"),
        ("docker/x.Dockerfile", f"ARG BASE={OLD}\nFROM $BASE", "dockerfile-arg"),
        ("docker/Dockerfile.ci", f'ARG A=1 \\\n  BASE="{OLD}"\nFROM $BASE', "dockerfile-arg"),
        ("Containerfile", f"from {OLD} as x", "dockerfile-from"),
        ("Dockerfile", f"FROM x\nCOPY --from={OLD} /a /b", "dockerfile-from"),
        ("Dockerfile", f"FROM x\nRUN echo {OLD}", "code"),
        ("Dockerfile", f"# FROM {OLD}\nFROM x", "comment"),
        ("build.sh", f"docker build --build-arg BASE={OLD} .", "build-arg"),
        ("Makefile", f"\tdocker build --build-arg 'BASE={OLD}' .", "build-arg"),
        ("docker-compose.yml", f"services:\n  x:\n    build:\n      args:\n        - BASE={OLD}", "build-arg"),
        ("docker-compose.yml", f"services:\n  x:\n    image: {OLD}", "container-image"),
        (".gitlab-ci.yml", f"image:\n  name: {OLD}", "container-image"),
        (".gitlab-ci.yml", f"x:\n  services:\n    - {OLD}", "container-image"),
        (".gitlab-ci.yml", f"variables:\n  IMAGE: {OLD}", "ci-variable"),
        (".gitlab-ci.yml", f"x:\n  script:\n    - docker pull {OLD}", "configuration"),
        (".github/images.yml", f"base: [{OLD}]", "configuration"),
        ("conf/run.yaml", f"container: {OLD}", "container-image"),
        ("conf/run.yaml", f"base_container: {OLD}", "configuration"),
        ("charts/1.2.3/values.yaml", f"image: {OLD}", "container-image"),
        ("conf/run.toml", f'image = "{OLD}"', "configuration"),
        ("cards/x/card.yaml", f"base_container: {OLD}", "record"),
        ("results.json", f'{{"image": "{OLD}"}}', "record"),
        ("README", f"Use {OLD}.", "documentation"),
        ("docs/guide.md", f"# docker run {OLD}", "documentation"),
        ("docs/versions/0.4.2/guide.mdx", f"docker run {OLD}", "record"),
        ("docs/versions/nightly/guide.mdx", f"docker run {OLD}", "documentation"),
        ("docs/releases/known-issues.md", f"It is slow on {OLD}.", "record"),
        ("CHANGELOG.md", f"- Moved to {OLD}", "record"),
        ("README.md", f"- [12/15/2025] Runs on {OLD}", "record"),
        ("README.md", f"The numbers were measured on {OLD}.", "record"),
        ("tutorial.ipynb", f'"source": ["Run it in {OLD}"]', "documentation"),
        ("tests/unit/test_x.py", f'IMAGE = "{OLD}"', "test"),
        ("tests/fixtures/pins.yaml", f"image: {OLD}", "test"),
        ("tests/unit/test_x.py", f"    # Since {OLD} it fails.", "comment"),
        ("tests/run.sh", f"srun --container-image {OLD}", "script"),
        ("launch", f"#!/usr/bin/env bash\nIMAGE=${{1:-{OLD}}}", "script"),
        ("launch.sh", f'# IMAGE="{OLD}"', "comment"),
        ("launch.sh", f'IMAGE=x  # or "{OLD}"', "comment"),
        ("launch.sh", f'IMAGE="#1 {OLD}"', "script"),
        ("launch.py", f'image: str = "{OLD}"', "code"),
        ("launch.go", f"// image is {OLD}", "comment"),
        ("launch.go", f'image := "docker://{OLD}"', "code"),
        ("no suffix", f"x {OLD}", "code"),
    ],
)
def test_a_kind_is_derived_from_name_and_context(path, text, kind):
    assert [one.nature.kind for one in sorted_out([(path, text)])] == [kind]


def test_cadences_of_files_with_one_stem_have_names_of_their_own():
    texts = {f"{folder}/Dockerfile": f"FROM {NEW}\n" for folder in "abc"}
    named = zip(sorted_out(texts.items()), ["", "Dockerfile", "x" * 50], strict=True)
    discovered = [replace(one, cadence=cadence) for one, cadence in named]
    same = [replace(one, path="d/Dockerfile", reference=one.reference, cadence="dockerfile") for one in discovered[1:2]]
    made = draft([*discovered, *same], texts | {"d/Dockerfile": f"FROM {NEW}\n"})
    names = [group.name for group in pins_file.parse(made.text, "x/y").sites.groups]
    assert len(set(names)) == 4
    assert "pytorch-dockerfile-2" in names


def test_a_deployment_does_not_lead_what_is_built():
    """One that is ahead is shown, and the pins of the build stay lockstep."""
    manifest = f"apiVersion: v1\nkind: Pod\nspec: {{containers: [{{image: '{NEW}'}}]}}\n"
    assert [role for *_, role in called({"Dockerfile": f"FROM {OLD}\n", "pod.yaml": manifest})] == [
        "lockstep dev",
        "informational",
    ]
    assert [role for *_, role in called({"pod.yaml": manifest})] == ["lockstep dev"]


def test_a_workflow_is_read_by_its_keys():
    path = ".github/workflows/build.yml"
    assert called({path: WORKFLOW}) == [
        (f"{path}:5", "workflow-input", "lockstep dev"),
        (f"{path}:9", "container-image", "informational"),
        (f"{path}:15", "workflow-input", "lockstep dev"),
        (f"{path}:16", "build-arg", "informational"),
        (f"{path}:18", "script", "informational"),
        (f"{path}:19", "build-arg", "informational"),
        (f"{path}:23", "workflow-input", "informational"),
        (f"{path}:25", "ci-variable", "informational"),
    ]


def test_the_rows_of_a_matrix_are_distinguished():
    path = ".gitlab/build.yml"
    assert called({path: MATRIX, "Dockerfile": DOCKERFILE, ".version.lts": OLD}) == [
        (f"{path}:5", "matrix-row", "lockstep lts"),
        (f"{path}:7", "matrix-row", "lockstep dev"),
        (f"{path}:12", "ci-variable", "ignore"),
        (".version.lts:1", "whole-file", "lockstep lts"),
        ("Dockerfile:2", "dockerfile-arg", "lockstep dev"),
    ]


def test_a_row_is_not_of_the_type_of_its_neighbour():
    rows = MATRIX.split("\n")
    turned = "\n".join([*rows[:3], *rows[5:7], *rows[3:5], *rows[7:]])
    assert [role for _, _, role in called({".gitlab/build.yml": turned})] == ["lockstep dev", "lockstep lts", "ignore"]


def test_a_value_elsewhere_is_not_a_pin():
    texts = {"Dockerfile": DOCKERFILE, "examples/x/Dockerfile": f"FROM {NEW}", "tests/Dockerfile": f"FROM {NEW}"}
    assert [role for _, _, role in called(texts)] == ["lockstep dev", "informational", "informational"]


def test_a_pin_that_was_forgotten_is_one_still():
    texts = {".gitlab/build.yml": MATRIX, ".version.dev": f"{NGC}:26.07-py3", "Dockerfile": DOCKERFILE}
    roles = {place: role for place, _, role in called(texts)}
    assert roles[".gitlab/build.yml:7"] == roles[".version.dev:1"] == "lockstep dev"
    assert roles["Dockerfile:2"] == "informational"


def test_the_default_of_an_argument_that_ci_passes_is_no_forgotten_pin():
    texts = {".github/workflows/build.yml": WORKFLOW, "docker/Dockerfile": f"ARG BASE={OLD}\nFROM $BASE"}
    assert called(texts)[-1] == ("docker/Dockerfile:1", "dockerfile-arg", "informational")


def test_a_job_in_a_newer_image_leads():
    texts = {"Dockerfile": DOCKERFILE, ".github/workflows/x.yml": f"jobs:\n  x:\n    container: {NGC}:26.07-py3"}
    assert [role for _, _, role in called(texts)] == ["lockstep dev", "informational"]


def test_a_jenkinsfiles_image_is_a_pin():
    assert called({"Jenkinsfile": f"docker {{ image '{NEW}' }}"}) == [("Jenkinsfile:1", "script", "lockstep dev")]


def test_a_tag_on_its_own_is_drafted_where_its_file_names_the_image():
    """As in a template, or in the name of an image made from it."""
    text = f"FROM {NGC}:26.06-py3\nARG TAG=26.06-py3\nENV X=own/images:pytorch26.06-py3-small Y=tensorrt:26.06-py3\n"
    alone = called({"Dockerfile": text.replace(f"FROM {NGC}:26.06-py3", "")})
    assert [place for place, _, _ in alone] == ["Dockerfile:3"]  # whose name says what it was made from
    places = called({"Dockerfile": text})
    assert [place for place, _, _ in places] == ["Dockerfile:1", "Dockerfile:2", "Dockerfile:3"]
    discovered = sorted_out([("Dockerfile", text)])
    repository = pins_file.parse(draft(discovered, {"Dockerfile": text}).text, "x/y")
    made = plan({"Dockerfile": text}, repository.sites, repository.sites.family.read("26.08-py3"), "dev")
    moving = [reference for reference in discovered if reference.role == "lockstep"]
    assert made.edits[0].after.count("26.08-py3") == len(moving)
    assert "tensorrt:26.06-py3" in made.edits[0].after


SPLIT = [
    {"Dockerfile": f"ARG TAG=26.06-py3\nFROM {NGC}:${{TAG}}\n"},
    {"Dockerfile": f"ARG VER=26.06\nFROM {NGC}:${{VER}}-py3\n"},
    {"build.sh": "REG=nvcr.io/nvidia\nVER=26.06\nrun $REG/pytorch:${VER}-py3\n", "Dockerfile": f"FROM {NEW}\n"},
    {"deploy/values.yaml": f"image:\n  repository: {NGC}\n  tag: 26.06-py3\n", "Dockerfile": f"FROM {NEW}\n"},
    {"deploy/kustomization.yaml": f"images:\n- name: {NGC}\n  newTag: '26.06-py3'\n", "Dockerfile": f"FROM {NEW}\n"},
    {".github/workflows/ci.yml": f"env:\n  VER: '26.06'\njobs:\n  a:\n    container: {NGC}:${{{{ env.VER }}}}-py3\n"},
]


@pytest.mark.parametrize("texts", SPLIT, ids=[next(iter(texts)) for texts in SPLIT])
def test_a_tag_apart_from_its_repository_is_drafted_and_moves(texts):
    found = [replace(one, role="lockstep") for one in sorted_out(texts.items()) if one.reference.read_tag]
    repository = pins_file.parse(draft(found, texts).text, "x/y")
    made = plan(texts, repository.sites, repository.sites.family.read("26.08-py3"), "dev")
    after = {edit.path: edit.after for edit in made.edits}
    assert after == {path: text.replace("26.06", "26.08") for path, text in texts.items()}


@pytest.mark.parametrize(
    ("comment", "role"),
    [
        (f"# as {NEW}", "follow"),
        (f"# as {OLD}", "ignore"),
        ("# squashed from pytorch:26.06-py3", "follow"),
        ("# nvcr.io/nvidia/nemo:26.06", "ignore"),
    ],
)
def test_a_comment_follows_the_pin_that_it_repeats(comment, role):
    texts = {"Dockerfile": f"{comment}\nFROM {NEW}\n", "other/Dockerfile": f"{comment}\nFROM {NGC}:25.01-py3\n"}
    assert [role for path, _, role in called(texts)] == [role, "lockstep dev", "ignore", "informational"]


def test_a_constant_in_a_script_of_ci_is_a_pin():
    texts = {"ci/local.py": f'IMAGE = "{NEW}"\n', "tools/local.py": f'IMAGE = "{NEW}"\n'}
    assert [role for _, _, role in called(texts)] == ["lockstep dev", "informational"]


def test_an_issue_template_is_for_people():
    assert called({".github/ISSUE_TEMPLATE/bug.yml": f"image: {NEW}\n"})[0][2] == "informational"


def test_editions_are_not_compared():
    texts = {"Dockerfile": DOCKERFILE, "igpu.Dockerfile": f"FROM {NGC}:25.01-py3-igpu\n"}
    assert [role for _, _, role in called(texts)] == ["lockstep dev"] * 2
    groups = drafted(texts)[2].sites.groups
    assert [(group.name, group.edition, group.alone) for group in groups] == [
        ("pytorch-py3-igpu", "py3-igpu", False), ("pytorch-py3", "py3", False),
    ]  # fmt: skip


@pytest.mark.parametrize(("tag", "alone"), [("26.06-py3", False), ("26.05-py3", True)])
def test_images_that_never_moved_belong_together_if_they_have_the_same_tag(tag, alone):
    texts = {"Dockerfile": DOCKERFILE, "triton.Dockerfile": f"FROM nvcr.io/nvidia/tritonserver:{tag}\n"}
    assert [group.alone for group in drafted(texts)[2].sites.groups] == [False, alone]


def test_a_version_moves_no_other_image_that_has_versions_too():
    texts = {"a.Dockerfile": "FROM nvcr.io/nvidia/driver:580.65.06-ubuntu20.04\n"}
    assert [group.alone for group in drafted(texts)[2].sites.groups] == [False]
    texts["b.Dockerfile"] = "FROM nvcr.io/nvidia/k8s/container-toolkit:v1.18.0-ubuntu20.04\n"
    repository = drafted(texts)[2]
    assert [group.alone for group in repository.sites.groups] == [True, True]
    for tag, image in {"v1.19.1-ubuntu20.04": "container-toolkit", "590.48.01-ubuntu20.04": "driver"}.items():
        assert [group.name for group in repository.of_group("", tag).sites.groups] == [image]
    texts["months.Dockerfile"] = "FROM nvcr.io/nvidia/tools/evaluator:25.08-ubuntu24.04\n"
    assert [group.name for group in drafted(texts)[2].of_group("", "v1.19.1-ubuntu20.04").sites.groups] == [
        "container-toolkit"
    ]
    texts["c.Dockerfile"] = "FROM nvcr.io/nvidia/k8s/device-plugin:v1.2.0-ubuntu20.04\n"
    with pytest.raises(RunbookError, match="name one of device-plugin, container-toolkit as group"):
        drafted(texts)[2].of_group("", "v1.19.1-ubuntu20.04")


def test_rows_of_a_matrix_that_name_several_tags_need_not_move_together():
    rows = "".join(f"          - base: {NGC}:{month}-py3\n" for month in ("24.08", "25.01", "26.06"))
    head = "jobs:\n  x:\n    strategy:\n      matrix:\n        include:\n"
    texts = {".github/workflows/x.yml": head + rows}
    assert [role for _, _, role in called(texts)] == ["informational", "informational", "lockstep dev"]


@pytest.mark.parametrize(
    ("reference", "role"),
    [
        (f"{NGC}:26.06-py3", "lockstep dev"),
        (NGC, "ignore"),
        (f"{NGC}:latest", "ignore"),
        (f"{NGC}:YY.MM-py3", "ignore"),
        (f"{NGC}:${{TAG}}", "ignore"),
        (f"{NGC}@sha256:{'0' * 64}", "ignore"),
        ("registry.local/nvidia/pytorch:26.06-py3", "lockstep dev"),
        ("$REGISTRY/nvidia/pytorch:26.06-py3", "ignore"),
        ("nvidia/pytorch:26.06-py3", "ignore"),
        ("nvcr.io/nvidia/nemo:26.08.rc5", "lockstep dev"),
        ("nvcr.io/nvidia/nemo:dev", "ignore"),
        (f"{NGC}:26.06-py3@sha256:{'0' * 64}", "lockstep dev"),
    ],
)
def test_only_a_definite_image_is_a_pin(reference, role):
    assert [one.full_role for one in sorted_out([("Dockerfile", f"FROM {reference}\n")])] == [role]


def test_each_image_has_a_newest_of_its_own():
    texts = {
        "a/Dockerfile": "FROM nvcr.io/nvidia/nemo:25.09",
        "b/Dockerfile": f"FROM {NEW}",
        "c/Dockerfile": f"FROM {OLD}",
    }
    assert [role for _, _, role in called(texts)] == ["lockstep dev", "lockstep dev", "informational"]


# -- the draft -------------------------------------------------------------------------------------------------------


def drafted(texts):
    """The pins that the draft's own file finds, as (path, line, role), and the draft."""
    found = sorted_out(texts.items())
    made = draft(found, texts)
    repository = pins_file.parse(made.text, "x/y")
    pins = set()
    for read in sites.read(texts, repository.sites):
        assert not read.problem
        pins |= {(pin.site.path, pin.location.start, pin.site.role) for pin in read.pins}
    return pins, made, repository


def expected(texts, image=NGC):
    return {
        (one.path, one.reference.start, one.full_role)
        for one in sorted_out(texts.items())
        if one.reference.image == image and one.role in ("lockstep", "follow", "informational")
    }


EVERYTHING = {
    ".gitlab/build.yml": MATRIX,
    ".github/workflows/build.yml": WORKFLOW,
    "docker/Dockerfile": DOCKERFILE,
    "docker/.version.lts": OLD,
    "README.md": f"Run {OLD}, or `{NEW}`.\nTags are {NGC}:YY.MM-py3.",
    "guide.md": f"Run {OLD}, or\n\n    {OLD}",
    "a [b]/Dockerfile": f"FROM {OLD}\n",
    "cards/card.yaml": f"base: {OLD}",
    "srun.sh": "srun nvcr.io#nvidia/pytorch:20.12-py3",
}


def test_the_draft_finds_what_was_found():
    pins, made, repository = drafted(EVERYTHING)
    left = {"a [b]/Dockerfile"}
    assert pins >= {pin for pin in expected(EVERYTHING) if pin[0] not in left and pin[0] != "README.md"}
    assert pins <= expected(EVERYTHING)
    assert {sentence.rpartition(":")[0].rpartition(":")[0] for sentence in made.left_out} >= left
    assert "#   cards/card.yaml" in made.text
    assert made.text.count("path: guide.md") == 1
    assert (repository.sites.image, repository.sites.family.name) == (NGC, "NGC PyTorch")


def test_the_draft_and_the_table_agree_on_who_reads_it():
    texts = {"docker/Dockerfile": f"FROM {NEW}\n", "docker/Dockerfile.linting": f"FROM {OLD}\n"}
    found = sorted_out([*texts.items(), ("README.md", f"Run {OLD}.\n")])
    assert "a build reads it" in next(one.reason for one in found if one.path.endswith("linting"))
    pins = pins_file.parse(draft(found, texts | {"README.md": f"Run {OLD}.\n"}).text, "x/y").sites.pins
    assert {pin.path: pin.ci for pin in pins} == {
        "docker/Dockerfile": "github", "docker/Dockerfile.linting": "github", "README.md": "people",
    }  # fmt: skip


def test_no_place_is_drafted_twice():
    texts = {"Dockerfile": DOCKERFILE, "b/Dockerfile": f"FROM {OLD}\nRUN echo {OLD}"}
    made = draft(sorted_out(texts.items()), texts)
    assert [site.finder.count for site in pins_file.parse(made.text, "x/y").sites.pins] == [1, 1, 1]


def test_a_value_that_is_more_than_the_image_is_found_another_way():
    digest = f"@sha256:{'0' * 64}"
    texts = {
        "Dockerfile": f"ARG BASE={NEW},\nFROM x",
        "b/Dockerfile": f"ARG BASE={NEW}{digest}\nFROM $BASE",
        ".github/workflows/x.yml": f"jobs:\n  x:\n    container: {OLD} (x)",
    }
    pins, made, _ = drafted(texts)
    assert pins == expected(texts)
    assert made.text.count("{regex: ") == 2


def test_the_draft_names_the_target_of_an_argument():
    _, _, repository = drafted(EVERYTHING)
    (dead,) = sites.dead_arguments(EVERYTHING, sites.read(EVERYTHING, repository.sites))
    assert "declares no ARG OTHER" in dead[1]


def test_the_draft_is_for_the_image_that_most_pins_name():
    texts = {"a/Dockerfile": "FROM nvcr.io/nvidia/nemo:26.06"} | {
        f"{name}.md": "Run nvcr.io/nvidia/nemo:26.06" for name in "xy"
    }
    assert drafted(texts)[2].sites.image == "nvcr.io/nvidia/nemo"
    _, made, repository = drafted(texts | {"b/Dockerfile": f"FROM {NEW}", "c/Dockerfile": f"FROM {NEW}"})
    assert [group.image for group in repository.sites.groups] == [NGC, "nvcr.io/nvidia/nemo"]
    assert [(pin.path, pin.group) for pin in repository.sites.pins if pin.lockstep] == [
        ("b/Dockerfile", "pytorch"), ("c/Dockerfile", "pytorch"), ("a/Dockerfile", "nemo"),
    ]  # fmt: skip
    assert made.chosen[1].startswith("Drafted for nvcr.io/nvidia/nemo: 1 pin of 3")


def test_nothing_is_drafted_where_nothing_reads_an_image():
    made = draft(sorted_out([("README.md", f"Run {NEW}")]), {"README.md": f"Run {NEW}"})
    assert made.text == ""
    assert made.chosen[0].startswith("Nothing is drafted")


LINES = [
    f"FROM {NEW}",
    f"FROM {OLD}",
    f"ARG BASE={NEW}",
    f"ARG BASE={OLD} LTS=1",
    f"  image: {OLD}",
    f"- {NEW}",
    "a:",
    "  b:",
    f"  - LTS: {OLD}",
    f"x: 'it''s' {NEW} # {OLD}",
    f'"{OLD}", "{NEW}"',
    f"{NGC}:YY.MM-py3",
    f"{NEW}x",
    "build-args: |",
    f"  BASE={NEW}",
    f"docker build --build-arg BASE={OLD} \\",
    "",
    "\t",
    "# lts",
    "---",
    f"{NGC}@sha256:{'a' * 64}",
    "é\udcff",
    "nvcr.io#nvidia/pytorch:26.06-py3",
    "nvcr.io/nvidia/nemo:26.06",
    f"[{OLD}](x) (?P<image>x) \\d {{{NEW}}}",
    "x: {",
    "\r",
]
NAMES = [
    "Dockerfile",
    ".github/workflows/x.yml",
    ".gitlab-ci.yml",
    "a b/'c'.sh",
    "README.md",
    "no: yes",
    "true",
    "lts.yaml",
    "é",
    "new\nline",
    '"',
    "a\\b",
    "*.md",
    "-",
    "~",
    "1.5",
    "examples/Dockerfile",
]


def steps(path, text):
    """How many lines of Python finding and drafting take."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    re.purge()  # or the second count lacks the compilation of what the first has compiled
    sys.settrace(trace)
    try:
        draft(sorted_out([(path, text)]), {path: text})
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("a.yaml", f"image: {OLD}\n"),
        (".gitlab-ci.yml", f"  - image: {OLD}\n    lts: x\n"),
        (".gitlab-ci.yml", f"j{{at}}:\n  image: {OLD}\n"),
        (".github/workflows/a.yml", f"          X={OLD}\n"),
        (".github/workflows/a.yml", f"          build-args: X={OLD}\n          x{{at}}: 1\n"),
        ("Dockerfile", f"  && echo {OLD} \\\n"),
        ("Dockerfile", f"ARG A{{at}}={OLD}\n"),
        ("Dockerfile", f"FROM {OLD} AS a{{at}}\n"),
        ("a.md", f"- {OLD}\n"),
        ("a.sh", "docker pull host{at}.example.com/nvidia/pytorch:26.04-py3\n"),
    ],
)
def test_twice_as_many_references_take_twice_as_long(path, row):
    one, two = ("".join(row.replace("{at}", str(at)) for at in range(count)) for count in (120, 240))
    head = "build-args: |\n" if "X=" in row else "x:\n"
    assert steps(path, head + two) < 2.4 * steps(path, head + one)


def test_a_file_gets_no_more_entries_than_anybody_reads():
    text = "".join(f"job{at}:\n  image: {OLD}\n" for at in range(80))
    drafted = draft(sorted_out([(".gitlab-ci.yml", text)]), {".gitlab-ci.yml": text})
    assert drafted.text.count("- path:") == 50
    (sentence,) = drafted.left_out
    assert sentence.startswith(".gitlab-ci.yml: 30 more")


@example(
    {"Dockerfile": f"FROM {NEW}\nFROM {OLD}\nARG BASE={OLD} LTS=1\nnvcr.io/nvidia/nemo:26.06"}
)  # all of an image that no entry can move
@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(LINES), max_size=8).map("\n".join), max_size=4))
def test_every_draft_is_a_pins_file_that_finds_its_pins(texts):
    found = sorted_out(texts.items())
    made = draft(found, texts)
    if not made.text:
        assert made.left_out or not any(one.role == "lockstep" for one in found)
        return
    repository = pins_file.parse(made.text, "x/y")
    listed, count = set(), 0
    for site in repository.sites.pins:
        finder = site.finder.finder
        count += site.finder.count
        if isinstance(finder, UntrustedRegex):  # it would start a process for each
            finder = RegexMatches(re.compile(finder.pattern, re.MULTILINE), "")
        places = finder.find(texts[site.path], repository.sites.group_of(site).image)
        assert len(places) == site.finder.count
        listed |= {(site.path, place.start, site.role) for place in places}
    wanted = set().union(*(expected(texts, group.image) for group in repository.sites.groups))
    assert listed <= wanted
    assert len(listed) == count
    # A reference to an image that gets no group is left out too.
    images = {one.reference.image for one in found if one.role == "lockstep"}
    assert len(set().union(*(expected(texts, image) for image in images)) - listed) == len(made.left_out)


# -- the command -----------------------------------------------------------------------------------------------------


def git(place, *arguments):
    return subprocess.run(
        ["git", "-C", str(place), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def clone(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    place = tmp_path / "clone"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    commit(place, {"docker/Dockerfile": DOCKERFILE, "README.md": f"Run {OLD}.\n"})
    return place


def commit(place, texts):
    for path, text in texts.items():
        file = place / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    git(place, "add", "-A")
    git(place, "commit", "-qm", "x", "--allow-empty")


@pytest.fixture
def run(capsys):
    """Run ``runbook pins discover`` and return its exit status, output and error output."""

    def runs(*arguments):
        status = main(["pins", "discover", *map(str, arguments)])
        return status, *capsys.readouterr()

    return runs


def test_nothing_to_find(clone, run):
    commit(clone, {"docker/Dockerfile": "FROM python:3.12", "README.md": "nothing"})
    (clone / "untracked").write_text(NEW)
    status, out, _ = run(clone)
    assert status == 1
    assert out.startswith("No reference to an image of a known family was found in")
    assert run(clone, "--write")[0] == 1
    assert not (clone / ".base-image-pins.yaml").exists()
    assert json.loads(run(clone, "--json")[1])["references"] == []


def test_an_empty_repository(tmp_path, run):
    git(tmp_path, "init", "-q", "empty")
    git(tmp_path, "init", "-q", "--bare", "bare")
    assert run(tmp_path / "empty")[0] == 1
    status, _, error = run(tmp_path / "bare")
    assert status == 2
    assert "'HEAD' names no commit" in error


def test_a_file_that_git_cannot_search_is_reported(clone, run):
    dockerfiles = {"ci/Dockerfile": "25.01-py3", "other/Dockerfile": "25.02-py3"}
    commit(clone, {path: f"FROM nvcr.io/nvidia/pytorch:{tag}\n" for path, tag in dockerfiles.items()})
    blob = git(clone, "rev-parse", "HEAD:ci/Dockerfile")
    (clone / ".git/objects" / blob[:2] / blob[2:]).unlink()
    status, out, _ = run(clone, "--ref", "HEAD", "--json")
    assert status == 2
    result = json.loads(out)
    assert result["unreadable"] == ["ci/Dockerfile"]
    assert "other/Dockerfile" in {reference["path"] for reference in result["references"]}
    status, out, _ = run(clone, "--ref", "HEAD")
    assert status == 2
    assert "1 file could not be read" in out.splitlines()[-1] or "ci/Dockerfile could not be read" in out


def test_the_table_and_the_draft_are_shown(clone, run):
    status, out, _ = run(clone / "docker")
    assert status == 0
    lines = out.splitlines()
    assert [line.split()[:4] for line in lines[:3]] == [
        ["call", "it", "place", "seems"],
        ["lockstep", "dev", "docker/Dockerfile:2", "dockerfile-arg"],
        ["informational", "README.md:1", "documentation", "in"],
    ]
    assert lines[1].endswith(NEW)
    assert "2 references in 2 files (work tree): 1 lockstep dev, 1 informational." in lines
    text = out[out.index("# Drafted by") :]
    assert pins_file.parse(text, "x/y").sites.pins[0].path == "docker/Dockerfile"
    assert not (clone / ".base-image-pins.yaml").exists()


def test_the_draft_is_written_once(clone, run):
    file = clone / repositories.FILE
    status, out, _ = run(clone, "--write")
    assert status == 0
    assert f"Written to {file}." in out
    before = file.read_bytes()
    commit(clone, {})
    status, out, error = run(clone, "--write")
    assert (status, out) == (2, "")
    assert f"{file} exists" in error
    assert file.read_bytes() == before
    assert run(clone)[0] == 0  # the file itself names the image, and is no trouble


@pytest.mark.parametrize("texts", [bridge(), ml_containers(), layout(4)], ids=["bridge", "ml-containers", "lm"])
def test_a_repository_that_is_known_is_called_as_check_calls_it(tmp_path, run, capsys, texts):
    git(tmp_path, "init", "-q", "-b", "main", "clone")
    place = tmp_path / "clone"
    commit(place, {path: text for path, text in texts.items() if text is not None})
    main(["check", str(place), "--json"])
    (checked,) = json.loads(capsys.readouterr().out)["refs"]
    status, out, _ = run(place, "--json")
    found = json.loads(out)
    called = {(it["path"], it["line"]): it["role"] for it in found["references"]}
    assert status == 0
    assert {(it["path"], it["line"]): it["role"] for it in checked["pins"]}.items() <= called.items()
    assert any("built in" in note for note in found["notes"])
    status, _, error = run(place, "--write")
    assert (status, (place / repositories.FILE).exists()) == (2, False)
    assert "--replace-known" in error
    assert run(place, "--write", "--replace-known")[0] == 0
    assert pins_file.parse((place / repositories.FILE).read_text(), "x/y").sites.pins
    assert "built in" not in run(place)[1]  # its own file is what counts now


def test_a_dead_build_argument_of_a_known_repository_is_reported(tmp_path, run):
    git(tmp_path, "init", "-q", "-b", "main", "clone")
    commit(tmp_path / "clone", {path: text for path, text in bridge().items() if text is not None})
    dead = [line for line in run(tmp_path / "clone")[1].splitlines() if "does nothing" in line]
    assert len(dead) == 1
    assert dead[0].startswith("informational ")


def test_a_draft_with_digests_pins_them_everywhere(clone, run):
    commit(
        clone, {"a/Dockerfile": f"FROM {NEW} AS base\n", ".github/workflows/a.yml": f"on: push\nenv:\n  IMAGE: {NEW}\n"}
    )
    assert run(clone, "--write", "--pin-digests")[0] == 0
    its_sites = pins_file.parse((clone / repositories.FILE).read_text(), "x/y").sites
    texts = Checkout.open(clone).read(its_sites.paths)
    target = its_sites.groups[0].target(NEW.rpartition(":")[2])
    made = plan(texts, its_sites, target, "dev", digest_of_target=lambda _: f"sha256:{'1' * 64}")
    assert len(made.changes) == sum(site.lockstep for site in its_sites.pins) > 2
    assert all(change.new.endswith("1" * 64) for change in made.changes)


def test_concurrently_created_files_are_not_overwritten(clone, run, monkeypatch):
    file = clone / repositories.FILE
    monkeypatch.setattr(discover.os.path, "lexists", lambda path: file.write_text("mine") and False)
    status, _, error = run(clone, "--write")
    assert (status, file.read_text()) == (2, "mine")
    assert f"{file} exists" in error
    assert list(clone.glob(".*.tmp")) == []


def test_a_file_without_hard_links_is_written_too(clone, run, monkeypatch):
    def link(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("os.link", link)
    assert run(clone, "--write")[0] == 0
    assert pins_file.parse((clone / repositories.FILE).read_text(), "x/y").sites.pins
    monkeypatch.setattr(discover.os.path, "lexists", lambda path: False)
    assert run(clone, "--write")[0] == 2


def test_a_dangling_link_is_not_overwritten(clone, run):
    (clone / repositories.FILE).symlink_to("nowhere")
    assert run(clone, "--write")[0] == 2
    assert not (clone / "nowhere").exists()


def test_nothing_is_written_that_no_one_could_use(clone, run):
    commit(clone, {"docker/Dockerfile": "FROM python:3.12"})
    status, _, error = run(clone, "--write")
    assert status == 2
    assert "Nothing is drafted" in error


def test_a_ref_is_searched_without_checking_it_out(clone, run):
    git(clone, "tag", "before")
    commit(clone, {"docker/Dockerfile": "FROM python:3.12", "a\nb\"'ü/Dockerfile": f"FROM {NEW}"})
    assert len(json.loads(run(clone, "--json", "--ref", "before")[1])["references"]) == 2
    for options in ([], ["--ref", "main"]):
        found = json.loads(run(clone, "--json", *options)[1])
        assert [one["path"] for one in found["references"]] == ["a\nb\"'ü/Dockerfile", "README.md"]
        assert found["commit"] == (git(clone, "rev-parse", "main") if options else None)
    status, out, _ = run(clone)
    assert status == 0
    assert "a\\nb\"'ü/Dockerfile:1" in out
    status, _, error = run(clone, "--ref", "nosuch")
    assert (status, "'nosuch' names no commit" in error) == (2, True)
    status, _, error = run(clone, "--ref", "before", "--write")
    assert (status, "without --ref" in error) == (2, True)


@pytest.mark.parametrize(
    ("path", "line", "role"),
    [
        (".github/workflows/x.yml", "run: IMAGE=$(jq -r .base docker/images.json)", "lockstep dev"),
        (".github/workflows/x.yml", "run: cat ./docker/images.json | jq .base", "lockstep dev"),
        (".gitlab-ci.yml", 'script: ["jq .base $CI_PROJECT_DIR/docker/images.json"]', "lockstep dev"),
        ("ci/Dockerfile.x", "RUN jq -r .base < ${ROOT}/docker/images.json", "lockstep dev"),
        ("Jenkinsfile", "def images = readJSON file: 'docker/images.json'", "lockstep dev"),
        (".github/workflows/x.yml", "key: ${{ hashFiles('docker/images.json') }}", "informational"),
        (".github/workflows/x.yml", "run: cat other/docker/images.json", "informational"),
        (".github/workflows/x.yml", "run: cat docker/images.json.bak docker/images.json-old", "informational"),
        (".github/workflows/x.yml", "run: cat images.json", "informational"),
        ("README.md", "Run `jq -r .base docker/images.json`", "informational"),
    ],
)
def test_a_value_in_a_file_that_ci_reads_is_a_pin(clone, run, path, line, role):
    commit(clone, {"docker/images.json": f'{{"base": "{NEW}"}}', path: f"x:\n  {line}\n"})
    roles = {entry["path"]: entry["role"] for entry in json.loads(run(clone, "--json")[1])["references"]}
    assert roles["docker/images.json"] == role


@pytest.mark.parametrize(
    ("path", "line", "pins"),
    [
        (".github/workflows/x.yml", "run: contrib/build.sh --push", {"contrib/build.sh", "contrib/Dockerfile"}),
        (".ci/x.yml", "run: bash ./contrib/build.sh", {"contrib/build.sh", "contrib/Dockerfile"}),
        (".github/workflows/x.yml", "file: contrib/Dockerfile", {"contrib/Dockerfile"}),
        (".github/workflows/x.yml", "run: docker build -f ./contrib/Dockerfile .", {"contrib/Dockerfile"}),
        (".github/workflows/x.yml", "run: other/contrib/build.sh", set()),
        (".github/workflows/x.yml", "run: contrib/build.sh.bak", set()),
        (".github/CODEOWNERS", "contrib/build.sh @a", set()),
        (".github/labeler.yml", "- contrib/build.sh", set()),
        ("other.Dockerfile", "# docker build -f contrib/Dockerfile .", set()),
        ("README.md", "Run contrib/build.sh.", set()),
    ],
)
def test_files_that_ci_runs_or_builds_have_pins_in_any_folder(clone, run, path, line, pins):
    files = {
        "contrib/build.sh": f'IMAGE={NEW}\ndocker build -f "$(dirname $0)/Dockerfile" .\n',
        "contrib/Dockerfile": f"ARG IMAGE={NEW}\nFROM $IMAGE\n",
        "contrib/other/Dockerfile": f"FROM {NEW}\n",
        "examples/run.sh": f"docker run {NEW}\n",
    }
    commit(clone, files | {path: f"x:\n  {line}\n"})
    found = json.loads(run(clone, "--json", "--no-history")[1])["references"]
    assert {entry["path"] for entry in found if entry["role"].startswith("lockstep")} - {"docker/Dockerfile"} == pins


def test_past_bumps_show_what_moves_together(clone, run):
    """Of two bumps and another commit, the Dockerfile and the README take part in both, the script in none."""

    def texts(month):
        return {"docker/Dockerfile": f"FROM {NGC}:{month}-py3\n", "README.md": f"# x\nUse {NGC}:{month}-py3 now.\n"}

    commit(clone, texts("25.01") | {"run.sh": f"docker run {NGC}:25.01-py3\n"})
    for month in ("25.02", "25.03"):
        commit(clone, {"docker/Dockerfile": texts(month)["docker/Dockerfile"]})
        commit(clone, {"README.md": texts(month)["README.md"]})
        commit(clone, {"other": month})
    last = git(clone, "rev-parse", "HEAD~1")

    def roles(*options):
        found = json.loads(run(clone, "--json", *options)[1])
        return {entry["path"]: (entry["role"], entry["history"]) for entry in found["references"]}

    assert roles("--no-history") == {
        "docker/Dockerfile": ("lockstep dev", ""), "README.md": ("informational", ""), "run.sh": ("informational", ""),
    }  # fmt: skip
    assert roles() == {
        "docker/Dockerfile": ("lockstep dev", f"moved in 2 of 2 bumps, last {git(clone, 'rev-parse', 'HEAD~2')[:10]}"),
        "README.md": ("follow", f"moved in 2 of 2 bumps, last {last[:10]}"),
        "run.sh": ("informational", "moved in 0 of 2 bumps"),
    }
    draft = json.loads(run(clone, "--json")[1])["draft"]
    assert "kind: follow" in draft
    assert f"# line 2; moved in 2 of 2 bumps, last {last[:10]}" in draft
    sites_of_draft = pins_file.parse(draft, "x/y").sites
    assert [site.role for site in sites_of_draft.pins] == ["lockstep dev", "follow", "informational"]


def test_a_reference_that_lost_its_tag_no_longer_moves(clone, run):
    nemo = "nvcr.io/nvidia/nemo"
    for month in ("25.07", "25.09", "25.11"):
        commit(clone, {"docker/Dockerfile": f"FROM {nemo}:{month}\n", "README.md": f"Use {nemo}:{month} now.\n"})
    commit(clone, {"README.md": f"Use {nemo} now.\n"})
    status, out, _ = run(clone, "--json")
    assert status == 0
    found = {entry["path"]: entry["role"] for entry in json.loads(out)["references"]}
    assert found == {"docker/Dockerfile": "lockstep dev", "README.md": "ignore"}


BARE = {
    "ci/variables.yml": "variables:\n  CI_TAG: {}\n  SIZE: 5\n",
    "settings.env": "TAG={}\n",
    "docs/install.md": "We test with {}.\n",
    "tests/test_tag.py": 'TAG = "{}"\n',
}


def test_a_tag_without_a_name_is_found_where_a_bump_moved_it(clone, run):
    """What no bump moved, moved by itself or names another month is not."""
    for number, month in enumerate(("25.01", "25.02", "25.03")):
        texts = {path: text.format(f"{month}-py3") for path, text in BARE.items()}
        texts["Dockerfile"] = f"FROM {NGC}:{month}-py3\n"
        texts["never.env"] = "TAG=25.03-py3\n"
        commit(clone, texts | ({"README.md": "", "docker/Dockerfile": "FROM x\n"} if number == 0 else {}))
        commit(clone, {"apart.env": f"TAG={month}-py3\n"})
    found = json.loads(run(clone, "--json")[1])
    assert {entry["path"]: entry["role"] for entry in found["references"]} == {
        "Dockerfile": "lockstep dev", "ci/variables.yml": "lockstep dev", "settings.env": "lockstep dev",
        "docs/install.md": "follow", "tests/test_tag.py": "follow",
    }  # fmt: skip
    assert {entry["image"] for entry in found["references"]} == {NGC}
    sites_of_draft = pins_file.parse(found["draft"], "x/y").sites
    texts = Checkout.open(clone).read(sites_of_draft.paths)
    edits = plan(texts, sites_of_draft, sites_of_draft.groups[0].target("25.04-py3"), "dev").edits
    assert {edit.path: edit.after for edit in edits if edit.path in BARE} == {
        path: text.format("25.04-py3") for path, text in BARE.items()
    }
    for options in (["--no-history"], ["--ref", "HEAD~5"]):
        listed = json.loads(run(clone, "--json", *options)[1])["references"]
        assert [entry["path"] for entry in listed] == ["Dockerfile"]
    in_commit = json.loads(run(clone, "--json", "--ref", "HEAD")[1])["references"]
    assert in_commit == found["references"]


def test_a_tag_without_a_name_is_of_the_image_that_moved_with_it(clone, run):
    server = "nvcr.io/nvidia/tritonserver"
    commit(clone, {"docker/Dockerfile": "FROM x\n", "README.md": ""})
    for month in ("25.01", "25.02", "25.03"):
        commit(clone, {"z/Dockerfile": f"FROM {server}:{month}-py3\n", "tag.env": f"TAG={month}-py3\n"})
        commit(clone, {"a/Dockerfile": f"FROM {NGC}:{month}-py3\n"})
    found = json.loads(run(clone, "--json")[1])["references"]
    assert {entry["path"]: entry["image"] for entry in found} == {
        "z/Dockerfile": server, "a/Dockerfile": NGC, "tag.env": server,
    }  # fmt: skip


def test_the_last_bumps_say_more_than_the_first(clone, run):
    """What people have begun to move, they go on to move; what has moved now and then stays for people to see."""

    def text(path, month):
        head = {"docker/Dockerfile": "FROM ", "results/run.yaml": "tag: "}.get(path, "Use ")
        return f"{head}{NGC}:{month}-py3\n"

    since = {
        "docker/Dockerfile": (), "README.md": (1, 2), "sometimes.md": (1, 3, 5), "run.sh": (1,),
        "results/run.yaml": (1,), "results/run.md": (1,),
    }  # fmt: skip
    for number in range(6):
        moved = {path: f"25.0{number + 1}" for path, skipped in since.items() if number not in skipped}
        commit(clone, {path: text(path, month) for path, month in moved.items()})
    found = json.loads(run(clone, "--json")[1])["references"]
    assert {entry["path"]: entry["role"] for entry in found} == {
        "docker/Dockerfile": "lockstep dev", "README.md": "follow", "sometimes.md": "informational",
        "run.sh": "lockstep dev", "results/run.yaml": "frozen", "results/run.md": "frozen",
    }  # fmt: skip


def test_references_that_a_program_may_read_are_pins_if_none_is_surely_read(clone, run):
    """The only places that name an image are its pins, if not for people, tests or the past."""
    commit(
        clone,
        {
            "docker/Dockerfile": "FROM python:3.12\n",
            "README.md": f"Run {NEW}.\n",
            "Makefile": f"IMAGE = {NEW}\n",
            "lib/defaults.py": f'IMAGE = "{NEW}"\n',
            "examples/run.sh": f"docker run {NEW}\n",
            "tests/test_run.py": f'IMAGE = "{NEW}"\n',
        },
    )
    draft_text = json.loads(run(clone, "--json")[1])["draft"]
    lockstep = {site.path for site in pins_file.parse(draft_text, "x/y").sites.pins if site.lockstep}
    assert lockstep == {"Makefile", "lib/defaults.py"}


def test_the_group_with_the_newest_tag_moves_if_groups_moved_separately(clone, run):
    """The one that moved more often is moved only by its name."""
    commit(clone, {"docker/Dockerfile": "FROM x\n", "README.md": ""})
    for path, months in {"a/Dockerfile": ("25.01", "25.02", "25.03"), "z/Dockerfile": ("25.01", "25.04")}.items():
        for month in months:
            commit(clone, {path: f"ARG X={NGC}:{month}-py3\nFROM $X\n"})
    draft_text = json.loads(run(clone, "--json")[1])["draft"]
    its_sites = pins_file.parse(draft_text, "x/y").sites
    paths = {site.group: site.path for site in its_sites.pins if site.lockstep}
    assert {paths[group.name]: group.alone for group in its_sites.groups} == {
        "z/Dockerfile": False,
        "a/Dockerfile": True,
    }


def test_images_of_one_version_move_together_and_leave_another_ones(clone, run):
    product, other = ("nvcr.io/acme/server", "nvcr.io/acme/worker"), "nvcr.io/other/reader"
    for version, of_other in (("2.3.0", "1.1.0"), ("2.4.0", "1.1.0"), ("2.4.0", "1.2.0")):
        texts = {f"{image[-6:]}/Dockerfile": f"FROM {image}:{version}\n" for image in product}
        texts["other/Dockerfile"] = f"FROM {other}:{of_other}\n"
        commit(clone, texts | {"docker/Dockerfile": "", "README.md": ""})
    repository = pins_file.parse(json.loads(run(clone, "--json")[1])["draft"], "x/y")
    for tag, images in (("2.5.0", set(product)), ("1.3.0", {other})):
        assert {group.image for group in repository.of_group("", tag).sites.groups} == images


def test_a_project_of_a_collection_moves_by_its_name(clone, run):
    names = ("a", "b", "c")
    texts = {f"{name}/Dockerfile": f"FROM {NGC}:25.0{number}-py3\n" for number, name in enumerate(names, 1)}
    commit(clone, texts | {"docker/Dockerfile": "", "README.md": ""})
    repository = pins_file.parse(json.loads(run(clone, "--json")[1])["draft"], "x/y")
    assert [site.path for site in repository.of_group("pytorch-b", "26.06-py3").sites.pins] == ["b/Dockerfile"]
    with pytest.raises(RunbookError, match="fits several groups that move alone"):
        repository.of_group("", "26.06-py3")
    texts[".github/workflows/x.yml"] = "jobs:\n  x:\n    container: nvcr.io/nvidia/tritonserver:25.01-py3\n"
    commit(clone, texts)
    (in_ci,) = (
        pins_file.parse(json.loads(run(clone, "--json")[1])["draft"], "x/y").of_group("", "26.06-py3").sites.groups
    )
    assert in_ci.image == "nvcr.io/nvidia/tritonserver"


def test_the_tag_of_a_month_does_not_fit_an_image_of_versions(clone, run):
    nemo, server = "nvcr.io/nvidia/nemo", "nvcr.io/nvidia/tensorrt-llm/release"
    for month, version in (("26.02", "1.3.0rc12"), ("26.02", "1.3.0rc16"), ("26.04", "1.3.0rc16")):
        texts = {"docker/Dockerfile": f"FROM {server}:{version}\n", "a/Dockerfile": f"FROM {server}:{version}\n"}
        commit(clone, texts | {"README.md": "", "nemo/Dockerfile": f"FROM {nemo}:{month}\n"})
    repository = pins_file.parse(json.loads(run(clone, "--json")[1])["draft"], "x/y")
    for tag, image in (("26.06", nemo), ("1.3.0rc19", server)):
        (group,) = repository.of_group("", tag).sites.groups
        assert group.image == image


def test_a_pin_that_bumps_left_behind_is_informational(clone, run):
    """A row that moved in one bump of three has reasons of its own."""
    for month in ("25.01", "25.02", "25.03", "25.04"):
        images = f"A={NGC}:{month}-py3\nB={NGC}:{min(month, '25.02')}-py3\n"
        commit(
            clone,
            {
                "docker/Dockerfile": "FROM x\n",
                "README.md": "",
                ".gitlab-ci.yml": "",
                "Dockerfile": "".join(f"ARG {line}\n" for line in images.split()),
            },
        )
    found = json.loads(run(clone, "--json")[1])["references"]
    assert [(entry["line"], entry["role"]) for entry in found] == [(1, "lockstep dev"), (2, "informational")]


def test_the_branch_is_searched_if_a_tag_has_the_same_name(clone, run):
    git(clone, "branch", "v1", "main")
    commit(clone, {"docker/Dockerfile": "FROM python:3.12"})
    git(clone, "tag", "v1")
    found = json.loads(run(clone, "--json", "--ref", "v1")[1])
    assert found["commit"] == git(clone, "rev-parse", "refs/heads/v1")
    assert "refs/tags/v1" in found["notes"][0]


def test_a_bare_and_a_shallow_clone(clone, run, tmp_path):
    commit(clone, {})
    git(tmp_path, "clone", "-q", "--bare", "clone", "bare.git")
    git(tmp_path, "clone", "-q", "--depth=1", clone.as_uri(), "shallow")
    status, out, _ = run(tmp_path / "bare.git")
    assert status == 0
    assert "HEAD was searched" in out
    assert run(tmp_path / "bare.git", "--write")[0] == 2
    status, out, _ = run(tmp_path / "shallow", "--ref", "HEAD")
    assert (status, "2 references in 2 files (HEAD)" in out) == (0, True)


def test_a_clone_with_nothing_checked_out(clone, run, tmp_path):
    subprocess.run(["git", "clone", "-q", "--no-checkout", clone, tmp_path / "bare"], check=True)
    status, out, _ = run(tmp_path / "bare")
    assert status == 0
    assert "HEAD was searched" in out
    assert run(tmp_path / "bare", "--write")[0] == 2


def test_no_repository(tmp_path, run, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for place, words in ((tmp_path, "not a git checkout"), (tmp_path / "nosuch", "There is no folder")):
        status, out, error = run(place)
        assert (status, out) == (2, "")
        assert words in error


def test_binary_files_are_not_searched(clone, run):
    commit(
        clone,
        {
            "blob.bin": b"\0" * 9 + NEW.encode(),
            "latin.md": b"\xe9 " + NEW.encode() + b" \xff\x1b[31m",
            b"\xff\x1b.md": NEW,
            "long.json": b'"' + b"x" * 3_000_000 + b" " + OLD.encode() + b'"',
            "late.bin": NEW.encode() + b"\n" * 9000 + b"\0",
        },
    )
    for options in ([], ["--ref", "HEAD"]):
        status, out, _ = run(clone, *options)
        assert status == 0
        assert "\x1b" not in out
        assert "blob.bin contains the name of an image" in out
        assert "6 references in 6 files" in out


def test_files_missing_from_the_work_tree(clone, run):
    (clone / "README.md").unlink()
    assert "1 reference in 1 file (work tree): 1 lockstep dev." in run(clone)[1]
    git(clone, "checkout", "-q", "README.md")
    git(clone, "sparse-checkout", "set", "--no-cone", "/README.md")
    status, out, _ = run(clone)
    assert status == 0
    assert "The work tree is sparse" in out
    assert "1 reference in 1 file (work tree): 1 informational." in out


def test_links_and_submodules_are_left_to_what_they_point_to(clone, run, tmp_path):
    git(tmp_path, "-c", "protocol.file.allow=always", "clone", "-q", "clone", "other")
    git(clone, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "other"), "sub")
    git(clone, "config", "submodule.recurse", "true")
    (clone / "link.md").symlink_to("README.md")
    commit(clone, {})
    for options in ([], ["--ref", "HEAD"]):
        assert "2 references in 2 files" in run(clone, *options)[1]


def test_an_index_that_cannot_be_read(clone, run):
    (clone / ".git" / "index").write_bytes(b"nonsense")
    status, out, error = run(clone)
    assert (status, out) == (2, "")
    assert "could not be searched. `git grep" in error


def test_a_file_that_may_not_be_read(clone, run, monkeypatch):
    def refuse(handle, name):
        os.close(handle)
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(atomic_files, "_content", refuse)
    status, _, error = run(clone)
    assert status == 2
    assert re.search(r"README.md in .* could not be read: Permission denied", error)


def test_the_file_has_one_name():
    assert discover.FILE == repositories.FILE


def test_pins_that_bumps_of_their_own_move_are_a_group(clone, run):
    """A Dockerfile and a workflow that never moved together, though they may name the same tag for a while."""
    workflow = ".github/workflows/ci.yml"
    for build, job_month in (
        ("24.01", "24.02"),
        ("24.05", "24.02"),
        ("24.05", "24.07"),
        ("24.09", "24.07"),
        ("25.01", "24.07"),
    ):
        texts = {"Dockerfile": f"FROM {NGC}:{build}-py3\n", "a.Dockerfile": f"FROM {NGC}:{build}-py3\n"}
        job = f"jobs:\n  a:\n    container:\n      image: {NGC}:{job_month}-py3\n"
        commit(clone, texts | {workflow: job})
    draft_text = json.loads(run(clone, "--json")[1])["draft"]
    repository = pins_file.parse(draft_text, "x/y")
    groups = {site.path: site.group for site in repository.sites.pins if site.lockstep}
    assert groups == {"Dockerfile": "pytorch", "a.Dockerfile": "pytorch", workflow: "pytorch-ci"}
    assert [group.alone for group in repository.sites.groups] == [False, True]


def test_a_tag_twice_on_one_line_moves_twice():
    texts = {"Dockerfile": f"# squashed from {NEW} to own:pytorch26.06-py3-small\nFROM {NEW}\n"}
    _, _, repository = drafted(texts)
    made = plan(texts, repository.sites, repository.sites.family.read("26.08-py3"), "dev")
    assert made.edits[0].after == texts["Dockerfile"].replace("26.06", "26.08")
