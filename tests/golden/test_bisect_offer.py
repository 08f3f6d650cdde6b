"""The result of an earlier search, as step 6 and the golden values quote it."""

from pathlib import Path

from archives import BUMP, record

from runbook_lib.golden.bisect_offer import completed


def test_the_newest_completed_search_of_a_test_counts(tmp_path: Path) -> None:
    for at, notebook, inputs in (
        (1, "bisect-image", {"test": "gpt/a@h", "bisect_result": "first"}),
        (2, "bisect-image", {"test": "gpt/a@h", "bisect_result": "second"}),
        (3, "bisect-image", {"test": "gpt/a@h"}),
        (4, "06-broken-tests", {"test": "gpt/b@h", "bisect_result": "third"}),
    ):
        record(tmp_path, notebook, "running", at=at, inputs=inputs)
    assert completed(tmp_path.joinpath(*BUMP.parts)) == {"gpt/a@h": "second"}
    assert completed(None) == {}
