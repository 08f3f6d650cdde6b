"""The known months: their agreement with other data, and the issues between two of them."""

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from runbook_lib.images import months
from runbook_lib.images.compare import COMPONENTS

FOLDER = files("runbook_lib.images")
DATA: dict[str, Any] = tomllib.loads((FOLDER / "months.toml").read_text("utf-8"))


def test_every_entry_names_a_known_source_and_known_components() -> None:
    entries = [entry for month in DATA["month"].values() for entry in month]
    assert {entry["source"] for entry in entries} <= DATA["source"].keys()
    assert {name for entry in entries for name in entry} - {"source"} <= COMPONENTS.keys()


@pytest.mark.parametrize("month", sorted(DATA["month"]))
def test_sources_agree_with_each_other_and_with_the_notes(month: str) -> None:
    """Where two sources name a component, one version begins with the other's; CUDA is that of NVIDIA's notes."""
    versions: dict[str, set[str]] = {}
    for row in months.facts("", month):
        versions.setdefault(row["component"], set()).add(row["new"])
    for named in versions.values():
        longest = max(named, key=len)
        assert all(longest.startswith(version) for version in named), named
    release, _ = months.cuda_release(month)
    assert not release or all(version.startswith(f"{release}.") for version in versions.get("CUDA", ()))


@pytest.mark.parametrize(
    ("old", "new", "first_months"),
    [
        ("26.04", "26.04", []),
        ("26.05", "26.04", []),
        ("26.02", "26.04", ["26.04"]),
        ("26.04", "26.05", ["26.05"]),
        ("25.08", "25.09", ["25.09"]),
        ("", "25.08", ["25.03"]),
        ("26.02", "", []),
    ],
)
def test_issues_that_only_the_new_image_has(old: str, new: str, first_months: list[str]) -> None:
    assert [issue.first for issue in months.new_issues(old, new)] == first_months


def test_an_issue_ends_with_its_last_month() -> None:
    issue = months.KnownIssue("25.01", "broken", "text", "https://example.org", last="25.03")
    asked = ("", "24.12", "25.01", "25.03", "25.04")
    assert [month for month in asked if issue.concerns(month)] == ["25.01", "25.03"]


def test_the_month_of_a_tag() -> None:
    for repository in ("nvidia/pytorch", "mirror/nvidia/pytorch"):
        assert [months.month_of(repository, f"26.04{end}") for end in ("-py3", "-py3-igpu", "")] == ["26.04"] * 2 + [""]
    assert months.month_of("nvidia/tritonserver", "26.04-py3") == ""


def test_facts_of_two_months_stand_side_by_side() -> None:
    nccl = [row for row in months.facts("26.04", "26.05") if row["component"] == "NCCL"]
    assert [(row["old"], row["new"]) for row in nccl] == [("2.29.7", "2.30.4")]


def test_each_month_has_one_cuda_release() -> None:
    names = [f"{year}.{month:02}" for year in range(22, 27) for month in range(1, 13)]
    releases = [months.cuda_release(name)[0] for name in names]
    known = [tuple(map(int, release.split("."))) for release in releases if release]
    assert known == sorted(known)
    assert "" not in releases[names.index("22.09") : names.index("26.04") + 1]
    known_or_not = [months.cuda_release(name)[0] for name in ("22.08", "25.03", "25.04", "26.04", "26.05", "27.01")]
    assert known_or_not == ["", "12.8", "12.9", "13.2", "", ""]
    assert months.cuda_release("26.04")[1].startswith("Megatron-Bridge's table of software versions, https://")
