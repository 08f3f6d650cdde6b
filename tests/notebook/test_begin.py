"""The start of every notebook."""

from pathlib import Path

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.model import Effect
from runbook_lib.notebook import form
from runbook_lib.notebook.begin import begin
from runbook_lib.practice.world import PracticeWorld
from runbook_lib.record import run_file


@pytest.fixture
def world(practised: PracticeWorld, monkeypatch: pytest.MonkeyPatch) -> PracticeWorld:
    monkeypatch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")
    return practised


@pytest.mark.parametrize("interactive", [False, True])
def test_in_jupyterlab_every_run_is_a_preview(
    world: PracticeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], interactive: bool
) -> None:
    if interactive:
        monkeypatch.setenv("JPY_SESSION_NAME", "/x/01-github-pin.ipynb")
    forms: list[str] = []
    monkeypatch.setattr(form, "show", lambda name, _: forms.append(name))
    parameters = {"tag": "26.04-py3", "repo": str(world.checkout), "mode": "publish"}
    run = begin("01-github-pin", parameters)
    assert (run.bump.apply, run.bump.publish) == (not interactive, not interactive)
    assert (run.record.folder is None) is interactive
    assert forms == ["01-github-pin"] * interactive
    printed = capsys.readouterr().out
    assert "26.04-py3" in printed
    assert ("not those of the form" in printed) is interactive


@pytest.mark.parametrize(
    ("notebook", "parameters", "mode"),
    [
        ("bump", {}, "preview"),
        ("05-golden-values", {}, "preview"),
        ("05-golden-values", {"run_id": "7"}, "publish"),
        ("06-broken-tests", {"run_id": "7"}, "preview"),
        ("06-broken-tests", {"decisions": "decisions.yaml"}, "publish"),
        ("build-image", {}, "preview"),
    ],
)
def test_a_run_without_a_tag_has_the_mode_in_which_it_runs(
    world: PracticeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notebook: str, parameters: dict[str, str],
    mode: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "decisions.yaml").touch()
    run = begin(notebook, {"repo": str(world.checkout), "mode": "publish", **parameters})
    run.record.effect(Effect("push", "x", None, "y"))
    run.close()
    (file,) = (tmp_path / "audit").rglob("run.json")
    found = run_file.read(file.parent)
    assert (run.bump.mode, found["mode"], found["state"]) == (mode, mode, "done")


@pytest.mark.parametrize("parameter", [{"repo": "/nowhere"}, {"mode": "apply"}])
def test_an_invalid_parameter_is_refused_before_a_record_is_opened(
    world: PracticeWorld, tmp_path: Path, parameter: dict[str, object]
) -> None:
    with pytest.raises(RunbookError):
        begin("01-github-pin", {"repo": str(world.checkout), **parameter})
    assert not (tmp_path / "audit").exists()
