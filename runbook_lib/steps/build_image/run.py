"""A checkout's image built or pulled, as it was asked for, and then looked into."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.checks import Check
from runbook_lib.containers import run, smoke
from runbook_lib.containers.engine import Engine
from runbook_lib.containers.run import BuildResult
from runbook_lib.display import View
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import command_line
from runbook_lib.steps.build_image import request
from runbook_lib.steps.build_image.request import Asked

#: A notebook needs one module.
ask, wish = request.ask, request.wish


@dataclass(frozen=True)
class Outcome:
    """What was done.  ``ended`` are the builds that have ended, in order; ``look`` what was found in the image.

    ``trouble`` says what went wrong after the build, empty if nothing did.
    """

    ended: tuple[tuple[str, BuildResult, str], ...] = ()  # the image's name, how it ended, the log's name
    look: tuple[smoke.CheckedVersion, ...] = ()
    trained: BuildResult | None = None
    trouble: str = ""
    view: View = field(default_factory=lambda: display.note("This is a preview: nothing was built."))

    @property
    def failure(self) -> BuildResult | None:
        """The build that failed, if one did."""
        return next((it for _, it, _ in self.ended if it.failure), None)


def carry_out(step: StepRecord, asked: Asked, say: Callable[[str], object] = print) -> Outcome:
    """Build or pull, then look into the image; in a preview, do nothing.

    Raises Refused where nothing may be built, and RunbookError where no engine works.
    """
    if asked.bump.apply and asked.idle:
        return Outcome(view=display.note(asked.idle))
    if not asked.bump.apply:
        return Outcome()
    if asked.refusal:
        raise Refused(asked.refusal)
    if asked.engine is None or step.folder is None:
        raise RunbookError(asked.problem or "Builds are run headlessly, by Apply. Nothing was built.")
    asked.checkout.require_work_tree()
    ended = []
    for command in asked.plans or (None,):
        label = command.tag if command else asked.pulled
        log = f"{command.name if command else 'pull'}.log"
        before = run.image_id(asked.engine, label)
        say(f"{'Building' if command else 'Pulling'} {label}; the log is {step.folder / log}.")
        if command:
            built = run.build(command, asked.engine, asked.checkout.path, step.folder / log, say)
        else:
            built = run.pull(label, asked.engine, step.folder / log, say)
        ended.append((label, built, log))
        if built.failure:
            break
        if built.image != before:
            step.effect("image", label, before, built.image)
    outcome = Outcome(tuple(ended))
    if outcome.failure is None:
        outcome = _looked(step.folder, asked, asked.engine, outcome, say)
    return replace(outcome, view=_view(outcome))


def verify(step: StepRecord, asked: Asked, outcome: Outcome) -> View:
    """Ask the engine again which image has the name, and tell the record what was done or would be."""
    step.warn(*asked.warnings)
    step.add_inputs(base=asked.first.base, digest=asked.digest, head_commit=asked.commit)
    step.table("commands", [{"command": shlex.join(command)} for command in asked.commands])
    if asked.idle:
        step.done(asked.idle)
        return display.note("There is nothing to verify.")
    if not asked.bump.apply:
        return _would(step, asked)
    for label, built, log in outcome.ended:
        step.check(_made(asked, label, built, log))
    if outcome.look:
        step.table("smoke", [it.row for it in outcome.look])
        wrong = [
            f"{it.name} {it.imported or 'is not there'} ({it.claimed} is claimed)" for it in outcome.look if it.wrong
        ]
        told = f"{'; '.join(wrong)}." if wrong else "Python, PyTorch and CUDA are those of the base image."
        step.check(Check.of("the image holds what the registry says of its base", not wrong, told))
    if outcome.trouble:
        step.check(Check("the image was looked into", "failed", outcome.trouble))
    if (trained := outcome.trained) is not None:
        told = trained.failure.sentence if trained.failure else f"It took {trained.seconds:.0f} s."
        step.check(Check.of("five iterations were trained in the image", trained.failure is None, told))
    if outcome.failure is None:
        names = " and ".join(dict.fromkeys(label for label, _, _ in outcome.ended))
        step.done(f"{'Pulled' if asked.pulled else 'Built'} {names}.")
    return display.note("The checks are in the record below.")


def _looked(folder: Path, asked: Asked, engine: Engine, outcome: Outcome, say: Callable[[str], object]) -> Outcome:
    """With the smoke check and the training, where they are asked for."""
    look: tuple[smoke.CheckedVersion, ...] = ()
    image = outcome.ended[-1][1].image
    if asked.look:
        say(f"Looking into {asked.image}.")
        try:
            look = smoke.judge(asked.claims, run.inside(engine, image, smoke.COMMAND, smoke.LIMIT))
        except CannotTell as error:
            return replace(outcome, trouble=str(error))
    if not asked.train:
        return replace(outcome, look=look)
    if not asked.training or engine.name == "buildah":
        why = (
            "buildah cannot run a training: install docker or podman."
            if asked.training
            else f"The guides of {asked.bump.repository.name} have no training of five iterations."
        )
        return replace(outcome, look=look, trouble=why)
    say("Training five iterations.")
    trained = run.run(asked.training, asked.checkout.path, folder / "sanity.log", say)
    return replace(outcome, look=look, trained=trained)


def _would(step: StepRecord, asked: Asked) -> View:
    for problem in (asked.refusal, asked.problem):
        if problem:
            step.warn(problem)
    if asked.refusal:
        step.done(f"Apply would be refused. {asked.refusal}")
        return display.note("There is nothing to verify.")
    for plan in asked.plans:
        step.would(
            f"build {plan.tag} on {plan.base}, from {plan.dockerfile} ({plan.target or 'its last stage'}) of "
            f"{asked.source}, with {asked.engine or 'an engine, once one works'}"
        )
    if asked.pulled:
        step.would(f"pull {asked.pulled}, with {asked.engine or 'an engine, once one works'}")
    if asked.look:
        step.would(f"look into {asked.image}: versions of PyTorch, CUDA, NCCL, Transformer Engine and Python")
    if asked.training:
        step.would("train five iterations in it, on this machine's GPUs")
    would = f"Would {'pull' if asked.pulled else 'build'} {asked.image}"
    if asked.problem:
        step.done(f"{would}, but not from here. {asked.problem}")
    else:
        step.done(f"{would}.", command_line.command(step.name, step.bump, apply=True))
    return display.note("There is nothing to verify in a preview.")


def _made(asked: Asked, label: str, built: BuildResult, log: str) -> Check:
    """Whether an image is there under its name."""
    name = f"{label} was {'pulled' if asked.pulled else 'built'}"
    if built.failure:
        advice = " ".join(f"{it.cause} {it.fix}" for it in built.failure.pitfalls[:2])
        return Check(name, "failed", f"{built.failure.sentence} {advice}".strip() + f" The log is {log}.")
    found = run.image_id(asked.engine, label) if asked.engine else ""
    if found != built.image:
        return Check(name, "failed", f"The name stands for {found or 'no image'} now, and not for {built.image}.")
    return Check(name, "passed", f"{found}, {built.steps} steps in {built.seconds:.0f} s.")


def _view(outcome: Outcome) -> View:
    rows = [
        {
            "image": label,
            "outcome": "failed" if it.failure else "done",
            "steps": it.steps,
            "seconds": round(it.seconds),
            "id": it.image,
            "log": log,
        }
        for label, it, log in outcome.ended
    ]
    shown = display.table(rows)
    ended = [it for _, it, _ in outcome.ended] + ([outcome.trained] if outcome.trained else [])
    for failure in (it.failure for it in ended if it.failure):
        shown += display.note(failure.sentence)
        shown += display.table(
            [{"sign": it.sign, "cause": it.cause, "fix": it.fix} for it in failure.pitfalls],
            empty="No pitfall that is known shows in the log.",
        )
        shown += display.code("\n".join(failure.lines), title="The last lines:")
    if outcome.look:
        shown += display.table([it.row for it in outcome.look])
    return shown + display.note(outcome.trouble) if outcome.trouble else shown
