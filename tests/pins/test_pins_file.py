"""Pins files: read into pin sites, refused in words with line and key, and described by the schema that ships."""

import contextlib
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from elsewhere import PINS_FILE, own
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.bump import Bump
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import COREWEAVE, NEMO, NGC, OTHER
from runbook_lib.pins import pins_file
from runbook_lib.pins import plan as pins
from runbook_lib.pins.check import check_pins, outcome
from runbook_lib.pins.pins_file import parse
from runbook_lib.pins.repositories import TITLE, Repository

SCHEMA = json.loads((Path(pins_file.__file__).parent / "base-image-pins.schema.json").read_text())
SMALLEST = "version: 1\nimage: nvcr.io/nvidia/pytorch\npins:\n  - path: a/b\n    find: {arg: X}\n"
FIELDS = SCHEMA["definitions"]["pin"]["properties"]
TOP, PIN = "version: 1\nimage: nvcr.io/nvidia/pytorch\n", "pins:\n  - path: a\n    find: {arg: X}\n"

GROUP = "groups:\n  - name: a\n    image: nvcr.io/nvidia/pytorch\n    pins: [{path: a, find: {arg: X}}]\n"


def valid(text: str) -> bool:
    """What an editor thinks of it."""
    return jsonschema.Draft7Validator(SCHEMA).is_valid(yaml.safe_load(text))


def test_the_smallest_file_has_all_defaults() -> None:
    it = parse(SMALLEST, "a/b")
    (site,) = it.sites.pins
    assert (it.name, it.title, it.labels, it.origin) == (
        "a/b", "chore: Update Docker image version to {tag}", (), ".base-image-pins.yaml",
    )  # fmt: skip
    assert (site.path, site.role, site.ci, site.needs) == ("a/b", "lockstep dev", "github", "declared")
    assert it.sites.family is NGC
    assert valid(SMALLEST)
    assert it.inapplicable("05-golden-values") == "Not applicable: a/b has no golden values."


def test_every_way_finds_its_pins() -> None:
    it = parse(PINS_FILE, "a/b")
    assert valid(PINS_FILE)
    assert (it.title, it.labels, it.sites.platforms) == ("build: base image {tag}", ("needs review",), ("amd64",))
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
    it = parse(PINS_FILE, "a/b")
    texts = {path: own().get(path) for path in it.sites.paths}
    plan = pins.plan(texts, it.sites, it.sites.family.read("26.04-py3"), "dev")
    assert {**texts, **{edit.path: edit.after for edit in plan.edits}} == {
        path: own("26.04-py3").get(path) for path in it.sites.paths
    }


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
    it = parse(text, "a/b")
    texts = {"a/b": "ARG BASE_IMAGE=nvcr.io/nvidia/pytorch:26.02-py3\nFROM $BASE_IMAGE\n"}
    with pytest.raises(RunbookError) as told:
        pins.plan(texts, it.sites, it.sites.family.read("26.04-py3"), "dev")
    assert says in str(told.value)


def test_a_value_that_a_person_declares_twice_moves_once() -> None:
    it = parse(f"{SMALLEST}  - path: a/b\n    find: {{build-arg: X}}\n", "a/b")
    texts = {"a/b": "ARG X=nvcr.io/nvidia/pytorch:26.02-py3\nFROM $X\n"}
    (change,) = pins.plan(texts, it.sites, it.sites.family.read("26.04-py3"), "dev").changes
    assert change.selector == "ARG X; build-arg X"


def test_pins_that_only_people_read_move_with_the_github_step() -> None:
    it = parse(f"{SMALLEST}    read-by: people\n", "a/b")
    plan = pins.plan(
        {"a/b": "ARG X=nvcr.io/nvidia/pytorch:26.02-py3\n"}, it.sites, it.sites.family.read("26.04-py3"), "dev"
    )
    assert len(plan.part("github").changes) == 1
    assert (plan.part("gitlab").changes, plan.part("gitlab").edits) == ((), ())
    assert (it.inapplicable("01-github-pin"), it.inapplicable("02-gitlab-pin")[:14]) == ("", "Not applicable")
    alone = parse(f"{SMALLEST}    read-by: gitlab\n", "a/b")
    assert alone.inapplicable("01-github-pin") == "Not applicable: a/b has no pin outside of GitLab."


def test_tags_of_no_known_family_move_and_are_ordered_by_their_numbers() -> None:
    text = f"version: 1\nimage: docker.io/library/python\nfamily: other\n{PIN}"
    it = parse(text, "a/b")
    texts = {"a": "ARG X=docker.io/library/python:3.9-slim\nFROM $X\n"}
    read = it.sites.family.read
    assert len(pins.plan(texts, it.sites, read("3.10-slim"), "dev").changes) == 1
    with pytest.raises(RunbookError, match="older than the pin"):
        pins.plan(texts, it.sites, read("3.8-slim"), "dev")


