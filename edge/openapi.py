"""Small words for the OpenAPI document of endpoints that are served in front of Django.

A floor with hot handlers states `documented`, path items by path; config/api.py puts them beside
what ninja finds by itself. Shapes follow https://spec.openapis.org/oas/v3.1.0.
"""

from typing import Any

Schema = dict[str, Any]

PROBLEM = "application/problem+json"
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
ANYTHING: Schema = {}


def shape(required: str = "", **properties: Schema) -> Schema:
    """An object with these properties; `required` names some of them, divided by blanks."""
    described: Schema = {"type": "object", "properties": properties}
    return described | ({"required": required.split()} if required else {})


def items(of: Schema, *, most: int) -> Schema:
    return {"type": "array", "items": of, "maxItems": most}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def path(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def query(name: str, schema: Schema, words: str) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": words}


def body(schema: Schema, *kinds: str) -> Schema:
    media = kinds or ("application/json",)
    return {"required": True, "content": {kind: {"schema": schema} for kind in media}}


def operation(
    name: str,
    summary: str,
    *,
    answer: Schema | None,
    refusals: dict[int, str],
    tag: str = "agents",
    parameters: list[Schema] | None = None,
    said: Schema | None = None,
    status: int = 200,
) -> Schema:
    """One operation; `refusals` are the statuses that are answered with a problem, in words."""
    fine: Schema = {"description": "Done"}
    if answer is not None:
        fine["content"] = {"application/json": {"schema": answer}}
    problems = {
        str(code): {"description": words, "content": {PROBLEM: {"schema": shape()}}}
        for code, words in refusals.items()
    }
    described: Schema = {
        "operationId": name,
        "summary": summary,
        "tags": [tag],
        "parameters": parameters or [],
        "responses": {str(status): fine, **problems},
        "security": [{"AgentKey": []}],
    }
    return described | ({"requestBody": said} if said else {})
