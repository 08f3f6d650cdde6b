"""The form, driven without a browser: what can be pressed when, and what is started."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bumping import git
from test_notebooks import execute, seen

from runbook_lib import practice
from runbook_lib.forms import form as forms
from runbook_lib.forms.form import Form
from runbook_lib.practice import World
from runbook_lib.runner import background

ROOT = Path(__file__).resolve().parents[2]
TAG = "26.04-py3"


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    monkeypatch.setenv("JPY_SESSION_NAME", str(ROOT / "runbooks/01-github-pin.ipynb"))
    monkeypatch.setenv("RUNBOOK_PRACTICE_CI_SECONDS", "3600")  # it ends where a test lets it
    with practice.start() as started:
        for name, value in started.env.items():
            monkeypatch.setenv(name, value)
        yield started
        for thread in threading.enumerate():
            if thread.name == "form":
                thread.join(120)


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
    monkeypatch.setenv("JPY_SESSION_NAME", "/x/bump.ipynb")
    assert not forms.headless()
    monkeypatch.setenv("RUNBOOK_RECORD", "/x")  # a run that started from there
    assert forms.headless()


def test_a_plan_is_shown_before_apply_can_be_pressed(world: World) -> None:
    form = made(tag=TAG)
    assert (form.view.preview.disabled, form.view.apply.disabled) == (False, True)
    form.view.cancel.click()
    assert "Nothing is going on" in shown(form, "runbook-warning")
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
    assert (
        len(list((world.home.parent / "audit").rglob("run.json"))) == 3
    )  # the preview, and one more that Apply begins with


def test_what_leaves_the_machine_is_confirmed_by_typing_the_tag(world: World) -> None:
    form = previewed(made("03-open-pr", tag=TAG))
    assert form.view.apply.disabled
    for typed, ready in (("26.05-py3", False), (f" {TAG} ", True), ("", False)):
        form.view._confirm.value = typed
        assert form.view.apply.disabled is not ready
        differs = typed.strip() not in ("", TAG)
        assert ("is not 26.04-py3" in shown(form, "runbook-warning")) is differs


def test_a_click_that_was_on_its_way_applies_nothing_that_was_not_shown(world: World) -> None:
    before = seen(world)
    form = previewed(made("03-open-pr", tag=TAG))
    form.view.apply.click()  # not confirmed: what is disabled in the browser is not disabled in the kernel
    form.view._confirm.value = TAG
    field(form, "base").value = "dev"
    form.view.apply.click()
    assert form._running is None
    assert seen(world) == before


@pytest.mark.slow
def test_a_push_to_another_forge_is_confirmed_by_its_destination(world: World) -> None:
    for notebook in ("01-github-pin", "02-gitlab-pin"):
        assert execute(notebook, tag=TAG, apply=True).state == "done"
    git(world.checkout, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qam", "Move the pin")
    form = previewed(made("internal-ci", tag=TAG))
    form.view._confirm.value = TAG
    form.view.apply.click()
    assert form._running is None
    assert "is not pull-request/bump" in shown(form, "runbook-warning")
    form.view._confirm.value = f"pull-request/bump/main/dev-{TAG}"
    form.view.apply.click()
    until(lambda: form._running is None)
    assert "… waiting" in shown(form, "runbook-result"), shown(form, "runbook-error")


@pytest.mark.slow
def test_a_plan_that_does_not_hold_any_more_is_not_applied(world: World, tmp_path: Path) -> None:
    form = previewed(made(tag=TAG))
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(world.home / "remote.git"), str(other))
    for path in ("docker/.ngc_version.dev", "docker/Dockerfile.ci.dev", ".gitlab/stages/01.build.yml"):
        text = (other / path).read_text()
        (other / path).write_text(text.replace("26.02-py3", "26.01-py3"))
    git(other, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qam", "Back")
    git(other, "push", "-q", "origin", "HEAD:main")
    before = git(world.checkout, "status", "--porcelain", "--branch")
    form.view.apply.click()
    until(lambda: form._running is None)
    assert "not what was shown any more" in shown(form, "runbook-error")
    assert git(world.checkout, "status", "--porcelain", "--branch") == before
    plan = shown(previewed(form), "runbook-plan")
    assert "26.01-py3" in plan
    form.view.apply.click()
    until(lambda: form._running is None)
    assert "✓ done" in shown(form, "runbook-result")


def test_what_was_decided_for_one_image_is_not_decided_for_another(world: World) -> None:
    form = made("06-broken-tests", tag=TAG)
    asked = {"parameter": "broken", "name": "gpt/a@dgx_h100", "why": "It failed.", "suggestion": "it fails"}
    form.view.pending([asked])
    (row,) = form.view._rows.values()
    row.box.value = True
    assert form.view.values()["broken"] == "gpt/a@dgx_h100: it fails"
    form.view.pending([])  # asked no more, but chosen
    assert form.view.values()["broken"]
    field(form, "base").value = "dev"
    assert form.view.values()["broken"] == ""
    assert row.whole.comm is None  # closed, so that rows do not pile up


def test_a_foreign_commit_is_confirmed_by_its_row(world: World) -> None:
    form = made("04-run-ci", tag=TAG)
    field(form, "allow").value = "merge-base"
    name = f"foreign-commit:{'a' * 40}"
    form.view.pending([{"parameter": "allow", "name": name, "why": "Read its diff.", "suggestion": ""}])
    (row,) = form.view._rows.values()
    assert form.view.values()["allow"] == "merge-base"
    row.box.value = True
    assert form.view.values()["allow"] == f"merge-base, {name}"
    assert form.view.lacking() == {}
    assert form.view.problems == {}


def test_what_is_typed_is_looked_up_when_it_rests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    form, asked = made("05-golden-values", tag=TAG), []
    monkeypatch.setattr(forms.choices, "current", lambda checkout, bump: asked.append(bump.base) or ())
    for base in ("r", "re", "rel"):
        field(form, "base").value = base
    until(lambda: asked)
    assert asked == ["rel"]


def test_a_fault_of_the_form_is_told_and_the_run_is_followed_to_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise TypeError("no such thing")

    form = made(tag=TAG)
    monkeypatch.setattr(forms.html, "plan", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    previewed(form)
    assert "a fault of its own: TypeError: no such thing" in shown(form, "runbook-error")
    assert background.active_runs(world.home.parent / "audit") == []


def test_an_archive_that_cannot_be_read_for_a_moment_loses_no_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls = forms.run_view.find_run, []

    def sometimes(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) % 4:
            raise PermissionError(13, "denied")
        return read(*given, **named)

    monkeypatch.setattr(forms.run_view, "find_run", sometimes)
    assert "change 2 lines" in shown(previewed(made(tag=TAG)), "runbook-plan")


def test_only_a_run_of_the_same_bump_is_taken_for_ones_own(world: World) -> None:
    running = made("bump", tag=TAG)
    running.view.preview.click()
    audit = world.home.parent / "audit"
    until(lambda: audit.is_dir() and background.active_runs(audit))
    other, same = made("01-github-pin", tag="26.03-py3"), made("01-github-pin", tag=TAG)
    other.begin()
    same.begin()
    until(lambda: same._running is not None)
    assert other._running is None
    same.view.cancel.click()
    until(lambda: running._running is None)


def test_what_is_wrong_is_said_below_the_field_and_nothing_can_be_pressed(world: World, tmp_path: Path) -> None:
    form = made(tag=TAG)
    field(form, "base").value = "a..b"
    assert "not a valid branch name" in form.view._told["base"].value
    assert form.view.preview.disabled
    field(form, "base").value = "nope"
    until(lambda: "does not exist" in form.view._told["base"].value)
    assert form.view.preview.disabled
    field(form, "base").value = "main"
    assert not form.view.preview.disabled
    field(form, "repo").value = str(tmp_path / "none")
    assert "There is no folder" in form.view._told["repo"].value
    field(form, "remote").value = "fork"
    assert "There is no folder" in form.view._told["repo"].value
    assert form.view.preview.disabled
    for wrong, why in (("~nobody-at-all/x", "whom this machine does not know"), ("/tmp/\0", "cannot be seen")):
        field(form, "audit").value = wrong
        assert why in form.view._told["audit"].value
    field(form, "audit").value = ""
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
    until(lambda: audit.is_dir() and background.active_runs(audit))
    other.view.preview.click()
    assert "A run of bump for 26.04-py3 goes on" in shown(other, "runbook-error")
    other.begin()
    until(lambda: other._running is not None)
    other.view.cancel.click()
    until(lambda: form._running is None and other._running is None)
    assert "cancelled" in shown(form, "runbook-result")
    assert background.active_runs(audit) == []


def test_tags_are_offered_newest_first_and_the_present_one_is_marked(world: World) -> None:
    form = made()
    form._fill(form._asked)
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
