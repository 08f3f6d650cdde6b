"""An archive that somebody changes: `runbook audit verify` finds each single change, and names it.

The archive is a real one, of the first format, and kept for ever (archive-1/README.md).
"""

import argparse
import json
import os
import random
import shutil
import stat
import tempfile
import unicodedata
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from archives import words
from figures import Figures
from stored_archive import BUMPS, DEV, KEPT, rewrite

from runbook_lib.cli import audit as archive_commands
from runbook_lib.records import archive
from runbook_lib.records.chain import Ledger, read_head, read_predicate
from runbook_lib.records.pages import index
from runbook_lib.records.statement import RUN, STORY, parse_time, to_bytes
from runbook_lib.records.verify import verify
from runbook_lib.system.clock import now, stamp

RECORDS = tuple(sorted(it.parent.relative_to(KEPT) for it in KEPT.rglob(RUN)))
#: All that lies in the folders of the bumps, but their locks, which hold nothing.
FILES = tuple(
    sorted(
        it.relative_to(KEPT) for bump in BUMPS for it in (KEPT / bump).rglob("*") if it.is_file() and it.name != ".lock"
    )
)


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """A copy of the archive, without the history of this repository."""
    return Path(shutil.copytree(KEPT, tmp_path / "audit"))


def found(audit: Path, place: Path, figures: Figures) -> list[str]:
    """The sentences about that place, or what lies in it; there must be some."""
    figures["tampered"] += 1
    problems, _ = verify(audit)
    named = [it for it in problems if it.startswith(tuple(f"{audit / place}{end}" for end in ":/ "))]
    assert named, (place, problems)
    return named


# -- bytes -----------------------------------------------------------------------------------------------------------


