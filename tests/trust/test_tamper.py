"""An archive that somebody changes: `runbook audit verify` finds each change, and names its place.

`records/test_verify.py` changes one thing after the other; here bytes change at random, and the forger hashes anew.
"""

import json
import random
import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, record

from runbook_lib.records import archive
from runbook_lib.records.chain import HEAD, LOCK, head_bytes, read_head, sha256
from runbook_lib.records.pages import index
from runbook_lib.records.statement import RUN, STORY, parse_time, to_bytes
from runbook_lib.records.verify import verify
from runbook_lib.system.clock import now, stamp


@pytest.fixture
def bump(tmp_path: Path) -> Path:
    """The folder of a bump with three closed records."""
    audit = tmp_path / "audit"
    for minute, name in enumerate(("01-github-pin", "03-open-pr", "04-run-ci")):
        record(audit, name, "done", "Done.", at=minute)
    index.write_index(audit)
    assert verify(audit)[0] == []
    return audit.joinpath(*BUMP.parts)


def found(bump: Path, place: Path) -> list[str]:
    """The sentences about that place, or what lies in it; there must be some."""
    problems, _ = verify(bump.parents[2])
    named = [it for it in problems if it.startswith(tuple(f"{place}{end}" for end in ":/ "))]
    assert named, (place, problems)
    return named


def records(bump: Path) -> list[Path]:
    """The folders of the records, oldest first."""
    return sorted(it.parent for it in bump.glob(f"*/{RUN}"))


# -- bytes -----------------------------------------------------------------------------------------------------------


def _flip(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice([b" ", b"\n", b"\0", b"x", b"\xef\xbb\xbf"]) + data[at:]


def _truncate(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _twice(data: bytes, _: random.Random) -> bytes:
    return data + data


@pytest.mark.parametrize("change", [_flip, _insert, _truncate, _twice])
def test_any_change_of_bytes_is_found(bump: Path, change: Callable[[bytes, random.Random], bytes]) -> None:
    files = [it for it in bump.rglob("*") if it.is_file() and it.name != LOCK]
    assert {it.name for it in files} == {RUN, HEAD, STORY, "executed.ipynb", "report.html"}
    for seed in range(5):
        for file in files:
            before = file.read_bytes()
            file.write_bytes(change(before, random.Random(f"{seed} {file.name}")))
            found(bump, file.parent)
            file.write_bytes(before)
    assert verify(bump.parents[2])[0] == []


@pytest.mark.parametrize("name", ["\xff", "a\nb", "a\r\x1b[2Jb", "\u202eb", "\udcff"])
def test_a_name_is_not_a_line_of_the_answer(bump: Path, name: str) -> None:
    """A name must not pass for another sentence, nor for none."""
    (records(bump)[0] / name).write_text("x")
    (problem,) = verify(bump.parents[2])[0]
    assert problem.isprintable()
    problem.encode()


# -- forged: every hash is made anew ---------------------------------------------------------------------------------


def rewrite(bump: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the predicates of a bump, oldest first, and make folders, files, hashes and head fit them."""
    last, _ = read_head(bump)
    documents: list[dict[str, Any]] = []
    while last is not None:
        documents.insert(0, json.loads((bump / last["record"] / RUN).read_bytes()))
        last = documents[0]["predicate"]["previous"]
    names = [it["predicate"]["id"] for it in documents]
    change([it["predicate"] for it in documents])
    for name, document in zip(names, documents, strict=True):
        predicate = document["predicate"]
        predicate["previous"] = last
        (bump / name).rename(bump / predicate["id"])
        (bump / predicate["id"] / RUN).write_bytes(to_bytes(document))
        last = {"record": predicate["id"], "sha256": sha256(bump / predicate["id"] / RUN)}
    (bump / HEAD).write_bytes(head_bytes(last, []))


def _moved(predicate: dict[str, Any], by: timedelta) -> None:
    """Move all of a record's times, and its name, which tells the first of them."""
    started = parse_time(predicate["started"]) + by
    predicate["id"] = f"{started:%Y%m%dT%H%M%SZ}-{predicate['id'].split('-', 1)[1]}"
    predicate["started"], predicate["ended"] = stamp(started), stamp(parse_time(predicate["ended"]) + by)


FORGED: Mapping[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "in the future": (
        lambda it: _moved(it[-1], now() - parse_time(it[-1]["ended"]) + timedelta(hours=1)),
        "from the future",
    ),
    "ends before it starts": (lambda it: it[0].update(ended="2026-01-01T00:00:00.000Z"), "contradict"),
    "another start than its name": (lambda it: it[-1].update(started="2026-03-21T10:00:00.000Z"), "contradict"),
    "before its predecessor": (lambda it: _moved(it[-1], -timedelta(days=1)), "which was closed before it"),
    "another order": (lambda it: (_moved(it[0], timedelta(hours=1)), it.reverse()), "which was closed before it"),
    "of another bump": (lambda it: it[0]["bump"].update(tag="26.05-py3"), "does not belong here"),
    "no time": (lambda it: it[0].update(started="yesterday"), "and times"),
    "a time without zone": (lambda it: it[0].update(ended="2026-04-01T16:00:00"), "and times"),
    "no bump": (lambda it: it[0].update(bump=[]), "and times"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_times_and_places_must_fit_even_where_every_hash_does(bump: Path, kind: str) -> None:
    rewrite(bump, lambda _: None)
    assert [it for it in verify(bump.parents[2])[0] if STORY not in it] == []
    change, told = FORGED[kind]
    rewrite(bump, change)
    assert [it for it in found(bump, bump) if told in it]


def test_a_forged_record_outside_the_chain(bump: Path) -> None:
    """All that it says of itself fits: its name, its bump, its times, its files, and the record before it."""
    last = records(bump)[-1]
    forged = shutil.copytree(last, last.with_name(f"{last.name[:-8]}ffffffff"))
    document = json.loads((forged / RUN).read_bytes())
    document["predicate"]["id"] = forged.name
    (forged / RUN).write_bytes(to_bytes(document))
    found(bump, forged)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff", b"{" + b" " * 1_000_000])
def test_invalid_statements_are_named(bump: Path, content: bytes) -> None:
    for file in (bump / HEAD, records(bump)[1] / RUN):
        before = file.read_bytes()
        file.write_bytes(content)
        found(bump, file.parent)
        archive.status(bump.parents[2])
        file.write_bytes(before)
    assert verify(bump.parents[2])[0] == []
