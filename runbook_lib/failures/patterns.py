"""The rules for log lines, from ``rules.toml``, and the one-pass search for their literals; known problems.

Known problems with builds, uv and Slurm (``known_problems.toml``) have a sign in a log, a cause, and a fix.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module, resources
from typing import Any, Literal

import ahocorasick_rs

from runbook_lib.failures.log_lines import clean

FailureKind = Literal[
    "golden drift", "resume mismatch", "regression", "shape", "out of memory", "driver mismatch", "CUDA error",
    "flaky infrastructure", "communication", "hang", "crash", "container start", "missing program", "container build",
    "compile error", "dependency", "import error", "missing data", "missing resource", "access denied", "rate limit",
    "disk full", "configuration", "git", "policy", "lint", "unit tests", "cancelled", "program error", "unknown",
]  # fmt: skip

#: Classes that say nothing about the change: the job runs again before anybody decides on its test.
RERUN: tuple[FailureKind, ...] = ("flaky infrastructure", "rate limit")

#: The tier of a match by the strength of its rule.  A traceback that ends its process is between the first two.
_TIERS = {"cause": 4.0, "symptom": 2.0, "generic": 1.0, "consequence": 0.0}
TRACEBACK = 3.0
GENERIC = _TIERS["generic"]
SYMPTOM = _TIERS["symptom"]
_BY_WORDS = 0.1  # an error with telling words explains this much more than others
#: The measured share of correct classes among failures diagnosed for the first time, by kind of evidence.
_CONFIDENCE = {"cause": 0.9, "symptom": 0.75, "generic": 0.6, "consequence": 0.2}
#: Below this confidence the class is "unknown".
CONFIDENT = 0.5
_MAX_LITERALS = 64  # maximum number of texts that a part of a pattern may expand to
_parser = import_module("re._parser")  # the parser of regular expressions has no public name
_SHORTEST = 4  # minimum length of a literal taken from a pattern


@dataclass(frozen=True)
class LogPattern:
    """A rule: a regular expression for lines; ``finding`` ends the sentence "The log shows …"."""

    id: str
    kind: FailureKind
    finding: str
    pattern: str
    tier: float
    confidence: float
    advice: str = ""
    limit: bool = False
    context_pattern: str = ""
    consequence_of: tuple[str, ...] = ()
    by_words: bool = False  # not a rule but words in an error

    # Compiled on first use, so that a notebook that reads no log need not wait for all rules.
    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The regular expression for matching lines."""
        return re.compile(self.pattern)

    @cached_property
    def context(self) -> re.Pattern[str] | None:
        """The regular expression that one of the preceding lines must match."""
        return re.compile(self.context_pattern) if self.context_pattern else None

    @cached_property
    def literals(self) -> tuple[bytes, ...]:
        """Strings at least one of which is in every line that the rule matches."""
        return literals_of(self.pattern)


def read_table(name: str) -> dict[str, Any]:
    """Return a table of rules shipped with this package."""
    return tomllib.loads(resources.files("runbook_lib.failures").joinpath(name).read_text("utf-8"))


def _read_pattern(rule: Mapping[str, Any]) -> LogPattern:
    strength = rule.get("strength", "cause")
    return LogPattern(
        rule["id"], rule["class"], rule["finding"], rule["pattern"],
        float(rule.get("tier", _TIERS[strength])), rule.get("conf", _CONFIDENCE[strength]),
        rule.get("advice", ""), rule.get("limit", False), rule.get("context", ""),
        tuple(rule.get("consequence_of", ())),
    )  # fmt: skip


def _read_words(entry: Mapping[str, Any]) -> LogPattern:
    kind, confidence = entry["class"], _CONFIDENCE["generic"]
    return LogPattern(f"words of {kind}", kind, "an error", entry["pattern"], GENERIC, confidence, by_words=True)


def literals_of(pattern: str) -> tuple[bytes, ...]:
    """Return strings at least one of which is in every text that the pattern matches.  Raises ValueError if none."""
    _, literals = _texts(_parser.parse(pattern))
    if _shortest(literals) < _SHORTEST:
        raise ValueError(f"{pattern!r} has an alternative without {_SHORTEST} consecutive literal characters.")
    return tuple(sorted(literal.encode() for literal in literals))


def _texts(sequence: Iterable[tuple[Any, Any]]) -> tuple[set[str], set[str]]:
    """Return all texts that a parsed sequence matches, none if there are too many, and its best literals.

    One of the literals is in each match; the best are those of which the shortest is longest.
    """
    runs, literals, is_complete = {""}, {""}, True
    for code, value in sequence:
        texts, required = _texts_of(str(code), value)
        if texts and len(runs) * len(texts) <= _MAX_LITERALS:
            runs = {run + text for run in runs for text in texts}
        else:
            literals = max(literals, runs, required, key=_shortest)
            runs, is_complete = {""}, False
    return runs if is_complete else set(), max(literals, runs, key=_shortest)


