import pytest

from runbook_lib.text.recipes.file_names import GoldenFileName


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gpt/a/golden_values_dev.json", ("dev", "")),
        ("x/gpt/a/golden_values_lts_dgx_a100_2nd.json", ("lts", "dgx_a100")),
        ("gpt/a/golden_values_dev_2nd.json", ("dev", "")),
        ("gpt/a/golden_values_lts_dgxa100_dracooci-ord.json", ("lts", "dgxa100_dracooci-ord")),
        ("a/golden_values_dev.json", None),
        ("gpt/../golden_values_dev.json", None),
        ("gpt/a/golden_values_devx.json", None),
        ("gpt/a/golden_values_dev.json.bak", None),
        ("gpt/a/golden_values_dev_.json", None),
        ("gpt/a/golden_values_prod_dgx_h100.json", None),
    ],
)
def test_a_path_gives_environment_and_platform(path, expected):
    name = GoldenFileName.of_path(path)
    assert (name and (name.environment, name.platform)) == expected
    assert name is None or path.endswith(f"/{name.file}")


def test_the_names_of_inference_tests_in_artifacts():
    name = GoldenFileName.of_artifact("generations_dev_dgx_h100.json")
    assert name == GoldenFileName("golden_values_dev_dgx_h100.json", "dev", "dgx_h100")
    assert GoldenFileName.of_artifact("golden_values_dev_../../x.json") is None
    assert GoldenFileName.parse("generations_dev_dgx_h100.json") is None
