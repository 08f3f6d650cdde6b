"""The statement of a record: names of folders, and contributions of any shape."""

import pytest

from runbook_lib.records.statement import Identity, folder_name


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("main", "main"),
        ("core_r0.14.0", "core_r0.14.0"),
        ("dev-26.04-py3", "dev-26.04-py3"),
        ("feature/x", "feature%2Fx"),
        ("..", "%2E."),
        (".git", "%2Egit"),
        ("", "none"),
        ("a\nb", "a%0Ab"),
        ("ü", "%C3%BC"),
        ("x" * 300, "x" * 100),
    ],
)
def test_makes_one_safe_folder_of_any_name(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_practice_records_have_a_folder_of_their_own() -> None:
    bump = ("o/r", "main", "dev", "")
    assert Identity(*bump, practice=False).parts == ("o-r", "main", "dev-none")
    assert Identity(*bump, practice=True).parts == ("practice", "o-r", "main", "dev-none")
    assert Identity("o/r", "main", "dev", "cuda:13.0.2", practice=False).parts[-1] == "dev-cuda-13.0.2"
