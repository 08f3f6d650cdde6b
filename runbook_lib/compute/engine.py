"""Programs that build images, and their build commands.  Pure."""

from dataclasses import dataclass
from typing import Literal

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
    secrets: tuple[str, ...] = ()

    def words(self, engine: Engine) -> tuple[str, ...]:
        """Return the argument list to run in the repository's root."""
        # The docker format keeps SHELL and HEALTHCHECK; with layers the next build reuses finished steps.
        options = ("--format=docker", "--layers", "--force-rm") if engine.name != "docker" else ("--progress=plain",)
        return (
            engine.name, "build", *options,
            f"--platform={self.platform}", f"--file={self.dockerfile}",
            *([f"--target={self.target}"] if self.target else []),
            *(f"--build-arg={name}={value}" for name, value in self.arguments),
            *(f"--secret=id={name},env={name}" for name in self.secrets),
            f"--tag={self.tag}", self.context,
        )  # fmt: skip


@dataclass(frozen=True)
class BuildPlan:
    """A build to run.  ``base`` is the image that it starts from, and ``source`` the place of its pin.

    ``images`` are all images that it pulls, ``stages`` the stages that it runs; ``warnings`` are sentences.
    """

    name: str
    command: BuildCommand
    base: str
    source: str
    images: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
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
