"""Requests to a service that answers in JSON: GitHub, GitLab or a registry, as one account sees it."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx

from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.world.replies import items_of, one_line, parse_json
from runbook_lib.world.transport.http import Client, NoReply, RemoteFile

LARGEST = 16 * 2**20  # bytes of a reply; a page of a hundred pull requests with the longest texts has 7 MB
LARGEST_LISTING = 64 * 2**20  # bytes of all pages; a thousand open pull requests have 25 MB, five thousand jobs 40 MB
LONGEST_LISTING = 600.0  # seconds for all pages; GitHub needs up to 5 for one of a hundred jobs
PER_PAGE, MAX_PAGES = 100, 50

T = TypeVar("T")
#: The parameters of a request; None is no parameter.
Query = Mapping[str, str | int | None]


class Api:
    """The API at ``url``, about one repository or project ``name``.

    ``action`` describes a request: it completes "Could not …".  A request that changes something is never sent twice:
    its reply may have been lost, so callers check first.  Forges' redirects are not followed: a POST may become a GET,
    and a moved repository would be noticed only at the first change.  ``variable`` has the URL, ``moved`` is the advice
    after a redirect, ``retry`` that after a failure to read.  The headers ``secret`` go only to the origin of ``url``,
    and the token is in no message.
    """

    variable: str
    moved: str
    retry = "Try again in a few minutes."

    def __init__(
        self, name: str, url: str, token: str, secret: Mapping[str, str], transport: httpx.BaseTransport | None
    ) -> None:
        """Prepare without sending anything.  Raises RunbookError if no connection can be set up."""
        self._name, self._url, self._token, self._secret = name, httpx.URL(url), token, secret
        self._client = Client(self._url, LARGEST, transport)
        #: Of the last successful reply.
        self._headers = httpx.Headers()

    def _address(self, path: str) -> httpx.URL:
        """Return the URL of a path."""
        return httpx.URL(f"{str(self._url).rstrip('/')}{path}")

    def _reply(self, method: str, url: httpx.URL, content: Any) -> httpx.Response:
        """Return the reply to a request, regardless of status.  Raises NoReply."""
        return self._client.request(
            method, url, {"Accept-Encoding": "gzip"}, secret=self._secret, content=content, follow=False
        )

    def _refusal(self, problem: str, reply: httpx.Response, message: str) -> RunbookError:
        """Return the error for a reply of 400 or more that is not temporary; ``message`` is the service's own."""
        return RunbookError(
            f"{problem} refuses it (HTTP {reply.status_code}){message}.", "Correct the cause, then run again."
        )

    def _file(self, path: str) -> RemoteFile:
        """Return a file, whose URL may redirect to a storage."""
        return RemoteFile(self._client, self._address(path), self._secret)

    def _ask(
        self, action: str, path: str, build: Callable[[Any], T], method: str = "GET", *, content: Any = None,
        query: Query | None = None,
    ) -> T:  # fmt: skip
        """Return the reply to one request, built."""
        return self._build(action, self._request(action, method, path, content, query), build)

    def _list(
        self, action: str, path: str, build: Callable[[Any], T | None], key: str = "", query: Query | None = None
    ) -> tuple[T, ...]:
        """Return all items of all pages that ``build`` makes something of; ``key`` names the list in a page."""

        def listed(page: Any) -> list[T]:
            return [built for built in map(build, items_of(page, key)) if built is not None]

        items: list[T] = []
        problem, received, end = self._problem(action), 0, time.monotonic() + LONGEST_LISTING
        for page in range(1, MAX_PAGES + 1):
            reply = self._request(action, "GET", path, query={**(query or {}), "per_page": PER_PAGE, "page": page})
            items += self._build(action, reply, listed)
            if "next" not in reply.links:
                return tuple(items)
            received += len(reply.content)
            if received > LARGEST_LISTING:
                raise CannotTell(f"{problem} sends more than {LARGEST_LISTING // 2**20} MB.")
            if time.monotonic() > end:
                raise Unreachable(f"{problem} did not send all pages in {LONGEST_LISTING:.0f} s.", "Try again later.")
        raise CannotTell(f"{problem} lists more than {MAX_PAGES * PER_PAGE}, which is more than this tool reads.")

    def _problem(self, action: str) -> str:
        """Return the beginning of a message that ends with an error."""
        return f"Could not {action} in {self._name}: {self._url.host}"

    def _request(
        self, action: str, method: str, path: str, content: Any = None, query: Query | None = None
    ) -> httpx.Response:
        """Return a successful reply.  Raises RunbookError for any other, Unreachable if a later attempt may succeed."""
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        problem, retry = self._problem(action), self.retry
        if method != "GET":
            retry = "Run the step again later: it checks first, because the change may have been made."
        try:
            reply = self._reply(method, self._address(path).copy_merge_params(parameters), content)
        except NoReply as error:
            raise Unreachable(
                f"{problem} gave no usable answer: {error}{self._message(error.response)}.", retry
            ) from error
        if reply.is_error:
            raise self._refusal(problem, reply, self._message(reply))
        if reply.has_redirect_location:
            raise RunbookError(f"{problem} redirects to a different URL.", self.moved)
        # The reply to a deletion is empty, or contains the remaining items.
        if not reply.is_success or not (reply.content or reply.status_code == 204):
            body = "an unexpected body" if reply.content else "no body"
            raise Unreachable(f"{problem} answered HTTP {reply.status_code} with {body}.", retry)
        self._headers = reply.headers
        return reply

    def _build(self, action: str, reply: httpx.Response, build: Callable[[Any], T]) -> T:
        """Build an object from a reply's JSON, or from None without content.

        Raises Unreachable for other text, such as a proxy's, and CannotTell for an unexpected form.
        """
        problem = self._problem(action)
        try:
            document = parse_json(reply.content) if reply.content else None
        except ValueError as error:
            raise Unreachable(
                f"{problem} sent a reply that is not JSON from an API ({one_line(str(error))}). Is {self.variable} its "
                "URL, and is there no proxy or login page in between?"
            ) from error
        try:
            return build(document)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
            kind, detail = type(error).__name__, one_line(str(error))
            raise CannotTell(f"{problem} sent a reply in an unexpected format ({kind}: {detail}).") from error

    def _message(self, reply: httpx.Response | None) -> str:
        """Return the service's own message about a refusal in parentheses, bounded and on one line, or nothing."""
        try:
            document = parse_json(reply.content) if reply else None
        except ValueError:
            return ""
        if not isinstance(document, dict):
            return ""
        details = document.get("errors") or []
        parts = [document.get("message") or document.get("error")]
        parts += map(_detail, details if isinstance(details, list) else [details])
        message = "; ".join(one_line(str(part).replace(self._token, "***")) for part in parts if part)
        return f" ({message[:500]})" if message else ""


def _detail(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    return str(error.get("message") or " ".join(str(error.get(key, "")) for key in ("resource", "field", "code")))
