"""Pins files: read into pin sites, refused in words with line and key, and described by the schema that ships."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import pytest
import yaml
from elsewhere import PINS_FILE, own

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.families import COREWEAVE, NEMO, NGC, OTHER
from runbook_lib.pins import pins_file
from runbook_lib.pins import plan as pins
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import check_pins, outcome
from runbook_lib.pins.pins_file import parse
from runbook_lib.pins.plan import PinPlan
from runbook_lib.pins.repositories import TITLE

SCHEMA = json.loads((Path(pins_file.__file__).parent / "base-image-pins.schema.json").read_text())
SMALLEST = "version: 1\nimage: nvcr.io/nvidia/pytorch\npins:\n  - path: a/b\n    find: {arg: X}\n"
FIELDS = SCHEMA["definitions"]["pin"]["properties"]
TOP, PIN = "version: 1\nimage: nvcr.io/nvidia/pytorch\n", "pins:\n  - path: a\n    find: {arg: X}\n"


DIGEST = f"sha256:{'1' * 64}"


def planned(texts: Mapping[str, str | None], text: str, tag: str = "26.04-py3", *allowed: str) -> PinPlan:
    """The plan of a bump of a pins file's first image."""
    sites = parse(text, "a/b").sites
    read = sites.family.read
    return pins.plan(texts, sites, read(tag), "dev", allow=frozenset(allowed), digest_of_target=lambda: DIGEST)


def bumped(texts: Mapping[str, str | None], text: str, tag: str = "26.04-py3", *allowed: str) -> dict[str, str]:
    """The files that it changes."""
    return {edit.path: edit.after for edit in planned(texts, text, tag, *allowed).edits}


def valid(text: str) -> bool:
    """What an editor thinks of it."""
    return jsonschema.Draft7Validator(SCHEMA).is_valid(yaml.safe_load(text))


def test_the_smallest_file_has_all_defaults() -> None:
    it = parse(SMALLEST, "a/b")
    (site,) = it.sites.pins
    assert (it.name, it.title, it.ci.labels, it.origin) == (
        "a/b", "chore: Update Docker image version to {tag}", (), ".base-image-pins.yaml",
    )  # fmt: skip
    assert (site.path, site.role, site.ci, site.needs) == ("a/b", "lockstep dev", "github", "declared")
    assert it.sites.family is NGC
    assert valid(SMALLEST)
    assert it.inapplicable("05-golden-values") == "Not applicable: a/b has no golden values."


def test_every_way_finds_its_pins() -> None:
    it = parse(PINS_FILE, "a/b")
    assert valid(PINS_FILE)
    assert (it.title, it.ci.labels, it.sites.platforms) == ("build: base image {tag}", ("needs review",), ("amd64",))
    texts = {path: own().get(path) for path in it.sites.paths}
    found = [(v.site, v.role, v.state) for v in check_pins(texts, it.sites)]
    assert found == [
        ("Dockerfile:2", "lockstep dev", "in sync"),
        (".gitlab-ci.yml:3", "lockstep dev", "in sync"),
        (".github/workflows/ci.yml:6", "lockstep dev", "in sync"),
        ("image.txt:1", "informational", "lagging"),
        ("results/README.md:1", "frozen", "frozen"),
        ("results/README.md:2", "frozen", "frozen"),
    ]
    assert [site.ci for site in it.sites.pins] == ["github", "gitlab", "github", "people", "people"]


def test_a_bump_by_it_splices_and_dumps_nothing_back() -> None:
    assert own() | bumped(own(), PINS_FILE) == own("26.04-py3")


