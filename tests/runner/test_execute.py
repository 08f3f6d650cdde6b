"""Running notebooks: how runs end, and what is kept of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_runbooks import PARAMETERS, bump, notebook, outputs, records, shared_kernel, warm  # noqa: F401

from runbook_lib.errors import RunbookError
from runbook_lib.record.verify import verify
from runbook_lib.runner import execute
from runbook_lib.text.notebook_file import BadParameter


@pytest.fixture(autouse=True)
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "audit"))
    return tmp_path / "audit"


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_bytes())
    return found


# -- how runs end --------------------------------------------------------------------------------------------------


def test_a_run_leaves_a_complete_record(tmp_path: Path, audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "0123456789abc")
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook in JupyterLab")
    monkeypatch.chdir(tmp_path)  # this checkout may have a name of its own
    path = notebook(
        tmp_path / "my runbooks" / "01-pin.ipynb",
        "print('a token: ' + os.environ['GITHUB_TOKEN'])\nprint('JPY_SESSION_NAME' in os.environ, os.getcwd(), run_id)",
        "step.add_inputs(digest='sha256:1', commit='c0ffee')\nstep.effect('edit', 'a.yml', 'old', 'new')\n"
        "step.check(Check('pins', 'passed', 'all agree'))\nstep.diff('-old\\n+new\\n')\n"
        "step.link('PR', 'https://github.com/o/r/pull/1')\nstep.done('4 lines changed.', next='papermill 03.ipynb')",
        "step.show()",
    )
    heard: list[str] = []
    output = tmp_path / "out" / "deep" / "01.ipynb"
    text = 'it\'s "quoted" {tag} \\n $(x) ü'
    result = execute.execute(
        path, {"tag": "26.04-py3", "run_id": text, "repo": "."}, output, on_output=lambda name, text: heard.append(text)
    )
    assert (result.notebook, result.state, result.summary) == ("01-pin", "done", "4 lines changed.")
    assert (result.next, result.links) == ("papermill 03.ipynb", {"PR": "https://github.com/o/r/pull/1"})

    folder = result.record
    assert folder is not None
    assert folder.parent == audit / "o-r" / "main" / "dev-26.04-py3"
    assert folder.name.split("-", 1)[1].startswith("01-pin-")
    found = document(folder)
    files = ["change.diff", "contributions.jsonl", "executed.ipynb", "report.html"]
    assert list(found["files"]) == files
    assert sorted(entry.name for entry in folder.iterdir()) == sorted([*files, "run.json"])
    assert found["state"] == "done"
    assert found["started"] < found["ended"]
    assert found["parameters"]["given"] == {"tag": "26.04-py3", "run_id": text, "repo": "."}
    assert found["parameters"]["resolved"]["repo"] == str(Path.cwd())
    assert found["inputs"] == {"digest": "sha256:1", "commit": "c0ffee"}
    assert found["effects"][0]["after"] == "new"
    assert found["who"]["git"] == "Ada Tester <ada@example.org>"
    assert len(found["notebook"]["sha256"]) == len(found["requirements"]["sha256"]) == 64
    assert found["library"].keys() >= {"version", "commit", "dirty", "python"}

    assert output.read_bytes() == (folder / "executed.ipynb").read_bytes()
    printed = outputs(output)
    assert printed[0] == f"a token: ***\nFalse {path.parent} {text}\n"
    assert "".join(heard).endswith(printed[0].split("\n", 1)[1])
    assert not any(b"0123456789abc" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert verify(audit) == ([], verify(audit)[1])
    assert (audit / "index.html").read_text().count("01-pin") >= 2


@pytest.mark.parametrize(
    ("cells", "parameters", "state", "words"),
    [
        (["step.done('x')"], {"mode": "preview"}, "previewed", "x"),
        (["step.waiting('Waiting for run 1.', next='again')"], {}, "waiting", "Waiting for run 1."),
        (["step.check(Check('pins', 'failed', 'differ'))"], {}, "failed", "This check failed: pins."),
        (
            ["step.check(Check('pins', 'failed', 'differ'))\nstep.raise_if_failed()"],
            {},
            "failed",
            "This check failed: pins (differ). (a b, cell 4)",
        ),
        (["raise RunbookError('No such tag: 26.04. Take another.')"], {}, "failed", "Take another. (a b, cell 4)"),
        (["1 / 0", "print('never')"], {}, "failed", "a b, cell 4 raised ZeroDivisionError: division by zero."),
        (["raise SystemExit(3)"], {}, "failed", "raised SystemExit: 3"),
    ],
)
@pytest.mark.usefixtures("warm")
def test_state_and_summary_of_a_run(
    tmp_path: Path, audit: Path, cells: list[str], parameters: dict[str, Any], state: str, words: str
) -> None:
    path = notebook(tmp_path / "runbooks" / "a b.ipynb", *cells)
    result = execute.execute(path, parameters)
    assert (result.state, result.ok) == (state, state in ("previewed", "waiting"))
    assert words in result.summary
    assert result.record is not None
    assert document(result.record)["outcome"]["sentence"] == result.summary
    assert words.split(" (")[0] in (result.record / "report.html").read_text().replace("&#x27;", "'")
    assert "never" not in " ".join(outputs(result.record / "executed.ipynb"))
    assert verify(audit)[0] == []


@pytest.mark.parametrize(
    ("cell", "state", "words"),
    [
        ("time.sleep(60)", "failed", "Cell 5 of 01-a did not finish within 1 second and was stopped."),
        ("os.kill(os.getpid(), 9)", "interrupted", "The kernel that ran 01-a died"),
        (
            "import sys; print('Out of memory', file=sys.__stderr__, flush=True); os._exit(1)",
            "interrupted",
            "Its last output: Out of memory",
        ),
    ],
)
@pytest.mark.slow
def test_reports_a_killed_or_slow_kernel(tmp_path: Path, audit: Path, cell: str, state: str, words: str) -> None:
    path = notebook(tmp_path / "runbooks" / "01-a.ipynb", "print('so far')", cell)
    result = execute.execute(path, {}, cell_timeout=1)
    assert (result.state, result.ok) == (state, False)
    assert words in result.summary
    assert result.record is not None
    assert outputs(result.record / "executed.ipynb")[0] == "so far\n"
    assert verify(audit)[0] == []


@pytest.mark.usefixtures("warm")
def test_a_notebook_without_contributions_is_incomplete(tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", "del step", parameters="x: int = 1")
    data = json.loads(path.read_bytes())
    data["cells"] = [data["cells"][1]]
    path.write_text(json.dumps(data))
    result = execute.execute(path, {})
    assert (result.state, result.ok) == ("failed", False)
    assert "never called begin()" in result.summary


def test_wrong_parameters_run_nothing_and_leave_nothing(tmp_path: Path, audit: Path) -> None:
    path = notebook(tmp_path / "runbooks" / "a.ipynb", "open('touched', 'w')")
    with pytest.raises(BadParameter, match="Did you mean tag"):
        execute.execute(path, {"tga": "26.04-py3"})
    assert not audit.exists()
    assert not (path.parent / "touched").exists()


def test_reports_an_unwritable_archive_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNBOOK_AUDIT", str(tmp_path / "file" / "audit"))
    (tmp_path / "file").write_text("")
    path = notebook(tmp_path / "runbooks" / "a.ipynb", "open('touched', 'w')")
    with pytest.raises(RunbookError, match="could not be written"):
        execute.execute(path, {})
    assert not (path.parent / "touched").exists()


@pytest.mark.usefixtures("warm")
def test_a_full_disk_fails_the_run(tmp_path: Path, audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runbook_lib.runner import notebook as executed

    saved: list[bytes] = []

    def write(path: Path, content: bytes) -> None:
        saved.append(content)
        if b"first" in content.rpartition(b'"stdout"')[2]:
            raise RunbookError(f"{path} could not be written. The disk is full.")

    monkeypatch.setattr(executed, "write", write)
    path = notebook(tmp_path / "runbooks" / "a.ipynb", "print('first')", "open('touched', 'w')")
    result = execute.execute(path, {})
    assert result.state == "failed"
    assert "The disk is full" in result.summary
    assert not (path.parent / "touched").exists()


# -- steps ---------------------------------------------------------------------------------------------------------
