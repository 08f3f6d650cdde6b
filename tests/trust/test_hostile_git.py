"""A folder with a ``.git`` that somebody else filled: reading it runs none of the programs that its settings name."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from bumping import git
from figures import Figures
from hostile_checkout import PIN, PINS_FILE, within
from stored_archive import KEPT

from runbook_lib.cli import __main__
from runbook_lib.errors import RunbookError
from runbook_lib.git import settings
from runbook_lib.pins.repositories import FILE
from runbook_lib.records.verify import verify

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


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """An archive that is verified, in git."""
    git(tmp_path, "init", "-q", str(tmp_path / "repo"))
    audit = Path(shutil.copytree(KEPT, tmp_path / "repo" / "audit"))
    git(audit, "add", "-A")
    git(audit, "commit", "-qm", "Records")
    assert (verify(audit)[0], verify(audit)[1].commits) == ([], 1)
    return audit


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


def refused(audit: Path, figures: Figures, told: str) -> None:
    figures["hostile"] += 1
    with pytest.raises(RunbookError) as error:
        verify(audit)
    assert told in str(error.value)


@pytest.mark.parametrize("setting", PROGRAMS)
def test_settings_that_an_archive_may_not_have(audit: Path, program: Path, setting: str, figures: Figures) -> None:
    name, _, value = setting.format(program).partition("=")
    git(audit, "config", name, value)
    section, _, rest = name.partition(".")
    variable = rest.rpartition(".")[2].lower()
    refused(audit, figures, f"sets {section.lower()}.")
    with pytest.raises(RunbookError, match=f"{variable}, which is none of the settings"):
        verify(audit)
    assert not program.with_name("ran").exists()


@pytest.mark.parametrize("how", ["included", "included if", "of the work tree", "linked work tree", "by a file"])
def test_settings_that_come_by_a_detour(audit: Path, program: Path, how: str, figures: Figures) -> None:
    repo = audit.parent
    evil = repo.parent / "evil"
    evil.write_text(f"[core]\n\tsshCommand = {program}\n\tfsmonitor = {program}\n")
    expected = "core."
    if how == "included":
        git(repo, "config", "include.path", str(evil))
        expected = "include.path"
    elif how == "included if":
        git(repo, "config", "includeIf.gitdir:**.path", str(evil))
        expected = "includeif."
    elif how == "of the work tree":
        git(repo, "config", "extensions.worktreeConfig", "true")
        evil.rename(repo / ".git" / "config.worktree")
    elif how == "linked work tree":
        git(repo, "worktree", "add", "-q", "-b", "other", str(repo.parent / "linked"))
        audit = repo.parent / "linked" / "audit"
        assert verify(audit)[0] == []  # one without such settings may be verified
        with (repo / ".git" / "config").open("a") as config:
            config.write(evil.read_text())
    else:
        (repo / ".git").rename(repo.parent / "elsewhere")
        (repo / ".git").write_text("gitdir: ../elsewhere\n")
        assert verify(audit)[0] == []
        with (repo.parent / "elsewhere" / "config").open("a") as config:
            config.write(evil.read_text())
    refused(audit, figures, expected)
    assert not program.with_name("ran").exists()


@pytest.mark.parametrize("setting", ["", "core.sshCommand={}", "remote.origin.uploadpack={}"])
def test_nothing_is_fetched_to_verify(
    audit: Path, program: Path, setting: str, monkeypatch: pytest.MonkeyPatch, figures: Figures
) -> None:
    """Nor would it be if the settings were not looked at."""
    partial(audit.parent, setting.format(program))
    refused(audit, figures, "which is none of the settings")
    monkeypatch.setattr(settings, "refuse_archive", lambda _: None)
    with pytest.raises(RunbookError):
        verify(audit)
    assert not program.with_name("ran").exists()


def bare_within(audit: Path, program: Path) -> None:
    """git takes a folder for a repository that looks like a bare one."""
    subprocess.run(["git", "clone", "-q", "--bare", str(audit.parent), str(audit.parent / "bare")], check=True)
    for entry in (audit.parent / "bare").iterdir():
        entry.rename(audit / entry.name)
    git(audit.parent, "config", "--file", str(audit / "config"), "core.sshCommand", str(program))


def empty_nearer(audit: Path, _: Path) -> None:
    (audit / ".git").mkdir()


def linked(audit: Path, _: Path) -> None:
    (audit.parent / ".git").rename(audit.parent.parent / "elsewhere")
    (audit.parent / ".git").symlink_to("../elsewhere")


def linked_settings(audit: Path, _: Path) -> None:
    (audit.parent / ".git" / "config").rename(audit.parent.parent / "elsewhere")
    (audit.parent / ".git" / "config").symlink_to("../../elsewhere")


def alternates(audit: Path, _: Path) -> None:
    git(audit.parent.parent, "init", "-q", "others")
    (audit.parent / ".git" / "objects" / "info" / "alternates").write_text(
        str(audit.parent.parent / "others" / ".git" / "objects")
    )


def piped(name: str) -> Callable[[Path, Path], None]:
    def lay(audit: Path, _: Path) -> None:
        (audit.parent / ".git" / name).unlink(missing_ok=True)
        os.mkfifo(audit.parent / ".git" / name)

    return lay


def linked_to_a_pipe(audit: Path, _: Path) -> None:
    os.mkfifo(audit.parent.parent / "pipe")
    (audit.parent / ".git" / "packed-refs").symlink_to("../../pipe")


FILES: Mapping[str, tuple[Callable[[Path, Path], None], str]] = {
    "a bare repository": (bare_within, "looks like a bare repository"),
    "an empty one nearer": (empty_nearer, "is nearer"),
    "a link": (linked, "is a symbolic link"),
    "a link to settings": (linked_settings, "is a symbolic link"),
    "objects elsewhere": (alternates, "objects stored elsewhere"),
    "a pipe for its settings": (piped("config"), "is a pipe"),
    "a pipe for HEAD": (piped("HEAD"), "is a pipe"),
    "a pipe for a branch": (piped("refs/heads/other"), "is a pipe"),
    "a pipe for attributes": (piped("info/attributes"), "is a pipe"),
    "a pipe for objects": (piped("objects/info/commit-graph"), "is a pipe"),
    "a link to a pipe": (linked_to_a_pipe, "is a pipe"),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_that_a_repository_may_not_have(audit: Path, program: Path, kind: str, figures: Figures) -> None:
    lay, told = FILES[kind]
    lay(audit, program)

    def message() -> str:
        with pytest.raises(RunbookError) as error:
            verify(audit)
        return str(error.value)

    assert told in str(within(60, message))
    assert not program.with_name("ran").exists()
    figures["hostile"] += 1


def test_settings_that_people_have(audit: Path) -> None:
    for setting in (
        "user.name=x", "user.signingKey=x", "commit.gpgSign=true", "gpg.format=ssh", "core.autocrlf=input",
        "remote.origin.url=https://forge.example/o/r", "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*",
        "branch.a.b.merge=refs/heads/a.b", "submodule.x.url=../x", "http.https://forge.example/.extraheader=X: y",
        "gc.auto=0", "pull.rebase=true", "lfs.repositoryformatversion=0",
    ):  # fmt: skip
        name, _, value = setting.partition("=")
        git(audit, "config", name, value)
    assert verify(audit)[0] == []


# -- commands that read a checkout -------------------------------------------------------------------------------------

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
