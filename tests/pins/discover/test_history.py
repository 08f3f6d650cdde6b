"""The roles that past bumps show, counted from the versions of files."""

import pytest

from runbook_lib.pins.discover.history import settle
from runbook_lib.pins.discover.moves import MoveCounter
from runbook_lib.pins.discover.places import places
from runbook_lib.pins.discover.roles import discover

IMAGE = "nvcr.io/nvidia/pytorch"
DOCKERFILE = "Dockerfile"


def settled(*versions):
    """Return role and history by path and line after these versions of all files, the last of which is current."""
    counter = MoveCounter()
    before = {}
    for number, texts in enumerate(versions):
        files = []
        for path in texts.keys() | before.keys():
            if texts.get(path) != before.get(path):
                found = places(path, texts.get(path, ""))
                files.append((path, {place: reference.tag for place, reference in found.items()}))
        counter.add(f"commit{number}", files)
        before = texts
    found = settle(counter, discover(before.items()), before)
    return {f"{entry.path}:{entry.reference.line}": (entry.full_role, entry.history) for entry in found}


def months(*others):
    """Return versions with a Dockerfile of each month, each joined with the other files of that version."""
    versions = []
    for number, texts in enumerate(others):
        versions.append({DOCKERFILE: f"FROM {IMAGE}:25.{number + 1:02}-py3\n"} | texts)
    return versions


def readme(month, words="Use"):
    return {"README.md": f"{words} {IMAGE}:25.{month:02}-py3.\n"}


# -- roles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "role"),
    [
        pytest.param(months({}, {}, readme(3)), "follow", id="new"),
        pytest.param(months(readme(1), readme(2)), "follow", id="moved in the only bump"),
        pytest.param(months(readme(1), readme(1)), "informational", id="left behind in the only bump"),
        pytest.param(months(*map(readme, (1, 1, 3, 4, 5))), "follow", id="moved in most"),
        pytest.param(months(*map(readme, (1, 2, 3, 4, 5, 5))), "informational", id="left behind in the last bump"),
        pytest.param(months(*map(readme, (1, 2, 2, 2))), "informational", id="abandoned"),
        pytest.param(months(readme(1), readme(2, "Run"), readme(3, "Try")), "follow", id="reworded"),
    ],
)
def test_a_document_follows_if_most_bumps_moved_it(versions, role):
    assert settled(*versions)["README.md:1"][0] == role


def test_a_row_that_only_catches_up_stays():
    rows = [{"b/Dockerfile": f"FROM {IMAGE}:25.{month:02}-py3\n"} for month in (1, 3, 3, 4)]
    texts = [{"a/Dockerfile": f"FROM {IMAGE}:25.{month:02}-py3\n"} for month in (1, 3, 5, 5)]
    result = settled(*(row | text for row, text in zip(rows, texts, strict=True)))
    assert result["b/Dockerfile:1"][0] == "informational"
    assert result["a/Dockerfile:1"] == ("lockstep dev", "moved in 2 of 2 bumps, last commit2")


def test_a_moving_tag_is_no_pin():
    texts = [{"run.py": f'IMAGE = "nvcr.io/nvidia/nemo:{tag}"\n'} for tag in ("25.02", "25.04", "dev", "dev")]
    assert settled(*months(*texts))["run.py:1"][0] == "ignore"


def test_a_correction_to_an_older_tag_is_no_bump():
    newer, older = f"FROM {IMAGE}:25.05-py3\n", f"FROM {IMAGE}:25.01-py3\n"
    result = settled(*({"a/Dockerfile": text, "b/Dockerfile": newer} for text in (newer, older)))
    assert result["a/Dockerfile:1"] == ("informational", "")


def test_a_change_of_edition_alone_is_no_bump_and_hides_none():
    tags = ("25.01-py3", "25.01-py3-igpu", "25.03-py3-igpu", "25.05-py3")
    texts = [{"run.sh": f"docker run {IMAGE}:{tag}\n", "Dockerfile": f"FROM {IMAGE}:{tag}\n"} for tag in tags]
    assert settled(*texts)["run.sh:1"] == ("lockstep dev", "moved in 2 of 2 bumps, last commit3")


@pytest.mark.parametrize(("months_of_pin", "role"), [((1, 2), "informational"), ((1, 2, 3, 4, 5), "lockstep dev")])
def test_a_pin_behind_the_others_was_forgotten_only_if_it_moved_often(months_of_pin, role):
    pin = [*months_of_pin, months_of_pin[-1]]
    versions = [{"b/Dockerfile": f"FROM {IMAGE}:25.{month:02}-py3\n"} for month in pin]
    assert settled(*months(*versions))["b/Dockerfile:1"][0] == role


@pytest.mark.parametrize(("number_of_bumps", "role"), [(1, "informational"), (3, "lockstep dev")])
def test_a_new_file_leaves_pins_behind_that_few_bumps_moved(number_of_bumps, role):
    versions = [{"b/Dockerfile": f"FROM {IMAGE}:25.{month:02}-py3\n"} for month in range(1, number_of_bumps + 2)]
    versions.append(versions[-1] | {"new/Dockerfile": f"FROM {IMAGE}:25.12-py3\n"})
    assert settled(*versions)["b/Dockerfile:1"][0] == role


# -- collections -----------------------------------------------------------------------------------------------------


def collection(**months_by_project):
    """Return the texts of projects, each with a Dockerfile and a guide of its month, and one below it."""
    texts = {}
    for name, month in months_by_project.items():
        texts[f"projects/{name}/docker/Dockerfile"] = f"FROM {IMAGE}:25.{month:02}-py3\n"
        texts[f"projects/{name}/run.md"] = f"docker run {IMAGE}:25.{month:02}-py3\n"
    return texts


JOB = {".github/workflows/x.yml": f"jobs:\n  x:\n    container: {IMAGE}:25.03-py3\n"}


def roles(*versions):
    return {place: role for place, (role, _) in settled(*versions).items() if "Dockerfile" in place}


def test_each_project_of_a_collection_has_pins_of_its_own():
    before, after = collection(a=1, b=2, c=3), collection(a=1, b=4, c=3)
    assert set(roles(before, after).values()) == {"lockstep dev"}
    assert settled(before, after)["projects/b/run.md:1"][0] == "follow"


@pytest.mark.parametrize(
    ("versions", "behind"),
    [
        pytest.param([collection(a=1, b=2)], "a", id="two projects"),
        pytest.param([collection(a=1, b=2, c=2)], "a", id="two tags"),
        pytest.param([collection(a=1, b=1, c=3, d=5), collection(a=4, b=4, c=3, d=5)], "c", id="moved together"),
        pytest.param([collection(a=1, b=2, c=3) | JOB], "a", id="CI"),
        pytest.param([collection(a=1, b=2, c=3) | {"Dockerfile": f"FROM {IMAGE}:25.03-py3\n"}], "a", id="at the top"),
    ],
)
def test_the_folders_of_other_repositories_are_compared_with_each_other(versions, behind):
    assert roles(*versions)[f"projects/{behind}/docker/Dockerfile:1"] == "informational"
