"""The plan of an image's build, from the pins of a checkout and checked against its Dockerfile.  Pure."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runbook_lib.compute.engine import BuildCommand, BuildPlan
from runbook_lib.compute.known_builds import BUILDS, KnownBuild
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.reference import ImageType
from runbook_lib.pins.finders import BuildArg, Counted, DockerArg
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import Pin, PinSite, Texts, read
from runbook_lib.text.dockerfile import PREDEFINED, parse
from runbook_lib.text.suggestions import did_you_mean

#: Processor name of a machine → architecture of its images.
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

#: Set by every current builder if the Dockerfile declares them.
#: Source: https://docs.docker.com/reference/dockerfile/#automatic-platform-args-in-the-global-scope.
_PLATFORM_ARGS = frozenset(map("".join, itertools.product(("BUILD", "TARGET"), ("PLATFORM", "OS", "ARCH", "VARIANT"))))
#: Read by builders themselves.
_BUILDER_ARGS = re.compile(r"BUILDKIT_\w+|SOURCE_DATE_EPOCH")


@dataclass(frozen=True)
class BuildRequest:
    """The user's choices for a build, empty for the defaults."""

    arguments: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    dockerfile: str = ""
    tag: str = ""


def paths(repository: Repository) -> tuple[str, ...]:
    """Return the files that ``plan`` reads."""
    known = list(repository.sites.pin_paths)
    if build := BUILDS.get(repository.name):
        for path in build.dockerfiles:
            known += [path.format(type="dev"), path.format(type="lts")]
    return tuple(dict.fromkeys(known))


def plan(
    texts: Texts, repository: Repository, image_type: ImageType = "dev", machine: str = "x86_64",
    request: BuildRequest | None = None,
) -> BuildPlan:  # fmt: skip
    """Plan the build of a repository's image of a type, for a machine name as printed by ``uname -m``.

    Raises CannotTell if pins or Dockerfile cannot be read, Refused for a stage that needs a secret, and
    RunbookError for an argument or a stage that the Dockerfile does not have.
    """
    request, platform = request or BuildRequest(), platform_of(machine)
    build = _build(repository, image_type, request.dockerfile)
    path = next((path for path in build.dockerfiles if texts.get(path) is not None), build.dockerfiles[0])
    pins = _pins(texts, repository, image_type, platform.partition("/")[2], path)
    first = pins[0]
    build_plan = _plan(texts, build, path, str(first.image), _location(first), platform, request, image_type)
    differing = [pin for pin in pins if pin.image != first.image and pin.site.lockstep]
    if differing:
        listed = ", ".join(f"{_location(pin)} ({pin.tag})" for pin in differing)
        warning = f"The pins differ: this builds {first.tag}, from {_location(first)}, not {listed}."
        build_plan = replace(build_plan, warnings=(*build_plan.warnings, warning))
    return build_plan


def platform_of(machine: str) -> str:
    """Return the platform of images that a machine runs, such as ``linux/amd64``.  Raises CannotTell for others."""
    if (architecture := _ARCHITECTURES.get(machine.lower())) is None:
        raise CannotTell(
            f"This machine's processor is {machine!r}, but base images exist only for amd64 (x86_64) and arm64 "
            "(aarch64). Build on one of those."
        )
    return f"linux/{architecture}"


def _build(repository: Repository, image_type: ImageType, dockerfile: str) -> KnownBuild:
    """Return the build; for a repository that declares its pins, the one whose argument is a pin."""
    known = BUILDS.get(repository.name) if not repository.origin else None
    if known is not None and not dockerfile:
        return replace(known, dockerfiles=tuple(path.format(type=image_type) for path in known.dockerfiles))
    arguments: dict[tuple[str, str], None] = {}
    for site in repository.sites.pins:
        path, argument = _build_argument(site)
        is_wanted = path == dockerfile or (not dockerfile and site.lockstep)
        if site.image_type == image_type and site.kind != "frozen" and argument and is_wanted:
            arguments[path, argument] = None
    name = repository.name.rpartition("/")[2].lower()
    if len(arguments) == 1:
        path, argument = next(iter(arguments))
        return KnownBuild(name, (path,), argument, known.target if known else "")
    if dockerfile and known is not None:
        return replace(known, dockerfiles=(dockerfile,))
    listed = ", ".join(sorted({path for path, _ in arguments})) or "none"
    advice = "Declare one with `find: {arg: …}` in the pins file."
    if arguments:
        advice = 'Name one of them with `-r arguments "--file DOCKERFILE"`.'
    raise CannotTell(
        f"{repository.name} has no single Dockerfile with a build argument for an image of type {image_type}, "
        f"so no build was planned; its Dockerfiles are: {listed}. {advice}"
    )


