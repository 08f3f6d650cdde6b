"""Compares what is locked with known vulnerabilities, which a folder of advisories holds; needs no network.

    environment/run python environment/vulnerabilities.py FOLDER              prints what is known to be vulnerable
    environment/run python environment/vulnerabilities.py --release FOLDER    refuses advisories that are too old

FOLDER holds advisories in OSV's form (YAML or JSON), such as a new clone of pypa/advisory-database, or OSV's export for
PyPI, unpacked.  None are kept here: old ones know nothing of new versions, so a check of them would always pass.
A vulnerability that does not concern us is named in acknowledged.toml, with the reason and a day to look again:

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
    """The advisories about locked packages, and the day of the newest advisory of all."""

    as_of: datetime.date
    records: tuple[Mapping[str, Any], ...]
    #: The locked packages that they are about.
    names: frozenset[str]


def main(arguments: list[str]) -> int:
    """Exit status: 0 (there may be warnings), 1 for a vulnerability, 2 where that cannot be told."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", action="store_true", help=f"refuse advisories older than {OLD} days")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    options = parser.parse_args(arguments)
    today, entries = datetime.date.today(), locked.read()
    try:
        advisories = read(options.folder, {it.name for it in entries}, today)
        problems, warnings = judge(advisories, entries, acknowledged(ACKNOWLEDGED), today)
    except (OSError, ValueError) as error:
        print(f"The vulnerabilities could not be checked: {error}", file=sys.stderr)
        return 2
    age = (today - advisories.as_of).days
    if age > OLD:
        old = f"The newest advisory is of {advisories.as_of}, {age} days ago: what was published since is not known."
        if options.release:
            print(f"{old} For a release get newer ones: `git -C FOLDER pull`.", file=sys.stderr)
            return 2
        warnings.append(old)
    for sentence in warnings:
        print(f"warning: {sentence}")
    if problems:
        print("\n".join(problems))
        return 1
    known = f"{len(advisories.records)} advisories about {len(advisories.names)} of {len(entries)} locked packages"
    print(f"No locked version is known to be vulnerable: {known} were compared, the newest of {advisories.as_of}.")
    return 0


def read(folder: Path, names: set[str], today: datetime.date) -> Advisories:
    """Read the advisories about these packages.  Raises ValueError where there are none, or one cannot be read."""
    days, records, known = [], [], set()
    for path in sorted(it for it in folder.rglob("*") if it.suffix in (".yaml", ".json") and it.is_file()):
        try:
            record = json.loads(path.read_bytes()) if path.suffix == ".json" else _yaml(path)
            if not (isinstance(record, dict) and record.get("id") and record.get("modified")):
                continue
            day = datetime.date.fromisoformat(str(record["modified"])[:10])
            about = {_name(it) for it in record.get("affected") or ()} & names
        except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
            raise ValueError(f"{path} is no advisory in OSV's form: {' '.join(str(error).split())}") from error
        if day <= today:  # a day to come would hide how old the others are
            days.append(day)
        if about and not record.get("withdrawn"):
            records.append(record)
            known |= about
    if not days:
        raise ValueError(f"{folder} holds no advisories in OSV's form.")
    if not known:
        raise ValueError(
            f"No advisory in {folder} is about a locked package: it would find nothing, whatever is locked."
        )
    return Advisories(max(days), tuple(records), frozenset(known))


def judge(
    advisories: Advisories, entries: Iterable[locked.Locked], accepted: Iterable[Acknowledged], today: datetime.date
) -> tuple[list[str], list[str]]:
    """Return problems and warnings, in sentences.  Raises ValueError for an advisory of another form."""
    problems, by_id = [], {it.id: it for it in accepted}
    used: set[str] = set()
    for entry in entries:
        for record in advisories.records:
            if not _affects(record, entry):
                continue
            names = [record["id"], *(record.get("aliases") or ())]
            acknowledged_as = next((by_id[name] for name in names if name in by_id), None)
            if acknowledged_as is None:
                problems.append(f"{entry} is vulnerable: {', '.join(names)}. Raise it, or acknowledge it.")
                continue
            used.add(acknowledged_as.id)
            if acknowledged_as.until < today:
                problems.append(f"{entry}: {names[0]} was acknowledged until {acknowledged_as.until}. Look again.")
    warnings = [f"{name} is acknowledged, and concerns nothing that is locked." for name in by_id if name not in used]
    return problems, warnings


def _affects(record: Mapping[str, Any], entry: locked.Locked) -> bool:
    try:
        affected = [it for it in record["affected"] if _name(it) == entry.name]
        return any(_concerns(it, Version(entry.version)) for it in affected)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"The advisory {record['id']} is not in OSV's form: {error!r}") from error


def acknowledged(path: Path) -> list[Acknowledged]:
    """What is accepted.  Raises ValueError for an entry without an id, a reason or a day."""
    found = []
    for entry in tomllib.loads(path.read_text()).get("acknowledged", []) if path.exists() else ():
        whole = isinstance(entry, dict) and entry.keys() == {"id", "reason", "until"}
        if not whole or not entry["id"] or not entry["reason"] or type(entry["until"]) is not datetime.date:
            raise ValueError(f"{path.name}: {entry} needs an id, a reason, and until = a day such as 2027-01-31.")
        found.append(Acknowledged(**entry))
    return found


def _name(affected: Mapping[str, Any]) -> str:
    package = affected.get("package", {})
    return canonicalize_name(package.get("name", "")) if package.get("ecosystem") == "PyPI" else ""


def _concerns(affected: Mapping[str, Any], version: Version) -> bool:
    """Whether the version is affected, as OSV's specification decides it."""
    listed = any(_version(str(it)) == version for it in affected.get("versions") or ())
    # The events of other ranges are commits.
    ranges = [it for it in affected.get("ranges") or () if it["type"] in ("ECOSYSTEM", "SEMVER")]
    return listed or any(_within(it["events"], version) for it in ranges)


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
    except InvalidVersion:  # of before PEP 440: older than all that have a version by it
        return Version("0.dev0")


def _yaml(path: Path) -> Any:
    # As text: a date would be made an object, and a version such as 1.10 a number.
    return yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
