"""Dumps from PyTorch's Flight Recorder: the ranks that are behind in a hang.  Pure.

A dump is a pickle, which can run arbitrary code when loaded, so only containers, text and numbers are accepted here.
Source: torch/distributed/flight_recorder in PyTorch.
"""

import ast
import io
import itertools
import json
import pickle
import pickletools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.triage.log_summary import LineMatch, LogSummary
from runbook_lib.triage.patterns import BY_ID

LARGEST = 2**25  # maximum size of a dump in bytes
_MAX_DUMPS = 1024
_NAME = re.compile(r"(?:_dump|trace_rank|fr_trace)_?(\d{1,6})(?:\.pkl|\.pickle|\.json)?$")
_FEWEST = 2  # minimum number of dumps to compare
_MAX_MEMO = 2**24  # maximum number of entries in a pickle's memo


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")


def is_dump(name: str) -> bool:
    """Return True if a file name is that of a dump."""
    return _NAME.search(name) is not None


def summaries(dumps: Mapping[str, Callable[[], Iterable[bytes]]]) -> list[LogSummary]:
    """Return a summary that names the ranks behind according to these dumps (by name); empty if none is behind."""
    by_rank: dict[int, Mapping[str, Any]] = {}
    for name, stream in itertools.islice(dumps.items(), _MAX_DUMPS):
        match = _NAME.search(name)
        with suppress(RunbookError, OSError):  # not a dump, or unreadable: the others may decide
            if match:
                by_rank[int(match[1])] = read(_content(stream()))
    behind = ranks_behind(by_rank)
    if not behind:
        return []
    first, group = next(iter(behind.items()))
    ranks = f"{'ranks' if len(behind) > 1 else 'rank'} {', '.join(map(str, behind))}"
    text = f"Flight Recorder: {ranks} issued fewer collectives than others of {group}"
    line = LineMatch(BY_ID["flight-recorder"], text, (text,), 0, first)
    issued = dict.fromkeys(by_rank, 1) | {first: 0}
    return [LogSummary("dumps of the Flight Recorder", matches=(line,), enqueued=issued)]


def _content(pieces: Iterable[bytes]) -> bytes:
    data = b""
    for piece in pieces:
        data += piece
        if len(data) > LARGEST:
            raise CannotTell("The dump is too large.")
    return data


def read(data: bytes) -> Mapping[str, Any]:
    """Return the content of a dump.  Raises CannotTell for anything else."""
    try:
        if data[:1] in b"{[":
            dump = json.loads(data)
        else:
            for opcode, argument, _ in pickletools.genops(data):
                if "PUT" in opcode.name and isinstance(argument, int) and argument > _MAX_MEMO:
                    raise pickle.UnpicklingError("its memo is too large")
            dump = _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, ValueError, EOFError, IndexError, TypeError, AttributeError, KeyError,
            OverflowError, RecursionError, MemoryError) as error:  # fmt: skip
        raise CannotTell(f"It is not a Flight Recorder dump ({error}).") from error
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise CannotTell("It is not a Flight Recorder dump: it has no entries.")
    return dump


def ranks_behind(dumps: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Return the ranks that issued fewer collectives than others in their groups, the farthest behind first.

    Each comes with the name of a group in which it is behind.
    """
    if len(dumps) < _FEWEST:
        return {}
    issued: dict[str, dict[int, int]] = defaultdict(dict)
    members: dict[str, tuple[str, set[int]]] = {}
    for rank, dump in dumps.items():
        for entry in dump["entries"]:
            name, number = _collective(entry)
            if name:
                issued[name][rank] = max(number, issued[name].get(rank, 0))
        members |= _groups(dump)
    votes: Counter[int] = Counter()
    groups: dict[int, str] = {}
    for name, numbers in issued.items():
        description, ranks = members.get(name, (name, set(numbers)))
        compared = {rank: numbers.get(rank, 0) for rank in ranks if rank in dumps}
        newest = max(compared.values(), default=0)
        behind = [rank for rank, number in compared.items() if number < newest]
        if len(behind) * 2 <= len(compared):  # the others wait for them
            votes.update(behind)
            groups |= dict.fromkeys(behind, description)
    most = max(votes.values(), default=0)
    return {rank: groups[rank] for rank in sorted(votes) if votes[rank] * 2 > most}


def _collective(entry: object) -> tuple[str, int]:
    """Return group and number of a collective; the group is empty for point-to-point messages and anything else."""
    if not isinstance(entry, dict) or entry.get("is_p2p"):
        return "", 0
    group, number = entry.get("process_group"), entry.get("collective_seq_id")
    if isinstance(group, (tuple, list)) and group and isinstance(number, int):
        return str(group[0]), number
    return "", 0


def _groups(dump: Mapping[str, Any]) -> dict[str, tuple[str, set[int]]]:
    """Return the description and the ranks of each group in a dump."""
    groups: dict[str, tuple[str, set[int]]] = {}
    config = dump.get("pg_config")
    for name, group in config.items() if isinstance(config, dict) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, str):
            try:
                ranks = ast.literal_eval(ranks[:100_000])
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                ranks = None
        if isinstance(ranks, (list, tuple)):
            members = {rank for rank in ranks if isinstance(rank, int)}
            groups[str(name)] = (str(group.get("desc") or name)[:200], members)
    return groups
