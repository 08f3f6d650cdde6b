from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import (
    DEV,
    DOCKERFILE,
    DOCKERFILE_LTS,
    GITLAB,
    INSTALL_GUIDE,
    INSTALL_TEST,
    LINTING,
    LTS,
    NCCL,
    NEMO,
    PROJECT,
    dockerfile,
    image,
    layout,
    matrix,
    row,
    rows,
)

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.families import NGC
from runbook_lib.pins import plan as pins
from runbook_lib.pins import repositories
from runbook_lib.pins.check import check_pins, outcome
from runbook_lib.text import edits

MEGATRON_LM = repositories.MEGATRON_LM.sites

TARGET = NGC.read("26.04-py3")
LAYOUTS = [1, 2, 3, 4]


def plan(texts, target="26.04-py3", image_type="dev", **options):
    return pins.plan(texts, MEGATRON_LM, NGC.read(target), image_type, **{"digest_of_target": unknown} | options)


def unknown():
    raise CannotTell("The registry has no digest.")


def applied(texts, made):
    return {**texts, **{edit.path: edit.after for edit in made.edits}}


def changed_lines(made):
    return [line for line in edits.diff(made.edits).splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]


# -- plan: what it changes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image_type", "target", "pins_of_layout"),
    [
        ("dev", "26.04-py3", [[GITLAB], [DEV, GITLAB], [DEV, GITLAB], [DEV, GITLAB, DOCKERFILE]]),
        ("lts", "25.11-py3", [[GITLAB], [LTS, GITLAB], [LTS, GITLAB], [LTS, GITLAB]]),
    ],
)
@pytest.mark.parametrize("number", LAYOUTS)
@pytest.mark.parametrize("dev", ["26.02-py3", "25.09-py3"], ids=["other tag than lts", "same tag as lts"])
def test_a_bump_moves_every_pin_of_its_type_and_nothing_else(number, dev, image_type, target, pins_of_layout):
    texts, paths = layout(number, dev=dev), pins_of_layout[number - 1]
    made = plan(texts, target, image_type)
    wanted = layout(number, **{"dev": dev, image_type: target})
    assert [(edit.path, edit.before, edit.after) for edit in made.edits] == [
        (path, texts[path], wanted[path]) for path in paths
    ]
    assert plan(applied(texts, made), target, image_type).edits == ()


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", " \n\n"])
def test_the_line_end_of_a_whole_file_pin_stays(ending):
    texts = layout(4) | {DEV: image("26.02-py3") + ending}
    assert applied(texts, plan(texts))[DEV] == image("26.04-py3") + ending


def test_an_lts_default_is_moved_by_an_lts_bump():
    texts = layout(4) | {DOCKERFILE_LTS: dockerfile("25.09-py3")}
    after = applied(texts, plan(texts, "25.11-py3", "lts"))
    assert after[DOCKERFILE_LTS] == dockerfile("25.11-py3")
    assert after[DOCKERFILE] == texts[DOCKERFILE]


@pytest.mark.parametrize(
    ("texts", "places"),
    [
        (layout(4) | {DEV: image("26.04-py3")}, [(GITLAB, 30), (GITLAB, 35), (DOCKERFILE, 3)]),
        (layout(3) | {GITLAB: matrix(rows(3, "26.04-py3", "25.09-py3").replace("26.04", "26.02", 1))},
         [(DEV, 1), (GITLAB, 32)]),
    ],
)  # fmt: skip
def test_a_half_done_bump_is_finished(texts, places):
    assert [(change.path, change.line) for change in plan(texts).changes] == places


def test_changes_name_file_line_row_and_values():
    made = plan(layout(4))
    assert [(change.path, change.line, change.ci, change.selector) for change in made.changes] == [
        (DEV, 1, "github", "whole file"),
        (GITLAB, 30, "gitlab", "BASE_IMAGE where IMAGE: CI_MCORE_DEV_IMAGE, PLATFORM: amd64"),
        (GITLAB, 35, "gitlab", "BASE_IMAGE where IMAGE: CI_MCORE_DEV_IMAGE, PLATFORM: arm64"),
        (DOCKERFILE, 3, "github", "ARG FROM_IMAGE_NAME"),
    ]
    assert {(change.old, change.new) for change in made.changes} == {(image("26.02-py3"), image("26.04-py3"))}
    assert made.platforms == ("amd64", "arm64")
    assert plan(layout(2)).platforms == ()
    assert made.part("github").changes == (made.changes[0], made.changes[3])
    assert made.part("gitlab").changes == made.changes[1:3]
    assert [edit.path for edit in made.part("github").edits] == [DEV, DOCKERFILE]
    assert [edit.path for edit in made.part("gitlab").edits] == [GITLAB]


