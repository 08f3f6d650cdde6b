"""The notebooks as they are shipped: their form, their previews that change nothing, and the whole bump."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import executing as run
import pytest
from bumping import written
from executing import Ran
from practice_state import fingerprint

from runbook_lib.cli.__main__ import main
from runbook_lib.practice.store import CI_SECONDS
from runbook_lib.practice.world import PracticeWorld
from runbook_lib.record.store import verify

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "runbooks").glob("*.ipynb"))
#: The quick tests execute these two: together they use every package that the others use.
QUICK = ("bump", "00-preflight")
TAG = "26.04-py3"
#: The common parameters with their defaults, in the order in which every notebook lists those that it takes.
COMMON = {
    "tag": "",
    "repo": "",
    "image_type": "dev",
    "base": "main",
    "remote": "origin",
    "decisions": "",
    "mode": "",
}
#: Those that a notebook has no use for.
UNUSED = {
    "00-start": {"mode"},
    "08-after-merge": {"decisions", "mode"},
    "investigate-ci": {"remote", "decisions", "mode"},
    "build-image": {"remote", "decisions"},
    "work-inside": {"remote", "decisions"},
    "slurm-verify": {"decisions"},
    "bisect-image": {"remote", "decisions"},
}
#: What the head of every notebook tells, in this order.
HEAD = ["Needs:", "Takes:", "Changes:", "You should see:", "If", "Undo:", "Next:"]


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


# -- form --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_thin_stored_without_outputs_and_takes_the_common_parameters(path: Path) -> None:
    code = cells(path, "code")
    assert all(cell["metadata"]["jupyter"] == {"source_hidden": True} for cell in code)
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    (parameters,) = [cell for cell in code if "parameters" in cell["metadata"].get("tags", [])]
    for cell in code:
        tree = ast.parse(source(cell))
        heavy = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.Try, ast.With, ast.Lambda, ast.ListComp)
        assert not [node for node in ast.walk(tree) if isinstance(node, heavy)]
        assert cell is parameters or len(source(cell).splitlines()) <= 8
    assert code[-1]["source"] in (["run.record.raise_if_failed()"], ["run.close()"])
    lines = source(parameters).splitlines()
    assert all(" = " in line and "  # " in line and line.count(": ") for line in lines)
    declared = {node.target.id: ast.literal_eval(node.value) for node in ast.parse(source(parameters)).body}  # type: ignore[attr-defined]
    assert {type(default) for default in declared.values()} <= {str, bool}
    expected = {name: value for name, value in COMMON.items() if name not in UNUSED.get(path.stem, ())}
    assert list(declared)[: len(expected)] == list(expected)
    assert {name: value for name, value in declared.items() if name in COMMON} == expected


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_head_of_a_notebook_has_all_parts_and_its_links_lead_somewhere(path: Path) -> None:
    head = source(cells(path, "markdown")[0])
    assert head.startswith("# ")
    assert list(dict.fromkeys(re.findall(r"^- \*\*(.+?)\*\*", head, re.MULTILINE))) == HEAD
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]+)#?([^)]*)\)", head):
        headings = re.findall(r"^#+ (.+)$", (path.parent / target).read_text(), re.MULTILINE)
        assert anchor in {"", *(re.sub(r"[^\w -]", "", it.lower()).replace(" ", "-") for it in headings)}


# -- runs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(practised: PracticeWorld) -> PracticeWorld:
    slow_ci(practised, 36000.0)  # it ends where a test lets it
    return practised


def slow_ci(world: PracticeWorld, seconds: float) -> None:
    with world.store.transaction() as state:
        state.ci_seconds = seconds


def execute(name: str, **parameters: object) -> Ran:
    return run.execute(ROOT / "runbooks" / f"{name}.ipynb", parameters)


@pytest.mark.parametrize("name", QUICK)
def test_a_preview_changes_nothing(name: str, world: PracticeWorld) -> None:
    before = fingerprint(world)
    result = execute(name, tag=TAG, mode="preview")
    assert result.ok, result.summary
    assert result.run["effects"] == []
    assert fingerprint(world) == before


@pytest.mark.slow
def test_a_preview_describes_the_effects_of_apply(world: PracticeWorld) -> None:
    result = execute("bump", tag=TAG, mode="preview")
    assert (result.state, result.summary[:15]) == ("previewed", "Preview: would ")
    planned = [(it["publish"], it["sentence"].split()[0]) for it in result.run["planned"]]
    assert planned == [
        (False, "commit"), (True, "push"), (True, "open"), (True, "update"), (True, "set"), (True, "authorize"),
    ]  # fmt: skip
    command = "environment/run papermill runbooks/bump.ipynb -r tag 26.04-py3 -r mode publish"
    assert result.next == f"Run it: {command}"
    waiting = execute("bump", tag=TAG, mode="preview", wait=True)
    *first, away = waiting.run["planned"]
    assert first == result.run["planned"]
    assert away["publish"]
    assert "never accepts values that are held back or declares a test broken" in away["sentence"]
    assert waiting.next.endswith("bump.ipynb -r tag 26.04-py3 -r mode publish -p wait True")


def test_the_plan_of_a_preview_is_data(world: PracticeWorld, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "03-open-pr", "-r", "tag", TAG, "-r", "mode", "preview", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["version"], document["notebook"]["name"], document["state"]) == (1, "03-open-pr", "previewed")
    states = {each["kind"]: each["state"] for each in document["conditions"]}
    assert states == dict.fromkeys(("Committed", "Pushed", "PullOpen", "Described", "Labelled"), "would be made")
    assert main(["run", "--json", "03-open-pr", "-r", "tga", TAG]) == 1
    assert "no parameter 'tga'" in json.loads(capfd.readouterr().out)["error"]["message"]


STEPS = [
    "00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr", "04-run-ci", "05-golden-values", "06-broken-tests",
    "07-sync-check", "ready",
]  # fmt: skip
ACCEPT = "hybrid/hybrid_mr_tp2_cp2/golden_values_dev_dgx_h100.json: known, and right"
BROKEN = "gpt3_mcore_te_tp4_pp1_long@dgx_h100: it hangs; moe/gpt3_moe_mcore_tp2_ep4_memory: out of memory"


@pytest.mark.slow
def test_the_complete_loop_to_ready_to_merge(world: PracticeWorld) -> None:
    slow_ci(world, CI_SECONDS)
    first = execute("bump", tag=TAG, wait=True)
    assert first.state == "waiting"
    assert first.summary.startswith("not ready to merge; missing: a green CI run of the head commit, ")
    assert first.next.endswith(f"runbook review {TAG}")
    bump = first.run
    kinds = {effect["kind"] for effect in bump["effects"]}
    assert {"branch", "commit", "push", "pull request", "label", "comment"} <= kinds
    assert (bump["mode"], [*dict.fromkeys(step["name"] for step in bump["steps"])]) == ("publish", STEPS)
    told = written(world.home.parent / "decisions.yaml", accept=ACCEPT, broken=BROKEN, confirm="divergence")
    second = execute("bump", tag=TAG, wait=True, decisions=told)
    assert (second.state, second.summary[:14]) == ("done", "Ready to merge"), second.summary
    assert second.record is not None
    assert "known, and right" in (second.record / "report.html").read_text()
    assert (second.record / "decisions.yaml").read_text() == Path(told).read_text()
    (pull,) = world.forge().pulls()
    assert second.run["inputs"]["ready_commit"] == pull.head_sha
    before = fingerprint(world)
    third = execute("bump", tag=TAG, decisions=told)
    assert (third.summary, third.run["effects"]) == (second.summary, [])
    assert fingerprint(world) == before
    titles = [issue.title for issue in world.forge().list_issues()]
    assert len([title for title in titles if title.startswith("🐛 CI failure: ")]) == 2
    audit = Path(os.environ["RUNBOOK_AUDIT"])
    texts = [path.read_text() for path in audit.glob("practice/*/main/*/*/executed.ipynb")]
    assert len(texts) == 3  # one of each run
    assert not [text for text in texts if "application/vnd.jupyter.widget" in text or len(text) > 1_000_000]
    assert verify(audit)[0] == []


@pytest.mark.slow
def test_another_branch_and_the_other_type_bump_by_the_same_way(world: PracticeWorld) -> None:
    result = execute("bump", tag=TAG, base="core_r0.1.0", image_type="lts")
    assert result.state == "waiting", result.summary
    (pull,) = world.forge().pulls()
    assert (pull.base_ref, "container::lts" in pull.labels) == ("core_r0.1.0", True)


# -- nbval -------------------------------------------------------------------------------------------------------

#: What two runs tell differently: progress, and the same as HTML and pictures.
SANITIZED = "[progress]\nregex: [0-9]+ of [0-9]+ .* read\\s*\nreplace:\n[markup]\nregex: (?s)^<.*$\nreplace: markup\n"


def nbval(folder: Path, *notebooks: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "sanitized").write_text(SANITIZED)
    pytest_nbval = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--nbval-current-env"]
    command = [*pytest_nbval, "--nbval-lax", "--nbval-sanitize-with", str(folder / "sanitized"), *map(str, notebooks)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def previewed(name: str, folder: Path, tag: str) -> Path:
    """Execute a preview, whose steps nbval shall compare, and return it as a notebook that asks to publish."""
    path = folder / f"{name}.ipynb"
    result = run.execute(ROOT / "runbooks" / path.name, {"tag": tag, "mode": "preview"}, path)
    assert result.state == "previewed", result.summary
    text = path.read_text().replace('mode = \\"preview\\"', 'mode = \\"publish\\"')
    path.write_text(re.sub(r'"(run\.(?:step|rounds)\()', r'"# NBVAL_CHECK_OUTPUT\\n\1', text))
    return path


def with_tag(path: Path, folder: Path) -> Path:
    """A copy that previews the bump to a tag."""
    text = path.read_text().replace('tag: str = \\"\\"', f'tag: str = \\"{TAG}\\"')
    (folder / path.name).write_text(text)
    return folder / path.name


@pytest.mark.slow
def test_nbval_runs_all_notebooks_and_compares_the_verdicts(world: PracticeWorld, tmp_path: Path) -> None:
    slow_ci(world, CI_SECONDS)
    execute("bump", tag=TAG, wait=True)
    judged = [previewed(name, tmp_path, TAG) for name in ("05-golden-values", "06-broken-tests", "07-sync-check")]
    new = previewed("bump", tmp_path, "26.05-py3")
    (tmp_path / "others").mkdir()
    others = [with_tag(path, tmp_path / "others") for path in NOTEBOOKS]
    before, records = fingerprint(world), set((tmp_path / "audit").rglob("run.json"))
    done = nbval(tmp_path, *judged, new, *others)  # a step tells what the archive has of earlier runs
    assert done.returncode == 0, done.stdout[-3000:]
    assert fingerprint(world) == before
    told = [json.loads(path.read_text()) for path in set((tmp_path / "audit").rglob("run.json")) - records]
    assert {it["notebook"]["name"] for it in told} == {path.stem for path in NOTEBOOKS}
    assert not [it["effects"] for it in told if it["effects"]]
    verdicts = judged[0].read_text()
    assert verdicts.count("NBVAL_CHECK_OUTPUT") == 2
    judged[0].write_text(verdicts.replace("  held back  ", "  refreshed  "))
    assert nbval(tmp_path, judged[0]).returncode == 1
