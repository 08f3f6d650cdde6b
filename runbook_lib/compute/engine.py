"""Docker, podman or buildah: a working engine, a build, a pull, a program in an image."""

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from runbook_lib.compute.build_log import BuildLog, CommandFailure
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.system.subprocess_lines import capture, output_of, run_logged, signal_name
from runbook_lib.text.redact import Redactor

EngineName = Literal["docker", "podman", "buildah"]
#: In the order of preference.
ENGINES: tuple[EngineName, ...] = ("docker", "podman", "buildah")


@dataclass(frozen=True)
class Engine:
    """A program that builds images."""

    name: EngineName
    version: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}".strip()


@dataclass(frozen=True)
class BuildCommand:
    """What an engine is told to build, and how to name it.  ``platform`` is such as ``linux/amd64``."""

    dockerfile: str
    target: str
    arguments: tuple[tuple[str, str], ...]
    tag: str
    platform: str
    context: str = "."

    def words(self, engine: Engine) -> tuple[str, ...]:
        """Return the argument list to run in the repository's root."""
        # The docker format keeps SHELL and HEALTHCHECK; with layers the next build reuses finished steps.
        options = ("--format=docker", "--layers", "--force-rm") if engine.name != "docker" else ("--progress=plain",)
        return (
            engine.name, "build", *options,
            f"--platform={self.platform}", f"--file={self.dockerfile}",
            *([f"--target={self.target}"] if self.target else []),
            *(f"--build-arg={name}={value}" for name, value in self.arguments),
            f"--tag={self.tag}", self.context,
        )  # fmt: skip


@dataclass(frozen=True)
class BuildPlan:
    """A build to run.  ``base`` is the image that it starts from, and ``source`` the place of its pin.

    ``folders`` are those that it copies and no clone has, with the data that they lack; ``warnings`` are sentences.
    """

    name: str
    command: BuildCommand
    base: str
    source: str
    folders: Mapping[str, str] = field(default_factory=dict)
    heredocs: bool = False
    warnings: tuple[str, ...] = ()


def unfit(plan: BuildPlan, engine: Engine) -> str:
    """Return why an engine cannot run a plan, as a sentence; empty if it can.

    Some distributions build later versions of podman and buildah without here-documents; the log shows that.
    Source: containers/buildah #3474 and #5474.
    """
    since = {"docker": (23,), "podman": (4, 8), "buildah": (1, 33)}[engine.name]
    if plan.heredocs and engine.version and engine.version < since:
        return (
            f"{plan.command.dockerfile} has here-documents (RUN <<EOF), and {engine} cannot read them; "
            f"{engine.name} {'.'.join(map(str, since))} or newer can."
        )
    return ""


#: Commands that print an engine's version if the engine is able to build.
_VERSION: Mapping[EngineName, tuple[str, ...]] = {
    "docker": ("version", "--format", "{{.Server.Version}}"),
    "podman": ("info", "--format", "{{.Version.Version}}"),
    "buildah": ("info", "--format", "{{.host.os}}"),
}
_IMAGE_ID: Mapping[EngineName, tuple[str, ...]] = {
    "docker": ("image", "inspect", "--format", "{{.Id}}"),
    "podman": ("image", "inspect", "--format", "{{.Id}}"),
    "buildah": ("inspect", "--type", "image", "--format", "{{.FromImageID}}"),
}


@dataclass(frozen=True)
class BuildResult:
    """The result of a build.  ``image`` is the image ID, empty if there is a ``failure``."""

    image: str
    steps: int
    seconds: float
    failure: CommandFailure | None = None


def find(wanted: str = "", env: Mapping[str, str] = os.environ) -> Engine:
    """Return the engine of that name, or the first of docker, podman and buildah that works.

    Raises RunbookError with a sentence for each engine if none works.
    """
    problems = []
    for name in ENGINES:
        if wanted not in ("", name):
            continue
        program = shutil.which(name, path=env.get("PATH", ""))
        if program is None:
            problems.append(f"{name} is not installed.")
            continue
        output = capture([program, *_VERSION[name]], env)
        if isinstance(output, str):
            if name == "buildah":
                output = output_of([program, "--version"], env)
            versions = re.findall(r"(?<!\S)\d[\d.]*", output.replace("-", " "))
            return Engine(name, tuple(map(int, re.findall(r"\d+", "".join(versions[:1])))))
        problems.append(_problem(name, output.stderr))
    raise RunbookError(
        f"No engine for images works here. {' '.join(problems)} Fix one of them, or build on another machine; "
        "the command to run is shown above. Nothing was built."
    )