# -- plan: values that several rows share ----------------------------------------------------------------------------

_SHARED = (
    "      - &{name}\n        IMAGE: CI_MCORE_DEV_IMAGE\n        FILE: Dockerfile.ci.dev\n        IMAGE_TYPE: dev\n"
)


def lts_rows(tag):
    return rows(4, "26.02-py3", tag).partition("      - IMAGE: CI_MCORE_DEV")[0]


def dev_rows(*values):
    return "".join(
        row("CI_MCORE_DEV_IMAGE", "X", file="Dockerfile.ci.dev", image_type="dev", platform=platform)
        .replace(image("X"), value)
        for platform, value in zip(("amd64", "arm64"), values, strict=True)
    )  # fmt: skip


def test_one_value_of_two_rows_is_one_change():
    texts = layout(4) | {GITLAB: matrix(lts_rows("25.09-py3") + dev_rows(f"&dev '{image('26.02-py3')}'", "*dev"))}
    made = plan(texts).part("gitlab")
    assert [(change.line, change.selector.count("PLATFORM")) for change in made.changes] == [(30, 2)]
    assert changed_lines(made) == [
        f"-        BASE_IMAGE: &dev '{image('26.02-py3')}'",
        f"+        BASE_IMAGE: &dev '{image('26.04-py3')}'",
    ]


def test_a_value_that_is_defined_elsewhere_is_changed_there():
    text = f".dev: &dev {image('26.02-py3')}\n" + matrix(lts_rows("25.09-py3") + dev_rows("*dev", "*dev"))
    (edit,) = plan(layout(4) | {GITLAB: text}).part("gitlab").edits
    assert edit.after == text.replace("26.02", "26.04")


def test_a_value_shared_with_the_other_type_is_refused_unless_both_may_move():
    shared = lts_rows("25.09-py3").replace(f"BASE_IMAGE: {image('25.09-py3')}", "BASE_IMAGE: *both")
    text = f".both: &both {image('25.09-py3')}\n" + matrix(shared + dev_rows("*both", "*both"))
    texts = layout(4, dev="25.09-py3") | {GITLAB: text}
    for image_type in ("dev", "lts"):
        with pytest.raises(Refused, match=r"build\.yml:1 is one value \(an anchor\) for .*what: both-types") as caught:
            plan(texts, image_type=image_type)
        assert caught.value.exception == "both-types"
    after = applied(texts, plan(texts, allow=frozenset({"both-types"})))
    assert after[GITLAB] == text.replace("25.09", "26.04")
    assert (after[DEV], after[LTS]) == (image("26.04-py3") + "\n", image("26.04-py3"))


# -- plan: refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", LAYOUTS)
def test_an_older_tag_is_refused_with_the_exception_that_permits_it(number):
    with pytest.raises(Refused, match=r"The tag 25\.11-py3 is older than the pin in .*what: older-tag") as caught:
        plan(layout(number), "25.11-py3")
    assert caught.value.exception == "older-tag"
    made = plan(layout(number), "25.11-py3", allow=frozenset({"older-tag"}))
    assert {change.new for change in made.changes} == {image("25.11-py3")}


def test_a_tag_older_than_the_newest_pin_is_refused_though_another_pin_is_older_still():
    with pytest.raises(Refused, match=r"older than the pin in docker/\.ngc_version\.dev:1 \(26\.06-py3\), so"):
        plan(layout(4) | {DEV: image("26.06-py3")}, "26.04-py3")


def test_the_age_of_the_other_type_does_not_matter():
    assert plan(layout(4, lts="26.08-py3")).edits
    assert plan(layout(4, dev="26.08-py3"), "25.11-py3", "lts").edits


