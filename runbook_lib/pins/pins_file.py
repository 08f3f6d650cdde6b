"""The pins that a repository declares in ``.base-image-pins.yaml``; docs/other-repositories.md describes it.

The format is declared by ``base-image-pins.schema.json`` beside this module, for editors and for this reader.  All keys
of a pin but ``path`` and ``find`` have defaults: lockstep, dev, github (gitlab for its own files, people for what is
not lockstep), the file's image, and a count of 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import ALIBABA, COREWEAVE, NEMO, NGC, NUMBERED, OTHER, Family, family_of
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.finders import (
    BuildArg,
    Counted,
    DockerArg,
    Finder,
    UntrustedRegex,
    WholeFile,
    YamlValue,
    literal_text,
)
from runbook_lib.pins.repositories import FILE, TITLE, Repository, RepositoryCi
from runbook_lib.pins.sites import PinnedImage, PinSite, Sites
from runbook_lib.text import untrusted_regex, user_file
from runbook_lib.text.user_file import Keys, UserFile, load_schema

SCHEMA = "base-image-pins.schema.json"

FAMILIES: Mapping[str, Family] = {
    "ngc": NGC, "nemo": NEMO, "coreweave": COREWEAVE, "alibaba": ALIBABA, "numbered": NUMBERED, "other": OTHER,
}  # fmt: skip


def parse(text: str, name: str, origin: str = FILE) -> Repository:
    """Parse a pins file.  ``name`` is the repository (``owner/name``), ``origin`` the name of the file in messages.

    Raises RunbookError for an invalid file, with line, key, actual and expected value.
    """
    file = user_file.read(text, load_schema("runbook_lib.pins", SCHEMA), "pins file", origin)
    values = file.values
    main = _image(file, ())
    images, pins = {main.name: main}, list[PinSite]()
    for index, declared in enumerate(values["pins"]):
        keys = ("pins", index)
        image = _image(file, keys) if "image" in declared else main
        if images.setdefault(image.name, image) != image:
            raise file.refusal((*keys, "image"), "the family that the file gives this image elsewhere")
        pins.append(_pin(file, keys, image.name))
    for pinned in images:
        if not any(site.lockstep and site.image == pinned for site in pins):
            expected = f"at least one pin of {pinned} of the kind lockstep, with which its others are compared"
            raise file.refusal(("pins",), expected)
    sites = Sites(_with_short_names(list(images.values())), tuple(pins), platforms=tuple(values.get("platforms", ())))
    return Repository(
        name, sites, title=values.get("title", TITLE), ci=RepositoryCi(tuple(values.get("labels", ()))), origin=origin,
        holds={str(entry["tag"]): str(entry["reason"]) for entry in values.get("hold", ())},
    )  # fmt: skip


def _image(file: UserFile, keys: Keys) -> PinnedImage:
    values = file.value(keys)
    try:
        reference = ImageRef.parse(values["image"])
    except RunbookError:
        raise file.refusal((*keys, "image"), "registry and repository, such as nvcr.io/nvidia/pytorch") from None
    if reference.tag or reference.digest:
        raise file.refusal((*keys, "image"), f"{reference.name}, without tag and digest")
    family = FAMILIES.get(values.get("family", "")) or family_of(reference)
    if family is None:
        expected = f"an image of a known family, or the key family ({', '.join(FAMILIES)})"
        raise file.refusal((*keys, "image"), expected)
    return PinnedImage(reference.name, family)


def _with_short_names(images: Sequence[PinnedImage]) -> tuple[PinnedImage, ...]:
    """Return several images with the last part of each name, or all of a name if that is another's too."""
    if len(images) == 1:
        return tuple(images)
    ends = [image.name.rpartition("/")[2] for image in images]
    return tuple(
        replace(image, short=end if ends.count(end) == 1 else image.name)
        for image, end in zip(images, ends, strict=True)
    )


def _pin(file: UserFile, keys: Keys, image: str) -> PinSite:
    values = file.value(keys)
    ((way, value),) = values["find"].items()
    if "dockerfile" in values and way != "build-arg":
        raise file.refusal((*keys, "dockerfile"), f"no dockerfile with find: {{{way}: …}}, only with build-arg")
    if "family" in values and "image" not in values:
        raise file.refusal((*keys, "family"), "no family in a pin without an image of its own")
    kind = values.get("kind", "lockstep")
    reader = "github"
    if kind != "lockstep":
        reader = "people"
    elif values["path"].startswith((".gitlab/", ".gitlab-ci")):
        reader = "gitlab"
    finder, holds = _finder(file, (*keys, "find", way), way, value)
    return PinSite(
        values["path"],
        Counted(finder, values.get("count", 1), f"find: {way}", f"{file.origin}:{file.line(keys)}"),
        values.get("type", "dev"),
        values.get("read-by", reader),
        kind,
        needs="declared",
        dockerfile=values.get("dockerfile", ""),
        image=image,
        value=values.get("value", holds),
        edition=values.get("edition"),
    )


def _finder(file: UserFile, keys: Keys, way: str, value: Any) -> tuple[Finder, str]:
    """Return the finder, and what it finds unless the pin says otherwise: ``image`` or ``tag``."""
    if way in ("arg", "build-arg"):
        return DockerArg(value) if way == "arg" else BuildArg(value), "image"
    if way == "file":
        return WholeFile(), "image"
    if way == "text":
        return literal_text(value), "tag" if "{tag}" in value else "image"
    if way == "yaml":
        parts = value.split(".") if isinstance(value, str) else value
        return YamlValue(tuple(map(str, parts))), "image"
    try:
        return UntrustedRegex(value), untrusted_regex.validate(value)
    except CannotTell as error:
        raise file.refusal(keys, f"a regular expression that can be used ({error})") from error
