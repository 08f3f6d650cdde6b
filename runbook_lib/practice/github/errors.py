"""The errors of GitHub's REST API, in GitHub's words."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

_DOCS = "https://docs.github.com/rest"


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    return Response(json.dumps(content), status, headers, content_type="application/json; charset=utf-8")


class ApiError(HTTPException):
    """A response with a status of 400 or more, in GitHub's words."""

    def __init__(
        self,
        status: int,
        message: str,
        errors: Sequence[object] | None = None,
        headers: Mapping[str, str] | None = None,
        docs: str = _DOCS,
    ) -> None:
        content: dict[str, Any] = {"message": message, "documentation_url": docs, "status": str(status)}
        if errors is not None:
            content["errors"] = list(errors)
        super().__init__(message, json_response(content, status, headers))


def not_found() -> ApiError:
    """Return the error for something that does not exist or that the caller may not see."""
    return ApiError(404, "Not Found")


def invalid(resource: str, *, field: str = "", code: str = "custom", message: str = "") -> ApiError:
    """Return the error 422 for one field."""
    error = {"resource": resource, "code": code}
    if field:
        error["field"] = field
    if message:
        error["message"] = message
    return ApiError(422, "Validation Failed", [error])
