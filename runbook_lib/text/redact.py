"""The removal of secrets from text that is stored or shown.

Removed are the values of this environment's secret variables, tokens with a prefix that their issuer documents, private
keys, and the credentials in addresses and HTTP headers.
"""

import base64
import html
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"

#: Names of environment variables whose values are secrets.
_SECRET_NAME = re.compile(
    r"(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|CONNECTION_STRING|_PAT|_PASS|_PWD|_DSN)"
    r"(?:_\d+)?$",
    re.IGNORECASE,
)
#: Minimum number of characters of a secret value, and of a line of one: shorter ones may be ordinary words.
_SHORTEST, _SHORTEST_LINE = 8, 16

#: Tokens and keys by the documentation of their issuers and the rules of gitleaks, by texts one of which each contains:
#: a text without them is not searched.  A new one needs a row in tests/secret_forms.py.  The time must be linear in the
#: text: after an unbounded repetition nothing more is required, and nothing is tried twice.
_FORMS = {
    # Forges, registries and packages
    "ghp_ gho_ ghu_ ghs_ ghr_": r"gh[opusr]_[A-Za-z0-9]{20,}",
    "github_pat_": r"github_pat_\w{20,}",
    "glpat- glptt- gldt- glrt glcbt- glft- glsoat- glagent- gloas- glimt- glwt- glffct-": (
        r"gl(?:pat|ptt|dt|rtr?|cbt|ft|soat|agent|oas|imt|wt|ffct)-[\w.-]{16,}"
    ),
    "GR1348941": r"GR1348941[\w-]{16,}",
    "ATBB": r"ATBB[A-Za-z0-9]{32}",
    "ATATT3 ATCTT3": r"AT[AC]TT3[\w=-]{60,}",
    "npm_": r"npm_[A-Za-z0-9]{30,}",
    "pypi-Ag": r"pypi-Ag[\w-]{30,}",
    "rubygems_": r"rubygems_[a-f0-9]{48}",
    "dckr_": r"dckr_[op]at_[\w-]{20,}",
    "AKCp": r"AKCp[A-Za-z0-9]{60,80}",
    "bkua_": r"bkua_[a-f0-9]{40}",
    "CCIPAT_ CCIPRJ_": r"CCI(?:PAT|PRJ)_\w{30,}",
    "squ_ sqp_ sqa_": r"sq[upa]_[a-f0-9]{40}",
    "sgp_": r"sgp_\w{40,}",
    "snyk_": r"snyk_[us]at[._][\w.-]{20,}",
    # Models and monitoring
    "nvapi-": r"nvapi-[\w-]{16,}",
    "hf_ api_org_": r"(?:hf|api_org)_[A-Za-z0-9]{30,}",
    "sk-": r"sk-(?:(?:ant|proj|svcacct|admin|or)-[\w-]{20,}|[A-Za-z0-9]{32,})",
    "gsk_ xai- pplx-": r"(?:gsk_|xai-|pplx-)[A-Za-z0-9]{40,}",
    "r8_": r"r8_[A-Za-z0-9]{37}",
    "lsv2_ pcsk_": r"(?:lsv2_[ps][tk]|pcsk)_\w{30,}",
    "wandb_v": r"wandb_v[0-9]_[\w-]{20,}",
    "dapi": r"dapi[a-f0-9]{32}",
    "glc_ glsa_": r"glc_[A-Za-z0-9+/=]{32,}|glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}",
    "NRAK- NRJS- NRII- NRIQ- NRRA- NRAA-": r"NR(?:AK|JS|II|IQ|RA|AA)-[\w-]{19,}",
    "sntrys_ sntryu_": r"sntry[su]_[A-Za-z0-9+/=_-]{40,}",
    # Clouds
    "AKIA ASIA ABIA ACCA A3T": r"A(?:[KS]IA|BIA|CCA|3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])",
    "ABSK": r"ABSK[A-Za-z0-9+/]{100,}={0,2}",
    "AIza": r"AIza[\w-]{35}",
    "ya29. GOCSPX-": r"(?:ya29\.|GOCSPX-)[\w-]{20,}",
    "LTAI": r"LTAI[A-Za-z0-9]{16,24}(?![A-Za-z0-9])",
    "doo_v1_ dop_v1_ dor_v1_": r"do[opr]_v1_[a-f0-9]{64}",
    "v1.0-": r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}",
    "HRKU-": r"HRKU-[\w-]{30,}",
    "pscale_": r"pscale_(?:tkn|pw|oauth)_[\w.=-]{30,}",
    "tskey-": r"tskey-[a-z]{1,20}-[\w-]{16,}",
    "sha256~": r"sha256~[\w-]{43}",
    "hvs. hvb. hvr.": r"hv[sbr]\.[\w-]{20,}",
    "pul-": r"pul-[a-f0-9]{40}",
    ".atlasv1.": r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,70}",
    # Messages and payment
    "xox xapp-": r"xox[abeoprs](?:\.xox[bp])?[.-][A-Za-z0-9.-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}",
    "hooks.slack.com": r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9/]{20,}",
    "webhook.office.com": r"(?<=webhook\.office\.com/webhookb2/)[A-Za-z0-9@/-]{20,}",
    "/api/webhooks/": r"(?<=/api/webhooks/)[0-9]{5,30}/[\w-]{30,}",
    "k_test_ k_live_ whsec_": r"[srp]k_(?:test|live)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,}",
    "SG.": r"SG\.[\w-]{16,32}\.[\w-]{30,}",
    # JSON web tokens; private keys to their END in the same JSON value, or as far as it looks like a key
    "eyJ": (
        # At most one per word, but also after a line break, a colour, and in a diff.  Its end may be cut off.
        r"(?:(?<![\w-])|(?<=\\n)|(?<=[\[;]\dm)|(?<=[\[;]\d\dm)|(?<=\n-))"
        r"eyJ[\w-]{10,}+\.[\w.-]*+"
    ),
    "AGE-SECRET-KEY-": r"AGE-SECRET-KEY-1[A-Za-z0-9]{50,}",
    "PRIVATE KEY": (
        r"-----BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:(?!-----BEGIN )[^\"]){0,20000}?-----END [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----"
        # Not in JSON: what others print between its lines may have quotes.
        r"|[ \t\r]*\n(?:(?!-----BEGIN )[\s\S]){0,20000}?-----END [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:[A-Za-z0-9+/=\s]|\\[nr])*)"
    ),
}
#: Each of these texts with its form.
_HINTED = [(hint, form) for hints, form in _FORMS.items() for hint in hints.split()]
#: The user and password in an address, and the credentials in a header.
_USERINFO = re.compile(r"(?<=://)[^/\s\"'<>]{1,2000}@")
#: A token, or a user and password, whose end or middle was cut out, as in a table or the repr of a widget.
_HINTS = "|".join(re.escape(hint) for hint, _ in _HINTED)
_CUT = r"(?:…|<?\.\.\.>?)[\w~+/=-]{0,200}"
_STUMP = re.compile(
    rf"(?:\b(?:{_HINTS})[\w.~+/=-]{{8,200}}?"
    rf"|(?<=://)[^/\s\"'<>:…]{{1,200}}:[^/\s\"'<>…]{{1,200}}?|{re.escape(MASK)}){_CUT}",
    re.ASCII,
)
#: Values by the name of their XML element, and passwords in lines of a .pgpass: host:port:database:user:password.
_XML = re.compile(
    r"(<[\w:.-]{0,40}(?:password|passphrase|passwd|secret|credentials?|api[_.-]?key|private[_.-]?key|"
    r"(?:access|auth|api|refresh)[_.-]?token)\b[^<>\n]{0,200}>)[^<>]{4,2000}(?=</)",
    re.IGNORECASE,
)
_PGPASS = re.compile(r"(?m)^([\w.*-]{1,255}:(?:\*|[0-9]{4,5}):[^:\s]{1,63}:[^:\s]{1,63}:)(?!//)[^\s:]{4,500}$")
#: The end of a line whose last token may go on in the next one: tools break lines after a fixed number of characters.
_BREAK = re.compile(r"(?<=[\w.~+/=-]{8})(?<=[^\n]{40})\r?\n(?=[\w.~+/=-])", re.ASCII)
_HEADER = re.compile(r"([Bb](?:earer|asic)\s{1,3}|[Aa]uthorization: token\s{1,3})[A-Za-z0-9._~+/=-]{20,}")


