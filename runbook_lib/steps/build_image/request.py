"""What is asked of a checkout's image: the builds planned from its pins, or a ready image to pull."""

import os
import platform
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from runbook_lib import display
from runbook_lib.bump import Bump
from runbook_lib.clients.registry.client import Registry
from runbook_lib.containers import build_plan, known_builds, run, smoke
from runbook_lib.containers.build_plan import BuildRequest
from runbook_lib.containers.engine import ENGINES, BuildPlan, Engine, unfit
from runbook_lib.containers.work.container import WorkContainer, engine_command
from runbook_lib.containers.work.image import WorkImage
from runbook_lib.containers.work.tasks import WorkStep
from runbook_lib.display import View
from runbook_lib.errors import RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.compare import versions
from runbook_lib.images.reference import Image, ImageRef
from runbook_lib.text.redact import Redactor

_PRACTICE = (
    "The images of the practice world hold no programs, so nothing can be built on them. Give a checkout of your own: "
    "-r repo FOLDER."
)
HOW = ("build", "stack", "pull")
#: Small letters, and a tag.  What begins with a dash would be an option.
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]{0,200}(?::[0-9]{1,5}/[a-z0-9._/-]{1,200})?(?::[\w][\w.-]{0,127})?")


@dataclass(frozen=True)
class Asked:
    """``plans`` in the order in which they are built, or ``pulled``, the image to pull.

    ``first`` is the build on the pinned image, also where that is pulled instead.  ``claims`` are the versions that the
    registry names of the base, ``commit`` and ``changed`` the work tree's commit and its files that differ from it.
    ``problem`` says why no engine works, and ``refusal`` why nothing may be built; both are empty where all is well.
    """

    checkout: Checkout
    bump: Bump
    first: BuildPlan
    plans: tuple[BuildPlan, ...] = ()
    pulled: str = ""
    engine: Engine | None = None
    problem: str = ""
    refusal: str = ""
    claims: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    commit: str = ""
    changed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    look: bool = True
    train: bool = False
    practice: bool = False

    @property
    def idle(self) -> str:
        """Why Apply does nothing, a sentence; empty where it does."""
        if self.practice:
            return _PRACTICE
        if self.bump.tag is None:
            pinned = f"the work tree pins {_tag(self.first)}"
            return f"No tag was given, so this shows the plan alone; {pinned}: give that as the tag to build it."
        return ""

    @property
    def source(self) -> str:
        """What is built, for a sentence: two sources of one name are the same but for files that are not committed."""
        more = f" and {display.count(len(self.changed), 'file')} not committed" if self.changed else ""
        return f"commit {self.commit[:10]}{more}"

    @property
    def image(self) -> str:
        """What the image will be called, the last of several."""
        return self.pulled or self.plans[-1].tag

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """What is run in the checkout, one after the other."""
        engine = self.engine or Engine("docker")
        if self.pulled:
            return ((engine.name, "pull", self.pulled),)
        return tuple(plan.command(engine) for plan in self.plans)

    @property
    def training(self) -> tuple[str, ...]:
        """The command of the training of five iterations; empty where it is not asked for."""
        command = smoke.sanity(self.bump.repository) if self.train else ()
        if not command:
            return ()
        engine = self.engine if self.engine and self.engine.name != "buildah" else Engine("docker")
        step = WorkStep("Train five iterations", command, "container", "It shows that the image can train.", gpus=True)
        image = WorkImage.parse(self.image)
        container = WorkContainer.create(self.bump.repository, image, str(self.checkout.path))
        return engine_command(container, engine, step)

    def show(self) -> View:
        """The plan of each build, the commands, and what deserves attention."""
        shown = display.note(f"Ready to be pulled: {self.pulled}.") if self.pulled else display.View("", "")
        for plan in self.plans:
            shown += display.facts(
                **{
                    "image": plan.tag,
                    "built on": plan.base,
                    "which is pinned in": plan.source,
                    "Dockerfile": plan.dockerfile,
                    "target": plan.target or "the last stage",
                    "stages": ", ".join(plan.stages),
                    "platform": plan.platform,
                    "context": plan.context,
                    "pulls": ", ".join(plan.images) or "nothing",
                    "build arguments": ", ".join(f"{name}={value}" for name, value in plan.arguments),
                    "arguments without a value": ", ".join(plan.unset) or "none",
                    "secrets": ", ".join(plan.secrets) or "none",
                }
            )
        where = f"To be run in {self.checkout.path}" + (f", with {self.engine}" if self.engine else "")
        text = "\n\n".join(_spread(command) for command in self.commands)
        shown += display.code(text, title=f"{where}:")
        if self.training:
            shown += display.code(_spread(self.training), title="Then, on this machine's GPUs:")
        notes = [it for it in (self.refusal, self.problem, *self.warnings) if it]
        return shown + display.notes(notes, title="Attention")