@pytest.mark.parametrize(
    ("number", "broken", "part"),
    [
        (4, {GITLAB: None}, f"{GITLAB} (lockstep dev): the file does not exist, but every known layout"),
        (4, {DEV: None}, f"{DEV} (lockstep dev): the file does not exist, but docker/.ngc_version.lts does."),
        (4, {DEV: None, LTS: None},
         f"{DEV} (lockstep dev): the file does not exist, but the matrix row in line 27 has IMAGE_TYPE"),
        (2, {DEV: None, LTS: None}, "has IMAGE_TYPE"),
        (4, {DOCKERFILE: None}, f"{DOCKERFILE} (lockstep dev): the file does not exist, but the matrix row in line 27"),
        (4, {GITLAB: matrix(rows(4, "26.02-py3", "25.09-py3").replace("ci.lts", "ci.dev", 1))},
         "the row IMAGE: CI_MCORE_LTS_IMAGE in line 19 (test:pre_build_image) is of an unknown shape"),
        (4, {GITLAB: matrix(rows(4, "26.02-py3", "25.09-py3").replace(image("26.02-py3"), "$BASE", 1))},
         "line 30, BASE_IMAGE where IMAGE: CI_MCORE_DEV_IMAGE, PLATFORM: amd64: '$BASE' is not a full image reference"),
        (4, dict.fromkeys(layout(4)), "the file does not exist"),
        (4, {DEV: "nvcr.io/nvidia/tensorrt:26.02-py3"},
         f"{DEV} (lockstep dev): line 1, whole file: it names the image nvcr.io/nvidia/tensorrt; expected"),
        (4, {DEV: image("latest")}, "'latest' is not a tag of the monthly NGC images"),
    ],
)  # fmt: skip
def test_missing_duplicate_and_unknown_sites_stop_the_plan(number, broken, part):
    with pytest.raises(CannotTell) as caught:
        plan(layout(number) | broken)
    assert part in str(caught.value)


def test_a_problem_of_the_other_type_in_a_file_of_its_own_is_a_warning():
    texts = layout(4) | {LTS: "two\nlines\n"}
    (warning,) = plan(texts).warnings[:1]
    assert warning.startswith(f"{LTS} (lockstep lts): expected one image reference and nothing else, found ")
    assert warning.endswith(" This bump does not touch it.")
    with pytest.raises(CannotTell):
        plan(texts, "25.11-py3", "lts")


def test_an_edit_that_would_not_read_back_as_planned_is_not_handed_out(monkeypatch):
    # The way an edit could go wrong is a mistake of ours in the spans.
    def splice_elsewhere(text, spans):
        return edits.splice(text, [(start - 1, end - 1, new) for start, end, new in spans if start])

    monkeypatch.setattr(pins, "splice", splice_elsewhere)
    with pytest.raises(RunbookError, match=r"pins are not as planned\. Nothing was changed"):
        plan(layout(4))


# -- plan: warnings --------------------------------------------------------------------------------------------------


def test_informational_sites_that_lag_are_warned_of():
    texts = layout(4) | {INSTALL_TEST: None, INSTALL_GUIDE: f"x\n  {image('26.08-py3')}\n", NEMO: dockerfile()}
    (warning,) = plan(texts).warnings
    assert warning.startswith(f"{image('26.02-py3')}, older than 26.04-py3, stays in {LINTING}:3:")
    assert plan(texts, "26.04-py3", "lts").warnings == ()


NEW = f"sha256:{'9' * 64}"


def pinned(tag, digit):
    return f"{image(tag)}@sha256:{str(digit) * 64}"


@pytest.mark.parametrize(
    ("dev", "default", "after"),
    [
        # A digest moves with its tag, and no other pin gets one.
        (pinned("26.02-py3", 0), image("26.02-py3"), (f"{image('26.04-py3')}@{NEW}", image("26.04-py3"))),
        # A digest beside the target stays.
        (pinned("26.04-py3", 0), image("26.04-py3"), (pinned("26.04-py3", 0), image("26.04-py3"))),
        # Digests of one tag that differ are renewed.
        (pinned("26.04-py3", 0), pinned("26.04-py3", 2), (f"{image('26.04-py3')}@{NEW}",) * 2),
        (pinned("26.04-py3", 0), pinned("26.02-py3", 2), (f"{image('26.04-py3')}@{NEW}",) * 2),
    ],
)
def test_digests(dev, default, after):
    def texts(first, second):
        return layout(4, dev="26.04-py3") | {DEV: first, DOCKERFILE: dockerfile("X").replace(image("X"), second)}

    made = plan(texts(dev, default), digest_of_target=lambda: NEW)
    assert applied(texts(dev, default), made) == texts(*after)
    if made.edits:  # it is never dropped where the new one is unknown
        with pytest.raises(CannotTell, match="has no digest"):
            plan(texts(dev, default))


