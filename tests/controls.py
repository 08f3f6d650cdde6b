"""What tests control of a practice forge in process: what others do there, how CI goes, and what fails."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from people import PeopledForge

from runbook_lib.practice.store import PracticeAccount, Record


@dataclass
class PortFault:
    """An error of the next ``times`` calls of a method, instead of it or after it was carried out."""

    method: str
    error: Exception
    times: int
    carried_out: bool


@dataclass
class Controls:
    """A forge with controls.  What it is told holds for runs that start afterwards."""

    hub: PeopledForge
    faults: list[PortFault] = field(default_factory=list)

    def seen_by(self, account: PracticeAccount) -> Any:
        """The port as an account sees it, with the faults."""
        return FaultyForge(self.hub.seen_by(account), self.faults)

    def fail(self, method: str, error: Exception, *, times: int = 1, carried_out: bool = False) -> None:
        """Let the next calls of a method of the port fail; ``carried_out``: only their answer is lost."""
        self.faults.append(PortFault(method, error, times, carried_out))

    def break_jobs(self, *names: str) -> None:
        """Let the jobs of these names, or of these tests, fail."""
        self.change(lambda state: setattr(state, "broken_jobs", names))

    def refuse_deployment(self, sha: str = "next") -> None:
        """Let the deployment to the environment ``test`` fail for this commit, or for the next one authorized."""
        self.change(lambda state: setattr(state, "refused_deployments", [sha]))

    def merge(self, number: int) -> str:
        """Merge a pull request, as the merge queue does, and return the new tip of its base branch."""
        with self.hub.store.transaction():
            pull = self.hub.ticket(number)
            if not self.hub.merge(pull):
                raise ValueError(f"#{number} conflicts with {pull.base_ref}")
            self.hub.home.git("update-ref", f"refs/heads/{pull.base_ref}", pull.merge_commit)
            return str(self.hub.ticket(number).merge_commit)

    def close(self, number: int) -> None:
        """Close an issue or a pull request."""
        self.change(lambda _: self.hub.close_ticket(self.hub.ticket(number)))

    def edit(self, number: int, **fields: object) -> None:
        """Change the title or the body of an issue or a pull request."""
        self.change(lambda _: vars(self.hub.ticket(number)).update(fields))

    def start_run(self, number: int) -> None:
        """Let CI test a pull request by itself."""
        self.change(lambda _: self.hub.start_run(self.hub.ticket(number)))

    def change(self, how: Callable[[Record], object]) -> None:
        """Change the state of the forge."""
        with self.hub.store.transaction() as state:
            how(state)


@dataclass
class FaultyForge:
    """A forge of which some calls fail."""

    _forge: PeopledForge
    _faults: list[PortFault]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._forge, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            for fault in self._faults:
                if fault.method == name and fault.times:
                    fault.times -= 1
                    if fault.carried_out:
                        found(*args, **options)
                    raise fault.error
            return found(*args, **options)

        return call
