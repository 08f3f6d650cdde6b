"""The tags that a form offers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import NEMO, NGC
from runbook_lib.notebook.place import RunTarget
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.pins.sites import PinnedImage, Sites

PYTORCH, NEMO_IMAGE, NEW = "nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/nemo", "nvcr.io/nvidia/new"


@pytest.mark.parametrize(
    ("images", "offered", "note"),
    [
        ((PinnedImage(NEW, NGC),), [], f"{NEW} has no known release. Type the tag."),
        ((PinnedImage("ghcr.io/a", NGC),), [], "The registry could not be queried: No network. Type the tag."),
        ((PinnedImage(PYTORCH, NGC),), ["26.06-py3", "26.04-py3"], "Newest: 26.06-py3."),
        (
            (PinnedImage(PYTORCH, NGC, "pytorch"), PinnedImage(NEMO_IMAGE, NEMO, "nemo")),
            ["pytorch:26.06-py3", "pytorch:26.04-py3", "nemo:25.11", "nemo:25.09"],
            "Newest: pytorch:26.06-py3. Newest: nemo:25.11.",
        ),
    ],
)
def test_the_newest_tags_of_every_image_are_offered(images, offered, note):
    published = {PYTORCH: ["26.04-py3", "26.06-py3", "26.06-py3-igpu"], NEMO_IMAGE: ["25.09", "25.11"], NEW: ["latest"]}

    def registry(ref):
        if ref.name not in published:
            raise RunbookError("No network.")
        return SimpleNamespace(tags=lambda: published[ref.name])

    target = RunTarget({})
    repository = replace(MEGATRON_LM, sites=Sites(images, ()))
    vars(target).update(world=SimpleNamespace(registry=registry), repository=repository)
    assert target.tags() == (offered, note)
