"""Other repositories than Megatron-LM: recognized, checked, and bumped by the same notebooks on the practice forge."""

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import executing as execute
import pytest
from clones import commit, git
from elsewhere import (
    CICD,
    MEGATRON_YML,
    NEW_TORCH,
    OLD_TORCH,
    PYTORCH,
    bridge,
    ml_containers,
    own,
)
from layouts import layout

from runbook_lib.bump import after_merge
from runbook_lib.cli.__main__ import main
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.families import OTHER
from runbook_lib.pins import plan as pins
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.check import PinVerdict, check_pins, outcome
from runbook_lib.pins.finders import BuildArg
from runbook_lib.pins.pins_file import parse
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS, REPOSITORIES, Repository
from runbook_lib.pins.sites import PinnedImage, PinSite, Sites
from runbook_lib.practice import ci as practice_ci
from runbook_lib.world import repository
from runbook_lib.world.bump_branch import BumpBranch
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.github.client import GitHub

ROOT = Path(__file__).resolve().parents[2]


def remote_of(texts: dict[str, Any]) -> str:
    """The address of the repository whose files these are; empty for one with its own pins file."""
    known = {"docker/Dockerfile.ci": "NVIDIA-NeMo/Megatron-Bridge", MEGATRON_YML: "coreweave/ml-containers"}
    return next((f"https://github.com/{name}" for path, name in known.items() if path in texts), "")


def clone(place: Path, texts: dict[str, Any], remote: str = "") -> Path:
    """A repository with these files committed on main."""
    commit(place, texts)
    if remote:
        git(place, "remote", "add", "origin", remote)
    return place


# -- whose pins ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "remote", "given", "expected"),
    [
        ({"a": "b"}, "", "", "NVIDIA/Megatron-LM"),
        ({"a": "b"}, "https://github.com/NVIDIA-NeMo/Megatron-Bridge.git", "", "NVIDIA-NeMo/Megatron-Bridge"),
        ({"a": "b"}, "git@github.com:somebody/megatron-bridge.git", "", "NVIDIA-NeMo/Megatron-Bridge"),
        ({"a": "b"}, "https://github.com/coreweave/ml-containers", "", "coreweave/ml-containers"),
        ({"a": "b"}, "https://github.com/coreweave/ml-containers", "megatron-bridge", "NVIDIA-NeMo/Megatron-Bridge"),
        ({"a": "b"}, "", "Coreweave/ML-Containers", "coreweave/ml-containers"),
        (bridge(), "/srv/git/images.git", "", "NVIDIA/Megatron-LM"),  # no remote names another one
        (ml_containers(), "https://example.org/somebody/fork.git", "ml-containers", "coreweave/ml-containers"),
        (layout(4), "", "", "NVIDIA/Megatron-LM"),
        # Its own file comes first.
        (own(), "https://github.com/NVIDIA/Megatron-LM", "", "NVIDIA/Megatron-LM by .base-image-pins.yaml"),
        (own(), "https://github.com/a/b", "ml-containers", "coreweave/ml-containers"),
    ],
)
def test_whose_pins_a_clone_has(tmp_path: Path, texts: dict[str, Any], remote: str, given: str, expected: str) -> None:
    found = repository.choose(Checkout.open(clone(tmp_path, texts, remote)), given)
    assert found.name + (f" by {found.origin}" if found.origin else "") == expected


@pytest.mark.parametrize("remote", ["https://github.com/acme/web-shop", "git@example.org:acme/web-shop.git"])
def test_files_prove_nothing_where_a_remote_names_another_repository(tmp_path: Path, remote: str) -> None:
    place = clone(tmp_path, bridge(), remote)
    with pytest.raises(CannotTell, match=r"acme/web-shop.*pins find"):
        repository.choose(Checkout.open(place))
    assert main(["check", str(place)]) == 2


def test_a_bare_clone_is_recognized_by_its_head(tmp_path: Path) -> None:
    clone(tmp_path / "a", own())
    subprocess.run(["git", "clone", "-q", "--bare", tmp_path / "a", tmp_path / "bare"], check=True)
    assert repository.choose(Checkout.open(tmp_path / "bare")).origin == ".base-image-pins.yaml"