def _flip(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _other(data: bytes, draw: random.Random) -> bytes:
    """Another character that may well mean the same, such as a line break for a space."""
    at = draw.randrange(len(data))
    new = draw.choice([it for it in b' \n\t0"a}\0' if it != data[at]])
    return data[:at] + bytes([new]) + data[at + 1 :]


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice([b" ", b"\n", b"\0", b"x", b"\xef\xbb\xbf"]) + data[at:]


def _truncate(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _swap_lines(data: bytes, draw: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = draw.choice([it for it in range(len(lines) - 1) if lines[it] != lines[it + 1]] or [0])
    lines[at : at + 2] = lines[at : at + 2][::-1]
    changed = b"".join(lines)
    return changed if changed != data else data + b" "


def _twice(data: bytes, _: random.Random) -> bytes:
    return data + data


def _append(data: bytes, draw: random.Random) -> bytes:
    return data + draw.choice([b" ", b"\n", b"\0", b"<!-- -->\n"])


BYTES = {it.__name__.strip("_"): it for it in (_flip, _other, _insert, _truncate, _swap_lines, _twice, _append)}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", BYTES)
def test_bytes(audit: Path, figures: Figures, kind: str, seed: int) -> None:
    draw = random.Random(f"{kind} {seed}")
    for file in FILES:
        path = audit / file
        before = path.read_bytes()
        path.write_bytes(BYTES[kind](before, draw))
        told = found(audit, file.parent, figures)
        assert file.parent in RECORDS or [it for it in told if file.name in it]
        path.write_bytes(before)
    assert verify(audit)[0] == []


# -- files, folders and names ----------------------------------------------------------------------------------------


def _link(path: Path) -> None:
    """Put it elsewhere, and a link in its place."""
    elsewhere = _outside(path)
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def _outside(path: Path) -> Path:
    place = next(it for it in path.parents if it.name == "audit").parent / "outside"
    place.mkdir(exist_ok=True)
    return place / path.name


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _device(path: Path) -> None:
    """A hard link to something that changes by itself is no file of the record either; a socket or device neither."""
    path.unlink()
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # as many zeros as anybody reads
    except PermissionError:
        os.mkfifo(path)


def _inside(path: Path) -> None:
    """Put it into a folder that has its name."""
    aside = path.rename(path.with_name("aside"))
    path.mkdir()
    aside.rename(path / path.name)


def _renamed(name: Callable[[str], str]) -> Callable[[Path], None]:
    return lambda path: path.rename(path.with_name(name(path.name))) and None


FILE: Mapping[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda it: it.write_bytes(b""),
    "a link": _link,
    "a pipe": _pipe,
    "a folder": _folder,
    "a device": _device,
    "in capitals": _renamed(str.upper),
    "with another ending": _renamed(lambda name: name + "~"),
    "hidden": _renamed(lambda name: f".{name}"),
    "of look-alike letters": _renamed(lambda name: name.replace("e", "\u0435").replace("o", "\u043e")),
    "backwards": lambda it: it.write_bytes(it.read_bytes()[::-1]),
}


@pytest.mark.parametrize("kind", FILE)
def test_a_file(tmp_path: Path, figures: Figures, kind: str) -> None:
    for number, file in enumerate(it for it in FILES if not (it.name == STORY and kind == "removed")):
        audit = Path(shutil.copytree(KEPT, tmp_path / str(number) / "audit"))
        FILE[kind](audit / file)
        found(audit, file.parent, figures)
        shutil.rmtree(audit.parent)


def _add_file(folder: Path) -> Path:
    (folder / "notes.txt").write_text("x")
    return folder / "notes.txt"


def _add_hidden(folder: Path) -> Path:
    (folder / ".git").write_text("gitdir: elsewhere")
    return folder / ".git"


def _add_folder(folder: Path) -> Path:
    (folder / "more").mkdir()
    return folder / "more"


def _add_link(folder: Path) -> Path:
    (folder / "link").symlink_to("/")
    return folder / "link"


def _add_broken_link(folder: Path) -> Path:
    (folder / "link").symlink_to("nowhere")
    return folder / "link"


def _add_pipe(folder: Path) -> Path:
    os.mkfifo(folder / RUN.upper())
    return folder / RUN.upper()


def _add_no_text(folder: Path) -> Path:
    path = Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe"))
    path.write_text("x")
    return path


ADDED = {it.__name__.removeprefix("_add_"): it for it in
         (_add_file, _add_hidden, _add_folder, _add_link, _add_broken_link, _add_pipe)}  # fmt: skip


@pytest.mark.parametrize("kind", ADDED)
def test_an_addition(tmp_path: Path, figures: Figures, kind: str) -> None:
    for number, folder in enumerate([*RECORDS, *BUMPS]):
        audit = Path(shutil.copytree(KEPT, tmp_path / str(number) / "audit"))
        found(audit, ADDED[kind](audit / folder).relative_to(audit), figures)


@pytest.mark.parametrize("name", ["\xff", "a\nb", "a\r\x1b[2Jb", "\u202eb", "\udcff"])
def test_a_name_is_not_a_line_of_the_answer(audit: Path, figures: Figures, name: str) -> None:
    """A name must not pass for another sentence, nor for none."""
    (audit / RECORDS[0] / name).write_text("x")
    figures["tampered"] += 1
    (problem,) = verify(audit)[0]
    assert problem.isprintable()
    problem.encode()


RECORD: Mapping[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "emptied": lambda it: [file.unlink() for file in it.iterdir()],
    "a link": _link,
    "renamed": _renamed(lambda name: name[:-1] + ("0" if name[-1] != "0" else "1")),
    "in capitals": _renamed(str.upper),
    "hidden": _renamed(lambda name: f".{name}"),
    "taken for unfinished": _renamed(lambda name: f".opening-{name}"),
    "of another normal form": _renamed(lambda name: unicodedata.normalize("NFD", f"{name}ö")),
    "moved up": lambda it: it.rename(it.parents[1] / it.name),
    "moved into a record": lambda it: (
        it.rename(it.with_name("more")) and (it.mkdir(), it.with_name("more").rename(it / "x"))
    ),
    "a file": lambda it: (shutil.rmtree(it), it.write_text("x")),
    "copied, with its id": lambda it: shutil.copytree(it, it.with_name(it.name[:-1] + "_")),
    "its statement alone": lambda it: [file.unlink() for file in it.iterdir() if file.name != RUN],
    "its statement gone": lambda it: (it / RUN).unlink(),
}


@pytest.mark.parametrize("kind", RECORD)
def test_a_record(tmp_path: Path, figures: Figures, kind: str) -> None:
    for number, record in enumerate(RECORDS):
        audit = Path(shutil.copytree(KEPT, tmp_path / str(number) / "audit"))
        RECORD[kind](audit / record)
        found(audit, record.parent, figures)


def _swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def test_records_swapped_copied_and_put_elsewhere(tmp_path: Path, figures: Figures) -> None:
    for number, (one, other) in enumerate(combinations(RECORDS, 2)):
        for kind in range(4):
            audit = Path(shutil.copytree(KEPT, tmp_path / f"{number}-{kind}" / "audit"))
            a, b = audit / one, audit / other
            if kind == 0:
                _swap(a, b)
            elif kind == 1:  # what lies in them
                shutil.rmtree(a)
                shutil.copytree(b, a)
            elif kind == 2:  # beside the records of another bump
                shutil.copytree(b, a.parent / (b.name if one.parent != other.parent else "20260101T000000Z-x-0"))
            else:  # a file of one record in the other
                shutil.copy(b / "report.html", a / "report.html")
            found(audit, one.parent, figures)


BUMP_FOLDER: Mapping[str, Callable[[Path], object]] = {
    "renamed": _renamed(lambda name: name.replace("26", "25")),
    "in capitals": _renamed(str.upper),
    "in another normal form": _renamed(lambda name: unicodedata.normalize("NFD", f"{name}é")),
    "below another base": lambda it: (
        it.parent.with_name("dev").mkdir(), it.rename(it.parent.with_name("dev") / it.name),
    ),
    "passed off as real": lambda it: (
        (it.parents[3] / "o-r" / "main").mkdir(parents=True), it.rename(it.parents[3] / "o-r" / "main" / it.name),
    ),
    "copied": lambda it: shutil.copytree(it, it.with_name(f"{it.name}-2")),
    "a link": _link,
    "within another": lambda it: _inside(it),
}  # fmt: skip


@pytest.mark.parametrize("kind", BUMP_FOLDER)
def test_a_folder_of_a_bump(tmp_path: Path, figures: Figures, kind: str) -> None:
    for number, bump in enumerate(BUMPS):
        audit = Path(shutil.copytree(KEPT, tmp_path / str(number) / "audit"))
        BUMP_FOLDER[kind](audit / bump)
        found(audit, Path(), figures)


def test_folders_of_bumps_swapped_and_their_parts(tmp_path: Path, figures: Figures) -> None:
    for number, (one, other) in enumerate(combinations(BUMPS, 2)):
        for part in ("", "head", STORY):
            audit = Path(shutil.copytree(KEPT, tmp_path / f"{number}{part}" / "audit"))
            _swap(audit / one / part, audit / other / part)
            found(audit, one, figures)
            if not part or part == "head":
                continue
            found(audit, other, figures)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody who may not read")
def test_forbidden_files_are_named(figures: Figures) -> None:
    # Not in pytest's own folder: each pytest that starts closes that to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        audit = Path(shutil.copytree(KEPT, Path(folder) / "audit"))
        for file in (*FILES, *RECORDS, *BUMPS):
            path = audit / file
            mode = path.stat().st_mode
            path.chmod(0)
            os.seteuid(65534)
            try:
                found(audit, file, figures)
            finally:
                os.seteuid(0)
                path.chmod(mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody who may not read")
def test_an_archive_that_may_not_be_entered_is_a_problem(audit: Path) -> None:
    audit.chmod(0o700)
    os.seteuid(65534)
    try:
        (problem,), _ = verify(audit)
        assert "cannot be read" in problem
    finally:
        os.seteuid(0)


# -- forged: every hash is made anew ---------------------------------------------------------------------------------


def _moved(predicate: dict[str, Any], by: timedelta) -> None:
    """All of a record's times, and its name, which tells the first of them."""
    started = parse_time(predicate["started"]) + by
    predicate["id"] = f"{started:%Y%m%dT%H%M%SZ}-{predicate['id'].split('-', 1)[1]}"
    predicate["started"], predicate["ended"] = stamp(started), stamp(parse_time(predicate["ended"]) + by)


FORGED: Mapping[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "in the future": (
        lambda it: _moved(it[-1], now() - parse_time(it[-1]["ended"]) + timedelta(hours=1)),
        "from the future",
    ),
    "ends in the future": (lambda it: it[-1].update(ended=stamp(now() + timedelta(hours=1))), "from the future"),
    "ends before it starts": (lambda it: it[0].update(ended="2026-01-01T00:00:00.000Z"), "contradict"),
    "another start than its name": (lambda it: it[-1].update(started="2026-11-21T10:00:00.000Z"), "contradict"),
    "before its predecessor": (lambda it: _moved(it[-1], -timedelta(days=1)), "which was closed before it"),
    "after its successor": (lambda it: _moved(it[0], timedelta(minutes=30)), "which was closed before it"),
    "another order": (lambda it: (_moved(it[0], timedelta(hours=1)), it.reverse()), "which was closed before it"),
    "of another bump": (lambda it: it[0]["bump"].update(tag="26.05-py3"), "does not belong here"),
    "another id": (lambda it: it[0].update(id=it[0]["id"], bump={**it[0]["bump"], "base": "dev"}), "not belong here"),
    "no time": (lambda it: it[0].update(started="yesterday"), "and times"),
    "a time without zone": (lambda it: it[0].update(ended="2026-11-21T16:00:00"), "and times"),
    "no bump": (lambda it: it[0].update(bump=[]), "and times"),
}


def test_a_forged_record_outside_the_chain(audit: Path, figures: Figures) -> None:
    """All that it says of itself fits: its name, its bump, its times, its files, and the record before it."""
    last, _ = read_head(audit / DEV)
    assert last is not None
    forged = shutil.copytree(audit / DEV / last["record"], audit / DEV / f"{last['record'][:-8]}ffffffff")
    document = json.loads((forged / RUN).read_bytes())
    document["predicate"]["id"] = forged.name
    (forged / RUN).write_bytes(to_bytes(document))
    found(audit, DEV / forged.name, figures)


@pytest.mark.parametrize("kind", FORGED)
def test_times_and_places_must_fit_even_where_every_hash_does(audit: Path, figures: Figures, kind: str) -> None:
    rewrite(audit / DEV, lambda _: None)
    assert [it for it in verify(audit)[0] if STORY not in it] == []
    change, told = FORGED[kind]
    rewrite(audit / DEV, change)
    assert [it for it in found(audit, DEV, figures) if told in it]


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b"7", b'"x"', b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"{" + b" " * 1_000_000],
)
@pytest.mark.parametrize("name", ["head", RUN])
def test_invalid_statements_are_named(audit: Path, figures: Figures, name: str, content: bytes) -> None:
    for place in (DEV,) if name == "head" else [it for it in RECORDS if it.parent == DEV]:
        before = (audit / place / name).read_bytes()
        (audit / place / name).write_bytes(content)
        found(audit, place, figures)
        archive.status(audit)
        (audit / place / name).write_bytes(before)


@pytest.mark.parametrize("value", ["x", 7, [], {}, {"record": 1}, {"record": [], "sha256": {}}, True])
def test_a_predecessor_of_another_shape_is_named(audit: Path, figures: Figures, value: object) -> None:
    for record in RECORDS:
        document = json.loads((audit / record / RUN).read_bytes())
        document["predicate"]["previous"] = value
        (audit / record / RUN).write_bytes(to_bytes(document))
        found(audit, record, figures)


# -- the format is kept ----------------------------------------------------------------------------------------------


def test_the_archive_of_the_first_format_is_read_for_ever(
    audit: Path, capsys: pytest.CaptureFixture[str], figures: Figures
) -> None:
    assert len(RECORDS) == 5
    problems, counts = verify(audit)
    assert problems == []
    assert str(counts) == "3 bumps, 5 records, 0 running, 20 files"
    assert archive_commands.command_verify(argparse.Namespace(dir=str(audit))) == 0
    assert archive_commands.command_status(argparse.Namespace(audit=str(audit), json=False)) == 0
    told = capsys.readouterr().out
    assert "practice/Megatron-LM main dev 26.04-py3 (practice): waiting\n  04-run-ci: waiting for CI run" in told
    assert "practice/Megatron-LM main lts 26.04-py3 (practice): previewed" in told
    assert "practice/Megatron-LM main dev 26.4-py3 (practice): not begun" in told
    for story in audit.rglob(STORY):
        story.unlink()
    index.write_index(audit)
    page = words((audit / "index.html").read_text())
    assert "3 bumps: " in page
    story = words((audit / DEV / STORY).read_text())
    for said in ("01-github-pin", "03-open-pr", "04-run-ci", "26.04-py3", "Ada Example"):
        assert said in story
    assert verify(audit)[0] == []


def test_a_bump_of_the_first_format_continues(audit: Path) -> None:
    with Ledger.locked(audit / DEV) as ledger:
        assert archive.close_dead(ledger) == []
        last = ledger.last
        name = f"{now():%Y%m%dT%H%M%SZ}-07-sync-check-00000000"
        predicate = read_predicate(ledger.folder / last["record"]) | {
            "id": name,
            "started": stamp(now()),
            "ended": None,
            "state": "running",
        }
        ledger.open(name, predicate)
        ledger.close(name, {**predicate, "state": "done", "ended": stamp(now())})
    index.write_index(audit)
    assert verify(audit)[0] == []
