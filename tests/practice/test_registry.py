"""The practice registry, asked without our own client."""

import base64
import hashlib
import json
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


def code(answer: httpx.Response) -> str:
    return str(answer.json()["errors"][0]["code"])


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/v2/", ""),
        ("/v2/nvidia/pytorch/tags/list", ',scope="repository:nvidia/pytorch:pull"'),
        ("/v2/nobody/knows/manifests/it", ',scope="repository:nobody/knows:pull"'),
    ],
)
def test_everything_is_challenged(client: httpx.Client, path: str, scope: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, code(answer)) == (401, "UNAUTHORIZED")
    realm = client.base_url.join("/token")
    assert answer.headers["WWW-Authenticate"] == f'Bearer realm="{realm}",service="practice-registry"{scope}'


def test_a_token_opens_its_own_repository_only(signed_in: httpx.Client) -> None:
    assert signed_in.get("/v2/nvidia/pytorch/tags/list").status_code == 200
    assert signed_in.get("/v2/nvidia/nemo/tags/list").status_code == 401
    assert signed_in.get("/v2/").status_code == 401


@pytest.mark.parametrize(
    ("credentials", "status"),
    [("$oauthtoken:key", 200), ("$oauthtoken:", 401), ("me:key", 401), ("no colon", 401), ("\u00e9", 401)],
)
def test_sign_in_is_by_key(client: httpx.Client, credentials: str, status: int) -> None:
    header = "Basic " + base64.b64encode(credentials.encode("latin-1")).decode()
    assert client.get("/token", headers={"Authorization": header}).status_code == status


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


def test_content_is_the_same_on_every_machine() -> None:
    held = images.content()
    assert held.tags["26.02-py3"] == "sha256:12acf4818a2ec2469c70bf5da2723db3cba8749f8c877609c8036ca636a1681e"
    assert sorted(held.tags) == [f"{month}-py3" for month in sorted(images.MONTHS)]
    assert len(set(held.tags.values())) == len(held.tags)
    platforms = {
        tag: [member["platform"]["architecture"] for member in json.loads(held.manifests[digest].data)["manifests"]]
        for tag, digest in held.tags.items()
    }
    assert platforms.pop("26.03-py3") == ["amd64"]
    assert all(both == ["amd64", "arm64"] for both in platforms.values())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2/nvidia/pytorch/manifests/27.01-py3", "MANIFEST_UNKNOWN"),
        (f"/v2/nvidia/pytorch/manifests/sha256:{'0' * 64}", "MANIFEST_UNKNOWN"),
        (f"/v2/nvidia/pytorch/blobs/sha256:{'0' * 64}", "BLOB_UNKNOWN"),
        ("/v2/nvidia/pytorch/tags/other", "NOT_FOUND"),
    ],
)
def test_missing_ones(signed_in: httpx.Client, path: str, expected: str) -> None:
    answer = signed_in.get(path, headers=ACCEPT)
    assert (answer.status_code, code(answer)) == (404, expected)
    assert signed_in.get("/v2/nvidia/pytorch/manifests/26.02-py3", headers={"Accept": "text/plain"}).status_code == 404


def test_tags_come_in_pages(signed_in: httpx.Client) -> None:
    url = "/v2/nvidia/pytorch/tags/list?n=3"
    tags: list[str] = []
    sizes: list[int] = []
    while url:
        answer = signed_in.get(url)
        tags += answer.json()["tags"]
        sizes.append(len(answer.json()["tags"]))
        url = answer.links.get("next", {}).get("url", "")
    assert tags == sorted(f"{month}-py3" for month in images.MONTHS)
    assert sizes == [3, 3, 1]
    assert signed_in.get("/v2/nvidia/pytorch/tags/list?last=99").json()["tags"] == []
    assert signed_in.get("/v2/nvidia/pytorch/tags/list?n=-1").status_code == 400
