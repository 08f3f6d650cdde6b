"""The changes of a new image, as tables, as Markdown, and for configs with unusual values."""

from runbook_lib.images.compare import Component, compare, merged, versions
from runbook_lib.images.reference import Image, PlatformImage

UBUNTU = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "24.04"}


def image(**platforms):
    """Platform → environment, or environment and size."""
    images = {}
    for name, value in platforms.items():
        env, size = value if isinstance(value, tuple) else (value, 10_000_000_000)
        images[name] = PlatformImage("sha256:" + "1" * 64, size, env, UBUNTU)
    return Image("sha256:" + "0" * 64, images)


OLD = {"CUDA_VERSION": "12.9.1.006", "NCCL_VERSION": "2.27.3", "PYTORCH_VERSION": "2.8.0a0+5228986", "OLD_ONE": "1"}
NEW = {"CUDA_VERSION": "13.0.0.044", "NCCL_VERSION": "2.27.7", "PYTORCH_VERSION": "2.8.0a0+34c6371", "NEW_ONE": "2"}


CHANGES = {
    "same": [("", ""), ("13.1", "13.1")],
    "changed": [
        ("13.1", "13.2"), ("2.9.0a0+a", "2.9.0a0+b"), ("9.20.0.48", "9.100.0"), ("one", "other"), ("one", "2.0"),
        ("2.0", "one"),
    ],
    "major": [("12.9", "13.0"), ("9", "10.1"), ("580.82.07", "595.45.04"), ("v1.2", "v2.0")],
    "back": [("13.2", "13.1"), ("13.0", "12.9"), ("2.29.2-1", "2.9.1")],
    "new": [("", "2.12")],
    "gone": [("2.12", "")],
}  # fmt: skip


def test_the_change_of_a_version():
    for change, pairs in CHANGES.items():
        assert [Component("x", *pair).change for pair in pairs] == [change] * len(pairs)


def test_platforms_in_which_the_same_changes_share_a_row():
    same = {"component": "CUDA", "old": "13.1", "new": "13.2", "change": "changed"}
    other = same | {"component": "NCCL"}
    rows = [{"platform": "amd64"} | same, {"platform": "amd64"} | other, {"platform": "arm64"} | same]
    assert merged([]) == []
    assert merged(rows) == [{"platform": "amd64, arm64"} | same, {"platform": "amd64"} | other]


def test_the_text_of_a_pull_request_has_a_row_for_each_component():
    arm = NEW | {"NCCL_VERSION": "2.28.0"}
    text = compare(image(amd64=OLD, arm64=OLD), image(amd64=NEW, arm64=arm), ("25.06-py3", "25.09-py3")).markdown()
    assert text.splitlines()[:9] == [
        "| `amd64`, `arm64` | `25.06-py3` | `25.09-py3` | |",
        "| --- | --- | --- | --- |",
        "| CUDA | `12.9.1.006` | `13.0.0.044` | **major** |",
        "| NCCL (amd64) | `2.27.3` | `2.27.7` |  |",
        "| PyTorch | `2.8.0a0+5228986` | `2.8.0a0+34c6371` |  |",
        "| Ubuntu | `24.04` | `24.04` | same |",
        "| download | `10.00 GB` | `10.00 GB` | same |",
        "| NCCL (arm64) | `2.27.3` | `2.28.0` |  |",
        "",
    ]
    assert "Environment variables added: `NEW_ONE`." in text
    assert "Environment variables dropped: `OLD_ONE`." in text


def test_the_download_is_shown_but_is_not_a_version():
    comparison = compare(image(amd64=(OLD, 9_900_000_000)), image(amd64=(OLD, 10_890_000_000)), ("old", "new"))
    (row,) = (row for row in comparison.rows() if row["component"] == "download")
    assert row == {
        "platform": "amd64", "component": "download", "old": "9.90 GB", "new": "10.89 GB", "change": "changed"
    }  # fmt: skip
    assert "| download | `9.90 GB` | `10.89 GB` |" in comparison.markdown()


def test_added_and_removed_platforms_are_shown():
    comparison = compare(image(amd64=OLD, arm64=OLD), image(amd64=NEW, riscv64=NEW), ("old", "new"))
    assert (comparison.removed_platforms, comparison.added_platforms) == (("arm64",), ("riscv64",))
    assert list(comparison.platforms) == ["amd64"]
    assert "**No longer published for `arm64`.**" in comparison.markdown()
    assert "New for `riscv64`." in comparison.markdown()
    assert (
        compare(image(amd64=OLD), image(arm64=OLD), ("old", "new"))
        .markdown()
        .startswith("`old` and `new` have no platform in")
    )


def test_values_of_secrets_are_not_shown_and_long_ones_are_cut():
    env = {"BUILD_TOKEN": "abcdefgh12345", "OTHER": "nvapi-" + "x" * 30, "LONG": "y" * 500}
    comparison = compare(image(amd64={}), image(amd64=env), ("old", "new"))
    assert {row["variable"]: row["new"] for row in comparison.environment()} == {
        "BUILD_TOKEN": "***", "OTHER": "***", "LONG": "y" * 79 + "…"
    }  # fmt: skip
    assert "abcdefgh" not in comparison.markdown()


def test_the_variables_of_coreweaves_bases_are_known():
    env = {"NV_CUDNN_VERSION": "9.10.2.21-1", "NV_LIBCUBLAS_VERSION": "12.9.1.4-1", "NCCL_VERSION": "2.27.3-1"}
    known = versions(PlatformImage("", 0, env))
    assert (known["cuDNN"], known["cuBLAS"], known["NCCL"]) == ("9.10.2.21-1", "12.9.1.4-1", "2.27.3-1")
    assert known["Ubuntu"] == ""
    assert versions(PlatformImage("", 0, {}, {"org.opencontainers.image.version": "9"}))["Ubuntu"] == ""
