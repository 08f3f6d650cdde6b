"""The rules that all operations of GitHub's REST API share: callers and pages."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from local_server import ApiError, json_response
from people import PeopledForge
from werkzeug.wrappers import Request, Response

from runbook_lib.practice.store import PracticeAccount

T = TypeVar("T")


class Route(NamedTuple):
    """One operation; ``path`` is a rule of Werkzeug's router."""

    method: str
    path: str
    handler: Callable[..., Response]


class ServedForge(PeopledForge):
    """A practice forge that answers at ``address``; ``storage`` has the files that were asked for, by their paths."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.address, self.storage = "", dict[str, tuple[bytes, str]]()
        super().__init__(*args, **options)
        self.private, self.has_issues = False, True


@dataclass(frozen=True)
class ApiCall:
    """A request that matched a route; ``caller`` is None for nobody."""

    hub: ServedForge
    request: Request
    caller: PracticeAccount | None

    @property
    def url(self) -> str:
        """The URL of the request, without its query."""
        return self.hub.address + quote(self.request.path)

    @property
    def forge(self) -> ServedForge:
        """The practice forge as the caller sees it.  Raises ApiError 401 for nobody."""
        return self.hub.seen_by(self.require_account())

    def require_account(self) -> PracticeAccount:
        """Return the account of the caller.  Raises ApiError 401 for nobody."""
        if self.caller is None:
            raise ApiError(401, "Requires authentication")
        return self.caller

    def fields(self) -> dict[str, Any]:
        """Return the JSON object of the body.  Raises ApiError 400 for anything else."""
        try:
            fields = json.loads(self.request.get_data() or b"{}")
        except ValueError as error:
            raise ApiError(400, "Problems parsing JSON") from error
        if not isinstance(fields, dict):
            raise ApiError(400, "Body should be a JSON object")
        return fields

    def created(self, content: Mapping[str, object]) -> Response:
        """Return the response for a newly created object; ``content`` contains its URL."""
        return json_response(content, 201, {"Location": str(content["url"])})

    def page(self, entries: Sequence[T], show: Callable[[T], object], key: str = "", **more: object) -> Response:
        """Return one page of the entries, as a list or, with ``key``, in an object that also contains the total."""
        shown, headers = self.select_page(entries)
        content: object = [show(entry) for entry in shown]
        if key:
            content = {"total_count": len(entries), **more, key: content}
        return json_response(content, headers=headers)

    def select_page(self, entries: Sequence[T]) -> tuple[Sequence[T], dict[str, str]]:
        """Return the entries of the requested page, and the header ``Link`` that leads to the next."""
        size = max(1, min(100, self.request.args.get("per_page", 30, type=int)))
        number = max(1, self.request.args.get("page", 1, type=int))
        headers = {}
        if number * size < len(entries):
            query = urlencode(self.request.args.to_dict() | {"page": number + 1})
            headers["Link"] = f'<{self.url}?{query}>; rel="next"'
        return entries[(number - 1) * size : number * size], headers