def _build_argument(site: PinSite) -> tuple[str, str]:
    """Return the Dockerfile and the argument for a pin's image; empty if the site does not declare them."""
    finder = site.finder
    if isinstance(finder, Counted):
        finder = finder.finder
    if isinstance(finder, DockerArg):
        return site.path, finder.name
    if isinstance(finder, BuildArg) and site.dockerfile:
        return site.dockerfile, finder.name
    return "", ""


def _pins(
    texts: Texts, repository: Repository, image_type: ImageType, architecture: str, dockerfile: str
) -> tuple[Pin, ...]:
    """Return the pins that a build for an architecture may use, the best first."""
    pins: list[Pin] = []
    fallback: list[Pin] = []
    reasons: list[str] = []
    for reading in read(texts, repository.sites):
        if reading.site.image_type != image_type:
            continue
        if reading.site.lockstep:
            pins += (pin for pin in reading.pins if pin.location.platform in ("", architecture))
            reasons += filter(None, [reading.problem])
        if _build_argument(reading.site)[0] == dockerfile:
            fallback += reading.pins
    # Pins of other Dockerfiles, or of arguments that this one does not have, come last.
    pins.sort(key=lambda pin: _build_argument(pin.site)[0] not in ("", dockerfile))
    if not pins and not fallback:
        reason = " ".join(reasons) or "None of its files names one."
        raise CannotTell(f"{repository.name} has no pin of type {image_type} to build from. {reason}")
    return tuple(pins or fallback)


def _location(pin: Pin) -> str:
    return f"{pin.site.path}:{pin.line}"


def _plan(
    texts: Texts, build: KnownBuild, path: str, base: str, source: str, platform: str, request: BuildRequest,
    image_type: ImageType,
) -> BuildPlan:  # fmt: skip
    if (text := texts.get(path)) is None:
        raise CannotTell(f"The image {build.name} is built from {path}, which does not exist in this checkout.")
    dockerfile = parse(text, path)
    arguments: dict[str, str] = {build.argument: base}
    if "IMAGE_TYPE" in dockerfile.arguments:
        arguments["IMAGE_TYPE"] = image_type
    arguments |= request.arguments
    for name in arguments:
        if name not in dockerfile.arguments and not _is_known(name):
            known = sorted(dockerfile.arguments)
            raise RunbookError(
                f"{path} declares no ARG {name}{did_you_mean(name, known)}, so a build would drop its value. "
                f"It declares {', '.join(known) or 'none'}. Correct its name, or leave it out. Nothing was built."
            )
    target = request.target or build.target
    stages = dockerfile.until(target)
    if stages[-1].secret:
        free = ", ".join(stage.name for stage in dockerfile.stages if stage.name and not stage.secret) or "none"
        raise Refused(
            f"The stage {stages[-1].name or 'at the end'} of {path} needs a build secret, which only its owners have. "
            f"Build a stage without, with --target: {free}. Nothing was built."
        )
    tag = request.tag or f"{build.name}:local{'-lts' if image_type == 'lts' else ''}"
    return BuildPlan(
        build.name,
        BuildCommand(path, target, tuple(arguments.items()), tag, platform, build.context),
        arguments[build.argument],
        source if arguments[build.argument] == base else "your own argument",
        {name: text for name, text in build.folders.items() if any(f"{name}/" in stage.folders for stage in stages)},
        dockerfile.heredocs,
    )


def _is_known(name: str) -> bool:
    return name in PREDEFINED or name in _PLATFORM_ARGS or _BUILDER_ARGS.fullmatch(name) is not None
