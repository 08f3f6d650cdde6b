"""The tags that a form offers."""

import contextlib
from dataclasses import replace

import pytest

from runbook_lib.clients.registry.client import Registry, Tags
from runbook_lib.forms import choices
from runbook_lib.images.families import ALIBABA, NGC
from runbook_lib.pins.repositories import MEGATRON_LM


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
def test_the_newest_is_that_of_the_pinned_edition(monkeypatch, family, names, pinned, offered):
    class Known:
        def known_tags(self):
            return Tags(tuple(names))

    monkeypatch.setattr(Registry, "connect", lambda ref: contextlib.nullcontext(Known()))
    group = replace(MEGATRON_LM.sites.groups[0], family=family)
    repository = replace(MEGATRON_LM, sites=replace(MEGATRON_LM.sites, groups=(group,)))
    assert [choice.label for choice in choices.tags(repository, pinned).choices] == offered
