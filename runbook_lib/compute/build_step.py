"""Notebook build-image: build the image of a checkout from its pins, or pull it, and check what is in it."""

import argparse
import os
import platform
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from runbook_lib import display, notebooks
from runbook_lib.checks import Evidence
from runbook_lib.compute import build_plan, known_builds
from runbook_lib.compute import engine as engines
from runbook_lib.compute.command_run import CommandRun
from runbook_lib.compute.conditions import ImageMade, VersionsMatch
from runbook_lib.compute.engine import BuildPlan, Engine, unfit
from runbook_lib.compute.project import missing_submodules
from runbook_lib.compute.slurm.site import read_site
from runbook_lib.compute.tasks import WorkStep, wrap_command
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.compare import versions
from runbook_lib.images.reference import Image, ImageRef
from runbook_lib.model import Condition, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.text.redact import Redactor
from runbook_lib.world.outside import World
from runbook_lib.world.ports import Services

_PRACTICE = "The practice environment's images contain no programs to build on. Use your own checkout: -r repo FOLDER."
_EMPTY = "The Dockerfile copies it, and no clone has it: git knows no empty folder."
HOW = ("build", "pull")
#: A lowercase name and a tag.  A name that starts with a dash would be an option.
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]{0,200}(?::[0-9]{1,5}/[a-z0-9._/-]{1,200})?(?::[\w][\w.-]{0,127})?")


