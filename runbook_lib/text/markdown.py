"""GitHub Markdown: code spans, prose without links and mentions, addresses."""

import re
from collections.abc import Callable

from runbook_lib.text.sanitize import inert

# GitHub makes links of these even where they are escaped as Markdown; an invisible space keeps it from doing so.
_REFERENCES = r"|(?<=#)(?=\w)|(?<=:)(?=//)|(?<=\bwww)(?=\.)"


_LINKED = re.compile(rf"(?<=@)(?=\w){_REFERENCES}", re.IGNORECASE)


# In a commit's message an address is no link, and case@platform mentions nobody.
_MENTIONED = re.compile(rf"(?<=@)(?<![A-Za-z0-9_]@)(?=\w){_REFERENCES}", re.IGNORECASE)


_ADDRESS = re.compile(r"https?://[\w.:/?=&%+#~,;-]{1,2000}")


def code(text: str) -> str:
    """A code span of one line, for a table's cell too: GitHub finds neither names nor issues in it."""
    flat = inert(_flat(text.replace("<!--", "<!-\u200b-"))).replace("|", "\\|") or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    padding = " " if len(fence) > 1 else ""
    return f"{fence}{padding}{flat}{padding}{fence}"


def prose(text: str) -> str:
    """A sentence as it is, with no Markdown, link, mention or closing keyword at work in it."""
    escaped = re.sub(r"([\\`*_{}\[\]()<>!|~&$]|^[#+=-]|^\d{1,9}(?=\.))", _escaped, inert(_flat(text)))
    return _LINKED.sub("\u200b", escaped)


def _escaped(found: re.Match[str]) -> str:
    return f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}"  # "1." would begin a list


def unlinked(text: str) -> str:
    """A line with nothing in it that GitHub would make a mention or a reference of, also in a commit's message."""
    return _MENTIONED.sub("\u200b", inert(_flat(text)))


def address(url: str, otherwise: Callable[[str], str] = code) -> str:
    """An address of a forge as it is, which GitHub makes a link of; anything else as code."""
    return url if _ADDRESS.fullmatch(url) else otherwise(url)


def _flat(text: str) -> str:
    return " ".join(text.split())
