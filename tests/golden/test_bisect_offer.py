"""The result of an earlier search, as step 6 and the golden values quote it."""

import json
from pathlib import Path

import pytest

from runbook_lib.golden.bisect_offer import completed
from runbook_lib.records.statement import PREDICATE, STATEMENT

_FIELDS = ("id", "state", "bump", "notebook", "started")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ({}, ""),
        ({"1-bisect-image-a": {"test": "gpt/a@h", "bisect_result": "first"}}, "first"),
        ({"1-bisect-image-a": {"test": "gpt/b@h", "bisect_result": "first"}}, ""),
        ({"1-bisect-image-a": {"test": "gpt/a@h"}}, ""),
        ({"1-06-broken-tests-a": {"test": "gpt/a@h", "bisect_result": "first"}}, ""),
        (
            {
                "1-bisect-image-a": {"test": "gpt/a@h", "bisect_result": "first"},
                "2-bisect-image-a": {"test": "gpt/a@h", "bisect_result": "second"},
                "3-bisect-image-a": {"test": "gpt/a@h"},
            },
            "second",
        ),
    ],
)
def test_the_newest_completed_search_counts(tmp_path: Path, records: dict[str, dict[str, str]], expected: str) -> None:
    for name, inputs in records.items():
        (tmp_path / name).mkdir()
        predicate = {**dict.fromkeys(_FIELDS, ""), "inputs": inputs}
        document = {"_type": STATEMENT, "predicateType": PREDICATE, "predicate": predicate}
        (tmp_path / name / "run.json").write_text(json.dumps(document))
    assert completed(tmp_path).get("gpt/a@h", "") == expected
    assert completed(None) == {}
