"""How much resident memory hostile archives and answers take, measured in a process of its own."""

import functools
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import resident
from forked import Forked
from loopback import Handler, serving
from small_runbooks import ROOT, environ
from stores import Store, serve

MB = 2**20
Grown = Callable[..., tuple[float, str]]
BOMB = 256 * MB  # what a bomb unpacks to
GOLDEN, LOG = "golden_values_dev_dgx_h100.json", "logs/1/run/attempt_0/0/stderr.log"


@pytest.fixture
def grown(tmp_path: Path) -> Grown:
    """MB that something took, and what was reported."""

    def measure(what: str, address: object, size: int = 0, jobs: int = 1) -> tuple[float, str]:
        # The parser imports what it calls from here too.
        env = environ(NO_PROXY="*", PYTHONPATH=os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/trust"))))
        given = what, str(address), size, jobs
        status, told = Forked(tmp_path / "said", resident.main, *given, cwd=tmp_path, env=env).ended(600)
        assert status == 0, told
        taken, _, reported = told.partition("\n")
        return int(taken) / MB, reported

    return measure


# -- archives -------------------------------------------------------------------------------------------------------


def crafted(*members: tuple[str, int, bytes, int], zip64: bool = False) -> bytes:
    """A zip of members (name, method, packed content, size as claimed), whose directory may lie."""
    body, directory = b"", b""
    for name, method, content, size in members:
        spelled, place = name.encode(), len(body)
        extra = struct.pack("<HHQQ", 1, 16, size, len(content)) if zip64 else b""
        sizes = (2**32 - 1, 2**32 - 1) if zip64 else (len(content), size)
        both = (0, method, 0, 33, 0, *sizes, len(spelled), len(extra))
        body += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, *both) + spelled + extra + content
        directory += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 45, 45, *both, 0, 0, 0, 0, place) + spelled + extra
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, len(members) % 2**16, len(members) % 2**16,
                      len(directory), len(body), 0)  # fmt: skip
    return body + directory + end


@functools.cache
def deflated(size: int = BOMB) -> bytes:
    squeezer, block = zlib.compressobj(9, zlib.DEFLATED, -15), b"0" * MB
    return b"".join(squeezer.compress(block) for _ in range(size // MB)) + squeezer.flush()


def both(method: int, content: bytes, size: int, *, zip64: bool = False) -> bytes:
    return crafted((GOLDEN, method, content, size), (LOG, method, content, size), zip64=zip64)


def many(count: int) -> bytes:
    directory = b"".join(
        struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 6, 0, 0, 0, 0, 0, 31 * number)
        + b"%06d" % number
        for number in range(count)
    )
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count % 2**16, count % 2**16, len(directory), 31 * count, 0)
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), 31 * count)
    end64 += struct.pack("<4sIQI", b"PK\6\7", 0, 31 * count + len(directory), 1)
    return bytes(31 * count) + directory + (end64 if count >= 2**16 else b"") + end


def files_of_31_mb(count: int) -> bytes:
    return crafted(*((f"golden_values_dev_p{it}.json", 8, deflated(31 * MB), 31 * MB) for it in range(count)))


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "stored, claimed to be small": lambda: both(0, b"0" * (60 * MB), 100),
    "deflate": lambda: both(8, deflated(), BOMB),
    "deflate, claimed to be small": lambda: both(8, deflated(), 1000, zip64=True),
    "golden files, 20 of 31 MB": lambda: files_of_31_mb(20),
    "a million members": lambda: many(1_000_000),
}  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with serve(Store()) as served:
        yield served


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("what", ["golden", "cause", "folder"])
def test_an_archive_takes_little_memory(name: str, what: str, store: Store, tmp_path: Path, grown: Grown) -> None:
    data = store.contents[1] = ARCHIVES[name]()
    store.ranges = "claimed" not in name  # without them a file is read as a whole
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    taken, reported = grown(what, path if what == "folder" else f"{store.forge}", len(data))
    assert taken < 400, f"{taken:.0f} MB; {reported}"
    if what == "golden":
        assert reported.startswith("0 golden files")


MANY: dict[str, Callable[[], bytes]] = {
    "golden files, 4 of 31 MB": lambda: files_of_31_mb(4),
    "largest directory": lambda: many(16_384),
}


