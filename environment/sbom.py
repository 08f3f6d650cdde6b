"""Write the bill of materials of the locked environment to standard output, as CycloneDX 1.6 in JSON.

    environment/run python environment/sbom.py > sbom.json

It lists the packages locked for every system and Python; those not installed here have the scope "excluded".
The same lock always gives the same document, without times and random numbers.
"""

import json
import re
import sys
import tomllib
import uuid
from typing import Any

import licences
import locked

#: SPDX expressions; any other licence is given by name, as its package spells it.
_SPDX = re.compile(r"(0BSD|CC0-1\.0|ISC|MIT(-0|-CMU)?|Zlib|(Apache|BSD|MPL|PSF|LGPL)-[\w.-]+)")


def document() -> dict[str, Any]:
    """Return the bill of materials in the form of CycloneDX 1.6."""
    project = tomllib.loads((locked.ENVIRONMENT.parent / "pyproject.toml").read_text())["project"]
    entries, stated = locked.read(), licences.stated()
    own = f"{project['name']}@{project['version']}"
    needs: dict[str, set[str]] = {ref: set() for ref in (own, *map(purl, entries))}
    by_name: dict[str, list[str]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(purl(entry))
    for entry in entries:
        for name in entry.needed_by or {locked.PROJECT}:
            for user in by_name.get(name, [own]):
                needs[user].add(purl(entry))
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [component(entry, stated[entry.name]) for entry in entries],
        "dependencies": [{"ref": ref, "dependsOn": sorted(names)} for ref, names in sorted(needs.items())],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(content, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "serialNumber": f"urn:uuid:{serial}",
        **content,
    }


def component(entry: locked.Locked, licence: str) -> dict[str, Any]:
    """Return the entry of a package, with the hashes of all files that may be installed for it."""
    parts = re.split(r" (?:AND|OR) ", licence)
    if all(map(_SPDX.fullmatch, parts)):
        statement: dict[str, Any] = {"expression": licence} if len(parts) > 1 else {"license": {"id": licence}}
    else:
        statement = {"license": {"name": licence}}
    return {
        "type": "library",
        "bom-ref": purl(entry),
        "name": entry.name,
        "version": entry.version,
        "scope": "required" if entry.here else "excluded",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in entry.hashes],
        "licenses": [statement],
        "purl": purl(entry),
    }


def purl(entry: locked.Locked) -> str:
    """Return the package URL."""
    return f"pkg:pypi/{entry.name}@{entry.version}"


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1)
    print()
