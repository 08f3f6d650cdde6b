"""The removal of secrets from text that is stored or shown.

Known secrets, the values of this environment's secret variables, are removed in every usual notation. Others are
recognized by their format, or by the text before them: a header, a name such as ``password``, an option.
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

from runbook_lib.text.secret_forms import secret_forms

MASK = "***"

#: Names of environment variables whose values are secrets.
_SECRET_NAME = re.compile(
    r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|CONNECTION_STRING|_PAT|_PASS|_PWD|_DSN)"
    r"(?:_\d+)?$",
    re.IGNORECASE,
)
#: Minimum number of characters of a secret value, and of a line of one: shorter ones may be ordinary words.
_SHORTEST, _SHORTEST_LINE = 8, 16

#: Tokens of a known length, whose end is known even if a line break splits them.
_MEASURED = re.compile(
    r"gh[opusr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}|hf_[A-Za-z0-9]{34}|npm_[A-Za-z0-9]{36}"
    r"|glpat-[A-Za-z0-9_-]{20}|SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}|do[opr]_v1_[a-f0-9]{64}|dapi[a-f0-9]{32}"
)

#: A line of a private key without its BEGIN, which is not a sha256; and the last line, which is shorter: below another,
#: above the END, or by itself.
_LINE_OF_KEY = re.compile(
    r"(?<![A-Za-z0-9+/=_-])(?![0-9a-f]{64}(?![A-Za-z0-9+/]))(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70})(?![A-Za-z0-9+/=_-])"
    r"(?:(?P<between>[ \t\r]{0,8}\n(?:[^\n]{0,120}[^A-Za-z0-9+/=_\n-])?)[A-Za-z0-9+/]{2,63}={0,2}(?=[ \t\r]{0,8}$))?"
    r"|(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{16,70}={0,2}"
    r"(?=\s[^\n]{0,60}-----END [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----)"
    r"|^[A-Za-z0-9+/]{24,69}={1,2}$",
    re.MULTILINE,
)
#: The user and password in a URL.
_USERINFO = re.compile(r"(?<=://)[^/\s\"'<>]{1,2000}@")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}")

#: Invisible characters that may split a token: colours and other terminal escapes, also spelled out, and characters
#: without a width.
_INVISIBLE = re.compile(
    r"(?:\x1b\[|\x9b|\\(?:x1b|u001b|033|e)\[|\^\[\[)[0-?]{0,40}[ -/]{0,4}[@-~]"
    r"|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)"
    r"|\x1b[@-Z\\^_]|[\x00-\x08\x0e-\x1f\x7f\xad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]|\\u(?:200[b-f]|2060|feff|00ad)|&#(?:8203|x200[bB]);|&shy;"
)
_GAP = rf"(?:{_INVISIBLE.pattern})"
_BREAK = re.compile(rf"{_GAP}++(?:\r?\n[ \t]{{0,40}}{_GAP}*+)?|\r?\n[ \t]{{0,40}}{_GAP}*+")

_Spans = Iterable[tuple[int, int]]


@cache
def _compiled(form: str) -> re.Pattern[str]:
    """Compile a form when first needed: compiling all forms takes 50 ms, and most texts need none."""
    return re.compile(form)


class Redactor:
    """A replacement of secrets by ``***``: values of the secret variables of ``env``, and known forms."""

    def __init__(self, env: Mapping[str, str]) -> None:
        secrets = {value for name, value in env.items() if len(value) >= _SHORTEST and _SECRET_NAME.search(name)}
        spellings: set[str] = set()
        for secret in secrets:
            spellings |= _spellings(secret)
            # Each line of a key is a secret too.
            for line in secret.splitlines():
                if len(line.strip()) >= _SHORTEST_LINE and not line.startswith("-----"):
                    spellings |= _spellings(line.strip())
        longest_first = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        self._values = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __repr__(self) -> str:
        return "Redactor()"

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        for pattern in filter(None, (self._values, _MEASURED)):
            text = _mask_across(_BREAK, text, partial(_matches, pattern), only_divided=True)
        text = _mask_across(_INVISIBLE, text, self._spans)
        if self._values is not None:
            text = self._values.sub(MASK, text)
        for form in _forms_in(text, "tokens"):
            text = form.sub(_masked, text)
        text = _LINE_OF_KEY.sub(_masked_line, _BASE64.sub(_masked_base64, text))
        for form in _forms_in(text.lower(), "assignments"):
            text = form.sub(rf"\1{MASK}", text)
        return _USERINFO.sub(f"{MASK}@", text)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        if self._values is not None:
            yield from _matches(self._values, text)
        yield from _tokens(text)
        yield from _assigned(text)

    def data(self, value: Any) -> Any:
        """Return the value with every text in its lists and mappings redacted, keys included."""
        return _map(value, self.text)

    def growing(self) -> Callable[[Any], Any]:
        """Return a ``data`` for a value that grows: texts of the previous call are not searched again."""
        previous: dict[str, str] = {}

        def data(value: Any) -> Any:
            nonlocal previous
            current: dict[str, str] = {}

            def clean(text: str) -> str:
                if text not in current:
                    current[text] = previous[text] if text in previous else self.text(text)
                return current[text]

            result = _map(value, clean)
            previous = current
            return result

        return data


def _map(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map(key, change): _map(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map(item, change) for item in value]
    return value


def _mask_across(gap: re.Pattern[str], text: str, find: Callable[[str], _Spans], *, only_divided: bool = False) -> str:
    """Mask the secrets that ``find`` locates in a text without its gaps; line breaks in them stay.

    With ``only_divided``, secrets that are not split by a gap are left alone.
    """
    gaps = list(_matches(gap, text))
    if not gaps:
        return text
    begins = [0, *(end for _, end in gaps)]  # offset of each part in the text
    ends = [*(begin for begin, _ in gaps), len(text)]
    parts = [text[begin:end] for begin, end in zip(begins, ends, strict=True)]
    joined = [0, *accumulate(map(len, parts))]  # offset of each part in the text without gaps
    result: list[str] = []
    position = 0
    for start, end in sorted(find("".join(parts))):
        first = bisect_right(joined, start) - 1
        last = bisect_right(joined, end - 1) - 1
        begin = begins[first] + start - joined[first]
        if begin < position or (only_divided and first == last):
            continue
        after = begins[last] + end - joined[last]
        result += [text[position:begin], MASK, "\n" * text.count("\n", begin, after)]
        position = after
    return "".join([*result, text[position:]])


def _forms_in(text: str, section: str) -> Iterator[re.Pattern[str]]:
    """Yield the forms that may occur in a text, judging by their required substrings."""
    for form in secret_forms()[section]:
        if any(map(text.__contains__, form.hints)):
            yield _compiled(form.pattern)


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in pattern.finditer(text))


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    for form in _forms_in(text, "tokens"):
        for match in form.finditer(text):
            if match.lastgroup != "no":
                yield match.span()


def _assigned(text: str) -> Iterator[tuple[int, int]]:
    for form in _forms_in(text.lower(), "assignments"):
        for match in form.finditer(text):
            yield match.end(1), match.end()
    yield from _matches(_USERINFO, text)


def _masked(match: re.Match[str]) -> str:
    return match[0] if match.lastgroup == "no" else MASK


def _masked_line(match: re.Match[str]) -> str:
    return MASK if match["between"] is None else f"{MASK}{match['between']}{MASK}"


def _masked_base64(match: re.Match[str]) -> str:
    """Return a run of base64 with its secrets masked, regardless of the text before them in the same run."""
    run = match[0]
    parts: list[str] = []
    position = 0
    for begin, end in sorted(_encoded_secrets(run)):
        if begin >= position:
            parts += [run[position:begin], MASK]
        position = max(position, end)
    return "".join([*parts, run[position:]])


def _encoded_secrets(run: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a run of base64 that encode a secret, at any byte alignment."""
    for shift in range(4):
        raw = _decoded(run[shift:])
        spans = list(_tokens(raw))
        if raw.isascii():  # a text, not an image
            spans += _assigned(raw)
        for begin, end in spans:
            yield shift + begin * 4 // 3, shift + -(-end * 4 // 3)


def _decoded(run: str) -> str:
    if len(run) % 4 == 1:
        run = run[:-1]
    standard = run.replace("-", "+").replace("_", "/")
    return base64.b64decode(standard + "=" * (-len(standard) % 4)).decode("latin-1")


def _spellings(secret: str) -> set[str]:
    """Return the spellings of a secret in addresses, HTML, JSON, Python's repr and base64, also after a user's name."""
    plain = {secret, secret.strip(), quote(secret, safe=""), quote_plus(secret)}
    plain |= {html.escape(secret), repr(secret)[1:-1]}
    for ascii_only in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        plain |= {once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]}
    encoded: set[str] = set()
    for raw in {secret.encode(), secret.strip().encode()}:
        for offset, start in enumerate((0, 2, 3)):
            # The first and last characters depend on the text around the secret, so leave them out.
            end = (offset + len(raw)) * 8 // 6
            for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
                encoded.add(alphabet(b"\0" * offset + raw)[start:end].decode())
    return {spelling for spelling in plain | encoded if len(spelling) >= _SHORTEST}
