"""A practice repository whose registry gets new months, for `runbook watch`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from bumping import World, git, world
from registry_server import RegistryServer, content

from runbook_lib.bump.watch import WatchResult, watch
from runbook_lib.pins.bump import Bump
from runbook_lib.practice.store import scripted
from runbook_lib.world.github.models import Pull
from runbook_lib.world.ports import ONLINE
from runbook_lib.world.repository import choose

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
        known = {month: scripted("images").get(month) or scripted("images")["26.04"] for month in offered}
        server = RegistryServer(stored=content(known), listen=self.world.listen)
        self._undo.callback(server.close)
        self._patch.setenv("RUNBOOK_REGISTRY", server.url)

    def watch(self, *, publish: bool = True) -> WatchResult:
        (result,) = self.watch_images(publish=publish)
        return result

    def watch_images(self, *, publish: bool = True) -> tuple[WatchResult, ...]:
        mode = "publish" if publish else "preview"
        return watch(self.world.checkout, Bump.parse(mode=mode, repository=choose(self.world.checkout)), ONLINE)

    def several(self) -> None:
        """Declare two images."""
        self.world.commit_on("main", "b.txt", "mirror.example.com/nvidia/pytorch:26.02-py3\n")
        self.hold()

    def hold(self, *tags: str) -> None:
        """Hold these tags in a pins file."""
        held = "".join(f"  - {{tag: '{tag}', reason: slow}}\n" for tag in tags)
        (self.world.home / "pins.yaml").write_text(f"{IMAGES.rpartition('  -')[0]}hold:\n{held}" if tags else IMAGES)
        self._patch.setenv("RUNBOOK_PINS", str(self.world.home / "pins.yaml"))

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
