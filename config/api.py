"""The HTTP API's document and the routers of every floor, under `/api/v1`.

The hot endpoints are served in front of Django (config/edge.py); their routes tell what they read
and answer, so that the page shows them with the rest.
"""

import logging
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI, Swagger
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema

from approvals.policy import PolicyUnreadable
from config.edge import HOT_MODULES
from config.middleware import come_back
from edge.asgi import PROBLEM, REF, openapi
from workspaces.access import NotAllowed
from workspaces.keys import LacksScope
from workspaces.moves import CannotMove
from workspaces.pages import problem_response
from workspaces.rates import TooFast

logger = logging.getLogger(__name__)
MISTAKES_TOLD_MAX = 20

# The id of a run may hold slashes: whoever reads a run by it comes after what is asked of one.
ROUTERS = (
    "approvals.api", "approvals.policy_api", "approvals.interchange.aais", "recovery.api",
    "recovery.bulk_api", "ledger.api",
)  # fmt: skip


class ApiSection(NamedTuple):
    """One part of the page: the tag that its operations bear, and its words for people."""

    tag: str
    title: str
    description: str


PARTS = (
    ApiSection("agents", "Agents", "What a run asks before it acts, and hears from the desk"),
    ApiSection("ledger", "Ledger", "Events, snapshots and traces in; runs, proofs and heads out"),
    ApiSection("recovery", "Recovery", "Cases, plans, corrections and what is left over"),
    ApiSection("approvals", "Approvals", "The documents of a decision; none is decided here"),
    ApiSection("policies", "Policies", "Checked, tried, saved, put in force; what is proposed"),
    ApiSection("grants", "Bounded grants", "What passes without being asked, and the end of it"),
    ApiSection("lists", "Lists", "The named lists that rules go by"),
    ApiSection("pauses", "Pauses", "What is stopped, and letting it go on"),
    ApiSection("aap", "AAP", "For agents that speak the Agent Approval Protocol"),
    ApiSection("aais", "AAIS", "Requests and outcomes as documents"),
)
"""Those first that a newcomer needs first."""
REFUSALS = {
    "401": {"description": "There is no such key or token, or it has expired"},
    "429": {"description": "Faster than may be; Retry-After says when to come back"},
    "403": {"description": "The key lacks the scope that this needs, or its owner the permission"},
}
OTHERS = {
    "default": {
        "description": "Why not, as a problem (RFC 9457)",
        "content": {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}},
    }
}


class DeskAPI(NinjaAPI):
    parts = PARTS

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        schema = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        for operation in (one for path in schema["paths"].values() for one in path.values()):
            if isinstance(operation, dict) and operation.get("security"):
                operation["responses"] = {**REFUSALS, **operation["responses"], **OTHERS}
        paths, schemas = openapi(
            route for name in HOT_MODULES for route in import_module(name).routes
        )
        schema["paths"].update(paths)
        if both := schemas.keys() & schema["components"]["schemas"].keys():
            raise ValueError(f"two schemas of one name: {sorted(both)}")
        schema["components"]["schemas"].update(schemas)
        named(schema)
        return schema


api = DeskAPI(
    title="Amends",
    version="1",
    description=(
        "What agents and people's scripts say to the desk. An agent's key ingests and asks; a "
        "person's token acts like its owner, and never decides an approval."
    ),
    docs=Swagger({"defaultModelsExpandDepth": 0, "syntaxHighlight": {"activated": False}}),
    docs_url="/docs",
    openapi_extra={"tags": [{"name": part.tag, "description": part.description} for part in PARTS]},
    openapi_url="/openapi.json",
    urls_namespace="api",
)

for _name in ROUTERS:
    api.add_router("", import_module(_name).router)


@api.exception_handler(NotAllowed)
def not_allowed(request: HttpRequest, refusal: NotAllowed) -> HttpResponse:
    return problem_response(403, "Not allowed", str(refusal))


@api.exception_handler(LacksScope)
def lacks_scope(request: HttpRequest, refusal: LacksScope) -> HttpResponse:
    return problem_response(403, "The key may not do this", str(refusal))


@api.exception_handler(TooFast)
def too_fast(request: HttpRequest, fast: TooFast) -> HttpResponse:
    answer = problem_response(429, "Too many requests, come back later", str(fast))
    answer["Retry-After"] = str(fast.seconds)
    return answer


@api.exception_handler(AuthenticationError)
def no_key(request: HttpRequest, error: HttpError) -> HttpResponse:
    return problem_response(401, "No valid key or token", "", type=f"{PROBLEM}key")


@api.exception_handler(HttpError)
def not_served(request: HttpRequest, error: HttpError) -> HttpResponse:
    status = error.status_code
    return problem_response(status, "It cannot be served", str(error), type=f"{PROBLEM}schema")


@api.exception_handler(Http404)
def not_there(request: HttpRequest, missing: Http404) -> HttpResponse:
    """In the words of whoever looked, if they have any: Django's own name a class of ours."""
    words = "" if "matches the given query" in str(missing) else str(missing)
    return problem_response(404, "It is not there", words, type=f"{PROBLEM}not-found")


