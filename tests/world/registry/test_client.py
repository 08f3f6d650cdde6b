"""The registry client, against a fake that misbehaves and against the practice registry."""

import base64
import json
import time
from collections.abc import Callable

import httpx
import pytest
import registry_server as images

from runbook_lib.errors import CannotTell, Unreachable
from runbook_lib.images.families import NGC
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice.registry import PracticeRegistry
from runbook_lib.world.image_lookup import verify_tag
from runbook_lib.world.registry import OciRegistry

REF = ImageRef.parse("nvcr.io/nvidia/pytorch:26.04-py3")
BASE = "/v2/nvidia/pytorch"
HELD = images.content()
TAG = NGC.read("26.04-py3")
BOTH = ("amd64", "arm64")
Handler = Callable[[httpx.Request], httpx.Response]


class Fake:
    """nvcr.io with the practice images, without a challenge; ``answers`` replaces the answer for a path."""

    def __init__(self) -> None:
        self.answers: dict[str, httpx.Response | Handler] = {}
        self.requests: list[httpx.Request] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.requests.append(request)
        answer = self.answers.get(path) or self.answers.get("*")
        if answer is not None:
            return answer if isinstance(answer, httpx.Response) else answer(request)
        reference = path.rpartition("/")[2]
        blob = HELD.manifests.get(HELD.tags.get(reference, reference)) or HELD.blobs.get(reference)
        if path == f"{BASE}/tags/list":
            return httpx.Response(200, json={"name": "nvidia/pytorch", "tags": sorted(HELD.tags)})
        if blob is None:
            return httpx.Response(404, json={"errors": [{"code": "MANIFEST_UNKNOWN"}]})
        return httpx.Response(200, content=blob.data, headers={"Content-Type": blob.media_type})

    @property
    def asked(self) -> list[httpx.Request]:
        """What the registry was asked, without the requests for tokens."""
        return [request for request in self.requests if request.url.path.startswith("/v2/")]

    @property
    def tokens(self) -> list[httpx.Request]:
        return [request for request in self.requests if request not in self.asked]

    def registry(self, **env: str) -> OciRegistry:
        return OciRegistry(REF, env, transport=httpx.MockTransport(self.handle))

    def manifest(self, document: object, media_type: str = images.MANIFEST) -> OciRegistry:
        """The registry, with the given document behind the tag."""
        answer = httpx.Response(200, json=document, headers={"Content-Type": media_type})
        self.answers[f"{BASE}/manifests/{TAG}"] = answer
        return self.registry()


@pytest.fixture
def fake() -> Fake:
    return Fake()


# What it reads


def test_a_manifest_without_an_index_is_one_platform(fake: Fake) -> None:
    index = json.loads(HELD.manifests[HELD.tags["26.04-py3"]].data)
    alone = HELD.manifests[index["manifests"][1]["digest"]]
    fake.answers[f"{BASE}/manifests/{TAG}"] = httpx.Response(200, content=alone.data)
    image = fake.registry().image(str(TAG))
    assert image is not None
    assert image.digest == alone.digest
    assert list(image.platforms) == ["arm64"]


def test_attestations_are_not_a_platform(fake: Fake) -> None:
    index = json.loads(HELD.manifests[HELD.tags["26.04-py3"]].data)
    unknown = {"architecture": "unknown", "os": "unknown"}
    index["manifests"].append({"mediaType": images.MANIFEST, "digest": "sha256:" + "0" * 64, "platform": unknown})
    index["manifests"].append({"mediaType": "application/vnd.example.signature", "digest": "sha256:" + "0" * 64})
    image = fake.manifest(index, images.INDEX).image(str(TAG))
    assert image is not None
    assert sorted(image.platforms) == ["amd64", "arm64"]


