"""The smoke check: what is no answer first, then versions against claims, and the program with a real Python."""

import json
import subprocess
import sys

import pytest
from building import ANSWER

from runbook_lib.compute import smoke
from runbook_lib.errors import CannotTell

CLAIMS = {
    "CUDA": "13.2.0.046", "driver": "595.45.04", "cuDNN": "9.20.0.48", "NCCL": "2.29.7",
    "PyTorch": "2.12.0a0+0291f96", "Transformer Engine": "2.14", "Python": "3.12.3",
}  # fmt: skip


def said(problems: dict[str, str] | None = None, **found: str) -> str:
    told = {name.replace("_", " "): value for name, value in found.items()}
    kept = {name: value for name, value in {**ANSWER["found"], **told}.items() if value}  # type: ignore[dict-item]
    return f"== PyTorch ==\nrunbook-smoke {json.dumps({'found': kept, 'problems': problems or {}})}\n"


@pytest.mark.parametrize(
    "text", ["hello", "runbook-smoke", "runbook-smoke {}", 'runbook-smoke {"found": 1, "problems": {}}']
)
def test_invalid_answers(text):
    with pytest.raises(CannotTell, match="printed no result in the image; its last line is"):
        smoke.judge(CLAIMS, text)


def test_an_image_as_claimed():
    found = smoke.judge(CLAIMS, said())
    assert {it.verdict for it in found} == {"as claimed"}
    assert not any(it.wrong or it.row["note"] for it in found)
    assert {(it.verdict, it.wrong) for it in smoke.judge({}, said())} == {("not claimed", False)}
    assert found[1].row == {
        "component": "PyTorch", "claimed by the registry": "2.12.0a0+0291f96",
        "found in the image": "2.12.0a0+0291f96.nv26.4", "verdict": "as claimed", "note": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "name", "verdict", "wrong"),
    [
        ({"PyTorch": "2.11.0a0+eb65b36"}, "PyTorch", "another version", True),
        ({"PyTorch": "2.12.0a0+abcdef0.nv26.4"}, "PyTorch", "another version", True),
        ({"PyTorch": ""}, "PyTorch", "not found", True),
        ({"CUDA": "13.1"}, "CUDA", "another version", True),
        ({"CUDA": "None"}, "CUDA", "another version", True),
        ({"NCCL": "2.30.3"}, "NCCL", "another version", False),
        ({"Transformer_Engine": ""}, "Transformer Engine", "not found", False),
    ],
)
def test_differences_are_named(found, name, verdict, wrong):
    judged = {it.name: it for it in smoke.judge(CLAIMS, said(**found))}
    assert (judged[name].verdict, judged[name].wrong) == (verdict, wrong)
    assert {it.verdict for other, it in judged.items() if other != name} == {"as claimed"}
    assert bool(judged[name].row["note"]) == (verdict == "another version" and not wrong)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("13.2.0.046", "13.2", True), ("13.2", "13.20", False), ("2.14", "2.14.0", True), ("", "", False),
        ("2.12.0a0+0291f96", "2.12.0a0+0291f96.nv26.4", True), ("2.12.0", "2.12.0+cu132", True),
        ("2.29.2-1+cuda13.1", "2.29.2", True), ("x", "x", False), ("3.12.3", "3.12.4", False),
    ],
)  # fmt: skip
def test_versions_are_one_as_far_as_both_tell(one, other, same):
    assert smoke.same_version(one, other) == same


# -- the program -----------------------------------------------------------------------------------------------------


def run(tmp_path, torch: str | None) -> dict[str, smoke.CheckedVersion]:
    if torch is not None:
        (tmp_path / "torch.py").write_text(torch)
        (tmp_path / "transformer_engine-2.14.0.dist-info").mkdir(exist_ok=True)
        (tmp_path / "transformer_engine-2.14.0.dist-info/METADATA").write_text(
            "Metadata-Version: 2.1\nName: transformer_engine\nVersion: 2.14.0\n"
        )
    command = [sys.executable, *smoke.COMMAND[1:]]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    claims = {**CLAIMS, "Python": sys.version.split()[0]}
    return {it.name: it for it in smoke.judge(claims, done.stdout)}


TORCH = """
class version: cuda = "13.2"
class cuda:
    class nccl:
        version = staticmethod(lambda: (2, 29, 7))
class backends:
    class cudnn:
        version = staticmethod(lambda: 92000)
__version__ = "2.12.0a0+0291f96.nv26.4"
"""


def test_the_program_reads_the_versions(tmp_path):
    found = run(tmp_path, TORCH)
    assert {(it.verdict, it.problem) for it in found.values()} == {("as claimed", "")}


def test_the_program_reports_failed_imports_and_what_is_missing(tmp_path):
    found = run(tmp_path, None)
    assert {it.name for it in found.values() if it.verdict == "not found"} == set(found) - {"Python"}
    found = run(tmp_path, "raise ImportError('libcudart.so.13')")
    assert found["PyTorch"].row["note"] == found["CUDA"].row["note"] == "ImportError: libcudart.so.13."
    assert found["Python"].verdict == "as claimed"
