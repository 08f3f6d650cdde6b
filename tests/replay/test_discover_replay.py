"""``pins discover`` on the real repositories: against git grep, and against how a person sorted the references.

Skipped unless MEGATRON_LM, MEGATRON_BRIDGE or ML_CONTAINERS names a clone; it may be bare.  The lists in
``references/`` say at which commit each was made, what the roles mean, and one reference a line.
"""

import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from runbook_lib.cli.discover import Discovery, survey
from runbook_lib.images.families import FAMILIES
from runbook_lib.pins import pins_file
from runbook_lib.pins import sites as reading

pytestmark = pytest.mark.replay

#: The share that must be sorted as a careful person does.
SHARE = 0.9
CLONES = {"MEGATRON_LM": "megatron-lm", "MEGATRON_BRIDGE": "megatron-bridge", "ML_CONTAINERS": "ml-containers"}
# Found by `git grep` without being references: none so far.  Found beside it: enroot's spelling of a name, Docker Hub's
# names without a registry, and tags in the rows of a matrix.
BESIDE = {
    "megatron-lm": {("examples/academic_paper_scripts/sc21/SRUN.sh", 15)},
    "ml-containers": {
        (".github/workflows/cuda-ssh.yml", 14), (".github/workflows/cuda-ssh.yml", 15), ("torch/Dockerfile", 2),
        ("torch/Dockerfile", 3),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Sorted:
    """A repository, what the program found in it, and the list: (path, line, image, tag) to kinds and roles."""

    name: str
    clone: Path
    commit: str
    found: Discovery
    wanted: Counter[tuple[str, int, str, str, str, str]]


@pytest.fixture(params=CLONES, scope="module")
def repository(request: pytest.FixtureRequest) -> Sorted:
    clone, name = os.environ.get(request.param), CLONES[request.param]
    if not clone:
        pytest.skip(f"{request.param} names no clone of it")
    lines = (Path(__file__).parent / "references" / f"{name}.tsv").read_text().splitlines()
    commit = next(line.split()[-1] for line in lines if line.startswith("# commit "))
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    wanted = Counter((path, int(line), image, tag, kind, role) for path, line, image, tag, kind, role in rows)
    return Sorted(name, Path(clone).resolve(strict=True), commit, survey(clone, commit), wanted)


def test_every_line_that_git_grep_finds_is_found(repository: Sorted) -> None:
    names = [part for family in FAMILIES for image in family.images for part in ("-e", image)]
    command = ["git", "-C", str(repository.clone), "grep", "-z", "-n", "-I", "-w", "-F", *names, repository.commit]
    done = subprocess.run(command, capture_output=True, check=True)
    grepped = set()
    for hit in done.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        name, line, _ = hit.split("\0", 2)
        grepped.add((name.partition(":")[2], int(line)))
    found = {(one.path, one.reference.line) for one in repository.found.references}
    assert len(grepped) > 15
    assert grepped - found == set()
    assert found - grepped == BESIDE.get(repository.name, set())


def test_the_list_names_every_reference(repository: Sorted) -> None:
    listed = Counter((path, line, image) for path, line, image, *_ in repository.wanted.elements())
    assert Counter((one.path, one.reference.line, one.reference.image) for one in repository.found.references) == listed


def test_at_least_nine_of_ten_are_classified_correctly(repository: Sorted) -> None:
    wanted, found = repository.wanted, repository.found.references
    roles = Counter((path, line, image, role) for path, line, image, _, _, role in wanted.elements())
    kinds = Counter((path, line, image, kind) for path, line, image, _, kind, _ in wanted.elements())
    told_roles = Counter((one.path, one.reference.line, one.reference.image, one.full_role) for one in found)
    told_kinds = Counter((one.path, one.reference.line, one.reference.image, one.nature.kind) for one in found)
    total = wanted.total()
    role, kind = (roles & told_roles).total(), (kinds & told_kinds).total()
    print(f"\n{repository.name}: {role} roles and {kind} kinds of {total} ({role / total:.1%}, {kind / total:.1%})")
    for missed in roles - told_roles:
        print("  otherwise:", *missed)
    assert role / total >= SHARE
    assert kind / total >= SHARE


def test_the_draft_is_a_pins_file_that_reads_every_pin(repository: Sorted) -> None:
    draft = repository.found.draft
    sites = pins_file.parse(draft.text, "x/y").sites
    texts = {
        path: subprocess.run(
            ["git", "-C", str(repository.clone), "show", f"{repository.commit}:{path}"], capture_output=True, check=True
        ).stdout.decode("utf-8", "surrogateescape")
        for path in sites.pin_paths
    }
    readings = reading.read(texts, sites)
    assert [one.problem for one in readings if one.problem] == []
    read = Counter((pin.site.path, pin.line, pin.site.role) for one in readings for pin in one.pins)
    images = {group.image for group in sites.groups}
    found = Counter(
        (one.path, one.reference.line, one.full_role)
        for one in repository.found.references
        if one.reference.image in images and one.role in ("lockstep", "follow", "informational")
    )
    assert (found - read).total() == len(draft.left_out)
    assert read - found == Counter()


def test_the_draft_reports_the_dead_argument(repository: Sorted) -> None:
    if repository.name != "megatron-bridge":
        pytest.skip("of Megatron-Bridge alone")
    text = repository.found.draft.text
    entry = text[text.index("- path: '.github/workflows/cicd-main.yml'") :]
    assert entry.split("\n")[1].strip() == "find: {build-arg: FROM_IMAGE_NAME}"
    assert entry.split("\n")[6].strip() == "dockerfile: docker/Dockerfile.ci"
