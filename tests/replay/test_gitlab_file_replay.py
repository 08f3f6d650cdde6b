"""GitLab's files of the real repository, before and after a bump's edit, by GitLab's schema."""

from pathlib import Path

import pytest
from gitlab_reader import jobs

from runbook_lib.compute.internal_gitlab import builds
from runbook_lib.images.families import NGC
from runbook_lib.images.reference import ImageType
from runbook_lib.pins import plan as pins
from runbook_lib.pins import repositories
from runbook_lib.world.git.checkout import Checkout

MEGATRON_LM = repositories.MEGATRON_LM.sites

pytestmark = [pytest.mark.replay, pytest.mark.component("gitlab-ci-local")]


@pytest.mark.parametrize(
    ("start", "image_type", "tag"),
    [
        ("44ab057fef^", "dev", "25.09-py3"),  # layout 1
        ("82049aa847^", "dev", "25.11-py3"),  # layout 2
        ("f5b2ec0130^", "dev", "26.02-py3"),  # layout 3
        ("64bee49c96^", "dev", "26.06-py3"),  # layout 4
        ("d98e8a64dd", "dev", "26.07-py3"),
        ("d98e8a64dd", "lts", "26.02-py3"),
    ],
)
def test_the_edited_file_is_valid_and_has_the_jobs_that_prove_the_pin(
    megatron_lm: Path, tmp_path: Path, start: str, image_type: ImageType, tag: str
) -> None:
    checkout = Checkout.open(megatron_lm)
    listed = checkout.git("ls-tree", "-r", "--name-only", start, "--", ".gitlab", ".gitlab-ci.yml").splitlines()
    texts = {path: text or "" for path, text in checkout.read(listed, start).items() if path.endswith(".yml")}
    known = checkout.read(MEGATRON_LM.paths, start)
    target, allow = NGC.read(tag), frozenset({"older-tag"})
    plan = pins.plan(known, MEGATRON_LM, target, image_type, allow=allow, digest_of_target=str).part("gitlab")
    assert plan.edits
    edited = texts | {it.path: it.after for it in plan.edits}
    before, after = jobs(tmp_path / "before", texts), jobs(tmp_path / "after", edited)
    assert len(before) == len(after) > 20
    expected = {it.name.replace(", ", ",") for it in builds(known | edited, MEGATRON_LM, image_type)}
    assert expected <= set(after)
    assert set(after) - set(before) <= expected  # nothing else has another name than before
