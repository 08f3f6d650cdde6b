from dataclasses import replace

import pytest

from runbook_lib.errors import Refused
from runbook_lib.golden.acceptance import (
    Acceptance,
    apply,
    apply_all,
    covered,
    parse,
    require_coverage,
    require_known,
    unconfirmed,
)
from runbook_lib.golden.form import Judgement, ReviewReason
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.losses import LossChange
from runbook_lib.golden.shifts import Group
from runbook_lib.text.redact import Redactor

GB200, H100 = "moe/a/golden_values_dev_dgx_gb200.json", "moe/a/golden_values_dev_dgx_h100.json"
TIME, MEMORY, TOKENS = "iteration-time", "mem-max-allocated-bytes", ""


def held_back(file, *metrics):
    return Judgement(file, "held back", tuple(ReviewReason(metric, "worse") for metric in metrics))


JUDGED = (
    held_back(GB200, MEMORY),
    held_back(H100, MEMORY, TIME),
    held_back("gpt/b/golden_values_dev_dgx_gb200.json", MEMORY),
    held_back("gpt/c/golden_values_dev_dgx_gb200.json", TOKENS),
    Judgement("gpt/d/golden_values_dev_dgx_gb200.json", "refused", (ReviewReason("", "NaN"),)),
    Judgement("gpt/e/golden_values_dev_dgx_gb200.json", "refresh"),
)
GROUP = Group("dgx_h100", "", TIME, 1.48, 1e-9, (H100,), 36, 36)
VERDICTS = Verdicts(JUDGED, (GROUP,))


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (" ; ", []),
        (f"{GB200}: slower: but right", [GB200]),
        ("gpt/e/golden_values_dev_dgx_gb200.json: as before", []),
        ("*/golden_values_dev_dgx_gb200.json [mem-max-allocated-bytes]: right", [GB200, JUDGED[2].file]),
        ("*/golden_values_dev_dgx_gb200.json: right", [GB200, JUDGED[2].file, JUDGED[3].file]),
        ("moe/*: right", [GB200, H100]),
        ("moe/?/* [mem-*]: right", [GB200]),
        ("moe/* [mem-*, iteration-time]: right", [GB200, H100]),
        (f"moe/* [mem-*]: right; {H100} [iteration-time]: slow", [GB200, H100]),
    ],
)
def test_files_that_an_entry_accepts(text, accepted):
    entries = accept(text)
    judged = [apply(judgement, entries) for judgement in JUDGED]
    assert [judgement.file for judgement in judged if judgement.accepted] == accepted
    assert all((judgement.verdict == "refresh") == bool(judgement.accepted) for judgement in judged[:-1])


def test_reasons_and_metrics_are_kept():
    entries = parse(f"moe/* [mem-*]: right; {H100} [iteration-time]: slow", Redactor({}))
    judgement = apply(JUDGED[1], entries)
    assert (judgement.accepted, judgement.accepted_metrics) == ("right; slow", (TIME, MEMORY))
    assert apply(JUDGED[1], entries[:1]).notes == ("accepted for mem-max-allocated-bytes only: right",)
    assert covered(entries, VERDICTS) == {
        "moe/* [mem-*]": [f"{GB200} [{MEMORY}]", f"{H100} [{MEMORY}]"],
        f"{H100} [iteration-time]": [f"{H100} [{TIME}]"],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.json", "file: reason"),
        ("a.json:", "file: reason"),
        (": why", "file: reason"),
        (f"{GB200}: x; {GB200}: y", "twice"),
        (f"{GB200} []: x", "empty brackets"),
        ("moe/z/golden_values_dev.json: x", "is not a golden file of a test. Did you mean moe/a/"),
        ("gpt/a/nonsense: x", "is not a golden file"),
        ("*/golden_values_dev_dgx_gb300.json: x", f"matches no golden file. Did you mean .*{GB200}"),
        ("*gb200.json [mem-alocated-bytes]: x", r"matches nothing .*gb200.json \[mem-max-allocated-bytes\]"),
        (f"{GB200} [iteration-time]: x", r"matches nothing .*\[mem-max-allocated-bytes\]"),
        ("gpt/e/*: x", "matches nothing that is held back. Held back: gpt/"),
        ("gpt/d/*: x", "matches nothing"),
        ("gpt/d/golden_values_dev_dgx_gb200.json: x", "cannot be accepted: NaN"),
    ],
)
def test_an_entry_that_accepts_nothing_is_refused(text, message):
    with pytest.raises(Refused, match=message):
        accept(text)