@pytest.mark.parametrize(
    ("image", "more", "family"),
    [
        ("nvcr.io/nvidia/nemo", "", NEMO),
        ("mirror.example.org/nvidia/pytorch", "", NGC),
        ("ghcr.io/coreweave/ml-containers/torch", "", COREWEAVE),
        ("docker.io/library/python", "family: other\n", OTHER),
        ("example.org/ours", "family: ngc\n", NGC),
    ],
)
def test_the_family_is_that_of_the_image_or_the_named_one(image: str, more: str, family: object) -> None:
    text = f"version: 1\nimage: {image}\n{more}{PIN}"
    assert parse(text, "a/b").sites.family is family
    assert valid(text)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("    find: {build-arg: BASE_IMAGE}\n    kind: frozen\n", "as frozen finds the same text"),
        ("    find: {regex: 'pytorch:(?P<image>.*)'}\n", "not a full image reference"),
        ("    find: {regex: '(?P<image>nvcr.*py)'}\n", "is not a tag of the monthly"),
        ("    find: {regex: 'IMAGE=.(?P<image>.*)'}\n", "layout, correct the pins file."),
    ],
)
def test_a_value_that_is_declared_twice_or_in_part_is_never_moved(more: str, says: str) -> None:
    text = f"{SMALLEST.replace('arg: X', 'arg: BASE_IMAGE')}  - path: a/b\n{more}"
    with pytest.raises(RunbookError) as told:
        bumped({"a/b": "ARG BASE_IMAGE=nvcr.io/nvidia/pytorch:26.02-py3\nFROM $BASE_IMAGE\n"}, text)
    assert says in str(told.value)


def test_a_value_that_a_person_declares_twice_moves_once() -> None:
    texts = {"a/b": "ARG X=nvcr.io/nvidia/pytorch:26.02-py3\nFROM $X\n"}
    (change,) = planned(texts, f"{SMALLEST}  - path: a/b\n    find: {{build-arg: X}}\n").changes
    assert change.selector == "ARG X; build-arg X"


def test_pins_that_only_people_read_move_with_the_github_step() -> None:
    it = parse(f"{SMALLEST}    read-by: people\n", "a/b")
    plan = planned({"a/b": "ARG X=nvcr.io/nvidia/pytorch:26.02-py3\n"}, f"{SMALLEST}    read-by: people\n")
    assert len(plan.part("github").changes) == 1
    assert (plan.part("gitlab").changes, plan.part("gitlab").edits) == ((), ())
    assert (it.inapplicable("01-github-pin"), it.inapplicable("02-gitlab-pin")[:14]) == ("", "Not applicable")
    alone = parse(f"{SMALLEST}    read-by: gitlab\n", "a/b")
    assert alone.inapplicable("01-github-pin") == "Not applicable: a/b has no pin outside of GitLab."


def test_tags_of_no_known_family_move_and_are_ordered_by_their_numbers() -> None:
    text = f"version: 1\nimage: docker.io/library/python\nfamily: other\n{PIN}"
    texts = {"a": "ARG X=docker.io/library/python:3.9-slim\nFROM $X\n"}
    assert len(planned(texts, text, "3.10-slim").changes) == 1
    with pytest.raises(RunbookError, match="older than the pin"):
        planned(texts, text, "3.8-slim")


