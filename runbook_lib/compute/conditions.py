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
from runbook_lib.system import files
from runbook_lib.world.outside import World

_NOT_YET = "Not done in this run."


@dataclass(frozen=True)
class FolderMade:
    """A folder exists that the Dockerfile copies and no clone has: git leaves it empty, and out of ``git status``."""

    path: str
    leaves_machine = False

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        return f"make the empty folder {self.path}, which the Dockerfile copies"

    def holds(self, world: World) -> Check:
        """Look for it in the work tree."""
        exists = (world.checkout.path / self.path).is_dir()
        return Check.of(f"{self.path} exists", exists, "In the work tree." if exists else _NOT_YET)

    def make_true(self, world: World) -> Sequence[Effect]:
        """Make it.  Raises RunbookError if something else has its name."""
        world.checkout.require_work_tree()
        files.make_folder(world.checkout.path / self.path)
        return [Effect("folder", self.path, None, "empty")]


@dataclass(frozen=True)
class ImageMade:
    """The name refers to the image that the engine makes of ``build`` now, or pulls.

    Only the engine knows whether an image is up to date: it repeats the steps whose inputs have changed, and a pull
    reads the registry.  So each run asks it; an image that was up to date stays the same.
    """

    name: str
    engine: Engine | None
    build: BuildPlan | None
    source: str = ""
    obstacle: str = ""
    leaves_machine = False
    _results: list[engines.BuildResult] = field(default_factory=list, compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """The change in the imperative."""
        if self.build is None:
            return f"pull {self.name} with {self.engine}"
        stage = f"{self.build.command.dockerfile} ({self.build.command.target or 'its last stage'}) at {self.source}"
        return f"build {self.name} on {self.build.base}, from {stage}, with {self.engine}"

    @property
    def _log(self) -> str:
        return f"{self.build.name}.log" if self.build else "pull.log"

    def holds(self, world: World) -> Check:
        """Ask the engine for the image again."""
        name = f"{self.name} was {'built' if self.build else 'pulled'}"
        if not self._results or self.engine is None:
            return Check(name, "failed", _NOT_YET)
        result = self._results[-1]
        if failure := result.failure:
            return Check(name, "failed", f"{failure.message} The log is {self._log}.", evidence=failure.evidence)
        image = engines.image_id(self.engine, self.name)
        if image != result.image:
            return Check(name, "failed", f"The name now refers to {image or 'no image'}, not to {result.image}.")
        return Check(name, "passed", f"{image}, {result.steps} steps in {result.seconds:.0f} s.")

    def make_true(self, world: World) -> Sequence[Effect]:
        """Build or pull; the complete log is in the record.  Raises Refused if that is not possible here."""
        if self.obstacle:
            raise Refused(self.obstacle)
        world.checkout.require_work_tree()
        if self.engine is None or world.folder is None:
            raise RunbookError("Builds run only headlessly, with Apply. Nothing was built.")
        log, before = world.folder / self._log, engines.image_id(self.engine, self.name)
        print(f"{self.name} is being {'built' if self.build else 'pulled'}; the log is {log}.")
        if self.build:
            result = engines.build(self.build, self.engine, world.checkout.path, log)
        else:
            result = engines.pull(self.name, self.engine, log)
        self._results.append(result)
        is_new = result.failure is None and result.image != before
        return [Effect("image", self.name, before, result.image)] if is_new else []


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
