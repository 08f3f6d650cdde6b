"""The repositories that we know, as data: whose pins stand where, and what a bump of each one does beside moving them.

NVIDIA/Megatron-LM: sites.  NVIDIA-NeMo/Megatron-Bridge: its ``skills/build-and-dependency`` (labels, title), its
``.github/workflows/cicd-main.yml`` and its bumps (#3637, #4649).  coreweave/ml-containers: c684e31 and its
``.github/workflows/megatron.yml``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runbook_lib import notebooks
from runbook_lib.images.reference import ImageType
from runbook_lib.pins import known_sites, launch_scripts
from runbook_lib.pins.launch_scripts import LaunchScripts
from runbook_lib.pins.sites import Sites

#: The file in which a repository declares its own pins, and is known by.
FILE = ".base-image-pins.yaml"
TITLE = "chore: Update Docker image version to {tag}"

#: L1 with golden values; without it only the slim tests run.
FUNCTIONAL = "Run functional tests"
#: Wins over the other, runs four steps, and compares nothing.
LIGHTWEIGHT = "Run tests"
#: Switches CI to the LTS image, whatever else is set.
LTS = "container::lts"


@dataclass(frozen=True)
class Repository:
    """The facts that a bump needs.  ``title`` is that of commit and pull request, by its own convention.

    ``labels`` are set on a pull request of any type; ``by_type`` holds the further ones of a type that must be on, and
    those that must be off; ``offers`` says for further labels what a person may set them for.  ``workflow`` is what
    copy-pr-bot starts on ``pull-request/<number>``, empty where there is no such bot.  ``golden`` and ``recipes`` say
    whether tests have golden values and rows in recipes, as those of Megatron-LM do; ``scripts`` where each test has a
    launch script instead.  ``branches`` are those that are kept up beside the base.  ``origin`` is the pins file that
    declares it.
    """

    name: str
    sites: Sites
    title: str = TITLE
    labels: tuple[str, ...] = ()
    by_type: Mapping[ImageType, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    offers: Mapping[str, str] = field(default_factory=dict)
    branches: str = ""
    workflow: str = ""
    golden: bool = False
    recipes: bool = False
    scripts: LaunchScripts | None = None
    origin: str = ""

    def wanted_labels(self, image_type: ImageType) -> tuple[frozenset[str], frozenset[str]]:
        """The labels that must be on a bump's pull request before CI starts, and those that must be off."""
        on, off = self.by_type.get(image_type, (frozenset(), frozenset()))
        return on | frozenset(self.labels), off

    def idle(self, step: str) -> str:
        """Return why a step, by its notebook's name, does not apply here; empty where it does."""
        by_hand = ""
        if it := self.scripts:
            by_hand = f"; move its launch script below {it.folder} from {it.gating}/ to {it.idle}/ by hand"
        read_by = {site.ci for site in self.sites.pins if site.lockstep}
        lacking = {
            notebooks.GITHUB_PIN: ("no pin outside of GitLab", bool(read_by - {"gitlab"})),
            notebooks.GITLAB_PIN: ("no pin that GitLab reads", "gitlab" in read_by),
            notebooks.RUN_CI: (
                "no copy-pr-bot, so its CI starts without a comment; see the pull request",
                bool(self.workflow),
            ),
            notebooks.GOLDEN_VALUES: ("no golden values", self.golden),
            notebooks.BROKEN_TESTS: (f"no recipes to put a broken test out of CI's way in{by_hand}", self.recipes),
        }
        what, has = lacking.get(step, ("", True))
        return "" if has else f"Not applicable: {self.name} has {what}."

    def other_type(self, image_type: ImageType) -> ImageType | None:
        """The image type that a bump must not touch; None where the repository has one type."""
        other: ImageType = "lts" if image_type == "dev" else "dev"
        return other if any(site.lockstep and site.image_type == other for site in self.sites.pins) else None


MEGATRON_LM = Repository(
    "NVIDIA/Megatron-LM",
    known_sites.MEGATRON_LM,
    by_type={
        "dev": (frozenset({FUNCTIONAL}), frozenset({LIGHTWEIGHT, LTS})),
        "lts": (frozenset({FUNCTIONAL, LTS}), frozenset({LIGHTWEIGHT})),
    },
    offers={
        "Run MBridge tests": "The merge queue runs the Megatron-Bridge tests: to see them before, set the label "
        "'Run MBridge tests'."
    },
    branches="dev core_r*",
    workflow="CICD Megatron-LM",
    golden=True,
    recipes=True,
)
MEGATRON_BRIDGE = Repository(
    "NVIDIA-NeMo/Megatron-Bridge",
    known_sites.MEGATRON_BRIDGE,
    title="[build] chore: Update base image to {tag}",
    labels=("needs-more-tests",),
    offers={"full-test-suite": "If the bump is a risky one, set the label 'full-test-suite' as well."},
    branches="r[0-9]*.[0-9]",
    workflow="CICD NeMo",
    scripts=launch_scripts.MEGATRON_BRIDGE,
)
ML_CONTAINERS = Repository(
    "coreweave/ml-containers", known_sites.ML_CONTAINERS, title="feat(megatron): Update default base image to {tag}"
)
REPOSITORIES = (MEGATRON_LM, MEGATRON_BRIDGE, ML_CONTAINERS)
