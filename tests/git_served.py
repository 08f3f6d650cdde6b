"""Bare repositories behind HTTP, as a forge serves them: git's own server, for whoever says who one is."""

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from loopback import Handler, serving


class Served:
    """What is served; ``asked`` are the names and passwords that were given."""

    def __init__(self, root: Path) -> None:
        self.root, self.url = root, ""
        self.asked: list[str] = []

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        given = handler.headers.get("Authorization", "")
        size = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(size)
        if not given:
            handler.send_response(401)
            handler.send_header("WWW-Authenticate", 'Basic realm="GitLab"')
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        self.asked.append(base64.b64decode(given.removeprefix("Basic ")).decode())
        path, _, query = handler.path.partition("?")
        env = {
            "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
            "REQUEST_METHOD": handler.command, "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(size), "REMOTE_USER": "somebody",
            "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""), "PATH": os.environ["PATH"],
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        handler.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


@contextmanager
def serve(root: Path) -> Iterator[Served]:
    """Serve the repositories below a folder."""
    made = Served(root)

    class Git(Handler):
        def do_GET(self) -> None:
            made.answer(self)

        do_POST = do_GET

    with serving(Git) as made.url:
        yield made
