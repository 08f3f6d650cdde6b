"""Docker, podman or buildah, run as programs: which of them works, a build, an image pulled, a program in an image."""

import os
import secrets
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.containers.build_log import BuildFailure, BuildLog
from runbook_lib.containers.engine import ENGINES, BuildPlan, Engine, EngineName, unfit
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.system.atomic_files import read_inside
from runbook_lib.system.subprocess_lines import asked, followed, in_part
from runbook_lib.text.redact import Redactor

_ELSEWHERE = (
    "{engine} has built the image and has none named {tag}: its builder keeps images elsewhere. Use the engine's own "
    "(`docker buildx use default`), and run the same command again."
)

#: What makes an engine tell its version, once it has reached all that it needs for a build.
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
class Built:
    """A build that has ended.  ``image`` is the id of what was built, empty where ``failure`` says why not."""

    image: str
    steps: int
    seconds: float
    failure: BuildFailure | None = None


def find(wanted: str = "", env: Mapping[str, str] = os.environ) -> Engine:
    """The engine of that name, or the first of docker, podman and buildah that works.

    Raises RunbookError, with a sentence for each that does not.
    """
    if wanted and wanted not in ENGINES:
        raise RunbookError(f"engine={wanted!r} is none of {', '.join(ENGINES)}. Name one of them, or leave it out.")
    told = []
    for name in (it for it in ENGINES if wanted in ("", it)):
        program = shutil.which(name, path=env.get("PATH", ""))
        if program is None:
            told.append(f"{name} is not installed.")
            continue
        said = asked([program, *_VERSION[name]], env)
        if isinstance(said, str):
            return Engine(name, _numbers(said if name != "buildah" else _text([program, "--version"], env)))
        told.append(_why_not(name, said.stderr))
    raise RunbookError(
        f"No engine for images works here. {' '.join(told)} Mend one of them, or build on a machine that has one; "
        "the command to run is shown above. Nothing was built."
    )


def image_id(engine: Engine, name: str, env: Mapping[str, str] = os.environ) -> str:
    """The id of an image that is on this machine, ``sha256:…``; empty where there is none of that name."""
    said = asked([engine.name, *engine.options, *_IMAGE_ID[engine.name], name], env)
    return f"sha256:{said.strip().removeprefix('sha256:')}" if isinstance(said, str) and said.strip() else ""


def build(
    plan: BuildPlan,
    engine: Engine,
    root: Path,
    log: Path,
    say: Callable[[str], object] = print,
    env: Mapping[str, str] = os.environ,
) -> Built:
    """Build an image in the repository's root, and keep all that is printed, without secrets, in ``log``.

    Each step is said as it begins.  Interrupted, the engine is ended: it tags an image only when that is whole.
    Raises RunbookError where the build cannot be begun or its log not be written.
    """
    if problem := unfit(plan, engine):
        raise RunbookError(f"{problem} Nothing was built.")
    lacking = [name for name in plan.secrets if not env.get(name)]
    if lacking:
        raise RunbookError(
            f"The build needs the secret{'s' * (len(lacking) > 1)} {' and '.join(lacking)}, and no environment "
            "variable of that name is set. Set it, and run the same command again. Nothing was built."
        )
    began, reader = time.monotonic(), BuildLog()

    def line(text: str) -> None:
        if step := reader.take(text):
            say(str(step))

    status = followed(plan.command(engine), root, log, line, env, plan.secrets)
    seconds = time.monotonic() - began
    if status == 0:
        # Not the id that the engine writes at the end: docker's image store may know the image by another.
        image = image_id(engine, plan.tag, env)
        failure = None if image else BuildFailure(_ELSEWHERE.format(engine=engine.name, tag=plan.tag))
        return Built(image, reader.steps, seconds, failure)
    text = (read_inside(root, plan.dockerfile) or b"").decode("utf-8", "replace")
    killed = signal.Signals(-status).name if status < 0 else ""
    return Built("", reader.steps, seconds, reader.explain(plan.dockerfile, text, plan.images, killed))


