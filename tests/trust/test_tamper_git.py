"""An archive that is kept in git: what was taken away as a whole is found, and who did not sign for a change."""

import argparse
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from archives import BUMP, record
from bumping import git
from figures import Figures
from stored_archive import DEV, KEPT, LTS, MISTYPED, rewrite

from runbook_lib.cli import audit as archive_commands
from runbook_lib.errors import RunbookError
from runbook_lib.records.chain import Ledger, head_bytes, read_head, read_predicate
from runbook_lib.records.statement import RUN
from runbook_lib.records.verify import verify

NEWEST = "04-run-ci"


def commit(place: Path, message: str = "More records", *options: str) -> str:
    git(place, "add", "-A")
    git(place, "commit", "-q", "--allow-empty", *options, "-m", message)
    return git(place, "rev-parse", "HEAD")


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """The archive within a repository that holds more: two commits, the second of which brought the newest record."""
    git(tmp_path, "init", "-q", str(tmp_path / "repo"))
    (tmp_path / "repo" / "README").write_text("x")
    audit = Path(shutil.copytree(KEPT, tmp_path / "repo" / "audit"))
    newest = next((audit / DEV).glob(f"*{NEWEST}*"))
    head = (audit / DEV / "head").read_bytes()
    aside = newest.rename(tmp_path / newest.name)
    previous = json.loads((aside / RUN).read_bytes())["predicate"]["previous"]
    (audit / DEV / "head").write_bytes(head_bytes(previous, []))
    commit(audit, "The first records")
    aside.rename(newest)
    (audit / DEV / "head").write_bytes(head)
    commit(audit)
    (tmp_path / "repo" / "README").write_text("y")
    commit(audit, "Nothing of the archive")
    assert [verify(audit)[0], verify(audit)[1].commits, verify(audit)[1].unguarded] == [[], 2, ""]
    return audit


def found(audit: Path, figures: Figures, told: str, signers: Path | None = None) -> None:
    figures["tampered"] += 1
    problems, _ = verify(audit, signers)
    assert [it for it in problems if told in it], (told, problems)
    assert all(it.startswith(str(audit)) for it in problems)


# -- taken away as a whole ---------------------------------------------------------------------------------------------


def newest_taken(audit: Path) -> None:
    """The newest record, with the head put back: the chain that is left is whole."""
    bump = audit / DEV
    last, _ = read_head(bump)
    assert last is not None
    previous = json.loads((bump / last["record"] / RUN).read_bytes())["predicate"]["previous"]
    shutil.rmtree(bump / last["record"])
    (bump / "head").write_bytes(head_bytes(previous, []))


def begun_anew(audit: Path) -> None:
    """The whole bump in other words, its chain made anew."""
    rewrite(audit / DEV, lambda it: [one["outcome"].update(sentence="All is well.") for one in it])


def put_by_a_link(audit: Path) -> None:
    shutil.move(audit / LTS, audit.parent / "elsewhere")
    (audit / LTS).symlink_to(audit.parent / "elsewhere")


TAKEN: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "a bump": (lambda a: shutil.rmtree(a / LTS), f"{LTS}: is missing, but commit "),
    "all bumps of a branch": (lambda a: shutil.rmtree(a / LTS.parent), f"{DEV}: is missing, but commit "),
    "everything": (lambda a: [shutil.rmtree(a / it) for it in (DEV, LTS, MISTYPED)], f"{MISTYPED}: is missing"),
    "the newest record, and the head put back": (newest_taken, f"{NEWEST}-78d6eefd: is missing, but commit "),
    "a bump renamed": (lambda a: (a / LTS).rename(a / LTS.with_name("lts-26.05-py3")), f"{LTS}: is missing"),
    "a bump in capitals": (lambda a: (a / LTS).rename(a / LTS.with_name("LTS-26.04-py3")), f"{LTS}: is missing"),
    "a bump hidden": (lambda a: (a / LTS).rename(a / ".git-lts"), f"{LTS}: is missing"),
    "a link in a bump's place": (put_by_a_link, f"{LTS}: is a symbolic link to a folder"),
    "a chain made anew": (begun_anew, "run.json: was changed after it was closed"),
}


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("kind", TAKEN)
def test_completely_removed_parts(audit: Path, figures: Figures, kind: str, committed: bool) -> None:
    change, told = TAKEN[kind]
    change(audit)
    for story in audit.rglob("story.html"):
        story.unlink()
    if committed:
        commit(audit, "Tidy up")
        commit(audit, "And then nothing")
    found(audit, figures, told)


