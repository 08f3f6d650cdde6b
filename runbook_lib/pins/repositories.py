"""The repositories that we know, as data: their pin sites, and the other facts that a bump needs.

NVIDIA/Megatron-LM: sites.  NVIDIA-NeMo/Megatron-Bridge: its ``skills/build-and-dependency`` (labels), its
``.github/workflows/cicd-main.yml`` and its bumps (#3637, #4649); the title is that of the latter, a Conventional Commit
as its CONTRIBUTING.md requires since #4100.  coreweave/ml-containers: c684e31 and its
``.github/workflows/megatron.yml``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runbook_lib import notebooks
from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageType, Tag
from runbook_lib.pins import known_sites
from runbook_lib.pins.sites import Sites
from runbook_lib.text.lists import join_first

#: The file in which a repository declares its own pins.
FILE = ".base-image-pins.yaml"
TITLE = "chore: Update Docker image version to {tag}"

_MAX_LISTED = 30  # images in one sentence

#: The label for L1 tests with golden values; without it only the slim tests run.
FUNCTIONAL = "Run functional tests"
#: The label that overrides the previous one, runs four steps, and compares nothing.
LIGHTWEIGHT = "Run tests"
#: The label that switches CI to the LTS image.
LTS = "container::lts"


@dataclass(frozen=True)
class LaunchScripts:
    """The folders of a repository with one launch script per test: CI waits for those in ``gating``, not ``flaky``."""

    folder: str
    gating: str
    flaky: str

    def paths(self, job: str) -> tuple[str, str]:
        """Return the paths of a job's script, as one that gates and as one that does not."""
        hardware = "gb200" if job.startswith("gb200_") else "h100"
        folder, name = f"{self.folder}/{hardware}", f"{job.removeprefix('gb200_')}.sh"
        return f"{folder}/{self.gating}/{name}", f"{folder}/{self.flaky}/{name}"


