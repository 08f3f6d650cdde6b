"""Step 3 on a practice repository: branch, commit, push and the labelled draft pull request, made once."""

from dataclasses import replace
from pathlib import Path

import pytest
from bumping import BRANCH, CONTRIBUTOR, World, bump_to, git
from clones import commit

from runbook_lib.bump import open_pr
from runbook_lib.errors import Refused, RunbookError, Unreachable
from runbook_lib.model import Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.world.bump_branch import find_pull, head_of, is_for
from runbook_lib.world.conditions import forge as forge_conditions
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.github.models import Pull
from runbook_lib.world.ports import World as Outside

TITLE = "chore: Update Docker image version to 26.04-py3"
DEV = {"docker/.ngc_version.dev", "docker/Dockerfile.ci.dev", ".gitlab/stages/01.build.yml"}


def test_a_pull_request_is_opened_once(world: World) -> None:
    made = world.open_pr()
    assert world.effects() == ["branch", "commit", "push", "pull request", "label"]
    pull = made.pull
    assert (pull.title, pull.draft, pull.base_ref, pull.head_ref) == (TITLE, True, "main", BRANCH)
    assert pull.labels == {"Run functional tests"}
    assert pull.head_sha == made.commit == git(world.remote, "rev-parse", BRANCH)
    assert set(world.checks().values()) == {"passed"}
    # The repository's template is filled in, but for what only a person can say, and our part follows.
    assert pull.body.startswith(
        f"# What changes, and why?\n{TITLE}, in every place that names it.\n\nLinked issue: none\n"
    )
    assert "## Before review\n\n- [ ] I have read" in pull.body
    assert "- [x] " not in pull.body
    assert "`docker/.ngc_version.dev` | `1` |" in pull.body
    assert set(git(world.remote, "diff", "--name-only", f"main...{BRANCH}").split()) == DEV
    message = git(world.remote, "log", "-1", "--format=%B", BRANCH)
    assert message.startswith(f"{TITLE}\n\n- docker/.ngc_version.dev: nvcr.io/nvidia/pytorch:26.02-py3 -> ")
    assert "\nSigned-off-by: Ada Tester <ada@example.org>" in message
    assert git(world.remote, "rev-list", "--count", f"main..{BRANCH}") == "1"

    before = world.state()
    assert world.open_pr().pull == pull
    assert world.effects() == []
    assert world.state() == before
    assert set(world.checks().values()) == {"passed"}


@pytest.mark.parametrize(
    ("token", "mode", "states"),
    [
        ("practice-token", "preview", ["would be made"] * 5),
        ("practice-token", "local", ["made", *["would be made"] * 4]),
        ("practice-token", "publish", ["made", "made", "made", "holds", "made"]),
        ("contributor-token", "publish", ["made", "made", "made", "holds", "waits"]),
    ],
)
def test_the_record_has_each_condition_with_its_state(world: World, token: str, mode: str, states: list[str]) -> None:
    git(world.checkout.path, "remote", "add", "fork", str(world.fork))
    before = world.state()
    world.open_pr(token, mode=mode, remote="fork" if "contributor" in token else "origin")
    assert (world.state() == before) == (world.effects() == []) == (mode == "preview")
    conditions = world.said("conditions")
    assert [each["kind"] for each in conditions] == ["Committed", "Pushed", "PullOpen", "Described", "Labelled"]
    assert [each["state"] for each in conditions] == states
    assert [each["publishes"] for each in conditions] == [False, True, True, True, True]
    assert all(each["sentence"] and each["found"] for each in conditions)


def test_without_publish_nothing_leaves_the_machine(world: World) -> None:
    made = world.open_pr(mode="local")
    assert world.effects() == ["branch", "commit"]
    assert made.commit == git(world.checkout.path, "rev-parse", BRANCH)
    assert git(world.remote, "branch", "--list", BRANCH) == ""
    assert world.github().pulls() == ()
    assert world.said("waiting")[0]["sentence"].startswith("waiting for publish")
    # A later run with publish goes on from there.
    assert world.open_pr().commit == made.commit
    assert world.effects() == ["push", "pull request", "label"]


# -- what is in the way ---------------------------------------------------------------------------------------------


