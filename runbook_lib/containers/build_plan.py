"""How the image of a repository is built from the pins of a checkout, checked against its Dockerfile.  Pure.

Sources: Megatron-LM's ``skills/mcore-build-and-dependency``, Megatron-Bridge's ``docker/README.md``, and for
ml-containers its ``.github/workflows/megatron.yml``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runbook_lib.containers.engine import BuildPlan
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.reference import ImageType
from runbook_lib.pins.finders import BuildArg, Counted, DockerArg
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM, ML_CONTAINERS, Repository
from runbook_lib.pins.sites import Pin, PinSite, Texts, read
from runbook_lib.text.dockerfile import PREDEFINED, Dockerfile, Stage, meant, parse

#: What a machine calls its processor → the platform of its images.
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

_KINDS = ("PLATFORM", "OS", "ARCH", "VARIANT")
#: Set by every builder of today where the Dockerfile declares them.
#: Source: https://docs.docker.com/reference/dockerfile/#automatic-platform-args-in-the-global-scope.
_PLATFORM_ARGS = frozenset(
    f"{side}{what}" for side in ("BUILD", "TARGET") for what in ("PLATFORM", "OS", "ARCH", "VARIANT")
)
#: Read by builders themselves.
_BUILDER_ARGS = re.compile(r"BUILDKIT_\w+|SOURCE_DATE_EPOCH")


@dataclass(frozen=True)
class Build:
    """What is known of an image's build.  ``dockerfiles``: the first that exists, ``{type}`` being the image type.

    ``argument`` takes the base image; ``defaults`` are passed where nothing else is given for them.
    """

    name: str
    dockerfiles: tuple[str, ...]
    argument: str
    target: str = ""
    context: str = "."
    defaults: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()


BUILDS: Mapping[str, Build] = {
    # Its LTS image has a Dockerfile of its own in the first and the last of the four layouts that `sites` describes.
    MEGATRON_LM.name: Build(
        "megatron-lm", ("docker/Dockerfile.ci.{type}", "docker/Dockerfile.ci.dev"), "FROM_IMAGE_NAME", "main"
    ),
    MEGATRON_BRIDGE.name: Build("megatron-bridge", ("docker/Dockerfile.ci",), "BASE_IMAGE", "megatron_bridge"),
    ML_CONTAINERS.name: Build("megatron", ("megatron/Dockerfile",), "BASE_IMAGE", context="megatron"),
}
#: The images of the NeMo framework, each the base of the next.  Without TensorRT-LLM, whose stages main has no more.
STACK: tuple[Build, ...] = (
    Build(
        "fw-base",
        ("docker/Dockerfile.fw_base",),
        "NEMO_FW_BASE_IMAGE",
        "nemo_fw_base_final",
        defaults={"FW_DEP_BUILDER": "base", "FW_BASE_FINAL": "fw_toolkit_builder"},
    ),
    BUILDS[MEGATRON_BRIDGE.name],
    Build(
        "fw-final",
        ("docker/Dockerfile.fw_final",),
        "NEMO_FW_FINAL_BASE_IMAGE",
        "nemo_fw_final",
        required=("NEMO_EXPORT_DEPLOY_COMMIT", "NEMO_EVALUATOR_COMMIT", "NEMO_RUN_COMMIT"),
    ),
)


@dataclass(frozen=True)
class Wish:
    """What a person asks of a build; empty: what is usual.  ``secrets`` are the names of environment variables."""

    arguments: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    dockerfile: str = ""
    context: str = ""
    tag: str = ""
    secrets: tuple[str, ...] = ()


def paths(repository: Repository) -> tuple[str, ...]:
    """The files that ``plan`` and ``stack`` read."""
    builds = [BUILDS[repository.name]] if repository.name in BUILDS else []
    builds += STACK if repository.name == MEGATRON_BRIDGE.name else ()
    known = [path.format(type=kind) for build in builds for path in build.dockerfiles for kind in ("dev", "lts")]
    return tuple(dict.fromkeys([*repository.sites.pin_paths, *known]))


def plan(
    texts: Texts,
    repository: Repository,
    image_type: ImageType = "dev",
    machine: str = "x86_64",
    wish: Wish | None = None,
) -> BuildPlan:
    """The build of a repository's image of a type, for a machine as ``uname -m`` names it.

    Raises CannotTell where pins or Dockerfile cannot be read, Refused for a stage that needs a secret, and
    RunbookError for an argument or a stage that the Dockerfile does not have.
    """
    wish, platform = wish or Wish(), platform_of(machine)
    build = _build(texts, repository, image_type, wish.dockerfile)
    path = next((path for path in build.dockerfiles if texts.get(path) is not None), build.dockerfiles[0])
    pins = _pins(texts, repository, image_type, platform.partition("/")[2], path)
    made = _planned(texts, build, path, str(pins[0].image), _where(pins[0]), platform, wish, image_type)
    return replace(made, warnings=(*made.warnings, *_differing(pins)))


def stack(
    texts: Texts, machine: str = "x86_64", wish: Wish | None = None, repository: Repository = MEGATRON_BRIDGE
) -> tuple[BuildPlan, ...]:
    """The builds of the NeMo framework's images, in order.  Arguments go to each Dockerfile that declares them."""
    wish, platform = wish or Wish(), platform_of(machine)
    pin = _pins(texts, repository, "dev", platform.partition("/")[2], STACK[1].dockerfiles[0])[0]
    read_files = [_parsed(texts, build.dockerfiles[0], build.name) for build in STACK]
    known = sorted({name for file in read_files for name in file.arguments})
    for name in wish.arguments:
        if name not in known and not _is_known(name):
            raise RunbookError(
                f"None of {', '.join(file.path for file in read_files)} declares an ARG {name}{meant(name, known)}. "
                "Correct its name, or leave it out. Nothing was built."
            )
    base, source, made = str(pin.image), _where(pin), list[BuildPlan]()
    for build, file in zip(STACK, read_files, strict=True):
        given = {k: v for k, v in wish.arguments.items() if k in file.arguments or _is_known(k)}
        if lacking := [name for name in build.required if not given.get(name)]:
            raise RunbookError(
                f"{file.path} checks out what {', '.join(lacking)} name{'s' * (len(lacking) == 1)}, and nothing was "
                "given. Give the commit, or a branch, for each. Nothing was built."
            )
        own = Wish(given, tag=f"{build.name}:local", secrets=wish.secrets)
        made.append(_planned(texts, build, file.path, base, source, platform, own, "dev"))
        base, source = made[-1].tag, f"the build of {build.name}"
    return tuple(made)


