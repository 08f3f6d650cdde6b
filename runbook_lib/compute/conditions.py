"""Conditions on an image of this machine: made by an engine, with the right versions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runbook_lib import display
from runbook_lib.checks import Check, Evidence
from runbook_lib.compute import engine as engines
from runbook_lib.compute import smoke
from runbook_lib.compute.engine import BuildPlan, Engine
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.model import Effect
from runbook_lib.world.outside import World

_NOT_YET = "Not done in this run."


@dataclass(frozen=True)
class ImageMade:
    """The name refers to the image that the engine makes of ``build`` now.

    Only the engine knows whether an image is up to date: it repeats the steps whose inputs have changed.  So each run
    asks it; an image that was up to date stays the same.
    """

    build: BuildPlan
    engine: Engine | None
    source: str = ""
    obstacle: str = ""
    leaves_machine = False
    _results: list[engines.BuildResult] = field(default_factory=list, compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        command = self.build.command
        stage = f"{command.dockerfile} ({command.target or 'its last stage'}) at {self.source}"
        return f"build {command.tag} on {self.build.base}, from {stage}, with {self.engine}"

    def holds(self, world: World) -> Check:
        """Ask the engine for the image again."""
        tag = self.build.command.tag
        name = f"{tag} was built"
        if not self._results or self.engine is None:
            return Check(name, "failed", _NOT_YET)
        result = self._results[-1]
        if failure := result.failure:
            detail = f"{failure.message} The log is {self.build.name}.log."
            return Check(name, "failed", detail, evidence=failure.evidence)
        image = engines.image_id(self.engine, tag)
        if image != result.image:
            return Check(name, "failed", f"The name now refers to {image or 'no image'}, not to {result.image}.")
        return Check(name, "passed", f"{image}, {result.steps} steps in {result.seconds:.0f} s.")

    def make_true(self, world: World) -> Sequence[Effect]:
        """Build; the complete log is in the record.  Raises Refused if that is not possible here."""
        if self.obstacle:
            raise Refused(self.obstacle)
        world.checkout.require_work_tree()
        if self.engine is None or world.folder is None:
            raise RunbookError("Builds run only headlessly, with Apply. Nothing was built.")
        tag, log = self.build.command.tag, world.folder / f"{self.build.name}.log"
        before = engines.image_id(self.engine, tag)
        print(f"{tag} is being built; the log is {log}.")
        result = engines.build(self.build, self.engine, world.checkout.path, log)
        self._results.append(result)
        is_new = result.failure is None and result.image != before
        return [Effect("image", tag, before, result.image)] if is_new else []


@dataclass(frozen=True)
class VersionsMatch:
    """The programs in an image have the versions that the registry names for its base, read in this run."""

    image: str
    engine: Engine
    claims: Mapping[str, str]
    leaves_machine = False
    _found: list[smoke.CheckedVersion] = field(default_factory=list, compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """The reading in the imperative."""
        return f"check the versions of PyTorch, CUDA, NCCL, Transformer Engine and Python in {self.image}"

    def holds(self, world: World) -> Check:
        """Compare the versions that were read in the image."""
        name = "the image matches the base that the registry reports"
        if not self._found:
            return Check(name, "failed", _NOT_YET)
        rows = [version.row for version in self._found]
        differences = []
        for version in self._found:
            if version.wrong:
                differences.append(f"{version.name} {version.imported or 'is missing'} ({version.claimed} is claimed)")
        detail = f"{'; '.join(differences)}." if differences else "Python, PyTorch and CUDA match the base image."
        evidence = Evidence(tables={"smoke": rows}, shown=(display.table(rows),))
        return Check.of(name, not differences, detail, evidence=evidence)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Read the versions in a new container, which changes nothing.  Raises CannotTell if that is impossible."""
        print(f"Checking the versions in {self.image}.")
        output = engines.inside(self.engine, engines.image_id(self.engine, self.image), smoke.COMMAND, smoke.LIMIT)
        self._found[:] = smoke.judge(self.claims, output)
        return ()
