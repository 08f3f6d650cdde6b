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


def test_one_project_by_two_addresses():
    by_ssh = parse_remote("git@GitLab.Example.com:ADLR/x.git")
    assert by_ssh.key == parse_remote("https://gitlab.example.com:8443/adlr/X").key
    assert parse_remote("/A").key != parse_remote("/a").key


@pytest.mark.parametrize(
    "url",
    ["https://user@gitlab.example.com:5005/ADLR/megatron-lm.git", "ssh://git@gitlab.example.com:12051/ADLR/x.git",
     "http://gitlab.example.com/adlr/megatron-lm", "GIT@GitLab.Example.com:ADLR/megatron-lm.git\n"],
)  # fmt: skip
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
        ("/srv/git/megatron-lm.git", MEGATRON_LM, "dev", "has no host such as"),
        ("git@gitlab:x/y", MEGATRON_LM, "dev", "has no host such as"),
    ],
)
def test_a_missing_image(url, repository, image_type, says):
    with pytest.raises((Refused, CannotTell), match=says):
        internal_image(url, repository, image_type)
