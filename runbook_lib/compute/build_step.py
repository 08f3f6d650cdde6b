"""Notebook build-image: build the image of a checkout from its pins, or pull it, and check what is in it."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from runbook_lib import display, notebooks
from runbook_lib.compute import build_plan, smoke
from runbook_lib.compute import engine as engines
from runbook_lib.compute.build_plan import BuildPlan
from runbook_lib.compute.command_run import CommandRun
from runbook_lib.compute.engine import Engine
from runbook_lib.compute.internal_gitlab import GITLAB_REMOTE
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.compute.tasks import WorkStep, missing_submodules, split_words
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.compare import versions
from runbook_lib.images.reference import Image, ImageRef
from runbook_lib.model import Check, Condition, Effect, Evidence, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.text.lists import join_first
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import Services, World

LOG = "build-image.log"
HOW = ("build", "pull")
_PRACTICE = "The practice environment's images contain no programs to build on. Use your own checkout: -r repo FOLDER."


@dataclass(frozen=True)
class ImageFacts:
    """The ``build``, or in ``pulled`` the image to pull instead; ``missing`` are the folders that it lacks.

    ``base`` is the registry's description of the pinned image, if known.  ``obstacle`` says why nothing may be built,
    or why no engine works; empty if it can be made.
    """

    build: BuildPlan
    pulled: str
    missing: tuple[str, ...]
    engine: Engine | None
    obstacle: str
    base: Image | None
    commit: str
    warnings: tuple[str, ...]

    @property
    def image(self) -> str:
        """The name of the image."""
        return self.pulled or self.build.tag

    @property
    def steps(self) -> tuple[WorkStep, ...]:
        """The commands to run in the checkout, in order."""
        engine = self.engine or "docker"
        if self.pulled:
            return (WorkStep("Pull the image", (engine, "pull", self.pulled)),)
        steps = [WorkStep("Make the folder", ("mkdir", "-p", "--", name)) for name in self.missing]
        return (*steps, WorkStep("Build the image", self.build.command(engine)))

    @property
    def claims(self) -> dict[str, str]:
        """The versions that the registry names for the pinned image; empty if they are unknown."""
        config = self.base.platforms.get(self.build.architecture) if self.base else None
        return versions(config) if config else {}


@dataclass(frozen=True)
class VersionsMatch:
    """The programs in an image have the versions that the registry names for its base, read in this run."""

    image: str
    engine: Engine
    claims: Mapping[str, str]
    leaves_machine = False
    _found: list[tuple[str, smoke.Versions]] = field(default_factory=list, compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """The reading in the imperative."""
        return f"check the versions of PyTorch, CUDA, NCCL, Transformer Engine and Python in {self.image}"

    def holds(self, world: World) -> Check:
        """Compare the versions that were read in the image."""
        name = "the image matches the base that the registry reports"
        if not self._found:
            return Check(name, "failed", "Not done in this run.")
        image, versions = self._found[-1]
        rows = [version.row for version in versions]
        evidence = Evidence({"image": image}, tables={"smoke": rows}, shown=(display.table(rows),))
        if wrong := [version.difference for version in versions if version.wrong]:
            return Check(name, "failed", f"{'; '.join(wrong)}.", evidence=evidence)
        same, unknown = (smoke.of_base(versions, verdict) for verdict in ("as claimed", "not claimed"))
        sentences = [f"The registry names no version of {unknown}."] if unknown else []
        if not same:
            return Check(name, "skipped", " ".join(["Nothing was compared.", *sentences]), evidence=evidence)
        return Check(name, "passed", " ".join([f"As in the base image: {same}.", *sentences]), evidence=evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Read the versions in a new container, which changes nothing.  Raises CannotTell if that is impossible."""
        image = engines.image_id(self.engine, self.image)
        if not image:
            raise CannotTell(
                f"{self.engine} cannot find {self.image}: its builder stores images elsewhere.",
                "Use the engine's own builder (`docker buildx use default`), and run the same command again.",
            )
        print(f"Checking the versions in {self.image}, {image}.")
        output = engines.inside(self.engine, image, smoke.COMMAND, smoke.LIMIT)
        self._found.append((image, smoke.judge(self.claims, output)))
        return ()