PINNED = """version: 1
image: nvcr.io/nvidia/pytorch
digests: true
pins:
  - {path: Dockerfile, find: {arg: X}}
  - {path: tag, find: {text: "TAG={tag}"}}
  - {path: README.md, find: {text: "Use {image}"}, kind: follow}
"""
DIGEST = f"sha256:{'1' * 64}"


def bumped(texts: dict[str, str], text: str = PINNED) -> dict[str, str]:
    sites = parse(text, "a/b").sites
    made = pins.plan(texts, sites, NGC.read("26.04-py3"), "dev", digest_of_target=lambda _: DIGEST)
    return {edit.path: edit.after for edit in made.edits}


def test_a_bump_writes_digests_where_a_complete_image_is_named() -> None:
    assert valid(PINNED)
    name = "nvcr.io/nvidia/pytorch"
    old = {
        "Dockerfile": f"ARG X={name}:26.02-py3\nFROM $X\n",
        "tag": "TAG=26.02-py3",
        "README.md": f"Use {name}:26.02-py3",
    }
    new = {
        "Dockerfile": f"ARG X={name}:26.04-py3@{DIGEST}\nFROM $X\n",
        "tag": "TAG=26.04-py3",
        "README.md": f"Use {name}:26.04-py3",
    }
    assert bumped(old) == new
    assert bumped(new) == {}
    # A digest is also added where the tag is that of the bump already.
    assert bumped(new | {"Dockerfile": f"ARG X={name}:26.04-py3\nFROM $X\n"}) == {"Dockerfile": new["Dockerfile"]}
    sites = parse(PINNED, "a/b").sites
    assert [verdict.state for verdict in check_pins(new, sites)] == ["in sync"] * 3
    without = check_pins(new | {"Dockerfile": f"ARG X={name}:26.04-py3\nFROM $X\n"}, sites)
    assert [verdict.state for verdict in without] == ["out of sync", "in sync", "in sync"]
    assert outcome(without) == "out of sync"


@pytest.mark.parametrize("end", ["", "$", "(?=\\s)"])
def test_a_pattern_that_reads_no_digest_stops_the_plan(end: str) -> None:
    pattern = rf"FROM (?P<image>nvcr\.io/nvidia/pytorch:[\w.-]+){end}"
    text = f"{TOP}digests: true\npins: [{{path: a, find: {{regex: '{pattern}'}}}}]\n"
    with pytest.raises(CannotTell, match="digest"):
        bumped({"a": "FROM nvcr.io/nvidia/pytorch:26.02-py3\n"}, text)