@pytest.mark.parametrize("config", [{}, {"config": {"Env": None}}])
def test_a_config_without_environment_is_still_an_image(fake: Fake, config: dict[str, object]) -> None:
    blob = images.Blob(images.CONFIG, json.dumps({"os": "windows", "architecture": "amd64", **config}).encode())
    fake.answers[f"{BASE}/blobs/{blob.digest}"] = httpx.Response(200, content=blob.data)
    image = fake.manifest({"schemaVersion": 2, "config": blob.descriptor(), "layers": []}).image(str(TAG))
    assert image is not None
    assert image.platforms["windows/amd64"].env == {}
    assert image.platforms["windows/amd64"].size == len(blob.data)


def test_tags_are_read_to_the_last_page(fake: Fake) -> None:
    def page(request: httpx.Request) -> httpx.Response:
        if request.url.params.get("last") == "b c":
            return httpx.Response(200, json={"tags": ["d"]})
        link = f'<https://nvcr.io/other>; rel="prev", <{BASE}/tags/list?last=b%20c&n=2>; rel="next"'
        return httpx.Response(200, json={"tags": ["a", "b c"]}, headers={"Link": link})

    fake.answers[f"{BASE}/tags/list"] = page
    assert fake.registry().tags() == ["a", "b c", "d"]
    fake.answers[f"{BASE}/tags/list"] = httpx.Response(200, json={"name": "nvidia/pytorch", "tags": None})
    assert fake.registry().tags() == []


# Where it asks, and what it tells whom


@pytest.mark.parametrize(
    ("image", "told", "origin"),
    [
        ("nvcr.io/a", "", "https://nvcr.io"),
        ("nvcr.io/a", " ", "https://nvcr.io"),
        ("docker.io/a", "", "https://registry-1.docker.io"),
        ("nvcr.io/a", "http://127.0.0.1:5001", "http://127.0.0.1:5001"),
        ("nvcr.io/a", "https://mirror.example.com/", "https://mirror.example.com"),
        ("ghcr.io/a", "https://mirror.example.com", "https://mirror.example.com"),
    ],
)
def test_the_address_of_a_registry(fake: Fake, image: str, told: str, origin: str) -> None:
    fake.answers["*"] = httpx.Response(200, json={"tags": []})
    transport = httpx.MockTransport(fake.handle)
    OciRegistry(ImageRef.parse(image), {"RUNBOOK_REGISTRY": told}, transport=transport).tags()
    repository = "library/a" if image == "docker.io/a" else "a"
    assert [str(request.url) for request in fake.requests] == [f"{origin}/v2/{repository}/tags/list?n=1000"]


