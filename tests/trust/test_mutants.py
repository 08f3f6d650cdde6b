"""Planted faults: every guarantee of SECURITY.md has one, each still applies, and a sample of them is caught.

All of them are tried by `environment/run python tests/trust/mutants/run.py`.
"""

import random
import subprocess
from pathlib import Path

import pytest
from mutants import run
from mutants.run import Mutant, MutantError

MUTANTS = run.load()
ROWS = run.rows((run.ROOT / "SECURITY.md").read_text())
TESTS = run.ROOT / "tests"
#: Mutants that are tried with all other tests; each takes some seconds.
_SAMPLE = 5


def mutant(before: str, after: str = "changed") -> Mutant:
    return Mutant("an-id", "a threat", "test_x.py", before, after)


def test_a_text_that_is_missing_or_occurs_twice_is_an_error(tmp_path: Path) -> None:
    files = (tmp_path / "a.py", tmp_path / "b.py")
    files[0].write_text("one\ntwo\nboth\n")
    files[1].write_text("three\nthree\nboth\n")
    assert run.locate(mutant("two"), files) == files[0]
    with pytest.raises(MutantError, match="an-id does not apply: its text is in no file"):
        run.locate(mutant("four"), files)
    for text in ("three", "both"):
        with pytest.raises(MutantError, match="occurs more than once"):
            run.locate(mutant(text), files)
    with pytest.raises(MutantError, match="changes nothing"):
        run.locate(mutant("one", "one"), files)


def test_every_mutant_applies() -> None:
    files = run.sources(run.ROOT)
    errors = []
    for each in MUTANTS:
        try:
            run.locate(each, files)
        except MutantError as error:
            errors.append(str(error))
    assert errors == []
    assert len({each.id for each in MUTANTS}) == len(MUTANTS)


def test_every_guarantee_has_a_mutant_and_every_mutant_one_guarantee() -> None:
    assert len(ROWS) > 30
    mutated = {each.id: [row for row in ROWS if each.guarantee in row.threat] for each in MUTANTS}
    assert {name: len(found) for name, found in mutated.items() if len(found) != 1} == {}
    assert [row.threat for row in ROWS if [row] not in mutated.values()] == []


def test_every_mutant_is_caught_by_a_test_that_its_row_names() -> None:
    named = {each.id: [row.tests for row in ROWS if each.guarantee in row.threat] for each in MUTANTS}
    assert [each.id for each in MUTANTS if each.test.partition("::")[0] not in named[each.id][0]] == []


def test_every_named_test_exists() -> None:
    missing = [test for row in ROWS for test in row.tests if not (TESTS / test).is_file()]
    for each in MUTANTS:
        file, _, node = each.test.partition("::")
        function = node.partition("[")[0]
        if not (TESTS / file).is_file() or f"def {function}(" not in (TESTS / file).read_text() + "def (":
            missing.append(f"{each.id}: {each.test}")
    assert missing == []


@pytest.mark.timeout(900)
def test_a_sample_of_the_mutants_is_caught() -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=run.ROOT, capture_output=True, text=True).stdout
    cheap = [each for each in MUTANTS if not each.slow]
    with run.scratch() as copy:
        results = {each.id: copy.try_mutant(each) for each in random.Random(commit).sample(cheap, _SAMPLE)}
    assert {name: result for name, result in results.items() if result.outcome != "caught"} == {}
