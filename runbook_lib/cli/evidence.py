"""What git shows about references beside their files: the past bumps, and the lines that name their files."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runbook_lib.git import blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.pins.discover.roles import ClassifiedReference, times

if TYPE_CHECKING:
    from runbook_lib.pins.discover.moves import ReferencePlace

_MAX_COMMITS, _MAX_BYTES, _PART = 3000, 2**21, 500  # of the history, of a file in it, and files read at once
# Files that CI runs, and those that build images.
_RUN = (".github", ".gitlab", ".gitlab-ci*", ".circleci", ".buildkite", "*Jenkinsfile*", "*Dockerfile*", "*Makefile")


def naming_lines(checkout: Checkout, commit: str | None, names: Iterable[str]) -> list[str]:
    """Return the lines of CI's files and of builds that contain one of these names."""
    options = ["-h", "--fixed-strings", "--no-recurse-submodules", "--no-color", "-I"]
    for name in names:
        options += ["-e", name]
    try:
        return checkout.git("grep", *options, *filter(None, [commit]), "--", *_RUN).split("\n")
    except GitFailed as error:
        return error.printed[0].split("\n")  # none, or those of files that could be read


def with_history(
    checkout: Checkout,
    commit: str,
    found: tuple[ClassifiedReference, ...],
    texts: Mapping[str, str],
    notes: list[str],
) -> tuple[ClassifiedReference, ...]:
    """Return the references with the roles that the past bumps show, read from git up to ``commit``."""
    from runbook_lib.git.file_versions import file_versions
    from runbook_lib.pins.discover.moves import MoveCounter, places

    paths = {reference.path for reference in found if "\n" not in reference.path}
    try:
        commits = file_versions(checkout, commit, sorted(paths), _MAX_COMMITS)
    except GitFailed as error:
        notes.append(f"The history could not be read, so past bumps decide nothing. {error}")
        return found
    tags: dict[tuple[str, str], Mapping[ReferencePlace, str]] = {}
    versions = dict.fromkeys(version for _, versions in commits for version in versions if version[1])
    blobs_of_part = list(versions)
    for first in range(0, len(blobs_of_part), _PART):
        part = blobs_of_part[first : first + _PART]
        contents = blobs.read_objects(checkout.path, [blob for _, blob in part], _MAX_BYTES)
        for path, blob in part:
            if blob in contents:
                text = contents[blob].decode("utf-8", "surrogateescape")
                tags[path, blob] = {place: reference.tag for place, reference in places(path, text).items()}
    counter = MoveCounter()
    for name, of_commit in commits:
        counter.add(name, [(path, tags[path, blob]) for path, blob in of_commit if (path, blob) in tags])
    if missing := len(versions) - len(tags):
        notes.append(f"{times(missing, 'version')} of files could not be read from the history, and count for nothing.")
    return counter.settle(found, texts)
