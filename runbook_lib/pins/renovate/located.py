"""The values found in files by Renovate's custom managers, as references that a pins file can declare."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import DOCKER_HUB, family_of
from runbook_lib.images.reference import ImageRef, ImageType
from runbook_lib.pins.discover.classify import SourceFile
from runbook_lib.pins.discover.history import is_live
from runbook_lib.pins.discover.references import Reference
from runbook_lib.pins.discover.roles import ClassifiedReference, discover
from runbook_lib.pins.renovate.settings import PLACEHOLDER, RegexManager
from runbook_lib.pins.tag_parts import PARTS, compose, form_around
from runbook_lib.text import untrusted_regex
from runbook_lib.text.lists import join_first

_REGISTRY = re.compile(r"(?:localhost|[^/.:]*[.:][^/]*)/")
_MAX_LISTED = 5  # places in one sentence
_ONE_PLACEHOLDER = 4  # pieces of a template: before, two groups of which one matched, after
Groups = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class RenovateImport:
    """The references found by custom managers, all of which a bump must move, and sentences on omissions."""

    references: tuple[ClassifiedReference, ...]
    left_out: tuple[str, ...]


def files_of(manager: RegexManager, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that the manager reads.  Raises CannotTell, with a clause, if its patterns take too long."""
    chosen = set[str]()
    for pattern in manager.files:
        chosen |= untrusted_regex.matching(pattern, paths)
    for pattern in manager.excluded:
        chosen -= untrusted_regex.matching(pattern, paths)
    return tuple(path for path in paths if path in chosen)


def locate(managers: Sequence[tuple[RegexManager, Sequence[str]]], texts: Mapping[str, str]) -> RenovateImport:
    """Find the dependencies of managers, each with the paths that it reads; ``texts`` has the files' texts."""
    known = list(discover(texts.items()))
    by_place = dict[tuple[str, int], ClassifiedReference]()
    left_out: list[str] = []
    for manager, paths in managers:
        problems: dict[str, list[str]] = {}
        count = 0
        for path in paths:
            file = SourceFile(path, texts[path])
            try:
                for groups in _dependencies(manager, file.text, len(paths)):
                    count += 1
                    try:
                        for found in _classified(manager, file, groups, known):
                            by_place[path, found.reference.start] = found
                    except CannotTell as error:
                        problems.setdefault(f"{error}", []).append(path)
            except CannotTell as error:
                problems.setdefault(f"{error}".removesuffix("."), []).append(path)
        if not count and not problems:
            problems[f"it finds nothing in the {len(paths)} tracked files that it reads"] = []
        for problem, of_problem in problems.items():
            listed = join_first(list(dict.fromkeys(of_problem)), _MAX_LISTED)
            left_out.append(f"{manager.name}: {problem}{f' ({listed})' if listed else ''}.")
    return RenovateImport(tuple(by_place[place] for place in sorted(by_place)), tuple(left_out))


def _dependencies(manager: RegexManager, text: str, count: int) -> Iterator[Groups]:
    """Yield the spans of the groups of each dependency; ``count`` files share the time limit."""
    limit = max(untrusted_regex.LIMIT / count, 0.1)
    combined: dict[str, tuple[int, int]] = {}
    for pattern in manager.patterns:
        for groups in untrusted_regex.matches(pattern, text, limit):
            if not manager.combines:
                yield groups
            combined |= groups
    if manager.combines and combined:
        yield combined


def _classified(
    manager: RegexManager, file: SourceFile, groups: Groups, known: Sequence[ClassifiedReference]
) -> tuple[ClassifiedReference, ...]:
    """Return the reference of a dependency, and its digest if that stands apart.

    Raises CannotTell, with a clause, if no pin can be declared for it.
    """
    reference = _reference(manager, file.text, groups)
    for entry in known:
        of_entry = entry.reference
        if entry.path == file.path and of_entry.start <= reference.start and reference.end <= of_entry.end:
            found = entry
            break
    else:
        nature = file.nature(reference)
        image_type: ImageType = "lts" if file.names_lts(reference.start, beside=True) else "dev"
        reader = nature.ci if nature.ci in ("github", "gitlab") else ""
        found = ClassifiedReference(file.path, reference, nature, "lockstep", image_type, "", reader, is_read=True)
    if (found.reference.image, found.reference.tag) != (reference.image, reference.tag):
        raise CannotTell(f"the file names {found.reference} there, and the manager {reference}")
    reason = f"{manager.name} of Renovate's settings moves it"
    found = replace(found, role="lockstep" if is_live(found) else "follow", reason=reason)
    start, end = groups.get("currentDigest", (0, 0))
    if start == end or (found.reference.start <= start and end <= found.reference.end):
        return (found,)
    if not re.fullmatch(PARTS["digest"], file.text[start:end]) or not found.reference.form:
        raise CannotTell("its digest stands apart from the tag")
    line_start = file.text.rfind("\n", 0, start) + 1
    digest = replace(
        found.reference, start=start, end=end, line=file.text.count("\n", 0, start) + 1, column=start - line_start,
        digest=file.text[start:end], form="{digest}",
    )  # fmt: skip
    return found, replace(found, reference=digest, nature=file.nature(digest))


def _reference(manager: RegexManager, text: str, groups: Groups) -> Reference:
    def value(field: str) -> str:
        if field in manager.templates:
            return _filled(manager.templates[field], text, groups)
        start, end = groups.get(field, (0, 0))
        return text[start:end]

    datasource = value("datasource")
    if datasource != "docker":
        raise CannotTell(f"its datasource is {datasource or 'not named'}, and only docker has images")
    image = value("packageName") or value("depName")
    if registry := value("registryUrl").partition("://")[2].strip("/"):
        image = image if image.startswith(f"{registry}/") else f"{registry}/{image}"
    try:
        name = ImageRef.parse(image if _REGISTRY.match(image) else f"{DOCKER_HUB}/{image}")
    except RunbookError as error:
        raise CannotTell(f"its image {image!r} cannot be read") from error
    family = family_of(name)
    if family is None:
        raise CannotTell(f"no family of tags is known for {name.name}; declare its pins by hand, with the key family")
    (start, end), form = _place(manager, text, groups)
    tag = compose(form, text[start:end])
    try:
        family.read(tag)
    except RunbookError as error:
        raise CannotTell(f"{tag!r} is no tag of {image}") from error
    line_start = text.rfind("\n", 0, start) + 1
    return Reference(
        start, end, text.count("\n", 0, start) + 1, start - line_start, name.name, tag, "",
        variable=False, family=family, form=form,
    )  # fmt: skip


def _place(manager: RegexManager, text: str, groups: Groups) -> tuple[tuple[int, int], str]:
    """Return the span of the value, and the format of the tag around it."""
    template = manager.templates.get("currentValue", "{{{currentValue}}}")
    pieces = PLACEHOLDER.split(template)
    span = groups.get(pieces[1] or pieces[2]) if len(pieces) == _ONE_PLACEHOLDER else None
    if span is None:
        raise CannotTell(f"it captures no tag as {template}, or in several pieces")
    return span, form_around(pieces[0], text[slice(*span)], pieces[-1])


def _filled(template: str, text: str, groups: Groups) -> str:
    """Return a template with the groups' texts filled in."""
    return PLACEHOLDER.sub(lambda match: text[slice(*groups.get(match[1] or match[2], (0, 0)))], template)