def test_the_pins_file_of_a_ref_counts_where_the_work_tree_has_none(tmp_path: Path) -> None:
    place = clone(tmp_path, own())
    subprocess.run(["git", "-C", place, "rm", "-q", ".base-image-pins.yaml"], check=True)
    assert repository.choose(Checkout.open(place)).origin == ""
    assert repository.choose(Checkout.open(place), refs=["HEAD"]).origin == ".base-image-pins.yaml"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("megatron", "pins='megatron' is not a known repository. Choose one of megatron-lm, megatron-bridge"),
        ("no/such.yaml", "The pins file no/such.yaml cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
    ],
)
def test_pins_that_name_nothing_are_refused(tmp_path: Path, given: str, says: str) -> None:
    with pytest.raises(RunbookError, match=says.replace("(", r"\(")):
        repository.choose(Checkout.open(clone(tmp_path, {"a": "b"})), given)


# -- as data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("it", REPOSITORIES, ids=lambda it: it.name)
def test_every_repository_is_intact(it: Repository) -> None:
    assert it.title.count("{tag}") == 1
    assert any(site.lockstep for site in it.sites.pins)
    assert it.sites.marker_paths
    assert {step for step in STEPS if it.inapplicable(step)} == IDLE[it.name]


STEPS = ("00-preflight", "01-github-pin", "02-gitlab-pin", "03-open-pr", "04-run-ci", "05-golden-values",
         "06-broken-tests", "07-sync-check")  # fmt: skip
IDLE = {
    "NVIDIA/Megatron-LM": set(),
    "NVIDIA-NeMo/Megatron-Bridge": {"02-gitlab-pin", "05-golden-values"},
    "coreweave/ml-containers": {"02-gitlab-pin", "04-run-ci", "05-golden-values", "06-broken-tests"},
}


def test_a_bump_takes_title_labels_and_tags_from_its_repository() -> None:
    lm, there, torch = (
        Bump.parse(tag=tag, repository=it)
        for tag, it in (("26.04-py3", MEGATRON_LM), ("26.04-py3", MEGATRON_BRIDGE), (NEW_TORCH, ML_CONTAINERS))
    )
    assert lm.title == "chore: Update Docker image version to 26.04-py3"
    assert lm.labels == (frozenset({"Run functional tests"}), frozenset({"Run tests", "container::lts"}))
    assert there.title == "chore(docker): update base image to 26.04-py3"
    assert there.labels == (frozenset({"needs-more-tests"}), frozenset())
    assert torch.title.endswith(NEW_TORCH)
    assert (str(torch.tag), torch.labels) == (NEW_TORCH, (frozenset(), frozenset()))
    with pytest.raises(RunbookError, match="not a tag of CoreWeave's"):
        Bump.parse(tag="26.04-py3", repository=ML_CONTAINERS)
    ours = dataclasses.replace(ML_CONTAINERS, sites=Sites((PinnedImage("a.b/c", OTHER),), ()))
    with pytest.raises(RunbookError, match=r"tag='1\.\.2'"):
        Bump.parse(tag="1..2", repository=ours)


# -- dead build arguments -----------------------------------------------------------------------------------------


def verdicts(texts: dict[str, str], it: Repository = MEGATRON_BRIDGE) -> dict[str, PinVerdict]:
    given = {path: texts.get(path) for path in it.sites.paths}
    return {verdict.path: verdict for verdict in check_pins(given, it.sites)}


FROM_OTHER = "Nothing passes ARG BASE_IMAGE (CI passes FROM_IMAGE_NAME)"


@pytest.mark.parametrize(
    ("texts", "it", "path", "state", "parts"),
    [
        (bridge(), MEGATRON_BRIDGE, CICD, "lagging",
         [f"{CICD}:9", "25.09-py3", "26.02-py3", "docker/Dockerfile.ci", "ARG FROM_IMAGE_NAME", "ARG BASE_IMAGE"]),
        (bridge(passed="26.02-py3"), MEGATRON_BRIDGE, CICD, "in sync", ["dead build argument"]),
        (bridge(), MEGATRON_BRIDGE, "docker/Dockerfile.ci", "in sync", ["docker/Dockerfile.ci:1", "26.02", FROM_OTHER]),
        (bridge() | {CICD: "name: CICD NeMo\n"}, MEGATRON_BRIDGE, "docker/Dockerfile.ci", "in sync", []),
        (ml_containers(), ML_CONTAINERS, MEGATRON_YML, "in sync", []),
    ],
)  # fmt: skip
def test_a_dead_build_argument_is_reported_with_what_is_built_instead(
    texts: dict[str, str], it: Repository, path: str, state: str, parts: list[str]
) -> None:
    found = verdicts(texts, it)
    assert (found[path].state, bool(found[path].sentence)) == (state, bool(parts))
    assert [part for part in parts if part not in found[path].sentence] == []
    assert outcome(list(found.values())) == "in sync"


