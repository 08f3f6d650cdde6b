"""The plan of an image's build, from the pins of a checkout and the repositories' builds in ``builds.toml``.  Pure."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from runbook_lib.compute.engine import BUILD_OPTIONS, Engine
from runbook_lib.errors import CannotTell
from runbook_lib.images.reference import ImageRef, ImageType
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import Pin, Texts, read

#: Processor name of a machine → architecture of its images.
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class KnownBuild:
    """The build of a repository's image.

    The first of ``dockerfiles`` that exists is used, with the image type for ``{type}``.  ``argument`` takes the base
    image.  ``folders`` are those that it copies and no clone has, each with the data that it lacks.
    """

    name: str
    dockerfiles: Sequence[str]
    argument: str
    target: str = ""
    context: str = "."
    folders: Mapping[str, str] = field(default_factory=dict)


_TABLE = tomllib.loads((files("runbook_lib.compute") / "builds.toml").read_text("utf-8"))
BUILDS: Mapping[str, KnownBuild] = {name: KnownBuild(**fields) for name, fields in _TABLE["builds"].items()}


@dataclass(frozen=True)
class BuildPlan:
    """A build to run.  ``tag`` names the image, ``base`` is what it starts from, and ``source`` the place of its pin.

    ``options`` are those of every engine, ``folders`` those that the Dockerfile copies and no clone has, and
    ``warnings`` sentences.
    """

    tag: str
    base: ImageRef
    source: str
    architecture: str
    options: tuple[str, ...]
    context: str = "."
    folders: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def command(self, engine: Engine) -> tuple[str, ...]:
        """Return the command to run in the repository's root."""
        return (engine, "build", *BUILD_OPTIONS[engine], *self.options, self.context)


def default_tag(repository: Repository, image_type: ImageType) -> str:
    """Return the name of a repository's image that is built here."""
    build = BUILDS.get(repository.name)
    name = build.name if build else repository.name.rpartition("/")[2].lower()
    return f"{name}:local-lts" if image_type == "lts" else f"{name}:local"


def paths(repository: Repository) -> tuple[str, ...]:
    """Return the files that ``plan`` reads."""
    known = list(repository.sites.pin_paths)
    if build := BUILDS.get(repository.name):
        known += [path.replace("{type}", kind) for path in build.dockerfiles for kind in ("dev", "lts")]
    return tuple(dict.fromkeys(known))


def plan(
    texts: Texts, repository: Repository, image_type: ImageType = "dev", machine: str = "x86_64",
    options: tuple[str, ...] = (),
) -> BuildPlan:  # fmt: skip
    """Plan the build of a repository's image of a type, for a machine name as printed by ``uname -m``.

    The user's own ``options`` of ``docker build`` come last, so they count.  Raises CannotTell if there is no
    Dockerfile or no pin to build from.
    """
    if (architecture := _ARCHITECTURES.get(machine.lower())) is None:
        raise CannotTell(
            f"This machine's processor is {machine!r}, but base images exist only for amd64 (x86_64) and arm64 "
            "(aarch64).",
            "Build on one of those.",
        )
    build = _build(repository, image_type, options)
    dockerfiles = [path.replace("{type}", image_type) for path in build.dockerfiles]
    path = next((path for path in dockerfiles if texts.get(path) is not None), "")
    if not path:
        raise CannotTell(f"{build.name} is built from {dockerfiles[0]}, which does not exist in this checkout.")
    text = texts[path] or ""
    pins = _pins(texts, repository, image_type, architecture, path)
    first, warnings = pins[0], list[str]()
    if differing := [pin for pin in pins if pin.image != first.image]:
        listed = ", ".join(f"{_location(pin)} ({pin.tag})" for pin in differing)
        warnings.append(f"The pins differ: this builds {first.tag}, from {_location(first)}, not {listed}.")
    arguments = {build.argument: str(first.image)}
    if re.search(r"(?m)^ARG\s+IMAGE_TYPE\b", text):
        arguments["IMAGE_TYPE"] = image_type
    tag, chosen = default_tag(repository, image_type), [f"--platform=linux/{architecture}", f"--file={path}"]
    if build.target:
        chosen.append(f"--target={build.target}")
    chosen += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    chosen += [f"--tag={tag}", *options]
    folders = {name: lacks for name, lacks in build.folders.items() if re.search(rf"(?m)^COPY\s.*\b{name}/", text)}
    base, source = first.image, _location(first)
    return BuildPlan(tag, base, source, architecture, tuple(chosen), build.context, folders, tuple(warnings))


def _build(repository: Repository, image_type: ImageType, options: tuple[str, ...]) -> KnownBuild:
    """Return the build; for a repository that declares its pins, the one whose argument is a pin."""
    if repository.name in BUILDS and not repository.origin:
        return BUILDS[repository.name]
    sites = [site for site in repository.sites.pins if site.image_type == image_type and site.lockstep]
    found = dict(sorted(site.build_argument for site in sites if site.build_argument[0]))
    named = {path: name for path, name in found.items() if path in options or f"--file={path}" in options} or found
    if len(named) == 1:
        ((path, argument),) = named.items()
        return KnownBuild(repository.name.rpartition("/")[2].lower(), (path,), argument)
    advice = "Declare one with `find: {arg: …}` in the pins file."
    if found:
        advice = 'Name one of them with `-r arguments "--file DOCKERFILE"`.'
    raise CannotTell(
        f"{repository.name} has no single Dockerfile with a build argument for an image of type {image_type}, "
        f"so no build was planned; its Dockerfiles are: {', '.join(found) or 'none'}.",
        advice,
    )


def _pins(
    texts: Texts, repository: Repository, image_type: ImageType, architecture: str, dockerfile: str
) -> tuple[Pin, ...]:
    """Return the pins that a build for an architecture may use, the best first."""
    readings = [it for it in read(texts, repository.sites) if it.site.image_type == image_type and it.site.lockstep]
    pins = [pin for it in readings for pin in it.pins if pin.location.platform in ("", architecture)]
    if not pins:
        reason = " ".join(filter(None, [it.problem for it in readings])) or "None of its files names one."
        raise CannotTell(f"{repository.name} has no pin of type {image_type} to build from. {reason}")
    # Pins of other Dockerfiles, or of arguments that this one does not have, come last.
    return tuple(sorted(pins, key=lambda pin: pin.site.build_argument[0] not in ("", dockerfile)))


def _location(pin: Pin) -> str:
    return f"{pin.site.path}:{pin.line}"
