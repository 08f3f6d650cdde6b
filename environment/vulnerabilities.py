"""Holds what is locked against the known vulnerabilities that vulnerabilities.json keeps; needs no network.

    environment/run python environment/vulnerabilities.py                   tells what is known to be vulnerable
    environment/run python environment/vulnerabilities.py --renew FOLDER    keeps what FOLDER knows of what is locked

FOLDER holds advisories in OSV's form (YAML or JSON), such as a clone of pypa/advisory-database, or OSV's export for
PyPI, unpacked.  Of each advisory only what decides is kept: its id, other names, and the affected versions.
A vulnerability that does not concern us is named in acknowledged.toml, with the reason and a day to look again:

    [[acknowledged]]
    id = "PYSEC-2026-1"
    reason = "Only its server is affected, which we do not start."
    until = 2027-01-31
"""

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

REPORT = locked.ENVIRONMENT / "vulnerabilities.json"
ACKNOWLEDGED = locked.ENVIRONMENT / "acknowledged.toml"
_ABOUT = "From advisories in OSV's form, such as the PyPA advisory database (CC BY 4.0). Made by vulnerabilities.py."
#: Days after which a kept report is called old.
OLD = 30


@dataclass(frozen=True)
class Acknowledged:
    """A vulnerability that is accepted for a reason, until a day."""

    id: str
    reason: str
    until: datetime.date


def main(arguments: list[str]) -> int:
    """Exit status: 0 (there may be warnings), 1 for a vulnerability or a wrong file, 2 for a wrong call."""
    try:
        if len(arguments) == 2 and arguments[0] == "--renew":
            REPORT.write_text(json.dumps(kept(Path(arguments[1])), indent=1) + "\n")
        elif arguments:
            print(__doc__, file=sys.stderr)
            return 2
        report = json.loads(REPORT.read_text())
        wrong, warnings = judge(report, locked.read(), acknowledged(ACKNOWLEDGED), datetime.date.today())
    except (OSError, ValueError) as error:
        print(f"The vulnerabilities could not be checked: {error}", file=sys.stderr)
        return 1
    for sentence in warnings:
        print(f"warning: {sentence}")
    print("\n".join(wrong) or f"No version that is locked is known to be vulnerable, as of {report['as_of']}.")
    return 1 if wrong else 0


def kept(folder: Path) -> dict[str, Any]:
    """What the advisories in this folder know of the locked packages.  Raises ValueError where there are none."""
    names = {it.name for it in locked.read()}
    newest, advisories = "", []
    for path in sorted(it for it in folder.rglob("*") if it.suffix in (".yaml", ".json")):
        record = json.loads(path.read_bytes()) if path.suffix == ".json" else _yaml(path)
        if not (isinstance(record, dict) and record.get("id") and record.get("modified")):
            continue
        newest = max(newest, str(record["modified"])[:10])
        affected = [_decides(it) for it in record.get("affected", ()) if _name(it) in names]
        if affected and not record.get("withdrawn"):
            advisories.append({"id": record["id"], "aliases": record.get("aliases", []), "affected": affected})
    if not newest:
        raise ValueError(f"{folder} holds no advisories in OSV's form.")
    return {"about": _ABOUT, "as_of": newest, "packages": sorted(names), "advisories": advisories}


def judge(
    report: Mapping[str, Any], entries: Iterable[locked.Locked], accepted: Iterable[Acknowledged], today: datetime.date
) -> tuple[list[str], list[str]]:
    """What is wrong, and what is to be said beside it, in sentences."""
    wrong, warnings, by_id = [], [], {it.id: it for it in accepted}
    used: set[str] = set()
    for entry in entries:
        if entry.name not in report["packages"]:
            warnings.append(f"The kept report does not cover {entry}: it was not locked when the report was made.")
        for advisory in report["advisories"]:
            if any(_name(it) == entry.name and _concerns(it, Version(entry.version)) for it in advisory["affected"]):
                names = [advisory["id"], *advisory["aliases"]]
                acknowledged_as = next((by_id[name] for name in names if name in by_id), None)
                used |= {acknowledged_as.id} if acknowledged_as else set()
                if acknowledged_as is None:
                    wrong.append(f"{entry} is vulnerable: {', '.join(names)}. Raise it, or acknowledge it.")
                elif acknowledged_as.until < today:
                    wrong.append(f"{entry}: {names[0]} was acknowledged until {acknowledged_as.until}. Look again.")
    warnings += [f"{name} is acknowledged, and concerns nothing that is locked." for name in by_id if name not in used]
    age = (today - datetime.date.fromisoformat(report["as_of"])).days
    if age > OLD:
        warnings.append(
            f"The kept report is {age} days old ({report['as_of']}): what was found since is not in it. Renew it: "
            "environment/run python environment/vulnerabilities.py --renew FOLDER"
        )
    return wrong, warnings


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


def _decides(affected: Mapping[str, Any]) -> dict[str, Any]:
    """Of an affected package what decides: its ranges of versions, or where there are none the versions themselves."""
    ranges = [it for it in affected.get("ranges", ()) if it.get("type") == "ECOSYSTEM"]
    package = {"name": _name(affected), "ecosystem": "PyPI"}
    if ranges:
        return {"package": package, "ranges": [{"type": "ECOSYSTEM", "events": it["events"]} for it in ranges]}
    return {"package": package, "versions": list(map(str, affected.get("versions", ())))}


def _concerns(affected: Mapping[str, Any], version: Version) -> bool:
    """Whether the version is affected, as OSV's specification decides it."""
    listed = any(_version(it) == version for it in affected.get("versions", ()))
    return listed or any(_within(it["events"], version) for it in affected.get("ranges", ()))


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
