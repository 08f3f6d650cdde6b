"""The tags that a form offers."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from runbook_lib.images.families import ALIBABA, NEMO, NGC
from runbook_lib.notebook import choices
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.pins.sites import PinnedImage, Sites

PYTORCH, NEMO_IMAGE = "nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/nemo"
TWO = Sites((PinnedImage(PYTORCH, NGC, "pytorch"), PinnedImage(NEMO_IMAGE, NEMO, "nemo")), ())


@pytest.mark.parametrize(
    ("family", "names", "pinned", "offered"),
    [
        (NGC, [], [], []),
        (NGC, ["latest"], ["26.04-py3"], []),
        (NGC, ["26.04-py3", "26.06-py3", "26.06-py3-igpu"], [], ["26.06-py3", "26.04-py3"]),
        (NGC, ["26.04-py3", "26.06-py3"], ["own-tag"], ["26.06-py3", "26.04-py3"]),
        (ALIBABA, ["25.04", "25.05", "25.06-serverless"], ["25.04"], ["25.05", "25.04", "25.06-serverless"]),
        (ALIBABA, ["25.05", "25.05-serverless", "25.06"], ["25.05-serverless"], ["25.05-serverless", "25.06", "25.05"]),
    ],
)
def test_the_newest_is_that_of_the_pinned_edition(family, names, pinned, offered):
    class Known:
        def tags(self):
            return names

    services = SimpleNamespace(registry=lambda ref: contextlib.nullcontext(Known()))
    repository = replace(MEGATRON_LM, sites=Sites((PinnedImage(PYTORCH, family),), ()))
    assert choices.tags(services, repository, {PYTORCH: pinned})[0] == offered


def test_the_tags_of_every_image_are_offered():
    published = {PYTORCH: ["26.04-py3", "26.06-py3"], NEMO_IMAGE: ["25.09", "25.11"]}

    class Known:
        def __init__(self, names):
            self.names = names

        def tags(self):
            return self.names

    services = SimpleNamespace(registry=lambda ref: contextlib.nullcontext(Known(published[ref.name])))
    pinned = {PYTORCH: ("26.04-py3",), NEMO_IMAGE: ("25.09",)}
    offered = choices.tags(services, replace(MEGATRON_LM, sites=TWO), pinned)
    assert offered == (
        ["pytorch:26.06-py3", "pytorch:26.04-py3", "nemo:25.11", "nemo:25.09"],
        "Newest: pytorch:26.06-py3. Pinned now: pytorch:26.04-py3. Newest: nemo:25.11. Pinned now: nemo:25.09.",
    )