def platform_of(machine: str) -> str:
    """The platform of images that a machine runs, as ``linux/amd64``.  Raises CannotTell."""
    if (architecture := ARCHITECTURES.get(machine.lower())) is None:
        raise CannotTell(
            f"This machine's processor is {machine!r}, and base images are made for amd64 (x86_64) and arm64 "
            "(aarch64). Build on one of those."
        )
    return f"linux/{architecture}"


def _build(texts: Texts, repository: Repository, image_type: ImageType, dockerfile: str) -> Build:
    """What is known of the build; a repository that declares its pins tells by them."""
    known = BUILDS.get(repository.name) if not repository.origin else None
    if known is not None and not dockerfile:
        return replace(known, dockerfiles=tuple(path.format(type=image_type) for path in known.dockerfiles))
    found = dict.fromkeys(
        (path, name)
        for site in repository.sites.pins
        if site.image_type == image_type and not site.frozen
        for path, name in [_passed(site)]
        if name and (path == dockerfile if dockerfile else site.lockstep)
    )
    name = repository.name.rpartition("/")[2].lower()
    if len(found) == 1:
        (path, argument), target = next(iter(found)), known.target if known else ""
        return Build(name, (path,), argument, target)
    if dockerfile and known is not None:
        return replace(known, dockerfiles=(dockerfile,))
    listed = ", ".join(sorted({path for path, _ in found})) or "none"
    raise CannotTell(
        f"{repository.name} has no single Dockerfile that takes an image of type {image_type} by a build argument, "
        f"so no build was planned; found: {listed}. "
        + ("Name one of them as dockerfile." if found else "Declare one with `find: {arg: …}` in the pins file.")
    )


def _passed(site: PinSite) -> tuple[str, str]:
    """The Dockerfile and its argument that a pin's image goes to; empty where that is not told."""
    finder = site.finder.finder if isinstance(site.finder, Counted) else site.finder
    if isinstance(finder, DockerArg):
        return site.path, finder.name
    return (site.dockerfile, finder.name) if isinstance(finder, BuildArg) and site.dockerfile else ("", "")


def _pins(
    texts: Texts, repository: Repository, image_type: ImageType, architecture: str, dockerfile: str
) -> tuple[Pin, ...]:
    """The pins that a build for that architecture may use, the one to use first."""
    readings = [it for it in read(texts, repository.sites) if it.site.image_type == image_type]
    lockstep = [it for it in readings if it.site.lockstep]
    pins = [pin for it in lockstep for pin in it.pins if pin.place.platform in ("", architecture)]
    # One that does not reach the Dockerfile comes last: another Dockerfile's, or an argument that it does not have.
    pins.sort(key=lambda pin: _passed(pin.site)[0] not in ("", dockerfile))
    if not pins:
        pins = [pin for it in readings if _passed(it.site)[0] == dockerfile for pin in it.pins]
    if not pins:
        why = " ".join(it.problem for it in lockstep if it.problem) or "None of its files names one."
        raise CannotTell(f"{repository.name} has no pin of type {image_type} to build from. {why}")
    return tuple(pins)


