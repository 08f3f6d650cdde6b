"""The ledger of a search: one line before a run is submitted, and one after it.

The search is a function of this file, so it always continues in the same way.  The first line has the images, so
that a tag moved in the meantime changes nothing; another line has the components, once the step is known.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib.bisect.overlays import Overlay
from runbook_lib.bisect.search import Point, Trial
from runbook_lib.errors import CannotTell
from runbook_lib.system import files

LEDGER = "ledger.jsonl"
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
    status: int | None = None
    node: str = ""
    seconds: float = 0.0
    reason: str = ""

    @property
    def row(self) -> dict[str, object]:
        """The run's table row."""
        value = self.value if self.outcome == "value" else self.outcome or "submitted"
        return {
            "run": self.number, "tag": self.point.tag, "restored": ", ".join(self.point.restored), "value": value,
            "exit status": self.status, "node": self.node, "seconds": round(self.seconds), "note": self.reason,
        }  # fmt: skip


class RunLedger:
    """The lines of a search's ledger.  ``images``: tag → reference; ``overlays`` are None before the step is known."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEDGER
        self.lines: list[str] = []
        self.images: dict[str, str] = {}
        self.runs: dict[int, LedgerRun] = {}
        self.overlays: tuple[Overlay, ...] | None = None
        self.suspects: tuple[str, ...] = ()
        try:
            for line in self.path.read_text("utf-8").splitlines():
                self._apply(line)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CannotTell(
                f"{self.path} cannot be read ({type(error).__name__}: {error}). It lists the runs of this search: "
                "restore it, or choose another results folder."
            ) from error

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append a line, and wait until it is on disk."""
        self._apply(json.dumps(entry, sort_keys=True))
        files.write(self.path, "\n".join([*self.lines, ""]))

    def _apply(self, line: str) -> None:
        entry = json.loads(line)
        match entry["kind"]:
            case "images":
                self.images = dict(entry["images"])
            case "components":
                self.overlays = tuple(
                    Overlay(**{**data, "variables": tuple(data["variables"])}) for data in entry["overlays"]
                )
                self.suspects = tuple(entry["suspects"])
            case "submit" | "end":
                run = entry["run"]
                point = Point(run["point"]["tag"], tuple(run["point"]["restored"]))
                self.runs[run["number"]] = LedgerRun(**{**run, "point": point})
        self.lines.append(line)

    @property
    def submissions(self) -> int:
        """The number of lines that announce a run."""
        return sum(json.loads(line)["kind"] == "submit" for line in self.lines)

    @property
    def pending(self) -> LedgerRun | None:
        """The run that was submitted and has not ended."""
        return next((run for run in self.runs.values() if not run.outcome), None)

    def lost(self, point: Point) -> list[LedgerRun]:
        """Return a point's runs that produced no value."""
        return [run for run in self.runs.values() if run.point == point and run.outcome == "lost"]

    def counted(self) -> list[Trial]:
        """Return the runs as the search counts them; a point whose overlay never produces a value is invalid."""
        runs = []
        for run in self.runs.values():
            if run.outcome == "value":
                runs.append(Trial(run.point, run.value))
            elif run.outcome == "invalid" or (run.point.restored and len(self.lost(run.point)) == MAX_LOST):
                runs.append(Trial(run.point, None))
        return runs
