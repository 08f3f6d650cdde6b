"""The plan of a checkout's image: the builds from its pins, or the image to pull."""

import os
import platform
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.registry.client import Registry
from runbook_lib.containers import build_plan, known_builds, run, smoke
from runbook_lib.containers.engine import ENGINES, BuildPlan, Engine, unfit
from runbook_lib.containers.work.container import WorkContainer, engine_command
from runbook_lib.containers.work.image import WorkImage
from runbook_lib.containers.work.tasks import WorkStep, parse_variables
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.compare import versions
from runbook_lib.images.reference import Image, ImageRef
from runbook_lib.text.lists import join_first
from runbook_lib.text.redact import Redactor

_PRACTICE = "The practice environment's images contain no programs to build on. Use your own checkout: -r repo FOLDER."
HOW = ("build", "stack", "pull")
#: A lowercase name and a tag.  A name that starts with a dash would be an option.
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]{0,200}(?::[0-9]{1,5}/[a-z0-9._/-]{1,200})?(?::[\w][\w.-]{0,127})?")


@dataclass(frozen=True)
class ImagePlan:
    """The ordered ``builds``, or the image to pull in ``pulled``.

    ``base_build`` is the build on the pinned image, even if its result is pulled.  ``claims`` are the versions that
    the registry reports for the base image.  ``source`` is the commit, with the number of uncommitted files.
    ``problem`` says why no engine works, ``refusal`` why nothing may be built; they are empty otherwise.
    """

    checkout: Checkout
    bump: Bump
    base_build: BuildPlan
    builds: tuple[BuildPlan, ...] = ()
    pulled: str = ""
    engine: Engine | None = None
    problem: str = ""
    refusal: str = ""
    claims: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    commit: str = ""
    source: str = ""
    warnings: tuple[str, ...] = ()
    look: bool = True
    train: bool = False
    variables: tuple[tuple[str, str], ...] = ()
    practice: bool = False

    @property
    def idle(self) -> str:
        """The reason why Apply does nothing, as a sentence; empty otherwise."""
        if self.practice:
            return _PRACTICE
        if self.bump.tag is not None:
            return ""
        tag = _tag(self.base_build)
        return f"No tag was given, so nothing is built. The work tree pins {tag}: set tag to that to build it."

    @property
    def image(self) -> str:
        """The name of the image, or of the last if there are several."""
        return self.pulled or self.builds[-1].tag

    @property
    def done(self) -> str:
        """The verb for a finished image: ``pulled`` or ``built``."""
        return "pulled" if self.pulled else "built"

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The commands to run in the checkout, in order."""
        engine = self.engine or Engine("docker")
        if self.pulled:
            return ((engine.name, "pull", self.pulled),)
        return tuple(build.command(engine) for build in self.builds)

    @property
    def training(self) -> tuple[str, ...]:
        """The command that trains five iterations; empty if that was not requested or is impossible."""
        command = smoke.sanity(self.bump.repository)
        if not self.train or not command:
            return ()
        engine = self.engine
        if engine is None or engine.name == "buildah":
            engine = Engine("docker")
        reason = "This shows that the image can train."
        step = WorkStep("Train five iterations", command, "container", reason, gpus=True, env=self.variables)
        container = WorkContainer.create(self.bump.repository, WorkImage.parse(self.image), str(self.checkout.path))
        return engine_command(container, engine, step)

    def show(self) -> display.View:
        """Show each build, its command and the warnings."""
        shown = display.View("", "")
        if self.pulled:
            shown = display.note(f"Ready to be pulled: {self.pulled}.")
        for build in self.builds:
            shown += _show_build(build)
        engine = f", with {self.engine}" if self.engine else ""
        commands = "\n\n".join(map(_format_command, self.commands))
        shown += display.code(commands, title=f"To be run in {self.checkout.path}{engine}:")
        if self.training:
            shown += display.code(_format_command(self.training), title="Then, on this machine's GPUs:")
        notes = filter(None, [self.refusal, self.problem, *self.warnings])
        return shown + display.notes(notes, title="Attention")


def _show_build(build: BuildPlan) -> display.View:
    return display.facts(
        image=build.tag, built_on=build.base, pinned_in=build.source, Dockerfile=build.dockerfile,
        target=build.target or "the last stage", stages=", ".join(build.stages), platform=build.platform,
        context=build.context, pulls=", ".join(build.images) or "nothing",
        build_arguments=", ".join(map("=".join, build.arguments)),
        arguments_without_a_value=", ".join(build.unset) or "none", secrets=", ".join(build.secrets) or "none",
    )  # fmt: skip


def _format_command(command: tuple[str, ...]) -> str:
    """Return a shell command with one option per line."""
    lines = [shlex.quote(command[0])]
    for word in command[1:]:
        quoted = shlex.quote(word)
        if word.startswith("--"):
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n    ".join(lines)


def parse_request(
    target: str = "", dockerfile: str = "", arguments: str = "", name: str = "", secrets: str = ""
) -> build_plan.BuildRequest:
    """Parse the notebook's parameters; empty means the default.

    ``arguments`` are ``NAME=value; …``, ``secrets`` names of environment variables.  Raises RunbookError.
    """
    words = tuple(secrets.replace(",", " ").split())
    invalid = [word for word in words if not word.isidentifier()]
    if invalid:  # not quoted in the message, because one may be a secret
        raise RunbookError(f"secrets must be names of environment variables; {len(invalid)} of its words are not.")
    if name and not _NAME.fullmatch(name):
        raise RunbookError(f"name={name[:200]!r} is not a valid image name. Example: megatron-lm:mine")
    return build_plan.BuildRequest(_parse_arguments(arguments), target.strip(), dockerfile.strip(), "", name, words)


def _parse_arguments(text: str) -> dict[str, str]:
    arguments: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        name, equals, value = map(str.strip, entry.partition("="))
        if not equals or not name.isidentifier():
            raise RunbookError(f"arguments contains {entry[:80]!r}; expected NAME=value entries separated by `;`.")
        if Redactor({name: value}).text(value) != value:
            raise RunbookError(
                f"The build argument {name} looks like a secret, and arguments are stored in the image and in the "
                "record. Mount it in the Dockerfile, and add its environment variable to secrets. Nothing was built."
            )
        arguments[name] = value
    return arguments


def plan_image(
    checkout: Checkout, bump: Bump, request: build_plan.BuildRequest, *, how: str = "build", engine: str = "",
    look: bool = True, train: bool = False, variables: str = "", practice: bool = False,
    env: Mapping[str, str] = os.environ,
) -> ImagePlan:  # fmt: skip
    """Plan a build, a stack of builds or a pull from the pins of the work tree.  Changes nothing.

    Raises RunbookError for invalid parameters, CannotTell and Refused like ``build_plan.plan``.
    """
    for parameter, value, known in (("how", how, HOW), ("engine", engine, ENGINES)):
        if value and value not in known:
            raise RunbookError(f"{parameter}={value!r} is invalid. Choose {' or '.join(known)}. Nothing was built.")
    paths = [*build_plan.paths(bump.repository), *filter(None, [request.dockerfile])]
    texts, machine = checkout.read(paths, "HEAD" if checkout.bare else None), platform.machine()
    if how == "stack":
        builds = build_plan.stack(texts, machine, request, bump.repository)
    else:
        builds = (build_plan.plan(texts, bump.repository, bump.image_type, machine, request),)
    pulled = ""
    if how == "pull":
        url = checkout.remote_url(known_builds.GITLAB_REMOTE)
        pulled = str(known_builds.internal_image(url, bump.repository, bump.image_type))
    commit, warnings = checkout.resolve("HEAD"), list[str]()
    image = _base_image(builds[0], env, warnings)
    for build in builds:
        warnings += build.warnings
    source = _source(checkout, commit, warnings)
    usable, problem, refusal = None, "", _refusal(bump, builds[0], image)
    try:  # a plan can be shown without an engine
        usable = run.find(engine, env)
    except RunbookError as error:
        problem = str(error)
    unsuitable = filter(None, [unfit(build, usable) for build in builds if usable and not pulled])
    if reason := next(unsuitable, ""):
        refusal = refusal or f"{reason} Nothing was built."
    config = image.platforms.get(_architecture(builds[0])) if image else None
    return ImagePlan(
        checkout, bump, builds[0], builds=() if pulled else builds, pulled=pulled, engine=usable, problem=problem,
        refusal=refusal, claims=versions(config) if config else {}, digest=image.digest if image else "",
        commit=commit, source=source, warnings=tuple(dict.fromkeys(warnings)), look=look, train=train,
        variables=parse_variables(variables), practice=practice,
    )  # fmt: skip


def _base_image(build: BuildPlan, env: Mapping[str, str], warnings: list[str]) -> Image | None:
    """Return the registry's description of the base image, or add a warning that it is unknown."""
    try:
        reference = ImageRef.parse(build.base)
        with Registry.connect(reference, env) as registry:
            image = registry.image(reference.digest or reference.tag or "latest")
    except RunbookError as error:
        warnings.append(f"The versions in {build.base} are unknown: {error}")
        return None
    if image is None:
        warnings.append(f"The registry has no {build.base}, so the build will fail unless this machine has it.")
    return image


def _architecture(build: BuildPlan) -> str:
    return build.platform.partition("/")[2]


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
    submodules = ""
    if checkout.read([".gitmodules"])[".gitmodules"] is not None:
        submodules = checkout.git("submodule", "status")
    for line in submodules.splitlines():
        if line.startswith("-"):  # the build would copy an empty folder
            path = line[1:].split()[1]
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