BAD = [
    (f"{TOP}digests: 1\n{PIN}", "digests is 1; expected true or false"),
    (f"version: 1\ndigests: true\n{GROUP}", "expected no digests beside groups"),
    ("", "the file is missing version and image and pins."),
    ("- a\n", "is not a mapping"),
    ("a: [b\n", "does not parse as YAML"),
    (f"---\n{SMALLEST}---\n{SMALLEST}", "expected a single document in the stream"),
    ("\ud800: 1\n", "does not parse as YAML"),
    (SMALLEST.replace("version: 1", "version: 2"), "pins.yaml:1: version is 2; expected 1, the only"),
    (SMALLEST.replace("version: 1", "version: '1'"), "pins.yaml:1: version is '1'; expected 1"),
    (SMALLEST.replace("version: 1\n", ""), "pins.yaml:1: the file is missing version."),
    (SMALLEST.replace("image", "imag"), "pins.yaml:2: the file has the unknown key 'imag'"),
    (SMALLEST.replace("image", "imag"), "(did you mean image?)"),
    (f"{SMALLEST}version: 1\n", "found duplicate key"),
    (SMALLEST.replace("pytorch", "pytorch:26.04-py3"), "expected nvcr.io/nvidia/pytorch, without tag and digest."),
    (SMALLEST.replace("nvcr.io/nvidia/pytorch", "pytorch"), "image is 'pytorch'; expected registry and repository"),
    (SMALLEST.replace("nvcr.io/nvidia/pytorch", "example.org/x"), "or the key family (ngc, nemo, coreweave"),
    (f"{TOP}family: NGC\n{PIN}", "pins.yaml:3: family is 'NGC'; expected ngc or nemo"),
    (f"{TOP}title: Bump\n{PIN}", "title is 'Bump'; expected one line with {tag} in it once"),
    (f"{TOP}title: '{{tag}} {{x}}'\n{PIN}", "and no other braces."),
    (f"{TOP}labels: a\n{PIN}", "labels is 'a'; expected a list."),
    (f"{TOP}labels: [[a]]\n{PIN}", "labels is ['a']; expected labels of one line."),
    (f"{TOP}labels: ['']\n{PIN}", "labels is ''; expected labels of one line."),
    (f'{TOP}labels: ["a\\nb"]\n{PIN}', "expected labels of one line."),
    (f'{TOP}labels: ["a\\u2028b"]\n{PIN}', "expected labels of one line."),
    (f'{TOP}title: "x\\u2028{{tag}}"\n{PIN}', "expected one line with {tag} in it once"),
    (f'{TOP}title: "{{tag}}\\r"\n{PIN}', "expected one line with {tag} in it once"),
    (f"{TOP}pins:\n  - path: .GIT/config\n    find: {{file: whole}}\n", "path is '.GIT/config'; expected one file"),
    (f'{TOP}pins:\n  - path: "a\\u2028b"\n    find: {{file: whole}}\n', "expected one file"),
    (f"{TOP}platforms: [arm]\n{PIN}", "expected amd64 or arm64 (did you mean arm64?)."),
    (f"version: 1\nimage: nvcr.io/nvidia/pytorch\n{GROUP}", "expected no image beside groups"),
    (f"version: 1\n{GROUP}{PIN}", "expected no pins beside groups"),
    ("version: 1\ngroups: []\n", "groups is []; expected a list with at least one group"),
    (f"version: 1\n{GROUP}".replace("name: a", "name: A b"), "expected at most 40 lowercase letters"),
    (f"version: 1\n{GROUP}".replace("    image: nvcr.io/nvidia/pytorch\n", ""), "a group is missing image."),
    (f"version: 1\n{GROUP}{GROUP[8:]}", "name is 'a'; expected a name that no group before has"),
    (f"{TOP}pins: []\n", "expected a list with at least one pin."),
    (f"{TOP}pins: {{a: b}}\n", "expected a list with at least one pin."),
    (f"{TOP}pins: [a]\n", "expected a mapping with path and find."),
    (f"{TOP}pins:\n  - path: a\n", "pins.yaml:4: a pin is missing find."),
    (f"{TOP}{PIN}    kinds: frozen\n", "pins.yaml:6: a pin has the unknown key 'kinds'"),
    (f"{TOP}{PIN}    kind: frozen\n", "at least one pin of the kind lockstep"),
    (f"{TOP}{PIN}    kind: lock\n", "expected lockstep or follow or informational or frozen (did you mean lockstep?)."),
    (f"{TOP}{PIN}    type: prod\n", "expected dev or lts."),
    (f"{TOP}{PIN}    read-by: jenkins\n", "expected github or gitlab or people."),
    (f"{TOP}{PIN}    count: 0\n", "count is 0; expected a number from 1 to 1000."),
    (f"{TOP}{PIN}    count: true\n", "count is True; expected a number"),
    (f"{TOP}{PIN}    count: [1]\n", "count is [1]; expected a number"),
    (
        f"{TOP}{PIN}    dockerfile: Dockerfile\n",
        "dockerfile is 'Dockerfile'; expected no dockerfile with find: {arg: …}",
    ),
    (SMALLEST.replace("a/b", "/etc/passwd"), "path is '/etc/passwd'; expected one file"),
    (SMALLEST.replace("a/b", "a/../../b"), "path is 'a/../../b'; expected one file"),
    (SMALLEST.replace("a/b", "'**/Dockerfile'"), "expected one file, from the repository's root"),
    (SMALLEST.replace("a/b", ".git/config"), "expected one file, from the repository's root"),
    (SMALLEST.replace("a/b", "5"), "path is 5; expected one file"),
    (SMALLEST.replace("{arg: X}", "{}"), "find is {}; expected exactly one of the ways arg, file"),
    (SMALLEST.replace("{arg: X}", "{arg: X, file: whole}"), "expected exactly one of"),
    (SMALLEST.replace("{arg: X}", "X"), "find is 'X'; expected exactly one of the ways arg, file, yaml"),
    (SMALLEST.replace("{arg: X}", "{args: X}"), "find has the unknown key 'args'"),
    (SMALLEST.replace("{arg: X}", "{arg: a-b}"), "arg is 'a-b'; expected the name of a build argument"),
    (SMALLEST.replace("{arg: X}", "{text: 'a'}"), "text is 'a'; expected a text with one of {image}, {tag}"),
    (SMALLEST.replace("{arg: X}", "{text: '{tag} {month}'}"), "expected a text with one of {image}, {tag}"),
    (f"{TOP}{PIN}    tag: 26.04-py3\n", "tag is '26.04-py3'; expected the form of the tag with {tag}"),
    (SMALLEST.replace("{arg: X}", "{file: all}"), "file is 'all'; expected whole."),
    (SMALLEST.replace("{arg: X}", "{yaml: a..b}"), "yaml is 'a..b'; expected keys and indexes"),
    (SMALLEST.replace("{arg: X}", "{regex: '(?P<image>x'}"), "missing ), unterminated"),
    (SMALLEST.replace("{arg: X}", "{regex: 'FROM (.*)'}"), "with a group (?P<image>…)"),
    (SMALLEST.replace("{arg: X}", f"{{regex: '(?P<image>{'a' * 1000})'}}"), "of at most 1000 characters"),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[says[:40] for _, says in BAD])