def challenge(realm: str) -> Handler:
    """A registry that wants a token from ``realm``, and token services everywhere that say who asked."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, json={"token": "let-me-in"})
        if request.headers.get("Authorization") == "Bearer let-me-in":
            return httpx.Response(200, json={"tags": ["26.04-py3"]})
        header = f'Bearer realm="{realm}",service="s",scope="repository:nvidia/pytorch:pull,push", Basic realm="b"'
        return httpx.Response(401, headers={"WWW-Authenticate": header})

    return handle


def test_a_token_is_fetched_once_and_only_to_pull(fake: Fake) -> None:
    fake.answers["*"] = challenge("https://auth.example.com/token")
    registry = fake.registry()
    assert registry.tags() == registry.tags() == ["26.04-py3"]
    (token,) = fake.tokens
    assert dict(token.url.params) == {"service": "s", "scope": "repository:nvidia/pytorch:pull"}
    assert "Authorization" not in token.headers
    assert len(fake.requests) == 4


KEY = "Basic " + base64.b64encode(b"$oauthtoken:secret").decode()
LOGIN = "Basic " + base64.b64encode(b"ada:pass:word").decode()
MIRROR, PLAIN = "https://mirror.example.com", "http://mirror.example.com:5000"


@pytest.mark.parametrize(
    ("registry", "address", "realm", "logged_in", "sent"),
    [
        ("nvcr.io", "", "https://auth.example.com/token", False, KEY),
        ("nvcr.io", MIRROR, f"{MIRROR}/token", False, KEY),
        ("nvcr.io", "http://127.0.0.1:5000", "http://127.0.0.1:5000/token", False, KEY),
        # A mirror has its own password, which comes first, and is for that one alone.
        ("nvcr.io", "", "https://nvcr.io/token", True, KEY),
        ("nvcr.io", MIRROR, f"{MIRROR}/token", True, LOGIN),
        ("ghcr.io", MIRROR, f"{MIRROR}/token", True, LOGIN),
        ("ghcr.io", "", "https://auth.example.com/token", True, None),
        # NVIDIA's key is for images of nvcr.io alone.
        ("ghcr.io", "", "https://auth.example.com/token", False, None),
        ("ghcr.io", MIRROR, f"{MIRROR}/token", False, None),
        # Nothing for a server without TLS, nor for whom it names.
        ("nvcr.io", PLAIN, f"{PLAIN}/token", True, None),
        ("nvcr.io", PLAIN, "https://attacker.example.com/token", True, None),
    ],
)
def test_which_credentials_the_token_service_gets(
    fake: Fake, registry: str, address: str, realm: str, logged_in: bool, sent: str | None
) -> None:
    fake.answers["*"] = challenge(realm)
    env = {"RUNBOOK_REGISTRY": address, "NGC_API_KEY": " secret\n"}
    if logged_in:
        env["RUNBOOK_REGISTRY_PASSWORD"] = "ada:pass:word\n"
    ref = ImageRef.parse(f"{registry}/nvidia/pytorch:1")
    transport = httpx.MockTransport(fake.handle)
    assert OciRegistry(ref, env, transport=transport).tags() == ["26.04-py3"]
    assert [request.headers.get("Authorization") for request in fake.tokens] == [sent]
    assert {request.headers.get("Authorization") for request in fake.asked} <= {None, "Bearer let-me-in"}
    fake.answers["/token"] = httpx.Response(401)
    with pytest.raises(Unreachable) as refused:
        OciRegistry(ref, env, transport=transport).tags()
    named = {KEY: "Renew NGC_API_KEY", LOGIN: "Renew RUNBOOK_REGISTRY_PASSWORD"}.get(sent or "", "set NGC_API_KEY")
    assert ("No credentials were sent, because mirror.example.com:5000" if address == PLAIN else named) in (
        refused.value.fix
    )
    assert not any(secret in str(refused.value) for secret in ("secret", "pass:word"))


def test_a_blob_on_another_host_gets_no_credentials(fake: Fake) -> None:
    store: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.host == "store.example.com":
            store.append(request)
            return httpx.Response(200, content=HELD.blobs[request.url.path[1:]].data)
        if request.headers.get("Authorization") != "Bearer let-me-in":
            return challenge("https://nvcr.io/token")(request)
        if "/blobs/" in request.url.path:
            digest = request.url.path.rpartition("/")[2]
            return httpx.Response(307, headers={"Location": f"https://store.example.com/{digest}?signature=x"})
        return Fake().handle(request)

    fake.answers["*"] = handle
    image, named = (it.image("26.04-py3") for it in (fake.registry(NGC_API_KEY="secret"), PracticeRegistry(REF)))
    assert image is not None
    assert named is not None
    assert image.platforms["arm64"].env == named.platforms["arm64"].env
    assert len(store) == 2
    assert all("Authorization" not in request.headers for request in store)


def test_a_challenge_from_where_a_redirect_led_gets_nothing(fake: Fake) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.host == "nvcr.io":
            return httpx.Response(307, headers={"Location": "https://evil.example.com/list"})
        return httpx.Response(401, headers={"WWW-Authenticate": 'Bearer realm="https://evil.example.com/token"'})

    fake.answers["*"] = handle
    with pytest.raises(Unreachable, match="refuses read access"):
        fake.registry(NGC_API_KEY="secret").tags()
    assert [request.url.path for request in fake.requests] == [f"{BASE}/tags/list", "/list"]


def test_a_token_service_that_redirects_is_not_followed(fake: Fake) -> None:
    fake.answers["*"] = challenge("https://nvcr.io/token")
    fake.answers["/token"] = httpx.Response(302, headers={"Location": "https://evil.example.com/token"})
    with pytest.raises(Unreachable, match=r"nvcr\.io issued no token \(HTTP 302\)"):
        fake.registry(NGC_API_KEY="secret").tags()
    assert {request.url.host for request in fake.requests} == {"nvcr.io"}


def test_a_registry_that_requires_a_password_gets_it_only_over_tls(fake: Fake) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if "Authorization" in request.headers:
            return httpx.Response(200, json={"tags": ["a"]})
        return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="x"'})

    fake.answers["*"] = handle
    env = {"RUNBOOK_REGISTRY_PASSWORD": "ada:pass:word"}
    assert fake.registry(RUNBOOK_REGISTRY=MIRROR, **env).tags() == ["a"]
    sent = len(fake.asked)
    with pytest.raises(Unreachable, match=r"password\. No credentials were sent.*mirror\.example\.com"):
        fake.registry(RUNBOOK_REGISTRY=PLAIN, **env).tags()
    assert len(fake.asked) == sent + 1
    assert all("Authorization" not in request.headers for request in fake.requests if request.url.scheme == "http")


# What goes wrong


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (httpx.Response(200, html="<h1>Welcome</h1>"), "is there no proxy or login page in between"),
        (httpx.Response(404, html="<h1>Not here</h1>"), "nvcr.io sent a web page"),
        (httpx.Response(200, text="oops"), "not JSON"),
        (httpx.Response(200, text="[" * 100_000), "not JSON"),
        (httpx.Response(403, json={}), "set NGC_API_KEY"),
        (httpx.Response(401), "unknown kind of login"),
        (httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="x"'}), "a password. If the image"),
        (
            httpx.Response(401, headers={"WWW-Authenticate": 'Bearer realm="file:///x"'}),
            "leads to file://, which is not followed",
        ),
        (httpx.Response(418, json={}), "HTTP 418"),
        (httpx.Response(307, headers={"Location": "/v2/again"}), "redirects without end"),
    ],
)
def test_any_invalid_answer_of_a_registry_means_unreachable(fake: Fake, answer: httpx.Response, sentence: str) -> None:
    fake.answers["*"] = answer
    with pytest.raises(Unreachable, match=sentence):
        fake.registry().tags()
    check, image = verify_tag(fake.registry(), TAG, BOTH)
    assert (check.status, image) == ("skipped", None)
    assert sentence in check.detail


def test_a_token_that_is_none(fake: Fake) -> None:
    fake.answers["*"] = challenge("https://nvcr.io/token")
    for token in ({}, {"token": ""}, {"token": 1}, {"token": "a b"}, {"token": "a\nX: b"}, []):
        fake.answers["/token"] = httpx.Response(200, json=token)
        with pytest.raises(Unreachable, match="gave no usable token"):
            fake.registry().tags()


@pytest.mark.parametrize("kind", ["manifest", "config", "no digest", "a short digest", "a weak digest"])
def test_content_with_another_digest_is_not_believed(fake: Fake, kind: str) -> None:
    data = HELD.manifests[HELD.tags[str(TAG)]].data
    headers = {"no digest": "sha256:" + "0" * 64, "a short digest": "sha256:short", "a weak digest": "md5:" + "0" * 32}
    if kind == "manifest":
        digest = json.loads(data)["manifests"][0]["digest"]
        fake.answers[f"{BASE}/manifests/{digest}"] = httpx.Response(200, json={"schemaVersion": 2})
    elif kind == "config":
        for digest in HELD.blobs:
            fake.answers[f"{BASE}/blobs/{digest}"] = httpx.Response(200, json={"os": "linux", "architecture": "amd64"})
    else:
        answer = httpx.Response(200, content=data, headers={"Docker-Content-Digest": headers[kind]})
        fake.answers[f"{BASE}/manifests/{TAG}"] = answer
    check, image = verify_tag(fake.registry(), TAG, BOTH)
    assert (check.status, image) == ("failed", None)
    assert "digest" in check.detail
    if kind in ("manifest", "config"):
        assert "has a different digest: it is damaged or was changed in transit" in check.detail


GOOD = {"schemaVersion": 2, "config": {"digest": "sha256:" + "0" * 64, "size": 1}, "layers": []}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ([], "AttributeError: 'list' object has no attribute 'get'"),
        ({"schemaVersion": 1, "fsLayers": []}, "old schema"),
        ({"fsLayers": []}, "old schema"),
        ({**GOOD, "config": "x"}, "TypeError: string indices"),
        ({**GOOD, "config": {"digest": "../../x"}}, "an invalid digest"),
        ({**GOOD, "layers": None}, "TypeError: NoneType instead of a list"),
        (GOOD, "read the configuration sha256:0{64} in nvcr.io/nvidia/pytorch: nvcr.io does not have it"),
        ({"mediaType": images.INDEX, "manifests": []}, "has 0 platforms"),
        ({"mediaType": images.INDEX}, "KeyError: 'manifests'"),
        ({"manifests": [{"mediaType": images.MANIFEST, "digest": "sha256:" + "0" * 64}]}, "does not have it"),
        ({"manifests": [{"mediaType": images.MANIFEST, "digest": "sha256:" + "0" * 64}] * 51}, "has 51 platforms"),
        ({"manifests": [{"mediaType": images.MANIFEST}]}, "KeyError: 'digest'"),
    ],
)
def test_manifests_without_sense(fake: Fake, document: object, sentence: str) -> None:
    with pytest.raises(CannotTell, match=sentence):
        fake.manifest(document).image(str(TAG))


@pytest.mark.parametrize("target", ["https://evil.example.com/tags", "//evil.example.com/tags", "//nvcr.io:port"])
def test_pages_that_lead_elsewhere_are_read_at_home(fake: Fake, target: str) -> None:
    link = {"Link": f"<{target}>; rel=next"}
    fake.answers["*"] = httpx.Response(200, json={"tags": ["a"]}, headers=link)
    with pytest.raises(CannotTell, match="entries or 100 pages"):
        fake.registry().tags()
    assert {(request.url.host, request.url.path) for request in fake.requests} == {("nvcr.io", f"{BASE}/tags/list")}


def test_pages_that_come_slowly_are_not_all_waited_for(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr("runbook_lib.world.registry.time.monotonic", lambda: now + 7 * len(fake.requests))
    link = {"Link": f"<{BASE}/tags/list?last=a>; rel=next"}
    fake.answers["*"] = httpx.Response(200, json={"tags": ["a"]}, headers=link)
    with pytest.raises(Unreachable, match="within 60 s, after 9 tags"):
        fake.registry().tags()


# The judgement


@pytest.mark.parametrize(
    ("tag", "listed", "detail"),
    [
        ("27.01-py3", ["26.06-py3-igpu", "26.6", "latest", "26.04-py3"], "newest tags are 26.04-py3: choose one"),
        ("27.01-py3-igpu", ["26.05-py3-igpu", "26.06-py3"], "newest tags are 26.05-py3-igpu: choose one"),
        ("27.01-py3-sbsa", ["26.06-py3"], "has no tag 27.01-py3-sbsa. It has no tag of this kind."),
        ("27.01-py3", None, "has no tag 27.01-py3. Its tags could not be read"),
    ],
)
def test_the_newest_tags_of_the_same_kind_are_proposed(
    fake: Fake, tag: str, listed: list[str] | None, detail: str
) -> None:
    page = httpx.Response(403) if listed is None else httpx.Response(200, json={"tags": listed})
    fake.answers[f"{BASE}/tags/list"] = page
    check, image = verify_tag(fake.registry(), NGC.read(tag), BOTH)
    assert (check.status, image) == ("failed", None)
    assert detail in check.detail