def wish(
    target: str = "", dockerfile: str = "", arguments: str = "", name: str = "", secrets: str = ""
) -> BuildRequest:
    """What a person asks of the build, as a notebook's parameters hold it: empty for what is usual.

    ``arguments`` are ``NAME=value; …``, ``secrets`` names of environment variables.  Raises RunbookError.
    """
    words = tuple(secrets.replace(",", " ").split())
    if unfit := [word for word in words if not word.isidentifier()]:
        raise RunbookError(f"secrets takes names of environment variables, and {len(unfit)} of its words is none.")
    if name and not _NAME.fullmatch(name):
        raise RunbookError(f"name={name[:200]!r} cannot name an image; expected something like megatron-lm:mine.")
    return BuildRequest(_given(arguments), target.strip(), dockerfile.strip(), "", name, words)


def ask(
    checkout: Checkout,
    bump: Bump,
    wish: BuildRequest,
    *,
    how: str = "build",
    engine: str = "",
    look: bool = True,
    train: bool = False,
    practice: bool = False,
    env: Mapping[str, str] = os.environ,
) -> Asked:
    """Plan a build (or the stack of builds, or a pull) from the pins of the work tree.  Changes nothing.

    Raises RunbookError for parameters that cannot be used, CannotTell and Refused as ``build_plan.plan`` does.
    """
    if how not in HOW:
        raise RunbookError(f"how={how!r} is none of {', '.join(HOW)}. Choose one. Nothing was built.")
    found, problem = _engine(engine, env)
    ref, changed = ("HEAD", []) if checkout.bare else (None, checkout.uncommitted([]))
    paths = [*build_plan.paths(bump.repository), *([wish.dockerfile] if wish.dockerfile else [])]
    texts = checkout.read(paths, ref)
    if how == "stack":
        plans = build_plan.stack(texts, platform.machine(), wish, bump.repository)
    else:
        plans = (build_plan.plan(texts, bump.repository, bump.image_type, platform.machine(), wish),)
    pulled = ""
    if how == "pull":
        url = checkout.remote_url(known_builds.GITLAB_REMOTE)
        pulled = str(known_builds.internal_image(url, bump.repository, bump.image_type))
    image, said = _claimed(plans[0], env)
    held = image.platforms.get(plans[0].platform.partition("/")[2]) if image else None
    warnings = [*said, *(it for plan in plans for it in plan.warnings), *_work_tree(checkout, changed)]
    refusal = _refusal(bump, plans[0], image) or ("" if pulled else _unfit(plans, found))
    return Asked(
        checkout,
        bump,
        plans[0],
        plans=() if pulled else plans,
        pulled=pulled,
        engine=found,
        problem=problem,
        refusal=refusal,
        claims=versions(held) if held else {},
        digest=image.digest if image else "",
        commit=checkout.resolve("HEAD"),
        changed=tuple(changed),
        warnings=tuple(dict.fromkeys(warnings)),
        look=look,
        train=train,
        practice=practice,
    )


