"""GitLab's file after the edit of step 2: still valid by GitLab's schema, with the jobs that we wait for."""

from pathlib import Path

import pytest
from gitlab_reader import jobs

from runbook_lib.compute.internal_ci.plan import builds
from runbook_lib.images.reference import ImageType
from runbook_lib.images.tags.ngc import NgcTag
from runbook_lib.pins import plan as pins
from runbook_lib.pins.known_sites import MEGATRON_LM
from runbook_lib.practice import seed

pytestmark = pytest.mark.component("gitlab-ci-local")
BUILD = ".gitlab/stages/01.build.yml"


def files() -> dict[str, str]:
    return {path: text for path, text in seed.main().items() if path.startswith(".gitlab")}


def plain(name: str) -> str:
    # GitLab puts a space after each comma, the reader none.
    return name.replace(", ", ",")


@pytest.mark.parametrize(("image_type", "tag"), [("dev", "26.02-py3"), ("dev", "26.04-py3"), ("lts", "25.11-py3")])
def test_the_practice_file_stays_valid(tmp_path: Path, image_type: ImageType, tag: str) -> None:
    texts = {path: seed.main().get(path) for path in MEGATRON_LM.paths}
    plan = pins.plan(texts, MEGATRON_LM, NgcTag.parse(tag), image_type).part("gitlab")
    edited = files() | {it.path: it.after for it in plan.edits}
    before, after = jobs(tmp_path / "before", files()), jobs(tmp_path / "after", edited)
    old = {"dev": "26.02-py3", "lts": "25.09-py3"}[image_type]
    assert after == [name.replace(old, tag) for name in before]
    assert {plain(it.name) for it in builds({BUILD: edited[BUILD]}, MEGATRON_LM, image_type)} <= set(after)