def test_arguments_of_another_dockerfile_are_not_passed_to_this_one() -> None:
    other = {"x.yml": f"--build-arg BASE_IMAGE={PYTORCH}:26.02-py3\n", "other/Dockerfile": "ARG BASE_IMAGE\n"}
    site = PinSite("x.yml", BuildArg("BASE_IMAGE"), "dev", "github", dockerfile="other/Dockerfile")
    sites = dataclasses.replace(MEGATRON_BRIDGE.sites, pins=(*MEGATRON_BRIDGE.sites.pins, site))
    found = verdicts(bridge() | other, dataclasses.replace(MEGATRON_BRIDGE, sites=sites))
    assert found["docker/Dockerfile.ci"].sentence.count("(CI passes FROM_IMAGE_NAME)") == 1
    assert found["x.yml"].sentence == ""


@pytest.mark.parametrize(
    ("dockerfile", "says"),
    [
        ("ARG BASE_IMAGE=x\nARG FROM_IMAGE_NAME\nFROM $BASE_IMAGE\n", ""),
        ("FROM a AS b\nFROM b\narg WITH_EXTRAS FROM_IMAGE_NAME=none\n", ""),
        ("ARG A=1 \\\n    FROM_IMAGE_NAME=2\nFROM $A\n", ""),
        ("# ARG FROM_IMAGE_NAME\nARG FROM_IMAGE=x\nFROM a\n", "declares no ARG FROM_IMAGE_NAME"),
        (None, "FROM_IMAGE_NAME is passed to docker/Dockerfile.ci, which does not exist"),
    ],
)
def test_an_argument_lives_where_any_stage_declares_it(dockerfile: str | None, says: str) -> None:
    texts = {path: text for path, text in (bridge() | {"docker/Dockerfile.ci": dockerfile}).items() if text}
    found = verdicts(texts)[CICD].sentence
    assert says in found if says else "dead" not in found


# -- check and plan -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "status", "says"),
    [
        (bridge(), 0, ["dead build argument", "install-test.yml:7 (image) names 25.05-py3", "1 of 1 pins agree"]),
        (bridge(passed="26.02-py3"), 0, ["In sync: 1 of 1 pins agree, 2 informational"]),
        (ml_containers(), 0, ["In sync: 1 of 1 pins agree."]),
        (ml_containers() | {MEGATRON_YML: "jobs: {}\n"}, 2, ["Cannot tell", MEGATRON_YML]),
        (own(), 0, ["In sync: 3 of 3 pins agree, 1 informational", "frozen"]),
        (own() | {"Dockerfile": "FROM x\n"}, 2, ["Dockerfile (lockstep dev): expected find: regex once "
                                                 "(.base-image-pins.yaml:8), found none."]),
        (own() | {"image.txt": None}, 0, ["image.txt (informational): the file does not exist, but the pins file"]),
        (own() | {"results/README.md": ""}, 2, ["find: build-arg 2 times (.base-image-pins.yaml:17), found none."]),
    ],
)  # fmt: skip
def test_check_answers_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], texts: dict[str, str], status: int, says: list[str]
) -> None:
    place = str(clone(tmp_path, texts, remote_of(texts)))
    assert main(["check", "--verbose", place]) == status
    out = "".join(capsys.readouterr())
    assert [it for it in says if it not in out] == []


def test_check_takes_whose_pins_and_a_tag_of_their_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(clone(tmp_path, ml_containers(), remote_of(ml_containers())))
    assert main(["check", "--tag", NEW_TORCH, place]) == 1
    assert f"the dev pins should be {NEW_TORCH}" in capsys.readouterr().out
    assert main(["check", "--pins", "megatron-bridge", place]) == 2
    assert "These are the pins of NVIDIA-NeMo/Megatron-Bridge" in capsys.readouterr().err
    assert main(["check", "--tag", "26.04-py3", place]) == 2


def planned(texts: dict[str, str], it: Repository, tag: str, *allow: str) -> pins.PinPlan:
    given = {path: texts.get(path) for path in it.sites.paths}
    target = it.sites.family.read(tag)
    return pins.plan(given, it.sites, target, "dev", allow=frozenset(allow), digest_of_target=str)


