"""Compares licences.txt with what the locked packages say of themselves, or writes it anew.

    environment/run python environment/licences.py            tells what is missing, unknown or otherwise
    environment/run python environment/licences.py --renew    writes licences.txt

A package that is locked for another system or Python keeps the line that it has; a new one needs a line by hand.
A licence that appears or changes shows in the diff of licences.txt: that is where a person accepts it.
"""

import sys
from importlib.metadata import Distribution

import locked

FILE = locked.ENVIRONMENT / "licences.txt"
HEADING = """\
# The licences of all locked packages, as each says itself: package | licence.
# Written by: environment/run python environment/licences.py --renew
"""


def main(arguments: list[str]) -> int:
    """Exit status: 0, 1 when the file and the packages disagree or a licence is unknown, 2 for a wrong call."""
    if arguments not in ([], ["--renew"]):
        print(__doc__, file=sys.stderr)
        return 2
    problems = renew() if arguments else compare()
    print("\n".join(problems) or f"The licences of all {len(stated())} locked packages are known.")
    return 1 if problems else 0


def stated() -> dict[str, str]:
    """Licence by package, as the file says."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return {name.strip(): licence.strip() for name, _, licence in (line.partition("|") for line in lines)}


def licence(package: Distribution) -> str:
    """What a package says: its expression, else its classifiers, else a short word; empty if that is nothing."""
    about = package.metadata
    if "License-Expression" in about:
        return str(about["License-Expression"])
    classifiers = [it.rpartition(" :: ")[2] for it in about.get_all("Classifier") or () if it.startswith("License ::")]
    classifiers = [it for it in classifiers if it not in ("DFSG approved", "OSI Approved")]
    word = " ".join(about.get_all("License") or ()).strip()
    return " AND ".join(classifiers) or ("" if word == "UNKNOWN" or "\n" in word else word)


def compare() -> list[str]:
    """What is wrong, in sentences."""
    told, problems = stated(), []
    names = {it.name for it in locked.read()}
    problems += [f"{name} is in licences.txt and is not locked any more." for name in sorted(told.keys() - names)]
    problems += [f"{name} is locked, and licences.txt does not have it." for name in sorted(names - told.keys())]
    problems += [f"The licence of {name} is unknown." for name, its in told.items() if not its]
    for name, package in sorted(locked.installed().items()):
        if name in told and told[name] != (now := licence(package)):
            problems.append(f"{name} {package.version} says {now or 'nothing'}, licences.txt says {told[name]}.")
    if problems:
        problems.append("Renew it, and look at the difference: environment/run python environment/licences.py --renew")
    return problems


def renew() -> list[str]:
    """Write the file; what is unknown, in sentences."""
    before = stated() if FILE.exists() else {}
    packages = locked.installed()
    lines, problems = [], []
    for name in sorted({it.name for it in locked.read()}):
        found = (licence(packages[name]) if name in packages else "") or before.get(name, "")
        lines.append(f"{name} | {found}".rstrip())
        if not found:
            problems.append(f"The licence of {name} is unknown: write it into licences.txt, as its own page says.")
    FILE.write_text(HEADING + "\n".join(lines) + "\n")
    return problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
