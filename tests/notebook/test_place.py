"""The tags that a form offers."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import NEMO, NGC
from runbook_lib.notebook.place import RunTarget
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.pins.sites import PinnedImage, Sites

PYTORCH, NEMO_IMAGE = "nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/nemo"


def target(registry, images):
    made = RunTarget({})
    vars(made).update(
        world=SimpleNamespace(registry=registry), repository=replace(MEGATRON_LM, sites=Sites(images, ()))
    )
    return made


@pytest.mark.parametrize(
    ("images", "offered", "note"),
    [
        ((PinnedImage("nvcr.io/nvidia/new", NGC),), [], "nvcr.io/nvidia/new has no known release. Type the tag."),
        ((PinnedImage(PYTORCH, NGC),), ["26.06-py3", "26.04-py3"], "Newest: 26.06-py3."),
        (
            (PinnedImage(PYTORCH, NGC, "pytorch"), PinnedImage(NEMO_IMAGE, NEMO, "nemo")),
            ["pytorch:26.06-py3", "pytorch:26.04-py3", "nemo:25.11", "nemo:25.09"],
            "Newest: pytorch:26.06-py3. Newest: nemo:25.11.",
        ),
    ],
)
def test_the_newest_tags_of_every_image_are_offered(images, offered, note):
    published = {PYTORCH: ["26.04-py3", "26.06-py3", "26.06-py3-igpu"], NEMO_IMAGE: ["25.09", "25.11"]}

    def registry(ref):
        return contextlib.nullcontext(SimpleNamespace(tags=lambda: published.get(ref.name, ["latest"])))

    assert target(registry, images).tags() == (offered, note)


def test_a_registry_that_cannot_be_read_is_a_note():
    def registry(ref):
        raise RunbookError("No network.")

    note = "The registry could not be queried: No network. Type the tag."
    assert target(registry, MEGATRON_LM.sites.images).tags() == ([], note)
