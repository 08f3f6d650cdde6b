"""Writes the bill of materials of the locked environment to standard output: CycloneDX 1.6, in JSON.

    environment/run python environment/sbom.py > sbom.json

All that is locked is in it, for every system and Python; what this one does not install has the scope "excluded".
The same lock gives the same document, whenever and wherever: it has no time and no random number.
"""

import json
import re
import sys
import tomllib
import uuid
from typing import Any

import licences
import locked

#: Expressions of SPDX; what is none is a licence by its name, as its package spells it.
_SPDX = re.compile(r"(0BSD|CC0-1\.0|ISC|MIT(-0|-CMU)?|Zlib|(Apache|BSD|MPL|PSF|LGPL)-[\w.-]+)")


def document() -> dict[str, Any]:
    """The bill of materials, as CycloneDX 1.6 has it."""
    project = tomllib.loads((locked.ENVIRONMENT.parent / "pyproject.toml").read_text())["project"]
    entries, stated = locked.read(), licences.stated()
    own = f"{project['name']}@{project['version']}"
    needs: dict[str, set[str]] = {ref: set() for ref in (own, *map(purl, entries))}
    by_name: dict[str, list[str]] = {}
    for it in entries:
        by_name.setdefault(it.name, []).append(purl(it))
    for it in entries:
        for name in it.needed_by or {locked.PROJECT}:
            for user in by_name.get(name, [own]):
                needs[user].add(purl(it))
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
        "components": [component(it, stated[it.name]) for it in entries],
        "dependencies": [{"ref": ref, "dependsOn": sorted(names)} for ref, names in sorted(needs.items())],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(content, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "serialNumber": f"urn:uuid:{serial}",
        **content,
    }


def component(entry: locked.Locked, licence: str) -> dict[str, Any]:
    """One package.  Its hashes are those of all files that may be installed for it."""
    parts = re.split(r" (?:AND|OR) ", licence)
    if all(map(_SPDX.fullmatch, parts)):
        said: dict[str, Any] = {"expression": licence} if len(parts) > 1 else {"license": {"id": licence}}
    else:
        said = {"license": {"name": licence}}
    return {
        "type": "library",
        "bom-ref": purl(entry),
        "name": entry.name,
        "version": entry.version,
        "scope": "required" if entry.here else "excluded",
        "hashes": [{"alg": "SHA-256", "content": it} for it in entry.hashes],
        "licenses": [said],
        "purl": purl(entry),
    }


def purl(entry: locked.Locked) -> str:
    """The address that tools know a package by."""
    return f"pkg:pypi/{entry.name}@{entry.version}"


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1)
    print()
