"""Evidence from git about references: past bumps, and lines that mention the references' files."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from runbook_lib.git import blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.command import GitFailed
from runbook_lib.pins.discover.references import MONTHLY_TAG
from runbook_lib.pins.discover.roles import ClassifiedReference, times

if TYPE_CHECKING:
    from runbook_lib.pins.discover.moves import MoveCounter
    from runbook_lib.pins.discover.places import ReferencePlace

#: Classifies the references in texts by path; the second argument has the images of nameless tags, by path.
Classify: TypeAlias = Callable[[Mapping[str, str], Mapping[str, str]], tuple[ClassifiedReference, ...]]

_MAX_COMMITS, _MAX_BYTES, _PART = 3000, 2**21, 500  # limits: commits, bytes per file, files per read
_MAX_BARE = 200  # limit: files with a tag but no image name whose history is read
# Files run by CI, and files that build images.
_RUN = (
    ".github", ".gitlab", ".gitlab-ci*", ".circleci", ".buildkite", ".ci", "*Jenkinsfile*", "*Dockerfile*", "*Makefile",
    ":(exclude)*CODEOWNERS", ":(exclude).github/labeler*", ":(exclude)*.md",
)  # fmt: skip


def naming_lines(checkout: Checkout, commit: str | None, names: Iterable[str]) -> list[str]:
    """Return the lines of CI and build files that contain one of these names."""
    options = ["-h", "--fixed-strings", "--no-recurse-submodules", "--no-color", "-I"]
    for name in names:
        options += ["-e", name]
    try:
        return checkout.git("grep", *options, *filter(None, [commit]), "--", *_RUN).split("\n")
    except GitFailed as error:
        return error.printed[0].split("\n")  # empty, or the lines of the readable files


def with_history(
    checkout: Checkout,
    commit: str | None,
    found: tuple[ClassifiedReference, ...],
    texts: dict[str, str],
    classify: Classify,
    notes: list[str],
) -> tuple[ClassifiedReference, ...]:
    """Return the references with the roles derived from past bumps in git, up to ``commit`` (default: HEAD).

    Tags in files that do not name their image are added if past bumps moved them, and their files are added to
    ``texts``.
    """
    from runbook_lib.pins.discover.history import moved_together, settle

    history = _TagHistory(checkout, commit or "HEAD")
    paths = {reference.path for reference in found}
    try:
        settled = settle(history.counter(paths, {}), found, texts)
        more, bare = _bare_files(checkout, commit, settled)
        if bare:
            counter = history.counter(paths | bare.keys(), bare)
            settled = moved_together(settle(counter, classify(texts | more, bare), texts | more, bare), bare)
            texts |= {entry.path: more[entry.path] for entry in settled if entry.path in more}
    except GitFailed as error:
        notes.append(f"The history could not be read, so past bumps were not used as evidence. {error}")
        return found
    if history.missing:
        count = times(history.missing, "version")
        notes.append(f"{count} of files could not be read from the history and were ignored.")
    return settled


class _TagHistory:
    """The past versions of files, each read once.  ``missing``: the number of unreadable versions."""

    def __init__(self, checkout: Checkout, commit: str) -> None:
        self._checkout, self._commit = checkout, commit
        self._tags: dict[tuple[str, str], Mapping[ReferencePlace, str]] = {}
        self.missing = 0

    def counter(self, paths: Iterable[str], bare: Mapping[str, str]) -> "MoveCounter":
        """Return the counter of moves in these files.  Raises GitFailed if git cannot list their versions."""
        from runbook_lib.git.file_versions import file_versions
        from runbook_lib.pins.discover.moves import MoveCounter
        from runbook_lib.pins.discover.places import places

        named = sorted(path for path in paths if "\n" not in path)
        commits = file_versions(self._checkout, self._commit, named, _MAX_COMMITS)
        versions = dict.fromkeys(version for _, versions in commits for version in versions if version[1])
        unread = [version for version in versions if version not in self._tags]
        for first in range(0, len(unread), _PART):
            part = unread[first : first + _PART]
            contents = blobs.read_objects(self._checkout.path, [blob for _, blob in part], _MAX_BYTES)
            for path, blob in part:
                if blob in contents:
                    text = contents[blob].decode("utf-8", "surrogateescape")
                    found = places(path, text, bare.get(path, ""))
                    self._tags[path, blob] = {place: reference.tag for place, reference in found.items()}
        counter = MoveCounter()
        for name, of_commit in commits:
            known = [
                (path, self._tags.get((path, blob), {}))
                for path, blob in of_commit
                if not blob or (path, blob) in self._tags
            ]
            counter.add(name, known)
        self.missing = sum(version not in self._tags for version in versions)
        return counter


def _bare_files(
    checkout: Checkout, commit: str | None, settled: Sequence[ClassifiedReference]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts and images, by path, of files without a reference whose tags past bumps may have moved.

    They contain the tag of a live reference, and a bump that moved such a reference changed them too.
    """
    from runbook_lib.git.file_versions import file_versions
    from runbook_lib.pins.discover.history import is_live

    bumps: dict[str, dict[str, set[str]]] = {}  # tag → image → commits
    for entry in settled:
        if entry.commits and is_live(entry) and MONTHLY_TAG.fullmatch(entry.reference.tag):
            of_tag = bumps.setdefault(entry.reference.tag, {})
            of_tag.setdefault(entry.reference.image, set()).update(entry.commits)
    known = {entry.path for entry in settled}
    candidates = [path for path in _with_texts(checkout, commit, bumps) if path not in known and "\n" not in path]
    if not candidates:
        return {}, {}
    commits_by_path: defaultdict[str, set[str]] = defaultdict(set)
    for name, versions in file_versions(checkout, commit or "HEAD", candidates[:_MAX_BARE], _MAX_COMMITS):
        for path, _ in versions:
            commits_by_path[path].add(name)
    texts: dict[str, str] = {}
    images: dict[str, str] = {}
    for path, text in checkout.read(candidates[:_MAX_BARE], commit).items():
        together: Counter[str] = Counter()
        for tag, of_tag in bumps.items():
            for image, commits in of_tag.items():
                if tag in (text or ""):
                    together[image] += len(commits & commits_by_path[path])
        for image, count in together.most_common(1):
            if text and count:
                texts[path], images[path] = text, image
    return texts, images


def _with_texts(checkout: Checkout, commit: str | None, texts: Iterable[str]) -> list[str]:
    """Return the tracked files with one of these texts; empty if there are no texts."""
    options = [option for text in texts for option in ("-e", text)]
    if not options:
        return []
    options += ["-l", "-z", "-I", "--fixed-strings", "--full-name", "--no-recurse-submodules", "--no-color"]
    try:
        listed = checkout.git("grep", *options, *filter(None, [commit]), "--")
    except GitFailed as error:
        listed = error.printed[0]  # empty, or the lines of the readable files
    prefix = f"{commit}:" if commit else ""
    return [name.removeprefix(prefix) for name in listed.split("\0") if name]
