import json

import pytest
from clones import commit, git, write

from runbook_lib.cli.__main__ import main
from runbook_lib.text.recipes.file_names import FOLDER

NAME = "gpt/case/golden_values_dev_dgx_h100.json"


def series(value, mark=None):
    values = {str(step): value for step in range(1, 51)} | ({"1": mark} if mark else {})
    entry = {"start_step": 1, "end_step": 50, "step_interval": 1, "values": values}
    return json.dumps({"lm loss": entry, "num-zeros": entry, "iteration-time": entry})


def clone(root, *states):
    for number, files in enumerate(states):
        commit(root, files)
        git(root, "tag", f"v{number}")
    return root


@pytest.fixture
def sides(tmp_path):
    def make(old, new):
        for side, files in (("old", old), ("new", new)):
            (tmp_path / side).mkdir()
            write(tmp_path / side, files)
        return str(tmp_path / "old"), str(tmp_path / "new")

    return make


@pytest.mark.parametrize(
    ("old", "new", "status", "told"),
    [
        ("\udcff", "\udcff", 0, "1 unchanged"),
        (series(1.0), series(1.001), 0, "1 refreshed"),
        (series(1.0), series(5.0), 1, "1 held back"),
        (series(1.0), series(1.0, "nan"), 1, "1 refused"),
        (series(1.0), "broken", 1, "1 refused"),
        (series(1.0), "\udcff", 1, "UTF-8"),
        (series(1.0, "nan"), series(1.001, "nan"), 0, "1 refreshed"),
    ],
)
def test_folders(sides, capsys, old, new, status, told):
    assert main(["golden", "diff", *sides({NAME: old}, {NAME: new})]) == status
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "refreshed", "status", "output"),
    [(series(1.0), series(1.0), 0, "**Renamed** (1)"), (series(1.0), series(2.0), 1, "1 refreshed, 1 held back")],
)
def test_a_renamed_file_is_compared_with_its_old_self(sides, capsys, content, refreshed, status, output):
    other = series(7.0)
    new = {NAME.replace("case", "renamed"): refreshed, "gpt/other/golden_values_dev.json": other}
    old = {NAME: content, "gpt/other/golden_values_dev.json": other}
    assert main(["golden", "diff", *sides(old, new)]) == status
    assert output in capsys.readouterr().out


def test_commits_of_a_clone(tmp_path, capsys):
    path = f"{FOLDER}/{NAME}"
    config = f"{FOLDER}/gpt/case/model_config.yaml"
    nan = series(1.0, "nan")
    lint = {"tools/check_golden_values.py": ""}
    root = clone(tmp_path, {path: nan, config: "METRICS: [num-zeros]"}, {path: series(1.0001, "nan")}, lint)
    git(root, "checkout", "--detach", "v0")
    assert main(["golden", "diff", "v0", "v0", "--repo", str(root)]) == 0
    capsys.readouterr()
    assert main(["golden", "diff", "v0", "v1", "--repo", str(root), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["history"], document["groups"]) == (2, "read", [])
    assert document["compared"] == 1
    measures = document["measures"]
    assert (measures[0]["file"], measures[0]["n_steps"]) == (NAME, 49)
    assert measures[0]["avg_rel_diff"] == pytest.approx(-0.0001)
    assert [(row["metric"], row["ci"] != "") for row in measures] == [
        ("lm loss", False), ("num-zeros", True), ("iteration-time", False)
    ]  # fmt: skip
    # Where the repository has the lint, no changed file may hold NaN, whether or not it was there before.
    assert main(["golden", "diff", "v0", "v2", "--repo", str(root)]) == 1
    assert main(["golden", "diff", "v1", str(root), "--repo", str(root)]) == 0


@pytest.mark.parametrize("names", [("nope", "v0"), ("--", "v0", "-x"), ("v0", "v0"), ("empty", "empty")])
def test_sides_that_cannot_be_read(tmp_path, capsys, names, monkeypatch):
    root = clone(tmp_path, {"a": "b"})
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(root)
    assert main(["golden", "diff", *names]) == 2
    told = capsys.readouterr().err
    assert told.startswith("runbook: ")
    if names[0] == "nope":
        assert told.startswith(f"runbook: 'nope' is neither a folder nor a commit of {root}: ")


def shifted(factor):
    data = json.loads(series(1.0))
    data["iteration-time"] = {"values": {str(step): factor for step in range(1, 51)}}
    return json.dumps(data)


@pytest.mark.parametrize("shallow", [False, True])
def test_a_file_that_only_its_group_holds_back_names_the_group(tmp_path, capsys, shallow):
    names = [f"{FOLDER}/gpt/case{number}/golden_values_dev_dgx_h100.json" for number in range(8)]
    states = [dict.fromkeys(names, shifted(factor)) for factor in (1.0, 1.01, 1.5)]
    root = clone(tmp_path / "full", *states)
    if shallow:
        git(tmp_path, "clone", "-q", "--depth", "2", root.as_uri(), "shallow")
        root = tmp_path / "shallow"
    arguments = ["golden", "diff", "HEAD~1", "HEAD", "--history", "HEAD~1", "--repo", str(root), "--json"]
    assert main(arguments) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["version"], report["outcome"]) == (2, "held back")
    assert ("--unshallow" in report["history"]) == shallow
    (group,) = report["groups"]
    names = [name.removeprefix(f"{FOLDER}/") for name in names]
    assert (group["id"], group["platform"], group["family"]) == ("dgx_h100/iteration-time", "dgx_h100", None)
    assert (group["files"], group["verdict"], group["metric"]) == (names, "held back", "iteration-time")
    assert group["ratio"] == pytest.approx(1.5 / 1.01)
    assert [(row["file"], row["verdict"], row["group"]) for row in report["files"]] == [
        (name, "refresh", group["id"]) for name in names
    ]
    assert main([*arguments[:4], "--history", "nosuch", *arguments[6:]]) == 2
    assert "nosuch" in capsys.readouterr().err
