"""The address of the internal image: remotes that name no host first, then every form of an address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.known_builds import internal_image, remote_host
from runbook_lib.errors import CannotTell, Refused
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM


@pytest.mark.parametrize(
    "url",
    [
        "", " ", "/srv/git/megatron-lm.git", "../gitlab.git", "file:///srv/gitlab.git", "gitlab", "gitlab.example.com",
        "https://", "https:///adlr/megatron-lm", "ssh://git@/x", "https://[::1]:5005/x", "C:\\repos\\x", "user@:x/y",
        "https://ho st.example.com/x", "https://-x.example.com/y", "git@--option.example.com:x",
    ],
)  # fmt: skip
def test_an_address_that_names_no_host(url):
    with pytest.raises(CannotTell, match=r"has no host such as gitlab\.example\.com"):
        remote_host(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://gitlab.example.com/ADLR/megatron-lm.git",
        "https://gitlab.example.com:5005/ADLR/megatron-lm.git",
        "https://user@gitlab.example.com/ADLR/megatron-lm.git",
        "http://gitlab.example.com/adlr/megatron-lm",
        "ssh://git@gitlab.example.com:12051/ADLR/megatron-lm.git",
        "ssh://gitlab.example.com/ADLR/megatron-lm.git",
        "git@gitlab.example.com:ADLR/megatron-lm.git",
        "gitlab.example.com:ADLR/megatron-lm.git",
        "GIT@GitLab.Example.com:ADLR/megatron-lm.git\n",
    ],
)
def test_the_host_of_an_address_has_no_port(url):
    image = internal_image(url, MEGATRON_LM)
    assert str(image) == "gitlab.example.com/adlr/megatron-lm/mcore_ci_dev:main"
    assert ImageRef.parse(str(image)) == image


@pytest.mark.parametrize(
    ("url", "repository", "image_type", "says"),
    [
        (None, MEGATRON_LM, "dev", "no remote 'gitlab'"),
        ("git@gitlab.example.com:x/y", MEGATRON_LM, "lts", "dev lane only"),
        ("git@gitlab.example.com:x/y", MEGATRON_BRIDGE, "dev", "not for NVIDIA-NeMo/Megatron-Bridge"),
    ],
)
def test_a_missing_image(url, repository, image_type, says):
    with pytest.raises(Refused, match=says):
        internal_image(url, repository, image_type)


@given(st.text())
def test_any_address_is_read_or_refused(url):
    try:
        found = remote_host(url)
    except CannotTell:
        return
    assert ":" not in found
    assert "@" not in found
