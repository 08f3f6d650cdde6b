"""The decisions of a bump as a YAML file: written by the form, by ``runbook review``, or by hand.

What a person wrote stays as it is: comments, order and style.  Reasons are published, so they are read and written
without secrets.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from runbook_lib.decisions import FOREIGN, KINDS, Decision, Decisions, Kind
from runbook_lib.errors import RunbookError
from runbook_lib.record import run_file
from runbook_lib.record.recorder import Recorder
from runbook_lib.text import user_file
from runbook_lib.text.redact import Redactor
from runbook_lib.text.user_file import Keys, UserFile
from runbook_lib.world.machine import provenance
from runbook_lib.world.machine.clock import now, stamp
from runbook_lib.world.machine.files import locked, make_folder, read_bounded, write

_FILE = "file of decisions"
_TESTS: tuple[Kind, ...] = ("broken", "rerun", "reenable")


def path_of(parameter: str, bump: Path | None) -> Path | None:
    """Return the file that the parameter ``decisions`` names; without one that in the bump's folder of the archive."""
    if parameter:
        return Path(os.path.expanduser(parameter)).absolute()
    return bump / run_file.DECISIONS if bump else None


def read(path: Path | None, *, must_exist: bool = False) -> Decisions:
    """Read the decisions; none without a file.  Raises RunbookError, with the line, for an invalid entry."""
    if path is None:
        return Decisions()
    if not path.exists() and not must_exist:
        return Decisions((), str(path))
    return parse(_text(path), str(path))


def again(decisions: Decisions) -> Decisions:
    """Read the file of decisions again: an earlier step has bound them, or a person has changed it."""
    return read(Path(decisions.file)) if decisions.file else decisions


def keep(decisions: Decisions, record: Recorder) -> None:
    """Copy the file into the record of a run."""
    if decisions.file and (path := Path(decisions.file)).exists():
        record.store(run_file.DECISIONS, _text(path), of_step=False)


