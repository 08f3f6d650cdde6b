"""``runbook pins import``: Renovate's custom managers as a pins file, which then checks and bumps the repository."""

import json
import subprocess
from pathlib import Path

import pytest

from runbook_lib.cli.__main__ import main
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins import pins_file
from runbook_lib.pins.plan import plan

FILE = ".base-image-pins.yaml"
DIGEST = "sha256:" + "a" * 64
ANNOTATED = r"# renovate: datasource=(?<datasource>\S+) depName=(?<depName>\S+)\s+\w+[=:] ?(?<currentValue>\S+)"


def clone(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    run = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run([*run, "add", "-A"], check=True)
    subprocess.run([*run, "commit", "-qm", "x"], check=True)
    return folder


def settings(*managers: dict[str, object]) -> str:
    base: dict[str, object] = {"customType": "regex", "datasourceTemplate": "docker"}
    return json.dumps({"customManagers": [base | manager for manager in managers]})


def places(repository: Path, tag: str = "26.08-py3") -> dict[str, str]:
    """The texts after a bump by the file that was written."""
    checkout = Checkout.open(repository)
    sites = pins_file.parse((repository / FILE).read_text(), "a/b").sites
    texts = checkout.read(sites.paths)
    edits = plan(texts, sites, sites.groups[0].target(tag), "dev", digest_of_target=lambda _: DIGEST).edits
    for edit in edits:
        (repository / edit.path).write_text(edit.after)
    return {edit.path: edit.after for edit in edits}


NOTHING = {
    "no managers": "{}",
    "no file matches": settings({"managerFilePatterns": ["/none/"], "matchStrings": ["(?<currentValue>x)"]}),
    "nothing is found": settings({"managerFilePatterns": ["/^a$/"], "matchStrings": ["(?<currentValue>x)"]}),
    "another datasource": settings(
        {"managerFilePatterns": ["/^a$/"], "matchStrings": ["TAG=(?<currentValue>.*)"], "datasourceTemplate": "pypi"}
    ),
    "no registry": settings(
        {"managerFilePatterns": ["/^a$/"], "matchStrings": ["TAG=(?<currentValue>.*)"], "depNameTemplate": "x"}
    ),
    "no family": settings(
        {"managerFilePatterns": ["/^a$/"], "matchStrings": ["TAG=(?<currentValue>.*)"], "depNameTemplate": "x.io/y"}
    ),
    "no tag": settings(
        {"managerFilePatterns": ["/^a$/"], "matchStrings": ["(?<currentValue>TAG)="], "depNameTemplate": "nvcr.io/a/b"}
    ),
    "a digest apart": settings(
        {
            "managerFilePatterns": ["/^a$/"],
            "matchStrings": [r"TAG=(?<currentValue>.*)\nDIGEST=(?<currentDigest>.*)"],
            "depNameTemplate": "nvcr.io/nvidia/pytorch",
        }
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_drafted_and_the_reason_is_printed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clone(tmp_path, {"renovate.json": NOTHING[name], "a": "TAG=26.04-py3\nDIGEST=sha256:1\n"})
    assert main(["pins", "import", "--repo", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "Nothing is drafted" in printed
    assert name == "no managers" or "Left out: customManagers[0]: " in printed


@pytest.mark.parametrize(
    ("manager", "text", "after"),
    [
        (
            {"matchStrings": [r"FROM (?<depName>[^:\s]+):(?<currentValue>\S+)"]},
            "FROM nvcr.io/nvidia/pytorch:26.04-py3\n",
            "FROM nvcr.io/nvidia/pytorch:26.08-py3\n",
        ),
        (
            {"matchStrings": [r"FROM (?<depName>[^:\s]+):(?<currentValue>[^@]+)@(?<currentDigest>\S+)"]},
            f"FROM nvcr.io/nvidia/pytorch:26.04-py3@sha256:{'0' * 64}\n",
            f"FROM nvcr.io/nvidia/pytorch:26.08-py3@{DIGEST}\n",
        ),
        (
            {
                "matchStrings": [r"TAG=(?<currentValue>.*)\nDIGEST=(?<currentDigest>.*)"],
                "depNameTemplate": "nvcr.io/nvidia/pytorch",
            },
            f"TAG=26.04-py3\nDIGEST=sha256:{'0' * 64}\n",
            f"TAG=26.08-py3\nDIGEST={DIGEST}\n",
        ),
        (
            {"matchStrings": [ANNOTATED]},
            "# renovate: datasource=docker depName=nvcr.io/nvidia/pytorch\nPT=26.04-py3\nOTHER=26.04-py3\n",
            "# renovate: datasource=docker depName=nvcr.io/nvidia/pytorch\nPT=26.08-py3\nOTHER=26.04-py3\n",
        ),
        (
            {"matchStrings": ["base_tag = (?<currentValue>.+)"], "depNameTemplate": "nvcr.io/nvidia/pytorch"},
            "other_tag = 26.04-py3\nbase_tag = 26.04-py3\n",
            "other_tag = 26.04-py3\nbase_tag = 26.08-py3\n",
        ),
        (
            {
                "matchStrings": ["month: (?<month>[0-9.]+)"],
                "currentValueTemplate": "{{{month}}}-py3",
                "depNameTemplate": "nvidia/pytorch",
                "registryUrlTemplate": "https://nvcr.io",
            },
            "month: 26.04\n",
            "month: 26.08\n",
        ),
        (
            {
                "matchStrings": ["name: (?<name>.+)", "version: (?<currentValue>.+)"],
                "matchStringsStrategy": "combination",
                "packageNameTemplate": "nvcr.io/nvidia/{{name}}",
            },
            "version: 26.04-py3\nsize: 5\nname: pytorch\n",
            "version: 26.08-py3\nsize: 5\nname: pytorch\n",
        ),
    ],
)
def test_renovates_values_are_checked_and_moved(
    tmp_path: Path, manager: dict[str, object], text: str, after: str
) -> None:
    files = {".github/renovate.json5": f"// ours\n{settings(manager | {'fileMatch': ['^ci/base$']})}", "ci/base": text}
    clone(tmp_path, files)
    assert main(["pins", "import", "--repo", str(tmp_path), "--write"]) == 0
    assert main(["pins", "validate", str(tmp_path / FILE)]) == 0
    assert main(["check", str(tmp_path)]) == 0
    assert places(tmp_path) == {"ci/base": after}
    assert main(["check", str(tmp_path)]) == 0
    assert main(["pins", "import", "--repo", str(tmp_path), "--write"]) == 2  # never overwritten


def test_several_images_are_groups_and_one_bad_manager_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"fileMatch": ["^images$"], "matchStrings": [r"\w+=(?<depName>[^:\s]+):(?<currentValue>\S+)"]}
    slow = {"fileMatch": ["^images$"], "matchStrings": [r"(?<currentValue>(?:.*?,){50}x)"]}
    text = "A=nvcr.io/nvidia/pytorch:26.04-py3\nB=nvcr.io/nvidia/nemo:25.11\n" + "a," * 1000
    clone(tmp_path, {"package.json": json.dumps({"renovate": json.loads(settings(slow, good))}), "images": text})
    assert main(["pins", "import", "--repo", str(tmp_path), "--write"]) == 0
    assert "Left out: customManagers[0]: " in capsys.readouterr().out
    sites = pins_file.parse((tmp_path / FILE).read_text(), "a/b").sites
    assert {group.image for group in sites.groups} == {"nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/nemo"}


def test_documents_follow(tmp_path: Path) -> None:
    manager = {"fileMatch": ["."], "matchStrings": [r"(?<depName>nvcr\.io/[^:\s]+):(?<currentValue>[\w.-]+)"]}
    image = "nvcr.io/nvidia/pytorch:26.04-py3"
    clone(
        tmp_path, {"renovate.json": settings(manager), "README.md": f"Use {image}\n", "Dockerfile": f"FROM {image}\n"}
    )
    assert main(["pins", "import", "--repo", str(tmp_path), "--write"]) == 0
    sites = pins_file.parse((tmp_path / FILE).read_text(), "a/b").sites
    assert {site.path: site.role for site in sites.pins} == {"README.md": "follow", "Dockerfile": "lockstep dev"}


@pytest.mark.parametrize("arguments", [[], ["none.json"], ["/dev/null"]])
def test_settings_that_cannot_be_read_are_reported(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    clone(tmp_path, {"package.json": "{}"})
    assert main(["pins", "import", *arguments, "--repo", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("runbook pins: ")


def test_an_image_without_a_registry_is_at_docker_hub(tmp_path: Path) -> None:
    manager = {"managerFilePatterns": ["/env$/"], "matchStrings": [ANNOTATED]}
    text = "# renovate: datasource=docker depName=nvidia/cuda\nCUDA=12.8.1-devel-ubuntu22.04\n"
    repository = clone(tmp_path, {"renovate.json": settings(manager), "v.env": text})
    assert main(["pins", "import", "--repo", str(repository), "--write"]) == 0
    assert "image: docker.io/nvidia/cuda\n" in (repository / FILE).read_text()
    assert places(repository, "13.0.2-devel-ubuntu22.04") == {"v.env": text.replace("12.8.1", "13.0.2")}
