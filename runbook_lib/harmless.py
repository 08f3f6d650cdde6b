"""HTML that may have come from anywhere, made fit to be shown: nothing in it runs or is loaded."""

import html
import re
from html.parser import HTMLParser

_DROPPED = {"script", "iframe", "object", "embed", "link", "meta", "base", "form", "template", "noscript", "frame"}
_VOID = {"area", "br", "col", "hr", "img", "input", "wbr"}
_LOADING = {"srcset", "action", "formaction", "data", "poster", "background", "ping", "srcdoc", "http-equiv"}


class _Harmless(HTMLParser):
    """Copies HTML without what runs or loads something."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.out: list[str] = []
        self._dropped: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _DROPPED:
            if tag not in {"link", "meta", "base", "embed", "frame"}:
                self._dropped.append(tag)
        elif not self._dropped:
            kept = "".join(f' {k}="{html.escape(v or "")}"' for k, v in attrs if _is_harmless(tag, k, v or ""))
            self.out.append(f"<{tag}{kept}>")
            if tag not in _VOID:
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
        in_style = self._open[-1:] == ["style"]
        if not self._dropped and not (in_style and re.search(r"(?i)url\(|@import", data)):
            self.out.append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")

    def finish(self) -> str:
        self.close()
        return "".join([*self.out, *(f"</{tag}>" for tag in reversed(self._open))])


def _is_harmless(tag: str, name: str, value: str) -> bool:
    if not re.fullmatch(r"[a-z][a-z0-9:_-]*", name) or name.startswith("on"):
        return False
    if name == "style":
        return "url(" not in value.lower()
    if name in {"href", "xlink:href"}:
        return value.startswith("#") or (tag == "a" and re.match(r"(?i)https?://|mailto:|[\w.%-]+$", value) is not None)
    if name == "src":
        return value.startswith("data:image/")
    return name not in _LOADING


def harmless(markup: str) -> str:
    """HTML without scripts, frames, forms, event handlers and anything that is loaded; its elements are balanced."""
    parser = _Harmless()
    parser.feed(markup)
    return parser.finish()