def test_a_refused_push_is_reported_and_keeps_the_commit(world: World) -> None:
    hook = world.remote / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'protected by policy 7' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(Refused, match="protected by policy 7"):
        world.open_pr()
    assert world.github().pulls() == ()
    assert git(world.checkout.path, "log", "-1", "--format=%s", BRANCH) == TITLE
    hook.unlink()
    world.open_pr()
    assert world.effects() == ["push", "pull request", "label"]


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("expired-token", "It is wrong, expired or revoked"),
        ("sso-token", "https://github.com/orgs/practice/sso"),
    ],
)
def test_a_token_without_the_rights(world: World, token: str, words: str) -> None:
    with pytest.raises(RunbookError) as caught:
        world.open_pr(token)
    assert words in str(caught.value)
    assert world.github().pulls() == ()


def test_a_pull_request_that_may_not_be_opened_waits_for_somebody_who_may(world: World) -> None:
    world.open_pr("readonly-token")
    (waiting,) = world.said("waiting")
    assert "draft pull request" in waiting["sentence"]
    assert "needs the permission" in waiting["next"]
    assert world.github().pulls() == ()


def test_a_preview_works_without_github(world: World) -> None:
    assert world.open_pr("expired-token", mode="preview").pull is None
    assert any("expired or revoked" in entry for entry in world.said("warnings"))


def test_an_unreachable_forge_stops_before_anything_is_changed(world: World) -> None:
    before = world.state()
    world.forge.fail("pulls", Unreachable("no answer"))
    with pytest.raises(Unreachable):
        world.open_pr()
    assert world.state() == before


def test_a_lost_answer_opens_no_second_pull_request(world: World) -> None:
    world.forge.fail("open_pull", Unreachable("no answer"), carried_out=True)
    assert world.open_pr().pull is not None
    assert len(world.github().pulls(state="all")) == 1


def test_a_squashed_merge_is_not_proposed_again(world: World) -> None:
    world.open_pr()
    other = world.home / "squash"
    git(world.home, "clone", "-q", str(world.remote), str(other))
    git(other, "merge", "-q", "--squash", f"origin/{BRANCH}")
    git(other, "commit", "-qm", f"{TITLE} (#10)")
    git(other, "push", "-q")
    world.open_pr()
    assert world.effects() == []
    assert "nothing to propose" in world.said("done")[0]["sentence"]


# -- people -------------------------------------------------------------------------------------------------------


def test_text_written_by_people_is_kept(world: World) -> None:
    pull = world.open_pr().pull
    edited = "Read this first!\r\n" + pull.body.replace("- [ ] Unit", "- [x] Unit").replace("| `1` |", "| `99` |")
    world.forge.edit(pull.number, title="My own title", body=edited)
    renewed = world.open_pr().pull
    assert world.effects() == ["pull request"]
    assert renewed.title == "My own title"
    assert renewed.body == edited.replace("| `99` |", "| `1` |")


def test_damaged_markers_are_kept_and_reported(world: World) -> None:
    pull = world.open_pr().pull
    damaged = pull.body.replace("base-image-runbook:end", "end")
    world.github().update_pull(pull.number, damaged)
    again = world.open_pr().pull
    assert again.body == damaged
    assert any("damaged or duplicated" in entry for entry in world.said("warnings"))


def test_labels_that_prevent_the_tests_are_removed(world: World) -> None:
    pull = world.open_pr().pull
    for name in ("Run tests", "container::lts", "complexity: low"):
        world.github().add_label(pull.number, name)
    again = world.open_pr().pull
    assert again.labels == {"Run functional tests", "complexity: low"}


def test_a_contributor_works_from_a_fork_and_requests_the_label(world: World) -> None:
    git(world.checkout.path, "remote", "add", "fork", str(world.fork))
    made = world.open_pr("contributor-token", remote="fork")
    assert (made.pull.head_owner, made.pull.labels) == (CONTRIBUTOR, frozenset())
    (waiting,) = world.said("waiting")
    assert "waiting for a maintainer" in waiting["sentence"]
    assert f"set the label 'Run functional tests' on {made.pull.url}?" in waiting["next"]
    assert world.checks()["its labels select the tests"] == "waiting"
    # A maintainer sets it; then all is well.
    world.github().add_label(made.pull.number, "Run functional tests")
    world.open_pr("contributor-token", remote="fork")
    assert world.said("waiting") == []


