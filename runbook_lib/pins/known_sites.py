"""The pin sites of the repositories that we know, as data.

NVIDIA/Megatron-LM, from its first GitLab matrix (2025-03) to main at d98e8a64 (2026-08-22), and on ``dev`` and the
branches ``core_r0.12.0`` to ``core_r0.19.0``, has had four layouts:

1. Before 2025-11: no ``.ngc_version`` files, a single row for each type, the LTS row builds ``Dockerfile.ci.lts``.
   The rows are the only pins.
2. From 23a1dcaf74: the ``.ngc_version`` files, both rows build ``Dockerfile.ci.dev`` and differ by ``IMAGE_TYPE``.
3. From cdca7a60d8: a row for each platform.
4. From 4f2e7ce74a: LTS rows build ``Dockerfile.ci.lts`` and have no ``IMAGE_TYPE``.  From d81b638712 Dockerfiles have a
   default for ``FROM_IMAGE_NAME``.

In each of them the rows' ``IMAGE`` distinguishes dev from LTS.  So the rows are always required; the ``.ngc_version``
files together, and once a row has ``IMAGE_TYPE`` or ``PLATFORM``; and a Dockerfile if a row builds it.

README files below ``examples/`` name the images that their examples were made with; these are no pins.
"""

import re

from runbook_lib.images.families import COREWEAVE
from runbook_lib.images.reference import ImageType
from runbook_lib.pins.finders import BuildArg, Counted, DockerArg, MatrixRows, RegexMatches, WholeFile
from runbook_lib.pins.sites import Coupling, PinnedImage, PinSite, Sites

_IMAGE = "nvcr.io/nvidia/pytorch"
_GITLAB = ".gitlab/stages/01.build.yml"
_CI_DEV = "docker/Dockerfile.ci.dev"
_DEV, _LTS = "CI_MCORE_DEV_IMAGE", "CI_MCORE_LTS_IMAGE"
_FROM = DockerArg("FROM_IMAGE_NAME")
_REFERENCE = rf"(?P<image>{re.escape(_IMAGE)}:[\w.-]+(?:@\w+:\w+)?)"
_CUDA = r"(?P<cuda>\d+(?:\.\d+)*)"
_NVSHMEM = rf"\b(?P<version>nvidia-nvshmem-cu{_CUDA}==[\w.]+)"
_TRANSFORMER_ENGINE = rf"\btransformer-engine\[[^]\n]{{0,300}}?(?P<version>core_cu{_CUDA})\b"


def _rows(image: str, *shapes: tuple[str, str | None]) -> MatrixRows:
    allowed = tuple({"FILE": file, "IMAGE_TYPE": image_type} for file, image_type in shapes)
    return MatrixRows(value=image, known=frozenset({_DEV, _LTS}), shapes=allowed)


def _informational(path: str, before: str, selector: str) -> PinSite:
    """Return a site whose lines have the image after a regular expression ``before``."""
    finder = RegexMatches(re.compile(rf"(?m)^[ \t]*{before}{_REFERENCE}"), selector)
    return PinSite(path, finder, "dev", "people", kind="informational")


def _once(finder: BuildArg | DockerArg) -> Counted:
    """Return a finder of an image that the file has exactly once, in every known layout."""
    return Counted(finder, 1, f"an image for {finder.name}", "as in every known layout")


def _coupling(path: str, image_type: ImageType, what: str, version: str) -> Coupling:
    """Return a coupling to lines, not commented out, with a ``version`` that includes its CUDA release."""
    return Coupling(path, re.compile(rf"(?m)^[^#\n]*?{version}"), what, image_type)