def pull(
    image: str,
    engine: Engine,
    log: Path,
    say: Callable[[str], object] = print,
    env: Mapping[str, str] = os.environ,
) -> Built:
    """Pull an image.  Its log is kept as that of a build."""
    done = run((engine.name, *engine.options, "pull", image), Path.cwd(), log, say, env)
    if done.failure is None and (found := image_id(engine, image, env)):
        return replace(done, image=found)
    lines, known = (done.failure.lines, done.failure.pitfalls) if done.failure else ((), ())
    return replace(done, failure=BuildFailure(f"{image} could not be pulled.", pitfalls=known, lines=lines))


def run(
    command: Sequence[str],
    root: Path,
    log: Path,
    say: Callable[[str], object] = print,
    env: Mapping[str, str] = os.environ,
) -> Built:
    """Run any command of an engine; its lines are said, those of one without end in part, and kept as a build's are."""
    began, reader = time.monotonic(), BuildLog()

    with in_part(say) as each:

        def line(text: str) -> None:
            reader.take(text)
            each(text)

        status = followed(command, root, log, line, env)
    seconds = time.monotonic() - began
    if status == 0:
        return Built("", 0, seconds)
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"failed with exit status {status}"
    told = reader.explain("", "", ())
    return Built("", 0, seconds, replace(told, sentence=f"`{shlex.join(command[:3])} …` {how}."))


def inside(
    engine: Engine, image: str, command: Sequence[str], limit: float, env: Mapping[str, str] = os.environ
) -> str:
    """What a program prints that runs in a new container of an image, which is removed afterwards.

    It is run once more where it has printed nothing.

    Raises CannotTell where it cannot be started, fails, or takes longer than ``limit`` seconds.
    """
    with _container(engine, image, env) as begin:
        run = [engine.name, *engine.options, *begin, *command]
        # buildah may lose the words of a program that ends soon.
        said = asked(run, env, limit) or asked(run, env, limit)
    if isinstance(said, str):
        return said
    last = "; ".join(Redactor(env).text(said.stderr).strip().splitlines()[-4:])[-1000:]
    raise CannotTell(f"{command[0]} did not run in {image} with {engine}. It says: {last or 'nothing'}.")


@contextmanager
def _container(engine: Engine, image: str, env: Mapping[str, str]) -> Iterator[list[str]]:
    """The words that run a program in a container; buildah's is made before and removed after."""
    if engine.name != "buildah":
        name = f"runbook-{secrets.token_hex(6)}"
        try:
            yield ["run", "--rm", f"--name={name}", "--entrypoint=", "--pull=never", image]
        finally:  # a client that was stopped leaves its container running
            asked([engine.name, *engine.options, "rm", "--force", name], env)
        return
    made = asked([engine.name, *engine.options, "from", "--pull-never", image], env)
    if not isinstance(made, str):
        raise CannotTell(f"No container of {image} could be made with {engine}. It says: {made.stderr.strip()[-500:]}.")
    try:
        yield ["run", made.strip(), "--"]
    finally:
        asked([engine.name, *engine.options, "rm", made.strip()], env)


def _text(command: Sequence[str], env: Mapping[str, str]) -> str:
    said = asked(command, env)
    return said if isinstance(said, str) else ""


def _numbers(text: str) -> tuple[int, ...]:
    """The first version in a text."""
    word = next((it for it in text.replace("-", " ").split() if it[0].isdecimal()), "")
    return tuple(int(it) for it in word.partition("+")[0].split(".") if it.isdecimal())


def _why_not(name: EngineName, said: str) -> str:
    """Why an installed engine does not work, as a sentence."""
    low = said.lower()
    if "permission denied" in low and "docker" in name:
        return "docker is there, but you may not use it: have yourself added to the group docker, and log in again."
    if "cannot connect" in low or "is the docker daemon running" in low or "connection refused" in low:
        return f"{name} is there, but its daemon does not run: start it (`systemctl start {name}`)."
    last = "; ".join(said.strip().splitlines()[-2:])[-300:].rstrip(".")
    return f"{name} is there, but does not work; it says: {last or 'nothing'}."
