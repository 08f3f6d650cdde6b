"""A repository's own pins, declared in its file ``.base-image-pins.yaml``.  Pure: text in, ``Repository`` out.

    version: 1
    image: nvcr.io/nvidia/pytorch        # registry/repository, without a tag
    family: ngc                          # ngc, nemo, coreweave, alibaba or other; empty: what the image tells
    title: "chore: Update Docker image version to {tag}"    # of commit and pull request; optional
    labels: []                           # set on the pull request; optional
    platforms: []                        # amd64, arm64: what the tag must exist for; optional
    pins:
      - path: docker/Dockerfile          # one file, from the repository's root
        find: {arg: BASE_IMAGE}          # exactly one of the ways below
        kind: lockstep                   # lockstep (a bump moves it), informational (reported) or frozen (a record)
        type: dev                        # dev or lts
        read-by: github                  # github, gitlab or people
        count: 1                         # so many values are found, or nothing is planned
        dockerfile: docker/Dockerfile    # with build-arg alone: the Dockerfile that gets it, to tell a dead argument

Ways to ``find``: ``{arg: NAME}``, the default of an ARG before a Dockerfile's first FROM; ``{file: whole}``, a file
with the reference and nothing else; ``{yaml: jobs.build.container.image}``, keys and indexes of lists (or a list of
them, where a key has a dot); ``{build-arg: NAME}``, ``--build-arg NAME=…`` or a line of ``build-args``; and
``{regex: '…'}`` with a group ``image``, such as ``^FROM (?P<image>nvcr\\.io/nvidia/pytorch:\\S+)``.  All but ``path``
and ``find`` have defaults: lockstep, dev, github (gitlab for its own files, people for what is not lockstep),
and 1.

The JSON schema beside this module (``base-image-pins.schema.json``) says the same to editors.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.images.families import ALIBABA, COREWEAVE, NEMO, NGC, OTHER, AnyFamily, family_of
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins.finders import BuildArg, Counted, DockerArg, Finder, GivenPattern, WholeFile, YamlValue
from runbook_lib.pins.repositories import FILE, TITLE, Repository
from runbook_lib.pins.sites import PinSite, Sites
from runbook_lib.text import untrusted_regex
from runbook_lib.text.yaml_spans import MISFITS, Text, doubled, is_endless

FAMILIES: Mapping[str, AnyFamily] = {
    "ngc": NGC, "nemo": NEMO, "coreweave": COREWEAVE, "alibaba": ALIBABA, "other": OTHER
}  # fmt: skip
KINDS, TYPES, READERS = ("lockstep", "informational", "frozen"), ("dev", "lts"), ("github", "gitlab", "people")
PLATFORMS = ("amd64", "arm64")
#: What is asked for at each level; the first are required.
KEYS = ("version", "image", "pins", "family", "title", "labels", "platforms")
PIN_KEYS = ("path", "find", "kind", "type", "read-by", "count", "dockerfile")
WAYS = ("arg", "file", "yaml", "build-arg", "regex")
# What ends a line or steers a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NAME = re.compile(r"[A-Za-z_]\w*")


def parse(text: str, name: str, origin: str = FILE) -> Repository:
    """Read a pins file.  ``name`` is that of the repository (``owner/name``), ``origin`` the file as messages name it.

    Raises RunbookError for a file that cannot be used, with its line and key, what was found and what is expected.
    """
    return _File(text, origin).repository(name)


class _File:
    """A pins file while it is read; every problem is told with its line."""

    def __init__(self, text: str, origin: str) -> None:
        self.origin = origin
        try:
            self.text = Text(text)
        except CannotTell as error:
            raise RunbookError(f"The pins file {origin} cannot be read: {error}") from error

    def repository(self, name: str) -> Repository:
        """The whole file."""
        if len(self.text.documents) != 1 or not isinstance(root := self.text.documents[0], MappingNode):
            raise RunbookError(
                f"The pins file {self.origin} holds no mapping: expected the keys {', '.join(KEYS[:3])}."
            )
        given = self.keys(root, "the file", KEYS, KEYS[:3])
        if self.value(given["version"]) != 1:
            self.refuse(given["version"], "version", "1, the only version there is")
        image = self.image(given["image"])
        pins = given["pins"]
        if not isinstance(pins, SequenceNode) or not pins.value:
            self.refuse(pins, "pins", "a list with at least one pin")
        sites = Sites(
            image=image,
            pins=tuple(self.pin(node) for node in pins.value),
            family=self.family(given.get("family"), image, given["image"]),
            platforms=tuple(self.choice(it, "platforms", PLATFORMS) for it in self.items(given, "platforms")),
        )
        if not any(site.lockstep for site in sites.pins):
            self.refuse(pins, "pins", "at least one pin of the kind lockstep, which the others are compared with")
        return Repository(
            name,
            sites,
            title=self.title(given.get("title")),
            labels=tuple(self.label(it) for it in self.items(given, "labels")),
            origin=self.origin,
        )

    def pin(self, node: Node) -> PinSite:
        """An entry of ``pins``."""
        if not isinstance(node, MappingNode):
            self.refuse(node, "pins", "a mapping with path and find")
        given = self.keys(node, "a pin", PIN_KEYS, PIN_KEYS[:2])
        path = self.path(given["path"], "path")
        way, finder = self.way(given["find"])
        kind = self.chosen(given, "kind", KINDS, KINDS[0])
        lockstep = kind == "lockstep"
        usual = "people" if not lockstep else "gitlab" if path.startswith((".gitlab/", ".gitlab-ci")) else "github"
        dockerfile = ""
        if "dockerfile" in given:
            dockerfile = self.path(given["dockerfile"], "dockerfile")
            if way != "build-arg":
                self.refuse(
                    given["dockerfile"], "dockerfile", f"none with find: {{{way}: …}}, but with build-arg alone"
                )
        return PinSite(
            path,
            Counted(finder, self.count(given.get("count")), f"find: {way}", f"{self.origin}:{self.text.line(node)}"),
            cast(Any, self.chosen(given, "type", TYPES, TYPES[0])),
            cast(Any, self.chosen(given, "read-by", READERS, usual)),
            lockstep=lockstep,
            needs="declared",
            frozen=kind == "frozen",
            dockerfile=dockerfile,
        )

    def way(self, node: Node) -> tuple[str, Finder]:
        """How a pin is found."""
        if not isinstance(node, MappingNode):
            self.refuse(node, "find", f"one of the ways {', '.join(WAYS)}, such as {{arg: BASE_IMAGE}}")
        given = self.keys(node, "find", WAYS, ())
        if len(given) != 1:
            self.refuse(node, "find", f"exactly one of {', '.join(WAYS)}")
        ((way, value),) = given.items()
        if way == "yaml":
            return way, YamlValue(self.yaml_path(value))
        text = self.plain(value, way)
        if way == "file":
            self.choice(value, way, ("whole",))
            return way, WholeFile()
        if way == "regex":
            return way, GivenPattern(self.pattern(value, text))
        if not _NAME.fullmatch(text):
            self.refuse(value, way, "the name of a build argument, such as BASE_IMAGE")
        return way, DockerArg(text) if way == "arg" else BuildArg(text)

    def pattern(self, node: Node, text: str) -> str:
        """A regular expression with the group ``image``; how long it takes is bounded when it is used."""
        try:
            untrusted_regex.validate(text)
        except CannotTell as error:
            self.refuse(node, "regex", f"a regular expression that can be used ({error})")
        return text

    def yaml_path(self, node: Node) -> tuple[str, ...]:
        """Keys and indexes, with dots between them or as a list."""
        if isinstance(node, SequenceNode) and node.value:
            return tuple(str(self.scalar(it, "yaml")) for it in node.value)
        text = self.plain(node, "yaml")
        if "" in (parts := tuple(text.split("."))):
            self.refuse(node, "yaml", "keys and indexes with dots between them, such as jobs.build.container.image")
        return parts

    def image(self, node: Node) -> str:
        """Registry and repository."""
        text = self.plain(node, "image")
        try:
            ref = ImageRef.parse(text)
        except RunbookError:
            self.refuse(node, "image", "registry and repository, such as nvcr.io/nvidia/pytorch")
        if ref.tag or ref.digest:
            self.refuse(node, "image", f"{ref.name}, without tag and digest")
        return text

    def family(self, node: Node | None, image: str, where: Node) -> AnyFamily:
        """The family that is named, else that of the image."""
        if node is not None:
            return FAMILIES[self.choice(node, "family", tuple(FAMILIES))]
        known = family_of(ImageRef.parse(image))
        if known is None:
            self.refuse(where, "image", f"an image of a known family, or the key family ({', '.join(FAMILIES)})")
        return known

    def title(self, node: Node | None) -> str:
        """A title with one place for the tag."""
        text = TITLE if node is None else self.plain(node, "title")
        if node is not None and (
            text.count("{tag}") != 1 or set("{}") & set(text.replace("{tag}", "")) or _CONTROL.search(text)
        ):
            self.refuse(node, "title", "one line with {tag} in it once, and no other braces")
        return text

    def label(self, node: Node) -> str:
        """A label of one line."""
        text = self.plain(node, "labels")
        if _CONTROL.search(text):
            self.refuse(node, "labels", "labels of one line")
        return text

    def path(self, node: Node, key: str) -> str:
        """A file of the repository; on some systems ``.GIT`` is ``.git``."""
        text = self.plain(node, key)
        parts = text.lower().split("/")
        if {"", ".", "..", ".git"} & set(parts) or set("\\*?[") & set(text) or _CONTROL.search(text):
            self.refuse(node, key, "one file, from the repository's root, with forward slashes and no pattern")
        return text

    def count(self, node: Node | None) -> int:
        """So many values."""
        value = 1 if node is None else self.value(node)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1000:
            self.refuse(cast(Node, node), "count", "a number from 1 to 1000")
        return value

    def chosen(self, given: Mapping[str, Node], key: str, choices: Sequence[str], default: str) -> str:
        """A key that has one of a few values."""
        return self.choice(given[key], key, choices) if key in given else default

    def choice(self, node: Node, key: str, choices: Sequence[str]) -> str:
        """One of a few values."""
        text = str(self.scalar(node, key))
        if text not in choices:
            self.refuse(node, key, f"{' or '.join(choices)}{_meant(text, choices)}")
        return text

    def items(self, given: Mapping[str, Node], key: str) -> Iterable[Node]:
        """The items of a list; none where the key is not given."""
        if (node := given.get(key)) is None:
            return ()
        if not isinstance(node, SequenceNode):
            self.refuse(node, key, "a list")
        return cast("list[Node]", node.value)

    def plain(self, node: Node, key: str) -> str:
        """A text that is not empty."""
        value = self.scalar(node, key)
        if not isinstance(value, str) or not value.strip():
            self.refuse(node, key, "a text")
        return value

    def scalar(self, node: Node, key: str) -> object:
        """A single value."""
        if not isinstance(node, ScalarNode):
            self.refuse(node, key, "a single value")
        return self.value(node)

    def value(self, node: Node) -> object:
        """A scalar as YAML reads it; None for what is no scalar or no value."""
        if not isinstance(node, ScalarNode) or is_endless(node):
            return None
        try:
            return cast(object, yaml.SafeLoader("").construct_object(node))
        except (yaml.YAMLError, ValueError, *MISFITS):
            return None

    def keys(self, node: MappingNode, what: str, known: Sequence[str], needed: Sequence[str]) -> dict[str, Node]:
        """The values by key.  Raises for one that is unknown, given twice or missing."""
        for key, _ in node.value:
            name = str(key.value)[:80] if isinstance(key, ScalarNode) else ""
            if name not in known:
                raise self.error(
                    key, f"{what} has the unknown key {name!r}; known are {', '.join(known)}{_meant(name, known)}."
                )
        if twice := doubled(node):
            raise self.error(node, f"{what} gives {', '.join(twice)} more than once.")
        given = {key.value: value for key, value in node.value}
        if missing := [name for name in needed if name not in given]:
            raise self.error(node, f"{what} lacks {' and '.join(missing)}.")
        return given

    def refuse(self, node: Node, key: str, expected: str) -> NoReturn:
        """Say what was found under a key, and what is expected."""
        start, end = self.text.span(node)
        found = " ".join(self.text.text[start:end].split())
        raise self.error(node, f"{key} is {found[:80] + '…' * (len(found) > 80) or 'empty'}; expected {expected}.")

    def error(self, node: Node, sentence: str) -> RunbookError:
        """A sentence with its place."""
        return RunbookError(f"{self.origin}:{self.text.line(node)}: {sentence} Nothing was read from the pins file.")


def _meant(text: str, known: Sequence[str]) -> str:
    near = get_close_matches(text, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""
