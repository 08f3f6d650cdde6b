"""Renovate's settings: which managers are taken over, and the reasons for the others."""

import json
import re

import pytest

from runbook_lib.errors import CannotTell
from runbook_lib.pins.renovate.settings import parse

MANAGER = {
    "customType": "regex",
    "managerFilePatterns": ["/^Dockerfile$/"],
    "matchStrings": ["IMAGE=(?<depName>[^:]+):(?<currentValue>.+)"],
    "datasourceTemplate": "docker",
}


@pytest.mark.parametrize("values", [{}, {"customManagers": []}, {"customManagers": None}, {"enabled": True}])
def test_settings_without_managers_have_none(values: object) -> None:
    assert parse(json.dumps(values), "renovate.json") == parse("{}", "renovate.json")


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 1),
        ({"customType": None}, 0),
        ({"customType": "jsonata"}, 0),
        ({"managerFilePatterns": "/a/"}, 1),  # a text is a list of one
        ({"managerFilePatterns": []}, 0),
        ({"managerFilePatterns": ["!/a/", "**/b"]}, 1),
        ({"managerFilePatterns": ["@(a|b)"]}, 0),
        ({"matchStrings": ["(?<currentValue>\\p{L})"]}, 0),
        ({"matchStrings": ["(a{1000}){1000}"]}, 0),
        ({"matchStrings": ["("]}, 0),
        ({"matchStrings": [1]}, 0),
        ({"matchStringsStrategy": "combination"}, 1),
        ({"matchStringsStrategy": "recursive"}, 0),
        ({"depNameTemplate": "nvcr.io/{{{ a }}}/{{b}}"}, 1),
        ({"depNameTemplate": "{{#if a}}b{{/if}}"}, 0),
        ({"packageNameTemplate": "{{{replace 'a' 'b' c}}}"}, 0),
        ({"depNameTemplate": 5}, 0),
        ({"extractVersionTemplate": "^(?<version>.+)-py3$"}, 0),
        ({"versioningTemplate": "loose", "description": "x"}, 1),
    ],
)
def test_a_manager_is_taken_over_or_named_with_the_reason(change: dict[str, object], count: int) -> None:
    read = parse(json.dumps({"customManagers": [MANAGER | change]}), "renovate.json")
    assert len(read.managers) == count
    if not count:
        (sentence,) = read.left_out
        assert sentence.startswith("customManagers[0]: ")


def test_managers_of_the_old_form_are_read() -> None:
    old = {"fileMatch": ["^Dockerfile$"], "matchStrings": MANAGER["matchStrings"], "lookupNameTemplate": "a"}
    (manager,) = parse(json.dumps({"regexManagers": [old]}), "renovate.json").managers
    assert manager.name == "regexManagers[0]"
    assert manager.templates == {"packageName": "a"}


def test_parts_that_are_not_imported_are_named() -> None:
    values = {
        "customManagers": [MANAGER | {"versioningTemplate": "loose"}], "packageRules": [{}],
        "extends": ["local>a/b", "c"], "ignorePaths": ["d/**"], "enabled": False,
    }  # fmt: skip
    sentences = parse(json.dumps(values), "renovate.json").left_out
    assert [re.split(r":(?: |\Z)", sentence)[0] for sentence in sentences] == [
        "customManagers[0]", "packageRules", "extends (local>a/b, c)", "ignorePaths (d/**)", "enabled",
    ]  # fmt: skip


def test_package_json_has_them_in_its_key() -> None:
    text = json.dumps({"name": "x", "renovate": {"customManagers": [MANAGER]}})
    assert len(parse(text, "a/package.json").managers) == 1
    with pytest.raises(CannotTell):
        parse('{"name": "x"}', "package.json")


@pytest.mark.parametrize("text", ["", "[]", "{", "1"])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(CannotTell):
        parse(text, "renovate.json")
