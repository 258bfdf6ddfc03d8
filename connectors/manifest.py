"""The form of a manifest: an outside API described as data, for the `http` connector.

Shipped ones stand in `connectors/manifests/`, a deployment's own in the folders that
`AMENDS_CONNECTOR_MANIFESTS` names. The files belong to the deployment; the console only chooses
among them.

Its templates are `{args.amount}`, `{target.id}`, `{key}`. One that is nothing but one placeholder
keeps the value's type; inside a longer text the value is written out. A field whose only
placeholder has no value is left out. Null is none, but where it was recorded of a field of the
target (`{before.assignee}`): there it is what the field held. In a path each value is
percent-encoded, so that it stays one segment. Scheme and host are never templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import yaml
from django.conf import settings
from msgspec import UNSET

from amends.protocol.masking import holds_mask
from connectors.contract import (
    Call,
    Idempotency,
    Kind,
    Operation,
    ProbeStrength,
    Refused,
    Reversibility,
    segment,
)
from edge import pools
from ledger.canonical import digest

# Argument schemas that are declared as data, in settings or manifests.

TYPES: Mapping[str, Any] = {
    "text": str,
    "integer": int,
    "number": float,
    "flag": bool,
    "object": dict[str, Any],
    "list": list[Any],
    "any": Any,
}
FIELDS_MAX = 50


class AnyArgs(msgspec.Struct):
    """Nothing declared: every argument passes."""


def struct_of(name: str, declared: Mapping[str, str] | None) -> type[msgspec.Struct]:
    """A schema from `{"seat": "integer", "note?": "text"}`; raises ValueError where it is none.

    Every field may also be null if its name ends in "?".
    """
    if declared is None:
        return AnyArgs
    return _struct(name, tuple(sorted(declared.items())))


@lru_cache(maxsize=1000)
def _struct(name: str, fields: tuple[tuple[str, str], ...]) -> type[msgspec.Struct]:
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"{name}: at most {FIELDS_MAX} arguments can be declared.")
    made: list[Any] = []
    for field, kind in fields:
        plain = field.removesuffix("?")
        if kind not in TYPES or not plain.isidentifier():
            known = ", ".join(TYPES)
            raise ValueError(f"{name}: {field} is not an argument of one of the types {known}.")
        made.append((plain, TYPES[kind] | None, None) if plain != field else (plain, TYPES[kind]))
    return msgspec.defstruct(name, made, forbid_unknown_fields=True, kw_only=True, module=__name__)


SHIPPED = Path(__file__).parent / "manifests"
MANIFEST_BYTES_MAX = 256 * 1024
FINGERPRINT_CHARACTERS = 12
"""Of a manifest's digest in the version of its connector, which people approve."""

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """`path` begins with "/"; `form` or `json` is the body; headers without a value stay out."""

    method: Method
    path: str
    headers: dict[str, str] = {}
    form: dict[str, Any] | None = None
    json: Any = None


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """An answer with one of `status`, and each value in `where` (dotted path), means `outcome`."""

    status: list[int]
    outcome: Literal["applied", "refused", "unknown"]
    where: dict[str, Any] = {}


class Listing(msgspec.Struct, forbid_unknown_fields=True):
    """A second look, for systems that still show what was put away: gone where `items` is empty."""

    request: Request
    items: str


class Read(msgspec.Struct, forbid_unknown_fields=True):
    """How the target is read. `state`: a dotted path to an object, or names with a path each.

    `version`: "header:etag", or a path in the answer; `gone`: the statuses that mean it is not
    there; `absent`: values of the answer that mean the same; `listed`: a list that has to hold it.
    """

    request: Request
    state: str | dict[str, str] = ""
    version: str = ""
    gone: list[int] = msgspec.field(default_factory=lambda: [404, 410])
    absent: dict[str, Any] = {}
    listed: Listing | None = None


class Trace(msgspec.Struct, forbid_unknown_fields=True):
    """How an earlier try is found again: an item in `items` in which every path of `where` fits.

    `failed`: values that mean that this item had no effect. `more`: a path that is true where the
    answer was only a part of the list, so that not finding anything proves nothing.
    """

    request: Request
    items: str
    where: dict[str, Any]
    failed: list[dict[str, Any]] = []
    more: str = ""