def accept(text):
    entries = parse(text, Redactor({}))
    require_known(entries, [judgement.file for judgement in JUDGED])
    require_coverage(entries, VERDICTS)
    return entries


@pytest.mark.parametrize("lost", [False, True], ids=["a divergence", "a lost metric"])
@pytest.mark.parametrize(
    ("name", "reason", "accepted"),
    [
        (GB200, "right", False),
        (GB200, "it no longer WORD", False),
        (GB200, "WORD: right", True),
        (GB200, "Word, but right", True),
        ("*", "right", False),
        ("*", "WORD: right", True),
    ],
)
def test_a_danger_is_accepted_only_by_a_reason_that_begins_with_its_word(lost, name, reason, accepted):
    word = "lost" if lost else "diverges"
    entries = parse(f"{name}: {reason.replace('WORD', word).replace('Word', word.title())}", Redactor({}))
    change = LossChange(9.0, 9, 0.1, 0.1, 0.0, {}, 5, diverges=True)
    dangerous = Judgement(GB200, "held back", (ReviewReason("lm loss", "worse", kind="gone" if lost else ""),))
    verdicts = Verdicts((dangerous if lost else replace(dangerous, losses={"lm loss": change}), held_back(H100, TIME)))
    judged, other = (applied := apply_all(verdicts, entries)).judgements
    assert bool(judged.accepted) == accepted
    assert bool(other.accepted) == (name == "*")  # the other decisions of a pattern are carried out
    missing = unconfirmed(entries, applied)
    assert missing.keys() == (set() if accepted else {GB200})
    written = parse("; ".join(f"{file}: {why}" for file, why in missing.items()), Redactor({}))
    assert accepted or apply(judged, written).accepted  # the message shows what to write
    assert apply(verdicts.judgements[0], entries, committed=True).accepted


def test_a_group_that_lost_a_metric_is_accepted_only_by_its_word():
    group = replace(GROUP, metric="form", ratio=None)
    for reason, accepted in [("right", False), ("lost: right", True)]:
        entries = parse(f"{group.id}: {reason}", Redactor({}))
        applied = apply_all(Verdicts(JUDGED, (group,)), entries)
        assert bool(applied.groups[0].accepted) == accepted
        assert unconfirmed(entries, applied) == ({} if accepted else {group.id: "lost: right"})


def test_a_pattern_may_be_repeated():
    entries = parse("gpt/e/*: right", Redactor({}))
    require_coverage(entries, VERDICTS, ["gpt/e/golden_values_dev_dgx_gb200.json"])


@pytest.mark.parametrize(
    ("entry", "accepted"),
    [
        (f"{GROUP.id}: the image is slower", True),
        ("*: all of it", False),
        ("dgx_h100/*: all of it", False),
        (f"{H100}: right", False),
        (f"{GROUP.id} [iteration-time]: right", False),
    ],
)
def test_a_group_is_accepted_by_its_id_alone(entry, accepted):
    entries = parse(entry, Redactor({}))
    verdicts = apply_all(VERDICTS, entries)
    assert bool(verdicts.groups[0].accepted) == accepted
    assert (H100 in verdicts.waiting) != accepted
    if accepted:
        require_known(entries, [H100])
        require_coverage(entries, VERDICTS)
        with pytest.raises(Refused, match="matches nothing that is held back"):
            require_coverage(entries, Verdicts(JUDGED))


@pytest.mark.parametrize(("ratio", "accepted"), [(1.48, True), (1.6, True), (1.45, True), (1.3, False), (0.7, False)])
def test_an_earlier_acceptance_covers_no_larger_shift(ratio, accepted):
    earlier = Acceptance(GROUP.id, GROUP.id, (), "known", ratio)
    assert bool(apply_all(VERDICTS, (), (earlier,)).groups[0].accepted) == accepted


def test_an_ambiguous_file_can_be_accepted():
    judgement = Judgement(H100, "ambiguous", (ReviewReason(TIME, "slower", ambiguous=True),))
    assert apply(judgement, parse(f"{H100}: known", Redactor({}))).verdict == "refresh"


def test_a_group_names_the_files_that_are_decided_separately():
    assert VERDICTS.exceptions(GROUP) == (f"{H100} (held back)",)
    assert VERDICTS.exceptions(replace(GROUP, files=("gpt/e/golden_values_dev_dgx_gb200.json",))) == ()