_DEV_ROWS = _rows(_DEV, ("Dockerfile.ci.dev", None), ("Dockerfile.ci.dev", "dev"))
_LTS_ROWS = _rows(_LTS, ("Dockerfile.ci.lts", None), ("Dockerfile.ci.dev", "lts"))
MEGATRON_LM = Sites(
    images=(PinnedImage(_IMAGE),),
    pins=(
        PinSite("docker/.ngc_version.dev", WholeFile(), "dev", "github", needs="together"),
        PinSite(_GITLAB, _DEV_ROWS, "dev", "gitlab", needs="always"),
        # A build without the build argument uses the default; forgotten by #5632, fixed by #5680.
        PinSite(_CI_DEV, _FROM, "dev", "github", needs="named"),
        PinSite("docker/.ngc_version.lts", WholeFile(), "lts", "github", needs="together"),
        PinSite(_GITLAB, _LTS_ROWS, "lts", "gitlab", needs="always"),
        PinSite("docker/Dockerfile.ci.lts", _FROM, "lts", "github", needs="named"),
        # No build passes a dev pin to these two.
        PinSite("docker/Dockerfile.ci.nemo", _FROM, "dev", "people", kind="informational"),
        PinSite("docker/Dockerfile.linting", _FROM, "dev", "people", kind="informational"),
        _informational(".github/workflows/install-test.yml", r"image:[ \t]*[\"']?", "image"),
        _informational("docs/get-started/install.md", "", "text"),
        # Before CI reads the .ngc_version files, as on core_r0.15.0, it builds with an image that the workflow names.
        PinSite(".github/workflows/cicd-main.yml", BuildArg("FROM_IMAGE_NAME"), "dev", "github", dockerfile=_CI_DEV),
        # Up to core_r0.16.0; forgotten by 44ab057fef for 129 days.
        _informational(
            ".github/workflows/_update_dependencies.yml", r"docker build .*FROM_IMAGE_NAME=\"?", "FROM_IMAGE_NAME"
        ),
        _informational(
            ".github/workflows/build-test-publish-wheel.yml", r"custom-container:[ \t]*[\"']?", "custom-container"
        ),
    ),
    couplings=(
        _coupling("docker/Dockerfile.ci.dev", "dev", "NCCL", rf"\bNCCL_VERSION=\"?(?P<version>[\w.+-]*?cuda{_CUDA})"),
        _coupling("docker/common/install_nccl.sh", "dev", "NCCL", rf"\bNCCL_VER=\"?(?P<version>[\w.+-]*?cuda{_CUDA})"),
        _coupling("pyproject.toml", "dev", "the extra of Transformer Engine", _TRANSFORMER_ENGINE),
        _coupling("docker/Dockerfile.ci.dev", "dev", "NVSHMEM", _NVSHMEM),
        _coupling("docker/Dockerfile.ci.lts", "lts", "NVSHMEM", _NVSHMEM),
    ),
)

# NVIDIA-NeMo/Megatron-Bridge, at main 067f987d.  CI builds `docker/Dockerfile.ci` on its default; the build argument
# that it passes is declared nowhere in it.  The README's commands and the other workflows were never moved by a bump.
_BRIDGE_CI = "docker/Dockerfile.ci"
MEGATRON_BRIDGE = Sites(
    images=(PinnedImage(_IMAGE),),
    platforms=("amd64", "arm64"),
    pins=(
        PinSite(_BRIDGE_CI, _once(DockerArg("BASE_IMAGE")), "dev", "github", needs="always"),
        PinSite(".github/workflows/cicd-main.yml", BuildArg("FROM_IMAGE_NAME"), "dev", "github", dockerfile=_BRIDGE_CI),
        _informational(".github/workflows/install-test.yml", r"image:[ \t]*[\"']?", "image"),
        _informational(".github/workflows/release.yaml", r"custom-container:[ \t]*[\"']?", "custom-container"),
        PinSite("docker/README.md", BuildArg("NEMO_FW_BASE_IMAGE"), "dev", "people", kind="informational"),
    ),
)

# coreweave/ml-containers, at 71a115d.  Each workload has its own base image; this is Megatron's.
_MEGATRON = _once(BuildArg("BASE_IMAGE"))
ML_CONTAINERS = Sites(
    images=(PinnedImage("ghcr.io/coreweave/ml-containers/torch-extras", COREWEAVE),),
    pins=(
        PinSite(
            ".github/workflows/megatron.yml",
            _MEGATRON,
            "dev",
            "github",
            needs="always",
            dockerfile="megatron/Dockerfile",
        ),
        PinSite(".github/workflows/cw-mega-sam.yml", BuildArg("BASE_IMAGE"), "dev", "people", kind="informational"),
        PinSite("sglang/Dockerfile", DockerArg("BASE_IMAGE"), "dev", "people", kind="informational"),
    ),
)
