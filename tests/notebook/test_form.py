"""The form, driven without a browser: its buttons and its runs."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bumping import git
from practice_state import fingerprint
from waiting import wait_until

from runbook_lib.notebook import child, form_views
from runbook_lib.notebook.card_widgets import CardWidgets
from runbook_lib.notebook.cards import Card
from runbook_lib.notebook.form import Form
from runbook_lib.practice.world import PracticeWorld

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
TAG = "26.04-py3"


@pytest.fixture
def world(practised: PracticeWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[PracticeWorld]:
    monkeypatch.setenv("JPY_SESSION_NAME", str(ROOT / "runbooks/01-github-pin.ipynb"))
    with practised.store.transaction() as state:
        state.ci_seconds = 36000.0  # until a test ends it
    yield practised
    for thread in threading.enumerate():
        if thread.name == "form":
            thread.join(120)


def create(notebook: str = "01-github-pin", **values: Any) -> Form:
    return Form(ROOT / f"runbooks/{notebook}.ipynb", {"base": "main", "image_type": "dev", **values})


def previewed(form: Form) -> Form:
    form.preview.click()
    wait_until(lambda: not form.busy)
    return form


def press(form: Form, name: str, choice: str) -> CardWidgets:
    """Press a choice of a card."""
    (card,) = [each for each in form.cards.shown if each.card.id == name]
    card.buttons[choice].click()
    return card


def shown(form: Form, name: str) -> str:
    return str(form.parts[name].value)


def test_a_plan_is_shown_before_apply_can_be_pressed(world: PracticeWorld) -> None:
    form = create(tag=TAG)
    assert (form.preview.disabled, form.apply.disabled) == (False, True)
    form.cancel.click()
    assert "no run to cancel" in shown(form, "warning")
    before = git(world.checkout, "status", "--porcelain", "--branch")
    previewed(form)
    assert git(world.checkout, "status", "--porcelain", "--branch") == before
    assert f"commit 3 files on branch bump/main/dev-{TAG}" in shown(form, "result")
    assert "docker/.ngc_version.dev" in shown(form, "cells")
    assert not form.apply.disabled  # nothing leaves the machine, so no confirmation is needed
    form.inputs["base"].value = "dev"
    form.inputs["base"].value = "main"
    assert form.apply.disabled  # the plan is gone with the values that it was made for
    assert "Preview first" in shown(form, "warning")
    assert not previewed(form).apply.disabled
    form.apply.click()
    form.apply.click()  # twice
    wait_until(lambda: not form.busy)
    assert "⚠ done" in shown(form, "result")
    assert form.apply.disabled
    assert git(world.checkout, "status", "--porcelain", "--branch") == before
    assert len(git(world.checkout, "diff", "--name-only", "main", f"bump/main/dev-{TAG}").split()) == 3
    records = list((world.home.parent / "audit").rglob("run.json"))
    assert len(records) == 3  # two previews, and the run


def test_a_late_click_applies_nothing_that_was_not_shown(world: PracticeWorld) -> None:
    before = fingerprint(world)
    form = previewed(create("03-open-pr", tag=TAG))
    form.apply.click()  # not confirmed: a disabled button of the browser still sends clicks
    form.confirmation.value = TAG
    form.inputs["base"].value = "dev"
    form.apply.click()
    assert not form.busy
    assert fingerprint(world) == before


def test_a_preview_waits_for_the_complete_answer_of_a_card_which_belongs_to_one_image(world: PracticeWorld) -> None:
    form = create("05-golden-values", tag=TAG)
    name = "a/b/golden_values_x.json"
    asked = {"kind": "accept", "subject": name, "why": "", "facts": {"danger": "divergence"}}
    form.cards.offer([Card(asked)], keep=True)
    card = press(form, f"accept:{name}", "accept")
    card.reason.value = "ok"
    assert form.preview.disabled
    card.typed.value = "divergence"
    assert not form.preview.disabled
    form.inputs["base"].value = "dev"
    assert form.cards.shown == []


def test_a_fault_of_the_form_is_shown_and_the_run_is_followed_to_its_end(
    world: PracticeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise TypeError("no such thing")

    form = create(tag=TAG)
    monkeypatch.setattr(form_views, "result", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    previewed(form)
    assert "TypeError: no such thing" in shown(form, "error")
    assert child.find_run(form.target().folder()) is None


def test_an_invalid_value_is_named_at_once_and_when_it_is_used(world: PracticeWorld, tmp_path: Path) -> None:
    form = create(tag=TAG)
    for name, wrong, problem in (
        ("base", "a..b", "not a valid branch name"),
        ("repo", str(tmp_path / "none"), "There is no folder"),
        ("repo", "~nobody-at-all/x", "~nobody-at-all"),
        ("tag", " 26.04-PY3", "did you mean &#x27;26.04-py3&#x27;?"),
    ):
        right = form.inputs[name].value
        form.inputs[name].value = wrong
        wait_until(lambda problem=problem: problem in shown(form, "error"))
        assert problem in shown(previewed(form), "error") + shown(form, "result")
        assert form.apply.disabled
        form.inputs[name].value = right
        assert shown(form, "error") == ""


def test_a_failed_run_is_shown_in_the_form(world: PracticeWorld) -> None:
    form = previewed(create(tag="26.12-py3"))
    assert "has no tag 26.12-py3" in shown(form, "result")
    assert form.apply.disabled
    form.inputs["base"].value = "other"
    assert shown(form, "error") == shown(form, "result") == ""
    form = previewed(create(tag=""))
    assert form.apply.disabled  # without a tag there is nothing to apply


def test_a_quarantined_test_is_re_enabled_without_a_tag(world: PracticeWorld) -> None:
    form = previewed(create("06-broken-tests", tag="", decisions=""))
    assert form.apply.disabled
    (name,) = [each.card.id for each in form.cards.shown if each.card.id.startswith("reenable:")]
    press(form, name, "reenable").reason.value = "fixed on main"
    previewed(form)
    assert "quarantine/main/" in shown(form, "result")
    assert form.apply.disabled
    form.confirmation.value = "main"
    form.apply.click()
    wait_until(lambda: not form.busy)
    assert "Done: re-enable 1 test" in shown(form, "result")
    assert "previewed" not in shown(form, "result")