def test_an_invalid_file_is_refused_with_line_and_key(text: str, says: str) -> None:
    with pytest.raises(RunbookError, match=re.escape(says)):
        parse(text, "a/b")


#: What only a reader of the file itself can tell: the form of a tag, of a regular expression, of the YAML.
BEYOND = ("YAML", "stream", "is not a mapping", "duplicate", "without tag", "registry and repository", "key family",
          "regular expression", "unterminated", "no group before")  # fmt: skip


@pytest.mark.parametrize(("text", "says"), [it for it in BAD if not any(word in it[1] for word in BEYOND)])
def test_the_schema_refuses_the_same(text: str, says: str) -> None:
    assert not valid(text)


def test_a_line_feed_at_the_end_of_a_path_is_refused() -> None:
    with pytest.raises(RunbookError, match="expected one file"):
        parse(SMALLEST.replace("a/b", '"a\\n"'), "a/b")


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert tuple(SCHEMA["definitions"]["family"]["enum"]) == tuple(pins_file.FAMILIES)
    assert SCHEMA["properties"]["title"]["default"] == TITLE


KEYS = st.sampled_from([*SCHEMA["properties"], *FIELDS, *FIELDS["find"]["properties"], "x"])
NESTED = st.recursive(
    st.none() | st.text() | st.integers(), lambda value: st.lists(value) | st.dictionaries(KEYS, value)
)


@given(st.text() | NESTED.map(yaml.safe_dump))
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    with contextlib.suppress(RunbookError):
        assert isinstance(parse(text, "a/b"), Repository)


FOLLOWING = """\
version: 1
image: nvcr.io/nvidia/pytorch
pins:
  - path: Dockerfile
    find: {arg: BASE}
  - path: README.md
    find: {regex: '(?P<image>nvcr\\.io/nvidia/pytorch:[\\w.-]+)'}
    kind: follow
    count: 3
"""


def test_follow_pins_only_move_forward_and_fail_no_check() -> None:
    sites = parse(FOLLOWING, "a/b").sites
    name = "nvcr.io/nvidia/pytorch"
    texts = {
        "Dockerfile": f"ARG BASE={name}:26.02-py3\nFROM $BASE\n",
        "README.md": f"{name}:25.01-py3 {name}:26.08-py3 {name}:25.01-py3-igpu\n",
    }
    assert outcome(check_pins(texts, sites)) == "in sync"
    assert outcome(check_pins(texts, sites), strict=True) == "out of sync"
    made = pins.plan(texts, sites, NGC.read("26.04-py3"), "dev")
    assert {edit.path: edit.after for edit in made.edits} == {
        "Dockerfile": f"ARG BASE={name}:26.04-py3\nFROM $BASE\n",
        "README.md": f"{name}:26.04-py3 {name}:26.08-py3 {name}:25.01-py3-igpu\n",
    }
    missing = pins.plan(texts | {"README.md": "nothing"}, sites, NGC.read("26.04-py3"), "dev")
    assert [edit.path for edit in missing.edits] == ["Dockerfile"]
    assert "README.md" in missing.warnings[0]


def test_a_part_of_a_tag_is_a_pin() -> None:
    """A template holds the tag, or the month of it, apart from the image."""
    pins_text = (
        "version: 1\nimage: nvcr.io/nvidia/pytorch\npins:\n"
        "  - {path: Dockerfile, find: {regex: '^ARG TAG=(?P<tag>[\\w.-]+)'}}\n"
        "  - {path: job.sh, find: {regex: 'pytorch(?P<month>[0-9]{2}\\.[0-9]{2})-py3'}}\n"
    )
    sites = parse(pins_text, "a/b").sites
    texts = {
        "Dockerfile": "ARG TAG=26.02-py3\nFROM nvcr.io/nvidia/pytorch:${TAG}\n",
        "job.sh": "run own:pytorch26.02-py3-x\n",
    }
    assert outcome(check_pins(texts, sites)) == "in sync"
    made = pins.plan(texts, sites, NGC.read("26.04-py3"), "dev")
    assert {edit.path: edit.after for edit in made.edits} == {
        path: text.replace("26.02", "26.04") for path, text in texts.items()
    }
    assert {change.new for change in made.changes} == {"nvcr.io/nvidia/pytorch:26.04-py3"}
    assert outcome(check_pins(texts | {"job.sh": "pytorch25.12-py3"}, sites)) == "out of sync"


