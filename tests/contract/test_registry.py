"""What the steps rely on of a registry: practice in process, and the real client at a registry on this machine."""

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
from registry_server import RegistryServer

from runbook_lib.images.families import NGC
from runbook_lib.images.reference import ImageRef
from runbook_lib.practice.registry import PracticeRegistry
from runbook_lib.world.image_lookup import verify_tag
from runbook_lib.world.ports import OnlineServices, Registry, Services

NAME, BOTH = "nvcr.io/nvidia/pytorch", ("amd64", "arm64")


@pytest.fixture(params=["practice", "real"])
def services(request: pytest.FixtureRequest) -> Iterator[Services]:
    if request.param == "practice":
        yield SimpleNamespace(registry=PracticeRegistry)  # type: ignore[misc]
        return
    with closing(RegistryServer()) as server:
        yield OnlineServices({"RUNBOOK_REGISTRY": server.url})


@pytest.fixture
def registry(services: Services) -> Registry:
    return services.registry(ImageRef.parse(NAME))


def test_every_tag_names_an_image(registry: Registry) -> None:
    tags = registry.tags()
    assert {"25.09-py3", "26.02-py3", "26.04-py3", "26.05-py3"} < set(tags)
    assert len(set(tags)) == len(tags)
    assert all(registry.image(tag) for tag in tags)


def test_an_image_has_its_platforms_with_versions(registry: Registry) -> None:
    image = registry.image("26.04-py3")
    assert image is not None
    assert sorted(image.platforms) == ["amd64", "arm64"]
    amd, arm = image.platforms["amd64"], image.platforms["arm64"]
    assert (amd.env["NVIDIA_PYTORCH_VERSION"], amd.env["CUDA_VERSION"]) == ("26.04", "13.2.0.046")
    assert amd.env == arm.env
    assert len({image.digest, amd.digest, arm.digest}) == 3
    assert min(amd.size, arm.size) > 0


def test_a_digest_names_the_same_image(registry: Registry) -> None:
    image = registry.image("26.04-py3")
    assert image is not None
    assert registry.image(image.digest) == image


def test_what_is_missing_is_none_and_no_error(services: Services, registry: Registry) -> None:
    assert registry.image("27.01-py3") is None
    assert registry.image("sha256:" + "0" * 64) is None
    other = services.registry(ImageRef.parse("nvcr.io/nvidia/no-such-image"))
    assert (other.tags(), other.image("26.04-py3")) == ([], None)


@pytest.mark.parametrize(
    ("tag", "status", "says"),
    [
        ("26.04-py3", "passed", "for amd64 and arm64."),
        ("26.03-py3", "failed", "exists for amd64, and not for arm64. Its newest tags are 26.06-py3, "),
        ("26.12-py3", "failed", "has no tag 26.12-py3. Its newest tags are 26.06-py3, "),
    ],
)
def test_a_tag_is_verified_for_every_platform(registry: Registry, tag: str, status: str, says: str) -> None:
    check, image = verify_tag(registry, NGC.read(tag), BOTH)
    assert check.status == status
    assert says in check.detail
    assert (image is None) is ("has no tag" in says)
