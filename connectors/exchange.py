"""One exchange with an API that a manifest describes: the request as built, the answer as read."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET

from connectors.contract import Call, CannotRead, Refused, State, meaning
from connectors.manifest import (
    Described,
    Manifest,
    Read,
    Request,
    Rule,
    facts_of,
    filled,
    looked_up,
    manifests,
    path,
    written,
)
from connectors.outbound import Response
from ledger.canonical import same


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """`manifest`: the name of one; `base_url`: scheme, host and port, and a path if the API has
    one.
    """

    manifest: Annotated[
        str, meaning("The name of the file that describes the API; docs/connectors.md has its form")
    ]
    base_url: Annotated[
        str,
        meaning("Scheme, host and port, and a path if the API has one: https://api.example.com"),
    ]
    values: Annotated[
        dict[str, Any], meaning("What the manifest asks for, a line each: account: acct_17")
    ] = {}


class Token(msgspec.Struct, forbid_unknown_fields=True):
    """`token` for bearer and header, `user` and `password` for basic authentication."""

    token: Annotated[str, meaning("For a manifest that sends a bearer token or a header")] = ""
    user: Annotated[str, meaning("For a manifest with basic authentication")] = ""
    password: Annotated[str, meaning("For a manifest with basic authentication")] = ""


def manifest_of(settings: Settings) -> Manifest:
    try:
        return manifests()[settings.manifest]
    except KeyError:
        known = ", ".join(sorted(manifests()))
        raise ValueError(f"There is no manifest “{settings.manifest}”; known: {known}.") from None


def built(request: Request, facts: Mapping[str, Any]) -> State:
    """A request as it will be sent, credentials apart."""
    made: State = {
        "method": request.method,
        "path": path(request.path, facts),
        "headers": _headers(request.headers, facts),
    }
    if request.form is not None:
        made["form"] = dict(_flat(filled(request.form, facts)))
    if request.json is not None:
        body = filled(request.json, facts)
        if body is UNSET:
            raise Refused("The body of the request was not recorded.")
        made["json"] = body
    return made


def _headers(templates: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, str]:
    """A number is written out: left out, the condition of a write would be gone with it."""
    found = filled(templates, facts)
    return {name: written(value) for name, value in found.items() if value is not None}


def send(call: Call, request: Request) -> Response:
    settings: Settings = call.connection.settings
    facts = facts_of(call)
    made = built(request, facts)
    general = _headers(manifest_of(settings).headers, facts)
    headers = {**general, **made["headers"], **_authority(call)}
    content = b""
    if "form" in made:
        content = urlencode(made["form"]).encode()
        headers["content-type"] = "application/x-www-form-urlencoded"
    elif "json" in made:
        content = msgspec.json.encode(made["json"])
        headers["content-type"] = "application/json"
    url = settings.base_url.rstrip("/") + made["path"]
    return call.connection.outbound.request(request.method, url, headers=headers, content=content)


def _authority(call: Call) -> dict[str, str]:
    auth = manifest_of(call.connection.settings).auth
    token: Token = call.connection.credentials
    if auth.kind == "bearer":
        return {"authorization": f"Bearer {token.token}"}
    if auth.kind == "basic":
        return basic(token.user, token.password)
    return {auth.header: token.token} if auth.kind == "header" else {}


def basic(user: str, password: str) -> dict[str, str]:
    pair = b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {pair}"}


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested fields as forms write them: `metadata[amends_key]`."""
    for name, inner in value.items():
        key = f"{prefix}[{name}]" if prefix else name
        if isinstance(inner, Mapping):
            yield from _flat(inner, key)
        elif inner is not None:  # a form has no null
            yield key, written(inner)


def rule_for(described: Described, answer: Response) -> Rule | None:
    try:
        said = answer.json()
    except ValueError:
        said = None
    for rule in described.answers:
        if answer.status in rule.status and fits(rule.where, said):
            return rule
    return None


def fits(where: Mapping[str, Any], said: Any) -> bool:
    return all(same(value, looked_up(said, dotted)) for dotted, value in where.items())


def state_of(read: Read, said: Any) -> State:
    if isinstance(read.state, str):
        state = looked_up(said, read.state) if read.state else said
        if not isinstance(state, dict):
            raise CannotRead("The answer does not hold what the manifest looks for.")
        return state
    found = {name: looked_up(said, dotted) for name, dotted in read.state.items()}
    state = {name: value for name, value in found.items() if value is not UNSET}
    if not state:
        raise CannotRead("The answer holds nothing that the manifest looks for.")
    return state


def version_of(read: Read, answer: Response) -> str | None:
    kind, _, name = read.version.partition(":")
    if kind == "header":
        return answer.headers.get(name.lower())
    value = looked_up(answer.json(), read.version) if read.version else None
    return None if value is None or value is UNSET else str(value)


def complaint(answer: Response) -> str:
    try:
        said = answer.json()
    except ValueError:
        return ""
    for dotted in ("error.message", "error.msg", "error", "detail", "title", "message"):
        value = looked_up(said, dotted)
        if isinstance(value, str):
            return value
    return ""