BAD = [
    (f"---\n{SMALLEST}---\n{SMALLEST}", "expected a single document in the stream"),
    ("\ud800: 1\n", "does not parse as YAML"),
    (SMALLEST.replace("version: 1", "version: 2"), "pins.yaml:1: version is 2; expected 1, the only"),
    (SMALLEST.replace("pytorch", "pytorch:26.04-py3"), "expected nvcr.io/nvidia/pytorch, without tag and digest."),
    (SMALLEST.replace("nvcr.io/nvidia/pytorch", "pytorch"), "image is 'pytorch'; expected registry and repository"),
    (SMALLEST.replace("nvcr.io/nvidia/pytorch", "example.org/x"), "or the key family (ngc, nemo, coreweave"),
    (f"{TOP}family: NGC\n{PIN}", "pins.yaml:3: family is 'NGC'; expected ngc or nemo"),
    (f"{TOP}title: Bump\n{PIN}", "title is 'Bump'; expected one line with {tag} in it once"),
    (f"{TOP}title: '{{tag}} {{x}}'\n{PIN}", "and no other braces."),
    (f"{TOP}labels: a\n{PIN}", "labels is 'a'; expected a list."),
    (f"{TOP}labels: [[a]]\n{PIN}", "labels is ['a']; expected labels of one line."),
    (f'{TOP}labels: ["a\\nb"]\n{PIN}', "expected labels of one line."),
    (f'{TOP}title: "x\\u2028{{tag}}"\n{PIN}', "expected one line with {tag} in it once"),
    (f"{TOP}pins:\n  - path: .GIT/config\n    find: {{file: whole}}\n", "path is '.GIT/config'; expected one file"),
    (f'{TOP}pins:\n  - path: "a\\u2028b"\n    find: {{file: whole}}\n', "expected one file"),
    (f"{TOP}platforms: [arm]\n{PIN}", "expected amd64 or arm64 (did you mean arm64?)."),
    (f"{TOP}pins: []\n", "expected a list with at least one pin."),
    (f"{TOP}{PIN}    kind: frozen\n", "at least one pin of nvcr.io/nvidia/pytorch of the kind lockstep"),
    (f"{TOP}{PIN}    kind: lock\n", "expected lockstep or informational or frozen (did you mean lockstep?)."),
    (f"{TOP}{PIN}    count: 0\n", "count is 0; expected a number from 1 to 1000."),
    (
        f"{TOP}{PIN}    dockerfile: Dockerfile\n",
        "dockerfile is 'Dockerfile'; expected no dockerfile with find: {arg: …}",
    ),
    (SMALLEST.replace("a/b", "/etc/passwd"), "path is '/etc/passwd'; expected one file"),
    (SMALLEST.replace("a/b", "a/../../b"), "path is 'a/../../b'; expected one file"),
    (SMALLEST.replace("a/b", "'**/Dockerfile'"), "expected one file, from the repository's root"),
    (SMALLEST.replace("a/b", ".git/config"), "expected one file, from the repository's root"),
    (SMALLEST.replace("a/b", '"a\\n"'), "expected one file"),
    (SMALLEST.replace("{arg: X}", "{}"), "find is {}; expected exactly one of the ways arg, file"),
    (SMALLEST.replace("{arg: X}", "{arg: a-b}"), "arg is 'a-b'; expected the name of a build argument"),
    (SMALLEST.replace("{arg: X}", "{text: 'a'}"), "text is 'a'; expected a text with {image} or {tag} in it once"),
    (SMALLEST.replace("{arg: X}", "{text: '{tag} {image}'}"), "expected a text with {image} or {tag}"),
    (f"{TOP}{PIN}    family: ngc\n", "no family in a pin without an image of its own"),
    (f"{TOP}{PIN}    image: nvcr.io/nvidia/pytorch\n    family: other\n", "the family that the file gives this image"),
    (f"{TOP}{PIN}    image: a.b/c:1\n", "image is 'a.b/c:1'; expected a.b/c, without tag and digest."),
    (SMALLEST.replace("{arg: X}", "{yaml: a..b}"), "yaml is 'a..b'; expected keys and indexes"),
    (SMALLEST.replace("{arg: X}", "{regex: '(?P<image>x'}"), "it is not a valid RE2 expression: missing )"),
    (SMALLEST.replace("{arg: X}", "{regex: '(?<=a)(?P<image>x)'}"), "RE2 has no look-around"),
    (SMALLEST.replace("{arg: X}", "{regex: 'FROM (.*)'}"), "with a group (?P<image>…)"),
    (SMALLEST.replace("{arg: X}", f"{{regex: '(?P<image>{'a' * 1000})'}}"), "of at most 1000 characters"),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[says[:40] for _, says in BAD])
def test_an_invalid_file_is_refused_with_line_and_key(text: str, says: str) -> None:
    with pytest.raises(RunbookError, match=re.escape(says)):
        parse(text, "a/b")


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert tuple(SCHEMA["definitions"]["family"]["enum"]) == tuple(pins_file.FAMILIES)
    assert SCHEMA["properties"]["title"]["default"] == TITLE