def test_branches_deleted_by_a_merge(audit: Path, figures: Figures) -> None:
    git(audit, "switch", "-q", "-c", "side", "HEAD~2")
    record(audit, "07-sync-check", "done", bump=BUMP)
    commit(audit)
    git(audit, "merge", "-q", "-s", "ours", "--no-edit", "main")
    found(audit, figures, f"{NEWEST}-78d6eefd: is missing")


def test_two_branches_of_records_may_be_merged(audit: Path) -> None:
    git(audit, "switch", "-q", "-c", "side", "HEAD~2")
    record(audit, "07-sync-check", "done", bump=BUMP)
    commit(audit)
    git(audit, "merge", "-q", "--no-edit", "main")
    assert verify(audit)[0] == []


def test_a_part_of_the_archive_and_all_of_the_repository(audit: Path, figures: Figures) -> None:
    for place in (audit.parent, audit / "practice", audit / DEV):
        assert (verify(place)[0], verify(place)[1].commits) == ([], 2 + (place == audit.parent))
    newest_taken(audit)
    for place in (audit.parent, audit / "practice", audit / DEV):
        figures["tampered"] += 1
        assert [it for it in verify(place)[0] if f"{NEWEST}-78d6eefd: is missing" in it]


def test_a_record_that_was_committed_while_it_ran(audit: Path, figures: Figures) -> None:
    name = record(audit, "bump", "running")
    folder = audit.joinpath(*BUMP.parts)
    commit(audit)
    assert verify(audit)[0] == []
    with Ledger.locked(folder) as ledger:
        ledger.close(
            name, {**read_predicate(ledger.folder / name), "state": "done", "ended": "2026-04-01T00:01:00.000Z"}
        )
    assert verify(audit)[0] == []
    assert verify(audit)[1].unguarded == "1 record is not committed yet, so not guarded by git."
    commit(audit)
    shutil.rmtree(folder)
    found(audit, figures, f"{folder}: is missing")


@pytest.mark.parametrize("cut", ["shallow", "grafts", "replaced"])
def test_a_history_that_was_cut_off(audit: Path, tmp_path: Path, figures: Figures, cut: str) -> None:
    newest_taken(audit)
    for story in audit.rglob("story.html"):
        story.unlink()
    head = commit(audit, "Tidy up")
    if cut == "shallow":
        git(tmp_path, "clone", "-q", "--depth", "1", f"file://{audit.parent}", str(tmp_path / "clone"))
        audit = tmp_path / "clone" / "audit"
        found(audit, figures, "`git fetch --unshallow`")
    elif cut == "grafts":
        (audit.parent / ".git" / "info").mkdir(exist_ok=True)
        (audit.parent / ".git" / "info" / "grafts").write_text(f"{head}\n")
        found(audit, figures, "its git history is truncated")
    else:
        git(audit, "replace", "--graft", head)
        found(audit, figures, f"{NEWEST}-78d6eefd: is missing")


def test_without_git_possible_losses_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = Path(shutil.copytree(KEPT, tmp_path / "audit"))
    options = argparse.Namespace(dir=str(audit), allowed_signers="")
    assert archive_commands.command_verify(options) == 0
    assert "No git history guards the archive" in capsys.readouterr().out
    git(tmp_path, "init", "-q")
    assert archive_commands.command_verify(options) == 0
    assert "No git history guards the archive" in capsys.readouterr().out
    (tmp_path / "other").write_text("")
    (tmp_path / ".gitignore").write_text("/audit/")
    commit(tmp_path)
    assert archive_commands.command_verify(options) == 0
    assert "No git history guards the archive" in capsys.readouterr().out


