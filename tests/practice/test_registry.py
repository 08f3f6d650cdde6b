"""The practice registry, asked without our own client."""

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from runbook_lib.practice.registry import images
from runbook_lib.practice.registry.server import RegistryServer

ACCEPT = {"Accept": images.INDEX + ", " + images.MANIFEST}


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    server = RegistryServer()
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client
    server.close()


@pytest.fixture
def signed_in(client: httpx.Client) -> httpx.Client:
    token = client.get("/token?service=practice-registry&scope=repository:nvidia/pytorch:pull").json()["token"]
    client.headers["Authorization"] = f"Bearer {token}"
    return client


def test_a_token_opens_its_own_repository_only(signed_in: httpx.Client) -> None:
    assert signed_in.get("/v2/nvidia/pytorch/tags/list").status_code == 200
    assert signed_in.get("/v2/nvidia/nemo/tags/list").status_code == 401
    assert signed_in.get("/v2/").status_code == 401


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_every_digest_is_that_of_its_content(signed_in: httpx.Client, method: str) -> None:
    base = "/v2/nvidia/pytorch"
    index = signed_in.get(f"{base}/manifests/26.04-py3", headers=ACCEPT).json()
    assert [member["platform"]["architecture"] for member in index["manifests"]] == ["amd64", "arm64"]
    for member in index["manifests"]:
        manifest = signed_in.get(f"{base}/manifests/{member['digest']}", headers=ACCEPT)
        assert manifest.headers["Content-Type"] == member["mediaType"]
        for part in (manifest.json()["config"], *manifest.json()["layers"]):
            whole = signed_in.get(f"{base}/blobs/{part['digest']}").content
            assert f"sha256:{hashlib.sha256(whole).hexdigest()}" == part["digest"]
            assert len(whole) == part["size"]
            answer = signed_in.request(method, f"{base}/blobs/{part['digest']}")
            assert answer.headers["Docker-Content-Digest"] == part["digest"]
            assert int(answer.headers["Content-Length"]) == part["size"]
            assert answer.content == (whole if method == "GET" else b"")
