"""GitHub's own description of its REST API, by openapi-core: the judge of what we send and of what the forge answers.

What the description leaves to GitHub's prose is written down here: the errors that any operation may give, answers to
conditional requests, and the headers of every request.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from openapi_core import Config, OpenAPI
from openapi_core.testing import MockRequest, MockResponse

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "environment/.components/github-api/node_modules/@octokit/openapi"
FILE = PACKAGE / "generated/api.github.com.json"
#: The version that the file describes.
VERSION = "2022-11-28"
HOST = "https://api.github.com"
#: Errors that any operation may give: GitHub's pages on authentication, rate limits, versions and troubleshooting.
GENERAL = ("400", "401", "403", "404", "410", "422", "429", "500", "502", "503")
_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/basic-error"}}}


@dataclass(frozen=True)
class Operation:
    """One operation of the description; ``name`` such as ``GET /user``, ``parts`` the variable parts of its path."""

    name: str
    described: Mapping[str, Any] = field(repr=False)
    parts: Mapping[str, str]

    @property
    def path(self) -> str:
        """Its path with each part in one segment, as openapi-core reads paths; GitHub lets some parts hold slashes."""
        template = self.name.partition(" ")[2]
        return re.sub(r"{(\w+)}", lambda it: self.parts[it[1]].replace("/", "%2F"), template)


class Description:
    """The description of the API."""

    def __init__(self) -> None:
        self._spec = json.loads(FILE.read_text())
        nullable(self._spec)
        # GitHub sends the status in all errors, and describes it of the basic ones alone.
        self._spec["components"]["schemas"]["validation-error"]["properties"]["status"] = {"type": "string"}
        # The syntax of search, such as >=2026-01-31T12:00:00Z, to which its prose refers.
        del self._spec["components"]["parameters"]["created"]["schema"]["format"]
        joined(self._spec, self._spec["components"]["schemas"])
        for method, operation in self._operations():
            answers = operation["responses"]
            answers |= {status: {"content": _ERROR} for status in GENERAL if status not in answers}
            if method == "get":
                answers.setdefault("304", {})
        self._paths = sorted(
            (
                (pattern_of(path, operations, self._parameters), path)
                for path, operations in self._spec["paths"].items()
            ),
            key=lambda it: (it[1].count("{"), -len(it[1])),
        )
        # An object takes what its schema lists, nothing else: a field that GitHub would ignore is our mistake.
        config = Config(spec_validator_cls=None, additional_properties_default_policy="forbid")
        self._openapi = OpenAPI.from_dict(self._spec, config=config)

    def _operations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for operations in self._spec["paths"].values():
            yield from ((method, it) for method, it in operations.items() if isinstance(it, dict))

    def _parameters(self, operation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for it in operation.get("parameters", ()):
            yield self._spec["components"]["parameters"][it["$ref"].rpartition("/")[2]] if "$ref" in it else it

    def operation(self, method: str, path: str) -> Operation | None:
        """The operation of a request; the most literal path of those that fit."""
        for pattern, template in self._paths:
            described = self._spec["paths"][template].get(method.lower())
            if described and (match := pattern.fullmatch(path)):
                return Operation(f"{method} {template}", described, match.groupdict())
        return None

    def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> list[str]:
        """What is wrong with a request; ``url`` is a path with its query."""
        parts = urlsplit(url)
        operation = self.operation(method, parts.path)
        if operation is None:
            return [f"GitHub describes no {method} {parts.path}"]
        query = parse_qsl(parts.query, keep_blank_values=True)
        known = {it["name"] for it in self._parameters(operation.described) if it["in"] == "query"}
        wrong = [f"the query has {name}, which is not described" for name, _ in query if name not in known]
        wrong += [f"the query has {name} twice" for name, _ in query if [it for it, _ in query].count(name) > 1]
        if body and "requestBody" not in operation.described:
            wrong.append("a body where none is described")
        kind = {name.lower(): value for name, value in headers.items()}.get("content-type", "application/json")
        asked = MockRequest(
            HOST, method, operation.path, args=dict(query), headers=dict(headers), data=body, content_type=kind
        )
        return [*wrong, *_headers(headers, bool(body)), *map(_told, self._openapi.iter_request_errors(asked))]

    def answer(self, method: str, url: str, status: int, headers: Mapping[str, str], body: bytes) -> list[str]:
        """What is wrong with the answer to a request."""
        parts = urlsplit(url)
        operation = self.operation(method, parts.path)
        if operation is None:  # what GitHub does not describe is not there: an error as any operation may give it
            method, operation = "GET", self.operation("GET", "/zen")
            assert operation
        asked = MockRequest(HOST, method, operation.path, args=dict(parse_qsl(parts.query)))
        kind = {name.lower(): value for name, value in headers.items()}.get("content-type", "").partition(";")[0]
        given = MockResponse(body, status, headers=dict(headers), content_type=kind or "application/json")
        described = operation.described["responses"].get(str(status), {})
        if "$ref" in described:
            described = self._spec["components"]["responses"][described["$ref"].rpartition("/")[2]]
        if described and "content" not in described:
            wrong = ["a body where none is described"] if body else []
            lacking = [name for name in described.get("headers", ()) if name.lower() not in map(str.lower, headers)]
            return [*wrong, *(f"no header {name}" for name in lacking)]
        return [*map(_told, self._openapi.iter_response_errors(asked, given))]


@cache
def description() -> Description:
    """The description, read once."""
    return Description()


def pattern_of(path: str, operations: Mapping[str, Any], parameters: Any) -> re.Pattern[str]:
    """What a path looks like; GitHub marks the parts that may hold slashes."""
    marked = {
        it["name"] for operation in operations.values() if isinstance(operation, dict)
        for it in parameters(operation) if it.get("x-multi-segment")
    }  # fmt: skip
    pieces = re.split(r"{(\w+)}", path)
    named = (f"(?P<{name}>{'.+' if name in marked else '[^/]+'})" for name in pieces[1::2])
    return re.compile("".join(re.escape(text) + next(named, "") for text in pieces[::2]))


def _headers(headers: Mapping[str, str], has_body: bool) -> Iterator[str]:
    """What GitHub's prose asks of every request."""
    given = {name.lower(): value for name, value in headers.items()}
    if given.get("x-github-api-version") != VERSION:
        yield f"X-GitHub-Api-Version is {given.get('x-github-api-version')!r}"
    if not re.fullmatch(r"(Bearer|token) [!-~]+", given.get("authorization", "")):
        yield "no token of the form that GitHub takes"
    if not given.get("user-agent"):
        yield "no User-Agent"
    if not re.fullmatch(r"application/vnd\.github(\.v3)?\+json|\*/\*", given.get("accept", "")):
        yield f"Accept is {given.get('accept')!r}"
    if has_body and given.get("content-type") != "application/json":
        yield f"Content-Type is {given.get('content-type')!r}"


