"""A notebook that is about to run: its parameters, its world, its kernel and how its record begins."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook_lib import notebooks
from runbook_lib.errors import RunbookError
from runbook_lib.git import command
from runbook_lib.records import archive
from runbook_lib.records.chain import sha256
from runbook_lib.records.statement import Identity, record_id
from runbook_lib.runner import session
from runbook_lib.runner.parameters import BadParameter, Source, resolve
from runbook_lib.system import provenance
from runbook_lib.system.atomic_files import cannot_write
from runbook_lib.system.clock import now, stamp
from runbook_lib.system.locks import locked

if TYPE_CHECKING:
    from runbook_lib.runner.kernel import Kernel

#: In the git folder of a checkout.
LOCK = "base-image-runbook.lock"
#: Seconds that one cell may take: minutes of fetching and asking, or with ``wait`` the hours of a CI run, and as long
#: in a notebook that runs builds and the like.
CELL_LIMIT, WAITING_LIMIT = 15 * 60.0, 8 * 3600.0
#: A cell of the whole runbook runs all the steps, and each of those has limits of its own.
_STEPS = 10


@dataclass(frozen=True)
class Job:
    """A notebook with all that its run needs to know, checked.

    ``given`` is what a person gave, ``resolved`` the values of all parameters, ``injected`` those that the notebook
    gets in place of its defaults.  ``limit`` is in seconds a cell; ``parent`` is the id of the record that this run is
    part of; ``outputs`` get the executed notebook beside the record.
    """

    source: Source
    given: dict[str, Any]
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
        source: Source,
        given: Mapping[str, Any],
        *,
        cwd: Path | None = None,
        limit: float | None = None,
        parent: str | None = None,
        outputs: tuple[Path, ...] = (),
        hide_code: bool = False,
    ) -> "Job":
        """Check the parameters, and make paths among them absolute.  Raises BadParameter."""
        resolved = resolve(source, given)
        injected = {name: resolved[name] for name in given}
        # Whose pins they are is told by a name, or by the path of a file.
        own = ("pins",) if Path(resolved.get("pins") or ".").expanduser().is_file() else ()
        for name in ("repo", "audit", *own):
            if resolved.get(name):
                resolved[name] = injected[name] = str(Path(resolved[name]).expanduser().absolute())
        audit = Path(resolved["audit"]) if resolved.get("audit") else archive.default(source.path)
        if "audit" in resolved:
            resolved["audit"] = str(audit)
        folder = cwd or source.path.parent
        cell_limit = _limit(source, resolved, limit)
        return cls(source, dict(given), resolved, injected, audit, folder, cell_limit, parent, outputs, hide_code)

    def without(self, name: str) -> "Job":
        """The same with a parameter's default."""
        default = {it.name: it.default for it in self.source.parameters if it.name == name}
        kept = ({key: value for key, value in values.items() if key != name} for values in (self.given, self.injected))
        given, injected = kept
        return replace(self, given=given, injected=injected, resolved={**self.resolved, **default})

    @property
    def practises(self) -> bool:
        """Whether it runs in the practice world."""
        return bool(self.resolved.get("repo") == "")

    @contextmanager
    def world(self) -> Iterator[dict[str, str]]:
        """The variables of the practice world if the notebook runs there; starts it unless that is done."""
        if not self.practises:
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
    def alone(self, world: Mapping[str, str], say: Callable[[str], object]) -> Iterator[None]:
        """While it applies nobody else's run does so in the same checkout: a second one waits for its turn.

        What a run that was killed has left git doing there is waited for, too.
        """
        from runbook_lib.git.checkout import Checkout

        try:
            checkout = Checkout.open(self.resolved.get("repo") or world.get("RUNBOOK_PRACTICE", ""))
            folder = checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")
        except RunbookError:
            yield  # the notebook says what is wrong with the checkout
            return
        if not (self.resolved.get("apply") and self.resolved.get("tag")):
            yield
            return
        hours = " with wait=True, which may take hours" if self.resolved.get("wait") else ""
        with locked(Path(folder) / LOCK, f"{self.source.name} {self.resolved['tag']}{hours}", say):
            command.settle(checkout.path, say)
            yield

    def kernel(self, start_limit: int | None = None) -> "Kernel":
        """A kernel for it, starting in the background."""
        from runbook_lib.runner.kernel import START_LIMIT, Kernel

        # Without the session of JupyterLab, so that notebooks know that nobody sits before them.
        env = {name: value for name, value in os.environ.items() if name not in (*session.VARIABLES, "RUNBOOK_RECORD")}
        env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # nothing debugs it, and the warning would be all that is seen
        env["RUNBOOK_AUDIT"] = str(self.audit)
        try:
            return Kernel(env, self.cwd, start_limit or START_LIMIT)
        except OSError as error:
            raise cannot_write(Path(error.filename or "The folder for temporary files"), error) from error

    def identity(self, env: Mapping[str, str]) -> Identity:
        """Which bump it belongs to; ``env`` is the environment that the notebook will see."""
        return Identity(
            repository=self._repository(env),
            base=self.resolved.get("base") or "main",
            image_type=self.resolved.get("image_type") or "dev",
            tag=self.resolved.get("tag") or "",
            practice=self.practises,
        )

    def opening(self, identity: Identity, env: Mapping[str, str]) -> dict[str, Any]:
        """The predicate of the run that begins now."""
        started = now()
        repo = self.resolved.get("repo") or env.get("RUNBOOK_PRACTICE") or "."
        return {
            "id": record_id(started, self.source.name, secrets.token_hex(4)),
            "state": "running",
            "bump": identity.as_json(),
            "notebook": {"name": self.source.name, "sha256": sha256(self.source.path)},
            "launcher": {"name": "run.py", "folder": str(self.source.path.parent)},
            "library": provenance.library(),
            "requirements": provenance.requirements(),
            "who": provenance.who(env, Path(repo)),
            "process": provenance.process(),
            "started": stamp(started),
            "ended": None,
            "parameters": {"given": self.given, "resolved": self.resolved},
            "parent": self.parent,
        }

    def _repository(self, env: Mapping[str, str]) -> str:
        from runbook_lib.git.checkout import Checkout

        try:
            return env.get("GITHUB_REPOSITORY") or Checkout.open(self.resolved.get("repo") or ".").repository(env)
        except RunbookError:
            return "unknown-repository"  # the notebook says what is wrong with the checkout


def _limit(source: Source, resolved: Mapping[str, Any], given: float | None) -> float:
    named = os.environ.get("RUNBOOK_CELL_LIMIT")
    usual = WAITING_LIMIT if source.long or resolved.get("wait") else CELL_LIMIT
    try:
        limit = given or (float(named) if named else usual)
    except ValueError as error:
        raise BadParameter(f"RUNBOOK_CELL_LIMIT={named!r} is no number of seconds. Nothing was run.") from error
    return limit * _STEPS if source.step == notebooks.BUMP else limit
