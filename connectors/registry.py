"""Which connectors there are: the built-in ones and those of installed packages.

A package offers a connector through the entry-point group `amends.connectors`; the entry point
names a subclass of `Connector`. Whatever is wrong with one is logged and a system check's error at
start, and that one is left out: a broken plug-in must not stop the desk from undoing things
elsewhere, so a fault in a package's connector is a warning. A built-in one that cannot be imported
is our own fault, and raises.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004 - Django's name

from connectors.contract import Connector, Refused
from edge.pools import describe_types

if TYPE_CHECKING:
    from connectors.models import Connection

GROUP = "amends.connectors"

logger = logging.getLogger(__name__)

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "caldav": "connectors.builtin.caldav:Caldav",
        "http": "connectors.builtin.http:Http",
        "smtp": "connectors.builtin.smtp:Smtp",
        "sql": "connectors.builtin.sql:Sql",
        "webhook": "connectors.builtin.webhook:Webhook",
    }
)
"""A table and not entry points, so that a checkout works without being installed."""


class UnknownConnector(Exception):
    """We stopped because no connector of this name is installed. Install its package."""


@dataclass(frozen=True, slots=True)
class Registry:
    connectors: Mapping[str, Connector]
    faults: tuple[str, ...] = field(default=())


def get(name: str) -> Connector:
    """The connector of this name; raises UnknownConnector."""
    try:
        return registry().connectors[name]
    except KeyError:
        raise UnknownConnector(f"No connector named “{name}” is installed.") from None


def installed(name: str) -> Connector | None:
    """The connector of this name, for whoever only tells of it; None where its package is gone."""
    return registry().connectors.get(name)


def of(connection: Connection) -> Connector:
    """The connector of a connection. Raises Refused where none of its name is installed."""
    try:
        return get(connection.connector)
    except UnknownConnector as unknown:
        raise Refused(str(unknown)) from unknown


def opened(connection: Connection) -> tuple[Connector, Any]:
    """As `of`, with the connection's settings as it reads them. Raises Refused where they do not
    fit it, too.
    """
    connector = of(connection)
    try:
        return connector, msgspec.convert(connection.settings, connector.settings_schema)
    except msgspec.ValidationError as wrong:
        raise Refused(f"The settings of {connection.name} do not fit: {wrong}") from wrong


def names() -> list[str]:
    return sorted(registry().connectors)


_finding = threading.Lock()


def registry() -> Registry:
    """All usable connectors, found once per process; `forget()` finds them anew."""
    with _finding:
        return _found()


def forget() -> None:
    """What is installed has changed: look again when somebody asks next."""
    _found.cache_clear()


@cache
def _found() -> Registry:
    found: dict[str, Connector] = {}
    faults: list[str] = []
    for entry in _offers():
        try:
            connector = entry.load()()
        except Exception as fault:
            if entry.value == BUILT_IN.get(entry.name):
                raise
            logger.exception("connector %s cannot be loaded", entry.name)
            faults.append(f"{entry.name} ({entry.value}) cannot be loaded: {fault}")
            continue
        wrong = list(faults_of(connector, entry.name))
        if entry.name in found:
            wrong.append("another connector has this name already")
        faults.extend(f"{entry.name} ({entry.value}): {one}" for one in wrong)
        if not wrong:
            describe_types(connector.settings_schema, connector.credential_schema)
            found[entry.name] = connector
    return Registry(MappingProxyType(found), tuple(faults))


def _offers() -> Iterator[EntryPoint]:
    for name, place in BUILT_IN.items():
        yield EntryPoint(name=name, value=place, group=GROUP)
    importlib.invalidate_caches()
    yield from sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def faults_of(connector: object, name: str) -> Iterator[str]:
    """What a connector lacks of the contract, one sentence each; nothing where it is whole."""
    if not isinstance(connector, Connector):
        yield "is not a subclass of connectors.contract.Connector"
        return
    if getattr(connector, "name", None) != name:
        yield f"calls itself {getattr(connector, 'name', None)!r}; entry point and name must agree"
    for fact in ("version", "title"):
        if not isinstance(getattr(connector, fact, None), str):
            yield f"has no {fact}"
    for schema in ("settings_schema", "credential_schema"):
        declared = getattr(connector, schema)
        if not (inspect.isclass(declared) and issubclass(declared, msgspec.Struct)):
            yield f"{schema} is not a msgspec.Struct"
    yield from _broken_promises(connector)


def _broken_promises(connector: Connector) -> Iterator[str]:
    for promise in ("preview", "observe", "apply"):
        if getattr(type(connector), promise) is getattr(Connector, promise):
            yield f"does not implement {promise}"
    for key, operation in connector.operations.items():
        if operation.name != key:
            yield f"operation {key!r} has another name in itself"
        elif operation.probe != "none" and type(connector).probe is Connector.probe:
            yield f"operation {key!r} declares a probe, but probe is not implemented"


@register("connectors")
def connectors_are_whole(**_: Any) -> list[CheckMessage]:
    hint = "It is left out. Remove or mend its package; docs/connectors.md has the contract."
    return [
        Error(fault, hint=hint, id="connectors.E001")
        if fault.split(maxsplit=1)[0] in BUILT_IN
        else Warning(fault, hint=hint, id="connectors.W001")
        for fault in registry().faults
    ]