@pytest.mark.parametrize(
    ("find", "before"),
    [
        ("find: {arg: TAG}\n    value: tag", "ARG TAG=26.02-py3\nFROM nvcr.io/nvidia/pytorch:$TAG\n"),
        ("find: {yaml: image.tag}\n    value: tag", "image:\n  repository: nvcr.io/x\n  tag: 26.02-py3\n"),
        ("find: {file: whole}\n    value: tag", "26.02-py3\n"),
        ("find: {text: 'newTag: {tag}'}", "- name: nvcr.io/nvidia/pytorch\n  newTag: 26.02-py3\n"),
        ("find: {text: 'FROM nvidia/x:{tag}'}", f"FROM nvidia/x:26.02-py3@{DIGEST} AS base\n"),
        ("find: {text: '{image} is used'}", "As nvcr.io/nvidia/pytorch:26.02-py3 is used.\n"),
        ("find: {regex: 'tag=(?P<tag>\\S+)'}", "job --tag=26.02-py3\n"),
    ],
)
def test_a_file_may_have_the_tag_alone(find: str, before: str) -> None:
    text = f"{TOP}pins:\n  - path: a\n    {find}\n"
    assert valid(text)
    sites = parse(text, "a/b").sites
    after = bumped({"a": before}, text)
    assert after == {"a": before.replace("26.02", "26.04")}
    assert bumped(after, text) == {}
    assert outcome(check_pins({"a": before}, sites, NGC.read("26.04-py3"))) == "out of sync"
    assert outcome(check_pins(after, sites, NGC.read("26.04-py3"))) == "in sync"


@pytest.mark.parametrize(
    ("find", "text", "says"),
    [
        ("{file: whole}, value: tag", "nvcr.io/nvidia/pytorch:26.02-py3", "not a full image reference"),
        ("{file: whole}", "26.02-py3", "not a full image reference"),
        (r"{regex: '(?P<image>nvcr\S+26.02-py3)'}", "nvcr.io/nvidia/pytorch:26.02-py3", "no longer find its pin"),
        (r"{regex: '(?P<image>nvcr[^@]+)'}", f"nvcr.io/nvidia/pytorch:26.02-py3@{DIGEST}", "a digest follows"),
    ],
)
def test_a_value_that_cannot_be_replaced_stops_the_plan(find: str, text: str, says: str) -> None:
    with pytest.raises(CannotTell, match=says):
        bumped({"a": text}, f"{TOP}pins: [{{path: a, find: {find}}}]\n")


@pytest.mark.parametrize("others", [("26.02-py3-igpu",), ("26.02-py3", "26.02-py3-igpu")])
def test_a_bump_moves_pins_of_one_edition(others: tuple[str, ...]) -> None:
    """With all of another edition the image changes its edition; with some, those are for another purpose."""
    text = f"{TOP}pins:\n  - {{path: a, find: {{text: 'FROM {{image}}'}}, count: {len(others)}}}\n"
    texts = {"a": "".join(f"FROM nvcr.io/nvidia/pytorch:{tag}\n" for tag in others)}
    if len(others) == 1:
        assert bumped(texts, text) == {"a": "FROM nvcr.io/nvidia/pytorch:26.04-py3\n"}
        return
    assert outcome(check_pins(texts, parse(text, "a/b").sites)) == "out of sync"
    with pytest.raises(
        CannotTell, match=r"a:2 \(text .* names 26.02-py3-igpu, which is of another edition than 26.04-py3"
    ):
        bumped(texts, text)


EDITIONS = f"""{TOP}pins:
  - {{path: a, find: {{text: 'FROM {{image}} AS base'}}, edition: py3}}
  - {{path: a, find: {{text: 'FROM {{image}} AS edge'}}, edition: py3-igpu}}
"""


