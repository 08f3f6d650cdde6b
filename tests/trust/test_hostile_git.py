"""A folder with a ``.git`` that somebody else filled: reading it runs none of the programs that its settings name."""

import shutil
from pathlib import Path

import pytest
from bumping import git
from figures import Figures
from hostile_checkout import PIN, PINS_FILE

from runbook_lib.cli import __main__
from runbook_lib.pins.repositories import FILE

#: Settings that name a program, or by which others come in; {} is the program.
PROGRAMS = (
    "core.sshCommand={}", "core.gitProxy={}", "core.fsmonitor={}", "core.askPass={}", "core.pager={}", "core.editor={}",
    "core.alternateRefsCommand={}", "core.attributesFile={}", "core.hooksPath={}", "core.worktree={}",
    "pager.log={}", "sequence.editor={}", "gpg.program={}", "gpg.ssh.program={}", "gpg.ssh.defaultKeyCommand={}",
    "gpg.openpgp.program={}", "gpg.x509.program={}", "diff.external={}", "diff.x.command={}", "diff.x.textconv={}",
    "filter.x.clean={}", "filter.x.smudge={}", "filter.x.process={}", "merge.x.driver={}", "credential.helper=!{}",
    "credential.https://forge.example.helper={}", "remote.origin.uploadpack={}", "remote.origin.receivepack={}",
    "remote.origin.vcs=x", "remote.origin.promisor=true", "remote.origin.partialclonefilter=blob:none",
    "extensions.partialClone=origin", "uploadpack.packObjectsHook={}", "gc.recentObjectsHook={}",
    "url.ext::{}.insteadOf=https://forge.example/", "protocol.allow=always", "protocol.ext.allow=always",
    "alias.rev-parse=!{}", "interactive.diffFilter={}", "include.path={}", "includeIf.gitdir:/.path={}",
    "includeIf.onbranch:**.path={}", "log.showRoot=false", "log.follow=true", "log.showSignature=true",
    "diff.orderFile={}", "trailer.x.command={}", "submodule.x.update=!{}", "safe.directory=*", "browser.x.cmd={}",
    "http-evil.x={}", "an.unknown=thing",
)  # fmt: skip


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a trace."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    path.chmod(0o755)
    return path


def partial(repo: Path, setting: str = "") -> None:
    """Take the objects away, as a partial clone has not got them, so that reading fetches."""
    git(repo, "remote", "add", "origin", f"file://{repo.parent}/gone")
    for pair in ("core.repositoryFormatVersion=1", "extensions.partialClone=origin", "remote.origin.promisor=true"):
        git(repo, "config", *pair.split("="))
    if setting:
        name, _, value = setting.partition("=")
        git(repo, "config", name, value)
    for folder in (repo / ".git" / "objects").glob("[0-9a-f][0-9a-f]"):
        for file in folder.iterdir():
            if git(repo, "cat-file", "-t", folder.name + file.name) == "blob":
                file.unlink()


READING = (
    ("check",), ("check", "--ref", "HEAD"), ("check", "--ref", "HEAD~1"),
    ("golden", "diff", "HEAD~1", "HEAD"), ("labels", "HEAD~1..HEAD"),
    ("add-test", "gpt/case"), ("add-test", "tests/unit_tests/test_x.py"),
)  # fmt: skip


@pytest.fixture
def clone(tmp_path: Path, program: Path) -> Path:
    """A checkout whose settings and hooks name the program wherever they can."""
    place = tmp_path / "clone"
    git(tmp_path, "init", "-q", str(place))
    for path, text in (
        (PIN, "nvcr.io/nvidia/pytorch:26.02-py3\n"), (FILE, PINS_FILE), (".gitattributes", "* filter=x diff=x\n"),
        ("tests/functional_tests/test_cases/gpt/case/golden_values_dev_dgx_h100.json", "{}\n"),
        ("tests/test_utils/recipes/h100/gpt.yaml", "a: 1\n"), ("tests/unit_tests/test_y.py", ""),
    ):  # fmt: skip
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "One")
    (place / "tests/test_utils/recipes/h100/gpt.yaml").write_text("a: 2\n")
    git(place, "commit", "-qam", "Two")
    for setting in PROGRAMS:
        name, _, value = setting.format(program).partition("=")
        if not name.startswith(("include", "remote", "extensions", "core.worktree", "core.attributes", "diff.order")):
            git(place, "config", name, value)
    hooks = place / ".git" / "hooks"
    shutil.rmtree(hooks, ignore_errors=True)
    hooks.mkdir()
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "fsmonitor-watchman"):
        shutil.copy(program, hooks / hook)
    program.with_name("ran").unlink(missing_ok=True)
    return place


def _main(arguments: tuple[str, ...], place: Path) -> int:
    named = ("--repo", str(place)) if arguments[0] in ("golden", "labels", "add-test") else (str(place),)
    return __main__.main([*arguments, *named])


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_a_checkout_runs_none_of_its_programs(
    clone: Path, program: Path, arguments: tuple[str, ...], figures: Figures
) -> None:
    _main(arguments, clone)
    assert not program.with_name("ran").exists()
    figures["hostile"] += 1


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
@pytest.mark.parametrize("setting", ["core.sshCommand={}", "remote.origin.uploadpack={}", "http.proxy={}"])
def test_reading_a_partial_clone_runs_none_either(
    clone: Path, program: Path, setting: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str],
    figures: Figures,
) -> None:  # fmt: skip
    for name in ("core.sshCommand", "core.fsmonitor"):
        git(clone, "config", "--unset", name)
    partial(clone, setting.format(program))
    program.with_name("ran").unlink(missing_ok=True)
    assert _main(arguments, clone) in (1, 2)
    assert "is a partial clone" in capsys.readouterr().err
    assert not program.with_name("ran").exists()
    figures["hostile"] += 1


def test_a_partial_clone_may_be_read(clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(clone, "config", "uploadpack.allowFilter", "true")
    origin = f"file://{clone}"
    git(clone, "config", "--unset", "uploadpack.packObjectsHook")
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", origin, str(tmp_path / "partial"))
    assert __main__.main(["check", str(tmp_path / "partial")]) == 0
    assert "1 of 1 pins agree" in capsys.readouterr().out