def test_a_default_in_an_expression_moves_and_nothing_beside_it() -> None:
    texts = ml_containers()
    (edit,) = planned(texts, ML_CONTAINERS, NEW_TORCH).edits
    assert edit.after == texts[MEGATRON_YML].replace(OLD_TORCH, NEW_TORCH)


def test_older_is_what_the_family_calls_older() -> None:
    again = OLD_TORCH.replace("17ad6db", "0000000")
    assert len(planned(ml_containers(), ML_CONTAINERS, again).changes) == 1  # the same versions, built again
    texts = ml_containers(NEW_TORCH)
    with pytest.raises(Refused, match="what: older-tag"):
        planned(texts, ML_CONTAINERS, OLD_TORCH)
    assert len(planned(texts, ML_CONTAINERS, OLD_TORCH, "older-tag").changes) == 1


def test_a_plan_reports_a_dead_argument_and_names_the_platforms() -> None:
    plan = planned(bridge(), MEGATRON_BRIDGE, "26.04-py3")
    assert {change.path for change in plan.changes} == {CICD, "docker/Dockerfile.ci"}
    assert [it for it in plan.warnings if "Moving it changes no image." in it]
    assert plan.platforms == ("amd64", "arm64")
    assert plan.part("gitlab").changes == ()
    assert plan.part("github").changes == plan.changes


# -- a whole bump, and after its merge -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "texts", "tag", "ci_step", "title", "labels"),
    [
        ("Megatron-Bridge", bridge, "26.04-py3", "waiting for CI run",
         "chore(docker): update base image to 26.04-py3", ["needs-more-tests"]),
        # It pins the image for amd64 alone, and this tag exists for no other.
        ("own", own, "26.03-py3", "Not applicable: ", "build: base image 26.03-py3", ["needs review"]),
    ],
)  # fmt: skip
def test_a_complete_bump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, texts: Callable[..., dict[str, str]], tag: str,
    ci_step: str, title: str, labels: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(practice_ci, "WORKFLOW", "CICD NeMo")
    bare, place, branch = tmp_path / f"{name}.git", tmp_path / "clone", f"bump/main/dev-{tag}"
    git(clone(tmp_path / "seed", texts()), "clone", "-q", "--bare", ".", str(bare))
    git(bare, "clone", "-q", ".", str(place))
    with execute.served(bare, tmp_path):
        result = execute.execute(ROOT / "runbooks/bump.ipynb", {"tag": tag, "repo": str(place), "mode": "publish"})
        (pull,) = GitHub(f"practice/{name}").pulls()
    assert (result.state, pull.labels) == ("waiting", frozenset(labels)), result.summary
    said = {it["name"]: it["outcome"]["sentence"] for it in result.run["steps"]}
    assert said["04-run-ci"].startswith(ci_step)
    assert said["05-golden-values"].startswith("Not applicable: ")
    assert git(bare, "log", "-1", "--format=%s", branch) == title
    assert {path: git(bare, "show", f"{branch}:{path}") for path in texts()} == {
        path: text.strip() for path, text in texts(*([tag, tag] if texts is bridge else [tag])).items()
    }


def test_after_a_merge_the_release_branches_are_those_of_the_repository(tmp_path: Path) -> None:
    place = clone(tmp_path, bridge("25.11-py3"))
    for name in ("r0.3.0", "r0.4.0", "r0.4.0-scan", "core_r0.1.0"):
        git(place, "branch", name)
    bump = Bump.parse(tag="26.02-py3", base="r0.3.0", repository=MEGATRON_BRIDGE)
    (row,) = after_merge.branch_rows(BumpBranch(Checkout.open(place), bump, "", "", None))
    assert (row["branch"], row["image"], row["state"]) == ("r0.4.0", "25.11-py3", "older")


def test_the_merge_is_found_where_a_file_has_the_tag_alone(tmp_path: Path) -> None:
    own_pins = parse("version: 1\nimage: a.b/c\nfamily: other\npins: [{path: v, find: {text: 'v={tag}'}}]\n", "a/b")
    place = tmp_path / "clone"
    for text in ("v=1.0\n", "v=1.1\n", "# later\nv=1.1\n"):
        commit(place, {"v": text})
    bump, head = Bump.parse(tag="1.1", repository=own_pins), git(place, "rev-parse", "HEAD")
    branch = BumpBranch(Checkout.open(place), bump, "", head, None)
    assert after_merge.merge_commit(branch) == git(place, "rev-parse", "HEAD^")
