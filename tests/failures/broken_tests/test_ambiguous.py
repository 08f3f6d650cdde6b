"""An ambiguous golden value end to end: held back, run again by step 6, and flaky where its attempts differ."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from broken_tests.test_decide import ACCEPTED, BOTH, step06
from bumping import World, git, world
from test_golden_step import step05

from runbook_lib.practice import evidence
from runbook_lib.recipes.file_names import FOLDER

pytestmark = pytest.mark.slow
CASE = "moe/gpt3_moe_mcore_te_ep8"
#: The times that the base branch had, relative to the run's: quiet but for one version.
LEVELS = (1.01, 0.99, 1.02, 1.6, 1.01, 0.98, 1.01, 1.0)
FILE = f"{CASE}/golden_values_dev_dgx_h100.json"


def slower(text: str | bytes, factor: float) -> str:
    values = json.loads(text)
    times = values["iteration-time"]["values"]
    values["iteration-time"]["values"] = {step: time * factor for step, time in times.items()}
    return json.dumps(values)


def measure(patch: pytest.MonkeyPatch, factors: dict[float, float]) -> None:
    """Let attempts that start from a moment on measure a multiple of the test's time on H100."""
    archive = evidence.archive

    def scaled(job: Any, golden: Any, started: float, *rest: Any) -> bytes:
        data = archive(job, golden, started, *rest)
        if (f"{job.model}/{job.test_case}", job.platform) != (CASE, "dgx_h100"):
            return data
        factor = factors[max(moment for moment in factors if moment <= started)]
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            for member in old.namelist():
                content = old.read(member)
                if member.startswith("golden_values"):
                    content = slower(content, factor).encode()
                new.writestr(member, content)
        return out.getvalue()

    patch.setattr(evidence, "archive", scaled)


def judged(at: World) -> Any:
    """Run step 5, and return its judgement on the file."""
    judged = step05(at, **ACCEPTED).values.judged.verdicts
    return next(judgement for judgement in judged.judgements if judgement.file == FILE)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (1.6, "this is an earlier level: flaky, not drift; beyond it in 2 of 2 attempts"),  # A, B, A in the history
        (1.0, "beyond it in 1 of 2 attempts: flaky, not drift"),
    ],
)
def test_an_ambiguous_value_runs_again_and_ends_as_flaky(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: float, words: str
) -> None:
    with world(tmp_path) as at:
        golden = (at.checkout.path / FOLDER / FILE).read_text()
        for factor in LEVELS:
            at.commit_on("main", f"{FOLDER}/{FILE}", slower(golden, factor))
        git(at.checkout.path, "pull", "-q", "origin", "main")
        factors = {0.0: 1.6}
        measure(monkeypatch, factors)
        at.open_pr()
        step05(at, let_go=True)
        at.now[0] += 1000
        # The round is pushed without the ambiguous file, and then nothing but another attempt can decide.
        assert judged(at).verdict == "ambiguous"
        step06(at, broken=BOTH)
        assert "push" in at.effects()
        assert f"{FOLDER}/{FILE}" not in git(at.checkout.path, "diff", "--name-only", "origin/main", "HEAD").split()
        at.now[0] += 1000
        assert judged(at).verdict == "ambiguous"
        assert "held back" in at.outcome()
        factors[at.now[0]] = second
        for expected in (["rerun"], []):  # a second run waits for the attempt that the first has started
            step06(at, broken=BOTH)
            assert [effect for effect in at.effects() if effect == "rerun"] == expected
        run = at.github().runs("pull-request/10")[0]
        assert run.attempt == 2
        at.now[0] += 1000
        judgement = judged(at)
        assert judgement.verdict == "held back"
        (reason,) = judgement.reasons
        assert reason.sentence.endswith(words)
        assert (judged(at).verdict, judged(at).reasons) == ("held back", judgement.reasons)
        assert FILE in at.outcome()
        # A person decides what is flaky: nothing runs again, and nothing is written.
        step06(at, broken=BOTH)
        assert "rerun" not in at.effects()
        assert f"1 failed job to decide ({CASE} - latest)" in at.outcome()
        assert at.github().run(run.id).attempt == 2
        assert f"{FOLDER}/{FILE}" not in git(at.checkout.path, "diff", "--name-only", "origin/main", "HEAD").split()
