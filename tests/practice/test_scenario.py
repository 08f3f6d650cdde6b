"""What happens with only one image of the practice registry, as the steps that meet it tell."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_tests.test_decide import Observed
from bumping import World, git, world
from test_golden_step import step05

from runbook_lib.bump.run_ci import RunCi, push_round
from runbook_lib.failures.tracking_issue import review_date

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


def failures(at: World, **told: str) -> dict[str, str]:
    """Job → kind of its failure, as step 6 finds it."""
    step = Observed()
    at.run(step, push_round, tag=TAG, **told)
    return {job.failure.job: job.failure.kind for job in step.facts[0].found.triage.jobs}


def test_a_red_unit_test_hides_the_functional_ones_until_it_is_decided(at: World) -> None:
    step05(at, tag=TAG)
    assert HIDDEN in at.outcome()
    assert failures(at) == {"tests/unit_tests/models/ - latest": "unit tests"}
    assert at.said("waiting")[-1]["sentence"].startswith("waiting for a person: 1 failed job to decide")
    asked = [entry["subject"] for entry in at.said("decisions") if entry["kind"] == "broken"]
    assert asked == [f"{UNIT}::TestPractice::test_shapes"]
    before = (at.checkout.path / UNIT).read_text()
    failures(at, broken=f"{asked[0]}: wrong with this image")
    assert [effect for effect in at.effects() if effect != "edit"] == [
        "issue", "commit", "pull request", "push", "comment",
    ]  # fmt: skip
    assert set(at.checks().values()) == {"passed"}
    number = max(issue.number for issue in at.github().list_issues())
    comment = f"# Broken: wrong with this image — see issue #{number}, review by {review_date()}."
    commit = git(at.remote, "rev-parse", "bump/main/dev-26.06-py3")
    marked = f"    {comment}\n    @pytest.mark.flaky_in_dev\n    def "
    assert git(at.remote, "show", f"{commit}:{UNIT}") == before.replace("    def ", marked).replace(
        "import torch", "import pytest\nimport torch"
    ).rstrip("\n")
    body = at.github().pulls()[0].body
    assert f"- `{UNIT}::test_shapes` on `all`: wrong with this image (tracked by #{number})" in body
    at.now[0] += 1000
    ran = step05(at, tag=TAG)
    assert {(it.job, it.sentence) for it in ran.values.unavailable} == EXPIRED
    verdicts = {it.file: it.verdict for it in ran.values.verdicts.judgements}
    assert verdicts[SLOWER] == "held back"
    assert not [file for file in verdicts if file.startswith("moe/gpt3_moe_mcore_te_ep8")]
    (run,) = at.github().runs(head_sha=commit)
    assert {upload.expired for upload in at.github().artifacts(run.id)} == {True, False}
    at.github().rerun_failed(run.id)
    at.now[0] += 1000
    assert step05(at, tag=TAG).values.unavailable == ()
