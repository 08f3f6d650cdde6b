"""The form, driven without a browser: what can be pressed when, and what is started."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bumping import git

from runbook_lib import forms, launch, practice
from runbook_lib.forms import Form
from runbook_lib.practice import World

ROOT = Path(__file__).resolve().parents[1]
TAG = "26.04-py3"


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    monkeypatch.setenv("JPY_SESSION_NAME", str(ROOT / "runbooks/01-github-pin.ipynb"))
    with practice.start() as started:
        for name, value in started.env.items():
            monkeypatch.setenv(name, value)
        yield started
        for thread in threading.enumerate():
            if thread.name == "form":
                thread.join(30)


def made(notebook: str = "01-github-pin", *, applies: bool = True, **values: Any) -> Form:
    return Form(ROOT / f"runbooks/{notebook}.ipynb", {"base": "main", "image_type": "dev", **values}, applies=applies)


def field(form: Form, name: str) -> Any:
    return form.view._inputs[name]


def previewed(form: Form) -> Form:
    form.view.preview.click()
    until(lambda: form._running is None)
    return form


def shown(form: Form, name: str) -> str:
    (found,) = [it for it in form.root.children if name in it._dom_classes]
    return str(found.value)


def test_headlessly_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "Form", None)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    forms.offer("bump", {})
    assert forms.permitted(apply=True, publish=False) == {"apply": True, "publish": False}
    monkeypatch.setenv("JPY_SESSION_NAME", "/x/bump.ipynb")
    assert forms.permitted(apply=True, publish=True) == {"apply": False, "publish": False}
    monkeypatch.setenv("RUNBOOK_RECORD", "/x")  # a run that started from there
    assert forms.headless()


def test_a_plan_is_shown_before_apply_can_be_pressed(world: World) -> None:
    form = made(tag=TAG)
    assert (form.view.preview.disabled, form.view.apply.disabled, form.view.cancel.disabled) == (False, True, True)
    before = git(world.checkout, "status", "--porcelain", "--branch")
    previewed(form)
    assert git(world.checkout, "status", "--porcelain", "--branch") == before
    plan = shown(form, "runbook-plan")
    assert f"change 2 lines on the branch bump/main/dev-{TAG}" in plan
    assert "docker/.ngc_version.dev" in plan
    assert not form.view.apply.disabled  # nothing leaves the machine, so nothing is typed
    field(form, "base").value = "dev"
    assert form.view.apply.disabled
    assert "Preview again" in shown(form, "runbook-warning")
    field(form, "base").value = "main"
    assert not form.view.apply.disabled
    assert shown(form, "runbook-warning") == ""
    form.view.apply.click()
    form.view.apply.click()  # twice
    until(lambda: form._running is None)
    assert "✓ done" in shown(form, "runbook-result")
    assert form.view.apply.disabled
    assert git(world.checkout, "diff", "--name-only").split() == ["docker/.ngc_version.dev", "docker/Dockerfile.ci.dev"]
    assert len(list((world.home.parent / "audit").rglob("run.json"))) == 2


def test_what_leaves_the_machine_is_confirmed_by_typing_the_tag(world: World) -> None:
    form = previewed(made("03-open-pr", tag=TAG))
    assert form.view.apply.disabled
    for typed, ready in (("26.05-py3", False), (f" {TAG} ", True), ("", False)):
        form.view._confirm.value = typed
        assert form.view.apply.disabled is not ready


def test_a_checkout_that_changed_under_the_form_is_looked_at_again(world: World) -> None:
    form = previewed(made(tag=TAG))
    (world.checkout / "docker/.ngc_version.dev").write_text("nvcr.io/nvidia/pytorch:26.01-py3\n")
    form.view.apply.click()
    assert "has changed since the plan was shown" in shown(form, "runbook-error")
    assert form._running is None
    assert form.view.apply.disabled
    previewed(form)
    assert "✗" in shown(form, "runbook-error") or not form.view.apply.disabled


def test_what_is_wrong_is_said_below_the_field_and_nothing_can_be_pressed(world: World, tmp_path: Path) -> None:
    form = made(tag=TAG)
    field(form, "base").value = "a..b"
    assert "cannot be the name of a branch" in form.view._told["base"].value
    assert form.view.preview.disabled
    field(form, "base").value = "main"
    field(form, "repo").value = str(tmp_path / "none")
    assert "There is no folder" in form.view._told["repo"].value
    field(form, "repo").value = ""
    assert form.view._told["repo"].value == ""
    assert not form.view.preview.disabled


def test_a_run_that_fails_is_told_in_the_form(world: World) -> None:
    form = previewed(made(tag="26.12-py3"))
    assert "has no tag 26.12-py3" in shown(form, "runbook-error")
    assert form.view.apply.disabled
    form = previewed(made(tag=""))
    assert form.view.apply.disabled  # without a tag there is nothing to apply


def test_a_run_can_be_cancelled_and_another_form_sees_it(world: World) -> None:
    form, other = made("bump", tag=TAG), made("bump", tag=TAG)
    form.view.preview.click()
    audit = world.home.parent / "audit"
    until(lambda: audit.is_dir() and launch.going_on(audit))
    other.view.preview.click()
    assert "A run of bump for 26.04-py3 goes on" in shown(other, "runbook-error")
    other.begin()
    until(lambda: other._running is not None)
    other.view.cancel.click()
    until(lambda: form._running is None and other._running is None)
    assert "cancelled" in shown(form, "runbook-result")
    assert launch.going_on(audit) == []


def test_tags_are_offered_newest_first_and_the_present_one_is_marked(world: World) -> None:
    form = made()
    form._fill()
    labels = [label for label, _ in field(form, "tag").options]
    assert labels[1].endswith("(newest)")
    assert [label for label in labels if "the pins name it now" in label] == ["26.02-py3 (the pins name it now)"]
    assert form.view.values()["tag"] == ""
    field(form, "tag").value = labels[-1]
    form.view._typed.value = " 26.04-PY3"
    assert "did you mean &#x27;26.04-py3&#x27;?" in form.view._told["tag"].value


def test_a_form_that_only_looks_has_no_apply(world: World) -> None:
    form = made("07-sync-check", applies=False, tag=TAG)
    assert form.view.preview.description == "Run"
    assert form.view.apply not in form.root.children
    previewed(form)
    assert "In sync" in shown(form, "runbook-result")