#: Maximum characters of one token that may be the prefix of another, where nothing stands between them.
_PREFIX = 12


@cache
def _compiled(form: str) -> re.Pattern[str]:
    return re.compile(form, re.ASCII)


class Redactor:
    """A replacement of secrets by ``***``: values of the secret variables of ``env``, and known forms."""

    def __init__(self, env: Mapping[str, str]) -> None:
        spellings: set[str] = set()
        for name, secret in env.items():
            if len(secret) < _SHORTEST or not _SECRET_NAME.search(name):
                continue
            spellings |= _spellings(secret)
            # Each line of a key is a secret too.
            for line in map(str.strip, secret.splitlines()):
                if len(line) >= _SHORTEST_LINE and not line.startswith("-----"):
                    spellings |= _spellings(line)
        longest_first = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        self._values = _any_of(longest_first)
        self._stumps = _any_of({spelling[:_SHORTEST] for spelling in spellings}, rf"[^\s…]{{0,200}}?{_CUT}")

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        text = self._values.sub(MASK, text)
        joined = text.replace("\r\n", "\n").replace("\n", "")
        if joined != text:  # where the lines are too short for it, a value goes on in the next one
            for value in set(self._values.findall(joined)):
                text = re.sub(r"(?:\r?\n)?".join(map(re.escape, value)), MASK, text)
        if forms := list(dict.fromkeys([form for hint, form in _HINTED if hint in joined])):
            text = _without_tokens(text, forms)
            text = _without_tokens(text, forms)  # a token is known once the one that follows immediately is gone
        text = _PGPASS.sub(rf"\1{MASK}", _XML.sub(rf"\1{MASK}", text))
        text = _HEADER.sub(rf"\1{MASK}", text)
        text = _USERINFO.sub(f"{MASK}@", text)
        if "…" in text or "..." in text:
            text = _STUMP.sub(MASK, self._stumps.sub(MASK, text))
        return text

    def data(self, value: Any) -> Any:
        """Return the value with every text in its lists and mappings redacted, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(key): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value


def _any_of(texts: Collection[str], then: str = "") -> re.Pattern[str]:
    """Return a pattern for any of these texts; one that finds nothing if there is none."""
    return re.compile(f"(?:{'|'.join(map(re.escape, texts))}){then}" if texts else r"(?!)")


def _without_tokens(text: str, forms: Sequence[str]) -> str:
    """Mask tokens of known forms, also those that a line break divides; the break itself stays."""
    breaks = [match.span() for match in _BREAK.finditer(text)]
    parts, end = list[str](), 0
    for start, stop in sorted([*_find_tokens(text, forms), *_find_broken_tokens(text, forms, breaks)]):
        if start >= end:
            parts += [text[end:start], MASK]
        for first, last in breaks[bisect_left(breaks, (max(start, end),)) : bisect_left(breaks, (stop,))]:
            parts.append(text[first:last])
        end = max(end, stop)
    return "".join([*parts, text[end:]])


def _find_broken_tokens(
    text: str, forms: Sequence[str], breaks: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the places of tokens that go over one of the line breaks, found in the text without these."""
    if not breaks:
        return
    places, removed = list[int](), [0]
    for start, stop in breaks:
        places.append(start - removed[-1])
        removed.append(removed[-1] + stop - start)
    for start, stop in _find_tokens(_BREAK.sub("", text), forms):
        before, within = bisect_right(places, start), bisect_left(places, stop)
        if before < within:
            yield start + removed[before], stop + removed[within]


def _find_tokens(text: str, forms: Iterable[str]) -> list[tuple[int, int]]:
    """Return the places of tokens of these forms; those without anything between them overlap."""
    found: list[tuple[int, int]] = []
    for form in forms:
        start = 0
        while match := _compiled(form).search(text, start):
            found.append(match.span())
            start = max(match.start() + 1, match.end() - _PREFIX)
    return found


def _spellings(secret: str) -> set[str]:
    """Return the spellings of a secret: as it is, and in addresses, HTML, JSON, Python's repr and base64."""
    stripped = secret.strip()
    spellings = {secret, stripped, quote(secret, safe=""), quote_plus(secret), html.escape(secret), repr(secret)[1:-1]}
    spellings |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    raw = stripped.encode("utf-8", "surrogateescape")
    for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
        # The last characters depend on the text after the secret.
        spellings.add(alphabet(raw)[: len(raw) * 8 // 6].decode())
    return {spelling for spelling in spellings if len(spelling) >= _SHORTEST}
