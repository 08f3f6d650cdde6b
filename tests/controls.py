"""What tests control of a practice forge in process: what others do there, how CI goes, and what fails."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.practice.forge import PracticeForge
from runbook_lib.practice.hub import Hub
from runbook_lib.practice.store import PracticeAccount


@dataclass
class PortFault:
    """An error of the next ``times`` calls of a method, instead of it or after it was carried out."""

    method: str
    error: Exception
    times: int
    carried_out: bool


class Controls:
    """A forge with controls.  What it is told holds for runs that start afterwards."""

    def __init__(self, hub: Hub, pages: Path) -> None:
        self.hub, self.pages = hub, pages
        self.faults: list[PortFault] = []

    def seen_by(self, account: PracticeAccount) -> Any:
        """The port as an account sees it, with the faults."""
        return FaultyForge(PracticeForge(self.hub, self.pages, account), self.faults)

    def fail(self, method: str, error: Exception, *, times: int = 1, carried_out: bool = False) -> None:
        """Let the next calls of a method of the port fail; ``carried_out``: only their answer is lost."""
        self.faults.append(PortFault(method, error, times, carried_out))

    def break_jobs(self, *names: str) -> None:
        """Let every job fail whose name contains one of these."""
        self.set("script", dict.fromkeys(names, "broken"))

    def refuse_deployment(self, sha: str = "next") -> None:
        """Let the deployment to the environment ``test`` fail for this commit, or for the next one authorized."""
        self.set("refused deployments", [*self.hub.store.setting("refused deployments", []), sha])

    def merge(self, number: int) -> str:
        """Merge a pull request, as the merge queue does, and return the new tip of its base branch."""
        with self.hub.store.transaction():
            pull = self.hub.with_merge_commit(self.hub.ticket(number))
            if pull.merge_sha is None:
                raise ValueError(f"#{number} conflicts with {pull.base_ref}")
            self.hub.home.set_ref(f"refs/heads/{pull.base_ref}", pull.merge_sha)
            return str(self.hub.refreshed(pull).merge_sha)

    def close(self, number: int) -> None:
        """Close an issue or a pull request."""
        with self.hub.store.transaction():
            self.hub.close(self.hub.ticket(number))

    def edit(self, number: int, **fields: object) -> None:
        """Change the title or the body of an issue or a pull request."""
        with self.hub.store.transaction():
            self.hub.store.change(self.hub.ticket(number), **fields)

    def start_run(self, number: int) -> None:
        """Let CI test a pull request by itself."""
        with self.hub.store.transaction():
            self.hub.start_run(self.hub.ticket(number))

    def set(self, name: str, value: object) -> None:
        """Change a setting of the forge."""
        with self.hub.store.transaction():
            self.hub.store.set(name, value)


class FaultyForge:
    """A forge of which some calls fail."""

    def __init__(self, forge: PracticeForge, faults: list[PortFault]) -> None:
        self._forge, self._faults = forge, faults

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