def _texts_of(code: str, value: Any) -> tuple[set[str], set[str]]:
    match code:
        case "LITERAL":
            return {chr(value)}, {chr(value)}
        case "IN":
            return _characters(value), set()
        case "SUBPATTERN":
            return _texts(value[-1])
        case "BRANCH":
            alternatives = [_texts(each) for each in value[1]]
            return _union([texts for texts, _ in alternatives]), _union([literals for _, literals in alternatives])
        case "MAX_REPEAT" if value[:2] == (0, 1):
            texts, _ = _texts(value[2])
            return texts and texts | {""}, set()
        case "MAX_REPEAT" if value[0]:
            return set(), _texts(value[2])[1]
    return set(), set()


def _characters(members: Iterable[tuple[Any, Any]]) -> set[str]:
    """Return the characters of a class; empty if there are too many."""
    characters: set[str] = set()
    for kind, value in members:
        first, last = value if str(kind) == "RANGE" else (value, value)
        if str(kind) not in ("LITERAL", "RANGE") or last - first > _MAX_LITERALS:
            return set()
        characters |= set(map(chr, range(first, last + 1)))
    return characters


def _union(alternatives: Sequence[set[str]]) -> set[str]:
    """Return the texts of all alternatives; empty if one alternative has none."""
    return set().union(*alternatives) if all(alternatives) else set()


def _shortest(texts: set[str]) -> int:
    return min(map(len, texts), default=0)


_TABLE = read_table("rules.toml")
ADVICE: Mapping[str, str] = {entry["name"]: entry["advice"] for entry in _TABLE["class"]}
#: All rules; the first that matches a line explains most.
LINES = tuple(sorted(map(_read_pattern, _TABLE["rule"]), key=lambda pattern: -pattern.tier))
BY_ID: Mapping[str, LogPattern] = {pattern.id: pattern for pattern in LINES}
#: The class of an error that no rule explains, by its words; the first match counts.
WORDS = tuple(map(_read_words, _TABLE["words"]))
#: Errors that are faults of the program, regardless of their words.
_OF_THE_PROGRAM = re.compile(
    r"^(?:E  +)?[\w.]{0,100}\b(?:AttributeError|IndexError|KeyError|NameError|NotImplementedError|RecursionError|"
    r"TypeError|UnboundLocalError|UnicodeDecodeError|ZeroDivisionError)\b"
)
#: Examples in a message, which are not what happened.
_EXAMPLE = re.compile(r"\(e\.g\.[^)\n]{0,200}\)")

#: Literals of lines that matter although they are in no rule.
_STRUCTURE = (
    "Traceback (most recent call last)", "FAILED", "ERROR ", "E   ", "attempt restart", "first observed failure",
    "rank      :", "exitcode  :", "last enqueued", "SeqNum=", " values: ", "comparison of",
    "1st vs 2nd run", "_pipeline", "against golden values", "##[group]", "##[endgroup]",
    "##[error]Process completed", "passed in", "failed in", "short test summary",
    "NVIDIA Release ", "Driver Version: ", "nvcr.io/nvidia/",
)  # fmt: skip


@cache
def _automaton() -> tuple[ahocorasick_rs.BytesAhoCorasick, Sequence[Sequence[int]]]:
    """Return the automaton of all literals, built on first use, and for each literal the positions in LINES."""
    rules: dict[bytes, list[int]] = {literal.encode(): [] for literal in _STRUCTURE}
    for number, pattern in enumerate(LINES):
        for literal in pattern.literals:
            rules.setdefault(literal, []).append(number)
    search = ahocorasick_rs.BytesAhoCorasick(tuple(rules), implementation=ahocorasick_rs.Implementation.DFA)
    return search, tuple(rules.values())


def literal_starts(data: bytes) -> Iterator[int]:
    """Yield the start offsets of non-overlapping literals."""
    search, _ = _automaton()
    return (start for _, start, _ in search.find_matches_as_indexes(data))


def possible_rules(line: bytes) -> list[LogPattern]:
    """Return the rules that may match a line, the most explanatory first."""
    search, rules = _automaton()
    found = {literal for literal, _, _ in search.find_matches_as_indexes(line, overlapping=True)}
    return [LINES[number] for number in sorted({number for literal in found for number in rules[literal]})]