@pytest.mark.usefixtures("colleague")
def test_a_colleagues_pull_request_is_used(world: World) -> None:
    git(world.checkout.path, "remote", "add", "fork", str(world.fork))
    theirs = world.open_pr("contributor-token", remote="fork").pull
    git(world.checkout.path, "switch", "-q", "main")
    git(world.checkout.path, "branch", "-qD", BRANCH)
    before = git(world.checkout.path, "for-each-ref")
    made = world.open_pr()
    assert (made.commit, made.pull.number) == (None, theirs.number)
    assert world.effects() == ["label"]
    assert git(world.checkout.path, "for-each-ref") == before
    assert len(world.github().pulls(state="all")) == 1
    assert set(world.checks().values()) == {"passed"}
    # Theirs may lack a pin.
    git(world.checkout.path, "push", "-q", str(world.fork), f"+{theirs.head_sha}^:refs/heads/{BRANCH}")
    other = world.home / "theirs"
    git(world.home, "clone", "-q", "-b", BRANCH, str(world.fork), str(other))
    commit(other, {"docker/.ngc_version.dev": "nvcr.io/nvidia/pytorch:26.04-py3\n"})
    git(other, "push", "-q")
    with pytest.raises(RunbookError, match=r"Not at 26\.04-py3: .*\.gitlab/stages/01\.build\.yml:\d+"):
        world.open_pr()


@pytest.mark.usefixtures("colleague")
def test_what_a_colleague_pushes_after_the_review_gets_no_label(world: World) -> None:
    git(world.checkout.path, "remote", "add", "fork", str(world.fork))
    theirs = world.open_pr("contributor-token", remote="fork").pull
    fork, head = world.fork, theirs.head_sha

    class Overtaken:
        def look(self, outside: Outside, bump: Bump) -> open_pr.PullFacts:
            facts = open_pr.look(outside, bump)
            git(fork, "update-ref", f"refs/heads/{BRANCH}", git(fork, "rev-parse", f"{head}^"))
            return facts

        def plan(self, facts: open_pr.PullFacts, bump: Bump) -> Plan[Outside]:
            return open_pr.plan(facts, bump)

    git(world.checkout.path, "switch", "-q", "main")
    git(world.checkout.path, "branch", "-qD", BRANCH)
    world.run(Overtaken())
    assert "has a newer head" in world.outcome()
    assert world.effects() == []
    assert world.github().pull(theirs.number).labels == frozenset()


@pytest.mark.usefixtures("colleague")
def test_the_text_of_a_colleagues_pull_request_is_kept(world: World) -> None:
    made = world.open_pr(mode="local")
    git(world.checkout.path, "push", "-q", str(world.fork), f"{made.commit}:refs/heads/theirs")
    theirs = world.github("contributor-token").open_pull(TITLE, f"{CONTRIBUTOR}:theirs", "main", "Made by hand.")
    again = world.open_pr()
    assert (again.pull.number, again.pull.body) == (theirs.number, "Made by hand.")
    assert world.effects() == ["label"]
    assert git(world.remote, "branch", "--list", BRANCH) == ""


PULL = Pull(
    number=9, url="", title="", body="", draft=True, state="open", merged=False, head_ref="theirs", head_sha="a" * 40,
    head_owner="somebody", base_ref="main", merge_commit=None, mergeable=None, labels=frozenset(),
    author="somebody",
)  # fmt: skip


@pytest.mark.parametrize(
    ("pull", "used"),
    [
        (PULL, False),
        (replace(PULL, title=TITLE, body="by hand"), True),
        (replace(PULL, title=f"{TITLE.upper()} "), True),
        (replace(PULL, title=f"Revert {TITLE}"), False),
        (replace(PULL, head_ref=BRANCH), True),
        (replace(PULL, title="renamed", body="<!-- base-image-runbook:begin main/dev-26.04-py3 -->"), True),
        # The title of an LTS bump is the same.
        (replace(PULL, title=TITLE, head_ref="bump/main/lts-26.04-py3"), False),
        (replace(PULL, title=TITLE, body="<!-- base-image-runbook:begin main/lts-26.04-py3 -->"), False),
        (replace(PULL, title=TITLE, labels=frozenset({"container::lts"})), False),
    ],
)
def test_which_pull_requests_are_for_the_bump(pull: Pull, used: bool) -> None:
    assert is_for(pull, bump_to()) == used


