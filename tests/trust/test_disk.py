"""A full disk: nothing half-written, a sentence, and the next run completes the bump."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import practised
import pytest
from cells import MOMENTS
from small_runbooks import ROOT

#: So many kilobytes are free, each in turn; a whole bump takes about 4,000.
FREE = sorted(random.Random(5).sample(range(1, 3000), 20))
_ALONE = ("unshare", "--map-root-user", "--mount")


def test_any_write_may_be_the_first_that_fails(tmp_path: Path) -> None:
    draw = random.Random(5)
    with practised.world(practised.template(tmp_path / "made"), tmp_path / "w") as world:
        for cell in sorted(draw.choices(list(MOMENTS), [*MOMENTS.values()], k=10)):
            stop = {"cell": cell, "moment": 1 + draw.randrange(MOMENTS[cell]), "signal": 0, "group": 0, "later": 0}
            status, told = world.bump(STOP=json.dumps(stop))
            assert status == 1, told
            assert re.search("(?i)disk is full|no space left", told), told
            practised.at_any_moment(world)
        assert world.bump()[0] == 0
        practised.at_the_end(world)


def test_a_bump_on_a_full_disk(tmp_path: Path) -> None:
    """In a process of its own, which alone sees that disk."""
    if subprocess.run([*_ALONE, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("this machine does not let users mount anything")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/trust")))
    words = [*_ALONE, sys.executable, "-c", "import sys, test_disk; test_disk.fill(sys.argv[1])", str(tmp_path)]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def fill(home: str) -> None:
    folder = Path(home)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "none", str(folder)], check=True)
    filler, failed = folder / "filler", 0
    made = practised.template(folder / "made")
    with practised.world(made, folder / "w") as world:
        world.ended(world.start(parameters={"tag": ""}))  # once, so that caches are there
        for kilobytes in FREE:
            filler.unlink(missing_ok=True)
            free = os.statvfs(folder)
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - kilobytes * 1024)
            status, told = world.bump()
            print(kilobytes, status, told[-1000:])
            failed += status != 0
            filler.unlink()
            practised.at_any_moment(world)
        status, told = world.bump()
        assert (status, "Ready to merge" in told) == (0, True), told
        practised.at_the_end(world)
    assert failed > len(FREE) / 2