def by_words(text: str, tier: float = GENERIC) -> LogPattern | None:
    """Return the class of an error that no rule explains, by its words; ``tier`` depends on the error's form."""
    if _OF_THE_PROGRAM.search(text):
        return None
    text = _EXAMPLE.sub("", text)
    words = next((words for words in WORDS if words.regex.search(text)), None)
    return replace(words, tier=tier + _BY_WORDS) if words else None


def rule_of(line: str, before: Callable[[], Sequence[str]]) -> LogPattern | None:
    """Return the most explanatory rule for a line; ``before`` returns the lines before it, for the context of a rule.

    The words of an error say more than the rules for anything that looks like one, but not if it is a consequence.
    """
    generic: LogPattern | None = None
    for rule in possible_rules(line.encode("utf-8", "replace")):
        if rule.regex.search(line) and (rule.context is None or any(map(rule.context.search, before()))):
            if rule.tier > GENERIC or rule.kind != "program error":
                return rule if generic is None or rule.tier <= 0 else generic
            generic = generic or by_words(line, rule.tier) or rule
    return generic


def explain(text: str, before: Sequence[str] = ()) -> LogPattern | None:
    """Return the most explanatory rule for the lines of an error's message; among equals, the rule of the first line.

    ``before`` are the lines before the error.
    """
    rules = filter(None, (rule_of(line, lambda: before) for line in text.splitlines()))
    best = max(rules, key=lambda rule: rule.tier, default=None)
    return best or by_words(text)


#: Lines about failures that a program tolerates, commands that are only printed, and uploads of reports.
MILD = re.compile(
    r"(?<!NCCL )\bWARN(?:ING)?\b|Warning: |\[W\d{3}|\bDEBUG\b|"
    r"##\[(?:warning|debug|group)|[Ff]all(?:ing)?[ -]?back|[Ss]kipping|[Rr]etrying|will retry|before retry|"
    r"[Ii]gnor(?:ed|ing)|\(optional\)|^\+ (?:echo|grep)|"
    r"^(?!##\[error\]|ERROR: ).{0,60}(?:[Uu]pload|telemetry|usage statistics)"
)
#: Consequences and chatter, which are not causes by themselves.
NOISE = re.compile(
    r"destroy_process_group|(?:TCPStore|c10d|socket\.cpp|sendBytes|recvValue|recvVector).{0,400}"
    r"(?:Connection (?:reset|closed)|Broken pipe|[Ff]ailed to recv|[Ff]ailed to send|unavailable)|"
    r"\bHeartbeatMonitor\b|resource_tracker|^Exception ignored in|pyxis: +(?:\[INFO\]|printing )|"
    r"^\s{0,8}>{0,3}\s{0,4}(?:\d{1,6} {1,4})?\d{1,6} {1,3}\|"  # code printed by a compiler or linter
)
#: Exceptions that follow the death of another rank, and those of a stopped process.
CONSEQUENCE = re.compile(
    r"^(?:[\w.]{0,100}\.)?(?:ChildFailedError|SignalException|DistBackendError|DistStoreError|DistNetworkError|"
    r"KeyboardInterrupt|SystemExit|BrokenPipeError|ConnectionResetError|ProcessExitedException|"
    r"ProcessRaisedException|Rendezvous\w{0,20}Error|CalledProcessError|BdbQuit)\b"
    r"|NCCL (?:communicator was aborted|error|Error|watchdog)|Watchdog caught collective|to pass monitoredBarrier"
)

_MAX_LINE = 4_000  # characters of a line that are searched
_MAX_LOG = 1_000_000  # characters at the end of a log that are searched: a program dies at the end


@dataclass(frozen=True)
class Pitfall:
    """A known problem that applies if all of ``patterns`` match; the texts are complete sentences."""

    sign: str
    cause: str
    fix: str
    patterns: tuple[str, ...] = field(repr=False)


PITFALLS = tuple(
    Pitfall(problem["sign"], problem["cause"], problem["advice"], tuple(problem["patterns"]))
    for problem in read_table("known_problems.toml")["problem"]
)


def find_problems(text: str) -> tuple[Pitfall, ...]:
    """Return the pitfalls whose signs are in a log, in the order of the table; only the end of a long log is searched.

    Among pitfalls with the same first pattern, the first that applies wins.
    """
    lines = [clean(line[:_MAX_LINE].encode("utf-8", "replace")) for line in text[-_MAX_LOG:].splitlines()]
    log = "\n".join(lines)
    pitfalls: dict[str, Pitfall] = {}
    for pitfall in PITFALLS:
        if all(re.search(pattern, log, re.MULTILINE) for pattern in pitfall.patterns):
            pitfalls.setdefault(pitfall.patterns[0], pitfall)
    return tuple(pitfalls.values())
