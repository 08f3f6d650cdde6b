import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook_lib.errors import RunbookError
from runbook_lib.images.families import NGC
from runbook_lib.pins.bump import Bump


def test_as_shipped_a_bump_has_no_tag_and_changes_nothing():
    bump = Bump.parse()
    assert bump == Bump(None, "dev", "main", "origin", mode="preview")
    assert bump.mode == "preview"


def test_names_follow_from_the_parameters():
    bump = Bump.parse(tag="26.04-py3", image_type="lts", base="core_r0.18.0", remote="fork")
    assert (bump.tag, bump.image_type, bump.remote) == (NGC.read("26.04-py3"), "lts", "fork")
    assert bump.branch == "bump/core_r0.18.0/lts-26.04-py3"
    assert bump.title == "chore: Update LTS Docker image version to 26.04-py3"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tag": "26.4"}, "'26.4' is not a tag"),
        ({"tag": 26.1}, 'tag is 26.1, of type float; it must be text: use tag = "…", or -r tag …'),
        ({"mode": False}, "mode is False"),
        ({"mode": "apply"}, "mode 'apply' is unknown"),
        ({"image_type": "Dev"}, "image type 'Dev'"),
        ({"base": ""}, "base='' "),
        ({"base": "-x"}, "base='-x' "),
        ({"base": "a b"}, "base='a b'"),
        ({"base": "a..b"}, "base="),
        ({"base": "a.lock/b"}, "base="),
        ({"base": "main\n"}, "base="),
        ({"remote": "--upload-pack=x"}, "remote='--upload-pack=x'"),
        ({"remote": "https://example.com/x"}, "remote='https:"),
    ],
)
def test_an_invalid_parameter_is_refused_by_name(parameters, message):
    with pytest.raises(RunbookError) as caught:
        Bump.parse(**parameters)
    assert message in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._/+#=@-]{0,8}", fullmatch=True) | st.text("a./@{-lock", max_size=9))
def test_a_base_that_is_accepted_is_a_branch_name_for_git_too(base):
    try:
        bump = Bump.parse(tag="26.04-py3", base=base)
    except RunbookError:
        return
    assert bump.base == base
    assert bump.branch == f"bump/{base}/dev-26.04-py3"
    for name in (base, bump.branch):
        subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], check=True)
