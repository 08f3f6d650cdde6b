"""Launch scripts moved out of CI's way and back: paths change, nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.errors import Refused
from runbook_lib.pins.launch_scripts import MEGATRON_BRIDGE, Move, mark, unmark

FOLDER = "tests/functional_tests/launch_scripts"
KNOWN = [
    "README.md",
    f"{FOLDER}/h100/active/L0_Launch_data.sh",
    f"{FOLDER}/h100/active/L0_Launch_data_energon.sh",
    f"{FOLDER}/h100/flaky/L0_Launch_mimo.sh",
    f"{FOLDER}/h100/flaky/.gitkeep",
    f"{FOLDER}/gb200/active/L0_Launch_data.sh",
    f"{FOLDER}/gb200/active/L1_Launch_qwen.sh",
]


def test_what_is_there_already_stays() -> None:
    assert mark(KNOWN, MEGATRON_BRIDGE, "L0_Launch_mimo") is None
    assert unmark(KNOWN, MEGATRON_BRIDGE, "L0_Launch_data", "h100") is None


@pytest.mark.parametrize("folder", [f"{FOLDER}/h100", FOLDER])
def test_a_script_moves_between_the_two_folders(folder: str) -> None:
    active, flaky = f"{folder}/active/L0_Launch_x.sh", f"{folder}/flaky/L0_Launch_x.sh"
    assert mark([active], MEGATRON_BRIDGE, "L0_Launch_x") == Move(active, flaky)
    assert unmark([flaky], MEGATRON_BRIDGE, "L0_Launch_x.sh") == Move(flaky, active)


def test_the_platform_tells_scripts_of_one_name_apart() -> None:
    assert mark(KNOWN, MEGATRON_BRIDGE, "L0_Launch_data", "gb200") == Move(
        f"{FOLDER}/gb200/active/L0_Launch_data.sh", f"{FOLDER}/gb200/flaky/L0_Launch_data.sh"
    )


@pytest.mark.parametrize(
    ("case", "platform", "says"),
    [
        ("L0_Launch_dta", "", "no launch script L0_Launch_dta. Did you mean L0_Launch_data"),
        ("zzz", "h100", "no launch script zzz@h100. Did you mean another"),
        ("L1_Launch_qwen", "h100", "L1_Launch_qwen@h100. It has one for gb200"),
        ("L0_Launch_data", "", "several launch scripts: .*gb200.*h100.* Say which platform"),
        ("../../x", "", "no launch script"),
        ("", "", "no launch script"),
    ],
)
def test_a_name_that_is_no_script_or_several_is_refused(case: str, platform: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        mark(KNOWN, MEGATRON_BRIDGE, case, platform)


def test_a_script_in_both_folders_is_refused() -> None:
    both = [*KNOWN, f"{FOLDER}/h100/active/L0_Launch_mimo.sh"]
    with pytest.raises(Refused, match="Remove one of them first"):
        mark(both, MEGATRON_BRIDGE, "L0_Launch_mimo", "h100")


@given(st.sampled_from(["h100", "gb200", ""]), st.from_regex(r"[\w.+-]{1,20}", fullmatch=True))
def test_there_and_back(platform: str, case: str) -> None:
    case = case.removesuffix(".sh") or "x"
    path = "/".join(filter(None, [FOLDER, platform, "active", f"{case}.sh"]))
    there = mark([path], MEGATRON_BRIDGE, case, platform)
    assert there is not None
    back = unmark([there.new], MEGATRON_BRIDGE, case, platform)
    assert back == Move(there.new, path)