class Amount(msgspec.Struct, forbid_unknown_fields=True):
    """Where the amount (minor units) and the currency of a money operation stand."""

    amount: str
    currency: str


class Described(msgspec.Struct, forbid_unknown_fields=True):
    """One operation. `title` is a template; `leaves` the post-condition's fields, or "gone"."""

    title: str
    reversibility: Reversibility
    idempotency: Idempotency
    apply: Request
    answers: list[Rule]
    args: dict[str, str] = {}
    read: Read | None = None
    trace: Trace | None = None
    leaves: str | dict[str, Any] | None = None
    window_seconds: int | None = None
    probe: ProbeStrength = "none"
    horizon_seconds: int = 0
    limit_seconds: float = 15.0
    kind: Kind = "http"
    money: Amount | None = None


class Auth(msgspec.Struct, forbid_unknown_fields=True):
    """`bearer`: the token as such; `basic`: user and password; `header`: the token in a named
    header.
    """

    kind: Literal["bearer", "basic", "header", "none"] = "bearer"
    header: str = ""


class Account(msgspec.Struct, forbid_unknown_fields=True):
    """How the system says whose account a token opens: at which dotted path of what answer."""

    request: Request
    at: str


class Manifest(msgspec.Struct, forbid_unknown_fields=True, eq=False):
    """A file of a deployment, read once; by its identity what is worked out of it is kept."""

    name: str
    version: str
    title: str
    operations: dict[str, Described]
    auth: Auth = msgspec.field(default_factory=Auth)
    headers: dict[str, str] = {}
    values: dict[str, str] = {}
    """Settings of a connection that templates may use, with what each is for."""
    account: Account | None = None
    """Asked once for each token that is entered; without it another token is another account."""


pools.describe_types(Manifest)


@cache
def manifests() -> Mapping[str, Manifest]:
    """All manifests by name; raises ValueError that names the file of the first mistake."""
    found: dict[str, Manifest] = {}
    for file in _files():
        try:
            manifest = parsed(file.read_bytes())
        except ValueError as wrong:
            raise ValueError(f"{file.name}: {wrong}") from wrong
        found[manifest.name] = manifest
    return MappingProxyType(found)


@lru_cache(maxsize=100)
def fingerprint_of(manifest: Manifest) -> str:
    """The beginning of its digest (RFC 8785, SHA-256): another one sends something else. Each step
    of a plan asks for it, and again before it is sent. Whose account it is, is no part of it.
    """
    said = msgspec.to_builtins(manifest)
    del said["account"]
    return digest(said)[:FINGERPRINT_CHARACTERS]


def _files() -> Iterator[Path]:
    for folder in [SHIPPED, *map(Path, settings.CONNECTOR_MANIFESTS)]:
        yield from sorted(folder.glob("*.yaml"))


def parsed(text: bytes) -> Manifest:
    """One manifest from YAML or JSON; raises ValueError with the place of the first mistake."""
    if len(text) > MANIFEST_BYTES_MAX:
        raise ValueError(f"a manifest has at most {MANIFEST_BYTES_MAX} bytes")
    try:
        manifest = msgspec.convert(yaml.safe_load(text), Manifest)
    except (yaml.YAMLError, msgspec.ValidationError) as wrong:
        raise ValueError(str(wrong)) from wrong
    if manifest.account and not _is_path(manifest.account.request.path):
        raise ValueError("account: its path has to begin with one /")
    for name, described in manifest.operations.items():
        _check(name, described)
        operation_of(name, described)
    return manifest


def _is_path(text: str) -> bool:
    return text.startswith("/") and not text.startswith("//")


def _check(name: str, described: Described) -> None:
    requests = [described.apply]
    requests += [part.request for part in (described.read, described.trace) if part]
    for request in requests:
        if not _is_path(request.path):
            raise ValueError(f"{name}: the path {request.path!r} has to begin with one /")
    spoken_of = placeholders(msgspec.to_builtins(described))
    strange = sorted({one for one in spoken_of if one.split(".")[0] not in ROOTS})
    if strange:
        raise ValueError(f"{name}: {', '.join(strange)} is nothing that a template can speak of")
    if described.trace and not all([described.trace.where, *described.trace.failed]):
        raise ValueError(f"{name}: of a trace, where and each of failed name at least one value")
    if described.probe != "none" and not (described.trace or described.read):
        raise ValueError(f"{name}: a probe needs a trace or something to read")