@dataclass(frozen=True)
class RepositoryCi:
    """The CI of a repository on GitHub.

    ``labels`` are set on every pull request; ``by_type`` holds, for an image type, labels that must be on and labels
    that must be off; ``offers`` maps optional labels to a sentence on their purpose, and ``downstream`` labels to the
    job of CI that tests another project because of them.  ``workflow`` is the workflow that copy-pr-bot starts on
    ``pull-request/<number>``, empty without such a bot.  ``branches`` are patterns of branches that are bumped beside
    the base, and ``syncs`` says of a base what a scheduled merge of branches does to its pins.  ``policy`` is the
    document that asks contributors to push to a fork and to sign their commits, if one does.
    """

    labels: tuple[str, ...] = ()
    by_type: Mapping[ImageType, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    offers: Mapping[str, str] = field(default_factory=dict)
    downstream: Mapping[str, str] = field(default_factory=dict)
    workflow: str = ""
    branches: str = ""
    policy: str = ""
    syncs: Mapping[str, str] = field(default_factory=dict)

    def wanted_labels(self, image_type: ImageType) -> tuple[frozenset[str], frozenset[str]]:
        """Return the labels that must be on a bump's pull request before CI starts, and those that must be off."""
        on, off = self.by_type.get(image_type, (frozenset(), frozenset()))
        return on | frozenset(self.labels), off


@dataclass(frozen=True)
class RepositoryTests:
    """The tests of a repository: whether they have ``golden`` values and rows in ``recipes``, as Megatron-LM's do.

    ``oncall`` is the team that issues about CI mention, and ``skips`` maps an image type to the pytest marker of the
    unit tests that its CI leaves out.
    """

    golden: bool = False
    recipes: bool = False
    scripts: LaunchScripts | None = None
    oncall: str = ""
    skips: Mapping[ImageType, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Repository:
    """The facts about a repository that a bump needs.

    ``title`` is that of commit and pull request, ``lts_title`` the title of an LTS bump if it differs.  ``origin`` is
    the pins file that declares the repository.  ``holds`` maps tags that ``runbook watch`` must not propose (``*``:
    every tag) to the reason.
    """

    name: str
    sites: Sites
    title: str = TITLE
    lts_title: str = ""
    ci: RepositoryCi = field(default_factory=RepositoryCi)
    tests: RepositoryTests = field(default_factory=RepositoryTests)
    origin: str = ""
    holds: Mapping[str, str] = field(default_factory=dict)

    def inapplicable(self, step: str) -> str:
        """Return the reason why a step, given by its notebook's name, does not apply here; empty if it does."""
        gitlab_reads = {site.ci == "gitlab" for site in self.sites.pins if site.lockstep}
        needs: dict[str, tuple[object, str]] = {
            notebooks.GITHUB_PIN: (False in gitlab_reads, "no pin outside of GitLab"),
            notebooks.GITLAB_PIN: (True in gitlab_reads, "no pin that GitLab reads"),
            notebooks.RUN_CI: (self.ci.workflow, "no copy-pr-bot that waits for a comment"),
            notebooks.GOLDEN_VALUES: (self.tests.golden, "no golden values"),
            notebooks.BROKEN_TESTS: (
                self.tests.recipes or self.tests.scripts, "no recipes in which to quarantine a broken test",
            ),
        }  # fmt: skip
        has, missing = needs.get(step, (True, ""))
        return "" if has else f"Not applicable: {self.name} has {missing}."

    def of_tag(self, text: str) -> tuple["Repository", Tag]:
        """Return the repository with the pins of one image, and the tag to which a bump moves them.

        ``text`` is the tag, or ``name:tag`` where the repository pins several images.  Raises RunbookError for anything
        else.
        """
        images = self.sites.images
        if len(images) == 1:
            return self, images[0].family.read(text)
        name, _, tag = text.rpartition(":")
        for image in images:
            if image.short == name:
                return replace(self, sites=self.sites.only(image)), image.family.read(tag)
        choices = join_first([f"{image.short}:{tag}" for image in images], _MAX_LISTED)
        raise RunbookError(f"{self.name} pins several images, and {text!r} names none of them: give one of {choices}.")

    def other_type(self, image_type: ImageType) -> ImageType | None:
        """Return the image type that a bump must not touch; None if the repository has one type."""
        for site in self.sites.pins:
            if site.lockstep and site.image_type != image_type:
                return site.image_type
        return None


MEGATRON_LM = Repository(
    "NVIDIA/Megatron-LM",
    known_sites.MEGATRON_LM,
    lts_title="chore: Update LTS Docker image version to {tag}",
    ci=RepositoryCi(
        by_type={
            "dev": (frozenset({FUNCTIONAL}), frozenset({LIGHTWEIGHT, LTS})),
            "lts": (frozenset({FUNCTIONAL, LTS}), frozenset({LIGHTWEIGHT})),
        },
        offers={
            label: f"Only a pull request with the label {label!r} runs the tests of {project}."
            for label, project in (("Run MBridge tests", "Megatron-Bridge"), ("Run NeMoRL tests", "NeMo RL"))
        },
        downstream={"Run MBridge tests": "cicd-mbridge-testing", "Run NeMoRL tests": "cicd-nemo-rl-testing"},
        workflow="CICD Megatron-LM",
        branches="dev core_r*",
        policy="AGENTS.md",
        syncs=dict.fromkeys(
            ("main", "dev"),
            "Read the pull request of the next sync: on Mondays and Thursdays main is merged into dev, which keeps "
            "dev's docker/Dockerfile.ci.dev, pyproject.toml and uv.lock, and keeps or moves the other pins.",
        ),
    ),
    tests=RepositoryTests(
        golden=True, recipes=True, oncall="@NVIDIA/mcore-oncall", skips={"dev": "flaky_in_dev", "lts": "flaky"}
    ),
)
MEGATRON_BRIDGE = Repository(
    "NVIDIA-NeMo/Megatron-Bridge",
    known_sites.MEGATRON_BRIDGE,
    title="chore(docker): update base image to {tag}",
    ci=RepositoryCi(
        labels=("needs-more-tests",),
        offers={"full-test-suite": "If the bump is a risky one, set the label 'full-test-suite' as well."},
        workflow="CICD NeMo",
        branches="r[0-9]*.[0-9]",
    ),
    tests=RepositoryTests(scripts=LaunchScripts("tests/functional_tests/launch_scripts", "active", "flaky")),
)
ML_CONTAINERS = Repository(
    "coreweave/ml-containers", known_sites.ML_CONTAINERS, title="feat(megatron): Update default base image to {tag}"
)
REPOSITORIES = (MEGATRON_LM, MEGATRON_BRIDGE, ML_CONTAINERS)
