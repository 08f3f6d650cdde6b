"""The rules for lines of logs, read once from ``rules.toml``, and the search for their literals in one pass."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module, resources
from typing import Any, Literal

import ahocorasick_rs

FailureKind = Literal[
    "golden drift", "resume mismatch", "regression", "shape", "out of memory", "driver mismatch", "CUDA error",
    "flaky infrastructure", "communication", "hang", "crash", "container start", "missing program", "container build",
    "compile error", "dependency", "import error", "missing data", "missing resource", "access denied", "rate limit",
    "disk full", "configuration", "git", "policy", "lint", "unit tests", "cancelled", "program error", "unknown",
]  # fmt: skip

#: Classes that say nothing about the change: such a job runs again before anybody decides on its test.
RERUN: tuple[FailureKind, ...] = ("flaky infrastructure", "rate limit")

#: How much a match explains, by the strength of its rule.  A traceback that ends its process is between the first two.
_TIERS = {"cause": 4.0, "symptom": 2.0, "generic": 1.0, "consequence": 0.0}
TRACEBACK = 3.0
GENERIC = _TIERS["generic"]
SYMPTOM = _TIERS["symptom"]
_BY_WORDS = 0.1  # by which an error with telling words explains more than another
_WORDS_SOURCE = "https://docs.python.org/3/"
#: Measured: of failures diagnosed for the first time, the share whose class was right, by the evidence.
_CONFIDENCE = {"cause": 0.9, "symptom": 0.75, "generic": 0.6, "consequence": 0.2}
#: Below this confidence the class is "unknown".
CONFIDENT = 0.5
_MAX_LITERALS = 64  # that a part of a pattern stands for
_parser = import_module("re._parser")  # the parser of expressions has no public name
_SHORTEST = 4  # characters of a literal that is taken from a pattern


@dataclass(frozen=True)
class LogPattern:
    """A rule: an expression for lines; ``finding`` ends the sentence "The log shows …"."""

    id: str
    kind: FailureKind
    finding: str
    pattern: str
    source: str
    tier: float
    confidence: float
    advice: str = ""
    limit: bool = False
    context_pattern: str = ""
    consequence_of: tuple[str, ...] = ()
    by_words: bool = False  # no rule, but the words of an error, in upper or lower case

    # Compiled on first use: a notebook that reads no log would wait for all rules.
    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The expression of its lines."""
        return re.compile(self.pattern, re.IGNORECASE if self.by_words else re.NOFLAG)

    @cached_property
    def context(self) -> re.Pattern[str] | None:
        """The expression that one of the lines before must match."""
        return re.compile(self.context_pattern) if self.context_pattern else None

    @cached_property
    def literals(self) -> tuple[bytes, ...]:
        """Strings of which every line of the rule has one."""
        return literals_of(self.pattern)

    def matches(self, line: str, before: Iterable[str]) -> re.Match[str] | None:
        """Return the match in a line, where the lines before it have the context that the rule asks for."""
        match = self.regex.search(line)
        if match and self.context and not any(map(self.context.search, before)):
            return None
        return match

    @property
    def explains(self) -> bool:
        """Report if a match is more than a consequence."""
        return self.confidence >= CONFIDENT


def read_table(name: str) -> dict[str, Any]:
    """Return a table of rules that ships with this package."""
    return tomllib.loads(resources.files("runbook_lib.triage").joinpath(name).read_text("utf-8"))


def _read_pattern(rule: Mapping[str, Any]) -> LogPattern:
    strength = rule.get("strength", "cause")
    return LogPattern(
        rule["id"], rule["class"], rule["finding"], rule["pattern"], rule["source"],
        float(rule.get("tier", _TIERS[strength])), rule.get("conf", _CONFIDENCE[strength]),
        rule.get("advice", ""), rule.get("limit", False), rule.get("context", ""),
        tuple(rule.get("consequence_of", ())),
    )  # fmt: skip


def _read_words(entry: Mapping[str, Any]) -> LogPattern:
    kind = entry["class"]
    return LogPattern(
        f"words of {kind}", kind, "an error", entry["pattern"], _WORDS_SOURCE, GENERIC, _CONFIDENCE["generic"],
        by_words=True,
    )  # fmt: skip