@dataclass(frozen=True)
class ImageFacts:
    """The ``build``, and the image to pull instead in ``pulled``; ``missing`` are the folders that it lacks.

    ``base`` is the registry's description of the pinned image, if known.  ``source`` is ``commit`` with the number of
    uncommitted files.  ``obstacle`` says why nothing may be built, or why no engine works; empty if it can be made.
    """

    build: BuildPlan
    pulled: str
    missing: tuple[str, ...]
    engine: Engine | None
    obstacle: str
    base: Image | None
    commit: str
    source: str
    warnings: tuple[str, ...]

    @property
    def image(self) -> str:
        """The name of the image."""
        return self.pulled or self.build.command.tag

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The commands to run in the checkout, in order."""
        engine = self.engine or Engine("docker")
        if self.pulled:
            return ((engine.name, "pull", self.pulled),)
        made = [("mkdir", "-p", "--", *self.missing)] if self.missing else []
        return (*made, self.build.command.words(engine))

    @property
    def claims(self) -> dict[str, str]:
        """The versions that the registry names for the pinned image; empty if they are unknown."""
        config = self.base.platforms.get(_architecture(self.build)) if self.base else None
        return versions(config) if config else {}


@dataclass(frozen=True)
class BuildImage:
    """The step.  It builds from the pins in the work tree, as it is: it needs the files checked out.

    ``arguments`` are options of ``docker build``, ``site`` is a file that describes this machine.
    """

    how: str = "build"
    arguments: str = ""
    site: str = ""
    practice: bool = False
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def look(self, world: World, bump: Bump) -> ImageFacts:
        """Read the work tree, the registry and the engines.

        Raises RunbookError for invalid parameters, CannotTell and Refused like ``build_plan.plan``.
        """
        if self.how not in HOW:
            raise RunbookError(f"how={self.how!r} is invalid. Choose {' or '.join(HOW)}. Nothing was built.")
        checkout, repository = world.checkout, bump.repository
        build, pulled = self._build(checkout, bump), ""
        if self.how == "pull":
            url = checkout.remote_url(known_builds.GITLAB_REMOTE)
            pulled = str(known_builds.internal_image(url, repository, bump.image_type))
        commit, warnings = checkout.resolve("HEAD"), list[str]()
        base = _base_image(world.services, build, warnings)
        warnings += build.warnings
        missing = () if pulled else _missing_folders(checkout, build, warnings)
        source = _source(checkout, commit, warnings)
        usable, obstacles = None, [_refusal(bump, build, base)]
        try:  # a plan can be shown without an engine
            usable = engines.find(read_site(self.site, checkout.path, self.env).engine, self.env)
        except RunbookError as error:
            obstacles.append(str(error))
        if usable and not pulled:
            obstacles += [f"{reason} Nothing was built." for reason in filter(None, [unfit(build, usable)])]
        obstacle = next(filter(None, obstacles), "")
        return ImageFacts(
            build, pulled, missing, usable, obstacle, base, commit, source, tuple(dict.fromkeys(warnings))
        )

    def _build(self, checkout: Checkout, bump: Bump) -> BuildPlan:
        request = parse_request(self.arguments)
        paths = [*build_plan.paths(bump.repository), *filter(None, [request.dockerfile])]
        texts, machine = checkout.read(paths, "HEAD" if checkout.bare else None), platform.machine()
        return build_plan.plan(texts, bump.repository, bump.image_type, machine, request)

    def plan(self, facts: ImageFacts, bump: Bump) -> Plan[World]:
        """Plan the builds or the pull, then the check of the image."""
        evidence = Evidence(
            inputs={
                "base": facts.build.base, "digest": facts.base.digest if facts.base else "",
                "head_commit": facts.commit,
            },
            tables={"commands": [{"command": shlex.join(command)} for command in facts.commands]},
            warnings=facts.warnings,
        )  # fmt: skip
        planned: Plan[World] = Plan(
            Outcome(f"{'Pulled' if facts.pulled else 'Built'} {facts.image}."),
            (_show(facts),), evidence=evidence, on_branch=False,
        )  # fmt: skip
        if idle := self._idle(facts, bump):
            return replace(planned, done=Outcome(idle))
        if not facts.obstacle or bump.apply:
            return replace(planned, conditions=_conditions(facts))
        warned = replace(evidence, warnings=(*facts.warnings, facts.obstacle))
        return replace(planned, done=Outcome(f"Apply would be refused. {facts.obstacle}"), evidence=warned)

    def _idle(self, facts: ImageFacts, bump: Bump) -> str:
        """Return the reason why Apply does nothing, as a sentence; empty otherwise."""
        if self.practice:
            return _PRACTICE
        if bump.tag is not None:
            return ""
        tag = _tag(facts.build)
        return f"No tag was given, so nothing is built. The work tree pins {tag}: set tag to that to build it."


def _conditions(facts: ImageFacts) -> tuple[Condition[World], ...]:
    engine, obstacle = facts.engine, facts.obstacle
    steps = [WorkStep("Make the folder", ("mkdir", "-p", "--", name), "host", _EMPTY) for name in facts.missing]
    if facts.pulled:
        steps = [WorkStep("Pull the image", facts.commands[0], "host", "Internal CI has built it.")]
    conditions: list[Condition[World]] = [CommandRun(step, "commands.log", obstacle) for step in steps]
    if not facts.pulled:
        conditions.append(ImageMade(facts.build, engine, facts.source, obstacle))
    if engine:
        conditions.append(VersionsMatch(facts.image, engine, facts.claims))
    return tuple(conditions)


def _show(facts: ImageFacts) -> display.View:
    """Show each build, its command and the warnings."""
    shown = display.View("", "")
    if facts.pulled:
        shown = display.note(f"Ready to be pulled: {facts.pulled}.")
    else:
        build = facts.build
        shown += display.facts(image=build.command.tag, built_on=build.base, pinned_in=build.source)
    engine = f", with {facts.engine}" if facts.engine else ""
    commands = "\n\n".join(map(wrap_command, facts.commands))
    shown += display.code(commands, title=f"To be run in the checkout{engine}:")
    notes = filter(None, [facts.obstacle, *facts.warnings])
    return shown + display.notes(notes, title="Attention")


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:  # the message would quote what may be a secret
        raise RunbookError(
            "arguments cannot be read. It takes these options of docker build: --build-arg NAME=value, --target STAGE, "
            "--file DOCKERFILE, --tag NAME:TAG. Nothing was built."
        )


def parse_request(arguments: str) -> build_plan.BuildRequest:
    """Parse options of ``docker build``; empty means the defaults.  Raises RunbookError."""
    parser = _Options(add_help=False, allow_abbrev=False)
    for name in ("--target", "--file", "--tag"):
        parser.add_argument(name, default="")
    parser.add_argument("--build-arg", action="append", default=[])
    try:
        given = parser.parse_args(shlex.split(arguments))
    except ValueError as error:
        raise RunbookError(f"arguments cannot be read: {error}. Nothing was built.") from error
    if given.tag and not _NAME.fullmatch(given.tag):
        raise RunbookError(f"--tag {given.tag[:200]!r} is not a valid image name. Example: megatron-lm:mine")
    return build_plan.BuildRequest(_build_arguments(given.build_arg), given.target, given.file, given.tag)


def _build_arguments(words: Iterable[str]) -> dict[str, str]:
    arguments: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise RunbookError(f"--build-arg {word[:80]!r} is not of the form NAME=value.")
        if Redactor({name: value}).text(value) != value:
            raise RunbookError(
                f"The build argument {name} looks like a secret, and arguments are stored in the image and in the "
                "record. Leave it out: only the stage jet, which nobody else builds, needs one."
            )
        arguments[name] = value
    return arguments


def _base_image(services: Services, build: BuildPlan, warnings: list[str]) -> Image | None:
    """Return the registry's description of the base image, or add a warning that it is unknown."""
    try:
        reference = ImageRef.parse(build.base)
        with services.registry(reference) as registry:
            image = registry.image(reference.digest or reference.tag or "latest")
    except RunbookError as error:
        warnings.append(f"The versions in {build.base} are unknown: {error}")
        return None
    if image is None:
        warnings.append(f"The registry has no {build.base}, so the build will fail unless this machine has it.")
    return image


