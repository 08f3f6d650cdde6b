"""Docker, podman or buildah: the first that works, its images, and a program in one of them."""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.text.redact import Redactor
from runbook_lib.world.machine.subprocess_lines import capture, output_of

Engine = Literal["docker", "podman", "buildah"]
#: In the order of preference.
ENGINES: tuple[Engine, ...] = ("docker", "podman", "buildah")
#: Options of ``build``: docker's format keeps SHELL and HEALTHCHECK, with layers the next build reuses finished steps.
_OCI = ("--format=docker", "--layers", "--force-rm")
BUILD_OPTIONS: Mapping[Engine, tuple[str, ...]] = {"docker": ("--progress=plain",), "podman": _OCI, "buildah": _OCI}
#: Commands that succeed if an engine is able to build.
_PROBE: Mapping[Engine, str] = {"docker": "version", "podman": "info", "buildah": "info"}
_INSPECT = ("image", "inspect", "--format", "{{.Id}}")
_IMAGE_ID: Mapping[Engine, tuple[str, ...]] = {
    "docker": _INSPECT, "podman": _INSPECT, "buildah": ("inspect", "--type", "image", "--format", "{{.FromImageID}}"),
}  # fmt: skip


def find(wanted: str = "") -> Engine:
    """Return the engine of that name, or the first of docker, podman and buildah that works.

    Raises RunbookError with a sentence for each engine if none works.
    """
    problems = []
    for name in ENGINES:
        if wanted and wanted != name:
            continue
        program = shutil.which(name)
        if program is None:
            problems.append(f"{name} is not installed.")
            continue
        output = capture([program, _PROBE[name]])
        if isinstance(output, str):
            return name
        problems.append(_problem(name, output.stderr))
    raise RunbookError(
        f"No engine for images works here. {' '.join(problems)} Fix one of them, or build on another machine; "
        "the command to run is shown above. Nothing was built."
    )


def _problem(name: Engine, errors: str) -> str:
    """Return why an installed engine does not work, as a sentence."""
    message = errors.lower()
    if "permission denied" in message and name == "docker":
        return "docker is installed, but you may not use it: get yourself added to the group docker, and log in again."
    if any(sign in message for sign in ("cannot connect", "is the docker daemon running", "connection refused")):
        return f"{name} is installed, but its daemon is not running: start it (`systemctl start {name}`)."
    last = "; ".join(errors.strip().splitlines()[-2:])[-300:].rstrip(".")
    return f"{name} is installed, but does not work. Its last output: {last or 'none'}."


def image_id(engine: Engine, name: str) -> str:
    """Return the ID of an image on this machine, ``sha256:…``; empty if there is no image with that name."""
    digits = output_of([engine, *_IMAGE_ID[engine], name]).strip()
    return f"sha256:{digits.removeprefix('sha256:')}" if digits else ""


def inside(engine: Engine, image: str, command: Sequence[str], limit: float) -> str:
    """Return the output of a program in a new container of an image, which is removed afterwards.

    A program without output is run again.  Raises CannotTell if it cannot be started, fails, or takes longer than
    ``limit`` seconds.
    """
    with _container(engine, image) as container:
        words = [engine, *container, *command]
        # buildah may lose the output of a short-lived program.
        output = capture(words, limit) or capture(words, limit)
    if isinstance(output, str):
        return output
    last = "; ".join(Redactor(os.environ).text(output.stderr).strip().splitlines()[-4:])[-1000:]
    raise CannotTell(f"{command[0]} could not be run in {image} with {engine}. Its last output: {last or 'none'}.")


@contextmanager
def _container(engine: Engine, image: str) -> Iterator[list[str]]:
    """Yield the command that runs a program in a container, which for buildah is created before and removed after."""
    if engine == "buildah":
        output = capture([engine, "from", "--pull-never", image])
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
        capture([engine, *remove_words])
