"""URLs of git remotes: every form that names a host, and text that names none."""

import pytest

from runbook_lib.world.git.remote_url import RemoteUrl

HOST = "gitlab.example.com"


@pytest.mark.parametrize(
    ("url", "host", "path", "port"),
    [
        ("https://gitlab.example.com/adlr/megatron-lm.git", HOST, "adlr/megatron-lm", ""),
        ("https://user@gitlab.example.com:8443/a/b/c/", HOST, "a/b/c", ":8443"),
        ("ssh://git@gitlab.example.com:12051/ADLR/x.git", HOST, "ADLR/x", ""),
        ("http://127.0.0.1:80/a/b", "127.0.0.1", "a/b", ":80"),
        ("gitlab.example.com:/adlr/megatron-lm", HOST, "adlr/megatron-lm", ""),
        ("GIT@GitLab.Example.com:ADLR/megatron-lm.git\n", HOST, "ADLR/megatron-lm", ""),
    ],
)
def test_a_url_names_a_project_on_a_host(url: str, host: str, path: str, port: str) -> None:
    parsed = RemoteUrl.parse(url)
    assert parsed == RemoteUrl(host, path, f"https://{host}{port}")
    assert str(parsed) == f"{path} on {host}"


@pytest.mark.parametrize(
    "url",
    [
        "", " ", "-oProxyCommand=id", "ext::sh -c id", "ssh://-oProxyCommand=id/x", "git@-x:y", "ftp://a/b", "gitlab",
        "https://a:99999/b", "https:///a", "https://a", "file://host/x", "https://a/b\nc", "git@host:", "fd::7",
        "https://a b/c", "relative/path", "https://[::1]:5005/x", "user@:x/y", "git@--option.example.com:x",
        "/srv/my git/x.git",
    ],
)  # fmt: skip
def test_other_text_names_no_host(url: str) -> None:
    assert RemoteUrl.parse(url) == RemoteUrl("", url)