def image_id(engine: Engine, name: str, env: Mapping[str, str] = os.environ) -> str:
    """Return the ID of an image on this machine, ``sha256:…``; empty if there is no image with that name."""
    digits = output_of([engine.name, *_IMAGE_ID[engine.name], name], env).strip()
    return f"sha256:{digits.removeprefix('sha256:')}" if digits else ""


def build(
    plan: BuildPlan, engine: Engine, root: Path, log: Path, say: Callable[[str], object] = print,
    env: Mapping[str, str] = os.environ,
) -> BuildResult:  # fmt: skip
    """Build an image in the repository's root; write all output, without secrets, to ``log``.

    ``say`` receives each step when it starts.  An interruption ends the engine, which tags only complete images.
    Raises RunbookError if the build cannot be started or its log not be written.
    """
    start, reader = time.monotonic(), BuildLog()

    def line(text: str) -> None:
        if step := reader.take(text):
            say(step)

    status = run_logged(plan.command.words(engine), root, log, line, env)
    seconds = time.monotonic() - start
    if status == 0:
        # Not the ID that the engine prints at the end: docker's image store may have a different ID for the image.
        image = image_id(engine, plan.command.tag, env)
        failure = CommandFailure(
            f"{engine.name} built the image but cannot find {plan.command.tag}: its builder stores images elsewhere. "
            "Use the engine's own builder (`docker buildx use default`), and run the same command again."
        )
        return BuildResult(image, reader.steps, seconds, None if image else failure)
    killed = signal_name(-status) if status < 0 else ""
    return BuildResult("", reader.steps, seconds, reader.explain(killed))


def inside(
    engine: Engine, image: str, command: Sequence[str], limit: float, env: Mapping[str, str] = os.environ
) -> str:
    """Return the output of a program in a new container of an image, which is removed afterwards.

    A program without output is run again.  Raises CannotTell if it cannot be started, fails, or takes longer than
    ``limit`` seconds.
    """
    with _container(engine, image, env) as container:
        words = [engine.name, *container, *command]
        # buildah may lose the output of a short-lived program.
        output = capture(words, env, limit) or capture(words, env, limit)
    if isinstance(output, str):
        return output
    last = "; ".join(Redactor(env).text(output.stderr).strip().splitlines()[-4:])[-1000:]
    raise CannotTell(f"{command[0]} could not be run in {image} with {engine}. Its last output: {last or 'none'}.")


@contextmanager
def _container(engine: Engine, image: str, env: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the command that runs a program in a container, which for buildah is created before and removed after."""
    if engine.name == "buildah":
        output = capture([engine.name, "from", "--pull-never", image], env)
        if not isinstance(output, str):
            message = output.stderr.strip()[-500:]
            raise CannotTell(f"No container of {image} could be created with {engine}: {message}.")
        run_words, remove_words = ["run", output.strip(), "--"], ["rm", output.strip()]
    else:
        name = f"runbook-{secrets.token_hex(6)}"
        run_words = ["run", "--rm", f"--name={name}", "--entrypoint=", "--pull=never", image]
        remove_words = ["rm", "--force", name]
    try:
        yield run_words
    finally:  # a client that was stopped leaves its container running
        capture([engine.name, *remove_words], env)


def _problem(name: EngineName, errors: str) -> str:
    """Return why an installed engine does not work, as a sentence."""
    message = errors.lower()
    if "permission denied" in message and name == "docker":
        return "docker is installed, but you may not use it: get yourself added to the group docker, and log in again."
    if any(sign in message for sign in ("cannot connect", "is the docker daemon running", "connection refused")):
        return f"{name} is installed, but its daemon is not running: start it (`systemctl start {name}`)."
    last = "; ".join(errors.strip().splitlines()[-2:])[-300:].rstrip(".")
    return f"{name} is installed, but does not work. Its last output: {last or 'none'}."
