"""A task inside the image, chosen by its parameters: its steps, and where each of them runs.

The plans are pure; this puts them together for a checkout and for the machine that it is on.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib.bump import Bump
from runbook_lib.containers import build_plan
from runbook_lib.containers.work import inspect, local, pyxis, target, unit_tests, uv, uv_git
from runbook_lib.containers.work.image import Image
from runbook_lib.containers.work.pyxis import Allocation
from runbook_lib.containers.work.run import Command
from runbook_lib.containers.work.target import Place, PlaceName
from runbook_lib.containers.work.task import TASKS, Here, Step, folded
from runbook_lib.containers.work.uv import Tree, Work
from runbook_lib.display import View, code, facts, note, notes, table
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import Repository
from runbook_lib.recipes import workloads
from runbook_lib.steps.work_inside import file


@dataclass(frozen=True)
class Wish:
    """What a person asks for, as the notebook's parameters have it; all of it may be empty but the task."""

    task: str = "session"
    where: str = ""
    image: str = ""
    tests: str = ""
    install: str = ""
    package: str = ""
    extra: str = ""
    cache: str = ""
    folder: str = ""
    slurm: str = ""

    def show(self) -> View:
        """All tasks, the one that was chosen marked, and what was given for it."""
        rows = [{"task": name, "is": what, "chosen": name == self.task} for name, what in TASKS.items()]
        given = {name: value for name, value in vars(self).items() if value and name != "task"}
        return table(rows) + (facts(**given) if given else notes([]))


@dataclass(frozen=True)
class Task:
    """A task with its commands.  ``lacking`` says why they cannot be run from here, ``made`` the file they make."""

    wish: Wish
    place: Place
    work: Work
    commands: tuple[Command, ...]
    lacking: str = ""
    made: str = ""

    @property
    def runnable(self) -> tuple[Command, ...]:
        """The commands that need no terminal of a person."""
        return tuple(it for it in self.commands if not it.step.terminal)

    @property
    def shown_only(self) -> tuple[Command, ...]:
        """Those that do."""
        return tuple(it for it in self.commands if it.step.terminal)

    def show(self) -> View:
        """Each step with where it runs and why, and all commands to copy."""
        if self.work.idle:
            return note(self.work.idle)
        rows = [
            {"step": f"{i}. {it.step.title}", "where": self.place.where(it.step), "why": it.step.why}
            for i, it in enumerate(self.commands, 1)
        ]
        lines = "\n".join(folded(it.words) for it in self.commands)
        shown = table(rows) + code(lines, title=f"Commands, to be run in {self.place.container.checkout}")
        told = [*self.place.container.image.warnings, *self.work.warnings, *([self.work.after] * bool(self.work.after))]
        return shown + notes(told, title="To know") + notes([self.lacking] * bool(self.lacking), title="Not from here")


def choose(checkout: Checkout, bump: Bump, wish: Wish, here: Here | None = None) -> Task:
    """The task with its commands, for this checkout and this machine.

    Raises RunbookError for what cannot be meant, Refused for what must not be done.
    """
    if wish.task not in TASKS:
        raise RunbookError(f"task={wish.task!r} is none of {', '.join(TASKS)}.")
    here = here or inspect.here()
    repository = bump.repository
    image = Image.parse(wish.image or default_image(repository, bump.image_type))
    name = target.choose(wish.where, here)
    cache = _cache(wish.cache, name, checkout.path)
    git = "" if checkout.bare else checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
    box = local.of(repository, image, str(checkout.path), cache, git=git)
    place = Place(name, box, here, repository.name, allocation(wish.slurm))
    if name == "slurm" and image.kind == "built" and here.engine is not None and wish.task != "import":
        place, before = file.on_cluster(place, wish.folder)
    else:
        before = ()
    work, made = _work(checkout, bump, wish, place)
    steps = (*before, *work.steps) if work.steps else ()
    if any(it.where == "container" for it in steps):
        target.require(name, here)
        if name in ("local", "slurm", "apptainer") and not Path(cache).is_dir():
            steps = (_folder(cache), *steps)
    lacking = target.lacking(name, here, gpus=any(it.gpus for it in steps)) if steps else ""
    if steps and not lacking and name == "local" and image.kind == "built" and not file.identity(place):
        lacking = f"{image.name} is not on this machine: build it first (build-image), or name another image."
    commands = tuple(Command(it, place.words(it)) for it in steps)
    lacking = lacking or inspect.lacking(place.container.image, [it.words for it in commands])
    return Task(wish, place, work, commands, lacking, made)


def default_image(repository: Repository, image_type: str) -> str:
    """The image that the build notebook makes."""
    known = build_plan.BUILDS.get(repository.name)
    name = known.name if known else repository.name.rpartition("/")[2].lower()
    return f"{name}:local{'-lts' if image_type == 'lts' else ''}"


def allocation(text: str) -> Allocation:
    """``nodes=2 gpus=8 account=… partition=… time=4:00:00``, each optional.  Raises RunbookError for anything else."""
    found: dict[str, str] = {}
    for word in filter(None, re.split(r"\s+|,\s|,(?=\w+=)", text.strip().rstrip(","))):  # a partition may be a list
        key, equals, value = word.partition("=")
        if not equals or key not in ("nodes", "gpus", "account", "partition", "time"):
            raise RunbookError(
                f"slurm has {word!r}; expected words such as nodes=1 gpus=8 account=… partition=… time=4:00:00."
            )
        found[key] = value
    numbers = {key: found.pop(key) for key in ("nodes", "gpus") if key in found}
    if wrong := [value for value in numbers.values() if not re.fullmatch(r"[0-9]{1,4}", value)]:
        raise RunbookError(f"slurm has {wrong[0]!r} where a number belongs, such as nodes=1 gpus=8.")
    return Allocation(**{key: int(value) for key, value in numbers.items()}, **found)  # type: ignore[arg-type]


