"""A person's decision on a group of golden files in the form: nothing of the group is written before."""

import json
from pathlib import Path

import pytest
from bumping import git
from lab import TAG, Lab, Tab

from runbook_lib.golden.file_names import FOLDER

pytestmark = pytest.mark.slow
REFRESH = ("--grep", f"^test: refresh golden values for {TAG}")
GROUP = "dgx_h100/iteration-time"


def slow_down_main(lab: Lab, folder: Path) -> None:
    """Make all tests on H100 slower on the base branch, as the CI of a bump that was created before measures them."""
    with lab.world() as world:
        git(folder, "clone", "-q", "-b", "main", str(world.home / "remote.git"), "clone")
        for file in (folder / "clone" / FOLDER).rglob("golden_values_dev_dgx_h100.json"):
            values = json.loads(file.read_text())
            if "iteration-time" in values:
                for step, time in values["iteration-time"]["values"].items():
                    values["iteration-time"]["values"][step] = time * 1.5 if isinstance(time, float) else time
                file.write_text(json.dumps(values))
        git(folder / "clone", "commit", "-q", "-am", "Slow down all tests on H100")
        git(folder / "clone", "push", "-q")


def refreshed(lab: Lab) -> set[str]:
    """Return the platforms of the golden files that step 5 has committed."""
    with lab.world() as world:
        log = git(world.checkout, "log", "--all", "--format=", "--name-only", *REFRESH, "--", FOLDER)
    return {name.split("dgx_")[1].partition(".")[0].removesuffix("_2nd") for name in log.splitlines()}


def test_a_group_is_written_once_it_is_accepted_with_a_reason(lab: Lab, tab: Tab, tmp_path: Path) -> None:
    for step in ("03-open-pr", "04-run-ci"):
        tab.open(step).run_all()
        tab.choose("Tag", TAG)
        tab.press("Preview", "plan", says="Apply will")
        tab.confirm()
        tab.press("Apply", "result")
        if step == "03-open-pr":
            slow_down_main(lab, tmp_path)
    lab.end_ci()
    tab.open("05-golden-values").run_all()
    tab.choose("Tag", TAG)
    tab.form.get_by_text("More options").click()
    tab.form.get_by_label("Failed jobs only").uncheck()
    tab.press("Preview", "plan", says="Apply will")
    tab.confirm()
    assert "tests slower" in tab.press("Apply", "result")
    assert refreshed(lab) == {"gb200"}
    # Without a reason nothing can be accepted.
    card = tab.card(GROUP)
    assert "slower, median ×1.5" in card.inner_text()
    card.locator("img").wait_for()
    card.get_by_role("button", name="Accept").click()
    reason = card.get_by_label("Reason")
    reason.fill("")
    card.get_by_text("Give a reason").wait_for()
    tab.page.wait_for_function("document.querySelector('.runbook-preview').disabled")
    reason.fill("the base image is slower on H100")
    tab.press("Preview", "plan", says="Apply will")
    tab.shot("group", tab.form)
    assert refreshed(lab) == {"gb200"}
    tab.confirm()
    tab.press("Apply", "result")
    assert refreshed(lab) == {"gb200", "h100"}
    with lab.world() as world:
        message = git(world.checkout, "log", "-1", "--all", "--format=%B", *REFRESH)
    assert f"- {GROUP} ×1.5" in message
    assert ": the base image is slower on H100" in message
