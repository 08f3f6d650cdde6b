"""Secrets taken out of whatever is kept or shown.

What is known to be one goes in every usual spelling: the values of this environment's secret variables.  Of others the
form tells, as their issuers gave it, or what stands before: a header, a name such as ``password``, an option.
"""

import base64
import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import accumulate
from typing import Any
from urllib.parse import quote, quote_plus

from runbook_lib.text import secret_forms

MASK = "***"

#: Names of environment variables whose values are secrets.
_SECRET_NAME = re.compile(
    r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|CONNECTION_STRING|_PAT|_PASS|_PWD|_DSN)"
    r"(?:_\d+)?$",
    re.IGNORECASE,
)
#: Shorter values, and lines of one, are words that a text may hold by chance.
_SHORTEST, _SHORTEST_LINE = 8, 16

_LINE_OF_KEY = re.compile(secret_forms.LINE_OF_KEY, re.MULTILINE)
_MEASURED = re.compile(secret_forms.MEASURED)
_USERINFO = re.compile(secret_forms.USERINFO)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}")

#: What is not seen, but divides a token: colours and other commands to a terminal, also spelled out, and characters
#: without a width.
_UNSEEN = re.compile(
    r"(?:\x1b\[|\x9b|\\(?:x1b|u001b|033|e)\[|\^\[\[)[0-?]{0,40}[ -/]{0,4}[@-~]"
    r"|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)"
    r"|\x1b[@-Z\\^_]|[\x00-\x08\x0e-\x1f\x7f\xad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]|\\u(?:200[b-f]|2060|feff|00ad)|&#(?:8203|x200[bB]);|&shy;"
)
_GAP = rf"(?:{_UNSEEN.pattern})"
_BREAK = re.compile(rf"{_GAP}++(?:\r?\n[ \t]{{0,40}}{_GAP}*+)?|\r?\n[ \t]{{0,40}}{_GAP}*+")


_Find = Callable[[str], Iterable[tuple[int, int]]]


@cache
def _compiled(form: str) -> re.Pattern[str]:
    """Compile a form when a text first needs it: all of them take 50 ms, and most texts need none."""
    return re.compile(form)