def _given(arguments: str) -> dict[str, str]:
    """``NAME=value; …`` as build arguments.  Raises RunbookError for anything else."""
    found: dict[str, str] = {}
    for part in (it.strip() for it in arguments.split(";")):
        name, equals, value = part.partition("=")
        if part and (not equals or not name.strip().isidentifier()):
            raise RunbookError(f"arguments has the entry {part[:80]!r}; expected NAME=value, several divided by `;`.")
        if part:
            found[name.strip()] = value.strip()
    if held := [name for name, value in found.items() if Redactor({name: value}).text(value) != value]:
        raise RunbookError(
            f"The build argument {held[0]} looks like a secret, and arguments are kept in the image and in the record. "
            "Mount it in the Dockerfile, and name its environment variable in secrets. Nothing was built."
        )
    return found


def _engine(wanted: str, env: Mapping[str, str]) -> tuple[Engine | None, str]:
    """The engine that works, or why none does: a plan can be shown without."""
    if wanted and wanted not in ENGINES:
        raise RunbookError(f"engine={wanted!r} is none of {', '.join(ENGINES)}. Choose one. Nothing was built.")
    try:
        return run.find(wanted, env), ""
    except RunbookError as error:
        return None, str(error)


def _claimed(plan: BuildPlan, env: Mapping[str, str]) -> tuple[Image | None, list[str]]:
    """What the registry says of the base, and a sentence where it says nothing."""
    try:
        ref = ImageRef.parse(plan.base)
        with Registry.connect(ref, env) as registry:
            image = registry.image(ref.digest or ref.tag or "latest")
    except RunbookError as error:
        return None, [f"What {plan.base} should hold is not known: {error}"]
    return image, [] if image else [f"The registry has no {plan.base}, so its build will fail unless it is here."]


def _work_tree(checkout: Checkout, changed: list[str]) -> list[str]:
    """What is built is the work tree, whatever is committed."""
    if checkout.bare:
        return ["This clone has no work tree, so the plan is that of its HEAD, and nothing can be built in it."]
    where = checkout.current_branch() or f"commit {checkout.resolve('HEAD')[:10]}"
    lacking = [
        f"{path}, a submodule, is not initialized: run `git submodule update --init {path}` before."
        for path in _empty(checkout)
    ]
    if not changed:
        return lacking
    shown = ", ".join(changed[:5]) + (" and more" if len(changed) > 5 else "")
    return [f"The build takes the work tree ({where}) as it is, with what is not committed: {shown}.", *lacking]


def _empty(checkout: Checkout) -> list[str]:
    """The submodules that are not initialized, so that the build would copy an empty folder."""
    if checkout.read([".gitmodules"])[".gitmodules"] is None:
        return []
    return [line[1:].split()[1] for line in checkout.git("submodule", "status").splitlines() if line.startswith("-")]


def _refusal(bump: Bump, plan: BuildPlan, image: Image | None) -> str:
    pinned = _tag(plan)
    if bump.tag is not None and pinned != str(bump.tag):
        return (
            f"The work tree pins {plan.base} ({plan.source}), and {bump.tag} was asked for. Move the pins first "
            f"(01-github-pin, 02-gitlab-pin), check out {bump.branch}, or ask for the tag that is pinned. Nothing was "
            "built."
        )
    wanted = plan.platform.partition("/")[2]
    if image and wanted not in image.platforms:
        held = " and ".join(sorted(image.platforms)) or "no platform"
        return f"{plan.base} is published for {held}, and this machine is {wanted}. Nothing was built."
    return ""


def _tag(plan: BuildPlan) -> str:
    """The tag of the base; empty where it has none."""
    return plan.base.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _unfit(plans: tuple[BuildPlan, ...], engine: Engine | None) -> str:
    found = next((it for plan in plans if engine and (it := unfit(plan, engine))), "")
    return f"{found} Nothing was built." if found else ""


def _spread(command: tuple[str, ...]) -> str:
    """A command for a shell, an option a line."""
    lines = [shlex.quote(command[0])]
    for word in command[1:]:
        quoted = shlex.quote(word)
        if word.startswith("--"):
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n    ".join(lines)
