"""Secrets taken out of whatever is kept or shown.

What is known to be one goes in every usual spelling: the values of this environment's secret variables.  Of others the
form tells, as their issuers gave it, or what stands before: a header, a name such as ``password``, an option.
"""

import base64
import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"

#: Names of environment variables whose values are secrets.
_SECRET_NAME = re.compile(
    r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|_PAT|_PASS)(?:_\d+)?$", re.IGNORECASE
)
#: Shorter values, and lines of one, are words that a text may hold by chance.
_SHORTEST, _SHORTEST_LINE = 8, 16

# Each pattern is linear: no repetition within a repetition can match the same text in two ways.
# Whatever stands before a token, such as an escaped line break, a colour or a quoted colon (\n, \x1b[31m, %3A), may
# end in a letter: only forms that a text may hold by chance need an edge, here before so many characters.
_EDGE = r"(?:(?<![A-Za-z0-9].{%d})|(?<=\\[nrt].{%d})|(?<=%%[0-9A-Fa-f]{2}.{%d})|(?<=[0-9]m.{%d}))"
_EDGE_3, _EDGE_4 = (_EDGE % ((length,) * 4) for length in (3, 4))
#: Tokens by the form that their issuers give them, and what one holds for sure: most texts need not be searched.
_KNOWN: Mapping[re.Pattern[str], list[str]] = {
    re.compile(form): sure
    for form, *sure in (
        (r"gh[opusr]_[A-Za-z0-9]{20,}", "ghp_", "gho_", "ghs_", "ghu_", "ghr_"),  # GitHub, but the fine-grained
        (r"github_pat_[A-Za-z0-9_]{20,}", "github_pat_"),
        (r"gl(?:pat|ptt|dt|rtr?|cbt|ft|soat|agent|oas|imt|wt|ffct)-[A-Za-z0-9_.-]{16,}", "gl"),  # GitLab
        (r"GR1348941[A-Za-z0-9_-]{16,}", "GR1348941"),  # GitLab's runners, before
        (r"nvapi-[A-Za-z0-9_-]{16,}", "nvapi-"),  # NVIDIA
        (rf"A[KS]IA{_EDGE_4}[A-Z0-9]{{16}}(?![A-Za-z0-9])", "AKIA", "ASIA"),  # AWS
        (r"xox[abeoprs][.-][A-Za-z0-9.-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}", "xox", "xapp-"),  # Slack
        (r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}", "hooks.slack.com"),
        (r"hf_[A-Za-z0-9]{30,}", "hf_"),  # Hugging Face
        (rf"AIza{_EDGE_4}[A-Za-z0-9_-]{{35}}(?![A-Za-z0-9_-])", "AIza"),  # Google
        (r"ya29\.[A-Za-z0-9_-]{20,}", "ya29."),
        (r"npm_[A-Za-z0-9]{30,}", "npm_"),
        (r"pypi-Ag[A-Za-z0-9_-]{30,}", "pypi-Ag"),
        (r"dckr_[op]at_[A-Za-z0-9_-]{20,}", "dckr_"),  # Docker Hub
        (rf"sk-{_EDGE_3}(?:(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{{20,}}|[A-Za-z0-9]{{32,}})", "sk-"),  # LLMs
        (r"hvs\.[A-Za-z0-9_-]{20,}", "hvs."),  # Vault
        (r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", "eyJ"),  # JSON web tokens
        # A private key, to its end, whatever a log has put before each line; without one, as far as it can be told.
        (
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
            r"(?:(?:(?!-----BEGIN )[\s\S]){0,20000}?-----END [A-Z ]{0,40}PRIVATE KEY-----(?:\s|\\[nr])*"
            r"|(?:[A-Za-z0-9+/=\s:,-]|\\[nr])*)",
            "-----BEGIN ",
        ),
    )
}
#: A line of a private key that stands alone, which is no sha256; and the last one, which is shorter: below another,
#: above the END, or by itself.
_LINE_OF_KEY = re.compile(
    r"(?<![A-Za-z0-9+/=_-])(?![0-9a-f]{64}(?![A-Za-z0-9+/]))(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70})(?![A-Za-z0-9+/=_-])"
    r"(?:(?P<between>[ \t\r]{0,8}\n(?:[^\n]{0,120}[^A-Za-z0-9+/=_\n-])?)[A-Za-z0-9+/]{2,63}={0,2}(?=[ \t\r]{0,8}$))?"
    r"|(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{16,70}={0,2}(?=\s[^\n]{0,60}-----END [A-Z ]{0,40}PRIVATE KEY-----)"
    r"|^[A-Za-z0-9+/]{24,69}={1,2}$",
    re.MULTILINE,
)
#: Those whose length is known: the end of one is known too where a line break divides it.
_MEASURED = re.compile(
    r"gh[opusr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}|hf_[A-Za-z0-9]{34}|npm_[A-Za-z0-9]{36}"
    r"|glpat-[A-Za-z0-9_-]{20}"
)
_BREAK = re.compile(r"\r?\n[ \t]{0,40}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}")

#: In the usual spellings: token, Token, TOKEN; api_key, api-key, apikey, apiKey, ApiKey, API_KEY.
_WORDS = ("token", "secret", "password", "passwd", "passphrase", "credential", "credentials")
_KEYS = tuple(f"{which}{sign}key" for which in ("api", "access", "private") for sign in ("", "_", "-"))
_NAMES = "|".join(
    sorted(
        {
            spelled
            for name in (*_WORDS, *_KEYS)
            for once in (name, name.capitalize())
            for spelled in (once, once.upper(), re.sub("(?<=[a-z])key$", "Key", once))
        }
    )
)
_QUOTE = r"(?:\\{0,3}[\"']{1,2}|&quot;|&#x27;|&#39;)?"
_VALUE = r"[A-Za-z0-9!@#%^*_+=/.~?|:-]"
#: What is said to be a secret, after what says so.
_SAID = (
    re.compile(r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{20,}"),
    re.compile(r"(?i)(authorization\W{1,4}(?:(?:token|bearer|basic)\s+)?)[A-Za-z0-9!@#%^_+=/.~?|:-]{8,}"),
    # "password": "…1…", PRIVATE-TOKEN: …1….  Not a reference such as ${X}, nor a number, and nothing without a digit,
    # as code and prose have it; but whatever a variable in capitals is set to.
    re.compile(
        rf"((?:{_NAMES}){_QUOTE}\s{{0,3}}(?:[:=]|=>)\s{{0,3}}b?{_QUOTE})"
        rf"(?![0-9.,]{{1,40}}(?!{_VALUE}))(?={_VALUE}{{0,200}}[0-9])[A-Za-z0-9!@#%^_+=/.~?|:-]{_VALUE}{{7,}}"
    ),
    re.compile(
        r"((?:TOKEN|SECRET|PASSWORD|PASSPHRASE|_KEY)=[\"']?)[^\s\"'`,;&<>$*(){}\[\]\\][^\s\"'`,;&<>()\\]{7,}",
    ),
    # Without a sign between: after an option, in a Dockerfile, a netrc file, `docker login -p`, and Docker's own file.
    re.compile(rf"(--[a-z-]{{0,40}}(?:{_NAMES})\s{{1,3}})(?![-$*<{{])(?=\S{{0,200}}[0-9])[^\s\"'`\\]{{6,}}"),
    re.compile(rf"(ENV\s{{1,3}}[A-Z0-9_]{{0,80}}(?:{_NAMES})\s{{1,3}})(?![-$*<{{])[^\s\"'`\\]{{6,}}"),
    re.compile(r"(login\s{1,3}\S{1,200}\s{1,20}password\s{1,3})[^\s\"'`\\]{6,}"),
    re.compile(r"(?m)^(.{0,60}\bpassword\s{1,3})(?=\S{0,200}[0-9])[^\s\"'`\\]{6,}$"),
    re.compile(r"(login\b[^\n]{0,200}?\s-p[ =]?)(?![-$*<{])[^\s\"'`\\]{6,}"),
    re.compile(rf"(auth{_QUOTE}\s{{0,3}}:\s{{0,3}}{_QUOTE})[A-Za-z0-9+/]{{16,}}={{0,2}}"),
    # What lets whoever has the address in: of stored artifacts and logs.
    re.compile(r"(?i)([?&;](?:sig|signature|x-amz-signature|x-goog-signature)=)[^&\s\"'<>]{8,}"),
)
_USERINFO = re.compile(r"(?<=://)[^/\s\"'<>]{1,2000}@")


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
            text = _across_lines(pattern, text)
        if self._values is not None:
            text = self._values.sub(MASK, text)
        for form, sure in _KNOWN.items():
            if any(it in text for it in sure):
                text = form.sub(MASK, text)
        text = _LINE_OF_KEY.sub(_masked_line, _BASE64.sub(_encoded, text))
        for said in _SAID:
            text = said.sub(rf"\1{MASK}", text)
        return _USERINFO.sub(f"{MASK}@", text)

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


def _across_lines(pattern: re.Pattern[str], text: str) -> str:
    """Mask what is found only where the lines of a text, which was wrapped, are joined."""
    breaks = list(_BREAK.finditer(text))
    if not breaks:
        return text
    # Where each line begins in the text, and in the joined one.
    begins = [0, *(it.end() for it in breaks)]
    lines = [text[begin:end] for begin, end in zip(begins, [*(it.start() for it in breaks), len(text)], strict=True)]
    joined = [0, *accumulate(map(len, lines))]
    parts, at = [], 0
    for match in pattern.finditer("".join(lines)):
        first, last = (bisect_right(joined, it) - 1 for it in (match.start(), match.end() - 1))
        if first != last:
            begin = begins[first] + match.start() - joined[first]
            parts += [text[at:begin], MASK, "\n" * (last - first)]
            at = begins[last] + match.end() - joined[last]
    return "".join([*parts, text[at:]])


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
        known = (it for form, sure in _KNOWN.items() if any(part in raw for part in sure) for it in form.finditer(raw))
        spans = [it.span() for it in known]
        if raw.isascii():  # a text, not an image
            spans += [(it.end(1), it.end()) for said in _SAID for it in said.finditer(raw)]
            spans += [it.span() for it in _USERINFO.finditer(raw)]
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
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
    }
    encoded: set[str] = set()
    for raw in {secret.encode(), secret.strip().encode()}:
        for offset in range(3):
            # What precedes and follows the secret decides the first and last characters: leave those out.
            start, end = (0, 2, 3)[offset], (offset + len(raw)) * 8 // 6
            for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
                encoded.add(alphabet(b"\0" * offset + raw)[start:end].decode())
    return {s for s in plain | encoded if len(s) >= _SHORTEST}
