"""``run.json`` of a record: what one run did and saw, and the sha256 of each other file of the record."""

import csv
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from runbook_lib.errors import RunbookError
from runbook_lib.model import Next
from runbook_lib.world.machine import files, provenance

State = Literal["running", "previewed", "done", "waiting", "failed", "interrupted", "not run"]

VERSION = 1
INTERRUPTED = "The run was interrupted: its process was stopped, a disk was full, or the machine went down."
RUN, EXECUTED, REPORT = "run.json", "executed.ipynb", "report.html"
#: The file in a bump's folder with what people have decided, and the page in the archive.
DECISIONS, INDEX = "decisions.yaml", "index.html"
#: Jupyter's folder for copies of opened files; never evidence.
CHECKPOINTS = ".ipynb_checkpoints"

_LONGEST_NAME = 100
#: A record's ID where a run prints it.
_PRINTED = re.compile(r"Record: (?:\S*/)?([0-9]{8}T[0-9]{6}Z-[A-Za-z0-9._-]+-[0-9a-f]{8})(?![A-Za-z0-9._-])")


@dataclass(frozen=True)
class Identity:
    """The bump that a record belongs to: the field ``bump`` of a run.

    ``tag`` is empty for a run that only shows the current state.
    """

    repository: str
    base: str
    image_type: str
    tag: str
    practice: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the folders from the archive's root down to the bump's."""
        tag = self.tag.replace(":", "-") or "none"
        names = [self.repository.replace("/", "-"), self.base, f"{self.image_type}-{tag}"]
        if self.practice:
            names.insert(0, "practice")
        return tuple(map(folder_name, names))


def folder_name(name: str) -> str:
    """Return a safe folder name for any text: without separators, not hidden, not ``..``."""
    quoted = quote(name, safe=" +=@,")[:_LONGEST_NAME] or "none"
    return re.sub(r"^\.", "%2E", quoted)


def record_id(started: datetime, notebook: str) -> str:
    """Return the name of a record's folder: start in UTC, notebook, and a random number."""
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", notebook).strip("-.")[:60] or "notebook"
    return f"{started:%Y%m%dT%H%M%SZ}-{slug}-{secrets.token_hex(4)}"


def person(who: Mapping[str, Any]) -> str:
    """Return the person in the field ``who`` of a run, as git knows them, else the machine's user."""
    return str(who.get("git") or f"{who.get('user', 'unknown')} on {who.get('host', 'unknown')}")


def parse_time(text: str) -> datetime:
    """Parse a time written by ``clock.stamp``.  Raises ValueError for anything else."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return time


def printed_id(notebook: Mapping[str, Any]) -> str:
    """Return the ID of the record that the outputs of an executed notebook name; empty if none."""
    found = _PRINTED.search(json.dumps([cell.get("outputs") for cell in notebook["cells"]]))
    return found[1] if found else ""


def read(folder: Path) -> dict[str, Any]:
    """Return the run in a record's folder, with every field of a run and of its steps.

    Raises RunbookError if it cannot be read, or lacks what every reader relies on.
    """
    try:
        run: dict[str, Any] = empty_run() | json.loads(files.read_bounded(folder / RUN))
        run["steps"] = [empty_step() | step for step in run["steps"]]
        _require_valid(run, folder)
    except (RunbookError, OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else error
        raise RunbookError(f"{folder / RUN} cannot be read as the account of a run: {reason}.") from error
    return run


def _require_valid(run: Mapping[str, Any], folder: Path) -> None:
    """Raise one of Python's own errors for fields that are not as readers expect."""
    if run["version"] != VERSION:
        raise ValueError(f"it has version {run['version']!r}; this program knows {VERSION}")
    if run["id"] != folder.name:  # otherwise links would lead to another record
        raise ValueError(f"it is the record {run['id']!r}")
    Identity(**run["bump"])
    parse_time(run["started"])
    names = [run["notebook"]["name"], *(step["name"] for step in run["steps"])]
    texts = [*names, *(each["kind"] for each in run["exceptions"])]
    for part in (run, *run["steps"]):
        Next(**part["outcome"]["next"])
        texts += [part["state"], part["outcome"]["sentence"]]
        texts += [each["kind"] for each in (*part["effects"], *part["decisions"])]
    if not all(isinstance(text, str) for text in texts) or not all(names):
        raise ValueError("it lacks its notebook, or the name, the state or the outcome of a step, or a kind")


def empty_step() -> dict[str, Any]:
    """Return what a step tells, before it has told anything; a run has the same of all its steps."""
    names = ("conditions", "effects", "checks", "planned", "decisions", "warnings")
    return {**{name: [] for name in names}, "links": {}, "outcome": {"sentence": "", "next": Next().as_json()}}


def empty_run() -> dict[str, Any]:
    """Return what the steps of a run tell, and what only the run has."""
    own = {"mode": "", "parameters": {}, "who": {}, "inputs": {}, "exceptions": [], "diffs": [], "steps": []}
    return {"state": "running", **empty_step(), **own, "error": None}


def fingerprint(run: Mapping[str, Any]) -> str:
    """Return the sha256 of a preview's plan; two previews with the same one would make the same changes."""
    return hashlib.sha256(json.dumps([run["planned"], run["diffs"]]).encode()).hexdigest()


def interrupted(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run that reported no end, as the interrupted one that it is."""
    steps = [step | {"state": "interrupted"} if step["state"] == "running" else step for step in run["steps"]]
    return {**run, "state": "interrupted", "steps": steps, "outcome": {"sentence": INTERRUPTED, "next": {}}}


def requirements(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the requirements for a merge that a run has checked, as ``bump.ready`` writes them."""
    return list(run["inputs"].get("requirements", ()))


def is_active(run: Mapping[str, Any]) -> bool:
    """Return True while the process of a run lives, or the engine that has to close its record."""
    try:
        return any(provenance.is_alive(process) for process in (run["process"], run.get("engine")) if process)
    except (KeyError, TypeError, ValueError):
        return False  # it names no process


def seal(folder: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """Write the run with the digests of the record's files, and make these read-only; return what was written."""
    files.remove_drafts(folder)
    sealed = {**run, "files": digests(folder)}
    files.write(folder / RUN, to_bytes(sealed))
    protect(folder)
    return sealed


def protect(folder: Path) -> None:
    """Make the files of a record read-only, so that a viewer, such as JupyterLab, cannot save over them."""
    for file in contents(folder):
        file.chmod(0o400)


def to_bytes(run: Mapping[str, Any]) -> bytes:
    """Return a run in its stored form."""
    document = {"version": VERSION, **run}
    # backslashreplace writes lone surrogates as JSON's own escapes.
    return json.dumps(document, indent=1, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"


def contents(folder: Path) -> list[Path]:
    """Return all files of a record.  A link is none."""
    found = []
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != CHECKPOINTS)
        found += [Path(path, name) for name in sorted(names)]
    return [it for it in found if it.is_file() and not it.is_symlink() and not files.is_draft(it.name)]


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a record except run.json, by its path in the record."""
    return {file.relative_to(folder).as_posix(): sha256(file) for file in contents(folder) if file != folder / RUN}


def sha256(file: Path) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def rows(file: Path) -> list[dict[str, str]]:
    """Return the rows of a table in a record; none if it cannot be read."""
    try:
        table = list(csv.DictReader(text(file).splitlines(keepends=True)))
    except csv.Error:
        return []
    # csv uses None as the name of surplus cells and as the value of missing ones.
    return [{k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)} for row in table]


def text(file: Path) -> str:
    """Return the text of a file in a record; empty if it cannot be read or is a link."""
    try:
        return "" if file.is_symlink() else file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