@pytest.mark.parametrize(
    ("find", "before", "family"),
    [
        ("find: {arg: TAG}\n    tag: '{tag}'", "ARG TAG=26.02-py3\nFROM nvcr.io/nvidia/pytorch:$TAG\n", "ngc"),
        ("find: {arg: VER}\n    tag: '{month}-py3'", "ARG VER=26.02\nFROM ${REG}/pytorch:${VER}-py3\n", "ngc"),
        ("find: {yaml: image.tag}\n    tag: '{tag}'", "image:\n  repository: nvcr.io/x\n  tag: 26.02-py3\n", "ngc"),
        ("find: {text: 'newTag: {tag}'}", "- name: nvcr.io/nvidia/pytorch\n  newTag: 26.02-py3\n", "ngc"),
        ("find: {text: 'pytorch{month}-py3-squashed'}", "/images/pytorch26.02-py3-squashed.sqsh\n", "ngc"),
        ("find: {text: '{image} is used'}", "As nvcr.io/nvidia/pytorch:26.02-py3 is used.\n", "ngc"),
        ("find: {text: 'CUDA {version}'}\n    tag: '{version}-devel-ubuntu24.04'", "CUDA 26.02.\n", "numbered"),
        ("find: {regex: 'CUDA (?P<version>\\d[\\d.]+\\d)'}\n    tag: '{version}-py3'", "CUDA 26.02.\n", "ngc"),
    ],
)  # fmt: skip
def test_a_pin_may_name_a_part_of_the_tag(find: str, before: str, family: str) -> None:
    text = f"version: 1\nimage: nvcr.io/nvidia/pytorch\nfamily: {family}\npins:\n  - path: a\n    {find}\n"
    assert valid(text)
    sites = parse(text, "a/b").sites
    tag = "26.04-devel-ubuntu24.04" if family == "numbered" else "26.04-py3"
    made = pins.plan({"a": before}, sites, sites.family.read(tag), "dev")
    assert [edit.after for edit in made.edits] == [before.replace("26.02", "26.04")]
    assert outcome(check_pins({"a": before}, sites, sites.family.read(tag))) == "out of sync"
    assert outcome(check_pins({"a": made.edits[0].after or ""}, sites, sites.family.read(tag))) == "in sync"


def test_a_tag_of_another_format_is_not_written() -> None:
    text = f"{TOP}pins:\n  - path: a\n    find: {{arg: VER}}\n    tag: '{{month}}-py3'\n"
    sites = parse(text, "a/b").sites
    with pytest.raises(RunbookError, match="does not have the form"):
        pins.plan({"a": "ARG VER=26.02\n"}, sites, NGC.read("26.04-py3-igpu"), "dev")


APART = (
    TOP
    + """
pins:
  - {path: values.yaml, find: {yaml: image.tag}, tag: "{tag}"}
  - {path: values.yaml, find: {yaml: image.digest}, tag: "{digest}"}
  - {path: values.yaml, find: {yaml: worker}}
  - {path: Dockerfile, find: {regex: '^FROM \\S+:(?P<tag>\\S+)@'}}
  - {path: Dockerfile, find: {regex: '^ARG X=(?P<digest>\\S+)'}}
"""
)
OLD_DIGEST = f"sha256:{'0' * 64}"
APART_TEXTS = {
    "values.yaml": f"image:\n  tag: 26.02-py3\n  digest: '{OLD_DIGEST}'\nworker: nvcr.io/nvidia/pytorch:26.02-py3\n",
    "Dockerfile": f"ARG X={OLD_DIGEST}\nFROM nvcr.io/nvidia/pytorch:26.02-py3@$X\n",
}


def test_a_digest_apart_from_its_tag_moves_with_it() -> None:
    assert valid(APART)
    after = bumped(APART_TEXTS, APART)
    assert after == {
        path: text.replace("26.02", "26.04").replace(OLD_DIGEST, DIGEST) for path, text in APART_TEXTS.items()
    }
    assert bumped(after, APART) == {}
    sites = parse(APART, "a/b").sites
    assert outcome(check_pins(after, sites)) == "in sync"
    one = {"values.yaml": after["values.yaml"].replace(DIGEST, OLD_DIGEST)}
    assert outcome(check_pins(after | one, sites)) == "out of sync"