def _cache(named: str, place: PlaceName, checkout: Path) -> str:
    """The host's uv cache: as named, else uv's own; on a cluster one beside the checkout, which all nodes see."""
    if named:
        return str(Path(named).expanduser().absolute())
    if place == "slurm":
        return str(checkout.parent / ".uv-cache")
    own = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "uv"
    return os.environ.get("UV_CACHE_DIR") or str(own)


def _folder(path: str) -> Step:
    why = "What is fetched and built once is kept there; an engine would make the folder as root."
    return Step("Make the folder of uv's cache", ("mkdir", "-p", "--", path), "host", why)


def _work(checkout: Checkout, bump: Bump, wish: Wish, place: Place) -> tuple[Work, str]:
    image = place.container.image
    if wish.task == "demo" and image.kind != "alibaba":
        raise RunbookError("Only Alibaba's image brings a benchmark: give one as image, such as alibaba:25.05.")
    if wish.task == "demo":
        return Work((local.demo(local.session(place.container)),)), ""
    if wish.task == "import":
        return _import(wish, place)
    if wish.task == "session":
        return _session(checkout, bump, wish, place), ""
    if why := image.no_uv():
        raise Refused(why)
    tree = inspect.tree(checkout, bump.repository.name, bump.base)
    if wish.task == "tests":
        return Work(_tests(checkout, bump, wish, place, tree)), ""
    work = _UV[wish.task](tree, wish, bump)
    return (work if work.sync is None else _synced(work, place, _lock(checkout))), ""


#: The tasks of uv: what plans each of them.
_UV: Mapping[str, Callable[[Tree, Wish, Bump], Work]] = {
    "install": lambda tree, wish, bump: uv.install(tree, wish.install, bump.image_type),
    "add": lambda tree, wish, _: uv.add(tree, wish.package, wish.extra),
    "lock": lambda tree, *_: uv.lock(tree),
    "conflict": lambda tree, *_: uv_git.conflict(tree),
    "mcore-dev": lambda tree, *_: uv_git.switch(tree, "dev"),
    "mcore-main": lambda tree, *_: uv_git.switch(tree, "main"),
    "hooks": lambda tree, *_: uv.hooks(tree, run=False),
    "hooks-run": lambda tree, *_: uv.hooks(tree, run=True),
    "lint": lambda tree, *_: uv.lint(tree, fix=False),
    "format": lambda tree, *_: uv.lint(tree, fix=True),
}


def _synced(work: Work, place: Place, lock: str) -> Work:
    """The work with its environment synced: in the container at hand, or once in the checkout, where it lasts."""
    assert work.sync is not None
    if place.name == "inside":
        words = ("uv", "sync", *(("--locked",) * work.locked), *work.sync)
        step = Step(
            "Sync the environment", words, "container", "The environment of this container is changed in place."
        )
    elif place.name == "host" and place.here.slurm and place.here.system == "Linux" and work.locked:
        step = pyxis.on_host_sync(lock, work.sync)
    else:
        step = pyxis.sync_once(place.container, work.sync, locked=work.locked)
    told = work.warnings if place.name == "inside" else tuple(it for it in work.warnings if "/opt/venv" not in it)
    return replace(work, steps=(*work.steps, step), warnings=told)


def _lock(checkout: Checkout) -> str:
    """A file among git's own, so that it is no change of the checkout."""
    return checkout.git("rev-parse", "--path-format=absolute", "--git-path", "uv-sync.lock")


def _session(checkout: Checkout, bump: Bump, wish: Wish, place: Place) -> Work:
    if place.name == "inside":
        return Work(idle=f"This runs inside a container already ({place.here.container}): open a terminal beside it.")
    shell = local.session(place.container)
    if not wish.install.strip():
        return Work((pyxis.session(shell, place.container, shared=False) if place.name == "slurm" else shell,))
    tree = inspect.tree(checkout, bump.repository.name, bump.base)
    work = _synced(uv.install(tree, wish.install, bump.image_type), place, _lock(checkout))
    return replace(work, steps=(*work.steps, pyxis.session(shell, place.container, shared=True)))


def _tests(checkout: Checkout, bump: Bump, wish: Wish, place: Place, tree: Tree) -> tuple[Step, ...]:
    paths = [it for it in tree.files if re.fullmatch(rf"{unit_tests.RECIPES}/\w+/unit-tests\.yaml", it)]
    texts = checkout.read(sorted(paths), "HEAD" if checkout.bare else None)
    rows = [it for path, text in texts.items() if text is not None for it in workloads.read(path, text)]
    known = unit_tests.buckets(rows)
    gpus = place.allocation.gpus
    return unit_tests.plan(wish.tests, bump.repository.name, known, tree.files, bump.image_type, gpus)


def _import(wish: Wish, place: Place) -> tuple[Work, str]:
    path, steps = file.made(place, wish.folder)
    after = f"Use it: image={path}"
    if not steps:
        return Work(idle=f"{path} is there, made of this same image. {after}"), path
    if not (folder := Path(path).parent).is_dir():
        why = "Nothing makes the folder of a file by itself."
        steps = (Step("Make the image's folder", ("mkdir", "-p", "--", str(folder)), "host", why), *steps)
    return Work(steps, after=after), path
