"""The repositories that we know, as data: their pin sites, and the other facts that a bump needs.

NVIDIA/Megatron-LM, from its first GitLab matrix (2025-03) to main at d98e8a64 (2026-08-22), and on ``dev`` and the
branches ``core_r0.12.0`` to ``core_r0.19.0``, has had four layouts:

1. Before 2025-11: no ``.ngc_version`` files, a single row for each type, the LTS row builds ``Dockerfile.ci.lts``.
   The rows are the only pins.
2. From 23a1dcaf74: the ``.ngc_version`` files, both rows build ``Dockerfile.ci.dev`` and differ by ``IMAGE_TYPE``.
3. From cdca7a60d8: a row for each platform.
4. From 4f2e7ce74a: LTS rows build ``Dockerfile.ci.lts`` and have no ``IMAGE_TYPE``.  From d81b638712 Dockerfiles have a
   default for ``FROM_IMAGE_NAME``.

In each of them the rows' ``IMAGE`` distinguishes dev from LTS.  So the rows are always required; the ``.ngc_version``
files together, and once a row has ``IMAGE_TYPE`` or ``PLATFORM``; and a Dockerfile if a row builds it.  README files
below ``examples/`` name the images that their examples were made with; these are no pins.

NVIDIA-NeMo/Megatron-Bridge: its ``skills/build-and-dependency`` (labels), its ``.github/workflows/cicd-main.yml`` and
its bumps (#3637, #4649); the title is that of the latter, a Conventional Commit as its CONTRIBUTING.md requires since
#4100.  coreweave/ml-containers: c684e31 and its ``.github/workflows/megatron.yml``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runbook_lib import notebooks
from runbook_lib.errors import RunbookError
from runbook_lib.images.families import COREWEAVE
from runbook_lib.images.reference import ImageType, Tag
from runbook_lib.pins.finders import BuildArg, Counted, DockerArg, MatrixRows, RegexMatches, WholeFile
from runbook_lib.pins.sites import Coupling, PinnedImage, PinSite, Sites
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


_IMAGE = "nvcr.io/nvidia/pytorch"
_GITLAB = ".gitlab/stages/01.build.yml"
_CI_DEV = "docker/Dockerfile.ci.dev"
_DEV, _LTS = "CI_MCORE_DEV_IMAGE", "CI_MCORE_LTS_IMAGE"
_FROM = DockerArg("FROM_IMAGE_NAME")
_REFERENCE = rf"(?P<image>{re.escape(_IMAGE)}:[\w.-]+(?:@\w+:\w+)?)"
_CUDA = r"(?P<cuda>\d+(?:\.\d+)*)"
_NVSHMEM = rf"\b(?P<version>nvidia-nvshmem-cu{_CUDA}==[\w.]+)"
_TRANSFORMER_ENGINE = rf"\btransformer-engine\[[^]\n]{{0,300}}?(?P<version>core_cu{_CUDA})\b"


def _rows(image: str, *shapes: tuple[str, ...]) -> MatrixRows:
    """Return a finder of rows that have one of the ``shapes``: a file, and an image type if the row has one."""
    allowed = tuple({"FILE": shape[:1], "IMAGE_TYPE": shape[1:]} for shape in shapes)
    return MatrixRows(value=image, known=frozenset({_DEV, _LTS}), shapes=allowed)


def _informational(path: str, before: str, selector: str) -> PinSite:
    """Return a site whose lines have the image after a regular expression ``before``."""
    finder = RegexMatches(re.compile(rf"(?m)^[ \t]*{before}{_REFERENCE}"), selector)
    return PinSite(path, finder, "dev", "people", kind="informational")


def _once(finder: BuildArg | DockerArg) -> Counted:
    """Return a finder of an image that the file has exactly once, in every known layout."""
    return Counted(finder, 1, f"an image for {finder.name}", "as in every known layout")


def _coupling(path: str, image_type: ImageType, what: str, version: str) -> Coupling:
    """Return a coupling to lines, not commented out, with a ``version`` that includes its CUDA release."""
    return Coupling(path, re.compile(rf"(?m)^[^#\n]*?{version}"), what, image_type)


_DEV_ROWS = _rows(_DEV, ("Dockerfile.ci.dev",), ("Dockerfile.ci.dev", "dev"))
_LTS_ROWS = _rows(_LTS, ("Dockerfile.ci.lts",), ("Dockerfile.ci.dev", "lts"))
MEGATRON_LM = Repository(
    "NVIDIA/Megatron-LM",
    Sites(
        images=(PinnedImage(_IMAGE),),
        pins=(
            PinSite("docker/.ngc_version.dev", WholeFile(), "dev", "github", needs="together"),
            PinSite(_GITLAB, _DEV_ROWS, "dev", "gitlab", needs="always"),
            # A build without the build argument uses the default; forgotten by #5632, fixed by #5680.
            PinSite(_CI_DEV, _FROM, "dev", "github", needs="named"),
            PinSite("docker/.ngc_version.lts", WholeFile(), "lts", "github", needs="together"),
            PinSite(_GITLAB, _LTS_ROWS, "lts", "gitlab", needs="always"),
            PinSite("docker/Dockerfile.ci.lts", _FROM, "lts", "github", needs="named"),
            # No build passes a dev pin to these two.
            PinSite("docker/Dockerfile.ci.nemo", _FROM, "dev", "people", kind="informational"),
            PinSite("docker/Dockerfile.linting", _FROM, "dev", "people", kind="informational"),
            _informational(".github/workflows/install-test.yml", r"image:[ \t]*[\"']?", "image"),
            _informational("docs/get-started/install.md", "", "text"),
            # Before CI reads the .ngc_version files, as on core_r0.15.0, the workflow names the image.
            PinSite(
                ".github/workflows/cicd-main.yml", BuildArg("FROM_IMAGE_NAME"), "dev", "github", dockerfile=_CI_DEV
            ),
            # Up to core_r0.16.0; forgotten by 44ab057fef for 129 days.
            _informational(
                ".github/workflows/_update_dependencies.yml", r"docker build .*FROM_IMAGE_NAME=\"?", "FROM_IMAGE_NAME"
            ),
            _informational(
                ".github/workflows/build-test-publish-wheel.yml", r"custom-container:[ \t]*[\"']?", "custom-container"
            ),
        ),
        couplings=(
            _coupling(
                "docker/Dockerfile.ci.dev", "dev", "NCCL", rf"\bNCCL_VERSION=\"?(?P<version>[\w.+-]*?cuda{_CUDA})"
            ),
            _coupling(
                "docker/common/install_nccl.sh", "dev", "NCCL", rf"\bNCCL_VER=\"?(?P<version>[\w.+-]*?cuda{_CUDA})"
            ),
            _coupling("pyproject.toml", "dev", "the extra of Transformer Engine", _TRANSFORMER_ENGINE),
            _coupling("docker/Dockerfile.ci.dev", "dev", "NVSHMEM", _NVSHMEM),
            _coupling("docker/Dockerfile.ci.lts", "lts", "NVSHMEM", _NVSHMEM),
        ),
    ),
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

# NVIDIA-NeMo/Megatron-Bridge, at main 067f987d.  CI builds `docker/Dockerfile.ci` on its default; the build argument
# that it passes is declared nowhere in it.  The README's commands and the other workflows were never moved by a bump.
_BRIDGE_CI = "docker/Dockerfile.ci"
MEGATRON_BRIDGE = Repository(
    "NVIDIA-NeMo/Megatron-Bridge",
    Sites(
        images=(PinnedImage(_IMAGE),),
        platforms=("amd64", "arm64"),
        pins=(
            PinSite(_BRIDGE_CI, _once(DockerArg("BASE_IMAGE")), "dev", "github", needs="always"),
            PinSite(
                ".github/workflows/cicd-main.yml", BuildArg("FROM_IMAGE_NAME"), "dev", "github", dockerfile=_BRIDGE_CI
            ),
            _informational(".github/workflows/install-test.yml", r"image:[ \t]*[\"']?", "image"),
            _informational(".github/workflows/release.yaml", r"custom-container:[ \t]*[\"']?", "custom-container"),
            PinSite("docker/README.md", BuildArg("NEMO_FW_BASE_IMAGE"), "dev", "people", kind="informational"),
        ),
    ),
    title="chore(docker): update base image to {tag}",
    ci=RepositoryCi(
        labels=("needs-more-tests",),
        offers={"full-test-suite": "If the bump is a risky one, set the label 'full-test-suite' as well."},
        workflow="CICD NeMo",
        branches="r[0-9]*.[0-9]",
    ),
    tests=RepositoryTests(scripts=LaunchScripts("tests/functional_tests/launch_scripts", "active", "flaky")),
)

# coreweave/ml-containers, at 71a115d.  Each workload has its own base image; this is Megatron's.
_MEGATRON = _once(BuildArg("BASE_IMAGE"))
ML_CONTAINERS = Repository(
    "coreweave/ml-containers",
    Sites(
        images=(PinnedImage("ghcr.io/coreweave/ml-containers/torch-extras", COREWEAVE),),
        pins=(
            PinSite(
                ".github/workflows/megatron.yml",
                _MEGATRON,
                "dev",
                "github",
                needs="always",
                dockerfile="megatron/Dockerfile",
            ),
            PinSite(".github/workflows/cw-mega-sam.yml", BuildArg("BASE_IMAGE"), "dev", "people", kind="informational"),
            PinSite("sglang/Dockerfile", DockerArg("BASE_IMAGE"), "dev", "people", kind="informational"),
        ),
    ),
    title="feat(megatron): Update default base image to {tag}",
)
REPOSITORIES = (MEGATRON_LM, MEGATRON_BRIDGE, ML_CONTAINERS)
