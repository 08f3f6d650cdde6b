"""Compare the locked packages with the known vulnerabilities in a folder of advisories.  Needs no network.

    environment/run python environment/vulnerabilities.py FOLDER              prints vulnerable packages
    environment/run python environment/vulnerabilities.py --release FOLDER    refuses outdated advisories

FOLDER contains advisories in OSV's format (YAML or JSON), such as a fresh clone of pypa/advisory-database, or OSV's
export for PyPI, unpacked.  None are stored here: old advisories do not cover new versions, so the check would always
pass.  acknowledged.toml lists vulnerabilities that do not affect this project, with the reason and a review date:

    [[acknowledged]]
    id = "PYSEC-2026-1"
    reason = "Only its server is affected, which we do not start."
    until = 2027-01-31
"""

import argparse
import datetime
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import locked
import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ACKNOWLEDGED = locked.ENVIRONMENT / "acknowledged.toml"
#: Days after which advisories are too old for a release.
OLD = 60


@dataclass(frozen=True)
class Acknowledged:
    """A vulnerability that is accepted for a reason, until a day."""

    id: str
    reason: str
    until: datetime.date


@dataclass(frozen=True)
class Advisories:
    """The advisories about locked packages, and the date of the newest advisory in the folder."""

    as_of: datetime.date
    records: tuple[Mapping[str, Any], ...]
    #: The locked packages with an advisory.
    names: frozenset[str]


def main(arguments: list[str]) -> int:
    """Return 0 (possibly with warnings), 1 for a vulnerability, 2 if the check is not possible."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", action="store_true", help=f"refuse advisories older than {OLD} days")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    options = parser.parse_args(arguments)
    today, entries = datetime.date.today(), locked.read()
    try:
        advisories = read(options.folder, {entry.name for entry in entries}, today)
        problems, warnings = judge(advisories, entries, acknowledged(ACKNOWLEDGED), today)
    except (OSError, ValueError) as error:
        print(f"The vulnerabilities could not be checked: {error}", file=sys.stderr)
        return 2
    age = (today - advisories.as_of).days
    if age > OLD:
        old = f"The newest advisory is from {advisories.as_of}, {age} days ago; later vulnerabilities are unknown."
        if options.release:
            print(f"{old} A release needs newer ones: `git -C FOLDER pull`.", file=sys.stderr)
            return 2
        warnings.append(old)
    for sentence in warnings:
        print(f"warning: {sentence}")
    if problems:
        print("\n".join(problems))
        return 1
    compared = f"{len(advisories.records)} advisories about {len(advisories.names)} of {len(entries)} locked packages"
    print(f"No locked version is known to be vulnerable: compared {compared}, the newest from {advisories.as_of}.")
    return 0


def read(folder: Path, names: set[str], today: datetime.date) -> Advisories:
    """Read the advisories about these packages.  Raises ValueError if there are none, or one cannot be read."""
    days, records, known = [], [], set()
    for path in sorted(file for file in folder.rglob("*") if file.suffix in (".yaml", ".json") and file.is_file()):
        try:
            record = json.loads(path.read_bytes()) if path.suffix == ".json" else _yaml(path)
            if not (isinstance(record, dict) and record.get("id") and record.get("modified")):
                continue
            day = datetime.date.fromisoformat(str(record["modified"])[:10])
            about = {_name(affected) for affected in record.get("affected") or ()} & names
        except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
            raise ValueError(f"{path} is not an advisory in OSV's format: {' '.join(str(error).split())}") from error
        if day <= today:  # a date in the future would hide the age of the others
            days.append(day)
        if about and not record.get("withdrawn"):
            records.append(record)
            known |= about
    if not days:
        raise ValueError(f"{folder} contains no advisories in OSV's format.")
    if not known:
        raise ValueError(f"No advisory in {folder} is about a locked package, so the check would always pass.")
    return Advisories(max(days), tuple(records), frozenset(known))


def judge(
    advisories: Advisories, entries: Iterable[locked.Locked], accepted: Iterable[Acknowledged], today: datetime.date
) -> tuple[list[str], list[str]]:
    """Return problems and warnings as sentences.  Raises ValueError for an advisory in another format."""
    problems, by_id = [], {entry.id: entry for entry in accepted}
    used: set[str] = set()
    for entry in entries:
        for record in advisories.records:
            if not _affects(record, entry):
                continue
            names = [record["id"], *(record.get("aliases") or ())]
            acknowledged_as = next((by_id[name] for name in names if name in by_id), None)
            if acknowledged_as is None:
                problems.append(f"{entry} is vulnerable: {', '.join(names)}. Upgrade or acknowledge it.")
                continue
            used.add(acknowledged_as.id)
            if acknowledged_as.until < today:
                problems.append(f"{entry}: {names[0]} was acknowledged until {acknowledged_as.until}. Review it.")
    warnings = [f"{name} is acknowledged, but affects no locked package." for name in by_id if name not in used]
    return problems, warnings


def _affects(record: Mapping[str, Any], entry: locked.Locked) -> bool:
    try:
        version = Version(entry.version)
        return any(_name(affected) == entry.name and _includes(affected, version) for affected in record["affected"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"The advisory {record['id']} is not in OSV's format: {error!r}") from error


def acknowledged(path: Path) -> list[Acknowledged]:
    """Return the acknowledged vulnerabilities.  Raises ValueError for an entry without an id, a reason or a date."""
    result = []
    for entry in tomllib.loads(path.read_text()).get("acknowledged", []) if path.exists() else ():
        is_complete = isinstance(entry, dict) and entry.keys() == {"id", "reason", "until"}
        if not is_complete or not entry["id"] or not entry["reason"] or type(entry["until"]) is not datetime.date:
            raise ValueError(f"{path.name}: {entry} needs an id, a reason, and until = a date such as 2027-01-31.")
        result.append(Acknowledged(**entry))
    return result


def _name(affected: Mapping[str, Any]) -> str:
    package = affected.get("package", {})
    return canonicalize_name(package.get("name", "")) if package.get("ecosystem") == "PyPI" else ""


def _includes(affected: Mapping[str, Any], version: Version) -> bool:
    """Return True if the version is affected according to OSV's specification."""
    if any(_version(str(listed)) == version for listed in affected.get("versions") or ()):
        return True
    for versions in affected.get("ranges") or ():
        # The events of other ranges are commits.
        if versions["type"] in ("ECOSYSTEM", "SEMVER") and _within(versions["events"], version):
            return True
    return False


def _within(events: Iterable[Mapping[str, str]], version: Version) -> bool:
    within = False
    order = {"introduced": 0, "fixed": 1, "last_affected": 2}
    steps = sorted((_version(str(at)), order[kind]) for event in events for kind, at in event.items() if kind in order)
    for at, kind in steps:
        if kind == 0 and version >= at:
            within = True
        elif (kind == 1 and version >= at) or (kind == 2 and version > at):
            within = False
    return within


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:  # from before PEP 440, so older than every valid version
        return Version("0.dev0")


def _yaml(path: Path) -> Any:
    # As text: otherwise dates become objects, and versions such as 1.10 numbers.
    return yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
