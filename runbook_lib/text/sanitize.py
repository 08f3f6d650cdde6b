"""What may have come from anywhere, made fit to be shown.

Of HTML nothing runs, is loaded, or covers the page; of any text nothing steers a terminal or hides from who reads it.
"""

import contextlib
import html
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import TextIO

#: Text, lists, tables and pictures are kept.  Of any other element the text stays, but for those dropped whole.
_KEPT = """a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5
h6 hr i img ins kbd li mark ol p pre progress q s samp section small span strong sub summary sup table tbody td tfoot th
thead time tr tt u ul var wbr"""
_DROPPED = "head iframe math noembed noframes noscript object script select style svg template textarea title xmp"
_VOID = "br col hr img wbr"
_ATTRIBUTES = """align alt border class colspan datetime dir height href lang max open role rowspan scope span src start
style tabindex title value width"""
_KEPT_TAGS, _DROPPED_TAGS, _VOID_TAGS, _NAMES = (frozenset(it.split()) for it in (_KEPT, _DROPPED, _VOID, _ATTRIBUTES))
_LINK = re.compile(r"https?://|mailto:|[\w.%-]+\Z", re.IGNORECASE)
_PICTURE = re.compile(r"data:image/(?:gif|jpeg|png|svg\+xml|webp);base64,[A-Za-z0-9+/=\s]*", re.IGNORECASE)
#: A style that loads something, or lies over what stands elsewhere; an escape may spell either.
_BAD_STYLE = re.compile(r"url|image|src\s*\(|position|\\|/\*", re.IGNORECASE)

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
#: Control characters, those that turn the direction of writing or are never seen, and halves of characters.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]|\r(?!\n)"
)


def visible(text: str) -> str:
    """The text with what steers a terminal, turns the writing or is not seen spelled as Python does: ``\\x1b``.

    Colours are left out; ends of lines and tabs stay.
    """
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], _COLOUR.sub("", text))


# What bots and forges act upon, wherever it stands in a text, quoted or not: copy-pr-bot, Prow and others take a line
# with a command, some a word within; squashed merges make a commit's message of a pull request's text.
_INVISIBLE = "\u200b"
_BEFORE_COMMAND = r"(?:_|[^\w/@!.<&\n]|<[^<>\n]{0,200}>|&[#\w]{1,10};|[0-9]{1,9}[.)](?=\s)|[<&])*+"
_COMMAND_LINE = re.compile(rf"^({_BEFORE_COMMAND}[/@!.]{{1,20}})(?=\w)", re.MULTILINE)
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
    """Return visible text with an invisible space in all that a bot, CI or forge acts upon; it reads as before."""
    # Once before, too: what is spelled out then may look like a part of the word behind it.
    return _without_commands(visible(_without_commands(text)))


def _without_commands(text: str) -> str:
    return _COMMANDS.sub(_INVISIBLE, _COMMAND_LINE.sub(rf"\1{_INVISIBLE}", text))


class _Plain:
    """A stream that shows ``visible`` text; in all else it is the stream beneath."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(visible(text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def terminal() -> Iterator[None]:
    """What is printed meanwhile comes from many places; none of it steers the terminal, or stops at what it lacks."""
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    with contextlib.redirect_stdout(_Plain(sys.stdout)), contextlib.redirect_stderr(_Plain(sys.stderr)):  # type: ignore[type-var]
        yield


class _Harmless(HTMLParser):
    """Copies what is known to be harmless; text is decoded and escaped anew, whatever it looked like."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._dropped: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _DROPPED_TAGS:
            self._dropped.append(tag)
        elif not self._dropped and tag in _KEPT_TAGS:
            kept = "".join(f' {k}="{html.escape(v or "")}"' for k, v in attrs if _is_harmless(tag, k, v or ""))
            self.out.append(f"<{tag}{kept}>")
            if tag not in _VOID_TAGS:
                self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            if tag == self._dropped[-1]:
                self._dropped.pop()
        elif tag in self._open:
            while self._open:  # what was left open within ends with it
                last = self._open.pop()
                self.out.append(f"</{last}>")
                if last == tag:
                    break

    def handle_data(self, data: str) -> None:
        # An unfinished tag or comment at the end comes as text too: it must not swallow what follows on the page.
        if not self._dropped:
            self.out.append(html.escape(data))

    def finish(self) -> str:
        self.close()
        return "".join([*self.out, *(f"</{tag}>" for tag in reversed(self._open))])


def _is_harmless(tag: str, name: str, value: str) -> bool:
    if name not in _NAMES:
        return re.fullmatch(r"aria-[a-z]+", name) is not None
    if name == "style":
        return not _BAD_STYLE.search(value)
    if name == "href":
        return tag == "a" and (value.startswith("#") or _LINK.match(value) is not None)
    if name == "src":
        return tag == "img" and _PICTURE.fullmatch(value) is not None
    return True


def harmless(markup: str) -> str:
    """HTML without anything that runs, is loaded, or covers the page; its elements are balanced."""
    parser = _Harmless()
    parser.feed(_closed(markup))
    return parser.finish()


def _closed(markup: str) -> str:
    """Return the markup with what begins a tag, comment or section that nothing ends as text.

    The parser would read on to the end of the text for each of them.
    """
    markup = markup.replace("<![", "&lt;![")
    for begin, end in (("<!--", "-->"), ("<", ">")):
        at = markup.rfind(end) + 1
        markup = markup[:at] + markup[at:].replace(begin, begin.replace("<", "&lt;"))
    return markup