def operation_of(name: str, described: Described) -> Operation:
    return Operation(
        name=name,
        title=described.title.partition("{")[0].strip() or name,
        args_schema=struct_of(name, described.args),
        reversibility=described.reversibility,
        idempotency=described.idempotency,
        window_seconds=described.window_seconds,
        probe=described.probe,
        horizon_seconds=described.horizon_seconds,
        limit_seconds=described.limit_seconds,
        kind=described.kind,
        observes=described.read is not None,
        reads_back=described.trace is not None
        or (described.read is not None and described.leaves is not None),
    )


_PLACEHOLDER = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_@-]+)*)\}")
ROOTS = frozenset(
    {
        "args",
        "target",
        "key",
        "before",
        "expected",
        "observed",
        "settings",
        "reason",
        "money",
        "origin",
    }
)


RECORDED_FIELDS = ("before.", "expected.", "observed.state.")
"""Where null is a value: that a field held nothing."""


class Missing(Refused):
    """We stopped because a value that the request cannot do without was not recorded."""


def facts_of(call: Call) -> dict[str, Any]:
    """What placeholders may speak of: nothing secret."""
    observed = call.observed
    return {
        "args": call.args,
        "target": {"type": call.target.type, "id": call.target.id},
        "key": call.key,
        "before": call.before,
        "expected": call.expected,
        "observed": {"version": observed.version, "state": observed.state} if observed else None,
        "settings": call.connection.settings.values,
        "reason": call.reason,
        "origin": origin(call.connection.settings.base_url),
    }


def origin(base_url: str) -> str:
    """Scheme, host and port, as the `Origin` header of a browser would say."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}"


def filled(template: Any, facts: Mapping[str, Any]) -> Any:
    """The template with its values; UNSET where a lone placeholder has none."""
    if isinstance(template, str):
        return _text(template, facts)
    if isinstance(template, Mapping):
        made = {str(name): filled(inner, facts) for name, inner in template.items()}
        return {name: value for name, value in made.items() if value is not UNSET}
    if isinstance(template, list):
        return [value for inner in template if (value := filled(inner, facts)) is not UNSET]
    return template


def path(template: str, facts: Mapping[str, Any]) -> str:
    """A path and query with its values encoded; raises Missing, or Refused for `.` and `..`, and
    for what was masked: encoded, the mark of it would not be seen.
    """

    def encoded(match: re.Match[str]) -> str:
        value = looked_up(facts, match[1])
        if value is None or value is UNSET or value == "":
            raise Missing(f"{match[1]} is not known, and the request cannot do without it.")
        if holds_mask(value):
            raise Refused(f"{match[1]} is a masked value, which nobody here knows.")
        return segment(written(value))

    return _PLACEHOLDER.sub(encoded, template)


def lacking(template: Any, facts: Mapping[str, Any]) -> list[str]:
    """The placeholders that have no value: what they stand in would be left out."""
    return [name for name in placeholders(template) if looked_up(facts, name) in (None, UNSET)]


def looked_up(facts: Any, dotted: str) -> Any:
    """The value at a dotted path; UNSET where there is none."""
    value = facts
    for name in dotted.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return UNSET
    return value


def placeholders(template: Any) -> Iterator[str]:
    """The names that a template speaks of, for checking a manifest at start."""
    if isinstance(template, str):
        yield from (match[1] for match in _PLACEHOLDER.finditer(template))
    elif isinstance(template, Mapping):
        for inner in template.values():
            yield from placeholders(inner)
    elif isinstance(template, list):
        for inner in template:
            yield from placeholders(inner)


def _text(template: str, facts: Mapping[str, Any]) -> Any:
    whole = _PLACEHOLDER.fullmatch(template)
    if whole:
        value = looked_up(facts, whole[1])
        return UNSET if value is None and not whole[1].startswith(RECORDED_FIELDS) else value

    def value_of(match: re.Match[str]) -> str:
        value = looked_up(facts, match[1])
        return "" if value is None or value is UNSET else written(value)

    return _PLACEHOLDER.sub(value_of, template)


def written(value: Any) -> str:
    """As it stands in a text, a form or a header. A whole number has no point, whichever type it
    came in: canonical JSON, over which people approve it, does not tell 500 from 500.0.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # of any length
    return msgspec.json.encode(value).decode()
