"""Names that are options, commands, addresses or worse: refused in a sentence, or used as the name that they are."""

import ast
import contextlib
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bumping import git
from hostile import CANARY, NAMES
from layouts import layout
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from runbook_lib.cli.__main__ import main
from runbook_lib.errors import RunbookError
from runbook_lib.pins.bump import Bump
from runbook_lib.text.notebook_file import read_parameters, resolve
from runbook_lib.world import commands
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.machine.provenance import ROOT

NOTEBOOKS = {path.stem: read_parameters(path) or () for path in sorted((ROOT / "runbooks").glob("*.ipynb"))}
NAME = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
#: What a terminal must not get.
_STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(autouse=True)
def nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Every test stands in an empty folder, and none of the commands in the names may have left its sign there."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.rglob(f"*{CANARY}*"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """One commit, a remote of its own, and a work tree."""
    git(tmp_path, "init", "-q", str(tmp_path / "clone"))
    for path, text in layout(4).items():
        if text is not None:
            (tmp_path / "clone" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "clone" / path).write_text(text)
    git(tmp_path / "clone", "add", ".")
    git(tmp_path / "clone", "commit", "-qm", "Begin")
    git(tmp_path, "clone", "-q", "--bare", str(tmp_path / "clone"), str(tmp_path / "remote.git"))
    git(tmp_path / "clone", "remote", "add", "origin", str(tmp_path / "remote.git"))
    return Checkout.open(tmp_path / "clone")


@NAME
def test_a_parameter_is_a_value_and_never_code(name: str) -> None:
    for step, declared in NOTEBOOKS.items():
        texts = {parameter.name: name for parameter in declared if isinstance(parameter.default, str)}
        for given in (texts, {"tag": name} if "tag" in texts else {}):
            resolve(step, declared, given)
            notebook = load_notebook_node(str(ROOT / "runbooks" / f"{step}.ipynb"))
            if given:
                notebook = parameterize_notebook(notebook, dict(given), kernel_name="python3", language="python")
            injected = [cell for cell in notebook.cells if "injected-parameters" in cell.metadata.get("tags", ())]
            assert len(injected) == bool(given)
            for cell in injected:
                told = cell.source.encode("utf-8", "backslashreplace").decode()  # as it is written into the record
                body = ast.parse(told).body
                assigned = {ast.unparse(it.targets[0]): it.value for it in body if isinstance(it, ast.Assign)}
                assert len(assigned) == len(body)
                assert {key: ast.literal_eval(value) for key, value in assigned.items()} == given


@pytest.mark.parametrize("parameter", ["tag", "base", "remote", "image_type"])
def test_a_bump_takes_names_that_git_takes(parameter: str) -> None:
    for name in NAMES.values():
        try:
            bump = Bump.parse(**{"tag": "26.04-py3", parameter: name})  # type: ignore[arg-type]
        except RunbookError:
            continue
        assert not name.startswith("-")
        assert not _STEERS.search(f"{bump.branch} {bump.base} {bump.remote}")
        if bump.tag is not None:
            done = subprocess.run(["git", "check-ref-format", "--branch", bump.branch], capture_output=True)
            assert done.returncode == 0, bump.branch


@NAME
def test_a_command_that_is_shown_can_be_pasted(name: str) -> None:
    if "\x00" in name or "\udcff" in name:
        return  # no shell can be given them
    shown = commands.papermill("bump", {"tag": name, "repo": f"/a/{name}"})
    words = shlex.split(shown)
    given = [it for key, value in (("tag", name), ("repo", f"/a/{name}")) if value for it in ("-r", key, value)]
    assert words == ["environment/run", "papermill", "runbooks/bump.ipynb", *given]
    taken = f"environment/run() {{ printf '%s\\0' \"$@\"; }}\n{shown}\n"
    heard = subprocess.run(["bash", "-s"], input=taken.encode(), capture_output=True, check=True).stdout.decode()
    assert heard.split("\0")[:-1] == words[1:]


@pytest.fixture
def command_lines(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words of every command that is started."""
    lines: list[list[str]] = []
    start = subprocess.Popen.__init__

    def recorded(process: Any, words: Sequence[str], *arguments: Any, **options: Any) -> None:
        lines.append([str(word) for word in words])
        start(process, words, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", recorded)
    return lines


#: What git takes for no option: all words after these.
_END_OF_OPTIONS = ("--", "--end-of-options")


def asked(checkout: Checkout, name: str) -> tuple[Callable[[], object], ...]:
    """What reads; an unknown name is an error, or is not there."""
    return (
        lambda: checkout.resolve(name), lambda: checkout.branch_tip(name), lambda: checkout.tracked_tip("origin", name),
        lambda: checkout.read([name]), lambda: checkout.read(["README.md"], name), lambda: checkout.uncommitted([name]),
        lambda: checkout.remote_url(name), lambda: checkout.remote_tip("origin", name),
        lambda: checkout.fetch("origin", name), lambda: checkout.is_ancestor(name, "HEAD"),
        lambda: checkout.merge_base(name, "HEAD"),
    )  # fmt: skip


def test_git_takes_none_for_an_option(checkout: Checkout, command_lines: list[list[str]]) -> None:
    def state() -> tuple[str, str]:
        return git(checkout.path, "for-each-ref"), git(checkout.path, "status", "--porcelain")

    before = state()
    for name in NAMES.values():
        command_lines.clear()
        for ask in asked(checkout, name):
            with contextlib.suppress(RunbookError):
                ask()
        for words in command_lines if name not in _END_OF_OPTIONS else ():
            ends = [number for number, word in enumerate(words) if word in _END_OF_OPTIONS]
            options = words[: ends[0]] if ends else words
            # Behind the end of the options the name stands for itself; before it only within one such as refs/….
            assert not [word for word in options if name and word.startswith(name) and word != "HEAD"], words
        assert state() == before


def contacts(checkout: Checkout, remote: str) -> tuple[Callable[[], object], ...]:
    return (
        lambda: checkout.remote_tip(remote, "main"), lambda: checkout.fetch(remote, "main"),
        lambda: checkout.push(remote, "main", "HEAD", replaces=""),
    )  # fmt: skip


def test_only_configured_remotes_are_contacted(checkout: Checkout, command_lines: list[list[str]]) -> None:
    """git takes any other word for a path or an address, and some addresses for a command."""
    for name in NAMES.values():
        for call in contacts(checkout, name):
            with pytest.raises(RunbookError):
                call()
    # git -C FOLDER [-c SETTING] COMMAND
    assert not [words for words in command_lines if {"ls-remote", "fetch", "push"} & {*words[:6]}]


@pytest.mark.parametrize(
    "words",
    [
        "check . --ref={}", "check {}", "check . --pins={}", "status {}", "audit verify {}", "golden diff {} HEAD",
        "image diff {} 26.04-py3",
    ],
)  # fmt: skip
def test_the_command_line(
    words: str, checkout: Checkout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout.path)
    monkeypatch.setenv("RUNBOOK_REGISTRY", "http://127.0.0.1:9")
    for name in NAMES.values():
        if "\x00" in name or len(name) > 10_000:
            continue  # no program can be given them
        try:
            status = main([word.format(name) for word in words.split()])
        except SystemExit as ended:  # argparse's own
            status = int(ended.code or 0)
        said = "".join(capsys.readouterr())
        assert status in (0, 1, 2)
        assert "Traceback" not in said
        assert not _STEERS.search(said.replace("\r\n", "\n")), said
