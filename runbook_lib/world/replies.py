"""Replies of GitHub and GitLab: JSON read as objects, and listed page by page, within limits.

``problem`` is the beginning of a message that ends with the error: "Could not …: <host>".
"""

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from runbook_lib.errors import CannotTell, Unreachable

LARGEST = 16 * 2**20  # bytes of a reply; a page of a hundred pull requests with the longest texts has 7 MB
LARGEST_LISTING = 64 * 2**20  # bytes of all pages; a thousand open pull requests have 25 MB, five thousand jobs 40 MB
LONGEST_LISTING = 600.0  # seconds for all pages; GitHub needs up to 5 for one of a hundred jobs
PER_PAGE, MAX_PAGES = 100, 50
#: Values and names in a reply, each of which takes Python up to 150 bytes; a hundred jobs have 200,000.
_VALUES = 1_000_000

T = TypeVar("T")


def parse_json(content: bytes) -> Any:
    """Return the content of JSON without NaN and Infinity.  Raises ValueError for any other text, with a clause."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    if content.count(b",") + content.count(b"[") + content.count(b"{") > _VALUES:
        raise ValueError("it has too many values")
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def build(problem: str, content: bytes, of: Callable[[Any], T], variable: str) -> T:
    """Build an object from JSON, or from None without content; ``variable`` has the URL of the service.

    Raises Unreachable for other text, such as a proxy's, and CannotTell for an unexpected form.
    """
    try:
        document = parse_json(content) if content else None
    except ValueError as error:
        raise Unreachable(
            f"{problem} sent a reply that is not JSON from an API ({one_line(str(error))}). Is {variable} its URL, and "
            "is there no proxy or login page in between?"
        ) from error
    try:
        return of(document)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        kind, detail = type(error).__name__, one_line(str(error))
        raise CannotTell(f"{problem} sent a reply in an unexpected format ({kind}: {detail}).") from error


def listing(problem: str, read: Callable[[dict[str, int]], tuple[list[T], bool, int]]) -> tuple[T, ...]:
    """Return the items of all pages.

    ``read`` receives the parameters of a page, and returns its items, True if another page follows, and its bytes.
    """
    items: list[T] = []
    received, end = 0, time.monotonic() + LONGEST_LISTING
    for page in range(1, MAX_PAGES + 1):
        listed, more, size = read({"per_page": PER_PAGE, "page": page})
        items += listed
        if not more:
            return tuple(items)
        received += size
        if received > LARGEST_LISTING:
            raise CannotTell(f"{problem} sends more than {LARGEST_LISTING // 2**20} MB.")
        if time.monotonic() > end:
            raise Unreachable(f"{problem} did not send all pages in {LONGEST_LISTING:.0f} s.", "Try again later.")
    raise CannotTell(f"{problem} lists more than {MAX_PAGES * PER_PAGE}, which is more than this tool reads.")


def items_of(page: Any, key: str = "") -> list[Any]:
    """Return the items of a page.  Raises TypeError for a different form."""
    items = page[key] if key else page
    # An empty object is not an empty list: otherwise existing items would be created a second time.
    if not isinstance(items, list):
        raise TypeError(f"{type(items).__name__} instead of a list")
    return items


def whole_number(value: Any) -> int:
    """Return a number that fits in a database; larger ones could not be used in arithmetic or printed."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise TypeError(f"{type(value).__name__} that is not a whole number of at most 63 bits")
    return value


def one_line(text: str) -> str:
    """Return text from outside on one line, without invisible characters."""
    return "".join(char if char.isprintable() else " " for char in text).strip()
