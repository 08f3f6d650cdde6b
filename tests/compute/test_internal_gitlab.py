"""The address of the internal image: remotes that name no host first, then every form of an address."""

import pytest

from runbook_lib.compute.internal_gitlab import RemoteProject, internal_image, parse_remote
from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.repositories import MEGATRON_BRIDGE, MEGATRON_LM


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("https://gitlab.example.com/adlr/megatron-lm.git", "gitlab.example.com", "adlr/megatron-lm"),
        ("https://gitlab.example.com:8443/a/b/c/", "gitlab.example.com", "a/b/c"),
        ("http://127.0.0.1:80/a/b", "127.0.0.1", "a/b"),
        ("gitlab.example.com:/adlr/megatron-lm", "gitlab.example.com", "adlr/megatron-lm"),
        ("/srv/my git/x.git", "", "/srv/my git/x.git"),
        ("file:///srv/git/x.git", "", "/srv/git/x.git"),
    ],
)
def test_the_address_of_a_remote_is_parsed(url, host, path):
    assert parse_remote(url) == RemoteProject(host, path)


@pytest.mark.parametrize(
    "url",
    [
        "", " ", "-oProxyCommand=id", "ext::sh -c id", "ssh://-oProxyCommand=id/x", "git@-x:y", "ftp://a/b", "gitlab",
        "https://a:99999/b", "https:///a", "https://a", "file://host/x", "https://a/b\nc", "git@host:", "fd::7",
        "https://a b/c", "relative/path", "https://[::1]:5005/x", "user@:x/y", "git@--option.example.com:x",
    ],
)  # fmt: skip
def test_an_invalid_address_is_refused(url):
    with pytest.raises(RunbookError, match="git remote set-url"):
        parse_remote(url)


@pytest.mark.parametrize("url", ["/srv/git/megatron-lm.git", "git@gitlab:x/y", "C:\\repos\\x"])
def test_an_address_that_names_no_registry(url):
    with pytest.raises(CannotTell, match=r"has no host such as gitlab\.example\.com"):
        internal_image(url, MEGATRON_LM)


def test_one_project_by_two_addresses():
    by_ssh = parse_remote("git@GitLab.Example.com:ADLR/x.git")
    assert by_ssh.key == parse_remote("https://gitlab.example.com:8443/adlr/X").key
    assert parse_remote("/A").key != parse_remote("/a").key


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
