"""The cast: Ada works at Northwind with the agent “trip-desk”, Dev at another workspace."""

import json
from typing import Any

import pytest

from ledger.append.events import RecordedBatch, record
from ledger.parsed_events import Actor, ParsedEvent, new_id
from ledger.wire import read
from tests import worlds
from tests.worlds import kept

kept_world = worlds.kept_world


@pytest.fixture
@kept
def northwind(db):
    from workspaces.models import Workspace

    return Workspace.objects.create(slug="northwind", name="Northwind")


@pytest.fixture
@kept
def ada(northwind):
    from workspaces.models import User

    return User.objects.create_user("ada@northwind.example", name="Ada")


@pytest.fixture
@kept
def trip_desk(northwind, ada):
    from workspaces.models import Agent

    return Agent.objects.create(workspace=northwind, name="trip-desk", owner=ada)


@pytest.fixture
@kept
def actor(northwind, trip_desk):
    return Actor(northwind.pk, northwind.slug, "agent", trip_desk.name, trip_desk.pk, "0123456789")


def event(
    type_: str, run: str = "run_1", action: str | None = None, **members: Any
) -> dict[str, Any]:
    data = members.pop("data", {})
    found = {"id": new_id(), "type": type_, "run": run, "data": data} | members
    return found | ({"action": action} if action else {})


def parsed_event(actor: Actor, event: dict[str, Any], *, reserved: bool = False) -> ParsedEvent:
    import msgspec

    said = read(msgspec.json.encode(event), actor, reserved=reserved)
    assert isinstance(said, ParsedEvent), said
    return said


def record_events(actor: Actor, *events: dict[str, Any], reserved: bool = False) -> RecordedBatch:
    """Record events through Django's own connection."""
    from django.db import transaction

    from ledger import drivers
    from ledger.drivers import plain_connection

    said = [parsed_event(actor, one, reserved=reserved) for one in events]
    with transaction.atomic():
        return drivers.run(record(actor, said), plain_connection())


@pytest.fixture
@kept
def token(trip_desk, ada):
    from workspaces import keys

    return keys.create_key(trip_desk, by=ada, name="laptop")[1]


@pytest.fixture
def at_the_door():
    """Run a coroutine function with a client of the real door, and give what it returns."""
    from tests.approvals.door import visit

    return visit


@pytest.fixture
def call(token, at_the_door):
    """Send requests one after the other: (method, path, keywords of httpx)."""

    def send(*requests):
        async def talk(client):
            return [
                await client.request(method, path, **({"headers": bearer(token)} | more))
                for method, path, more in requests
            ]

        return at_the_door(talk)

    return send


def bearer(token, media="application/json"):
    return {"authorization": f"Bearer {token}", "content-type": media}


def post(body, **more):
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    return "POST", "/api/v1/events", {"content": content} | more
