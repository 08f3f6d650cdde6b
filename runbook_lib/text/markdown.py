"""GitHub Markdown: code spans, prose without links and mentions, addresses."""

import re
from collections.abc import Callable

from runbook_lib.text.sanitize import inert

# GitHub turns these into links even if they are escaped as Markdown; an invisible space prevents that.
_REFERENCES = r"|(?<=#)(?=\w)|(?<=:)(?=//)|(?<=\bwww)(?=\.)"
_LINKED = re.compile(rf"(?<=@)(?=\w){_REFERENCES}", re.IGNORECASE)
# In a commit message a URL is not a link, and case@platform does not mention anybody.
_MENTIONED = re.compile(rf"(?<=@)(?<![A-Za-z0-9_]@)(?=\w){_REFERENCES}", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[\w.:/?=&%+#~,;-]{1,2000}")


def code(text: str) -> str:
    """Return a one-line code span, in which GitHub creates no links; suitable for table cells."""
    flat = inert(_flat(text.replace("<!--", "<!-\u200b-"))).replace("|", "\\|") or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    if len(fence) > 1:
        flat = f" {flat} "
    return f"{fence}{flat}{fence}"


def prose(text: str) -> str:
    """Return a sentence with its Markdown, links, mentions and closing keywords disabled."""
    escaped = re.sub(r"([\\`*_{}\[\]()<>!|~&$]|^[#+=-]|^\d{1,9}(?=\.))", _escaped, inert(_flat(text)))
    return _LINKED.sub("\u200b", escaped)


def _escaped(match: re.Match[str]) -> str:
    if match[0].isdigit():
        return f"{match[0]}\\"  # "1." would start a list
    return f"\\{match[0]}"


def unlinked(text: str) -> str:
    """Return a line in which GitHub sees neither mentions nor references, also for a commit's message."""
    return _MENTIONED.sub("\u200b", inert(_flat(text)))


def address(url: str, otherwise: Callable[[str], str] = code) -> str:
    """Return a web URL unchanged, which GitHub turns into a link; anything else as code."""
    return url if _ADDRESS.fullmatch(url) else otherwise(url)


def _flat(text: str) -> str:
    return " ".join(text.split())
