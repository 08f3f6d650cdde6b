"""GitHub Markdown: code, prose without links and mentions, and the texts of issues and pull requests.

The templates are in ``templates/``.  Values without a filter are shown as prose: no outside text becomes a link, a
mention or a table.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

from runbook_lib.errors import CannotTell
from runbook_lib.text.sanitize import inert

if TYPE_CHECKING:
    from jinja2 import Environment

#: Maximum number of lines in a block that quotes a log.
_MOST_LINES = 30

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
    escaped = re.sub(r"([\\`*_{}\[\]()<>!|~&$]|^[#+=-])", r"\\\1", inert(_flat(text)))
    escaped = re.sub(r"^(\d{1,9})(?=\.)", r"\1\\", escaped)  # "1." would start a list
    return _LINKED.sub("\u200b", escaped)


def unlinked(text: str) -> str:
    """Return a line in which GitHub sees neither mentions nor references, also for a commit's message."""
    return _MENTIONED.sub("\u200b", inert(_flat(text)))


def address(url: str, otherwise: Callable[[str], str] = code) -> str:
    """Return a web URL unchanged, which GitHub turns into a link; anything else as code."""
    return url if _ADDRESS.fullmatch(url) else otherwise(url)


def _flat(text: str) -> str:
    return " ".join(text.split())


def render(template: str, **values: object) -> str:
    """Return a rendered template, without a trailing line end."""
    return _templates().get_template(f"{template}.md").render(values)


@cache
def _templates() -> "Environment":
    import jinja2  # only some steps render texts
    from markupsafe import Markup

    def shown(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(prose(str(value)))

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("runbook_lib.text"),
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["code"] = lambda value: Markup(code(str(value)))
    templates.filters["address"] = lambda url: Markup(address(url))
    templates.filters["fenced"] = lambda lines: Markup(fenced(lines))
    return templates


def fenced(lines: Iterable[str]) -> str:
    """Return a code block that no line can end, and that contains no mention, link or bot command."""
    verbatim = [inert(line).replace("\r", "").replace("\n", " ") for line in lines]
    verbatim = verbatim[:_MOST_LINES]
    fences = re.findall("`{3,}", "\n".join(verbatim))
    fence = "`" * (max(map(len, fences), default=2) + 1)
    return "\n".join([f"{fence}text", *verbatim, fence])


def compose_body(text: str, part: str, section: str = "") -> str:
    """Return ``text``, a template or a body, with ``part`` between its markers if it has them, else at the end.

    The text outside the markers is preserved byte for byte.  ``part`` includes its markers, those of ``section``.
    Raises CannotTell if ``text`` has any markers other than one pair in order.
    """
    name = f"base-image-runbook:{section}{':' * bool(section)}"
    begins = list(re.finditer(rf"<!-- {name}begin(?: [^\s<>]+)? -->", text))
    ends = list(re.finditer(rf"<!-- {name}end -->", text))
    if not begins and not ends:
        return f"{text.rstrip()}\n\n{part}\n" if text.strip() else f"{part}\n"
    if len(begins) != 1 or len(ends) != 1 or begins[0].end() > ends[0].start():
        raise CannotTell(
            "The markers of this tool's part in the pull request's description are damaged or duplicated, so it was "
            "not changed.",
            "Remove the lines `<!-- base-image-runbook:… -->` and the text between them, then run again.",
        )
    start, end = begins[0].start(), ends[0].end()
    # GitHub's form sends CRLF line endings; ignore that difference.
    if text[start:end].replace("\r\n", "\n") == part:
        return text
    return text[:start] + part + text[end:]
