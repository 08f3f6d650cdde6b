"""A repository of hostile and odd forms: every reference is found with its role, and a bump with the draft moves it."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from runbook_lib.cli.discover import survey
from runbook_lib.pins import pins_file
from runbook_lib.pins.plan import plan
from runbook_lib.text.redact import Redactor

NAME, TAG, DIGEST = "nvcr.io/nvidia/pytorch", "26.04-py3", "sha256:" + "0123456789abcdef" * 4
ROLES = {"L": "lockstep dev", "F": "follow", "I": "informational", "Z": "frozen", "X": "ignore"}
_SIGNS = {"␍": "\r", "␉": "\t", "␊": "\n", "␎": "\ufeff", "␚": "\udce9", "␂": "x" * 60_000}
_MARK = re.compile("«([LFIZX]):([^»]*)»")
NEW_DIGEST = "sha256:" + "f" * 64
UNNAMABLE = {"odd names/new\nline.Dockerfile", "odd names/[a-z]*.Dockerfile"}  # a pins file cannot name these


class OddForm(NamedTuple):
    """A file of the repository: its content, and the value and role of each reference in it.

    In ``odd_forms.txt`` ``«L:value»`` is a reference to be found, with its role: L lockstep, F follow, I informational,
    Z frozen, X ignored (nothing reads it, or it names no tag that can be compared).  No other text is one.  ``PYTORCH``
    stands for the full reference, ``DIGEST`` for a digest, and the signs above for characters that are not seen.
    """

    path: str
    text: str
    expected: tuple[tuple[str, str], ...]


def _form(section: str) -> OddForm:
    for sign, char in _SIGNS.items():
        section = section.replace(sign, char if sign != "␊" else sign)
    path, _, marked = section.partition("\n")
    marked = marked.replace("PYTORCH", f"{NAME}:{TAG}").replace("DIGEST", DIGEST)
    expected = tuple((value, ROLES[role]) for role, value in _MARK.findall(marked))
    return OddForm(path.replace("␊", "\n"), _MARK.sub(r"\2", marked), expected)


_TEXT = Path(__file__).with_name("odd_forms.txt").read_text("utf-8")
FORMS = tuple(_form(section) for section in re.split("(?m)^==> ", _TEXT)[1:])
TEXTS = {form.path: form.text for form in FORMS}


def _git(place, *arguments):
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=place, check=True, capture_output=True)


@pytest.fixture(scope="module")
def discovery(tmp_path_factory):
    place = tmp_path_factory.mktemp("odd") / "clone"
    for path, text in TEXTS.items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    (place / "link.Dockerfile").symlink_to("docker/Dockerfile")
    _git(place, "init", "-qb", "main")
    _git(place, "add", "-Af")
    # A submodule whose objects are not there.
    _git(place, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},modules/other")
    _git(place, "commit", "-qm", "x")
    return survey(place)


def test_the_table_has_every_form_once():
    assert len(TEXTS) == len(FORMS) >= 62
    assert sum(len(form.expected) for form in FORMS) >= 150
    assert {role for form in FORMS for _, role in form.expected} == set(ROLES.values())


@pytest.mark.parametrize("form", FORMS, ids=[repr(form.path) for form in FORMS])
def test_every_value_is_found_with_its_role(discovery, form):
    found = []
    for classified in sorted(discovery.references, key=lambda one: one.reference.start):
        reference = classified.reference
        is_name_alone = classified.role == "ignore" and not reference.tag and not reference.digest
        if classified.path == form.path and not is_name_alone:
            found.append((form.text[reference.start : reference.end], classified.full_role))
    assert found == list(form.expected)


def test_nothing_else_is_searched(discovery):
    assert {one.path for one in discovery.references} <= set(TEXTS)
    assert not discovery.unreadable
    assert not discovery.notes


def test_the_draft_has_every_pin(discovery):
    left_out = [line.partition(":")[0] for line in discovery.draft.left_out]
    assert left_out == sorted(path.replace("\n", "\\n") for path in UNNAMABLE)


def test_the_draft_is_printed_as_it_is(discovery):
    assert "enroot import" in discovery.draft.text
    assert Redactor({}).text(discovery.draft.text) == discovery.draft.text


@pytest.mark.parametrize(
    ("image", "tag", "old", "new", "count"),
    [
        (NAME, TAG, "26.04", "26.05", 100),
        ("nvcr.io/nvidia/cuda", "13.0.2-devel-ubuntu24.04", "13.0.2", "13.1.0", 30),
        ("docker.io/nvidia/cuda", "12.8.1-cudnn-devel-ubuntu22.04", "12.8.1", "12.9.1", 10),
        ("nvcr.io/nvidia/cuda-dl-base", "26.04-cuda13.2-devel-ubuntu24.04", "26.04", "26.05", 1),
    ],
)
def test_a_bump_with_the_draft_moves_every_pin_and_nothing_else(discovery, image, tag, old, new, count):
    """Compare the edits with the texts in which each value that is to move is replaced."""
    sites = pins_file.parse(discovery.draft.text, "x/y").sites
    moving = [group for group in sites.groups if group.image == image and group.accepts(tag)]
    texts = {path: TEXTS.get(path) for path in sites.pin_paths}
    target = moving[0].target(tag.replace(old, new))
    planned = plan(texts, sites.only(moving), target, "dev", digest_of_target=lambda _: NEW_DIGEST)
    moved = {}
    for one in discovery.references:
        reference = one.reference
        if (reference.image, reference.tag) == (image, tag) and one.full_role in ("lockstep dev", "follow"):
            moved.setdefault(one.path, []).append((reference.start, reference.end))
    expected = {}
    for path in moved.keys() - UNNAMABLE:
        text = TEXTS[path]
        for start, end in sorted(moved[path], reverse=True):
            text = text[:start] + text[start:end].replace(old, new).replace(DIGEST, NEW_DIGEST) + text[end:]
        if text != TEXTS[path]:
            expected[path] = text
    assert {edit.path: edit.after for edit in planned.edits} == expected
    assert sum(map(len, moved.values())) >= count
