"""Compare licences.txt with the metadata of the locked packages, or rewrite it.

    environment/run python environment/licences.py            reports missing, unknown and changed licences
    environment/run python environment/licences.py --renew    rewrites licences.txt

Packages locked only for another system or Python keep their line; a new one needs a line written by hand.
Reviewing the diff of licences.txt is how a person accepts a new or changed licence.
"""

import sys
from importlib.metadata import Distribution

import locked

FILE = locked.ENVIRONMENT / "licences.txt"
HEADING = """\
# The licences of all locked packages, from their metadata: package | licence.
# Written by: environment/run python environment/licences.py --renew
"""


def main(arguments: list[str]) -> int:
    """Return 0, 1 if the file and the packages disagree or a licence is unknown, or 2 for incorrect usage."""
    if arguments not in ([], ["--renew"]):
        print(__doc__, file=sys.stderr)
        return 2
    problems = renew() if arguments else compare()
    print("\n".join(problems) or f"The licences of all {len(stated())} locked packages are known.")
    return 1 if problems else 0


def stated() -> dict[str, str]:
    """Return the licence of each package in the file."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return {name.strip(): licence.strip() for name, _, licence in (line.partition("|") for line in lines)}


def licence(package: Distribution) -> str:
    """Return the licence in a package's metadata: its expression, classifiers or short name; empty if it has none."""
    about = package.metadata
    if "License-Expression" in about:
        return str(about["License-Expression"])
    classifiers = []
    for classifier in about.get_all("Classifier") or ():
        name = classifier.rpartition(" :: ")[2]
        if classifier.startswith("License ::") and name not in ("DFSG approved", "OSI Approved"):
            classifiers.append(name)
    if classifiers:
        return " AND ".join(classifiers)
    name = " ".join(about.get_all("License") or ()).strip()
    return "" if name == "UNKNOWN" or "\n" in name else name


def compare() -> list[str]:
    """Return the problems as sentences."""
    listed, problems = stated(), []
    names = {package.name for package in locked.read()}
    problems += [f"{name} is in licences.txt, but no longer locked." for name in sorted(listed.keys() - names)]
    problems += [f"{name} is locked, but not in licences.txt." for name in sorted(names - listed.keys())]
    problems += [f"The licence of {name} is unknown." for name, stated_licence in listed.items() if not stated_licence]
    for name, package in sorted(locked.installed().items()):
        current = licence(package)
        if name in listed and listed[name] != current:
            problems.append(f"{name} {package.version} has {current or 'no licence'}, licences.txt has {listed[name]}.")
    if problems:
        problems.append("Rewrite it and review the diff: environment/run python environment/licences.py --renew")
    return problems


def renew() -> list[str]:
    """Write the file; return a sentence for each unknown licence."""
    before = stated() if FILE.exists() else {}
    packages = locked.installed()
    lines, problems = [], []
    for name in sorted({package.name for package in locked.read()}):
        current = licence(packages[name]) if name in packages else ""
        current = current or before.get(name, "")
        lines.append(f"{name} | {current}".rstrip())
        if not current:
            problems.append(f"The licence of {name} is unknown. Look it up and add it to licences.txt.")
    FILE.write_text(HEADING + "\n".join(lines) + "\n")
    return problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
