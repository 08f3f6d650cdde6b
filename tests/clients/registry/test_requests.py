"""How many round trips in sequence a distant registry is waited for, counted on a network that answers in waves."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from runbook_lib import practice
from runbook_lib.bump import Bump
from runbook_lib.clients.registry.client import Registry
from runbook_lib.errors import Unreachable
from runbook_lib.git.checkout import Checkout
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice.registry import images
from runbook_lib.practice.registry.server import RegistryServer
from runbook_lib.workflow import bump_branch, bump_plan

TAG = "26.04-py3"
#: So many naps without a new request, and those that wait are answered; a busy machine makes each nap longer.
QUIET, NAP = 20, 0.01
REF = ImageRef.parse("nvcr.io/nvidia/pytorch")
Send = Callable[[httpx.Request], httpx.Response]


class Waves(httpx.BaseTransport):
    """Holds requests back until no more come, then answers all of them: each wave is one round trip."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._changed = threading.Condition()
        self.count = 0
        self.paths: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with self._changed:
            self.paths.append(request.url.path)
            wave, requests, naps = self.count, len(self.paths), 0
            while self.count == wave:
                if naps == QUIET:
                    self.count += 1
                    self._changed.notify_all()
                    break
                self._changed.wait(NAP)
                naps = naps + 1 if len(self.paths) == requests else 0
                requests = len(self.paths)
        return self._send(request)


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    """Two platforms, 400 tags, a token for everybody."""
    names = [f"{year:02}.{month:02}" for year in range(60, 98) for month in range(1, 13)][:399]
    held = images.content({"26.04": images.MONTHS["26.04"], **dict.fromkeys(names, images.MONTHS["26.04"])})
    started = RegistryServer(stored=held)
    yield started
    started.close()


def look(waves: Waves, url: str, cache: Path, **env: str) -> int:
    """The round trips for an image and the list of tags."""
    before = waves.count
    env = {"RUNBOOK_REGISTRY": url, "XDG_CACHE_HOME": str(cache), **env} if url else {"RUNBOOK_CACHE": "off", **env}
    with Registry.connect(REF, env, transport=waves) as registry:
        image, tags = registry.look(TAG)
    assert image is not None
    assert (sorted(image.platforms), len(tags.names)) == (["amd64", "arm64"], 400)
    return waves.count - before


def test_the_first_query_takes_five_round_trips_and_the_next_none(server: RegistryServer, tmp_path: Path) -> None:
    with httpx.HTTPTransport() as real:
        waves = Waves(real.handle_request)
        assert look(waves, server.url, tmp_path) == 5
        assert look(waves, server.url, tmp_path) == 0
    assert waves.paths.count("/token") == 1


def elsewhere(server: RegistryServer, real: httpx.HTTPTransport, realm: str) -> Send:
    """The registry at whatever address, its tokens at ``realm``."""
    lost = httpx.Response(404)

    def send(request: httpx.Request) -> httpx.Response:
        asked = str(request.url.copy_with(query=None))
        if not request.url.path.startswith("/v2/") and asked != realm:
            return lost
        if "Authorization" not in request.headers and request.url.path.startswith("/v2/"):
            return httpx.Response(401, headers={"WWW-Authenticate": f'Bearer realm="{realm}",service="s"'})
        path = "/token" if asked == realm else request.url.path
        there = httpx.URL(server.url).copy_with(raw_path=path.encode() + b"?" + request.url.query)
        headers = {name: value for name, value in request.headers.items() if name in ("authorization", "accept")}
        answer = real.handle_request(httpx.Request("GET", there, headers=headers))
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.read())

    return send


def test_a_known_registry_is_asked_for_a_token_first(server: RegistryServer, tmp_path: Path) -> None:
    with httpx.HTTPTransport() as real:
        waves = Waves(elsewhere(server, real, "https://nvcr.io/proxy_auth"))
        assert look(waves, "", tmp_path, NGC_API_KEY="") == 4
    assert waves.paths[0] == "/proxy_auth"


def test_a_known_registry_with_a_new_token_service_is_queried_for_it(server: RegistryServer, tmp_path: Path) -> None:
    with httpx.HTTPTransport() as real:
        waves = Waves(elsewhere(server, real, "https://login.example.com/tokens"))
        assert look(waves, "", tmp_path) == 6
        assert look(waves, "https://far.example.com", tmp_path) == 5
        (tmp_path / "base-image-runbook/registry/sha256").rename(tmp_path / "content")
        for answer in (tmp_path / "base-image-runbook/registry/answers").iterdir():
            if b"far.example.com/v2" in answer.read_bytes():
                answer.unlink()
        assert look(waves, "https://far.example.com", tmp_path) == 4


def test_a_token_of_another_place_than_the_registry_names_is_not_used() -> None:
    seen: list[str | None] = []

    def send(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, json={"token": request.url.host})
        seen.append(request.headers.get("Authorization"))
        if seen[-1] == "Bearer login.example.com":
            return httpx.Response(200, json={"tags": ["a"]})
        return httpx.Response(401, headers={"WWW-Authenticate": 'Bearer realm="https://login.example.com/token"'})

    env = {"RUNBOOK_REGISTRY": "https://far.example.com"}
    with Registry.connect(REF, env, transport=httpx.MockTransport(send)) as registry:
        assert registry.tags() == ["a"]
    assert seen == [None, "Bearer login.example.com"]


def test_a_token_service_without_an_answer_is_named() -> None:
    def send(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            raise httpx.ConnectError("no")
        return httpx.Response(401, headers={"WWW-Authenticate": 'Bearer realm="https://far.example.com/token"'})

    with (
        Registry.connect(
            REF,
            {"RUNBOOK_REGISTRY": "https://far.example.com"},
            transport=httpx.MockTransport(send),
            sleep=lambda _: None,
        ) as registry,
        pytest.raises(Unreachable, match=r"at far\.example\.com: the connection failed"),
    ):
        registry.tags()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[practice.World]:
    monkeypatch.setenv("RUNBOOK_PRACTICE_HOME", str(tmp_path / "world"))
    with practice.start() as started:
        for name, value in started.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("RUNBOOK_CACHE", str(tmp_path / "cache"))
        yield started


def test_the_age_of_the_old_image_is_not_that_of_the_new(
    world: practice.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry.connect(REF) as registry:
        assert registry.image("26.02-py3") is not None
    real = time.time
    monkeypatch.setattr("runbook_lib.clients.registry.cache.time.time", lambda: real() + 200)
    ahead = bump_plan.plan_bump(bump_branch.find(Checkout.open(world.checkout), Bump.parse(tag=TAG)))
    assert ahead.changes is not None
    assert ahead.changes.old == "26.02-py3"
    assert "It was read" not in ahead.check.detail


def test_preflight_reads_the_old_image_and_the_new_one_in_five_round_trips(
    world: practice.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = httpx.HTTPTransport.handle_request
    transports: list[httpx.HTTPTransport] = []
    waves = Waves(lambda request: real(transports[-1], request))

    def through(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        transports.append(transport)
        return waves.handle_request(request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", through)
    branch = bump_branch.find(Checkout.open(world.checkout), Bump.parse(tag=TAG))
    for trips in (5, 5):
        ahead = bump_plan.plan_bump(branch)
        assert ahead.changes is not None
        assert waves.count == trips
