"""The forms of secrets, read from ``secret_forms.txt`` when a text is first redacted."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import get_data  # importlib.resources would take `runbook check` 10 ms to import
from typing import NamedTuple

# Kinds of keys in all the usual spellings: api_key, api-key, apikey, apiKey, ApiKey, API_KEY.
_KINDS = (
    "access account api app application auth client deploy encryption hmac license master private secret service "
    "session shared signing ssh storage subscription webhook"
)
_KEY_NAME = r"[_.-]?(?:(?:access|Access|ACCESS)[_.-]?)?(?:key|Key|KEY)(?:[_-]?(?:id|Id|ID|data))?"
#: Names of login tokens; a value after the plain word "token" must look like a secret.
_LOGIN_KINDS = "access api auth bot bearer deploy id job private refresh session"
_SESSIONS = "session sessionid session_id jsessionid phpsessid csrf_token csrftoken"


class SecretForm(NamedTuple):
    """The regular expression for a secret, and substrings at least one of which is in any text with such a secret."""

    name: str
    pattern: str
    hints: tuple[str, ...]


def _spelled(words: str, after: str = "") -> list[str]:
    """Return each word in lowercase, capitalized, and in capitals, which is faster to search for than ignoring case."""
    spellings: list[str] = []
    for word in words.split():
        spellings += (f"{word}{after}", f"{word.capitalize()}{after}", f"{word.upper()}{after}")
    return spellings


@cache
def secret_forms() -> Mapping[str, tuple[SecretForm, ...]]:
    """Return the forms by section: ``tokens`` and ``assignments``."""
    logins = _spelled("password passwd passphrase secret credentials credential")
    logins += _spelled("connection", "[_-]?(?:string|String|STRING)") + _spelled(_KINDS, _KEY_NAME)
    logins += _spelled(_LOGIN_KINDS, "[_-]?(?:token|Token|TOKEN)")
    parts = {"logins": "|".join(logins), "names": "(?:<<logins>>|token|Token|TOKEN)"}
    parts["sessions"] = "|".join((*_spelled(_SESSIONS), r"connect\.sid|sessionId|sess_id"))
    sections: dict[str, list[SecretForm]] = {"tokens": [], "assignments": []}
    for section, form in _read((get_data(__name__, "secret_forms.txt") or b"").decode()):
        pattern = form.pattern
        while "<<" in pattern:
            pattern = re.sub(r"<<(\w+)>>", lambda match: parts[match[1]], pattern)
        if section == "parts":
            parts[form.name] = pattern
        else:
            sections[section].append(form._replace(pattern=pattern))
    return {section: tuple(forms) for section, forms in sections.items()}


def _read(text: str) -> Iterator[tuple[str, SecretForm]]:
    """Yield the forms as written, each with its section."""
    section = ""
    for block in re.split(r"\n(?=[^ \n])", text):
        head, *lines = block.rstrip().split("\n")
        if head.startswith("["):
            section = head.strip("[]")
        elif not head.startswith("#"):
            name, _, hints = head.partition(":")
            yield section, SecretForm(name, "".join(line[2:] for line in lines), tuple(hints.split()))
