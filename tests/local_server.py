"""HTTP servers for this machine only: within this process, or in one of its threads for other processes."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from types import SimpleNamespace

import httpx
from werkzeug.exceptions import HTTPException
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Request, Response

#: Start of the paths of files in a storage.
STORAGE = "/_storage/"


#: What answers within this process, by a port that nothing listens on.
_answering: dict[int, httpx.BaseTransport] = {}
_ports = itertools.count(1024)  # beyond 80, which an address does not keep
_send = httpx.HTTPTransport.handle_request


def _answer_here(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
    if (server := _answering.get(request.url.port or 0)) is None:
        return _send(transport, request)
    try:
        return server.handle_request(request)
    except ConnectionError as error:
        raise httpx.ReadError(str(error)) from error


httpx.HTTPTransport.handle_request = _answer_here  # type: ignore[method-assign]


@contextmanager
def answering(answer: Callable[[httpx.Request], httpx.Response]) -> Iterator[str]:
    """Answer the requests of this process to an address, without a socket; the address without a slash at the end."""
    port = next(_ports)
    _answering[port] = httpx.MockTransport(answer)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        del _answering[port]


class LoopbackServer:
    """A server at an address of 127.0.0.1 until it is closed.  Nothing is logged.

    Requests of this process reach it without a socket, unless it has to ``listen`` for those of others.
    """

    def __init__(self, answer: Callable[[Request], Response], *, listen: bool = False) -> None:
        @Request.application
        def application(request: Request) -> Response:
            # Of a fault that closes the connection.
            request.environ.setdefault("werkzeug.socket", SimpleNamespace(shutdown=lambda _: None))
            return answer(request)

        self._server: _QuietServer | None = None
        self.port = next(_ports)
        if listen:
            self._server = _QuietServer("127.0.0.1", 0, application, _QuietHandler)
            self.port = self._server.port
            Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        else:
            _answering[self.port] = httpx.WSGITransport(application)
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop answering.  May be called twice."""
        _answering.pop(self.port, None)
        if self._server:
            self._server.shutdown()
            self._server.server_close()


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    return Response(json.dumps(content), status, headers, content_type="application/json; charset=utf-8")


class ApiError(HTTPException):
    """A response with a status of 400 or more, in GitHub's words."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None,
        docs: str = "https://docs.github.com/rest",
    ) -> None:  # fmt: skip
        content = {"message": message, "documentation_url": docs, "status": str(status)}
        super().__init__(message, json_response(content, status, headers))


def not_found() -> ApiError:
    """Return the error for an object that does not exist or that the caller may not see."""
    return ApiError(404, "Not Found")


class _QuietHandler(WSGIRequestHandler):
    timeout = 60  # seconds that a client may be silent
    # Headers and body are two writes, and without this the second waits until the first is acknowledged.
    disable_nagle_algorithm = True

    def log(self, type: str, message: str, *args: object) -> None:
        """Log nothing: requests contain secrets, and the terminal belongs to the runbook."""


class _QuietServer(ThreadedWSGIServer):
    def log(self, type: str, message: str, *args: object) -> None:
        """Log nothing."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that closed the connection."""
