"""The build or pull of a checkout's image, and the smoke check of the result."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from runbook_lib import display
from runbook_lib.checks import Check
from runbook_lib.containers import run, smoke
from runbook_lib.containers.engine import Engine
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner import command_line
from runbook_lib.steps.build_image.plan import ImagePlan, parse_request, plan_image

__all__ = ["BuildOutcome", "FinishedBuild", "carry_out", "parse_request", "plan_image", "verify"]


@dataclass(frozen=True)
class FinishedBuild:
    """A finished build or pull: the image's name, the result, and the name of the log in the record."""

    image: str
    result: run.BuildResult
    log: str


@dataclass(frozen=True)
class BuildOutcome:
    """The finished builds, in order, and the checks of the image; ``problem`` names a failure of these checks."""

    builds: tuple[FinishedBuild, ...] = ()
    versions: tuple[smoke.CheckedVersion, ...] = ()
    training: run.BuildResult | None = None
    problem: str = ""
    note: str = "This is a preview: nothing was built."

    @property
    def view(self) -> display.View:
        """The builds, their failures, and the versions in the image."""
        if not self.builds:
            return display.note(self.note)
        rows, failures = [], []
        for build in self.builds:
            result = build.result
            outcome = "failed" if result.failure else "done"
            rows.append({
                "image": build.image, "outcome": outcome, "steps": result.steps, "seconds": round(result.seconds),
                "id": result.image, "log": build.log,
            })  # fmt: skip
            failures.append(result.failure)
        if self.training:
            failures.append(self.training.failure)
        shown = display.table(rows)
        for failure in filter(None, failures):
            pitfalls = display.rows(failure.pitfalls, sign="sign", cause="cause", fix="fix")
            shown += display.note(failure.sentence) + display.table(pitfalls, empty="The log shows no known problem.")
            shown += display.code("\n".join(failure.lines), title="The last lines:")
        if self.versions:
            shown += display.table([version.row for version in self.versions])
        return shown + display.notes(filter(None, [self.problem]))


def carry_out(step: StepRecord, plan: ImagePlan) -> BuildOutcome:
    """With ``apply``, build or pull the image, then check it.  Raises RunbookError if that is not possible."""
    if not plan.bump.apply:
        return BuildOutcome()
    if plan.idle:
        return BuildOutcome(note=plan.idle)
    if plan.refusal:
        raise Refused(plan.refusal)
    if plan.engine is None or step.folder is None:
        raise RunbookError(plan.problem or "Builds run only headlessly, with Apply. Nothing was built.")
    plan.checkout.require_work_tree()
    builds = []
    for build in plan.builds or (None,):
        name, log = plan.pulled, "pull.log"
        if build:
            name, log = build.tag, f"{build.name}.log"
        before = run.image_id(plan.engine, name)
        print(f"{name} is being {plan.done}; the log is {step.folder / log}.")
        if build:
            result = run.build(build, plan.engine, plan.checkout.path, step.folder / log)
        else:
            result = run.pull(name, plan.engine, step.folder / log)
        builds.append(FinishedBuild(name, result, log))
        if result.failure:
            return BuildOutcome(tuple(builds))
        if result.image != before:
            step.effect("image", name, before, result.image)
    return _check_image(step.folder, plan, plan.engine, BuildOutcome(tuple(builds)))


def _check_image(folder: Path, plan: ImagePlan, engine: Engine, outcome: BuildOutcome) -> BuildOutcome:
    """Run the smoke check and the training, if requested."""
    if plan.look:
        print(f"Checking the versions in {plan.image}.")
        image = outcome.builds[-1].result.image
        try:
            output = run.inside(engine, image, smoke.COMMAND, smoke.LIMIT)
            outcome = replace(outcome, versions=smoke.judge(plan.claims, output))
        except CannotTell as error:
            return replace(outcome, problem=str(error))
    if not plan.train:
        return outcome
    if not plan.training:
        problem = f"The guides of {plan.bump.repository.name} do not describe a training of five iterations."
        return replace(outcome, problem=problem)
    if engine.name == "buildah":
        return replace(outcome, problem="buildah cannot run a training: install docker or podman.")
    print("Training five iterations.")
    return replace(outcome, training=run.run(plan.training, plan.checkout.path, folder / "sanity.log"))