@pytest.mark.parametrize("author", ["colleague", "stranger", ""])
@pytest.mark.parametrize(
    "likeness",
    [
        {"title": TITLE},
        {"head_ref": BRANCH},
        {"body": "<!-- base-image-runbook:begin main/dev-26.04-py3 -->"},
        {"head_ref": BRANCH, "title": TITLE, "body": "<!-- base-image-runbook:begin main/dev-26.04-py3 -->"},
    ],
)
def test_a_pull_request_counts_if_its_author_may_write(author: str, likeness: dict[str, str]) -> None:
    class Forge:
        def pulls(self, head: str | None = None, base: str | None = None) -> tuple[Pull, ...]:
            return () if head else (replace(PULL, author=author, **likeness), replace(PULL, number=8))

        def may_write(self, login: str) -> bool:
            return login == "colleague"

    found = find_pull(Forge(), bump_to(), f"us:{BRANCH}")  # type: ignore[arg-type]
    assert (found and found.number) == (9 if author == "colleague" else None)


def test_github_gets_a_moment_to_notice_a_push(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forge_conditions, "DELAYS", (1, 2, 3))
    new = replace(PULL, head_sha="c" * 40)
    seen = [PULL, new, replace(new, mergeable=True), new]
    slept: list[float] = []

    class Slow:
        def pull(self, number: int) -> Pull:
            return seen.pop(0)

    found = forge_conditions.wait_for_head(Slow(), 9, new.head_sha, slept.append)  # type: ignore[arg-type]
    assert (found.head_sha, found.mergeable, slept) == (new.head_sha, True, [1, 2])
    seen = [PULL] * 4
    assert forge_conditions.wait_for_head(Slow(), 9, new.head_sha, slept.append) == PULL  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "remote", "owner"),
    [
        ("https://github.com/me/Megatron-LM.git", "origin", "me"),
        ("https://token@github.com/me/renamed", "origin", "me"),
        ("git@github.com:me/Megatron-LM.git", "origin", "me"),
        # The folders of the remote on this machine that stands for the forge's own repository say nothing.
        ("/srv/git/Megatron-LM.git", "origin", "practice"),
        ("file:///srv/git/Megatron-LM.git", "origin", "practice"),
        ("/srv/me/Megatron-LM.git", "fork", "me"),
        ("", "fork", "practice"),
    ],
)
def test_whose_branch_the_pull_request_comes_from(tmp_path: Path, url: str, remote: str, owner: str) -> None:
    git(tmp_path, "init", "-q")
    if url:
        git(tmp_path, "remote", "add", remote, url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_REPOSITORY", "practice/Megatron-LM")
        head = head_of(Checkout.open(tmp_path), bump_to(remote=remote))
    assert head == f"{owner}:{BRANCH}"


# -- a base that moves ------------------------------------------------------------------------------------------------


def test_a_moved_base_is_reported(world: World) -> None:
    commit = world.open_pr().commit
    world.commit_on("main", "CHANGES", "more\n")
    assert world.open_pr().commit == commit
    assert any("main has moved by 1 commits" in entry for entry in world.said("warnings"))


def test_a_moved_base_is_merged_on_request(world: World) -> None:
    first = world.open_pr().commit
    tip = world.commit_on("main", "CHANGES", "more\n")
    made = world.open_pr(allow="merge-base")
    assert world.effects() == ["commit", "push"]
    assert git(world.remote, "log", "-1", "--format=%P", BRANCH).split() == [first, tip]
    assert made.pull.head_sha == made.commit
    assert [entry["subject"] for entry in world.said("exceptions")] == ["merge-base"]
    world.open_pr(allow="merge-base")
    assert world.effects() == []


def test_pins_that_a_merge_brings_are_moved_too(world: World) -> None:
    base = "core_r0.1.0"
    world.open_pr(base=base)
    text = git(world.remote, "show", f"{base}:docker/Dockerfile.ci.dev")
    named = text.replace("ARG FROM_IMAGE_NAME\n", "ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.01-py3\n")
    assert named != text
    world.commit_on(base, "docker/Dockerfile.ci.dev", f"{named}\n")
    made = world.open_pr(base=base, allow="merge-base")
    assert world.effects() == ["commit", "commit", "push", "pull request"]
    assert set(world.checks().values()) == {"passed"}
    assert "`docker/Dockerfile.ci.dev`" in made.pull.body


def test_a_merge_that_conflicts_is_refused_and_undone(world: World) -> None:
    world.open_pr()
    world.commit_on("main", "docker/.ngc_version.dev", "nvcr.io/nvidia/pytorch:26.03-py3\n")
    before = world.state()
    with pytest.raises(Refused, match="Merge it by hand"):
        world.open_pr(allow="merge-base")
    assert world.state()[:5] == before[:5]
