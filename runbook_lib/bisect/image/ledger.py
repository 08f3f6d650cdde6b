"""The ledger of a search: a file that has each run before it is submitted, and its outcome after it has ended.

The search is a function of this file, so it always continues in the same way.  It has the images with their versions
too, so that a tag moved in the meantime changes nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from runbook_lib.bisect.search import Point, Trial
from runbook_lib.errors import CannotTell
from runbook_lib.world.machine import files

#: Number of runs without a value after which a point is given up.
MAX_LOST = 3


@dataclass(frozen=True)
class LedgerRun:
    """A run with its number from 1.

    ``outcome``: empty before it has ended, ``value``, ``invalid`` (its overlay did not take effect) or ``lost`` (it
    produced no value: a node failed, or no container started).
    """

    number: int
    point: Point
    image: str
    outcome: str = ""
    value: float | None = None
    node: str = ""
    reason: str = ""

    @property
    def row(self) -> dict[str, object]:
        """The run's table row."""
        return {
            "run": self.number, "tag": self.point.tag, "restored": ", ".join(self.point.restored),
            "value": self.value if self.outcome == "value" else self.outcome or "submitted", "node": self.node,
            "note": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class RunLedger:
    """A search's ledger.  ``images`` are references and ``versions`` those of components, by tag from good to bad."""

    path: Path
    images: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    runs: list[LedgerRun] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "RunLedger | None":
        """Return the ledger in a file, None if there is none.  Raises CannotTell if it cannot be read."""
        try:
            data = json.loads(path.read_text("utf-8"))
            runs = []
            for run in data["runs"]:
                point = Point(run["point"]["tag"], tuple(run["point"]["restored"]))
                runs.append(LedgerRun(**{**run, "point": point}))
            return cls(path, dict(data["images"]), dict(data["versions"]), runs)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CannotTell(
                f"{path} cannot be read ({type(error).__name__}: {error}). It lists the runs of this search: "
                "restore it, or choose another results folder."
            ) from error

    @property
    def text(self) -> str:
        """The file's text."""
        data = {"images": self.images, "versions": self.versions, "runs": list(map(asdict, self.runs))}
        return json.dumps(data, indent=1)

    def write(self, run: LedgerRun) -> None:
        """Write the file with this run added or changed, and wait until it is on disk."""
        self.runs[run.number - 1 :] = [run]
        files.write(self.path, self.text)

    @property
    def pending(self) -> LedgerRun | None:
        """The run that was submitted and has not ended."""
        return next((run for run in self.runs if not run.outcome), None)

    def lost(self, point: Point) -> list[LedgerRun]:
        """Return a point's runs that produced no value."""
        return [run for run in self.runs if run.point == point and run.outcome == "lost"]

    def counted(self) -> list[Trial]:
        """Return the runs as the search counts them; a point whose overlay never produces a value is invalid."""
        trials = []
        for run in self.runs:
            if run.outcome == "value":
                trials.append(Trial(run.point, run.value))
            elif run.outcome == "invalid" or (run.point.restored and len(self.lost(run.point)) == MAX_LOST):
                trials.append(Trial(run.point, None))
        return trials