def test_removing_everything_is_a_change_to_judge(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(audit / "practice")
    assert archive_commands.command_verify(argparse.Namespace(dir=str(audit), allowed_signers="")) == 1
    assert capsys.readouterr().err.count("is missing, but commit") == 3


def test_another_file_named_run_json_is_not_a_record(audit: Path) -> None:
    (audit.parent / RUN).write_text("{}")
    (audit / "tools").mkdir()
    (audit / "tools" / RUN).write_text('{"scripts": 1}')
    commit(audit)
    for file in (audit.parent / RUN, audit / "tools" / RUN):
        file.unlink()
    commit(audit)
    assert verify(audit)[0] == []


# -- signed ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signed:
    """An archive each of whose commits Ada signed, and the file that allows her."""

    audit: Path
    home: Path
    signers: Path

    def key(self, name: str) -> Path:
        path = self.home / name
        if not path.exists():
            asked = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)]
            subprocess.run(asked, check=True)
        return path

    def allow(self, name: str, options: str = "") -> None:
        public = " ".join(self.key(name).with_suffix(".pub").read_text().split()[:2])
        with self.signers.open("a") as out:
            out.write(f"{name}@example.org {options} {public}\n")

    def sign(self, name: str, message: str = "More records", *options: str) -> str:
        git(self.audit, "config", "gpg.format", "ssh")
        git(self.audit, "config", "user.signingKey", str(self.key(name)))
        return commit(self.audit, message, "-S", *options)

    def add(self, at: int = 1) -> None:
        record(self.audit, "07-sync-check", "done", at=at, bump=BUMP)


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    """Two commits of the archive, signed."""
    git(tmp_path, "init", "-q", str(tmp_path / "repo"))
    signed = Signed(Path(shutil.copytree(KEPT, tmp_path / "repo" / "audit")), tmp_path, tmp_path / "allowed")
    signed.allow("ada")
    signed.sign("ada")
    signed.add(0)
    signed.sign("ada")
    assert verify(signed.audit, signed.signers)[0] == []
    return signed


def unsigned(it: Signed) -> None:
    it.add()
    commit(it.audit)


def other_key(it: Signed) -> None:
    it.add()
    it.sign("mallory")