@pytest.mark.parametrize(
    "text", ["image: {digest: 'sha256:12', tag: 26.02-py3}\nworker: nvcr.io/nvidia/pytorch:26.02-py3\n", "image: {}\n"]
)
def test_a_digest_that_is_none_or_has_no_tag_stops_the_plan(text: str) -> None:
    with pytest.raises(CannotTell):
        bumped(APART_TEXTS | {"values.yaml": text}, APART)


def test_a_pin_of_another_edition_than_its_groups_is_out_of_sync_and_stops_the_plan() -> None:
    sites = parse(
        f"{TOP}edition: py3\npins:\n  - {{path: a, find: {{text: 'FROM {{image}}'}}, count: 2}}\n", "a/b"
    ).sites
    for tags in (("26.02-py3-igpu", "26.02-py3-igpu"), ("26.02-py3-igpu", "26.02-py3")):
        texts = {"a": "".join(f"FROM nvcr.io/nvidia/pytorch:{tag}\n" for tag in tags)}
        states = ["out of sync" if tag.endswith("igpu") else "in sync" for tag in tags]
        assert [verdict.state for verdict in check_pins(texts, sites)] == states
        with pytest.raises(CannotTell, match="has the edition py3"):
            pins.plan(texts, sites, NGC.read("26.04-py3"), "dev")


COMPOSED = """version: 1
image: nvcr.io/nvidia/cuda-dl-base
pins:
  - {path: Dockerfile, find: {arg: MONTH}, tag: "{month}-cuda*-devel-ubuntu*"}
  - {path: Dockerfile, find: {arg: CUDA}, tag: "*-cuda{version}-devel-ubuntu*"}
  - {path: Dockerfile, find: {arg: OS}, tag: "*-cuda*-devel-ubuntu{version}"}
"""


def test_the_parts_of_a_tag_move_together() -> None:
    assert valid(COMPOSED)
    sites = parse(COMPOSED, "a/b").sites
    text = "ARG MONTH=25.09\nARG CUDA=13.0\nARG OS=24.04\n"
    text += "FROM nvcr.io/nvidia/cuda-dl-base:$MONTH-cuda${CUDA}-devel-ubuntu$OS\n"
    target = sites.family.read("26.03-cuda13.2-devel-ubuntu24.04")
    after = text.replace("25.09", "26.03").replace("13.0", "13.2")
    assert outcome(check_pins({"Dockerfile": text}, sites, target)) == "out of sync"
    made = pins.plan({"Dockerfile": text}, sites, target, "dev")
    assert [edit.after for edit in made.edits] == [after]
    assert [change.line for change in made.changes] == [1, 2]
    assert outcome(check_pins({"Dockerfile": after}, sites, target)) == "in sync"
    assert outcome(check_pins({"Dockerfile": after.replace("13.2", "13.1")}, sites, target)) == "out of sync"
    with pytest.raises(CannotTell, match="does not have the form"):
        pins.plan({"Dockerfile": text}, sites, sites.family.read("26.03-cuda13.2-runtime-ubuntu24.04"), "dev")
    with pytest.raises(CannotTell, match="holds part 2"):
        pins.plan({"Dockerfile": text.replace("ARG CUDA=13.0", "ARG CUDA")}, sites, target, "dev")


@pytest.mark.parametrize(
    "lines",
    [
        "  - {path: a, find: {arg: X}, tag: '{digest}'}\n",
        "  - {path: a, find: {text: 'X={digest}'}}\n  - {path: b, find: {arg: X}}\n",
        "  - {path: a, find: {arg: X}, tag: '{month}-*'}\n  - {path: a, find: {arg: Z}}\n",
        "  - {path: a, find: {arg: X}, tag: '{month}-*-*'}\n  - {path: a, find: {arg: Z}, tag: '*-{tag}-*'}\n",
    ],
)
def test_a_part_without_the_rest_of_its_tag_is_refused(lines: str) -> None:
    with pytest.raises(RunbookError, match=r":4: (?:tag|find) is .*names the rest of its tag"):
        parse(f"{TOP}pins:\n{lines}", "a/b")


def test_a_pattern_with_the_old_tag_in_it_is_named() -> None:
    pattern = r"(?P<image>nvcr\S+)(?= or \S+26.02)"
    text = (
        f"{TOP}pins:\n  - {{path: a, find: {{regex: '{pattern}'}}}}\n  - {{path: a, find: {{text: 'or {{image}}'}}}}\n"
    )
    before = "nvcr.io/nvidia/pytorch:26.02-py3 or nvcr.io/nvidia/pytorch:26.02-py3\n"
    with pytest.raises(CannotTell, match="no longer find its pin"):
        bumped({"a": before}, text)