@api.exception_handler(ValidationError)
def does_not_fit(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Each member that does not fit, under `problems`, as those of a policy; none shows a value."""
    found = [
        {"path": _place(one["loc"]), "message": str(one["msg"])}
        for one in error.errors[:MISTAKES_TOLD_MAX]
    ]
    detail = "; ".join(f"{one['path']}: {one['message']}" for one in found)
    kind = f"{PROBLEM}schema"
    return problem_response(422, "It does not fit", detail, type=kind, problems=found)


def _place(found: Sequence[object]) -> str:
    """Where in a request something stands; what our code calls the body, nobody knows."""
    where, *inside = found
    return ".".join(map(str, inside[where == "body" :])) or str(where)


@api.exception_handler(CannotMove)
def cannot_move(request: HttpRequest, refusal: CannotMove) -> HttpResponse:
    return problem_response(409, "It has moved on", str(refusal))


@api.exception_handler(PolicyUnreadable)
def unreadable(request: HttpRequest, error: PolicyUnreadable) -> HttpResponse:
    logger.warning("%s %s: %s", request.method, request.path, error)
    return problem_response(422, "The policy in force cannot be read", str(error)[:1000])


@api.exception_handler(OperationalError)
@api.exception_handler(InterfaceError)
def database_away(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.warning("%s %s: %s", request.method, request.path, error)
    return come_back(problem_response(503, "The database is away, come back in a moment", ""))


@api.exception_handler(DataError)
def unfit(request: HttpRequest, error: DataError) -> HttpResponse:
    """A NUL, or a number that no column holds, wherever in a request it stood."""
    logger.warning("%s %s: %s", request.method, request.path, error)
    return problem_response(422, "What was sent cannot be kept", str(error).partition("\n")[0])


# What the API's page says of the parameters: names that people read, and what each means. Routes
# name what they take as their code does (`pk`, `id`). On the page a number in a path is called
# what it is the number of; the wire knows no names of these, so that nothing else changes.

OF_FOLDER = {
    "approvals": "approval", "cases": "case", "corrections": "correction", "plans": "plan",
    "residues": "residue", "instances": "receiver", "requests": "request", "grants": "grant",
    "bulk": "job", "pauses": "pause",
}  # fmt: skip
"""What a number below a folder of the API is the number of."""
UNNAMED = frozenset({"pk", "id"})
ABOUT = {
    "action": "What the agent calls the action within its run, such as act_1",
    "approval": "The number of the approval, as `begin` answers it and its card has it",
    "case": "The number of the case, as lists and the address of its page have it",
    "correction": "The number of the correction, as its case tells it",
    "event": "The id by which the event was sent, or which the desk gave to its own",
    "grant": "The number of the bounded grant, as the list tells it",
    "job": "The number of the bulk job, as its start answered it",
    "number": "The number of the version, as the list of them tells it",
    "pause": "The number of the pause, as the list tells it",
    "plan": "The number of the plan, as its case tells it",
    "receiver": "The id that was answered when the receiver was registered",
    "request": "The id that was answered when it was asked for",
    "residue": "The number of what was left over, as the list tells it",
    "run": "What the agent calls its run",
    "sha256": "The SHA-256 of the bytes, in hexadecimal",
}
"""Of parameters that mean the same wherever they stand."""
HERE = {
    **{
        (f"/api/v1/lists/{{name}}{act}", "name"): "What the list is called, as in the policy"
        for act in ("", "/history", "/replace")
    },
    ("/api/v1/proposals/{key}", "key"): "By which the list of proposals names it",
    ("/api/v1/approval-health", "days"): "Over how many days back, 90 at most",
    ("/api/v1/approvals/{approval}/documents/{name}", "name"): "requested, decided or resolved",
    ("/api/v1/ledger/entries", "since"): "The number of the first entry that is wanted",
    ("/api/v1/ledger/entries", "origin"): "Of which log: one that was restored has another",
    ("/api/v1/ledger/consistency", "old"): "The size of the older signed head",
    ("/api/v1/ledger/consistency", "new"): "The size of the newer signed head",
    ("/api/v1/cases", "order"): "How they are sorted, as the queue offers it",
    ("/api/v1/cases", "everything"): "Also those before the recent ones to which a search is cut",
    ("/api/v1/cases/{case}/preview", "verb"): "compensate, resume or close",
    ("/api/v1/cases/{case}/preview", "checkpoint"): "The checkpoint up to which, by its number",
    ("/api/v1/cases/{case}/preview", "choice"): (
        "For targets that have drifted: effect:how, with commas between; rebase, override or skip"
    ),
    ("/api/v1/residues", "state"): "open, done or all",
    ("", "q"): "A query, as in the field above the list",
    ("", "after"): "Where the answer before ended",
    ("", "limit"): "How many at most",
}
"""Of others, by the path and their name; without a path, wherever nothing else is said."""


def named(schema: dict[str, Any]) -> None:
    """Rename and describe every parameter of an OpenAPI document, in place. Raises LookupError of
    one of which nothing is said, so that no route is forgotten.
    """
    for path in list(schema["paths"]):
        operations = schema["paths"].pop(path)
        names = {found[2]: OF_FOLDER[found[1]] for found in _numbers(path)}
        known = path
        for code, people in names.items():
            known = known.replace(f"{{{code}}}", f"{{{people}}}")
        schema["paths"][known] = operations
        for operation in operations.values():
            for one in operation.get("parameters", ()) if isinstance(operation, dict) else ():
                if one["in"] == "path":
                    one["name"] = names.get(one["name"], one["name"])
                one["description"] = one.get("description") or _about(known, one["name"])


def _numbers(path: str) -> list[re.Match[str]]:
    return [found for found in re.finditer(r"/([\w-]+)/\{(\w+)\}", path) if found[2] in UNNAMED]


def _about(path: str, name: str) -> str:
    words = HERE.get((path, name)) or HERE.get(("", name)) or ABOUT.get(name)
    if words is None:
        raise LookupError(f"{path}: say in ABOUT of config/api.py what “{name}” is")
    return words