def _text(path: Path) -> str:
    try:
        return read_bounded(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RunbookError(f"The {_FILE} {path} cannot be read: {reason}. Nothing was run.") from error


def parse(text: str, origin: str) -> Decisions:
    """Return the decisions of a text.  Raises RunbookError, with the line, for an invalid entry."""
    file = user_file.read(text, user_file.load_schema("runbook_lib.record", "decisions.schema.json"), _FILE, origin)
    redactor, entries = Redactor(os.environ), dict[tuple[str, str], Decision]()
    for kind, index, entry in _entries(file.values):
        keys = (kind, index)
        _require_subject(file, keys, entry)
        safe = redactor.data({name: value for name, value in entry.items() if name != "seen"})
        decision = Decision.from_entry(kind, {**safe, "seen": entry.get("seen")}, file.line(keys))
        for other in _TESTS if kind in _TESTS else (kind,):
            if before := entries.get((other, decision.subject)):
                where = f"line {before.line}, under {other}"
                raise file.error(keys, f"{decision.subject} is decided twice (see {where}). Keep one of the entries.")
        entries[kind, decision.subject] = decision
    return Decisions(tuple(entries.values()), origin)


def _entries(values: Mapping[str, Any]) -> Iterator[tuple[Kind, int, Any]]:
    for kind in KINDS:
        for index, entry in enumerate(values.get(kind) or ()):
            yield kind, index, entry


def _require_subject(file: UserFile, keys: Keys, entry: Mapping[str, Any]) -> None:
    """Raise RunbookError unless an entry names one file or group, or a commit where there is one."""
    if keys[0] == "accept" and ("file" in entry) == (len({"platform", "metric"} & entry.keys()) == 2):
        raise file.error(keys, "An entry of accept names either a file, or a platform and a metric.")
    if keys[0] == "allow" and ("commit" in entry) != (entry["what"] == FOREIGN):
        raise file.error(keys, f"{FOREIGN} needs the full ID of the commit, and nothing else takes one.")


def add(path: Path, decided: Iterable[Decision], instead_of: Iterable[tuple[Kind, str]] = ()) -> None:
    """Write decisions into the file, each in place of an earlier one on its subject; a test has one of three kinds.

    ``instead_of`` are kinds and subjects whose entries are removed: the choices that were not taken.
    Raises RunbookError if the file cannot be read or written.
    """
    decisions, person, at = list(decided), _person(), stamp(now())
    stale = set(instead_of)
    for decision in decisions:
        rivals = _TESTS if decision.kind in _TESTS else (decision.kind,)
        stale |= {(kind, decision.subject) for kind in rivals}
    with _edited(path) as values:
        for kind, index, entry in reversed(list(_entries(values))):
            if (kind, Decision.from_entry(kind, entry).subject) in stale:
                del values[kind][index]
        for kind in KINDS:
            if kind in values and not values[kind]:
                del values[kind]
        for decision in decisions:
            signed = replace(decision, by=decision.by or person, at=decision.at or at)
            values.setdefault(decision.kind, []).append(_quoted(signed.as_entry()))


def bind(decisions: Decisions, decided: Sequence[Decision]) -> None:
    """Sign the entries that a person wrote by hand, and bind them to the evidence that they met.

    A hold that names no evidence is only signed; the other entries are bound already.
    """
    bound = {(each.kind, each.subject): each.as_entry() for each in decided if each.seen}
    unbound = {(entry.kind, entry.subject) for entry in decisions.entries if entry.seen is None}
    unsigned = any(entry.kind == "hold" and not entry.at for entry in decisions.entries)
    if not (unsigned or unbound & bound.keys()) or not decisions.file:
        return
    person, at = _person(), stamp(now())
    with _edited(Path(decisions.file)) as values:
        for kind, _, entry in _entries(values):
            found = bound.get((kind, Decision.from_entry(kind, entry).subject))
            if found or kind == "hold":
                entry.setdefault("by", person)
                entry.setdefault("at", at)
            if found:
                entry.setdefault("seen", _quoted(found["seen"]))


@contextmanager
def _edited(path: Path) -> Iterator[Any]:
    """Yield the file's values, and write what becomes of them, without secrets.  One process at a time."""
    make_folder(path.parent)
    with locked(path.with_name(f".{path.name}.lock")):
        text = _text(path) if path.exists() else ""
        parse(text, str(path))  # nothing is written into what is no file of decisions
        yaml = _round_trip()
        if re.search(r"^ +- ", text, re.MULTILINE):
            yaml.indent(sequence=4, offset=2)
        values = yaml.load(text)
        if values is None:
            values = yaml.load("{}")
            values.fa.set_block_style()
        yield values
        out = io.StringIO()
        yaml.dump(values, out)
        changed = Redactor(os.environ).text(out.getvalue())
        if not text.strip():
            changed = f"# {path.name}: see docs/decisions.md\n{changed}"
        elif not values:
            changed = ""
        write(path, changed)


def _round_trip() -> Any:
    """Return the YAML reader and writer that keeps what a person wrote."""
    from ruamel.yaml import YAML
    from ruamel.yaml.emitter import Emitter

    class LineKeeping(Emitter):
        def write_indent(self) -> None:
            """Begin a line; the mark of an earlier comment that ended one would join two lines of a later entry."""
            if self.column:
                self.no_newline = None
            super().write_indent()

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes, yaml.width, yaml.Emitter = True, 4096, LineKeeping
    return yaml


def _quoted(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry whose texts are quoted: ``no`` and ``2026-01-02`` are no texts in YAML."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    quoted = {name: DoubleQuotedScalarString(value) for name, value in entry.items() if isinstance(value, str)}
    nested = {name: _quoted(value) for name, value in entry.items() if isinstance(value, dict)}
    return {**entry, **quoted, **nested}


def _person() -> str:
    return run_file.person(provenance.who(os.environ))
