"""The projects of a repository that is a collection, such as one of examples: each folder moves its image by itself."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from runbook_lib.pins.discover.roles import ClassifiedReference

# A collection has at least so many projects, and as many tags of one image in them.
_MIN_PROJECTS = 3
# In a collection, at most this share of the commits that move the image move it in several projects.
_TOGETHER_SHARE = 0.2


def projects(references: Sequence[ClassifiedReference]) -> Sequence[str]:
    """Return the folders of the projects, each with a final slash, if these pins of one image are in a collection.

    Those of other repositories are one project, which has no folder: the result is empty.
    """
    tags: defaultdict[str, set[str]] = defaultdict(set)
    for reference in references:
        tags[reference.path].add(reference.reference.tag)
    folders = list(_folders(tags))
    if any(reference.nature.ci for reference in references) or len(folders) < _MIN_PROJECTS:
        return ()
    if len(frozenset().union(*tags.values())) < _MIN_PROJECTS:
        return ()
    moved: defaultdict[str, set[str]] = defaultdict(set)
    for reference in references:
        for commit in reference.commits:
            moved[commit].add(project_of(reference.path, folders))
    together = [commit for commit, of_commit in moved.items() if len(of_commit) > 1]
    return () if len(together) > _TOGETHER_SHARE * len(moved) else folders


def project_of(path: str, folders: Iterable[str]) -> str:
    """Return the folder that a path is below; empty if it is below none of them."""
    return next((folder for folder in folders if path.startswith(folder)), "")


def is_project(cadence: str) -> bool:
    """Return True for the cadence of a project, which has the name of its folder."""
    return cadence.endswith("/")


def _folders(tags: Mapping[str, Set[str]], folder: str = "") -> list[str]:
    """Return the topmost folders whose files name one tag, or that have such a file themselves."""
    below: defaultdict[str, dict[str, Set[str]]] = defaultdict(dict)
    for path, of_file in tags.items():
        name, slash, _ = path[len(folder) :].partition("/")
        if not slash:
            return [folder]
        below[f"{folder}{name}/"][path] = of_file
    if len(frozenset().union(*tags.values())) == 1 and folder:
        return [folder]
    return [project for name, of_folder in below.items() for project in _folders(of_folder, name)]
