"""The cast: Ada works at Northwind with the agent “trip-desk”, Dev at another workspace."""

from typing import Any

import pytest

from ledger.ids import new_id
from ledger.record import Recorded, record
from ledger.said import Said, Speaker
from ledger.wire import read


@pytest.fixture
def northwind(db):
    from workspaces.models import Workspace

    return Workspace.objects.create(slug="northwind", name="Northwind")


@pytest.fixture
def ada(northwind):
    from workspaces.models import User

    return User.objects.create_user("ada@northwind.example", name="Ada")


@pytest.fixture
def trip_desk(northwind, ada):
    from workspaces.models import Agent

    return Agent.objects.create(workspace=northwind, name="trip-desk", owner=ada)


@pytest.fixture
def speaker(northwind, trip_desk):
    return Speaker(
        northwind.pk, northwind.slug, "agent", trip_desk.name, trip_desk.pk, "0123456789"
    )


def event(
    type_: str, run: str = "run_1", action: str | None = None, **members: Any
) -> dict[str, Any]:
    data = members.pop("data", {})
    found = {"id": new_id(), "type": type_, "run": run, "data": data} | members
    return found | ({"action": action} if action else {})


def heard(speaker: Speaker, event: dict[str, Any], *, reserved: bool = False) -> Said:
    import msgspec

    said = read(msgspec.json.encode(event), speaker, reserved=reserved)
    assert isinstance(said, Said), said
    return said


def tell(speaker: Speaker, *events: dict[str, Any], reserved: bool = False) -> Recorded:
    """Record events through Django's own connection."""
    from django.db import transaction

    from ledger import drivers
    from ledger.desk import plain_connection

    said = [heard(speaker, one, reserved=reserved) for one in events]
    with transaction.atomic():
        return drivers.run(record(speaker, said), plain_connection())
