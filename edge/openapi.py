"""What the API's page says of the endpoints that are served in front of Django.

A route tells its `Operation`: the types by which its requests are read and its answers written. So
the page says what is so, and not what somebody once wrote down (https://spec.openapis.org/oas/v3.1.0).
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from edge.asgi import Operation, Problem, Route

Schema = dict[str, Any]

REFUSALS = {
    400: "Not JSON",
    401: "No valid key",
    403: "The key lacks the scope",
    413: "Too large",
    415: "Another media type",
    422: "It does not fit",
    503: "Overloaded; Retry-After says when to come back",
}
ALWAYS = (401, 403, 503)
"""The refusals that every endpoint has."""
REF = "#/components/schemas/{name}"
PARAMETER = re.compile(r"\(\?P<(\w+)>([^)]*)\)")


def described(routes: Iterable[Route]) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The path items of these routes by path, and the schemas to which they refer by name."""
    told = [(route, route.operation) for route in routes if route.operation is not None]
    types = [Problem, *(one for _, what in told for one in (what.body, what.answer))]
    (problem, *rest), schemas = msgspec.json.schema_components(types, ref_template=REF)
    paths: dict[str, Schema] = {}
    for (route, operation), body, answer in zip(told, rest[::2], rest[1::2], strict=True):
        path = PARAMETER.sub(r"{\1}", route.path.pattern)
        item = paths.setdefault(path, {})
        item[route.method.lower()] = _item(route, operation, body, answer, problem)
    return paths, schemas


def _item(
    route: Route, operation: Operation, body: Schema, answer: Schema, problem: Schema
) -> Schema:
    in_path = [
        {"name": name, "in": "path", "required": True,
         "schema": {"type": "string", "pattern": f"^{pattern}$"}}
        for name, pattern in PARAMETER.findall(route.path.pattern)
    ]  # fmt: skip
    in_query = [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": words}
        for name, (schema, words) in operation.query.items()
    ]
    refusals = REFUSALS | {status: words for status, words in operation.refusals.items() if words}
    responses: Schema = {
        str(status): {"description": words, "content": {"application/json": {"schema": answer}}}
        for status, words in operation.answers.items()
    }
    if operation.failure:
        responses["default"] = {"description": operation.failure}
    for status in () if operation.failure else sorted({*ALWAYS, *operation.refusals}):
        content = {"application/problem+json": {"schema": problem}}
        responses[str(status)] = {"description": refusals[status], "content": content}
    item: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*in_path, *in_query],
        "responses": responses,
        "security": [{"ByAgent": []}],
    }
    if operation.media:
        content = {media: {"schema": body} for media in operation.media}
        item["requestBody"] = {"required": True, "content": content}
    return item
