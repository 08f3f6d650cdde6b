"""The registry client against servers that are not ours: Debian's docker-registry, and TLS that nobody trusts."""

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
import registry_server
from building import debian_registry
from loopback import Handler, key_and_certificate, secured, serving
from registry_server import RegistryServer

from runbook_lib.errors import Unreachable
from runbook_lib.images.families import NGC
from runbook_lib.images.reference import Image, ImageRef
from runbook_lib.world.image_lookup import verify_tag
from runbook_lib.world.registry import OciRegistry
from runbook_lib.world.transport import http

REF = ImageRef.parse("nvcr.io/nvidia/pytorch:26.04-py3")
HELD = registry_server.content()
TAG = NGC.read("26.04-py3")
BOTH = ("amd64", "arm64")


class NoTags(Handler):
    """An open registry without tags."""

    def do_GET(self) -> None:
        self.answer(b'{"tags": []}')


@pytest.mark.parametrize(
    ("days", "trusted", "says"),
    [
        ((-1, 1), True, ""),
        ((-1, 1), False, r"certificate is not accepted .*; a company's own CA goes into SSL_CERT_FILE"),
        ((-9, -1), True, r"certificate is not accepted .*expired.* this machine's clock .20.* right"),
        ((1, 9), True, r"certificate is not accepted .*not yet valid.* this machine's clock .20"),
    ],
)
def test_certificates_that_are_not_trusted_or_not_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: tuple[int, int], trusted: bool, says: str
) -> None:
    context = secured(tmp_path / "both.pem", days)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "both.pem"))
    monkeypatch.setattr(http, "PAUSES", (99,))  # it is not tried again
    with serving(NoTags, context=context) as url:
        registry = OciRegistry(REF, {"RUNBOOK_REGISTRY": url})
        if says:
            with pytest.raises(Unreachable, match=says):
                registry.tags()
        else:
            assert registry.tags() == []


class TokenServer(Handler):
    """Distribution's token service: anybody may pull nvidia/pytorch, who has the key may pull nvidia/private."""

    key = certificate = ""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        scope = query["scope"][0].split(":")
        good = "Basic " + base64.b64encode(b"$oauthtoken:good").decode()
        allowed = scope[1] == "nvidia/pytorch" or self.headers.get("Authorization") == good
        now = int(time.time())
        claims = {
            "iss": "tests", "sub": "", "aud": query["service"][0], "exp": now + 300, "nbf": now - 10, "iat": now,
            "jti": "1", "access": [{"type": scope[0], "name": scope[1], "actions": ["pull"]}] if allowed else [],
        }  # fmt: skip
        chain = "".join(self.certificate.splitlines()[1:-1])
        self.answer(json.dumps({"token": jwt.encode(claims, self.key, "RS256", {"x5c": [chain]})}).encode())


def oci_layout(folder: Path) -> None:
    """Write the practice images as skopeo reads them."""
    (folder / "blobs/sha256").mkdir(parents=True)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    for digest, blob in {**HELD.manifests, **HELD.blobs}.items():
        (folder / "blobs/sha256" / digest.removeprefix("sha256:")).write_bytes(blob.data)
    named = [
        HELD.manifests[digest].descriptor(annotations={"org.opencontainers.image.ref.name": tag})
        for tag, digest in HELD.tags.items()
    ]
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": named}))


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A storage folder filled by skopeo, and the open registry on it."""
    folder = tmp_path_factory.mktemp("debian")
    oci_layout(folder / "oci")
    with debian_registry(folder) as url:
        for repository, tag in (("pytorch", "26.03-py3"), ("pytorch", "26.04-py3"), ("private", "26.04-py3")):
            target = f"docker://{url.removeprefix('http://')}/nvidia/{repository}:{tag}"
            copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests"]
            subprocess.run(
                [*copy, "--dest-tls-verify=false", f"oci:{folder}/oci:{tag}", target], check=True, timeout=200
            )
        yield folder, url


@pytest.fixture(scope="module")
def guarded(storage: tuple[Path, str]) -> Iterator[str]:
    """The same content behind token authentication."""
    folder, _ = storage
    TokenServer.key, TokenServer.certificate = key_and_certificate()
    (folder / "certificate.pem").write_text(TokenServer.certificate)
    with serving(TokenServer) as tokens:
        auth = (
            f'auth: {{token: {{realm: "{tokens}/token", service: tests, issuer: tests, '
            f"rootcertbundle: {folder / 'certificate.pem'}}}}}"
        )
        with debian_registry(folder, auth) as url:
            yield url


def practice_image() -> Image | None:
    """The same image, as our own registry shows it."""
    server = RegistryServer()
    image = OciRegistry(REF, {"RUNBOOK_REGISTRY": server.url}).image(str(TAG))
    server.close()
    return image


@pytest.mark.component("registry")
def test_debians_registry_open_and_with_tokens(storage: tuple[Path, str], guarded: str) -> None:
    for url in (storage[1], guarded):
        registry = OciRegistry(REF, {"RUNBOOK_REGISTRY": url})
        assert sorted(registry.tags()) == ["26.03-py3", "26.04-py3"]
        check, image = verify_tag(registry, TAG, BOTH)
        assert check.status == "passed"
        assert image == practice_image()
        assert registry.image("26.05-py3") is None
    ref = ImageRef.parse("nvcr.io/nvidia/private:26.04-py3")
    check, _ = verify_tag(OciRegistry(ref, {"RUNBOOK_REGISTRY": guarded}), TAG, BOTH)
    assert check.status == "skipped"
    assert "refuses read access (HTTP 401). If the image is not public, set NGC_API_KEY" in check.detail
    signed_in = OciRegistry(ref, {"RUNBOOK_REGISTRY": guarded, "NGC_API_KEY": "good"})
    assert verify_tag(signed_in, TAG, BOTH)[0].status == "passed"
