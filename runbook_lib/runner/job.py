"""A notebook that is about to run: its parameters, practice environment, kernel and first predicate."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib import notebooks
from runbook_lib.errors import RunbookError
from runbook_lib.record import archive, run_file
from runbook_lib.record.run_file import Identity
from runbook_lib.runner import session
from runbook_lib.system.files import cannot_write, locked
from runbook_lib.text.notebook_file import BadParameter, NotebookSource, resolve

if TYPE_CHECKING:
    from runbook_lib.runner.kernel import Kernel

#: The lock in a checkout's git folder.
LOCK = "base-image-runbook.lock"
#: Seconds per cell, and per cell of a notebook that waits for CI or runs builds.
CELL_LIMIT, WAITING_LIMIT = 15 * 60.0, 8 * 3600.0
#: Factor for the bump notebook, one cell of which runs all steps, whose cells have their own limits.
_BUMP_FACTOR = 10


@dataclass(frozen=True)
class NotebookJob:
    """A notebook and the validated inputs of its run.

    ``arguments`` are the parameters as passed, ``resolved`` the values of all parameters, and ``injected`` those that
    replace the notebook's defaults.  ``limit`` is in seconds per cell, ``parent`` the ID of the record that this run is
    part of.  The executed notebook is written to ``outputs`` as well as to the record.
    """

    source: NotebookSource
    arguments: dict[str, Any]
    resolved: dict[str, Any]
    injected: dict[str, Any]
    audit: Path
    cwd: Path
    limit: float
    parent: str | None = None
    outputs: tuple[Path, ...] = ()
    hide_code: bool = False

    @classmethod
    def prepare(
        cls,
        source: NotebookSource,
        arguments: Mapping[str, Any],
        *,
        cwd: Path | None = None,
        limit: float | None = None,
        parent: str | None = None,
        outputs: tuple[Path, ...] = (),
        hide_code: bool = False,
    ) -> "NotebookJob":
        """Validate the parameters, and make the path of the checkout absolute.  Raises BadParameter."""
        resolved = {each.name: each.default for each in source.parameters}
        resolved |= resolve(source.name, source.parameters, arguments)
        injected = {name: resolved[name] for name in arguments}
        if resolved.get("repo"):
            resolved["repo"] = injected["repo"] = str(Path(resolved["repo"]).expanduser().absolute())
        if "mode" in resolved:
            resolved["mode"] = resolved["mode"] or ("preview" if resolved.get("repo") else "publish")
        return cls(
            source=source,
            arguments=dict(arguments),
            resolved=resolved,
            injected=injected,
            audit=archive.default(source.path),
            cwd=cwd or source.path.parent,
            limit=_cell_limit(source, resolved, limit),
            parent=parent,
            outputs=outputs,
            hide_code=hide_code,
        )

    @property
    def is_practice(self) -> bool:
        """True for a run in the practice environment."""
        return bool(self.resolved.get("repo") == "")

    @contextmanager
    def world(self) -> Iterator[dict[str, str]]:
        """Yield the practice environment's variables, starting it if necessary; none for any other run."""
        if not self.is_practice:
            yield {}
            return
        from runbook_lib import practice

        if running := os.environ.get("RUNBOOK_PRACTICE"):
            with ExitStack() as stack:
                if practice.is_world(Path(running).parent):
                    stack.enter_context(practice.start(Path(running).parent)).stand_by()
                yield {"RUNBOOK_PRACTICE": running}
        else:
            with practice.start() as world:
                yield dict(world.env)

    @contextmanager
    def exclusive(self, world: Mapping[str, str], say: Callable[[str], object]) -> Iterator[None]:
        """Wait until no other run is applying in the same checkout, and prevent others for the duration of the context.

        A preview does not wait.
        """
        from runbook_lib.git.checkout import Checkout

        try:
            checkout = Checkout.open(self.resolved.get("repo") or world.get("RUNBOOK_PRACTICE", ""))
            folder = checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        except RunbookError:
            yield  # the notebook reports the problem
            return
        if self.resolved.get("mode", "preview") == "preview" or not self.resolved.get("tag"):
            yield
            return
        with locked(Path(folder) / LOCK, say):
            yield

    def kernel(self, start_limit: int | None = None) -> "Kernel":
        """Return a kernel for the notebook, which starts in the background."""
        from runbook_lib.runner.kernel import START_LIMIT, Kernel

        # Without a session's variables, so that notebooks run headlessly.
        env = {name: value for name, value in os.environ.items() if name not in (session.VARIABLE, "RUNBOOK_RECORD")}
        env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # suppresses a warning before any output
        env["RUNBOOK_AUDIT"] = str(self.audit)
        try:
            return Kernel(env, self.cwd, start_limit or START_LIMIT)
        except OSError as error:
            raise cannot_write(Path(error.filename or "The folder for temporary files"), error) from error

    def identity(self, env: Mapping[str, str]) -> Identity:
        """Return the run's bump; ``env`` is the notebook's environment."""
        return Identity(
            repository=self._repository(env),
            base=self.resolved.get("base") or "main",
            image_type=self.resolved.get("image_type") or "dev",
            tag=self.resolved.get("tag") or "",
            practice=self.is_practice,
        )

    def begin_record(self, env: Mapping[str, str]) -> Path:
        """Begin the record of a run that starts now; ``env`` is the notebook's environment."""
        return archive.begin(
            self.audit,
            self.identity(env),
            {"name": self.source.name, "sha256": run_file.sha256(self.source.path)},
            checkout=Path(self.resolved.get("repo") or env.get("RUNBOOK_PRACTICE") or "."),
            env=env,
            launcher={"name": "run.py", "folder": str(self.source.path.parent)},
            parameters={"given": self.arguments, "resolved": self.resolved},
            parent=self.parent,
        )

    def _repository(self, env: Mapping[str, str]) -> str:
        from runbook_lib.git.checkout import Checkout

        try:
            return env.get("GITHUB_REPOSITORY") or Checkout.open(self.resolved.get("repo") or ".").repository(env)
        except RunbookError:
            return "unknown-repository"  # the notebook reports the problem


def _cell_limit(source: NotebookSource, resolved: Mapping[str, Any], limit: float | None) -> float:
    variable = os.environ.get("RUNBOOK_CELL_LIMIT")
    if not limit and variable:
        try:
            limit = float(variable)
        except ValueError as error:
            raise BadParameter(
                f"RUNBOOK_CELL_LIMIT={variable!r} is not a number of seconds. Nothing was run."
            ) from error
    if not limit:
        limit = WAITING_LIMIT if source.is_long or resolved.get("wait") else CELL_LIMIT
    return limit * _BUMP_FACTOR if source.step == notebooks.BUMP else limit