GROUPS = """\
version: 1
title: "build: images {tag}"
groups:
  - name: torch
    image: nvcr.io/nvidia/pytorch
    edition: py3
    title: "build: PyTorch {tag}"
    pins:
      - {path: Dockerfile, find: {arg: TORCH}}
      - {path: mirror.env, find: {file: whole}, image: mirror.example.com/pytorch}
  - name: triton
    image: nvcr.io/nvidia/tritonserver
    edition: py3
    pins:
      - {path: Dockerfile, find: {arg: TRITON}}
  - name: cuda
    image: nvcr.io/nvidia/cuda-dl-base
    edition: cuda-devel-ubuntu
    pins:
      - {path: Dockerfile, find: {arg: CUDA}}
"""


def grouped(torch: str, triton: str, cuda: str) -> dict[str, str]:
    """The files with these tags."""
    return {
        "Dockerfile": f"ARG TORCH=nvcr.io/nvidia/pytorch:{torch}\nARG TRITON=nvcr.io/nvidia/tritonserver:{triton}\n"
        f"ARG CUDA=nvcr.io/nvidia/cuda-dl-base:{cuda}\nFROM $TORCH\n",
        "mirror.env": f"mirror.example.com/pytorch:{torch}\n",
    }


OLD_CUDA, NEW_CUDA = "26.01-cuda13.1-devel-ubuntu24.04", "26.03-cuda13.2-devel-ubuntu24.04"


@pytest.mark.parametrize(
    ("group", "tag", "after", "title"),
    [
        ("torch", "26.04-py3", ("26.04-py3", "26.02-py3", OLD_CUDA), "build: PyTorch 26.04-py3"),
        ("triton", "26.04-py3", ("26.02-py3", "26.04-py3", OLD_CUDA), "build: images 26.04-py3"),
        ("cuda", NEW_CUDA, ("26.02-py3", "26.02-py3", NEW_CUDA), f"build: images {NEW_CUDA}"),
        ("", "26.04-py3", ("26.04-py3", "26.04-py3", OLD_CUDA), "build: images 26.04-py3"),
        ("", NEW_CUDA, ("26.02-py3", "26.02-py3", NEW_CUDA), f"build: images {NEW_CUDA}"),
    ],
)
def test_a_bump_moves_one_group_or_all_that_the_tag_fits(
    group: str, tag: str, after: tuple[str, str, str], title: str
) -> None:
    assert valid(GROUPS)
    repository = parse(GROUPS, "a/b")
    bump = Bump.parse(tag=tag, group=group, repository=repository)
    texts = grouped("26.02-py3", "26.02-py3", OLD_CUDA)
    assert bump.tag is not None
    made = pins.plan(texts, bump.repository.sites, bump.tag, "dev")
    moved = {**texts, **{edit.path: edit.after or "" for edit in made.edits}}
    assert moved == grouped(*after)
    assert bump.title == title
    assert pins.plan(moved, bump.repository.sites, bump.tag, "dev").edits == ()
    assert outcome(check_pins(moved, repository.sites)) == "in sync"
    assert outcome(check_pins(moved, bump.repository.sites, bump.tag)) == "in sync"
    assert outcome(check_pins(texts, bump.repository.sites, bump.tag)) == "out of sync"


def test_each_group_is_compared_with_its_own_newest() -> None:
    repository = parse(GROUPS, "a/b")
    texts = grouped("26.04-py3", "25.01-py3", OLD_CUDA)
    assert outcome(check_pins(texts, repository.sites)) == "in sync"
    texts["mirror.env"] = "mirror.example.com/pytorch:26.02-py3"
    states = {(verdict.group, verdict.path, verdict.state) for verdict in check_pins(texts, repository.sites)}
    assert ("torch", "mirror.env", "out of sync") in states
    assert len([state for state in states if state[2] != "in sync"]) == 1


def test_a_group_that_is_ahead_is_left_unless_it_is_alone() -> None:
    sites = parse(GROUPS, "a/b").sites
    texts = grouped("26.06-py3", "26.02-py3", OLD_CUDA)
    made = pins.plan(texts, sites, NGC.read("26.04-py3"), "dev")
    assert [change.new for change in made.changes] == ["nvcr.io/nvidia/tritonserver:26.04-py3"]
    assert "the group torch is left" in made.warnings[0]
    alone = parse(GROUPS, "a/b").of_group("torch").sites
    with pytest.raises(RunbookError, match="older than the pin"):
        pins.plan(texts, alone, NGC.read("26.04-py3"), "dev")


def test_the_branch_of_a_group_is_its_own() -> None:
    repository = parse(GROUPS, "a/b")
    branches = {
        Bump.parse(tag="26.04-py3", group=group, repository=repository).branch for group in ("", "torch", "triton")
    }
    assert len(branches) == 3


