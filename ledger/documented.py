"""What the OpenAPI page says of the ledger's hot endpoints, which django-ninja does not serve."""

from typing import Any

from ledger.schemas import AGENT_TYPES

_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["id", "type", "run"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": 64},
        "type": {"type": "string", "enum": sorted(AGENT_TYPES)},
        "run": {"type": "string", "minLength": 1, "maxLength": 120},
        "action": {"type": "string", "minLength": 1, "maxLength": 120},
        "n": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "time": {"type": "string", "format": "date-time"},
        "trace": {"type": "object"},
        "data": {"type": "object"},
    },
}
PROBLEM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}
_RESULTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "status": {"enum": ["accepted", "duplicate", "rejected"]},
                    "problem": PROBLEM,
                    "warning": PROBLEM,
                },
            },
        }
    },
}


def problems(*statuses: int) -> dict[str, Any]:
    """Answers that are RFC 9457 problems."""
    words = {
        400: "Malformed", 401: "No valid key", 403: "The key lacks the scope", 413: "Too large",
        415: "Wrong media type", 422: "Unfit", 503: "Overloaded; Retry-After says when to come",
    }  # fmt: skip
    return {
        str(status): {
            "description": words[status],
            "content": {"application/problem+json": {"schema": PROBLEM}},
        }
        for status in statuses
    }


BEARER: list[dict[str, list[str]]] = [{"ByAgent": []}]

documented: dict[str, Any] = {
    "/api/v1/events": {
        "post": {
            "tags": ["ledger"],
            "operationId": "ledger_intake_events",
            "summary": "Record up to 1,000 events",
            "description": "JSON array or NDJSON, gzip or not, at most 8 MiB. Each event has its "
            "own answer; one reported accepted is durable.",
            "security": BEARER,
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": {"type": "array", "items": _EVENT}},
                    "application/x-ndjson": {"schema": {"type": "string"}},
                },
            },
            "responses": {
                "200": {
                    "description": "One answer per event, in order",
                    "content": {"application/json": {"schema": _RESULTS}},
                },
                **problems(400, 401, 403, 413, 415, 503),
            },
        }
    },
    "/api/v1/blobs/{sha256}": {
        "put": {
            "tags": ["ledger"],
            "operationId": "ledger_intake_blob",
            "summary": "Keep a snapshot or result above 64 KiB",
            "security": BEARER,
            "parameters": [
                {
                    "name": "sha256",
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                }
            ],
            "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}},
            "responses": {
                "200": {"description": "It was here already"},
                "201": {"description": "Kept"},
                **problems(400, 401, 403, 413, 422, 503),
            },
        }
    },
}
