"""The result of an earlier search, as step 6 and the golden values quote it."""

from pathlib import Path

import pytest
from archives import BUMP, record

from runbook_lib.golden.bisect_offer import completed


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
        at, notebook = int(name[0]), name[2:-2]
        record(tmp_path, notebook, "running", at=at, inputs=inputs)
    assert completed(tmp_path.joinpath(*BUMP.parts)).get("gpt/a@h", "") == expected
    assert completed(None) == {}