@pytest.mark.parametrize(
    ("group", "tag", "says"),
    [
        ("x", "26.04-py3", "no group of pins 'x': choose one of torch, triton, cuda"),
        ("torch", NEW_CUDA, "not a tag of the monthly"),
        (
            "triton",
            NEW_CUDA,
            "of the edition cuda-devel-ubuntu, and the pins of nvcr.io/nvidia/tritonserver are of py3",
        ),
        ("", "latest", "fits none of the images of a/b: nvcr.io/nvidia/pytorch"),
    ],
)
def test_a_group_or_a_tag_that_fits_none_is_refused(group: str, tag: str, says: str) -> None:
    with pytest.raises(RunbookError, match=re.escape(says)):
        Bump.parse(tag=tag, group=group, repository=parse(GROUPS, "a/b"))
    with pytest.raises(RunbookError, match="its pins are one group"):
        Bump.parse(tag="26.04-py3", group="x", repository=parse(SMALLEST, "a/b"))


def test_a_group_that_moves_alone_is_moved_by_name_only() -> None:
    text = GROUPS.replace("  - name: triton\n", "  - name: triton\n    alone: true\n")
    assert valid(text)
    repository = parse(text, "a/b")
    assert [group.name for group in repository.of_group("", "26.04-py3").sites.groups] == ["torch"]
    assert [group.name for group in repository.of_group("triton", "26.04-py3").sites.groups] == ["triton"]
    both = parse(text.replace("  - name: torch\n", "  - name: torch\n    alone: true\n"), "a/b")
    with pytest.raises(RunbookError, match="name one of torch, triton as group"):
        both.of_group("", "26.04-py3")
    assert [group.name for group in both.of_group("", NEW_CUDA).sites.groups] == ["cuda"]


FOLLOWERS = "version: 1\ngroups:\n" + "".join(
    f"  - {{name: {name}, image: nvcr.io/acme/{name}, {more}, pins: [{{path: {name}, find: {{file: whole}}}}]}}\n"
    for name, more in {
        "other": "alone: true, major: 1",
        "server": "alone: true, major: 2, family: versioned",
        "worker": "with: server, family: versioned",
        "months": "with: server, family: ngc",
    }.items()
)


@pytest.mark.parametrize(
    ("group", "tag", "names"),
    [
        ("", "", ["other", "server", "worker", "months"]),
        ("", "1.4.0", ["other"]),
        ("", "2.4.0", ["server", "worker"]),
        ("server", "2.4.0", ["server", "worker"]),
        ("worker", "2.4.0", ["worker"]),
        ("", "26.04-py3", ["months"]),  # a tag that does not fit the group it moves with
    ],
)
def test_a_group_moves_with_another_one(group: str, tag: str, names: list[str]) -> None:
    assert valid(FOLLOWERS)
    assert [group.name for group in parse(FOLLOWERS, "a/b").of_group(group, tag).sites.groups] == names


@pytest.mark.parametrize(
    ("leader", "says"),
    [
        ("with: none", "the name of an earlier group that moves on its own"),
        ("with: worker", "the name of an earlier group that moves on its own"),
        ("with: server, alone: true", "no with beside alone or major"),
    ],
)
def test_a_group_that_cannot_move_with_another_one_is_refused(leader: str, says: str) -> None:
    with pytest.raises(RunbookError, match=says):
        parse(FOLLOWERS.replace("with: server, family: ngc", leader), "a/b")


@pytest.mark.parametrize(
    ("majors", "tag", "names"),
    [
        ((1, 4), "v1.2.0", ["torch"]),
        ((1, 4), "v3.0.0", ["torch"]),
        ((1, 4), "v5.0.0", ["triton"]),
        ((1, 4), "v0.9.0", None),
        ((4, 4), "v4.1.0", None),
        ((1, None), "v4.1.0", None),
    ],
)
def test_a_version_moves_the_group_of_its_major_version(
    majors: tuple[int | None, int | None], tag: str, names: list[str] | None
) -> None:
    text = "version: 1\ngroups:\n"
    for name, major in zip(("torch", "triton"), majors, strict=True):
        text += f"  - name: {name}\n    image: nvcr.io/acme/{name}\n    alone: true\n"
        if major is not None:
            text += f"    major: {major}\n"
        text += f"    pins:\n      - {{path: {name}, find: {{file: whole}}}}\n"
    assert valid(text)
    repository = parse(text, "a/b")
    if names is None:
        with pytest.raises(RunbookError, match="name one of torch, triton as group"):
            repository.of_group("", tag)
    else:
        assert [group.name for group in repository.of_group("", tag).sites.groups] == names
