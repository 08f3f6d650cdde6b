"""How fast golden values, and how much of the logs of failed jobs, are read from artifacts.

    environment/run python tests/bench/bench_downloads.py

A service in this process answers each request after 50 ms and sends 40 MB a second at most, to all threads together.
Golden values: each of 78 artifacts has 20 MB, of which one to three small files are golden.  Causes: each of 40 jobs
has 16 ranks with logs of 2 MB, one of which died and told why, in its errors or its output; all the others died of
that; beside each artifact stands the job's own log.
"""

import io
import json
import random
import sys
import threading
import time
import tracemalloc
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from runbook_lib.failures import read_logs
from runbook_lib.failures.evidence import FailedJob
from runbook_lib.failures.read_logs import JobLogs
from runbook_lib.golden import collect
from runbook_lib.golden.collect import FunctionalTestJob, GoldenSource, UploadMatch
from runbook_lib.text.recipes.file_names import GoldenFileName
from runbook_lib.world.github.models import Artifact

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
import stores  # noqa: E402

MEGA = 2**20
LATENCY, BANDWIDTH = 0.05, 40 * MEGA
ARTIFACTS, ARTIFACT = 78, 20 * MEGA
JOBS, RANKS, LOG = 40, 16, 2 * MEGA
GOLDEN = ("golden_values_dev_dgx_h100.json", "golden_values_dev_dgx_h100_2nd.json", "golden_values_dev_dgx_gb200.json")
#: Where the cause is, by kind of archive: rank and stream.
CAUSES = ((7, "err"), (15, "err"), (0, "err"), (11, "out"))
FRAME = 'Traceback (most recent call last):\n  File "/opt/megatron-lm/{}.py", line 3, in forward\n    call()\n'
LOST = FRAME.format("grads") + "torch.distributed.DistBackendError: NCCL error: remote process exited\n"


@dataclass
class Line:
    """The line that all downloads share."""

    sent: int = 0
    free: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, size: int) -> None:
        with self.lock:
            self.sent += size
            now = time.monotonic()
            self.free = max(self.free, now) + size / BANDWIDTH
        time.sleep(LATENCY + self.free - now)


@dataclass(frozen=True)
class File:
    """A download that is in memory."""

    line: Line
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def part(self, start: int, size: int) -> bytes:
        piece = self.data[start : start + size]
        self.line.send(len(piece))
        return piece


def golden_archive(count: int, noise: bytes) -> bytes:
    """Return a zip with golden members amid logs that packing does not make smaller."""
    logs = [f"logs/1/run/attempt_0/{rank}/{name}.log" for rank in range(8 * count) for name in ("stdout", "stderr")]
    share = ARTIFACT // len(logs)
    members = [(name, noise[at * share : (at + 1) * share]) for at, name in enumerate(logs)]
    chance, held = random.Random(count), []
    for name in GOLDEN[:count]:
        values = {str(step): round(chance.uniform(1, 11), 5) for step in range(1, 101)}
        held.append((name, json.dumps({"lm loss": {"values": values}, "num-zeros": {"values": values}}).encode()))
    return stores.packed([*members[::2], *held, *members[1::2]])


def needed(data: bytes) -> int:
    """Bytes of the golden members with their headers, and of the directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        chosen = [it for it in opened.infolist() if GoldenFileName.of_artifact(it.filename)]
        return len(data) - opened.start_dir + sum(it.compress_size + 30 + len(it.filename) for it in chosen)


def collected(line: Line, archives: list[bytes], count: int) -> None:
    jobs = [FunctionalTestJob(at, f"gpt/{at} - latest", "gpt", str(at), "failed") for at in range(count)]
    matches = [
        UploadMatch(Artifact(job.id, f"logs-{job.id}", len(archives[job.id % 3]), False), (job,)) for job in jobs
    ]
    source = GoldenSource("run", tuple(jobs), tuple(matches), lambda it: File(line, archives[it.id % 3]))
    found = collect.collect(source, frozenset())
    assert not found.problems, found.problems[:3]
    assert len(found.files) == 2 * count


def log(chance: random.Random, size: int, stream: str) -> str:
    """Progress, as the last rank prints it, or warnings without weight."""
    lines, total = [], 0
    while total < size:
        number = chance.randrange(10**9)
        line = f"/usr/lib/python3.12/site-packages/x{number % 97}.py:{number}: UserWarning: {number:x} is old\n"
        if stream == "out":
            line = f" iteration {len(lines):8}/   20000 | lm loss: {number:.6E} | grad norm: {chance.random():.3f} |\n"
        lines.append(line)
        total += len(line)
    return "".join(lines)


def failed_job(kind: int) -> tuple[bytes, bytes]:
    """Return the artifact of a failed job, and its own log."""
    chance, members = random.Random(kind), []
    rank = CAUSES[kind][0]
    for at in range(RANKS):
        for stream, share in (("err", LOG // 4), ("out", LOG * 3 // 4)):
            text = log(chance, share, stream)
            if (at, stream) == CAUSES[kind]:
                text += FRAME.format("experts") + "torch.OutOfMemoryError: CUDA out of memory.\n"
            elif stream == "err" and at != rank:
                text += LOST
            members.append((f"logs/1/none_a/attempt_0/{at}/std{stream}.log", text.encode()))
    summary = f"Root Cause (first observed failure):\n[0]:\n  rank      : {rank} (local_rank: {rank})\n"
    own = log(chance, LOG, "out") + LOST + summary
    timed = "".join(f"2026-07-01T10:00:00.0000000Z {line}\n" for line in own.splitlines())
    return stores.packed(members), timed.encode()


def triaged(line: Line, kinds: list[tuple[bytes, bytes]]) -> None:
    logs = []
    for at in range(JOBS):
        artifact, own = (File(line, data) for data in kinds[at % len(kinds)])
        logs.append(JobLogs(FailedJob(f"gpt/{at} - latest"), artifact, artifact.size, log=own))
    found = read_logs.diagnose_all(logs)
    assert {failure.kind for failure in found} == {"out of memory"}


def main() -> int:
    """Print the figures; return 1 if one misses its limit."""
    noise = random.Random(0).randbytes(ARTIFACT)
    archives, kinds = [golden_archive(1 + at, noise) for at in range(3)], [failed_job(kind) for kind in range(4)]
    line, started = Line(), time.perf_counter()
    collected(line, archives, ARTIFACTS)
    seconds, read = time.perf_counter() - started, line.sent
    tracemalloc.start()
    collected(line, archives, 10 * ARTIFACTS)
    before = line.sent
    triaged(line, kinds)
    memory, of_causes = tracemalloc.get_traced_memory()[1] / MEGA, line.sent - before
    sizes = [len(archives[at % 3]) for at in range(ARTIFACTS)]
    faster = sum(LATENCY + size / BANDWIDTH for size in sizes) / seconds
    needless = read / sum(needed(archives[at % 3]) for at in range(ARTIFACTS))
    fewer = sum(len(kinds[at % 4][0]) for at in range(JOBS)) / of_causes
    limits = {
        f"golden values, times faster {faster:.1f} (at least 40)": faster >= 40,
        f"golden values, bytes read / needed {needless:.2f} (at most 1.1)": needless <= 1.1,
        f"causes, times fewer bytes {fewer:.1f} (at least 10)": fewer >= 10,
        f"MB for 780 artifacts, and for the causes {memory:.0f} (at most 100)": memory <= 100,
    }
    for name, holds in limits.items():
        print("PASS" if holds else "FAIL", name)
    return 0 if all(limits.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
