"""The base images of several repositories, from clones, an archive and a registry."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from archives import two_bumps

from runbook_lib.cli.__main__ import main
from runbook_lib.errors import RunbookError
from runbook_lib.practice.registry.server import RegistryServer
from runbook_lib.workflow import fleet
from runbook_lib.workflow.fleet import FleetRow

PINS = "version: 1\nimage: nvcr.io/nvidia/pytorch\npins:\n  - path: Dockerfile\n    find: {arg: BASE}\n"
RECIPE = (
    "spec:\n  model: gpt\nproducts:\n  - test_case: [x]\n    products:\n      - environment: [dev]\n"
    "        scope: [mr-broken]\n        platforms: [dgx_h100]\n"
)


class Clone:
    """A repository of one Dockerfile; each commit has a date of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("remote", "add", "origin", "https://github.com/o/r")
        self.write(".base-image-pins.yaml", PINS)

    def git(self, *arguments: str, date: str = "2026-01-01") -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@b.c")
        env = {"GIT_COMMITTER_DATE": f"{date}T12:00:00Z", "PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        subprocess.run(["git", *identity, *arguments], cwd=self.folder, env=env, check=True, capture_output=True)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)
        self.git("add", path)

    def commit(self, tag: str, date: str, more: str = "") -> None:
        self.write("Dockerfile", f"ARG BASE=nvcr.io/nvidia/pytorch:{tag}\nFROM $BASE\n{more}")
        self.git("commit", "--quiet", "--message", "x", date=date)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    clone = Clone(tmp_path / "clone")
    clone.commit("26.01-py3", "2026-02-01")
    clone.commit("26.02-py3", "2026-03-01")
    clone.commit("26.02-py3", "2026-04-01", more="RUN true\n")
    return clone


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = RegistryServer()
    monkeypatch.setenv("RUNBOOK_REGISTRY", server.url)
    monkeypatch.setenv("RUNBOOK_CACHE", "off")
    yield
    server.close()


def rows(folder: Path, entry: str = "clone: clone", audit: str = "audit") -> list[FleetRow]:
    return fleet.read(f"audit: {audit}\nrepositories:\n  - {{{entry}}}\n", folder / "fleet.yaml")


@pytest.mark.usefixtures("registry")
def test_a_branch_has_its_image_since_the_commit_that_moved_the_pins(tmp_path: Path, clone: Clone) -> None:
    (row,) = rows(tmp_path)
    assert (row.repository, row.ref, row.image_type, row.tags) == ("o/r", "HEAD", "dev", ("26.02-py3",))
    assert row.since == "2026-03-01"
    assert row.behind
    assert row.state == f"{row.behind} behind"
    clone.commit(row.newest, "2026-08-01")
    (row,) = rows(tmp_path)
    assert (row.since, row.state, row.behind) == ("2026-08-01", "newest", 0)


@pytest.mark.usefixtures("registry")
def test_branches_bumps_and_quarantines_are_those_of_the_branch(tmp_path: Path, clone: Clone) -> None:
    two_bumps(tmp_path)  # of o/r: one of main for dev, one of dev for lts
    clone.git("branch", "core_r1")
    clone.write("tests/test_utils/recipes/h100/gpt.yaml", RECIPE)
    clone.commit("26.04-py3", "2026-05-01")
    listed = rows(tmp_path, "clone: clone, refs: [main, 'core_r*']", audit=".")
    assert [(row.ref, row.tags, row.quarantined) for row in listed] == [
        ("main", ("26.04-py3",), 1),
        ("core_r1", ("26.02-py3",), 0),
    ]
    assert [[bump.state for bump in row.bumps] for row in listed] == [["waiting"], []]


@pytest.mark.usefixtures("registry")
def test_the_date_is_open_where_the_history_is_cut(tmp_path: Path, clone: Clone) -> None:
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", f"file://{clone.folder}", str(tmp_path / "shallow")], check=True
    )
    (row,) = rows(tmp_path, "clone: shallow")
    assert row.since == "…2026-04-01"


def test_a_registry_that_does_not_answer_is_a_reason_and_no_verdict(
    tmp_path: Path, clone: Clone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNBOOK_REGISTRY", "http://127.0.0.1:9")
    monkeypatch.setenv("RUNBOOK_CACHE", "off")
    (tmp_path / "fleet.yaml").write_text("repositories:\n  - clone: clone\n  - clone: nowhere\n")
    assert main(["fleet", str(tmp_path / "fleet.yaml"), "--json"]) == 2
    known, missing = json.loads(capsys.readouterr().out)["rows"]
    assert (known["tags"], known["state"], known["behind"]) == (["26.02-py3"], "cannot tell", None)
    assert "could not be read" in known["problem"]
    assert (missing["state"], missing["tags"]) == ("cannot tell", [])
    assert "nowhere" in missing["problem"]


@pytest.mark.usefixtures("registry")
def test_the_page_escapes_what_repositories_say(tmp_path: Path, clone: Clone) -> None:
    clone.git("branch", "<b>x")
    (tmp_path / "fleet.yaml").write_text("repositories:\n  - {clone: clone, refs: ['<b>x']}\n")
    assert main(["fleet", str(tmp_path / "fleet.yaml"), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;x" in page
    assert "<b>x" not in page


@pytest.mark.parametrize(
    ("text", "line"),
    [("", 1), ("repositories: []\n", 1), ("repositories:\n  - {refs: [x]}\n", 2), ("repositories:\n  - clone: 1\n", 2)],
)
def test_a_mistake_in_the_file_is_reported_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(RunbookError, match=rf"fleet\.yaml:{line}: "):
        fleet.read(text, tmp_path / "fleet.yaml")