def test_pins_of_several_editions_are_bumped_and_compared_edition_by_edition() -> None:
    def texts(base: str, edge: str) -> dict[str, str]:
        return {"a": f"FROM nvcr.io/nvidia/pytorch:{base} AS base\nFROM nvcr.io/nvidia/pytorch:{edge} AS edge\n"}

    assert valid(EDITIONS)
    sites = parse(EDITIONS, "a/b").sites
    old, half = texts("26.02-py3", "26.02-py3-igpu"), texts("26.04-py3", "26.02-py3-igpu")
    with pytest.raises(Refused, match=r"would stay behind: a:2 \(26.02-py3-igpu\).*what: other-edition"):
        bumped(old, EDITIONS, "26.04-py3")
    assert bumped(old, EDITIONS, "26.04-py3", "other-edition") == half
    assert bumped(half, EDITIONS, "26.04-py3-igpu") == texts("26.04-py3", "26.04-py3-igpu")
    assert [verdict.state for verdict in check_pins(half, sites)] == ["in sync", "in sync"]
    assert [verdict.state for verdict in check_pins(old, sites, NGC.read("26.04-py3"))] == ["out of sync", "in sync"]
    with pytest.raises(CannotTell, match=r"of the edition 'py3-min', and the pins of .* are of 'py3', 'py3-igpu'"):
        bumped(old, EDITIONS, "26.04-py3-min")
    wrong = texts("26.02-py3-igpu", "26.02-py3-igpu")
    assert check_pins(wrong, sites)[0].sentence.endswith("and its edition should be 'py3'.")
    with pytest.raises(CannotTell, match=r"a:1 .* is of another edition than 26.04-py3"):
        bumped(wrong, EDITIONS, "26.04-py3", "other-edition")


@pytest.mark.parametrize(
    ("image", "before", "tag"),
    [
        ("nvcr.io/nvidia/tensorrt-llm/release", ["1.1.0rc2.post2", "1.1.0rc2"], "1.2.0rc4"),
        ("nvcr.io/nvidia/nemo", ["24.03.01.framework", "24.05"], "24.07"),
        ("nvcr.io/nvidia/other", ["24.05-old-words"], "24.07"),
    ],
)
def test_a_post_release_or_an_ending_suffix_is_no_other_edition(image: str, before: list[str], tag: str) -> None:
    text = f"version: 1\nimage: {image}\npins: [{{path: a, find: {{text: '{image}:{{tag}}'}}, count: {len(before)}}}]\n"
    texts = {"a": "".join(f"{image}:{each}\n" for each in before)}
    assert bumped(texts, text, tag) == {"a": f"{image}:{tag}\n" * len(before)}


@pytest.mark.parametrize(
    ("path", "find", "before", "after"),
    [
        ("v.yaml", "{yaml: a.tag}", "a:\n  tag: 26.06\n", 'a:\n  tag: "26.10"\n'),
        ("v.yaml", "{yaml: a.tag}", 'a:\n  tag: "26.06" # x\n', 'a:\n  tag: "26.10" # x\n'),
        ("v.yaml", "{yaml: a.tag}", "a: {x: 1, tag: 26.06, y: 2}\n", 'a: {x: 1, tag: "26.10", y: 2}\n'),
        ("v.yaml", "{yaml: a.tag}", "a:\n  tag: !!str 26.06\n", "a:\n  tag: !!str 26.10\n"),
        ("v.json", "{yaml: a.tag}", '{"a":{"tag":26.06}}', '{"a":{"tag":"26.10"}}'),
        ("v.yaml", "{text: 'tag: {tag}'}", "a:\n  tag: 26.06\n", 'a:\n  tag: "26.10"\n'),
        ("v.yaml.tpl", "{text: 'tag: {tag}'}", "{{ if x }}\ntag: 26.06\n", '{{ if x }}\ntag: "26.10"\n'),
        ("v.yaml", "{text: 'TAG={tag}'}", "run: TAG=26.06 ./x\n", "run: TAG=26.10 ./x\n"),
        ("v.yaml", "{text: '# {tag}'}", "a: 1  # 26.06\n", "a: 1  # 26.10\n"),
        ("v.sh", "{text: 'tag: {tag}'}", "tag: 26.06\n", "tag: 26.10\n"),
    ],
)
def test_a_tag_that_yaml_reads_as_a_number_is_quoted(path: str, find: str, before: str, after: str) -> None:
    text = f"version: 1\nimage: nvcr.io/nvidia/nemo\npins: [{{path: {path}, find: {find}, value: tag}}]\n"
    sites = parse(text, "a/b").sites
    assert bumped({path: before}, text, "26.10") == {path: after}
    assert bumped({path: after}, text, "26.10") == {}
    assert [verdict.state for verdict in check_pins({path: after}, sites)] == ["in sync"]
    unquoted = after.replace('"26.10"', "26.10")
    if unquoted != after:
        (verdict,) = check_pins({path: unquoted}, sites)
        assert verdict.state == "out of sync"
        assert verdict.sentence.endswith('has no quotes, so YAML reads a number: write "26.10".')
        assert bumped({path: unquoted}, text, "26.10") == {path: after}


