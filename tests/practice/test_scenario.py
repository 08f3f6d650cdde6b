"""What happens with only one image of the practice registry, as the steps that meet it tell."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_tests.test_decide import Observed
from bumping import World, bump_to, git, world
from test_golden_step import step05

from runbook_lib.bump import push_round
from runbook_lib.bump.run_ci import RunCi

TAG = "26.06-py3"
UNIT = "tests/unit_tests/models/test_practice.py"
SLOWER = "gpt/gpt_dynamic_inference_tp1_583m/golden_values_dev_dgx_h100.json"
HIDDEN = "No functional test ran, because unit tests failed (tests/unit_tests/models/ - latest)"
EXPIRED = {("moe/gpt3_moe_mcore_te_ep8 - latest", "The artifact has expired. Run the test again.")}


@pytest.fixture
def at(tmp_path: Path) -> Iterator[World]:
    """A bump whose first CI run has ended with a red unit test."""
    with world(tmp_path) as made:
        made.open_pr(tag=TAG)
        made.run(RunCi(), tag=TAG)
        made.now[0] += 1000
        yield made


def mark(at: World) -> str:
    """Leave the unit test to the next image, as upstream does; return the commit, which is a person's."""
    git(at.checkout.path, "switch", "-q", bump_to(TAG).branch)
    file = at.checkout.path / UNIT
    file.write_text(file.read_text().replace("    def ", "    @pytest.mark.flaky_in_dev\n    def "))
    git(at.checkout.path, "commit", "-qam", "test: Leave out test_shapes with the dev image")
    git(at.checkout.path, "push", "-q", "origin", bump_to(TAG).branch)
    return git(at.checkout.path, "rev-parse", "HEAD")


def failures(at: World, **told: str) -> dict[str, str]:
    """Job → kind of its failure, as step 6 finds it."""
    step = Observed()
    at.run(step, push_round, tag=TAG, **told)
    return {job.failure.job: job.failure.kind for job in step.facts[0].found.triage.jobs}


def test_a_red_unit_test_hides_the_functional_ones_until_somebody_marks_it(at: World) -> None:
    step05(at, tag=TAG)
    assert HIDDEN in at.outcome()
    assert failures(at) == {"tests/unit_tests/models/ - latest": "unit tests"}
    commit = mark(at)
    at.run(RunCi(), tag=TAG)
    assert "a commit that the runbook did not make" in at.outcome()
    allow = f"foreign-commit:{commit}"
    at.run(RunCi(), tag=TAG, allow=allow)
    at.now[0] += 1000
    ran = step05(at, tag=TAG, allow=allow)
    assert {(it.job, it.sentence) for it in ran.values.unavailable} == EXPIRED
    verdicts = {it.file: it.verdict for it in ran.values.judged.verdicts.judgements}
    assert verdicts[SLOWER] == "held back"
    assert not [file for file in verdicts if file.startswith("moe/gpt3_moe_mcore_te_ep8")]
    (run,) = at.github().runs(head_sha=commit)
    assert {upload.expired for upload in at.github().artifacts(run.id)} == {True, False}
    at.github().rerun_failed(run.id)
    at.now[0] += 1000
    assert step05(at, tag=TAG, allow=allow).values.unavailable == ()