COUPLED = {
    DOCKERFILE: dockerfile("26.02-py3")
    + "# NCCL for cuda13.9\nARG NCCL_VERSION=2.1-1+cuda13.3\nRUN uv pip install nvidia-nvshmem-cu13==3.4.5\n",
    NCCL: '#!/bin/bash\nNCCL_VER="2.1-1+cuda13.3"\n',
    PROJECT: 'te = [\n    "transformer-engine[pytorch,core_cu13]>=2.9,<3",\n]\n',
    DOCKERFILE_LTS: dockerfile(more="RUN uv pip install nvidia-nvshmem-cu12==3.4.5\n"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("cuda", "warned"),
    [
        ("13.3", []),
        ("13.3.0.5", []),
        ("13.4", ["NCCL", "NCCL"]),
        ("13.30", ["NCCL", "NCCL"]),
        ("14.0", ["NCCL", "NCCL", "the extra of Transformer Engine", "NVSHMEM"]),
        (None, ["NCCL", "NCCL", "the extra of Transformer Engine", "NVSHMEM"]),
        ("", ["NCCL", "NCCL", "the extra of Transformer Engine", "NVSHMEM"]),
    ],
)
def test_versions_that_fit_another_cuda_are_warned_of(cuda, warned):
    texts = layout(4, dev="26.04-py3") | COUPLED | {DOCKERFILE: COUPLED[DOCKERFILE].replace("26.02", "26.04")}
    warnings = plan(texts).for_cuda(cuda).warnings
    assert [warning.partition(" fixes ")[2].partition(" at ")[0] for warning in warnings] == warned
    if warned:
        assert warnings[0].startswith(f"{DOCKERFILE}:6 fixes NCCL at 2.1-1+cuda13.3, for CUDA 13.3: ")
        assert "26.04-py3" in warnings[0]
        assert (f"CUDA {cuda}." in warnings[0]) == bool(cuda)


def test_an_lts_bump_is_warned_of_the_versions_of_lts():
    (warning,) = plan(layout(4) | COUPLED, "25.11-py3", "lts").for_cuda("13.0").warnings
    assert warning == (
        f"{DOCKERFILE_LTS}:5 fixes NVSHMEM at nvidia-nvshmem-cu12==3.4.5, for CUDA 12: 25.11-py3 has CUDA 13.0."
    )


# -- check -----------------------------------------------------------------------------------------------------------


def check(texts, **options):
    return check_pins(texts, MEGATRON_LM, **options)


def wrong(texts, **options):
    return [(verdict.site, verdict.state) for verdict in check(texts, **options) if verdict.state != "in sync"]


@pytest.mark.parametrize("number", LAYOUTS)
def test_pins_that_agree_are_in_sync_type_by_type(number):
    verdicts = check(layout(number))
    assert {verdict.state for verdict in verdicts} == {"in sync"}
    assert {verdict.sentence for verdict in verdicts} == {""}
    assert outcome(verdicts) == outcome(verdicts, strict=True) == "in sync"
    assert sum(verdict.role == "lockstep lts" for verdict in verdicts) == {1: 1, 2: 2, 3: 3, 4: 3}[number]


def test_two_digests_of_one_tag_are_out_of_sync():
    first, second = (f"{image('26.02-py3')}@sha256:{digit * 64}" for digit in "01")
    dockerfile_with = dockerfile("26.02-py3").replace(image("26.02-py3"), second)
    assert wrong({**layout(4), DEV: first, DOCKERFILE: dockerfile_with}) == [(f"{DOCKERFILE}:3", "out of sync")]
    same = dockerfile_with.replace(second, first)
    assert wrong({**layout(4), DEV: first, DOCKERFILE: same}) == []


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({DEV: image("26.04-py3")},
         [(f"{GITLAB}:30", "out of sync"), (f"{GITLAB}:35", "out of sync"), (f"{DOCKERFILE}:3", "out of sync"),
          (f"{NEMO}:3", "lagging"), (f"{LINTING}:3", "lagging"), (f"{INSTALL_TEST}:4", "lagging"),
          (f"{INSTALL_GUIDE}:5", "lagging")]),
        ({DEV: image("25.11-py3")}, [(f"{DEV}:1", "out of sync")]),
        ({DOCKERFILE: dockerfile("26.01-py3")}, [(f"{DOCKERFILE}:3", "out of sync")]),
        ({LTS: image("25.08-py3")}, [(f"{LTS}:1", "out of sync")]),
        ({LTS: image("26.02-py3")}, [(f"{GITLAB}:21", "out of sync"), (f"{GITLAB}:25", "out of sync")]),
        ({LINTING: dockerfile("25.01-py3")}, [(f"{LINTING}:3", "lagging")]),
        ({INSTALL_GUIDE: f"  {image('26.08-py3')}\n"}, [(f"{INSTALL_GUIDE}:1", "ahead")]),
        ({LTS: None}, [(LTS, "cannot tell")]),
        ({DEV: "x"}, [(DEV, "cannot tell")]),
        ({LINTING: dockerfile("latest")}, [(LINTING, "cannot tell")]),
        ({LINTING: dockerfile("26.02-py3").replace(image("26.02-py3"), "python:3.10")}, []),
        ({GITLAB: "a: ["}, [(GITLAB, "cannot tell"), (GITLAB, "cannot tell")]),
    ],
)  # fmt: skip
def test_disagreements_are_named(broken, found):
    assert wrong(layout(4) | broken) == found


