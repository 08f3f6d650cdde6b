"""A change of quarantines: what leaves CI, or returns, is what was named."""

from types import SimpleNamespace
from typing import Any

import pytest

from runbook_lib.errors import Refused
from runbook_lib.failures.decide import RunFailures, Triage, open_tests
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.failed_jobs import DiagnosedJob
from runbook_lib.failures.quarantines import GatingFiles, QuarantineChange
from runbook_lib.golden.bisect_offer import ImageSearches
from runbook_lib.pins.bump import Bump
from runbook_lib.text.recipes.rows import FOLDER, Target
from runbook_lib.world.conditions.forge import IssueFiled

H100, A100 = (Target("x", platform, "dev", "gpt", "it hangs") for platform in ("dgx_h100", "dgx_a100"))
ISSUE = IssueFiled("x", "marker", "title", "body", "label")


def change(platforms: str, *tests: Target, environment: str = "dev") -> QuarantineChange:
    row = f"[{{environment: [{environment}], scope: [mr], platforms: [{platforms}]}}]"
    text = f"spec:\n  model: gpt\nproducts:\n  - test_case: [x]\n    products: {row}\n"
    return QuarantineChange(GatingFiles({f"{FOLDER}r.yaml": text}), dict.fromkeys(tests, ISSUE))


@pytest.mark.parametrize("own", [change("dgx_h100", H100), change("dgx_h100, dgx_a100", H100, A100)])
def test_rows_of_the_named_tests_alone_may_change(own: QuarantineChange) -> None:
    assert own.edits
    own.require_own_rows()


def test_a_row_that_covers_another_platform_needs_a_decision() -> None:
    with pytest.raises(Refused, match="also covers dev on dgx_a100") as caught:
        change("dgx_h100, dgx_a100", H100).require_own_rows()
    assert "whole-row" in str(caught.value)
    with pytest.raises(Refused, match="also covers lts on dgx_a100, lts on dgx_h100"):
        change("dgx_a100, dgx_h100", H100, A100, environment="lts, dev").require_own_rows()


def test_a_decision_on_one_platform_leaves_the_question_on_another() -> None:
    failure, named = Failure("gpt/x - latest", "", "hang", "It hangs."), change("dgx_h100, dgx_a100", H100)
    jobs = tuple(DiagnosedJob(failure, "gpt/x", platform=test.platform) for test in (H100, A100))
    run: Any = SimpleNamespace(bump=Bump.parse(tag="26.04-py3"))
    found = RunFailures(Triage(run, jobs, files=named.files), ImageSearches(), named)
    assert list(open_tests(found)) == ["gpt/x@dgx_a100"]