def _where(pin: Pin) -> str:
    return f"{pin.site.path}:{pin.line}"


def _differing(pins: Sequence[Pin]) -> Iterator[str]:
    first = pins[0]
    others = [pin for pin in pins[1:] if pin.image != first.image and pin.site.lockstep]
    if others:
        listed = ", ".join(f"{_where(pin)} ({pin.tag})" for pin in others)
        yield f"The pins differ: this builds {first.tag}, of {_where(first)}, and not what stands in {listed}."


def _parsed(texts: Texts, path: str, name: str) -> Dockerfile:
    if (text := texts.get(path)) is None:
        raise CannotTell(f"The image {name} is built from {path}, which does not exist in this checkout.")
    return parse(text, path)


def _planned(
    texts: Texts, build: Build, path: str, base: str, source: str, platform: str, wish: Wish, image_type: ImageType
) -> BuildPlan:
    dockerfile = _parsed(texts, path, build.name)
    typed = {"IMAGE_TYPE": image_type} if "IMAGE_TYPE" in dockerfile.arguments else {}
    given = {build.argument: base, **typed, **build.defaults, **wish.arguments}
    for name in given:
        _require_argument(dockerfile, name)
    target = wish.target or build.target
    needed = dockerfile.needed(target, given)
    secrets = _secrets(dockerfile, target, given, wish.secrets)
    unused = {name for name in given if not _is_known(name) and name not in _reachable(dockerfile, needed)}
    declared = {arg.name: arg for arg in dockerfile.args}
    unset = [
        arg.name
        for stage in needed
        for arg in stage.args
        if arg.default is None and arg.name not in given and not _is_known(arg.name)
        if arg.name not in declared or declared[arg.name].default is None
    ]
    return BuildPlan(
        build.name, path, target, tuple(given.items()),
        wish.tag or f"{build.name}:local{'-lts' if image_type == 'lts' else ''}",
        platform,
        given[build.argument],
        source if given[build.argument] == base else "your own argument",
        wish.context or build.context,
        dockerfile.images(target, given),
        tuple(stage.title for stage in needed),
        tuple(dict.fromkeys(unset)),
        dockerfile.heredocs,
        secrets,
        (*_unused(dockerfile, target, sorted(unused)), *_strange(dockerfile, target, given)),
    )  # fmt: skip


def _require_argument(dockerfile: Dockerfile, name: str) -> None:
    if name not in dockerfile.arguments and not _is_known(name):
        known = sorted(dockerfile.arguments)
        raise RunbookError(
            f"{dockerfile.path} declares no ARG {name}{meant(name, known)}, so a build would drop its value. "
            f"It declares {', '.join(known) or 'none'}. Correct its name, or leave it out. Nothing was built."
        )


def _is_known(name: str) -> bool:
    return name in PREDEFINED or name in _PLATFORM_ARGS or _BUILDER_ARGS.fullmatch(name) is not None


def _reachable(dockerfile: Dockerfile, needed: Sequence[Stage]) -> set[str]:
    return {arg.name for arg in (*dockerfile.args, *(arg for stage in needed for arg in stage.args))}


def _secrets(dockerfile: Dockerfile, target: str, given: Mapping[str, str], held: Sequence[str]) -> tuple[str, ...]:
    """The secrets that a target mounts; Refused where one is not held."""
    wanted = {name: stage.title for stage in dockerfile.needed(target, given) for name in stage.secrets}
    lacking = [name for name in wanted if name not in held]
    if lacking:
        free = [
            stage.title
            for stage in dockerfile.stages
            if not any(it.secrets for it in dockerfile.needed(str(stage.index), given))
        ]
        advice = f"Build a stage without: {', '.join(free)}" if free else "No stage of it does without"
        raise Refused(
            f"The stage {wanted[lacking[0]]} of {dockerfile.path} needs the build secret"
            f"{'s' * (len(lacking) > 1)} {' and '.join(lacking)}, which only its owners have. {advice}. "
            "Nothing was built."
        )
    return tuple(wanted)


def _unused(dockerfile: Dockerfile, target: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        where = [stage.title for stage in dockerfile.stages if any(arg.name == name for arg in stage.args)]
        yield f"ARG {name} is declared in {', '.join(where)} alone, and {target} does not need that: it does nothing."


def _strange(dockerfile: Dockerfile, target: str, given: Mapping[str, str]) -> Iterator[str]:
    """A FROM whose variable names no stage, though it looks like one."""
    for stage in dockerfile.needed(target, given):
        base = dockerfile.base(stage, given)
        if "$" in stage.base and base in dockerfile.images(target, given) and re.fullmatch(r"\w+", base):
            near = meant(base, dockerfile.names)
            yield f"{dockerfile.path}:{stage.line} begins with {base}, which is no stage before it{near}: it is pulled."