def _told(error: Exception) -> str:
    cause = error.__cause__
    schema = getattr(cause, "schema_errors", None) or getattr(getattr(cause, "__cause__", None), "schema_errors", ())
    return "; ".join(f"{it.json_path}: {it.message[:300]}" for it in schema) or f"{type(error).__name__}: {error}"


def nullable(node: Any) -> None:
    """Let null be one of the choices where GitHub writes `nullable` beside them, as OpenAPI 3.0 asks by its letter."""
    for it in node.values() if isinstance(node, dict) else node:
        if isinstance(it, dict | list):
            nullable(it)
    if isinstance(node, dict) and node.get("nullable") is True:
        if isinstance(node.get("enum"), list):
            node["enum"].append(None)
        for choice in ("oneOf", "anyOf"):
            if choice in node:
                node[choice].append({"enum": [None]})


def joined(node: Any, schemas: Mapping[str, Any]) -> None:
    """Make one object of those that `allOf` puts together: each by itself would not take the fields of the others."""
    for it in node.values() if isinstance(node, dict) else node:
        if isinstance(it, dict | list):
            joined(it, schemas)
    if isinstance(node, dict) and isinstance(node.get("allOf"), list):
        parts = [schemas[it["$ref"].rpartition("/")[2]] if "$ref" in it else it for it in node["allOf"]]
        if len(parts) > 1 and all("properties" in it for it in parts):
            del node["allOf"]
            node["type"] = "object"
            node["properties"] = {name: schema for it in parts for name, schema in it["properties"].items()}
            node["required"] = sorted({name for it in parts for name in it.get("required", ())})