def verify(step: StepRecord, plan: ImagePlan, outcome: BuildOutcome) -> None:
    """Read the image's ID from the engine again, and record what was done or would be done."""
    step.warn(*plan.warnings)
    step.add_inputs(base=plan.base_build.base, digest=plan.digest, head_commit=plan.commit)
    step.table("commands", [{"command": shlex.join(command)} for command in plan.commands])
    if plan.idle:
        step.done(plan.idle)
        return
    if not plan.bump.apply:
        _record_preview(step, plan)
        return
    for build in outcome.builds:
        step.check(_check_build(plan, build))
    if outcome.versions:
        step.table("smoke", [version.row for version in outcome.versions])
        step.check(_check_versions(outcome.versions))
    if outcome.problem:
        step.check(Check("the image was inspected", "failed", outcome.problem))
    training = outcome.training
    if training is not None:
        detail = training.failure.sentence if training.failure else f"It took {training.seconds:.0f} s."
        step.check(Check.of("five iterations were trained in the image", training.failure is None, detail))
    if not any(build.result.failure for build in outcome.builds):
        names = " and ".join(dict.fromkeys(build.image for build in outcome.builds))
        step.done(f"{plan.done.capitalize()} {names}.")


def _check_build(plan: ImagePlan, build: FinishedBuild) -> Check:
    """Check that the image exists under its name."""
    name, result = f"{build.image} was {plan.done}", build.result
    if result.failure:
        advice = [f"{pitfall.cause} {pitfall.fix}" for pitfall in result.failure.pitfalls[:2]]
        return Check(name, "failed", " ".join([result.failure.sentence, *advice, f"The log is {build.log}."]))
    image = run.image_id(plan.engine, build.image) if plan.engine else ""
    if image != result.image:
        return Check(name, "failed", f"The name now refers to {image or 'no image'}, not to {result.image}.")
    return Check(name, "passed", f"{image}, {result.steps} steps in {result.seconds:.0f} s.")


def _check_versions(versions: tuple[smoke.CheckedVersion, ...]) -> Check:
    differences = []
    for version in versions:
        if version.wrong:
            differences.append(f"{version.name} {version.imported or 'is missing'} ({version.claimed} is claimed)")
    detail = f"{'; '.join(differences)}." if differences else "Python, PyTorch and CUDA match the base image."
    return Check.of("the image matches the base that the registry reports", not differences, detail)


def _record_preview(step: StepRecord, plan: ImagePlan) -> None:
    step.warn(*filter(None, [plan.refusal, plan.problem]))
    if plan.refusal:
        step.done(f"Apply would be refused. {plan.refusal}")
        return
    engine = plan.engine or "an engine, once one works"
    for build in plan.builds:
        source = f"{build.dockerfile} ({build.target or 'its last stage'}) at {plan.source}"
        step.would(f"build {build.tag} on {build.base}, from {source}, with {engine}")
    if plan.pulled:
        step.would(f"pull {plan.pulled} with {engine}")
    if plan.look:
        step.would(f"check the versions of PyTorch, CUDA, NCCL, Transformer Engine and Python in {plan.image}")
    if plan.training:
        step.would("train five iterations in it on this machine's GPUs")
    sentence = f"Would {'pull' if plan.pulled else 'build'} {plan.image}"
    if plan.problem:
        step.done(f"{sentence}, but that is not possible here. {plan.problem}")
    else:
        step.done(f"{sentence}.", command_line.command(step.name, step.bump, apply=True))