def literals_of(pattern: str) -> tuple[bytes, ...]:
    """Return strings of which every text that the pattern matches has one; raise ValueError where there are none."""
    literals = _required(_parser.parse(pattern))
    if not literals:
        raise ValueError(f"{pattern!r} has an alternative without {_SHORTEST} plain characters in a row.")
    return tuple(sorted(literal.encode() for literal in literals))


def _required(sequence: Iterable[tuple[Any, Any]]) -> set[str]:
    """Return the best set of literals of a parsed sequence: that whose shortest is longest."""
    sets: list[set[str]] = []
    runs = {""}
    for item in sequence:
        texts = _all_texts([item])
        if texts and len(runs) * len(texts) <= _MAX_LITERALS:
            runs = {run + text for run in runs for text in texts}
            continue
        sets += [runs, _required_by(*item)]
        runs = {""}
    best = max([*sets, runs], key=_shortest)
    return best if _shortest(best) >= _SHORTEST else set()


def _required_by(code: object, value: Any) -> set[str]:
    match str(code):
        case "SUBPATTERN":
            return _required(value[-1])
        case "BRANCH":
            return _union(map(_required, value[1]))
        case "MAX_REPEAT" if value[0]:
            return _required(value[2])
    return set()


def _all_texts(sequence: Iterable[tuple[Any, Any]]) -> set[str]:
    """Return all texts that a parsed sequence matches; none where they are many."""
    texts = {""}
    for code, value in sequence:
        more: set[str] = set()
        match str(code):
            case "LITERAL":
                more = {chr(value)}
            case "IN":
                more = _characters(value)
            case "SUBPATTERN":
                more = _all_texts(value[-1])
            case "BRANCH":
                more = _union(map(_all_texts, value[1]))
            case "MAX_REPEAT" if value[:2] == (0, 1):
                more = _all_texts(value[2])
                more = more and more | {""}
        texts = {text + end for text in texts for end in more}
        if len(texts) > _MAX_LITERALS:
            return set()
    return texts


def _characters(members: Iterable[tuple[Any, Any]]) -> set[str]:
    """Return the characters of a class; none where they are many."""
    characters: set[str] = set()
    for kind, value in members:
        first, last = value if str(kind) == "RANGE" else (value, value)
        if str(kind) not in ("LITERAL", "RANGE") or last - first > _MAX_LITERALS:
            return set()
        characters |= set(map(chr, range(first, last + 1)))
    return characters


def _union(alternatives: Iterable[set[str]]) -> set[str]:
    """Return the texts of all alternatives; none where one has none."""
    union: set[str] = set()
    for texts in alternatives:
        if not texts:
            return set()
        union |= texts
    return union


def _shortest(literals: set[str]) -> int:
    return min(map(len, literals), default=0)


_TABLE = read_table("rules.toml")
CLASSES: Mapping[str, str] = {entry["name"]: entry["description"] for entry in _TABLE["class"]}
ADVICE: Mapping[str, str] = {entry["name"]: entry["advice"] for entry in _TABLE["class"]}
#: All rules; of those that match a line, the first explains most.
LINES = tuple(sorted(map(_read_pattern, _TABLE["rule"]), key=lambda pattern: -pattern.tier))
BY_ID: Mapping[str, LogPattern] = {pattern.id: pattern for pattern in LINES}
#: The class of an error that no rule explains, by its words; the first that match count.
WORDS = tuple(map(_read_words, _TABLE["words"]))
#: Errors that are faults of the program, whatever their words.
_OF_THE_PROGRAM = re.compile(
    r"^(?:E  +)?[\w.]{0,100}\b(?:AttributeError|IndexError|KeyError|NameError|NotImplementedError|RecursionError|"
    r"TypeError|UnboundLocalError|UnicodeDecodeError|ZeroDivisionError)\b"
)

#: Literals of lines that matter although no rule names them.
_STRUCTURE = (
    "Traceback (most recent call last)", "FAILED", "ERROR ", "E   ", "attempt restart", "first observed failure",
    "rank      :", "exitcode  :", "last enqueued", "SeqNum=", "orld_size", "orld size", " values: ", "comparison of",
    "1st vs 2nd run", "_pipeline", "against golden values", "arallel", "##[group]", "##[endgroup]",
    "##[error]Process completed", "passed in", "failed in", "short test summary",
    "NVIDIA Release ", "Driver Version: ", "nvcr.io/nvidia/",
)  # fmt: skip


