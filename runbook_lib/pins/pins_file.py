"""The pins that a repository declares in ``.base-image-pins.yaml``; docs/other-repositories.md describes it.

The format is declared by ``base-image-pins.schema.json`` beside this module, for editors and for this reader.  All keys
of a pin but ``path`` and ``find`` have defaults: lockstep, dev, github (gitlab for its own files, people for what is
not lockstep), and a count of 1.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import ALIBABA, COREWEAVE, NEMO, NGC, NUMBERED, OTHER, VERSIONED, AnyFamily, family_of
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins import tag_parts, watch_rules
from runbook_lib.pins.finders import (
    BuildArg,
    Counted,
    DockerArg,
    Finder,
    RegexMatches,
    UntrustedRegex,
    WholeFile,
    YamlValue,
    literal_text,
)
from runbook_lib.pins.repositories import FILE, TITLE, Repository, UserOverlay
from runbook_lib.pins.sites import PinGroup, PinSite, Sites, unread_parts
from runbook_lib.text import untrusted_regex, user_file
from runbook_lib.text.user_file import Keys, UserFile, load_schema

SCHEMA = "base-image-pins.schema.json"

FAMILIES: Mapping[str, AnyFamily] = {
    "ngc": NGC, "nemo": NEMO, "coreweave": COREWEAVE, "alibaba": ALIBABA, "numbered": NUMBERED,
    "versioned": VERSIONED, "other": OTHER,
}  # fmt: skip


def parse(text: str, name: str, origin: str = FILE) -> Repository:
    """Parse a pins file.  ``name`` is the repository (``owner/name``), ``origin`` the name of the file in messages.

    Raises RunbookError for an invalid file, with line, key, actual and expected value.
    """
    file = user_file.read(text, load_schema("runbook_lib.pins", SCHEMA), "pins file", origin)
    values = file.values
    groups: list[PinGroup] = []
    pins: list[PinSite] = []
    for keys in _groups(file):
        group = _group(file, keys)
        sites_of_group = [_pin(file, (*keys, "pins", index)) for index in range(len(file.value((*keys, "pins"))))]
        if group.name in {other.name for other in groups}:
            raise file.refusal((*keys, "name"), "a name that no group before has")
        if group.leader and group.leader not in {other.name for other in groups if not other.leader}:
            raise file.refusal((*keys, "with"), "the name of an earlier group that moves on its own")
        if group.leader and (group.alone or group.major is not None):
            raise file.refusal((*keys, "with"), "no with beside alone or major: the other group decides")
        if not any(site.lockstep for site in sites_of_group):
            expected = "at least one pin of the kind lockstep, with which the others are compared"
            raise file.refusal((*keys, "pins"), expected)
        for index, site in enumerate(sites_of_group):
            if unread_parts(site, sites_of_group):
                place = (*keys, "pins", index)
                key = "tag" if "tag" in file.value(place) else "find"
                raise file.refusal(
                    (*place, key), f"another pin of {site.path} and of this group, which names the rest of its tag"
                )
        groups.append(group)
        pins += [replace(site, group=group.name) for site in sites_of_group]
    sites = Sites(tuple(groups), tuple(pins), platforms=tuple(values.get("platforms", ())))
    overlays = tuple(UserOverlay(**overlay) for overlay in values.get("overlays", ()))
    return Repository(
        name, sites, title=values.get("title", TITLE), labels=tuple(values.get("labels", ())), origin=origin,
        overlays=overlays, watch=watch_rules.of(file, ("watch",)),
    )  # fmt: skip


def _groups(file: UserFile) -> list[Keys]:
    """Return the keys of each group; a file without groups is one."""
    if "groups" not in file.values:
        return [()]
    for name in ("image", "family", "edition", "digests", "pins"):
        if name in file.values:
            raise file.refusal((name,), f"no {name} beside groups: each group has its own")
    return [("groups", index) for index in range(len(file.values["groups"]))]


def _group(file: UserFile, keys: Keys) -> PinGroup:
    values = file.value(keys)
    reference = _image(file, (*keys, "image"))
    family = FAMILIES.get(values.get("family", "")) or family_of(reference)
    if family is None:
        expected = f"an image of a known family, or the key family ({', '.join(FAMILIES)})"
        raise file.refusal((*keys, "image"), expected)
    title = values.get("title", "") if keys else ""
    return PinGroup(
        values["image"], family, values.get("name", ""), values.get("edition"), title,
        alone=values.get("alone", False), major=values.get("major"), leader=values.get("with", ""),
        digests=values.get("digests", False),
    )  # fmt: skip


def _image(file: UserFile, keys: Keys) -> ImageRef:
    try:
        reference = ImageRef.parse(file.value(keys))
    except RunbookError:
        raise file.refusal(keys, "registry and repository, such as nvcr.io/nvidia/pytorch") from None
    if reference.tag or reference.digest:
        raise file.refusal(keys, f"{reference.name}, without tag and digest")
    return reference


def _pin(file: UserFile, keys: Keys) -> PinSite:
    values = file.value(keys)
    ((way, value),) = values["find"].items()
    if "dockerfile" in values and way != "build-arg":
        raise file.refusal((*keys, "dockerfile"), f"no dockerfile with find: {{{way}: …}}, only with build-arg")
    kind = values.get("kind", "lockstep")
    reader = "github"
    if kind != "lockstep":
        reader = "people"
    elif values["path"].startswith((".gitlab/", ".gitlab-ci")):
        reader = "gitlab"
    finder = _finder(file, (*keys, "find", way), way, value)
    form = values.get("tag", "")
    if not form and isinstance(finder, UntrustedRegex | RegexMatches) and finder.group != "image":
        form = tag_parts.default_form(finder.group)
    return PinSite(
        values["path"],
        Counted(finder, values.get("count", 1), f"find: {way}", f"{file.origin}:{file.line(keys)}"),
        values.get("type", "dev"),
        values.get("read-by", reader),
        lockstep=kind == "lockstep",
        needs="declared",
        frozen=kind == "frozen",
        follows=kind == "follow",
        dockerfile=values.get("dockerfile", ""),
        tag_form=form,
        image=_image(file, (*keys, "image")).name if "image" in values else "",
    )


def _finder(file: UserFile, keys: Keys, way: str, value: Any) -> Finder:
    if way in ("arg", "build-arg"):
        return DockerArg(value) if way == "arg" else BuildArg(value)
    if way == "file":
        return WholeFile()
    if way == "text":
        return literal_text(value)
    if way == "yaml":
        parts = value.split(".") if isinstance(value, str) else value
        return YamlValue(tuple(map(str, parts)))
    try:
        untrusted_regex.validate(value)
    except CannotTell as error:
        raise file.refusal(keys, f"a regular expression that can be used ({error})") from error
    return UntrustedRegex(value)