def _missing_folders(checkout: Checkout, build: BuildPlan, warnings: list[str]) -> tuple[str, ...]:
    """Return the folders that the Dockerfile copies and the work tree lacks, and add a warning on what they lack."""
    missing = [] if checkout.bare else [name for name in build.folders if not (checkout.path / name).exists()]
    for name in missing:
        warnings.append(
            f"The Dockerfile copies {name}, which no clone has: it is made, and empty. {build.folders[name]}"
        )
    return tuple(missing)


def _architecture(build: BuildPlan) -> str:
    return build.command.platform.partition("/")[2]


def _source(checkout: Checkout, commit: str, warnings: list[str]) -> str:
    """Return the commit with the number of uncommitted files, and add warnings about the work tree."""
    source = f"commit {commit[:10]}"
    if checkout.bare:
        warnings.append("This clone has no work tree: the plan is for its HEAD, and nothing can be built in it.")
        return source
    changed = checkout.uncommitted([])
    if changed:
        source += f" and {display.count(len(changed), 'uncommitted file')}"
        branch, files = checkout.current_branch() or f"commit {commit[:10]}", join_first(changed, 5)
        warnings.append(f"The build uses the work tree ({branch}) as it is, with uncommitted changes: {files}.")
    for path in missing_submodules(checkout):  # the build would copy an empty folder
        warnings.append(f"The submodule {path} is not initialized: run `git submodule update --init {path}` first.")
    return source


def _refusal(bump: Bump, build: BuildPlan, image: Image | None) -> str:
    """Return why the pinned image may not be built on, as a sentence; empty if it may."""
    if bump.tag is not None and _tag(build) != str(bump.tag):
        return (
            f"The work tree pins {build.base} ({build.source}), but {bump.tag} was requested. Move the pins first "
            f"({notebooks.GITHUB_PIN}, {notebooks.GITLAB_PIN}), check out {bump.branch}, or request the pinned "
            "tag. Nothing was built."
        )
    architecture = _architecture(build)
    if image and architecture not in image.platforms:
        platforms = " and ".join(sorted(image.platforms)) or "no platform"
        return f"{build.base} is published for {platforms}, but this machine is {architecture}. Nothing was built."
    return ""


def _tag(build: BuildPlan) -> str:
    """Return the tag of the base image; empty if it has none."""
    return build.base.partition("@")[0].rpartition("/")[2].partition(":")[2]
