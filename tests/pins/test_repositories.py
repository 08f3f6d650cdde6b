import pytest
from layouts import DEV, DOCKERFILE, GITLAB, INSTALL_GUIDE, INSTALL_TEST, LTS, NCCL, PROJECT, image, layout

from runbook_lib.pins import repositories
from runbook_lib.pins.sites import read

MEGATRON_LM = repositories.MEGATRON_LM.sites


def found(path, text):
    """Tags that the informational site of a file finds in a text."""
    (site,) = [site for site in MEGATRON_LM.pins if site.path == path and not site.lockstep]
    return [place.value.rpartition(":")[2] for place in site.finder.find(text, MEGATRON_LM.image)]


@pytest.mark.parametrize(
    ("value", "tags"), [(image("25.09-py3"), ["25.09-py3"]), ("${{ steps.base.outputs.version }}", [])]
)
def test_a_workflow_that_names_the_image_of_githubs_ci_is_a_pin(value, tags):
    """As on core_r0.15.0; later ones read the version files."""
    workflow = f"          build-args: |\n            FROM_IMAGE_NAME={value}\n"
    readings = read(layout(1) | {".github/workflows/cicd-main.yml": workflow}, MEGATRON_LM)
    pins = [(str(pin.tag), r.site.ci) for r in readings if r.site.path.endswith("cicd-main.yml") for pin in r.pins]
    assert pins == [(tag, "github") for tag in tags]


@pytest.mark.parametrize(
    ("texts", "known"),
    [
        ({}, False),
        ({"README.md": "x"}, False),
        ({DOCKERFILE: ""}, False),
        ({INSTALL_TEST: ""}, False),
        ({GITLAB: None, DEV: None}, False),
        ({GITLAB: ""}, True),
        ({LTS: ""}, True),
    ],
)
def test_a_repository_is_known_by_its_matrix_or_its_version_files(texts, known):
    assert MEGATRON_LM.matches(texts) is known


@pytest.mark.parametrize(
    ("path", "text", "tags"),
    [
        (INSTALL_TEST, f"    container:\n      image: {image('25.05-py3')}\n", ["25.05-py3"]),
        (INSTALL_TEST, f"      image: '{image('25.05-py3')}' # {image('25.06-py3')}\n", ["25.05-py3"]),
        (INSTALL_TEST, f"      # image: {image('25.05-py3')}\n      image: python:3.10\n", []),
        (INSTALL_GUIDE, f"docker run \\\n  {image('26.01-py3')}\n", ["26.01-py3"]),
        (INSTALL_GUIDE, "Images are named nvcr.io/nvidia/pytorch:YY.MM-py3.\n", []),
        (
            ".github/workflows/_update_dependencies.yml",
            f'          docker build -f x --build-arg FROM_IMAGE_NAME="{image("25.06-py3")}" --target=main .\n',
            ["25.06-py3"],
        ),
        (
            ".github/workflows/build-test-publish-wheel.yml",
            f"      custom-container: {image('25.05-py3')}\n",
            ["25.05-py3"],
        ),
    ],
)
def test_informational_lines_are_found(path, text, tags):
    assert found(path, text) == tags


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (DOCKERFILE, "ARG NCCL_VERSION=2.30.7-1+cuda13.3\n", [("2.30.7-1+cuda13.3", "13.3")]),
        (DOCKERFILE, "# ARG NCCL_VERSION=2.30.7-1+cuda13.3\nARG NCCL_VERSION\n", []),
        (DOCKERFILE, "    uv pip install nvidia-nvshmem-cu13==3.4.5\n", [("nvidia-nvshmem-cu13==3.4.5", "13")]),
        (DOCKERFILE, "        --no-install-package nvidia-cublas-cu12 \\\n", []),
        (NCCL, 'NCCL_VER="2.30.4-1+cuda13.2"\n', [("2.30.4-1+cuda13.2", "13.2")]),
        (NCCL, '        --NCCL_VER=?*) NCCL_VER="${i#*=}";;\n', []),
        (PROJECT, '    "transformer-engine[pytorch,core_cu13]",\n', [("core_cu13", "13")]),
        (PROJECT, '    "transformer-engine[pytorch,core_cu12]>=2.9.0a0,<2.10.0",\n', [("core_cu12", "12")]),
        (PROJECT, '    "transformer-engine[pytorch]>=2.9",\n', []),
        (PROJECT, '    # "transformer-engine[pytorch,core_cu13]",\n', []),
    ],
)
def test_versions_that_name_their_cuda_are_found(path, text, expected):
    matches = [m for c in MEGATRON_LM.couplings if c.path == path for m in c.regex.finditer(text)]
    assert [(match["version"], match["cuda"]) for match in matches] == expected


def test_a_file_of_unknown_presence_may_be_missing():
    for path in (INSTALL_TEST, INSTALL_GUIDE):
        assert [reading.problem for reading in read(layout(4) | {path: None}, MEGATRON_LM) if reading.problem] == []
    # Before the version files there was no such folder on every branch, and the rows are the pins.
    assert [reading.problem for reading in read(layout(1) | {DOCKERFILE: None}, MEGATRON_LM) if reading.problem] == []