class _Literals:
    """The literals of all rules in one automaton."""

    def __init__(self) -> None:
        rules: dict[bytes, list[LogPattern]] = {literal.encode(): [] for literal in _STRUCTURE}
        for pattern in LINES:
            for literal in pattern.literals:
                rules.setdefault(literal, []).append(pattern)
        self.texts = tuple(rules)
        self._rules = tuple(rules.values())
        self._search = ahocorasick_rs.BytesAhoCorasick(self.texts, implementation=ahocorasick_rs.Implementation.DFA)

    def starts(self, data: bytes) -> Sequence[int]:
        """Return where literals begin that do not overlap."""
        return [start for _, start, _ in self._search.find_matches_as_indexes(data)]

    def rules_of(self, line: bytes) -> list[LogPattern]:
        """Return the rules that may match a line, those that explain most first."""
        hits = {index for index, _, _ in self._search.find_matches_as_indexes(line, overlapping=True)}
        rules = {rule.id: rule for index in hits for rule in self._rules[index]}
        return sorted(rules.values(), key=_RANKING.__getitem__)


_RANKING = {pattern: number for number, pattern in enumerate(LINES)}


@cache
def literals() -> _Literals:
    """Return the automaton, which is built on first use."""
    return _Literals()


def by_words(text: str, tier: float = GENERIC) -> LogPattern | None:
    """Return the class of an error that no rule explains, by its words; ``tier`` is that of the form of the error."""
    if _OF_THE_PROGRAM.search(text):
        return None
    words = next((words for words in WORDS if words.regex.search(text)), None)
    return replace(words, tier=tier + _BY_WORDS) if words else None


def explain(text: str, before: Sequence[str] = ()) -> LogPattern | None:
    """Return the rule that explains most of the lines of an error's message; of equal ones that of the first line.

    ``before`` are the lines before the error, in which the context of a rule is searched for.
    """
    best = None
    for line in text.splitlines():
        pattern = next((rule for rule in literals().rules_of(line.encode()) if rule.matches(line, before)), None)
        if pattern is not None and (best is None or pattern.tier > best.tier):
            best = pattern
    if best is None or best.kind == "program error":
        return by_words(text) or best
    return best


#: Lines about what a program goes on without, commands that are only shown, and uploads of reports.
MILD = re.compile(
    r"(?<!NCCL )\bWARN(?:ING)?\b|Warning: |\[W\d{3}|\bDEBUG\b|"
    r"##\[(?:warning|debug|group)|[Ff]all(?:ing)?[ -]?back|[Ss]kipping|[Rr]etrying|will retry|before retry|"
    r"[Ii]gnor(?:ed|ing)|\(optional\)|^\+ (?:echo|grep)|"
    r"^(?!##\[error\]|ERROR: ).{0,60}(?:[Uu]pload|telemetry|usage statistics)"
)
#: Consequences and chatter: no cause by themselves.
NOISE = re.compile(
    r"destroy_process_group|(?:TCPStore|c10d|socket\.cpp|sendBytes|recvValue|recvVector).{0,400}"
    r"(?:Connection (?:reset|closed)|Broken pipe|[Ff]ailed to recv|[Ff]ailed to send|unavailable)|"
    r"\bHeartbeatMonitor\b|resource_tracker|^Exception ignored in|"
    r"^\s{0,8}>{0,3}\s{0,4}(?:\d{1,6} {1,4})?\d{1,6} {1,3}\|"  # code that a compiler or linter shows
)
#: Exceptions that follow when another rank has died, and those of a stopped process.
CONSEQUENCE = re.compile(
    r"^(?:[\w.]{0,100}\.)?(?:ChildFailedError|SignalException|DistBackendError|DistStoreError|DistNetworkError|"
    r"KeyboardInterrupt|SystemExit|BrokenPipeError|ConnectionResetError|ProcessExitedException|"
    r"ProcessRaisedException|Rendezvous\w{0,20}Error|CalledProcessError|BdbQuit)\b"
    r"|NCCL (?:communicator was aborted|error|Error|watchdog)|Watchdog caught collective"
)