class Redactor:
    """Replaces secrets: the values of this environment's secret variables in every usual spelling, and known forms."""

    def __init__(self, env: Mapping[str, str]) -> None:
        secrets = {value for name, value in env.items() if len(value) >= _SHORTEST and _SECRET_NAME.search(name)}
        # A key of several lines is known by each of them too.
        lines = {it.strip() for secret in secrets for it in secret.splitlines() if not it.startswith("-----")}
        secrets |= {it for it in lines if len(it) >= _SHORTEST_LINE}
        spellings = sorted({s for secret in secrets for s in _spellings(secret)}, key=lambda s: (-len(s), s))
        self._values = re.compile("|".join(map(re.escape, spellings))) if spellings else None

    def __repr__(self) -> str:
        return "Redactor()"

    def text(self, text: str) -> str:
        """The text without secrets."""
        for pattern in filter(None, (self._values, _MEASURED)):
            text = _across(_BREAK, text, partial(_spans, pattern), within=False)
        text = _across(_UNSEEN, text, self._spans)
        if self._values is not None:
            text = self._values.sub(MASK, text)
        for _, form, sure in secret_forms.TOKENS:
            if any(it in text for it in sure):
                text = _compiled(form).sub(_masked, text)
        text = _LINE_OF_KEY.sub(_masked_line, _BASE64.sub(_encoded, text))
        for said in _said_in(text):
            text = said.sub(rf"\1{MASK}", text)
        return _USERINFO.sub(f"{MASK}@", text)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where secrets stand in a text."""
        if self._values is not None:
            yield from _spans(self._values, text)
        yield from _tokens(text)
        yield from _said(text)

    def data(self, value: Any) -> Any:
        """The same for every text within lists and mappings, keys included; the rest stays as it is."""
        return _map(value, self.text)

    def growing(self) -> Callable[[Any], Any]:
        """``data`` for what is given again and again: texts that it held the last time are not searched once more."""
        known: dict[str, str] = {}

        def data(value: Any) -> Any:
            nonlocal known
            now: dict[str, str] = {}

            def clean(text: str) -> str:
                if text not in now:
                    now[text] = known[text] if text in known else self.text(text)
                return now[text]

            found, known = _map(value, clean), now
            return found

        return data


def _map(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map(key, change): _map(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map(item, change) for item in value]
    return value


def _across(gap: re.Pattern[str], text: str, find: _Find, *, within: bool = True) -> str:
    """Mask what is found where the parts of a text, which something divides, are joined; line breaks stay.

    What is found within one part counts too, unless ``within`` is false.
    """
    gaps = [it.span() for it in gap.finditer(text)]
    if not gaps:
        return text
    # Where each part begins in the text, and in the joined one.
    begins = [0, *(end for _, end in gaps)]
    parts = [text[begin:end] for begin, end in zip(begins, [*(begin for begin, _ in gaps), len(text)], strict=True)]
    joined = [0, *accumulate(map(len, parts))]
    clean, at = [], 0
    for start, end in sorted(find("".join(parts))):
        first, last = (bisect_right(joined, it) - 1 for it in (start, end - 1))
        begin = begins[first] + start - joined[first]
        if begin >= at and (within or first != last):
            after = begins[last] + end - joined[last]
            clean += [text[at:begin], MASK, "\n" * text.count("\n", begin, after)]
            at = after
    return "".join([*clean, text[at:]])


def _spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    return (it.span() for it in pattern.finditer(text))


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    known = (_compiled(form) for _, form, sure in secret_forms.TOKENS if any(it in text for it in sure))
    return (it.span() for form in known for it in form.finditer(text) if it.lastgroup != "no")


def _said_in(text: str) -> list[re.Pattern[str]]:
    """What may say in a text that a secret follows: most texts have none of the words for it."""
    low = text.lower()
    return [_compiled(form) for _, form, sure in secret_forms.SAID if any(it in low for it in sure)]


def _said(text: str) -> Iterator[tuple[int, int]]:
    yield from ((it.end(1), it.end()) for said in _said_in(text) for it in said.finditer(text))
    yield from _spans(_USERINFO, text)


def _masked(match: re.Match[str]) -> str:
    return match[0] if match.lastgroup == "no" else MASK


def _masked_line(match: re.Match[str]) -> str:
    return MASK if match["between"] is None else f"{MASK}{match['between']}{MASK}"


def _encoded(match: re.Match[str]) -> str:
    """A run of base64 without the tokens in it, whatever stands before it in the same run."""
    run = match[0]
    parts, at = [], 0
    for begin, end in sorted(_tokens_within(run)):
        if begin >= at:
            parts += [run[at:begin], MASK]
        at = max(at, end)
    return "".join([*parts, run[at:]])


def _tokens_within(run: str) -> Iterator[tuple[int, int]]:
    """Where the characters of a run of base64 stand that hold a token, at whatever character its bytes begin."""
    for shift in range(4):
        raw = _decoded(run[shift:])
        spans = [*_tokens(raw)]
        if raw.isascii():  # a text, not an image
            spans += _said(raw)
        yield from ((shift + begin * 4 // 3, shift + -(-end * 4 // 3)) for begin, end in spans)


def _decoded(run: str) -> str:
    whole = run[: len(run) - (len(run) % 4 == 1)].replace("-", "+").replace("_", "/")
    return base64.b64decode(whole + "=" * (-len(whole) % 4)).decode("latin-1")


def _spellings(secret: str) -> set[str]:
    """How a secret shows up in addresses, HTML, JSON, Python's repr and base64, where it may follow a user's name."""
    plain = {
        secret,
        secret.strip(),
        quote(secret, safe=""),
        quote_plus(secret),
        html.escape(secret),
        repr(secret)[1:-1],
    }
    for ascii_only in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        plain |= {once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]}
    encoded: set[str] = set()
    for raw in {secret.encode(), secret.strip().encode()}:
        for offset in range(3):
            # What precedes and follows the secret decides the first and last characters: leave those out.
            start, end = (0, 2, 3)[offset], (offset + len(raw)) * 8 // 6
            for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
                encoded.add(alphabet(b"\0" * offset + raw)[start:end].decode())
    return {s for s in plain | encoded if len(s) >= _SHORTEST}