def test_an_expected_tag_is_what_the_pins_of_its_type_should_be():
    assert wrong(layout(2), expected=NGC.read("26.02-py3")) == []
    assert wrong(layout(2), expected=NGC.read("26.04-py3"))[:2] == [
        (f"{DEV}:1", "out of sync"),
        (f"{GITLAB}:26", "out of sync"),
    ]
    assert wrong(layout(2), expected=NGC.read("25.09-py3")) == [
        (f"{DEV}:1", "out of sync"), (f"{GITLAB}:26", "out of sync"), (f"{INSTALL_TEST}:4", "ahead"),
        (f"{INSTALL_GUIDE}:5", "ahead"),
    ]  # fmt: skip
    assert wrong(layout(2), expected=NGC.read("25.10-py3"), image_type="lts") == [
        (f"{LTS}:1", "out of sync"), (f"{GITLAB}:22", "out of sync"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "normal", "strict"),
    [
        ({}, "in sync", "in sync"),
        ({LINTING: dockerfile("25.01-py3")}, "in sync", "out of sync"),
        ({INSTALL_GUIDE: f"  {image('26.08-py3')}\n"}, "in sync", "out of sync"),
        ({LINTING: dockerfile("latest")}, "in sync", "cannot tell"),
        ({LTS: None}, "cannot tell", "cannot tell"),
        ({LTS: None, DEV: image("25.11-py3")}, "out of sync", "out of sync"),
    ],
)
def test_the_outcome_follows_from_the_pins_and_with_strict_from_all(broken, normal, strict):
    verdicts = check(layout(4) | broken)
    assert (outcome(verdicts), outcome(verdicts, strict=True)) == (normal, strict)
    assert outcome(()) == "cannot tell"


# -- any text --------------------------------------------------------------------------------------------------------


def mutated(text):
    """The text with a piece of it taken out, repeated or replaced."""
    cuts = st.lists(st.integers(0, len(text)), min_size=2, max_size=2).map(sorted)
    news = (
        st.sampled_from(["", "\n", ":", "- ", "&a ", "*a", "'", '"', "{", "[", "<<: ", "\t", "#", "\\", "\r"])
        | st.text()
    )
    return st.builds(lambda cut, new, copies: text[: cut[0]] + new + text[cut[0] : cut[1]] * copies + text[cut[1] :],
                     cuts, news, st.integers(0, 2))  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_text_is_planned_and_checked_or_refused(data):
    texts = layout(data.draw(st.sampled_from(LAYOUTS)))
    for path in data.draw(st.sets(st.sampled_from(sorted(texts)), min_size=1, max_size=2)):
        texts[path] = data.draw(mutated(texts[path]) | st.text() | st.none())
    verdicts = check(texts)
    assert all(bool(verdict.sentence) == (verdict.state != "in sync") for verdict in verdicts)
    try:
        made = plan(texts)
    except RunbookError:
        return
    after = applied(texts, made)
    assert plan(after).edits == ()
    assert all(edit.before.count("\n") == edit.after.count("\n") for edit in made.edits)
    assert len({(change.path, change.line) for change in made.changes}) * 2 >= len(changed_lines(made))
    assert {v.image for v in check(after) if v.role == "lockstep dev"} == {image("26.04-py3")}
    lts = [[v.image for v in check(given) if v.role == "lockstep lts"] for given in (texts, after)]
    assert all(one == other for one, other in pairwise(lts))
