"""A draft of ``.base-image-pins.yaml`` from discovered references.

An entry is drafted only if its finder, tried on the file, finds the reference, and nothing with a different role.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from runbook_lib.pins.discover.draft_finders import DraftedFile, finders, moving_texts
from runbook_lib.pins.discover.draft_groups import (
    ROLE_HEADS,
    DraftEntry,
    DraftGroup,
    GroupKey,
    entry_lines,
    group_names,
    key_of,
    moves_of,
    newest_groups,
    numbered_tags,
    with_leaders,
)
from runbook_lib.pins.discover.roles import ClassifiedReference, shown, times
from runbook_lib.pins.finders import PinLocation

_MAX_LOCATIONS = 1000  # of a pin: a limit of the format
_MAX_ENTRIES = 50  # of one file; nobody reads more


@dataclass(frozen=True)
class PinsFileDraft:
    """``text`` of the file, empty if nothing can be drafted; ``chosen``: sentences on the choice of the image.

    ``left_out``: sentences on references to that image that a pins file cannot express.
    """

    text: str
    chosen: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def draft(
    discovered: Sequence[ClassifiedReference],
    texts: Mapping[str, str],
    author: str = "runbook pins discover",
    *,
    pin_digests: bool = False,
) -> PinsFileDraft:
    """Draft a pins file for the images that CI or a build reads, each a group, with ``digests`` if ``pin_digests``.

    ``texts`` by path; ``author`` is the command that drafts.
    """
    pins = Counter(key_of(reference) for reference in discovered if reference.role == "lockstep")
    if not pins:
        return PinsFileDraft("", ("Nothing is drafted: no reference names a tag and is read by CI or a build.",))
    keys = _sorted_keys(discovered, pins)
    by_key: dict[GroupKey, list[ClassifiedReference]] = {key: [] for key in keys}
    first = {key[0]: key for key in reversed(keys)}
    for reference in discovered:
        # Those of an edition without a pin are compared with the first edition of their image.
        if reference.reference.image in first:
            key = key_of(reference)
            by_key[key if key in by_key else first[key[0]]].append(reference)
    files: dict[str, DraftedFile] = {}
    for reference in discovered:
        file = files.setdefault(reference.path, DraftedFile(reference.path, texts[reference.path]))
        file.moving.update(moving_texts(reference.reference, file.text))
    cis = {reference.nature.ci for reference in discovered}
    drafted, left_out, names = dict[GroupKey, DraftGroup](), list[str](), group_names(keys)
    for key, references in by_key.items():
        entries, without = _entries(references, files, texts, cis)
        left_out += without
        if any(entry.role.startswith("lockstep") for entry in entries):
            tags = numbered_tags(references)
            drafted[key] = DraftGroup(names[key], *key[:2], entries, digests=pin_digests, numbered=tags)
        else:
            for entry in entries:
                places = [f"{shown(entry.path)}:{location.line}" for location in entry.locations]
                left_out += [f"{place} ({entry.role}): no pin of its image can be moved." for place in places]
    groups = with_leaders(drafted, {key: moves_of(by_key[key]) for key in drafted})
    if not groups:
        reason = "Nothing is drafted: a pins file has no way to find the references that matter."
        return PinsFileDraft("", (reason,), tuple(left_out))
    chosen = _chosen(discovered, {key: pins[key] for key in keys}, {group.image for group in groups})
    return PinsFileDraft(_text(groups, chosen, left_out, discovered, author), tuple(chosen), tuple(left_out))


def _sorted_keys(discovered: Sequence[ClassifiedReference], pins: Mapping[GroupKey, int]) -> list[GroupKey]:
    """Return the groups, the most important first; ``pins`` is the number of pins of each."""
    counts = Counter(reference.reference.image for reference in discovered)
    read = Counter(key_of(pin) for pin in discovered if pin.role == "lockstep" and pin.is_read)
    moves: defaultdict[GroupKey, Counter[tuple[str, str]]] = defaultdict(Counter)
    for reference in discovered:
        moves[key_of(reference)].update(reference.moves)
    newest = newest_groups(discovered)

    def importance(key: GroupKey) -> tuple[object, ...]:
        return key in newest, moves[key].total(), read[key], pins[key], counts[key[0]], key

    return sorted(pins, key=importance, reverse=True)


def _chosen(
    discovered: Sequence[ClassifiedReference], pins: Mapping[GroupKey, int], drafted: Set[str]
) -> Sequence[str]:
    """Return sentences on the images of the draft, ``drafted``, and on the others."""
    counts = Counter(reference.reference.image for reference in discovered)
    of_images: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    for key, count in pins.items():
        of_images[key[0]] += count
        groups[key[0]] += 1
    total = of_images.total()
    sentences = []
    for image, count in of_images.items():
        in_groups = f", in {groups[image]} groups" if groups[image] > 1 else ""
        sentences.append(f"Drafted for {image}: {times(count, 'pin')} of {total} that CI or a build reads{in_groups}.")
    if others := sorted(counts.keys() - drafted):
        listed = ", ".join(shown(f"{name} ({times(counts[name], 'reference')})") for name in others)
        sentences.append(f"Left out, as no pin of theirs can be moved: {listed}.")
    return sentences


def _entries(
    references: Sequence[ClassifiedReference],
    files: Mapping[str, "DraftedFile"],
    texts: Mapping[str, str],
    cis: Set[str],
) -> tuple[list[DraftEntry], list[str]]:
    """Return the entries, the most important first, and sentences on references that no entry finds."""
    for file in files.values():
        file.remaining.clear()
    for reference in references:
        files[reference.path].remaining[reference.reference.start] = reference
    entries: list[DraftEntry] = []
    left_out: list[str] = []
    tried: Counter[str] = Counter()
    for role in ROLE_HEADS:
        for reference in references:
            file = files[reference.path]
            if reference.full_role != role or reference.reference.start not in file.remaining:
                continue
            tried[file.path] += 1
            if tried[file.path] > _MAX_ENTRIES:
                continue
            if entry := _entry(reference, file, texts, _reader(reference, cis)):
                entries.append(entry)
                for location in entry.locations:
                    del file.remaining[location.start]
            else:
                line = f"{shown(file.path)}:{reference.reference.line}"
                left_out.append(f"{line} ({role}): no way to find it fits; add it by hand.")
    for path, count in sorted(tried.items()):
        if count > _MAX_ENTRIES:
            more = count - _MAX_ENTRIES
            left_out.append(f"{shown(path)}: {more} more of its references; add one pattern for many by hand.")
    return entries, left_out


def _text(
    groups: Sequence[DraftGroup], chosen: Sequence[str], left_out: Sequence[str],
    references: Sequence[ClassifiedReference], author: str,
) -> str:  # fmt: skip
    lines = [
        f"# Drafted by `{author}`. Read every entry: one that lags behind may be a forgotten pin.",
        *(f"# {sentence}" for sentence in chosen),
        "version: 1",
    ]
    if len(groups) == 1:
        digests = ["digests: true"] if groups[0].digests else []
        lines += [f"image: {groups[0].image}", *digests, "pins:", *entry_lines(groups[0].entries)]
    else:
        lines.append("groups:")
        for group in groups:
            lines += group.lines()
    if records := sorted({reference.path for reference in references if reference.role == "frozen"}):
        lines.append("# Records, which must not move; nothing compares them, so they need no entry:")
        lines += [f"#   {shown(path)}" for path in records]
    lines += [f"# Left out: {sentence}" for sentence in left_out]
    return "\n".join(lines) + "\n"


def _entry(
    reference: ClassifiedReference, file: "DraftedFile", texts: Mapping[str, str], reader: str
) -> DraftEntry | None:
    """Return the first entry that finds the reference, and among the others only references with the same role."""
    path = file.path
    if not path.isprintable() or "\\" in path or set("*?[") & set(path):
        return None  # the format cannot express it
    for find, finder in finders(reference, file):
        locations = file.locations(find, finder, reference.reference.image)
        matches = [file.remaining.get(location.start) for location in locations]
        if reference not in matches or len(matches) > _MAX_LOCATIONS:
            continue
        if all(_fits(match, location, reference) for match, location in zip(matches, locations, strict=True)):
            dockerfile = ""
            if find.startswith("{build-arg:") and reference.nature.dockerfile in texts:
                dockerfile = reference.nature.dockerfile
            form = reference.reference.form
            return DraftEntry(path, find, reference.full_role, reader, locations, dockerfile, reference.history, form)
    return None


def _fits(match: ClassifiedReference | None, location: PinLocation, reference: ClassifiedReference) -> bool:
    role = reference.full_role
    if match is None or match.full_role != role or match.reference.form != reference.reference.form:
        return False
    return match.reference.end == location.end


def _reader(reference: ClassifiedReference, cis: Set[str]) -> str:
    """Return the reader of the reference; ``cis`` are the CIs whose files have references."""
    if reference.reader:
        return reference.reader
    return "gitlab" if "gitlab" in cis and "github" not in cis else "github"
