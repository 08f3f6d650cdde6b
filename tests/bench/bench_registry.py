"""Round trips in sequence until preflight knows the image and all tags, at a registry with latency and 400 tags.

    environment/run python tests/bench/bench_registry.py

or ``environment/run pytest -n0 tests/bench/bench_registry.py``.  Targets: at most 4 round trips; warm cache: none.
The first login at a registry that is not well known costs one more: only its refusal says where tokens are given.
"""

import sys
import tempfile
import time

import httpx

from runbook_lib.clients.registry.client import Registry
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice.registry import images
from runbook_lib.practice.registry.server import RegistryServer

LATENCY, TAGS = 0.05, 400  # seconds for each answer
_REF = ImageRef.parse("nvcr.io/nvidia/pytorch")


class Distant(httpx.HTTPTransport):
    """A network on which every answer takes its time.  With a token at hand the registry is an open one."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token
        self.requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.token:
            request.headers["Authorization"] = f"Bearer {self.token}"
        time.sleep(LATENCY)
        return super().handle_request(request)


def look(url: str, cache: str, tag: str, *, token: str = "", max_age: float = 300.0) -> tuple[float, int]:
    """Seconds in round trips, and requests in all, for the image and the list of tags."""
    distant = Distant(token)
    env = {"RUNBOOK_REGISTRY": url, "XDG_CACHE_HOME": cache}
    with Registry.connect(_REF, env, max_age=max_age, transport=distant) as registry:
        start = time.perf_counter()
        image, tags = registry.look(tag)
        seconds = time.perf_counter() - start
    assert image is not None
    assert (len(image.platforms), len(tags.names)) == (2, TAGS)
    return seconds / LATENCY, distant.requests


def measure() -> list[tuple[str, float, int, float]]:
    """Name, round trips, requests and target of each case, in the order in which a person meets them."""
    names = [f"{year:02}.{month:02}" for year in range(60, 98) for month in range(1, 13)][:TAGS]
    server = RegistryServer(stored=images.content(dict.fromkeys(names, images.MONTHS["26.04"])))
    scope = {"scope": f"repository:{images.REPOSITORY}:pull"}
    token = httpx.get(f"{server.url}/token", params=scope, trust_env=False).json()["token"]
    one, other = (f"{name}-py3" for name in names[-2:])
    with tempfile.TemporaryDirectory() as fresh, tempfile.TemporaryDirectory() as cache:
        found = [
            ("open registry, nothing known", *look(server.url, fresh, one, token=token), 4.0),
            ("tokens, the very first time", *look(server.url, cache, one), 5.0),
            ("tokens, an image not seen before", *look(server.url, cache, other, max_age=0), 4.0),
            ("tokens, the tag asked again", *look(server.url, cache, one, max_age=0), 4.0),
            ("warm cache", *look(server.url, cache, one), 0.0),
        ]
    server.close()
    return found


def missed(found: list[tuple[str, float, int, float]]) -> list[str]:
    """The cases that took a round trip more than their target; less than one is the work itself."""
    return [name for name, trips, _, target in found if trips >= target + 1]


def test_preflight_waits_for_few_round_trips() -> None:
    assert missed(measure()) == []


if __name__ == "__main__":
    results = measure()
    for name, trips, requests, target in results:
        verdict = "FAIL" if name in missed(results) else "PASS"
        print(
            f"{verdict}  {name:34} {int(trips)} round trips in sequence  (at most {target:g}); "
            f"{trips * LATENCY * 1000:.0f} ms with the work between them, {requests} requests"
        )
    sys.exit(bool(missed(results)))
