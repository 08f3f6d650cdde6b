"""Tests of the lock: the installed packages, licences, the bill of materials and vulnerabilities."""

import ast
import datetime
import json
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from figures import Figures
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "environment"
sys.path.append(str(ENVIRONMENT))

import locked  # noqa: E402
import vulnerabilities  # noqa: E402

SCHEMAS = ENVIRONMENT / ".components/cyclonedx/node_modules/@cyclonedx/cyclonedx-library/res/schema"
TODAY = datetime.date(2026, 11, 21)


def test_the_environment_matches_the_lock() -> None:
    installed = {name: package.version for name, package in locked.installed().items()}
    assert installed == {package.name: package.version for package in locked.read() if package.here}


def test_no_committed_file_names_a_package_index() -> None:
    # Written so that this file does not name them.
    hosts = r"py[p]i\.(org|io)|pythonh[o]sted\.|npmj[s]\.(org|com)|deb[.]debian[.]or[g]"
    options = r"(?m)^\s*(--(extra-)?index-url|--find-links|--trusted-host)\b|^\[\[tool\.uv\.index\]\]"
    command = ("git", "grep", "-l", "-I", "-i", "-P", f"{hosts}|{options}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 1), done.stderr


def test_the_supported_pythons_are_stated_consistently() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"
    assert "--python-version 3.11 " in (ENVIRONMENT / "lock").read_text()
    assert "(3, 11)" in (ENVIRONMENT / "run").read_text()
    assert ".".join(map(str, sys.version_info[:2])) in SpecifierSet(project["project"]["requires-python"])


def test_the_library_is_valid_for_the_oldest_python_and_without_warnings_of_newer_ones() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in [*ROOT.glob("runbook_lib/**/*.py"), *ENVIRONMENT.glob("*.py")]:
            tree = ast.parse(path.read_text(), str(path), feature_version=(3, 11))
            # Python 3.14 warns of a return in a finally clause.
            for node in ast.walk(tree):
                for statement in node.finalbody if isinstance(node, ast.Try) else ():
                    assert not any(isinstance(child, ast.Return) for child in ast.walk(statement)), path


def command(place: Path, name: str, *arguments: str) -> tuple[int, str]:
    run = [sys.executable, str(place / name), *arguments]
    done = subprocess.run(run, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the files that the commands read."""
    folder = tmp_path / "environment"
    folder.mkdir()
    for path in (*ENVIRONMENT.glob("*.py"), *ENVIRONMENT.glob("*.txt")):
        shutil.copy(path, folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return folder


def test_all_licences_are_known() -> None:
    status, output = command(ENVIRONMENT, "licences.py")
    assert status == 0, output


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("\nhttpx | BSD License", "", r"httpx .*licences\.txt"),
        ("\nhttpx | BSD License", "\nhttpx | MIT", r"httpx .*BSD License.*licences\.txt.* MIT"),
        ("\nappnope | BSD-2-Clause", "\nappnope |", r"appnope is unknown"),
        ("\nhttpx |", "\nleft-pad | WTFPL\nhttpx |", r"left-pad .*licences\.txt.* locked"),
    ],
)
def test_a_wrong_licence_is_reported(place: Path, old: str, new: str, line: str) -> None:
    before = (place / "licences.txt").read_text()
    assert old in before
    (place / "licences.txt").write_text(before.replace(old, new))
    status, text = command(place, "licences.py")
    assert status == 1
    assert re.search(line, text)
    command(place, "licences.py", "--renew")
    if "appnope" not in old:  # locked for another system, so its line is written by hand
        assert (place / "licences.txt").read_text() == before


@pytest.mark.component("cyclonedx")
def test_the_bill_of_materials_satisfies_cyclonedxs_schema(place: Path) -> None:
    from jsonschema import Draft7Validator
    from referencing import Registry, Resource

    status, text = command(place, "sbom.py")
    assert status == 0
    assert (status, text) == command(place, "sbom.py"), "the same lock gave a different document"
    registry: Registry[Any] = Registry()
    for name in ("spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json"):
        schema = Resource.from_contents(json.loads((SCHEMAS / name).read_text()))
        registry = registry.with_resource(f"http://cyclonedx.org/schema/{name}", schema)
    validator = Draft7Validator(json.loads((SCHEMAS / "bom-1.6.SNAPSHOT.schema.json").read_text()), registry=registry)
    document = json.loads(text)
    assert [error.message for error in validator.iter_errors(document)] == []
    purls = {f"pkg:pypi/{package.name}@{package.version}" for package in locked.read()}
    assert {component["purl"] for component in document["components"]} == purls
    # Every package is a direct or an indirect dependency of the project.
    needs = {entry["ref"]: set(entry["dependsOn"]) for entry in document["dependencies"]}
    reached, unread = set(), {document["metadata"]["component"]["bom-ref"]}
    while unread:
        reached |= unread
        unread = set().union(*(needs[ref] for ref in unread)) - reached
    assert reached == needs.keys()


def advisory(**affected: Any) -> dict[str, Any]:
    package = {"name": "snowdrop", "ecosystem": "PyPI"}
    return {"id": "PYSEC-1", "aliases": ["CVE-1"], "affected": [{"package": package, **affected}]}


def ranges(*events: dict[str, str]) -> dict[str, Any]:
    return advisory(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


def judged(record: dict[str, Any], version: str, *accepted: Any) -> tuple[list[str], list[str]]:
    advisories = vulnerabilities.Advisories(TODAY, (record,), frozenset({"snowdrop"}))
    entry = locked.Locked("snowdrop", version, True, ("0" * 64,), ())
    return vulnerabilities.judge(advisories, [entry], accepted, TODAY)


SINCE = {"introduced": "1.2"}
ALWAYS = {"introduced": "0"}


@pytest.mark.parametrize(
    ("record", "clean", "vulnerable"),
    [
        (ranges(ALWAYS), [], ["0.1", "9"]),
        (ranges(ALWAYS, {"fixed": "2.0"}), ["2.0", "2.0.post1"], ["1.9", "2.0rc1", "0.0.1"]),
        (ranges({"fixed": "2.0"}, SINCE), ["1.1", "2.0", "10.0"], ["1.2", "1.10"]),
        (ranges(SINCE, {"last_affected": "1.4"}), ["1.1", "1.4.1"], ["1.2", "1.4"]),
        (ranges(ALWAYS, {"fixed": "1.0"}, {"introduced": "2.0"}, {"fixed": "2.5"}), ["1.0", "2.5"], ["0.9", "2.4"]),
        (ranges({"introduced": "2004d"}, {"fixed": "1.1"}), ["1.1"], ["1.0"]),
        (advisory(versions=["1.0", "1.10"]), ["1.1", "1.1.0"], ["1.0.0", "1.10"]),
        (advisory(), ["1.0"], []),
        (advisory(ranges=[{"type": "GIT", "events": [{"introduced": "0"}]}], versions=["1.0"]), ["1.1"], ["1.0"]),
        (advisory(ranges=None, versions=None), ["1.0"], []),
        ({**ranges(ALWAYS), "affected": [{"package": {"name": "snowdrop", "ecosystem": "npm"}}]}, ["1.0"], []),
    ],
)
def test_which_versions_are_vulnerable(
    record: dict[str, Any], clean: list[str], vulnerable: list[str], figures: Figures
) -> None:
    for version in clean:
        assert judged(record, version) == ([], [])
    for version in vulnerable:
        (problem,), warnings = judged(record, version)
        assert problem.startswith(f"snowdrop {version} is vulnerable: PYSEC-1, CVE-1.")
        assert not warnings
    figures["hostile"] += len(vulnerable)


def test_an_acknowledgement_is_valid_until_its_date() -> None:
    for name in ("PYSEC-1", "CVE-1"):
        accepted = vulnerabilities.Acknowledged(name, "We do not start its server.", TODAY)
        assert judged(ranges(ALWAYS), "1.0", accepted) == ([], [])
    expired = vulnerabilities.Acknowledged("CVE-1", "The same.", TODAY - datetime.timedelta(days=1))
    (problem,), warnings = judged(ranges(ALWAYS), "1.0", expired)
    assert "PYSEC-1 was acknowledged until 2026-11-20" in problem
    assert not warnings
    problems, (warning,) = judged(ranges(ALWAYS, {"fixed": "1.0"}), "1.0", expired)
    assert not problems
    assert warning.startswith("CVE-1 ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Advisories from today, one of which is about an old version of a locked package."""
    folder = tmp_path / "advisories"
    write(folder, "jinja2", "PYSEC-2021-66", {"introduced": "0"}, {"fixed": "2.11.3"})
    write(folder, "snowdrop", "PYSEC-7", {"introduced": "0"})
    (folder / "README.yaml").write_text("[]")
    return folder


def write(folder: Path, package: str, name: str, *events: dict[str, str], days: int = 0, **more: Any) -> None:
    day = datetime.date.today() - datetime.timedelta(days=days)
    affected = [
        {"package": {"name": package, "ecosystem": "PyPI"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    ]
    record = {"id": name, "modified": f"{day}T10:00:00Z", "affected": affected, **more}
    (folder / "vulns" / package).mkdir(parents=True, exist_ok=True)
    (folder / "vulns" / package / f"{name}.json").write_text(json.dumps(record))


def test_a_vulnerable_locked_version_is_reported(place: Path, folder: Path) -> None:
    status, output = command(place, "vulnerabilities.py", "--release", str(folder))
    assert (status, "1 advisories about 1 of " in output) == (0, True), output
    lock = (place / "requirements.txt").read_text()
    (place / "requirements.txt").write_text(re.sub(r"(?m)^jinja2==\S+", "jinja2==2.11.2", lock))
    for options in ((), ("--release",)):
        status, output = command(place, "vulnerabilities.py", *options, str(folder))
        assert (status, "jinja2 2.11.2 is vulnerable: PYSEC-2021-66." in output) == (1, True), output
    entry = '[[acknowledged]]\nid = "PYSEC-2021-66"\n'
    (place / "acknowledged.toml").write_text(entry + 'reason = "No user\'s text gets there."\nuntil = 2999-01-01\n')
    assert command(place, "vulnerabilities.py", str(folder))[0] == 0
    for broken in (entry, entry + 'reason = ""\nuntil = 2999-01-01', entry + 'reason = "x"\nuntil = "soon"', "="):
        (place / "acknowledged.toml").write_text(broken)
        status, output = command(place, "vulnerabilities.py", str(folder))
        assert (status, output.startswith("The vulnerabilities could not be checked: ")) == (2, True)


def test_every_locked_package_is_compared(place: Path, folder: Path, figures: Figures) -> None:
    names = {package.name for package in locked.read()}
    for name in names:
        write(folder, name, f"PYSEC-{name}", ALWAYS)
    status, output = command(place, "vulnerabilities.py", str(folder))
    assert status == 1
    assert {name for name in names if re.search(rf"(?m)^{name} \S+ is vulnerable: PYSEC-{name}\.", output)} == names
    figures["hostile"] += len(names)


@pytest.mark.parametrize(("days", "warned"), [(0, False), (60, False), (61, True), (700, True)])
def test_old_advisories_warn_and_stop_a_release(place: Path, folder: Path, days: int, warned: bool) -> None:
    for package, name in (("jinja2", "PYSEC-2021-66"), ("snowdrop", "PYSEC-7")):
        write(folder, package, name, ALWAYS, {"fixed": "2.11.3"}, days=days)
    # One from the future does not make the others recent.
    write(folder, "thistle", "PYSEC-9", ALWAYS, days=-400)
    status, output = command(place, "vulnerabilities.py", str(folder))
    assert (status, "warning: The newest advisory" in output) == (0, warned), output
    status, output = command(place, "vulnerabilities.py", "--release", str(folder))
    assert (status, "The newest advisory" in output) == (2 if warned else 0, warned), output


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def missing(folder: Path) -> None:
    shutil.rmtree(folder)


def about_others(folder: Path) -> None:
    shutil.rmtree(folder / "vulns/jinja2")


def another_ecosystem(folder: Path) -> None:
    path = folder / "vulns/jinja2/PYSEC-2021-66.json"
    path.write_text(path.read_text().replace("PyPI", "npm"))


def withdrawn(folder: Path) -> None:
    write(folder, "jinja2", "PYSEC-2021-66", ALWAYS, withdrawn="2026-10-02T00:00:00Z")


def cut(folder: Path) -> None:
    path = folder / "vulns/jinja2/PYSEC-2021-66.json"
    path.write_text(path.read_text()[:-9])


def broken_yaml(folder: Path) -> None:
    (folder / "vulns/jinja2/PYSEC-8.yaml").write_text("id: [")


def no_date(folder: Path) -> None:
    write(folder, "jinja2", "PYSEC-2021-66", ALWAYS, modified="yesterday")


def another_format(folder: Path) -> None:
    write(folder, "jinja2", "PYSEC-2021-66", ALWAYS, affected=["jinja2"])


def another_range(folder: Path) -> None:
    package = {"name": "jinja2", "ecosystem": "PyPI"}
    write(folder, "jinja2", "PYSEC-2021-66", affected=[{"package": package, "ranges": [{"type": "ECOSYSTEM"}]}])


def future_dates(folder: Path) -> None:
    write(folder, "jinja2", "PYSEC-2021-66", ALWAYS, days=-9)
    write(folder, "snowdrop", "PYSEC-7", ALWAYS, days=-9)


DAMAGED = [
    *(empty, missing, about_others, another_ecosystem, withdrawn, cut, broken_yaml, no_date, another_format),
    *(another_range, future_dates),
]


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda function: function.__name__)
def test_useless_advisories_do_not_pass(
    place: Path, folder: Path, damage: Callable[[Path], None], figures: Figures
) -> None:
    damage(folder)
    status, output = command(place, "vulnerabilities.py", str(folder))
    assert (status, output.startswith("The vulnerabilities could not be checked: ")) == (2, True), output
    figures["hostile"] += 1


@pytest.mark.parametrize("arguments", [(), ("--release",), ("one", "two"), ("--renew", "folder")])
def test_incorrect_usage_does_not_pass(place: Path, arguments: tuple[str, ...]) -> None:
    assert command(place, "vulnerabilities.py", *arguments)[0] == 2


def test_advisories_in_the_format_of_pypas_database(place: Path, folder: Path) -> None:
    (folder / "vulns/jinja2/PYSEC-8.yaml").write_text(
        "id: PYSEC-8\nmodified: 2026-10-01T00:00:00Z\naffected:\n- package: {name: Jinja2, ecosystem: PyPI}\n"
        "  ranges:\n  - {type: ECOSYSTEM, events: [{introduced: '0'}]}\n  versions: [1.10]\naliases: [CVE-8]\n"
    )
    (jinja2,) = (package for package in locked.read() if package.name == "jinja2")
    status, output = command(place, "vulnerabilities.py", str(folder))
    assert (status, f"{jinja2} is vulnerable: PYSEC-8, CVE-8." in output) == (1, True), output