def amended(it: Signed) -> None:
    """A signed commit whose content was put into another."""
    it.add()
    it.sign("ada")
    raw = git(it.audit, "cat-file", "commit", "HEAD").replace("More records", "Other words")
    made = subprocess.run(
        ["git", "-C", str(it.audit), "hash-object", "-t", "commit", "-w", "--stdin"],
        input=raw + "\n", capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    git(it.audit, "reset", "-q", "--soft", made)


def revoked(it: Signed) -> None:
    it.add()
    it.sign("ada")
    git(it.audit, "config", "gpg.ssh.revocationFile", str(it.home / "ada.pub"))


def removed(it: Signed) -> None:
    it.signers.write_text("")
    it.allow("bob")


def expired(it: Signed) -> None:
    it.signers.write_text("")
    it.allow("ada", 'valid-before="20200101"')


def not_yet(it: Signed) -> None:
    it.signers.write_text("")
    it.allow("ada", 'valid-after="20990101"')


def for_other_things(it: Signed) -> None:
    it.signers.write_text("")
    it.allow("ada", 'namespaces="file"')


def own_program(it: Signed) -> None:
    """The checkout names a program that finds every signature good."""
    it.add()
    it.sign("mallory")
    yes = it.home / "yes"
    yes.write_text('#!/bin/sh\necho "Good \\"git\\" signature for ada@example.org with ED25519 key SHA256:x"\n')
    yes.chmod(0o755)
    git(it.audit, "config", "gpg.ssh.program", str(yes))


def own_signers(it: Signed) -> None:
    """The checkout names its own file of allowed signers."""
    it.add()
    it.sign("mallory")
    mine = it.home / "mine"
    mine.write_text(f"ada@example.org {it.key('mallory').with_suffix('.pub').read_text()}")
    git(it.audit, "config", "gpg.ssh.allowedSignersFile", str(mine))


def openpgp(it: Signed) -> None:
    """A signature of another kind, by a program that finds it good."""
    it.add()
    yes, block = it.home / "gpg", "-----BEGIN PGP SIGNATURE-----\\n\\nx\\n-----END PGP SIGNATURE-----\\n"
    yes.write_text(
        '#!/bin/sh\ncase "$*" in *--verify*) echo \'[GNUPG:] NEWSIG\n[GNUPG:] GOODSIG AAAAAAAAAAAAAAAA Ada\n'
        "[GNUPG:] VALIDSIG A 2026-01-01 1 0 4 0 1 10 00 A\n[GNUPG:] TRUST_ULTIMATE 0 pgp' ;;\n"
        f"*) cat >/dev/null; echo '[GNUPG:] SIG_CREATED ' >&2; printf -- '{block}' ;;"
        " esac\n"
    )
    yes.chmod(0o755)
    git(it.audit, "config", "gpg.format", "openpgp")
    git(it.audit, "config", "gpg.program", str(yes))
    commit(it.audit, "More records", "-S")
    assert git(it.audit, "log", "-1", "--format=%G?") == "G"
    git(it.audit, "config", "--unset", "gpg.program")


def merged(it: Signed) -> None:
    """A merge that changes what it merges."""
    git(it.audit, "switch", "-q", "-c", "side", "HEAD~1")
    (it.audit / "note").write_text("side")
    it.sign("ada")
    git(it.audit, "merge", "-q", "--no-commit", "main")
    (it.audit / "note").write_text("other")
    commit(it.audit)


UNSIGNED: Mapping[str, tuple[Callable[[Signed], None], str]] = {
    "unsigned": (unsigned, "changed it and is not signed"),
    "another key": (other_key, "changed it and is signed by a key that is not allowed"),
    "a signature of another commit": (amended, "changed it and has a bad signature"),
    "a revoked key": (revoked, "by Ada Tester <ada@example.org> changed it and "),
    "a key that is allowed no more": (removed, "changed it and is signed by a key that is not allowed"),
    "a key that was expired": (expired, "a key that is not allowed, or was not allowed at that time"),
    "a key that was not valid yet": (not_yet, "changed it and is signed by a key that is not allowed"),
    "a key for other things": (for_other_things, "changed it and "),
    "signers of the checkout's own": (own_signers, "changed it and is signed by a key that is not allowed"),
    "OpenPGP": (openpgp, "changed it and is not signed with an SSH key"),
    "a merge that changes": (merged, "changed it and is not signed"),
    "not committed": (lambda it: it.add(), "run.json: is not in any commit in this state"),
}  # fmt: skip


@pytest.mark.component("signing")
@pytest.mark.parametrize("kind", UNSIGNED)
def test_missing_signers(signed: Signed, figures: Figures, kind: str) -> None:
    change, told = UNSIGNED[kind]
    change(signed)
    found(signed.audit, figures, told, signed.signers)


@pytest.mark.component("signing")
def test_a_program_of_the_checkouts_own_is_refused(signed: Signed) -> None:
    own_program(signed)
    with pytest.raises(RunbookError, match=r"sets gpg\.ssh\.program, which is none"):
        verify(signed.audit, signed.signers)


@pytest.mark.component("signing")
def test_a_persons_own_program_makes_no_other_signature_good(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures: Figures
) -> None:
    openpgp(signed)
    mine = tmp_path / "gitconfig"
    git(signed.audit, "config", "--file", str(mine), "gpg.program", str(signed.home / "gpg"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(mine))
    assert git(signed.audit, "log", "-1", "--format=%G?") == "G"
    found(signed.audit, figures, "changed it and is not signed with an SSH key", signed.signers)


@pytest.mark.component("signing")
def test_the_archive_cannot_take_back_what_a_person_revoked(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names a file of its own, without the key."""
    signed.add()
    signed.sign("ada")
    (tmp_path / "none").write_text("")
    git(signed.audit, "config", "gpg.ssh.revocationFile", str(tmp_path / "none"))
    assert verify(signed.audit, signed.signers)[0] == []
    mine = tmp_path / "gitconfig"
    git(signed.audit, "config", "--file", str(mine), "gpg.ssh.revocationFile", str(tmp_path / "ada.pub"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(mine))
    assert any("changed it and" in it for it in verify(signed.audit, signed.signers)[0])


@pytest.mark.component("signing")
def test_signers(signed: Signed) -> None:
    signed.allow("bob")
    git(signed.audit, "switch", "-q", "-c", "side", "HEAD~1")
    signed.add(3)
    (signed.audit / "index.html").unlink()
    signed.sign("bob")
    git(signed.audit, "merge", "-q", "--no-edit", "-X", "ours", "main")  # brings nothing of its own
    (signed.audit.parent / "README").write_text("not the archive's")
    commit(signed.audit)
    problems, counts = verify(signed.audit, signed.signers)
    assert [it for it in problems if "chain" not in it and "head" not in it] == []
    assert counts.commits >= 3


@pytest.mark.component("signing")
def test_an_obstacle_to_checking_signatures_is_reported(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunbookError, match="does not exist"):
        verify(signed.audit, tmp_path / "none")
    lone = Path(shutil.copytree(KEPT, tmp_path / "lone"))
    with pytest.raises(RunbookError, match="has no git history"):
        verify(lone, signed.signers)
    only_git = tmp_path / "bin"
    only_git.mkdir()
    (only_git / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(only_git))
    with pytest.raises(RunbookError, match="needs ssh-keygen"):
        verify(signed.audit, signed.signers)


@pytest.mark.component("signing")
def test_the_command_takes_the_file(signed: Signed, capsys: pytest.CaptureFixture[str]) -> None:
    from runbook_lib.cli.__main__ import main

    asked = ["audit", "verify", str(signed.audit), "--allowed-signers", str(signed.signers)]
    assert main(asked) == 0
    other_key(signed)
    assert main(asked) == 1
    assert "changed it and is signed by a key that is not allowed" in capsys.readouterr().err
