"""The Markdown of issues and pull requests, from the templates in ``templates/``.

Values without a filter are shown as prose: no outside text becomes a link, a mention or a table.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from runbook_lib.text import markdown
from runbook_lib.text.sanitize import inert

if TYPE_CHECKING:
    from jinja2 import Environment

#: Maximum number of lines in a block that quotes a log.
_MOST_LINES = 30


def render(template: str, **values: object) -> str:
    """Return a rendered template, without a trailing line end."""
    return _templates().get_template(f"{template}.md").render(values)


@cache
def _templates() -> "Environment":
    import jinja2  # only some steps render texts
    from markupsafe import Markup

    def prose(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(markdown.prose(str(value)))

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("runbook_lib.text"),
        finalize=prose,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["code"] = lambda value: Markup(markdown.code(str(value)))
    templates.filters["address"] = lambda url: Markup(markdown.address(url))
    templates.filters["fenced"] = lambda lines: Markup(fenced(lines))
    return templates


def fenced(lines: Iterable[str]) -> str:
    """Return a code block that no line can end, and that contains no mention, link or bot command."""
    verbatim = [inert(line).replace("\r", "").replace("\n", " ") for line in lines]
    verbatim = verbatim[:_MOST_LINES]
    fences = re.findall("`{3,}", "\n".join(verbatim))
    fence = "`" * (max(map(len, fences), default=2) + 1)
    return "\n".join([f"{fence}text", *verbatim, fence])
