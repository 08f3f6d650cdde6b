"""The tags that a form offers."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import ALIBABA, NEMO, NGC
from runbook_lib.notebook import choices
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.pins.sites import PinnedImage, Sites

PYTORCH, NEMO_IMAGE = "nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/nemo"
TWO = Sites((PinnedImage(PYTORCH, NGC, "pytorch"), PinnedImage(NEMO_IMAGE, NEMO, "nemo")), ())


@pytest.mark.parametrize(
    ("family", "names", "pinned", "offered"),
    [
        (NGC, [], [], []),
        (NGC, ["latest"], ["26.04-py3"], []),
        (NGC, ["26.04-py3", "26.06-py3", "26.06-py3-igpu"], [], ["26.06-py3 (newest)", "26.04-py3"]),
        (NGC, ["26.04-py3", "26.06-py3"], ["26.04-py3"], ["26.06-py3 (newest)", "26.04-py3 (pinned now)"]),
        (NGC, ["26.04-py3", "26.06-py3"], ["own-tag"], ["26.06-py3 (newest)", "26.04-py3"]),
        (
            ALIBABA,
            ["25.04", "25.05", "25.06-serverless"],
            ["25.04"],
            ["25.05 (newest)", "25.04 (pinned now)", "25.06-serverless"],
        ),
        (
            ALIBABA,
            ["25.05", "25.05-serverless", "25.06"],
            ["25.05-serverless"],
            ["25.05-serverless (pinned now)", "25.06", "25.05"],
        ),
    ],
)
def test_the_newest_is_that_of_the_pinned_edition(family, names, pinned, offered):
    class Known:
        def tags(self):
            return names

    services = SimpleNamespace(registry=lambda ref: contextlib.nullcontext(Known()))
    repository = replace(MEGATRON_LM, sites=Sites((PinnedImage(PYTORCH, family),), ()))
    assert [label for label, _ in choices.tags(services, repository, {PYTORCH: pinned})[0]] == offered


def test_the_tags_of_every_image_are_offered():
    published = {PYTORCH: ["26.04-py3", "26.06-py3"], NEMO_IMAGE: ["25.09", "25.11"]}

    class Known:
        def __init__(self, names):
            self.names = names

        def tags(self):
            return self.names

    services = SimpleNamespace(registry=lambda ref: contextlib.nullcontext(Known(published[ref.name])))
    offered = choices.tags(
        services, replace(MEGATRON_LM, sites=TWO), {PYTORCH: ("26.04-py3",), NEMO_IMAGE: ("25.09",)}
    )[0]
    assert [(value, label) for label, value in offered] == [
        ("pytorch:26.06-py3", "pytorch:26.06-py3 (newest)"),
        ("pytorch:26.04-py3", "pytorch:26.04-py3 (pinned now)"),
        ("nemo:25.11", "nemo:25.11 (newest)"),
        ("nemo:25.09", "nemo:25.09 (pinned now)"),
    ]


def test_a_tag_is_looked_up_at_the_image_that_it_names():
    asked = []

    def connect(ref):
        asked.append(ref.name)
        raise RunbookError("enough")

    with pytest.raises(RunbookError):
        choices.tag_problem(
            SimpleNamespace(registry=connect), Bump.parse(tag="nemo:25.11", repository=replace(MEGATRON_LM, sites=TWO))
        )
    assert asked == [NEMO_IMAGE]