@pytest.mark.parametrize("what", ["golden", "cause"])
@pytest.mark.parametrize("name", MANY)
def test_archives_of_many_jobs_take_little_memory_together(name: str, what: str, store: Store, grown: Grown) -> None:
    store.ranges = True
    data = store.contents[1] = MANY[name]()
    taken, reported = grown(what, store.forge, len(data), jobs=24)
    assert taken < 400, f"{taken:.0f} MB; {reported}"


def test_a_log_that_takes_too_long_is_read_in_part(tmp_path: Path, grown: Grown) -> None:
    """512 MB of errors, more than can be read within the budget of `runbook why`."""
    lines = b"".join(b"ERROR: tensor %06d is not finite\n" % number for number in range(30_000))
    squeezer = zlib.compressobj(1, zlib.DEFLATED, -15)
    block = squeezer.compress(lines) + squeezer.flush(zlib.Z_FULL_FLUSH)
    times = 512 * MB // len(lines)
    path = tmp_path / "a.zip"
    path.write_bytes(crafted((LOG, 8, block * times + squeezer.flush(), len(lines) * times)))
    taken, reported = grown("why", path)
    assert taken < 400, f"{taken:.0f} MB; {reported}"
    assert f"took more than {resident.BUDGET:.0f} seconds" in reported
    assert "is not finite" in reported


# -- answers --------------------------------------------------------------------------------------------------------


def repeated(item: bytes, size: int) -> bytes:
    return b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]"


ANSWERS: dict[str, Callable[[], bytes]] = {
    "lists": lambda: repeated(b"[]", 64 * MB),
    "objects in 15 MB": lambda: repeated(b"{}", 15 * MB),
    "names in 15 MB": lambda: b"{" + b",".join(b'"%x":0' % it for it in range(1_500_000)) + b"}",
    "UTF-16": lambda: '["\u2200",{}'.encode("utf-16") + ",{}".encode("utf-16-le") * (2 * MB) + "]".encode("utf-16-le"),
    "an open string": lambda: b'["' + b'\\"' * (7 * MB),
    "nested lists": lambda: b"[" * (15 * MB),
    "a long number": lambda: b"[" + b"1" * (15 * MB) + b"]",
}


@pytest.mark.parametrize(("name", "status"), [*((name, 200) for name in ANSWERS), ("objects in 15 MB", 422)])
def test_an_answer_takes_little_memory(name: str, status: int, grown: Grown) -> None:
    body = ANSWERS[name]()

    class Large(Handler):
        def do_GET(self) -> None:
            self.answer(body, status, {"Content-Type": "application/json"})

    with serving(Large) as url:
        for what in ("github", "gitlab", "gitlab_project", "registry") if name == "lists" else ("github",):
            taken, reported = grown(what, url)
            assert taken < 200, f"{what}: {taken:.0f} MB; {reported}"
            assert ": Could not " in reported or "not" in reported


def paged(page: bytes) -> type[Handler]:
    """Pages of which each says that there is another."""

    class Paged(Handler):
        def do_GET(self) -> None:
            link = f'<http://{self.headers["Host"]}{self.path.partition("?")[0]}?page=2&n=1&last=a>; rel="next"'
            headers = {"Link": link, "Content-Type": "application/json", "ETag": f'"{self.path}"'}
            self.answer(page, headers=headers | {"X-Total": "9" * 18, "X-Total-Pages": "9" * 5000})

    return Paged


COMMENT = {"id": 1, "user": None, "created_at": "2026-01-01T00:00:00Z", "html_url": "", "body": "€" + "a" * 60_000}
JOB = {"id": 1, "name": "a", "stage": "b", "status": "failed", "web_url": "", "filler": "a" * 60_000}
PAGES = {
    "github": {"empty": b"[]", "full": json.dumps([COMMENT] * 100, ensure_ascii=False).encode()},
    "gitlab": {"empty": b"[]", "full": json.dumps([JOB] * 100).encode()},
    "registry": {
        "empty": b'{"name": "nvidia/pytorch", "tags": []}',
        "full": json.dumps({"name": "nvidia/pytorch", "tags": [f"{it:0128}" for it in range(30_000)]}).encode(),
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", ["empty", "full"])
@pytest.mark.parametrize("what", PAGES)
def test_pages_without_end_are_given_up(what: str, kind: str, grown: Grown) -> None:
    with serving(paged(PAGES[what][kind])) as url:
        taken, reported = grown(what, url)
    assert reported.startswith("CannotTell: ")
    assert taken < 400, f"{taken:.0f} MB; {reported}"