SEVERAL = """\
version: 1
image: nvcr.io/nvidia/pytorch
title: "build: {tag}"
pins:
  - {path: Dockerfile, find: {arg: TORCH}}
  - {path: mirror.env, find: {file: whole}, image: mirror.example.com/nvidia/pytorch}
  - {path: Dockerfile, find: {arg: CUDA}, image: nvcr.io/nvidia/cuda-dl-base}
  - {path: README.md, find: {text: "on {image}"}, image: nvcr.io/nvidia/cuda-dl-base, kind: informational}
"""
OLD_CUDA, NEW_CUDA = "26.01-cuda13.1-devel-ubuntu24.04", "26.03-cuda13.2-devel-ubuntu24.04"


def several(torch: str, mirror: str, cuda: str) -> dict[str, str]:
    """The files with these tags."""
    return {
        "Dockerfile": f"ARG TORCH=nvcr.io/nvidia/pytorch:{torch}\nARG CUDA=nvcr.io/nvidia/cuda-dl-base:{cuda}\n",
        "mirror.env": f"mirror.example.com/nvidia/pytorch:{mirror}\n",
        "README.md": f"It runs on nvcr.io/nvidia/cuda-dl-base:{OLD_CUDA}.\n",
    }


@pytest.mark.parametrize(
    ("tag", "after", "branch"),
    [
        ("nvcr.io/nvidia/pytorch:26.04-py3", ("26.04-py3", "26.02-py3", OLD_CUDA), "nvcr.io/nvidia/pytorch-26.04-py3"),
        ("mirror.example.com/nvidia/pytorch:26.04-py3", ("26.02-py3", "26.04-py3", OLD_CUDA), ""),
        (f"cuda-dl-base:{NEW_CUDA}", ("26.02-py3", "26.02-py3", NEW_CUDA), f"cuda-dl-base-{NEW_CUDA}"),
    ],
)
def test_a_bump_moves_the_pins_of_one_image(tag: str, after: tuple[str, str, str], branch: str) -> None:
    assert valid(SEVERAL)
    repository = parse(SEVERAL, "a/b")
    texts = several("26.02-py3", "26.02-py3", OLD_CUDA)
    bump = Bump.parse(tag=tag, repository=repository)
    assert bump.tag is not None
    made = pins.plan(texts, bump.repository.sites, bump.tag, "dev", digest_of_target=str)
    moved = {**texts, **{edit.path: edit.after or "" for edit in made.edits}}
    assert moved == several(*after)
    assert (bump.target, bump.title) == (tag, f"build: {tag}")
    assert not branch or bump.branch == f"bump/main/dev-{branch}"
    assert pins.plan(moved, bump.repository.sites, bump.tag, "dev", digest_of_target=str).edits == ()
    assert outcome(check_pins(texts, bump.repository.sites, bump.tag)) == "out of sync"
    # The pins of each image are compared among themselves.
    assert outcome(check_pins(moved, repository.sites)) == "in sync"
    lagging = {v.image for v in check_pins(moved, repository.sites) if v.state == "lagging"}
    assert len(lagging) == (NEW_CUDA in after)


@pytest.mark.parametrize("tag", ["26.04-py3", "pytorch:26.04-py3", "x:26.04-py3", "latest"])
def test_a_tag_that_names_none_of_several_images_is_refused(tag: str) -> None:
    with pytest.raises(RunbookError, match=r"names none of them: give one of nvcr.io/nvidia/pytorch:.*cuda-dl-base:"):
        Bump.parse(tag=tag, repository=parse(SEVERAL, "a/b"))
    with pytest.raises(RunbookError, match="is not a tag"):
        Bump.parse(tag="pytorch:26.04-py3", repository=parse(SMALLEST, "a/b"))
