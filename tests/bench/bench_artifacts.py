"""How fast golden values are collected, against downloading and unpacking the same artifacts one after another.

    environment/run python tests/bench/bench_artifacts.py

or ``environment/run pytest -n0 tests/bench/bench_artifacts.py``.
A server on this machine answers after 50 ms and sends 40 MB a second at most, over all connections.  Each of 78
artifacts has 20 MB: logs around one to three golden files.  Memory is the peak of a process that collects.
"""

import io
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from pathlib import Path

from runbook_lib.clients.github.models import Artifact
from runbook_lib.golden import collect
from runbook_lib.golden.collect import GoldenSource
from runbook_lib.golden.match_artifacts import FunctionalTestJob, UploadMatch
from runbook_lib.recipes.file_names import GoldenFileName
from runbook_lib.transport.ranges import Address

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
import stores  # noqa: E402

COUNT, SIZE = 78, 20 * 2**20
LATENCY, BANDWIDTH = 0.05, 40 * 2**20
FASTER, READ, MEMORY = 20.0, 1.2, 1.25
FILES = ("golden_values_dev_dgx_h100.json", "golden_values_dev_dgx_h100_2nd.json", "golden_values_dev_dgx_gb200.json")


def golden(number: int) -> bytes:
    chance = random.Random(number)
    metrics = ("lm loss", "num-zeros", "iteration-time", "mem-allocated-bytes")
    values = {name: {"values": {str(s): round(chance.uniform(1, 11), 5) for s in range(1, 101)}} for name in metrics}
    return json.dumps(values).encode()


def archive(number: int, noise: bytes) -> bytes:
    """A zip with golden members amid logs that packing does not make smaller."""
    ranks = (8, 16, 24)[number]
    logs = [f"logs/1/run/attempt_0/{rank}/{name}.log" for rank in range(ranks) for name in ("stdout", "stderr")]
    share = SIZE // len(logs)
    members = [(name, noise[at * share : (at + 1) * share]) for at, name in enumerate(logs)]
    held = [(name, golden(number)) for name in FILES[: 1 + number]]
    return stores.packed([*members[:ranks], *held, *members[ranks:]])


class Archives(stores.Store):
    """Many artifacts from three in memory: only where the golden files lie differs."""

    def __init__(self) -> None:
        super().__init__(latency=LATENCY, bandwidth=BANDWIDTH)
        noise = random.Random(0).randbytes(SIZE)
        for number in range(3):
            self.contents[number] = archive(number, noise)

    def content(self, number: int) -> bytes:
        return self.contents[number % 3]


def source(store: Archives, forge: str, count: int) -> GoldenSource:
    def address(upload: Artifact) -> Address:
        return Address(f"{forge}/{upload.id % 3}", {"Authorization": f"Bearer {stores.TOKEN}"})

    jobs = tuple(
        FunctionalTestJob(number, f"gpt/{number} - latest", "gpt", str(number), "failed") for number in range(count)
    )
    pairs = tuple(
        UploadMatch(Artifact(job.id, f"logs-{job.id}", len(store.contents[job.id % 3]), False), (job,)) for job in jobs
    )
    return GoldenSource("run", jobs, pairs, address)


def serial(forge: str, into: Path) -> float:
    """Seconds to download whole artifacts one after another, and to unpack them."""
    started = time.perf_counter()
    for number in range(COUNT):
        asked = urllib.request.Request(f"{forge}/{number % 3}")
        asked.add_unredirected_header("Authorization", f"Bearer {stores.TOKEN}")
        with urllib.request.urlopen(asked) as answer:
            (into / "whole.zip").write_bytes(answer.read())
        with zipfile.ZipFile(into / "whole.zip") as opened:
            opened.extractall(into / str(number % 3))
    return time.perf_counter() - started


def needed(store: Archives, count: int) -> int:
    """Bytes of the golden members with their headers, and of the directories."""
    total = 0
    for number, data in store.contents.items():
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            times = len(range(number, count, 3))
            chosen = [it for it in opened.infolist() if GoldenFileName.of_artifact(it.filename)]
            total += times * (
                len(data) - opened.start_dir + sum(it.compress_size + 30 + len(it.filename) for it in chosen)
            )
    return total


def peak(forge: str, sizes: str, count: int) -> float:
    """Megabytes that a process of its own has used at most to collect from so many artifacts."""
    command = [sys.executable, __file__, "--collect", forge, sizes, str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def collect_alone(forge: str, sizes: str, count: int) -> None:
    store = stores.Store(contents=dict.fromkeys(range(3), b""))
    lengths = [int(size) for size in sizes.split(",")]
    jobs = tuple(
        FunctionalTestJob(number, f"gpt/{number} - latest", "gpt", str(number), "failed") for number in range(count)
    )
    pairs = tuple(UploadMatch(Artifact(job.id, f"logs-{job.id}", lengths[job.id % 3], False), (job,)) for job in jobs)
    made = GoldenSource("run", jobs, pairs, source(store, forge, 0).address)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as place:
        found = collect.collect(made, Path(place))
        assert not found.problems, found.problems[:3]
    # Not getrusage: a new program inherits the peak of the one that started it.
    status = Path("/proc/self/status").read_text()
    print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def measure() -> tuple[float, float, float]:
    """Print the figures; how many times faster, bytes read to bytes needed, and memory for 780 to memory for 78."""
    with tempfile.TemporaryDirectory() as place, stores.serve(Archives()) as store:
        assert isinstance(store, Archives)
        work = Path(place)
        before = store.sent
        started = time.perf_counter()
        found = collect.collect(source(store, store.forge, COUNT), work / "into")
        ours, read = time.perf_counter() - started, store.sent - before
        assert not found.problems, found.problems[:3]
        theirs = serial(store.forge, work)
        sizes = ",".join(str(len(data)) for data in store.contents.values())
        memory = [peak(store.forge, sizes, count) for count in (COUNT, 10 * COUNT)]
        wanted = needed(store, COUNT)
    print(f"one after another, whole {theirs:7.2f} s")
    print(f"golden members alone     {ours:7.2f} s   {len(found.files)} files of {COUNT} artifacts")
    print(f"bytes read {read}, golden members and directories {wanted}")
    print(f"memory for {COUNT} artifacts {memory[0]:.0f} MB, for {10 * COUNT} {memory[1]:.0f} MB")
    return theirs / ours, read / wanted, memory[1] / memory[0]


def test_collecting_is_quick_and_small() -> None:
    faster, read, memory = measure()
    assert faster >= FASTER
    assert read <= READ
    assert memory <= MEMORY


if __name__ == "__main__":
    if sys.argv[1:2] == ["--collect"]:
        collect_alone(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        sys.exit()
    faster, read, memory = measure()
    verdicts = [
        (faster >= FASTER, f"times faster {faster:.1f}  (at least {FASTER:g})"),
        (read <= READ, f"bytes read / needed {read:.2f}  (at most {READ:g})"),
        (memory <= MEMORY, f"memory for 780 / for 78 artifacts {memory:.2f}  (at most {MEMORY:g})"),
    ]
    for good, line in verdicts:
        print("PASS" if good else "FAIL", line)
    sys.exit(not all(good for good, _ in verdicts))
