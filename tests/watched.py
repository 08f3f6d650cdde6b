"""A practice repository whose registry gets new months, for `runbook watch`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path

import pytest
from bumping import World, git, world
from registry_server import RegistryServer, content

from runbook_lib.bump.watch import WatchOptions, WatchResult, watch
from runbook_lib.practice.registry import months
from runbook_lib.world.github.models import Pull
from runbook_lib.world.services import ONLINE

TODAY = date(2026, 6, 1)
IMAGES = """\
version: 1
image: nvcr.io/nvidia/pytorch
pins:
  - {path: docker/.ngc_version.dev, find: {file: whole}}
  - {path: b.txt, find: {file: whole}, image: mirror.example.com/nvidia/pytorch}
"""


class Watched:
    """The world, its registry, and ``runbook watch`` on a day."""

    def __init__(self, world: World, undo: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self.world, self._undo, self._patch = world, undo, patch
        patch.setenv("GITHUB_API_URL", world.served.url)
        patch.setenv("GITHUB_TOKEN", "practice-token")
        patch.setenv("RUNBOOK_AUDIT", str(world.home / "audit"))
        patch.delenv("RUNBOOK_DRIVERS", raising=False)
        self.offer("26.02", "26.04")

    def offer(self, *offered: str) -> None:
        """Offer the images of these months, those of 2026 and any later one."""
        known = {month: months().get(month) or months()["26.04"] for month in offered}
        server = RegistryServer(stored=content(known), listen=self.world.listen)
        self._undo.callback(server.close)
        self._patch.setenv("RUNBOOK_REGISTRY", server.url)

    def watch(self, day: date = TODAY, *, publish: bool = True) -> WatchResult:
        (result,) = self.watch_images(day, publish=publish)
        return result

    def watch_images(self, day: date = TODAY, *, publish: bool = True) -> tuple[WatchResult, ...]:
        return watch(self.world.checkout, WatchOptions(day, ONLINE, publish=publish))

    def several(self) -> str:
        """The path of a pins file with two images."""
        self.world.commit_on("main", "b.txt", "mirror.example.com/nvidia/pytorch:26.02-py3\n")
        pins = self.world.home / "images.yaml"
        pins.write_text(IMAGES)
        return str(pins)

    def rules(self, text: str) -> None:
        (self.world.home / "checkout/.base-image-watch.yaml").write_text(text)

    def pulls(self) -> list[Pull]:
        return sorted(self.world.github().pulls(state="all"), key=lambda pull: pull.number)

    def merge(self, number: int) -> None:
        """Merge a pull request and delete its branch."""
        head = self.world.github().pull(number).head_ref
        self.world.forge.merge(number)
        assert self.world.github().pull(number).merged
        git(self.world.home / "checkout", "push", "-q", "origin", f":{head}")

    def close(self, number: int) -> None:
        self.world.forge.close(number)


@contextmanager
def watched(home: Path, *, listen: bool = False) -> Iterator[Watched]:
    """Yield one; with ``listen`` its servers are there for kernels and commands, too."""
    with ExitStack() as undo:
        patch = undo.enter_context(pytest.MonkeyPatch.context())
        made = undo.enter_context(world(home))
        made.listen = listen
        yield Watched(made, undo, patch)
