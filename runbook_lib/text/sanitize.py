"""Untrusted text and HTML, made safe for display.

Clean HTML neither runs nor loads anything and covers no other part of the page.  Visible text neither controls a
terminal nor hides anything from its reader.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nh3

#: Elements and attributes that are kept. Other elements keep only their text, except those dropped with their content.
_KEPT = """a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5
h6 hr i img ins kbd li mark ol p pre progress q s samp section small span strong sub summary sup table tbody td tfoot th
thead time tr tt u ul var wbr"""
_DROPPED = "head iframe math noembed noframes noscript object script select style svg template textarea title xmp"
_ATTRIBUTES = """align alt border class colspan datetime dir height href lang max open role rowspan scope span src start
style tabindex title value width"""
_SCHEMES = {"http", "https", "mailto", "data"}
_LINK = re.compile(r"#|https?://|mailto:|[\w.%-]+\Z", re.IGNORECASE)
_PICTURE = re.compile(r"data:image/(?:gif|jpeg|png|svg\+xml|webp);base64,[A-Za-z0-9+/=\s]*", re.IGNORECASE)
#: A style that loads something, or covers other parts of the page, possibly written with escapes.
_BAD_STYLE = re.compile(r"url|image|src\s*\(|position|\\|/\*", re.IGNORECASE)
#: Formatting elements with attributes. HTML repeats open ones in each block that follows, so the result of many grows
#: with the square of their number; of those without attributes it repeats at most three.
_FORMATTING = re.compile(r"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)[\s/]", re.IGNORECASE)
_MOST_FORMATTING = 20

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
#: Control characters, characters that change the text direction or are invisible, and surrogates.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]|\r(?!\n)"
)


def visible(text: str) -> str:
    """Return the text with control characters, changes of direction and invisible characters as escapes: ``\\x1b``.

    Colours are removed; line ends and tabs stay.
    """
    return _HIDDEN.sub(lambda match: ascii(match[0])[1:-1], _COLOUR.sub("", text))


# Text that bots and forges react to anywhere, quoted or not: copy-pr-bot, Prow and others obey a line with a command,
# some even a word within a line; a squash merge turns the text of a pull request into a commit message.
_INVISIBLE = "\u200b"
_BEFORE_COMMAND = r"(?:_|[^\w/@!.<&\n]|<[^<>\n]{0,200}>|&[#\w]{1,10};|[0-9]{1,9}[.)](?=\s)|[<&])*+"
#: A command has neither a slash nor a suffix in its name, so that a path stays as it is, to be copied.
_NOT_PATH = r"(?!\w[\w-]{0,60}(?:/|\.\w))"
_COMMAND_LINE = re.compile(rf"^({_BEFORE_COMMAND}[/@!.]{{1,20}})(?=\w){_NOT_PATH}", re.MULTILINE)
#: The first letter of a word that closes an issue or pull request, whose number or address follows.
_CLOSING = re.compile(
    r"\b([cfr])(?=(?:lose[sd]?|ix(?:e[sd])?|esolve[sd]?)\b:?\s{1,9}(?:https?://|[\w.-]{0,80}/?[\w.-]{0,80}#|GH-))",
    re.IGNORECASE,
)
_COMMANDS = re.compile(
    r"(?<=@)(?<![A-Za-z0-9_]@)(?=\w)"  # @claude; but case@platform and the digest of an image mention nobody,
    r"|(?<=@)(?=(?:claude|codex|copilot|coderabbit|cursor|dependabot|gemini|mergify|renovate|bors|homu|\w{1,40}-?bot))"
    r"|(?<=[^\w.~/:*)}\]$-]/)(?=[a-z][\w-]{0,40}(?![\w/-]|\.\w))"  # /retest, but not a path
    r"|(?<=bors)(?<![a-z0-9]bors)(?=\s)"
    r"|(?:(?<=ok)(?<![a-z0-9]ok)|(?<=okay)(?<![a-z0-9]okay))(?=[ \t]to[ \t]test)"
    r"|(?<=test)(?=[ \t]this[ \t]please)"
    r"|(?<=add)(?<![a-z0-9]add)(?=[ \t]to[ \t](?:white|allow)list)"
    r"|(?<=\[)(?=[^\[\]\n]{0,30}(?:skip|no[ _-]?ci|no[ _-]?build))|(?<=\*)(?=NO_CI\*)|(?<=skip-checks)(?=\s{0,3}:)"
    r"|(?<=-by)(?=\s{0,3}:)|(?<=#)(?=[0-9])|(?<=\bGH)(?=-[0-9])",
    re.IGNORECASE,
)


def inert(text: str) -> str:
    """Return visible text with a zero-width space in everything that a bot, CI or forge reacts to."""
    # Also before characters are escaped, because an escape may look like a part of the next word.
    return _without_commands(visible(_without_commands(text)))


def _without_commands(text: str) -> str:
    text = _CLOSING.sub(rf"\1{_INVISIBLE}", text)
    return _COMMANDS.sub(_INVISIBLE, _COMMAND_LINE.sub(rf"\1{_INVISIBLE}", text))


def clean_html(markup: str) -> str:
    """Return HTML that neither runs nor loads anything nor covers the page, with balanced elements.

    Markup with so many formatting elements that it would grow excessively is returned as escaped text.
    """
    import html  # most commands show no HTML

    if len(_FORMATTING.findall(markup)) > _MOST_FORMATTING:
        return html.escape(markup)
    # nh3 refuses surrogates, which become escapes here.
    return _cleaner().clean(visible(markup))


@cache
def _cleaner() -> "nh3.Cleaner":
    import nh3  # most commands show no HTML

    return nh3.Cleaner(
        tags=set(_KEPT.split()), clean_content_tags=set(_DROPPED.split()), attributes={"*": set(_ATTRIBUTES.split())},
        attribute_filter=_filter_attribute, generic_attribute_prefixes={"aria-"}, link_rel=None, url_schemes=_SCHEMES,
    )  # fmt: skip


def _filter_attribute(tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute, or None for a harmful style or URL."""
    if name == "style" and _BAD_STYLE.search(value):
        return None
    if name == "href" and not (tag == "a" and _LINK.match(value)):
        return None
    if name == "src" and not (tag == "img" and _PICTURE.fullmatch(value)):
        return None
    return value