@dataclass(frozen=True)
class BuildImage:
    """The step.  It builds from the pins in the work tree, as it is: it needs the files checked out.

    ``arguments`` are further options of ``docker build``, ``site`` is a file that describes this machine.
    """

    how: str = "build"
    arguments: str = ""
    site: str = ""
    practice: bool = False

    def look(self, world: World, bump: Bump) -> ImageFacts:
        """Read the work tree, the registry and the engines.

        Raises RunbookError for invalid parameters, CannotTell like ``build_plan.plan``.
        """
        if self.how not in HOW:
            raise RunbookError(f"how={self.how!r} is invalid.", f"Choose {' or '.join(HOW)}. Nothing was built.")
        checkout, repository, pulled = world.checkout, bump.repository, ""
        checkout.require_work_tree()
        texts = checkout.read(build_plan.paths(repository))
        options = split_words(self.arguments)
        build = build_plan.plan(texts, repository, bump.image_type, platform.machine(), options)
        if self.how == "pull":
            pulled = str(internal_image(checkout, bump))
        warnings = list(build.warnings)
        base = _base_image(world.services, build, warnings)
        missing = () if pulled else _missing_folders(checkout, build, warnings)
        _warn_about_work_tree(checkout, warnings)
        engine, obstacle = None, _refusal(bump, build)
        try:  # a plan can be shown without an engine
            engine = engines.find(read_site(self.site).engine)
        except RunbookError as error:
            obstacle = obstacle or str(error)
        return ImageFacts(build, pulled, missing, engine, obstacle, base, checkout.resolve("HEAD"), tuple(warnings))

    def plan(self, facts: ImageFacts, bump: Bump) -> Plan[World]:
        """Plan the builds or the pull, then the check of the image."""
        digest = facts.base.digest if facts.base else ""
        inputs = {"base": str(facts.build.base), "digest": digest, "head_commit": facts.commit}
        evidence = Evidence(inputs, warnings=facts.warnings)
        done = Outcome(f"{'Pulled' if facts.pulled else 'Built'} {facts.image}.")
        planned: Plan[World] = Plan(done, (_show(facts),), evidence=evidence, on_branch=False)
        if self.practice:
            return replace(planned, done=Outcome(_PRACTICE))
        if bump.tag is None:
            pinned = f"The work tree pins {facts.build.base.tag}: set tag to that to build it."
            idle = f"No tag was given, so nothing is built. {pinned}"
            return replace(planned, done=Outcome(idle))
        if facts.obstacle and not bump.apply:
            warned = replace(evidence, warnings=(*facts.warnings, facts.obstacle))
            return replace(planned, done=Outcome(f"Apply would be refused. {facts.obstacle}"), evidence=warned)
        conditions: list[Condition[World]] = [CommandRun(step, LOG, facts.obstacle) for step in facts.steps]
        if facts.engine:
            conditions.append(VersionsMatch(facts.image, facts.engine, facts.claims))
        return replace(planned, conditions=tuple(conditions))


def _show(facts: ImageFacts) -> display.View:
    """Show the build, its commands and the warnings."""
    shown = display.mapping({"image": facts.image, "built on": facts.build.base, "pinned in": facts.build.source})
    commands = "\n".join(step.line for step in facts.steps)
    shown += display.code(commands, title="To be run in the checkout:")
    return shown + display.notes(filter(None, [facts.obstacle, *facts.warnings]), title="Attention")


def internal_image(checkout: Checkout, bump: Bump) -> ImageRef:
    """Return the image that internal CI last built for main, in the registry on the host of the remote ``gitlab``.

    The reference has no port, because with one the registry responds with "access forbidden".  Raises Refused without
    such an image or remote, and CannotTell for a remote without a host.
    """
    if bump.repository.name != MEGATRON_LM.name or bump.image_type != "dev":
        raise Refused(
            f"An internal image exists for Megatron-LM's dev lane only, not for {bump.repository.name} "
            f"({bump.image_type}). Nothing was pulled.",
            "Build the image instead.",
        )
    project = checkout.remote(GITLAB_REMOTE)
    if "." not in project.host:
        raise CannotTell(
            f"The remote {GITLAB_REMOTE!r}, {project}, has no host such as gitlab.example.com, so the registry of the "
            "internal images is unknown.",
            "Correct it (`git remote set-url`), or build the image.",
        )
    return ImageRef(project.host, "adlr/megatron-lm/mcore_ci_dev", tag="main")


def _base_image(services: Services, build: BuildPlan, warnings: list[str]) -> Image | None:
    """Return the registry's description of the base image, or add a warning that it is unknown."""
    try:
        image = services.registry(build.base).image(build.base.digest or build.base.tag or "latest")
    except RunbookError as error:
        warnings.append(f"The versions in {build.base} are unknown: {error}")
        return None
    if image is None:
        warnings.append(f"The registry has no {build.base}, so the build will fail unless this machine has it.")
    return image


def _missing_folders(checkout: Checkout, build: BuildPlan, warnings: list[str]) -> tuple[str, ...]:
    """Return the folders that the Dockerfile copies and the work tree lacks, and add a warning on what they lack."""
    missing = [name for name in build.folders if not (checkout.path / name).exists()]
    for name in missing:
        warnings.append(
            f"The Dockerfile copies {name}, which no clone has: it is made, and empty. {build.folders[name]}"
        )
    return tuple(missing)


def _warn_about_work_tree(checkout: Checkout, warnings: list[str]) -> None:
    if changed := checkout.uncommitted([]):
        branch, listed = checkout.current_branch() or "no branch", join_first(changed, 5)
        warnings.append(f"The build uses the work tree ({branch}) as it is, with uncommitted changes: {listed}.")
    for path in missing_submodules(checkout):  # the build would copy an empty folder
        warnings.append(f"The submodule {path} is not initialized: run `git submodule update --init {path}` first.")


def _refusal(bump: Bump, build: BuildPlan) -> str:
    """Return why the pinned image may not be built on, as a sentence; empty if it may."""
    if bump.tag is None or build.base.tag == str(bump.tag):
        return ""
    return (
        f"The work tree pins {build.base} ({build.source}), but {bump.tag} was requested. Move the pins first "
        f"({notebooks.GITHUB_PIN}, {notebooks.GITLAB_PIN}), check out {bump.branch}, or request the pinned tag. "
        "Nothing was built."
    )
