"""The projects of a repository that is a collection, such as one of examples: each folder moves its image by itself."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from runbook_lib.pins.discover.roles import ClassifiedReference

# In a collection, an image has at least so many projects, and as many tags in them.
_MIN_PROJECTS = 3
# In a collection, at most this share of the commits that move the image move it in several projects.
_TOGETHER_SHARE = 0.2


def projects(images: Iterable[Sequence[ClassifiedReference]]) -> Sequence[Sequence[str]]:
    """Return the folders of the projects for the pins of each image, each folder with a final slash.

    A repository is a collection if the pins of one of its images show it.  The pins of other repositories are one
    project, which has no folder: the result is empty for each image.
    """
    folders: list[Sequence[str]] = []
    is_collection = False
    for pins in images:
        tags = _tags(pins)
        of_image = _folders(tags)
        if any(pin.nature.ci for pin in pins) or len(of_image) < 2 or _move_together(pins, of_image):
            of_image = []
        different = frozenset[str]().union(*tags.values())
        is_collection = is_collection or min(len(of_image), len(different)) >= _MIN_PROJECTS
        folders.append(of_image)
    return folders if is_collection else [[] for _ in folders]


def _tags(pins: Iterable[ClassifiedReference]) -> Mapping[str, Set[str]]:
    tags: defaultdict[str, set[str]] = defaultdict(set)
    for pin in pins:
        tags[pin.path].add(pin.reference.tag)
    return tags


def _move_together(pins: Iterable[ClassifiedReference], folders: Sequence[str]) -> bool:
    """Return True if commits move the pins of several projects too often for a collection."""
    moved: defaultdict[str, set[str]] = defaultdict(set)
    for pin in pins:
        for commit in pin.commits:
            moved[commit].add(project_of(pin.path, folders))
    together = [commit for commit, of_commit in moved.items() if len(of_commit) > 1]
    return len(together) > _TOGETHER_SHARE * len(moved)


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
    if len(frozenset[str]().union(*tags.values())) == 1 and folder:
        return [folder]
    return [project for name, of_folder in below.items() for project in _folders(of_folder, name)]
